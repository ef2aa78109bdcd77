// Tables: sorted by a click on a heading, searched as one types, a page of rows in the document at a time.
const PAGE_ROWS = 25;
const MANY_COLUMNS = 10;

function drawTable(block) {
  const rowCount = block.values.length ? block.values[0].length : 0;
  const state = { order: null, column: -1, descending: false, query: "", page: 0 };
  const texts = block.columns.map((c, i) => (c.number ? -1 : i)).filter((i) => i >= 0);
  const barColumn = block.columns.findIndex((c) => c.key === block.bar);
  const largest = barColumn < 0 ? 0 : block.values[barColumn].reduce((most, v) => Math.max(most, v ?? 0), 0);
  let haystacks = null;

  const body = make("tbody");
  const status = make("span", { "aria-live": "polite" });
  const previous = make("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const next = make("button", { type: "button", onclick: () => turn(1) }, "Next");
  const search = make("input", { type: "search", placeholder: "Search names", "aria-label": `Search ${block.name}` });
  search.addEventListener("input", () => { state.query = search.value.trim().toLowerCase(); state.page = 0; update(); });
  const headings = block.columns.map((column, index) => heading(column, index));

  function heading(column, index) {
    const arrow = make("span", { class: "arrow" });
    const button = make("button", { type: "button", title: column.doc, onclick: () => sortBy(index) }, column.heading, arrow,
      column.unit ? make("span", { class: "unit" }, column.unit) : null);
    return { cell: make("th", { class: headingClass(column, block), scope: "col" }, button), arrow };
  }

  function sortBy(index) {
    state.descending = state.column === index ? !state.descending : block.columns[index].number;
    state.column = index;
    state.page = 0;
    update();
  }

  function turn(by) {
    state.page += by;
    paint();
  }

  function matches() {
    const all = Array.from({ length: rowCount }, (_, row) => row);
    if (!state.query) return all;
    haystacks ??= all.map((row) => texts.map((i) => block.values[i][row] ?? "").join("\n").toLowerCase());
    return all.filter((row) => haystacks[row].includes(state.query));
  }

  // Unknown values stand last whichever way one sorts; equal ones keep their order.
  function compare(a, b) {
    const values = block.values[state.column];
    const [x, y] = [values[a], values[b]];
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    const sign = x < y ? -1 : x > y ? 1 : 0;
    return (state.descending ? -sign : sign) || a - b;
  }

  function update() {
    state.order = matches();
    if (state.column >= 0) state.order.sort(compare);
    headings.forEach(({ cell, arrow }, index) => {
      const on = index === state.column;
      arrow.textContent = on ? (state.descending ? " \u2193" : " \u2191") : "";
      if (on) cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    paint();
  }

  function paint() {
    const first = state.page * PAGE_ROWS;
    const rows = state.order.slice(first, first + PAGE_ROWS);
    body.replaceChildren(...rows.map(drawRow));
    const total = state.order.length;
    const of = total === rowCount ? `${total.toLocaleString("en-US")}` : `${total.toLocaleString("en-US")} found of ${rowCount.toLocaleString("en-US")}`;
    status.textContent = total ? `${first + 1} to ${first + rows.length} of ${of}` : "Nothing found";
    previous.disabled = state.page === 0;
    next.disabled = first + PAGE_ROWS >= total;
  }

  function drawRow(row) {
    return make("tr", null, block.columns.map((column, index) =>
      drawCell(column, block.values[index][row], index === barColumn ? largest : 0)));
  }

  state.column = block.columns.findIndex((c) => c.key === block.sort);
  state.descending = state.column >= 0 && block.columns[state.column].number;
  update();
  const paged = rowCount > PAGE_ROWS;
  const kind = `table${texts.length > 1 ? " many" : ""}${block.columns.length > MANY_COLUMNS ? " dense" : ""}`;
  return make("div", { class: kind },
    rowCount > 5 ? make("div", { class: "tools" }, search, status, paged ? previous : null, paged ? next : null) : null,
    make("div", { class: "scroll" }, make("table", null, make("thead", null, make("tr", null, headings.map((h) => h.cell))), body)),
    columnsMean(block));
}

function headingClass(column, block) {
  if (!column.number) return null;
  return column.key === block.bar ? "n wide" : "n";
}

function drawCell(column, value, largest) {
  if (value === null || value === undefined) return make("td", { class: column.number ? "n null" : "null" }, UNKNOWN);
  if (!column.number) {
    const text = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    return make("td", { class: "name", title: text, onclick: (event) => event.currentTarget.classList.toggle("open") }, text);
  }
  const cell = make("td", { class: "n", title: exact(value, column.exact) }, shown(value, column));
  if (largest > 0) {
    cell.classList.add("barred");
    cell.style.backgroundSize = `${(100 * Math.max(value, 0)) / largest}% 72%`;
  }
  return cell;
}

function columnsMean(block) {
  const unknown = block.unknown.length
    ? make("p", { class: "means" }, `Not measured in this trace, so left out: ${block.unknown.join(", ")}.`)
    : null;
  return make("details", { class: "columns-mean" }, make("summary", null, "What the columns mean"),
    make("dl", null, block.columns.map((c) => [make("dt", null, c.heading), make("dd", null, c.doc)])), unknown);
}
