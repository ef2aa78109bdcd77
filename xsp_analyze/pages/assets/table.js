// Tables: sorted by a click on a heading, searched as one types, a page of rows in the document at a time.
const PAGE_ROWS = 25;
const MANY_COLUMNS = 10;

// Text that repeats is stored once in the page; this unfolds it.
function unfold(block) {
  block.values = block.values.map((column) => (column.words ? column.at.map((place) => column.words[place]) : column));
  return block;
}

// Without the columns in which none of these rows has anything.
function withKnownColumns(block, rows) {
  if (!rows) return block;
  const kept = block.columns.map((_, i) => i).filter((i) => rows.some((row) => block.values[i][row] !== null));
  return { ...block, columns: kept.map((i) => block.columns[i]), values: kept.map((i) => block.values[i]) };
}

// `onRow(row)` makes rows open something: their first name becomes a button. `rows` limits the table to these.
function drawTable(whole, { onRow = null, rows = null, keep = null } = {}) {
  const block = withKnownColumns(unfold(whole), rows);
  const every = rows ?? Array.from({ length: block.values.length ? block.values[0].length : 0 }, (_, row) => row);
  const rowCount = every.length;
  const state = { order: null, column: -1, descending: false, query: "", page: 0, chosen: null };
  const texts = block.columns.map((c, i) => (c.number ? -1 : i)).filter((i) => i >= 0);
  const barColumn = block.columns.findIndex((c) => c.key === block.bar);
  const largest = barColumn < 0 ? 0 : every.reduce((most, row) => Math.max(most, block.values[barColumn][row] ?? 0), 0);
  let haystacks = null;

  const body = make("tbody");
  const status = make("span", { role: "status" });
  const previous = make("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const next = make("button", { type: "button", onclick: () => turn(1) }, "Next");
  const search = make("input", { type: "search", placeholder: "Search names", "aria-label": `Search ${block.name}` });
  search.addEventListener("input", () => { find(search.value); note(); });
  const headings = block.columns.map((column, index) => heading(column, index));
  const csv = () => csvOf(block.columns, block.values, state.order);
  const copy = make("button", { type: "button", onclick: async () => { await copyText(csv()); copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy as CSV"; }, 1500); } }, "Copy as CSV");
  const save = make("button", { type: "button", onclick: () => saveFile(`${fileName(block.link || block.name)}.csv`, "text/csv", csv()) }, "Save CSV");

  function heading(column, index) {
    const arrow = make("span", { class: "arrow" });
    const button = make("button", { type: "button", title: column.doc, onclick: () => { sortBy(index); note(); } }, column.heading, arrow,
      column.unit ? make("span", { class: "unit" }, column.unit) : null);
    return { cell: make("th", { class: headingClass(column, block), scope: "col" }, button), arrow };
  }

  // The state goes into the address once the reader has changed it.
  function note() {
    if (!block.link) return;
    const sort = state.column < 0 ? null : (state.descending ? "-" : "") + block.columns[state.column].key;
    remember(block.link, { q: state.query, sort: state.column === first ? null : sort, ...keep?.() });
  }

  function find(text) {
    state.query = text.trim().toLowerCase();
    state.page = 0;
    update();
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
    if (!state.query) return [...every];
    haystacks ??= new Map(every.map((row) => [row, texts.map((i) => block.values[i][row] ?? "").join("\n").toLowerCase()]));
    const phrase = every.filter((row) => haystacks.get(row).includes(state.query));
    const tokens = state.query.split(/\s+/);
    return phrase.length ? phrase : every.filter((row) => tokens.every((token) => haystacks.get(row).includes(token)));
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
    alignPoints(body);
    const total = state.order.length;
    const of = total === rowCount ? count(total) : `${count(total)} found of ${count(rowCount)}`;
    status.textContent = total ? `${count(first + 1)} to ${count(first + rows.length)} of ${of}` : "Nothing found";
    previous.disabled = state.page === 0;
    next.disabled = first + PAGE_ROWS >= total;
  }

  function drawRow(row) {
    const cells = block.columns.map((column, index) => drawCell(column, block.values[index][row], index === barColumn ? largest : 0, column.links?.[row]));
    if (onRow && texts.length) {
      const cell = cells[texts[0]];
      cell.replaceChildren(make("button", { type: "button", class: "middle", "aria-expanded": String(row === state.chosen), onclick: () => onRow(row) }, middle(cell.textContent)));
    }
    return make("tr", { class: row === state.chosen ? "chosen" : null }, cells);
  }

  // Turns to the page of a row and marks it; null marks none.
  function choose(row) {
    state.chosen = row;
    const place = state.order.indexOf(row);
    if (place >= 0) state.page = Math.floor(place / PAGE_ROWS);
    paint();
  }

  function follow(params) {
    const sort = params.get("sort");
    const column = sort ? block.columns.findIndex((c) => c.key === sort.replace(/^-/, "")) : -1;
    if (column >= 0) { state.column = column; state.descending = sort.startsWith("-"); }
    search.value = params.get("q") ?? "";
    find(search.value);
  }

  const first = block.columns.findIndex((c) => c.key === block.sort);
  state.column = first;
  state.descending = first >= 0 && block.columns[first].number;
  update();
  const paged = rowCount > PAGE_ROWS;
  const kind = `table${texts.length > 1 ? " many" : ""}${block.columns.length > MANY_COLUMNS ? " dense" : ""}`;
  const node = make("div", { class: kind },
    make("div", { class: "tools" }, rowCount > 5 ? [search, status] : null, paged ? [previous, next] : null, rowCount ? [copy, save] : null),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Table: ${block.name}` }, make("table", null, make("thead", null, make("tr", null, headings.map((h) => h.cell))), body)),
    block.left_out ? make("p", { class: "means" }, block.left_out) : null,
    columnsMean(block));
  node.table = { follow, choose, note };
  return node;
}

function headingClass(column, block) {
  if (!column.number) return null;
  return column.key === block.bar ? "n wide" : "n";
}

function drawCell(column, value, largest, link) {
  if (value === null || value === undefined) return make("td", { class: column.number ? "n null" : "null" }, UNKNOWN);
  if (!column.number) {
    const text = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
    const label = column.key === "kernel_name" ? bare(text) : text; // what most names begin with says little
    return make("td", { class: "name", title: text }, link ? make("a", { class: "middle", href: link }, middle(label)) : cutMiddle(label, text));
  }
  const cell = make("td", { class: "n", title: exact(value, column.exact) }, numberText(value, column));
  if (largest > 0) {
    cell.classList.add("barred");
    cell.style.backgroundSize = `${(100 * Math.max(value, 0)) / largest}% 72%`;
  }
  return cell;
}

function columnsMean(block) {
  const unknown = block.unknown?.length
    ? make("p", { class: "means" }, `Not measured in this trace, so left out: ${block.unknown.join(", ")}.`)
    : null;
  return make("details", { class: "columns-mean" }, make("summary", null, "What the columns mean"),
    make("dl", null, block.columns.map((c) => [make("dt", null, c.heading), make("dd", null, c.doc)])), unknown);
}

// Blanks behind numbers, so that the decimal points of a column stand below each other; they are no part of the text.
function alignPoints(body) {
  const decimals = (cell) => cell.textContent.split(".")[1]?.length ?? 0;
  const rows = [...body.rows];
  for (let column = 0; column < (rows[0]?.cells.length ?? 0); column += 1) {
    const cells = rows.map((row) => row.cells[column]).filter((cell) => cell?.classList.contains("n"));
    const most = cells.reduce((found, cell) => Math.max(found, decimals(cell)), 0);
    for (const cell of cells) {
      const own = decimals(cell);
      if (own < most) cell.dataset.behind = (own ? "" : "\u2008") + "\u2007".repeat(most - own);
    }
  }
}

// A kernel's name without return type and namespaces, which are the same for most.
function bare(name) {
  return name.replace(/^(?:void )?(?:(?:\w+|\(anonymous namespace\))::)*/, "") || name;
}
