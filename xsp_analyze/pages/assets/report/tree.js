// Drill-down: a click on a layer shows its parts down to the kernels, a click on a kernel the layers that run it.
const LAYER_FACTS = 14;

function drawLayers(block) {
  unfold(block);
  const column = (key) => block.columns.findIndex((c) => c.key === key);
  const value = (key, row) => (column(key) < 0 ? null : block.values[column(key)][row]);
  const panel = make("div", { class: "panel", hidden: true, tabindex: "-1", role: "region", "aria-label": "The layer that was chosen" });
  let chosen = null;
  const keep = () => (chosen === null ? {} : { layer: value("layer_index", chosen) ?? value("layer_name", chosen) });
  const table = drawTable(block, { onRow: (row) => open(row === chosen ? null : row), keep });

  function open(row) {
    chosen = row;
    table.table.choose(row);
    table.table.note();
    panel.hidden = row === null;
    panel.replaceChildren();
    if (row === null) return;
    panel.append(...layerPanel(block, row, value, { open, last: block.values[0].length - 1 }));
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }

  route("layers", (params) => {
    table.table.follow(params);
    const wanted = params.get("layer");
    if (wanted === null) return undefined;
    const row = block.values[0].findIndex((_, i) => String(value("layer_index", i)) === wanted || value("layer_name", i) === wanted);
    if (row < 0) return undefined;
    open(row);
    return panel;
  });
  return make("div", null, table, panel);
}

function layerPanel(block, row, value, { open, last }) {
  const [name, kind, index] = [value("layer_name", row), value("layer_type", row), value("layer_index", row)];
  const facts = block.columns.flatMap((c, i) => {
    const known = block.values[i][row];
    if (["layer_name", "layer_type", "layer_index"].includes(c.key) || known === null) return [];
    const text = c.number ? withUnit(known, c) : String(known);
    return [make("div", null, make("dt", { title: c.doc }, c.heading), make("dd", { title: c.number ? exact(known, c.exact) : text }, text))];
  }).slice(0, LAYER_FACTS);
  const step = (by, text) => make("button", { type: "button", disabled: row + by < 0 || row + by > last, onclick: () => open(row + by) }, text);
  const part = (parts, title, none) => {
    const rows = parts.row.flatMap((r, i) => (r === row ? [i] : []));
    return [make("h4", null, title), rows.length ? drawTable(parts, { rows }) : make("p", { class: "missing" }, parts.missing ?? none)];
  };
  return [
    make("div", { class: "panel-head" },
      make("h3", null, name, kind && kind !== name ? ` (${kind})` : "", index === null ? "" : `, layer ${index}`),
      make("div", { class: "tools" }, step(-1, "Previous layer"), step(1, "Next layer"),
        make("a", { href: linkTo("tree", { name }) }, "Show in the tree"), make("a", { href: linkTo("timeline", { name }) }, "Show in the timeline"), make("button", { type: "button", onclick: () => open(null) }, "Close"))),
    make("dl", { class: "layer-facts" }, facts),
    part(block.parts.work, `Device work, ${block.parts.basis}`, "It launched no device work."),
    part(block.parts.host, `Operators on the host, ${block.parts.basis}`, "No operator of it was recorded."),
  ].flat();
}

function drawKernels(block) {
  unfold(block);
  const name = (row) => block.values[block.columns.findIndex((c) => c.key === "kernel_name")][row];
  const panel = make("div", { class: "panel", hidden: true, tabindex: "-1", role: "region", "aria-label": "The kernel that was chosen" });
  const only = make("p", { class: "text only-class", hidden: true });
  let chosen = null;
  let ofClass = null;
  let table = tableOf(null);

  function tableOf(rows) {
    return drawTable(block, { onRow: (row) => open(row === chosen ? null : row), rows, keep: () => ({ class: ofClass, kernel: chosen === null ? null : name(chosen) }) });
  }

  // Only the kernels that did work of a class, or all of them.
  function limit(wanted) {
    if (wanted === ofClass) return;
    ofClass = wanted;
    open(null);
    const rows = wanted === null ? null : block.classes[wanted] ?? [];
    const next = tableOf(rows);
    table.replaceWith(next);
    table = next;
    only.hidden = wanted === null;
    only.replaceChildren(...(wanted === null ? [] : [rows.length ? `Only kernels that did work of class ${wanted}. ` : `No kernel in this table did work of class ${wanted}. `, make("button", { type: "button", onclick: () => { limit(null); table.table.note(); } }, "Show all")]));
  }

  function open(row) {
    chosen = row;
    table.table.choose(row);
    if (row !== null || !panel.hidden) table.table.note();
    panel.hidden = row === null;
    panel.replaceChildren();
    if (row === null) return;
    panel.append(...kernelPanel(name(row), () => open(null)));
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }

  route("kernels", (params) => {
    limit(params.get("class"));
    table.table.follow(params);
    const wanted = params.get("kernel");
    const row = wanted === null ? -1 : block.values[0].findIndex((_, i) => name(i) === wanted);
    if (row < 0) return undefined;
    open(row);
    return panel;
  });
  return make("div", null, only, table, panel);
}

// Where a kernel runs, from the parts of all layers.
function kernelPanel(name, close) {
  const layers = data.sections.find((s) => s.id === "layers")?.blocks.find((b) => b.type === "layers");
  const head = make("div", { class: "panel-head" }, make("h3", null, name), make("div", { class: "tools" }, make("a", { href: linkTo("timeline", { name }) }, "Show in the timeline"), make("button", { type: "button", onclick: close }, "Close")));
  if (!layers) return [head, make("p", { class: "missing" }, "The trace has no layers to say where it runs.")];
  const parts = unfold(layers.parts.work);
  const at = (key) => parts.columns.findIndex((c) => c.key === key);
  const rows = parts.row.flatMap((_, i) => (parts.values[at("kernel_name")][i] === name ? [i] : []));
  unfold(layers);
  const nameOf = layers.values[layers.columns.findIndex((c) => c.key === "layer_name")];
  const kept = parts.columns.map((_, i) => i).filter((i) => parts.columns[i].key !== "kernel_name");
  const table = {
    ...parts, name: "layers that run this kernel", link: "", bar: "duration_ns", sort: "duration_ns",
    columns: [{ key: "layer_name", heading: "layer", doc: "The layer it runs in.", number: false }, ...kept.map((i) => parts.columns[i])],
    values: [parts.row.map((r) => (r < 0 ? "outside every layer" : nameOf[r])), ...kept.map((i) => parts.values[i])],
  };
  return [head, rows.length ? drawTable(table, { rows }) : make("p", { class: "missing" }, parts.missing ?? "Its parts are too short to be on this page.")];
}

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
  let closed = rowsClosedBelow(firstDepth());
  const body = make("tbody");
  let most = MOST_ROWS;
  const more = make("button", { type: "button", onclick: () => { most += MOST_ROWS; paint(); } });

  // The deepest level at which the rows at first still fit a screen.
  function firstDepth() {
    let depth = 1;
    while (depth < 20 && depths.filter((d) => d <= depth + 1).length <= ROWS_OPEN_AT_FIRST) depth += 1;
    return depth;
  }

  function rowsClosedBelow(depth) {
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
    closed = rowsClosedBelow(depth);
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
      make("span", null, countOf(depths.length, "row", "rows"))),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table: modules" }, make("table", null, make("thead", null, make("tr", null, head)), body)),
    make("p", { class: "text" }, more),
    block.left_out ? make("p", { class: "means" }, block.left_out) : null,
    columnsMean({ columns: shownColumns.map((i) => block.columns[i]), unknown: [] }));
}

// An icicle: parents above, children below, widths in proportion to time. A click makes a box as wide as the page.
const ROW_HEIGHT = 25;
const LEAST_WIDTH = 1.5;
const KINDS = [["layer", "layer"], ["operator", "operator"], ["kernel", "kernel"], ["memcpy", "copy or memset"], ["outside", "in no layer"]];

function drawIcicle(block) {
  const children = block.parent.map(() => []);
  block.parent.forEach((parent, node) => { if (parent >= 0) children[parent].push(node); });
  const total = block.time[0];
  const counted = block.counted ?? ["piece of device work", "pieces of device work"];
  const nameOf = (node) => block.names[block.name[node]];
  let focus = 0;
  let width = 0;

  const crumbs = make("div", { class: "crumbs", "aria-label": "Path to the box in view" });
  const field = make("div", { class: "icicle" });
  const told = make("div", { class: "told", "aria-live": "polite" });
  const search = make("input", { type: "search", placeholder: "Search names", "aria-label": "Search the tree" });
  const found = make("span", { role: "status" });
  let query = "";

  const labelOf = (node) => (block.kind[node] === "kernel" ? bare(nameOf(node)) : nameOf(node));

  function pathTo(node) {
    const path = [];
    for (let at = node; at >= 0; at = block.parent[at]) path.unshift(at);
    return path;
  }

  // Boxes to draw: those above the focus and it at full width, below it what is wide enough to see.
  function boxes() {
    const path = pathTo(focus);
    const found = path.map((node, depth) => ({ node, depth, left: 0, share: 1, above: node !== focus }));
    const stack = [{ node: focus, depth: path.length - 1, left: 0, share: 1 }];
    while (stack.length) {
      const box = stack.pop();
      const narrow = { node: box.node, depth: box.depth + 1, left: 0, share: 0, above: false, narrow: 0 };
      let left = box.left;
      for (const child of children[box.node]) {
        const share = block.time[focus] ? block.time[child] / block.time[focus] : 0;
        if (share * width >= LEAST_WIDTH) {
          const below = { node: child, depth: box.depth + 1, left, share, above: false };
          found.push(below);
          stack.push(below);
          left += share;
        } else {
          narrow.share += share;
          narrow.narrow += 1;
        }
      }
      narrow.left = left;
      if (narrow.share * width >= LEAST_WIDTH) found.push(narrow);
    }
    return found;
  }

  function drawBox({ node, depth, left, share, above, narrow }) {
    const thin = share * width < 24;
    if (narrow) {
      const text = `${count(narrow)} too narrow to draw`;
      return make("div", { class: `cell k-others${thin ? " thin" : ""}`, "data-node": node, title: `${text}: click to zoom in`,
        style: { left: `${left * 100}%`, width: `calc(${share * 100}% - 1px)`, top: `${depth * ROW_HEIGHT}px` } }, thin ? "" : text);
    }
    const cell = make("div", {
      class: `cell k-${block.kind[node]}${above ? " above" : ""}${thin ? " thin" : ""}${matches(node) ? " found" : query ? " faint" : ""}`,
      role: "button", tabindex: thin ? null : "0", title: `${nameOf(node)}\n${summary(node)}`, "data-node": node,
      style: { left: `${left * 100}%`, width: `calc(${share * 100}% - 1px)`, top: `${depth * ROW_HEIGHT}px` },
    }, thin ? "" : labelOf(node));
    return cell;
  }

  function summary(node) {
    return `${time(block.time[node])}, ${percent(total ? block.time[node] / total : 0)} of all device time`;
  }

  function tell(node) {
    const inView = block.time[focus] ? block.time[node] / block.time[focus] : 0;
    told.replaceChildren(
      make("div", { class: "what", title: nameOf(node) }, make("b", null, nameOf(node))),
      make("div", { title: exact(block.time[node], "ns") }, summary(node),
        focus === 0 ? "" : `, ${percent(inView)} of what is in view`,
        block.count[node] ? `, ${count(block.count[node])} ${block.count[node] === 1 ? counted[0] : counted[1]}` : ""),
      make("div", { class: "muted" }, (node === 0 ? block.root : null) ?? describe(block.kind[node])));
  }

  const matches = (node) => query !== "" && nameOf(node).toLowerCase().includes(query);

  // Time of all that matches; what stands below a match is in it already.
  function look(text) {
    query = text.trim().toLowerCase();
    let [sum, boxes] = [0, 0];
    const inside = new Uint8Array(block.parent.length);
    block.parent.forEach((parent, node) => {
      inside[node] = parent >= 0 && inside[parent] ? 1 : 0;
      if (!inside[node] && matches(node)) { inside[node] = 1; sum += block.time[node]; boxes += 1; }
    });
    found.textContent = query === "" ? "" : boxes ? `${count(boxes)} found: ${time(sum)}, ${percent(total ? sum / total : 0)} of all` : "Nothing found";
    paint();
  }
  search.addEventListener("input", () => look(search.value));

  function zoom(node) {
    focus = block.kind[node] === "others" ? block.parent[node] : node;
    paint();
  }

  function paint() {
    const drawn = boxes();
    field.style.height = `${(Math.max(...drawn.map((box) => box.depth)) + 1) * ROW_HEIGHT}px`;
    field.replaceChildren(...drawn.map(drawBox));
    crumbs.replaceChildren(...pathTo(focus).flatMap((node, index) => [
      index ? make("span", { class: "sep" }, "\u203a") : null,
      node === focus ? make("span", null, labelOf(node)) : make("button", { type: "button", onclick: () => zoom(node) }, labelOf(node)),
    ]).filter(Boolean));
    tell(focus);
  }

  const nodeAt = (event) => event.target.closest?.(".cell")?.dataset.node;
  const with_node = (act) => (event) => { const node = nodeAt(event); if (node !== undefined) act(Number(node)); };
  field.addEventListener("click", with_node(zoom));
  field.addEventListener("mouseover", with_node(tell));
  field.addEventListener("focusin", with_node(tell));
  field.addEventListener("mouseleave", () => tell(focus));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); with_node(zoom)(event); }
    if (event.key === "Escape" && block.parent[focus] >= 0) zoom(block.parent[focus]);
  });
  onWidth(field, (found) => { width = found; paint(); });
  if (block.link) {
    route(block.link, (params) => {
      search.value = params.get("q") ?? "";
      look(search.value);
      const name = params.get("name");
      const node = name === null ? -1 : block.name.findIndex((n, i) => block.kind[i] === "layer" && block.names[n] === name);
      if (node >= 0) zoom(node);
    });
  }
  const present = new Set(block.kind);
  const legend = KINDS.filter(([kind]) => present.has(kind)).map(([kind, label]) => make("span", null, make("i", { class: `k-${kind}` }), label));
  return make("div", null, make("div", { class: "legend" }, legend), make("div", { class: "tools" }, search, found), crumbs, field, told);
}

function describe(kind) {
  return {
    all: "Everything that ran on a device.",
    outside: "Work that no layer holds.",
    layer: "A layer: all its calls in all steps, with the layers and operators in it.",
    operator: "A framework operator, with the operators and kernels it led to.",
    others: "The shortest ones here, too many to draw; click to see what surrounds them.",
    memcpy: "A copy.", memset: "A memset.", graph: "A whole graph replay, recorded as one.",
    kernel: "A function run on the device.",
  }[kind] ?? "";
}
