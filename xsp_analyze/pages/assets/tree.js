// A table whose rows stand under one another: opened and closed by a click on the first cell.
const ROWS_OPEN_AT_FIRST = 40;
const MOST_ROWS = 200;

function drawTree(block) {
  unfold(block);
  const depths = block.values[block.columns.findIndex((c) => c.key === "depth")];
  const shownColumns = block.columns.map((_, index) => index).filter((index) => block.columns[index].key !== "depth");
  const barColumn = block.columns.findIndex((c) => c.key === block.bar);
  const largest = barColumn < 0 ? 0 : block.values[barColumn].reduce((most, v) => Math.max(most, v ?? 0), 0);
  const hasBelow = depths.map((depth, row) => row + 1 < depths.length && depths[row + 1] > depth);
  let closed = closedBelow(firstDepth());
  const body = make("tbody");
  let most = MOST_ROWS;
  const more = make("button", { type: "button", onclick: () => { most += MOST_ROWS; paint(); } });

  // The deepest level at which the rows at first still fit a screen.
  function firstDepth() {
    let depth = 1;
    while (depth < 20 && depths.filter((d) => d <= depth + 1).length <= ROWS_OPEN_AT_FIRST) depth += 1;
    return depth;
  }

  function closedBelow(depth) {
    return new Set(depths.flatMap((d, row) => (hasBelow[row] && d >= depth ? [row] : [])));
  }

  function visibleRows() {
    const rows = [];
    let hiddenBelow = Infinity;
    depths.forEach((depth, row) => {
      if (depth > hiddenBelow) return;
      hiddenBelow = closed.has(row) ? depth : Infinity;
      rows.push(row);
    });
    return rows;
  }

  function toggle(row) {
    if (closed.has(row)) closed.delete(row);
    else closed.add(row);
    paint();
  }

  function drawRow(row) {
    return make("tr", null, shownColumns.map((index) => {
      const value = block.values[index][row];
      if (index !== 0) return drawCell(block.columns[index], value, index === barColumn ? largest : 0);
      const mark = hasBelow[row] ? (closed.has(row) ? "\u25b8" : "\u25be") : "";
      const label = hasBelow[row]
        ? make("button", { type: "button", "aria-expanded": String(!closed.has(row)), onclick: () => toggle(row) }, make("span", { class: "toggle" }, mark), value)
        : [make("span", { class: "toggle" }, mark), value];
      return make("td", { class: "name", title: value, style: { paddingLeft: `${depths[row] * 18}px` } }, label);
    }));
  }

  // A wide tree is drawn some rows at a time: thousands at once would hold up the page.
  function paint() {
    const rows = visibleRows();
    body.replaceChildren(...rows.slice(0, most).map(drawRow));
    alignPoints(body);
    more.hidden = rows.length <= most;
    more.textContent = `Show ${count(Math.min(rows.length - most, MOST_ROWS))} more of ${count(rows.length)} rows`;
  }

  function reset(depth) {
    closed = closedBelow(depth);
    paint();
  }

  paint();
  const head = shownColumns.map((index) => {
    const column = block.columns[index];
    return make("th", { class: headingClass(column, block), scope: "col", title: column.doc }, column.heading,
      column.unit ? make("span", { class: "unit" }, column.unit) : null);
  });
  return make("div", { class: "tree" },
    make("div", { class: "tools" },
      make("button", { type: "button", onclick: () => reset(Infinity) }, "Open all"),
      make("button", { type: "button", onclick: () => reset(firstDepth()) }, "Close"),
      make("span", null, counted(depths.length, "row", "rows"))),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table: modules" }, make("table", null, make("thead", null, make("tr", null, head)), body)),
    make("p", { class: "text" }, more),
    block.left_out ? make("p", { class: "means" }, block.left_out) : null,
    columnsMean({ columns: shownColumns.map((i) => block.columns[i]), unknown: [] }));
}
