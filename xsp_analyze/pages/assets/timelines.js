// Nested timelines: the same step as each run saw it, to one scale, one under the other; a click on a box looks closer.
const BAR_HEIGHT = 24;
const CLOSER = 1.15; // how much wider than the box the window becomes

function drawTimelines(block) {
  const end = Math.max(...block.lines.flatMap((line) => [line.time, ...line.start.map((at, i) => at + line.duration[i])]));
  let view = [0, end];
  let width = 0;
  const field = make("div", { class: "timelines" });
  const told = make("div", { class: "told", "aria-live": "polite" });
  const whole = make("button", { type: "button", onclick: () => look([0, end]) }, "Show the whole step");
  const tools = make("div", { class: "tools" }, whole);

  const nameOf = (line, i) => block.names[line.name[i]];
  const isLayer = (line, i) => line.kind[i] === "layer";

  function look(window) {
    view = window;
    paint();
  }

  // A window around the boxes of all timelines that are the same layer as this one, or around this kernel.
  function closer(line, i) {
    const layer = line.layer[i];
    let [from, to] = [line.start[i], line.start[i] + line.duration[i]];
    if (isLayer(line, i) && layer !== null) {
      for (const other of block.lines) {
        other.layer.forEach((l, j) => {
          if (l !== layer || !isLayer(other, j)) return;
          from = Math.min(from, other.start[j]);
          to = Math.max(to, other.start[j] + other.duration[j]);
        });
      }
    }
    const room = Math.max(((to - from) * (CLOSER - 1)) / 2, 1);
    look([Math.max(from - room, 0), Math.min(to + room, end)]);
  }

  // Where a stretch of time stands in view, in pixels; null where it does not.
  function place(start, duration) {
    const scale = width / (view[1] - view[0]);
    const left = (Math.max(start, view[0]) - view[0]) * scale;
    const right = (Math.min(start + duration, view[1]) - view[0]) * scale;
    return right <= left ? null : { left, width: right - left };
  }

  function box(kind, { left, width: wide }, row, label, attributes) {
    const thin = wide < 24;
    return make("div", {
      class: `cell k-${kind}${thin ? " thin" : ""}`, role: attributes["data-box"] ? "button" : null, tabindex: attributes["data-box"] && !thin ? "0" : null,
      style: { left: `${left}px`, width: `${Math.max(wide - (wide > 3 ? 1 : 0), 0.6)}px`, top: `${row * BAR_HEIGHT}px` }, ...attributes,
    }, thin ? "" : label);
  }

  function bar(line) {
    const added = line.before === null ? 0 : line.time - line.before;
    const own = place(0, line.time - Math.max(added, 0));
    const cost = added > 0 ? place(line.time - added, added) : null;
    return [
      own && box("model", own, 0, "model", { title: `The step: ${time(line.time)}` }),
      cost && box("overhead", cost, 0, "overhead", { title: `Added by ${line.what}: ${time(added)}` }),
    ];
  }

  // The part of a layer's box that profiling the level below added, at its end; shared out among the layer's calls.
  function added(line, i, calls) {
    const layer = line.layer[i] === null || !line.kernels ? null : block.layers[line.layer[i]];
    const share = layer && line.duration[i] ? layer.overhead / calls.get(line.layer[i]) / line.duration[i] : 0;
    return share > 0 ? { backgroundImage: `linear-gradient(to left, var(--overhead) ${share * 100}%, transparent 0)` } : null;
  }

  function drawLine(line, number) {
    const calls = new Map();
    line.layer.forEach((layer, i) => { if (isLayer(line, i)) calls.set(layer, (calls.get(layer) ?? 0) + 1); });
    const rows = line.row.length ? line.row.reduce((most, row) => Math.max(most, row), 0) + 2 : 1;
    const boxes = line.name.flatMap((_, i) => {
      const at = place(line.start[i], line.duration[i]);
      if (!at) return [];
      const label = isLayer(line, i) ? nameOf(line, i) : bare(nameOf(line, i));
      const cell = box(line.kind[i], at, line.row[i] + 1, label, { "data-box": `${number}/${i}`, "data-layer": line.layer[i], "aria-label": nameOf(line, i) });
      if (isLayer(line, i)) Object.assign(cell.style, added(line, i, calls));
      if (at.width < 3 && i % 2) cell.classList.add("odd");
      return [cell];
    });
    return make("div", { class: "timeline" }, make("p", { class: "line" }, make("b", null, line.title), ` ${time(line.time)} `, cost(line)),
      make("div", { class: "field", style: { height: `${rows * BAR_HEIGHT}px` } }, bar(line), boxes));
  }

  function cost(line) {
    if (line.before === null) return "";
    const added = line.time - line.before;
    const text = `${added < 0 ? "" : "+"}${time(added)}, ${percent(added / line.before)}`;
    return make("span", { class: "muted" }, added < 0 ? `${text}: no cost of ${line.what} shows` : `${text} by ${line.what}`);
  }

  function axis() {
    const scale = timeScale(view[1]);
    const step = ticks(view[1] - view[0])[1] ?? view[1];
    const marks = [];
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
      const left = ((at - view[0]) * width) / (view[1] - view[0]);
      if (left < width - 30) marks.push(make("span", { style: { left: `${left}px` } }, axisMark(at, scale)));
    }
    return make("div", { class: "axis" }, marks);
  }

  function tell(line, i) {
    const layer = line.layer[i] === null ? null : block.layers[line.layer[i]];
    const facts = isLayer(line, i)
      ? [`${time(line.duration[i])} here, the layers in it included.`, layer ? layerCost(layer) : ""]
      : [`${time(line.duration[i])}, ${line.in[i] === null ? "in no layer" : `in ${block.names[line.in[i]]}`}.`, describe(line.kind[i])];
    told.replaceChildren(make("div", { class: "what" }, make("b", null, nameOf(line, i))), ...facts.map((fact) => make("div", null, fact)));
    field.querySelectorAll(".same").forEach((cell) => cell.classList.remove("same"));
    if (line.layer[i] === null) return;
    field.querySelectorAll(`.k-layer[data-layer="${line.layer[i]}"]`).forEach((cell) => cell.classList.add("same"));
  }

  function layerCost(layer) {
    const added = `${layer.overhead < 0 ? "" : "+"}${time(layer.overhead)}, ${percent(layer.overhead_share)}`;
    return `Its own latency: ${time(layer.baseline)} with layers profiled, ${time(layer.measured)} with kernels profiled too (${added}).`;
  }

  function rest() {
    field.querySelectorAll(".same").forEach((cell) => cell.classList.remove("same"));
    told.replaceChildren(make("div", { class: "muted" }, "Point at a box for its details; click one to zoom in."));
  }

  const withBox = (act) => (event) => {
    const found = event.target.closest?.("[data-box]")?.dataset.box;
    if (found === undefined) return;
    const [number, i] = found.split("/").map(Number);
    act(block.lines[number], i);
  };

  function paint() {
    tools.style.visibility = view[0] > 0 || view[1] < end ? "visible" : "hidden";
    field.replaceChildren(...block.lines.map(drawLine), axis());
    rest();
  }

  field.addEventListener("click", withBox(closer));
  field.addEventListener("mouseover", withBox(tell));
  field.addEventListener("focusin", withBox(tell));
  field.addEventListener("mouseleave", rest);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); withBox(closer)(event); }
    if (event.key === "Escape") look([0, end]);
  });
  onWidth(field, (found) => { width = found; paint(); });
  const kinds = new Set(block.lines.flatMap((line) => line.kind));
  const legend = [["model", "model"], ["overhead", "added by profiling"], ...KINDS.filter(([kind]) => kinds.has(kind))]
    .map(([kind, label]) => make("span", null, make("i", { class: `k-${kind}` }), label));
  return make("div", null, make("div", { class: "legend" }, legend), field, told, tools);
}
