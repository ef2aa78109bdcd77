"use strict";
// Tables: sorted by a click on a heading, unknown values last; searched as one types.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const number = head.classList.contains("n");
      const first = number ? "descending" : "ascending";
      const other = number ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.cells[column].dataset.v;
      const compare = (a, b) => {
        const x = value(a), y = value(b);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (number ? Number(x) - Number(y) : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
  const search = table.closest("section").querySelector("input[type=search]");
  if (search) search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
