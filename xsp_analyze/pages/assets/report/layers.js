// What only the report of a trace draws.
Object.assign(DRAW, {
  icicle: drawIcicle,
  tree: drawTree,
  layers: drawLayers,
  kernels: drawKernels,
  advice: drawAdvice,
  analyses: drawAnalyses,
  timelines: drawTimelines,
  roofline: drawRoofline,
});

// Layers with equal ones folded: a block opens to its positions, a position to its single layers, which have links.
const FOLDED_ROWS_OPEN = 60;
const FOLDED_ROWS = 200;

function drawFolded(block) {
  unfold(block);
  const columns = block.columns.map((_, index) => index).filter((index) => block.columns[index].key !== "depth");
  const depths = block.values[block.columns.findIndex((c) => c.key === "depth")];
  const barColumn = block.columns.findIndex((c) => c.key === block.bar);
  const largest = block.values[barColumn].reduce((most, v) => Math.max(most, v ?? 0), 0);
  const parents = outerRows(depths);
  const hasBelow = depths.map((depth, row) => depths[row + 1] > depth);
  const texts = block.columns.flatMap((c, i) => (["name", "layer_type"].includes(c.key) ? [block.values[i]] : []));
  const every = depths.map((_, row) => row);
  let open = openAtFirst();
  let query = "";
  let chosen = null;
  let most = FOLDED_ROWS;

  const body = make("tbody");
  const status = make("span", { role: "status" });
  const more = make("button", { type: "button", onclick: () => { most += FOLDED_ROWS; paint(); } });
  const search = make("input", { type: "search", placeholder: "Search layers", "aria-label": "Search folded layers" });
  search.addEventListener("input", () => { find(search.value); remember("blocks", { q: query }); });

  function openAtFirst() {
    const shallow = every.filter((row) => depths[row] <= 1).length <= FOLDED_ROWS_OPEN;
    return new Set(shallow ? every.filter((row) => depths[row] === 0) : []);
  }

  // Rows around the matches are opened; what a match holds stays as it was left.
  function find(text) {
    query = text.trim().toLowerCase();
    most = FOLDED_ROWS;
    open = query ? new Set(every.filter(matches).flatMap(around)) : openAtFirst();
    paint();
  }

  function matches(row) {
    return texts.some((values) => (values[row] ?? "").toLowerCase().includes(query));
  }

  function around(row) {
    const rows = [];
    for (let at = parents[row]; at >= 0; at = parents[at]) rows.push(at);
    return rows;
  }

  // Of a search only the matches, what is around them, and what they hold.
  function visibleRows() {
    const kept = new Set();
    if (query) every.filter(matches).forEach((row) => [row, ...around(row)].forEach((one) => kept.add(one)));
    const within = new Set(query ? every.filter(matches) : []);
    return every.filter((row) => {
      if (query && within.has(parents[row])) within.add(row);
      return around(row).every((one) => open.has(one)) && (!query || kept.has(row) || within.has(row));
    });
  }

  function toggle(row) {
    if (!open.delete(row)) open.add(row);
    paint();
    body.querySelector(`[data-row="${row}"]`)?.focus();
  }

  function nameCell(row, value) {
    const toggleMark = make("span", { class: "toggle", "aria-hidden": "true" }, hasBelow[row] ? (open.has(row) ? "\u25be" : "\u25b8") : "");
    const label = hasBelow[row]
      ? make("button", { type: "button", "data-row": String(row), "aria-expanded": String(open.has(row)), onclick: () => toggle(row) }, toggleMark, value)
      : [toggleMark, layerLink(block.layer[row], value)];
    return make("td", { class: "name", title: value, style: { paddingLeft: `${depths[row] * 18}px` } }, label);
  }

  function drawRow(row) {
    const cells = columns.map((index) => {
      const [column, value] = [block.columns[index], block.values[index][row]];
      if (column.key === "name") return nameCell(row, value);
      const leadsTo = column.key === "outlier" && block.outlier[row] !== null ? linkTo("layers", { layer: block.outlier[row] }) : undefined;
      const cell = drawCell(column, value, index === barColumn ? largest : 0, leadsTo);
      return value === null && depths[row] !== 1 ? make("td", { class: cell.className }) : cell; // nothing to say, not unknown
    });
    return make("tr", { class: row === chosen ? "chosen" : null }, cells);
  }

  function paint() {
    const rows = visibleRows();
    body.replaceChildren(...rows.slice(0, most).map(drawRow));
    more.hidden = rows.length <= most;
    more.textContent = `Show ${count(Math.min(rows.length - most, FOLDED_ROWS))} more of ${count(rows.length)} rows`;
    const matching = query ? every.filter(matches).length : 0;
    status.textContent = query ? (matching ? `${count(matching)} found` : "Nothing found") : `${count(rows.length)} of ${count(every.length)} rows`;
  }

  // The layer that a link names: opened down to it, and marked.
  function reveal() {
    const [id, params] = location.hash.slice(1).split("?");
    const layer = id === "layers" ? new URLSearchParams(params ?? "").get("layer") : null;
    chosen = layer === null ? null : block.layer.findIndex((index) => index !== null && String(index) === layer);
    if (chosen !== null && chosen >= 0) {
      if (query && !matches(chosen)) search.value = query = "";
      around(chosen).forEach((row) => open.add(row));
      most = Math.max(most, visibleRows().indexOf(chosen) + 1);
    }
    paint();
  }

  function reset(rows) {
    open = new Set(rows);
    paint();
  }

  addEventListener("hashchange", reveal);
  route("blocks", (params) => { search.value = params.get("q") ?? ""; find(search.value); });
  reveal();
  const head = columns.map((index) => {
    const column = block.columns[index];
    return make("th", { class: headingClass(column, block), scope: "col", title: column.doc }, column.heading,
      column.unit ? make("span", { class: "unit" }, column.unit) : null);
  });
  return make("div", { class: "tree folded" },
    make("div", { class: "tools" }, search, status,
      make("button", { type: "button", onclick: () => reset(every) }, "Open all"),
      make("button", { type: "button", onclick: () => reset([]) }, "Fold all")),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table: layers, equal ones folded" }, make("table", null, make("thead", null, make("tr", null, head)), body)),
    make("p", { class: "text" }, more),
    block.left_out ? make("p", { class: "means" }, block.left_out) : null,
    columnsMean({ columns: columns.map((index) => block.columns[index]), unknown: [] }));
}

// For each row the row that holds it, or -1.
function outerRows(depths) {
  const last = [];
  return depths.map((depth, row) => {
    last[depth] = row;
    return depth > 0 ? last[depth - 1] : -1;
  });
}

function layerLink(layer, name) {
  return layer === null ? name : make("a", { href: linkTo("layers", { layer }) }, name);
}

Object.assign(DRAW, { folded: drawFolded });
