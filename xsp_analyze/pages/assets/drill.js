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
    return [make("h4", null, title), rows.length ? drawTable(parts, { rows }) : make("p", { class: "missing" }, none)];
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
  return [head, rows.length ? drawTable(table, { rows }) : make("p", { class: "missing" }, "Its parts are too short to be on this page.")];
}
