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
  function overheadStyle(line, i, calls) {
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
      if (isLayer(line, i)) Object.assign(cell.style, overheadStyle(line, i, calls));
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

// A roofline: throughput over arithmetic intensity, both in powers of ten, under what the device can do.
const ROOF_HEIGHT = 380;
const ROOF_MARGIN = { left: 88, right: 22, top: 12, bottom: 40 };
const LARGEST_POINT = 13;
const LEAST_POINT = 3;
const MANY_POINTS = 200;
const MANY_LABELS = 5;
const LABEL_HEIGHT = 13;
const RIDGE_WIDTH = 72;
let clips = 0;

function drawRoofline(block) {
  const told = make("div", { class: "told", "aria-live": "polite" });
  const tell = (point) => told.replaceChildren(
    make("div", { class: "what" }, make("b", null, point.name), point.layer ? ` in ${point.layer}` : ""),
    make("div", null, `${flops(point.y)} at ${quantity(point.x, "flop/byte")} in ${block.precisions[point.precision]}${basisOf(point)}`, point.time === null ? "" : `, ${time(point.time)} of device time${point.part === null || point.part === undefined ? "" : `, ${percent(point.part)} of what is drawn here`}`),
    make("div", { class: "muted" }, underRoof(point)));
  const rest = () => told.replaceChildren(make("div", { class: "muted" }, "Point at a point to read it."));
  rest();
  const field = frameOf(block.title, (width, view) => rooflineSvg(block, width, view, tell, rest), "xy");
  const legend = block.precisions.map((name, i) => make("span", null, make("i", { class: `r-${i % 6}` }), name));
  return make("div", { class: "roofline" }, make("h3", null, block.title), make("div", { class: "legend" }, legend), field, told);
}

const basisOf = (point) => ({ modelled: " (work modelled from shapes)", mixed: " (work partly measured, partly modelled)" })[point.basis] ?? "";

// Which roof is over a point and how much of it is reached; of an operator what its calls would gain there.
function underRoof(point) {
  const roof = point.bound ? `${point.bound} bound: ${percent(point.share)} of the ${point.roof}` : `Its roof is ${point.roof}.`;
  const calls = point.count === undefined ? "" : `; ${countOf(point.count, "call", "calls")}`;
  return point.gain === undefined || point.gain === null ? roof : `${roof}${calls}, ${time(point.gain)} to gain`;
}

const flops = (value) => quantity(value, "flop/s");
const intensity = (value) => count(value);

// The powers of ten that an axis runs between, so that all its values stand inside.
function decades(values) {
  const logs = values.map(Math.log10);
  const [low, high] = [Math.floor(Math.min(...logs) - 0.15), Math.ceil(Math.max(...logs) + 0.15)];
  return [low, Math.max(high, low + 1)];
}

// The part of a range that is in view.
const within = ([from, to], [low, high]) => [from + (to - from) * low, from + (to - from) * high];

function rooflineSvg(block, width, view, tell, rest) {
  const points = [...block.points, ...block.models];
  const ridges = block.roofs.map((roof) => roof.peak / roof.bandwidth);
  const across = within(decades([...points.map((p) => p.x), ...ridges]), view.x);
  const up = within(decades([...points.map((p) => p.y), ...block.roofs.map((roof) => roof.peak)]), view.y);
  const [inner, height] = [width - ROOF_MARGIN.left - ROOF_MARGIN.right, ROOF_HEIGHT - ROOF_MARGIN.top - ROOF_MARGIN.bottom];
  const x = (value) => ROOF_MARGIN.left + (inner * (Math.log10(value) - across[0])) / (across[1] - across[0]);
  const y = (value) => ROOF_MARGIN.top + height * (1 - (Math.log10(value) - up[0]) / (up[1] - up[0]));
  const bottom = ROOF_MARGIN.top + height;
  const clip = `clip-${(clips += 1)}`;
  const range = ([from, to]) => marksBetween(from, to);
  const grid = [
    range(across).map((value) => [
      makeSvg("line", { class: "axis", x1: x(value), x2: x(value), y1: ROOF_MARGIN.top, y2: bottom }),
      makeSvg("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, axisMark(value, { unit: "", divisor: 1 })),
    ]),
    range(up).map((value) => [
      makeSvg("line", { class: "axis", x1: ROOF_MARGIN.left, x2: width - ROOF_MARGIN.right, y1: y(value), y2: y(value) }),
      makeSvg("text", { x: ROOF_MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, axisMark(value, scaleFor("flop/s", value))),
    ]),
    makeSvg("text", { x: ROOF_MARGIN.left + inner / 2, y: ROOF_HEIGHT - 6, "text-anchor": "middle" }, block.basis ? `${block.basis} flop per byte` : "flop per byte of device memory traffic"),
  ];
  const area = { left: 10 ** across[0], right: 10 ** across[1], bottom: 10 ** up[0], top: 10 ** up[1] };
  return makeSvg("svg", { width, height: ROOF_HEIGHT, role: "group", "aria-label": block.title }, grid,
    makeSvg("clipPath", { id: clip }, makeSvg("rect", { x: ROOF_MARGIN.left, y: ROOF_MARGIN.top, width: inner, height })),
    makeSvg("g", { "clip-path": `url(#${clip})` }, block.roofs.map((roof) => drawRoof(roof, { x, y, area, name: block.precisions[roof.precision], bottom })),
      drawPoints(block, { x, y, tell, rest }), drawRoofLabels(block.roofs, { x, y, area, names: block.precisions, bottom }), drawLabels(block, { x, y, right: width - ROOF_MARGIN.right })));
}

// Powers of ten, and where few are in view 2 and 5 times these too.
function marksBetween(from, to) {
  const steps = to - from > 2.5 ? [1] : [1, 2, 5];
  const marks = [];
  for (let power = Math.floor(from); power <= Math.ceil(to); power += 1) {
    for (const step of steps) {
      const log = power + Math.log10(step);
      if (log >= from - 1e-9 && log <= to + 1e-9) marks.push(step * 10 ** power);
    }
  }
  return marks;
}

function drawRoof(roof, { x, y, area, name, bottom }) {
  const ridge = roof.peak / roof.bandwidth;
  const from = Math.max(area.left, area.bottom / roof.bandwidth);
  const style = `f-r${roof.precision % 6}`;
  return [
    makeSvg("polyline", { class: `roof ${style}`, points: [[from, from * roof.bandwidth], [ridge, roof.peak], [area.right, roof.peak]].map(([a, b]) => `${x(a)},${y(b)}`).join(" ") },
      makeSvg("title", null, `${name}: ${flops(roof.peak)} at most, ${quantity(roof.bandwidth, "byte/s")}, ridge at ${quantity(ridge, "flop/byte")}`)),
    makeSvg("line", { class: `ridge ${style}`, x1: x(ridge), x2: x(ridge), y1: y(roof.peak), y2: bottom }),
  ];
}

// Peaks at their right end, under the line where a higher one's stands above it; ridges below, each above the one it would hide.
function drawRoofLabels(roofs, { x, y, area, names, bottom }) {
  const high = [...roofs].sort((one, other) => other.peak - one.peak);
  const lines = [];
  const ridges = [];
  return high.map((roof) => {
    const [ridge, name] = [roof.peak / roof.bandwidth, names[roof.precision]];
    const label = `${name}: ${flops(roof.peak)}`;
    const at = y(roof.peak);
    const under = lines.some((other) => Math.abs(at - 5 - other) < LABEL_HEIGHT);
    const line = under ? at + 12 : at - 5;
    lines.push(line);
    const lift = ridges.filter((other) => Math.abs(x(ridge) - other) < RIDGE_WIDTH).length * LABEL_HEIGHT;
    ridges.push(x(ridge));
    return [
      makeSvg("text", { class: "roof-label", x: x(area.right) - 4, y: line, "text-anchor": "end" }, x(area.right) - x(ridge) > label.length * 6.5 ? label : name),
      makeSvg("text", { class: "roof-label", x: x(ridge) + 4, y: bottom - 5 - lift }, `ridge ${intensity(ridge)}`),
    ];
  });
}

// The names of the largest points beside them, each where no larger one's is.
function drawLabels(block, { x, y, right }) {
  const taken = block.roofs.map((roof) => [right - 150, y(roof.peak) - 18, right, y(roof.peak)]);
  const labels = [];
  for (const point of block.points.filter((p) => p.label).slice(0, 3 * MANY_LABELS)) {
    const [wide, away] = [point.label.length * 6.2, LARGEST_POINT + 4];
    const [at, up] = [x(point.x), y(point.y)];
    const left = at + away + wide > right ? at - away - wide : at + away;
    const box = [left, up - 8, left + wide, up + 6];
    const hidden = taken.some((t) => t[0] < box[2] && box[0] < t[2] && t[1] < box[3] && box[1] < t[3]);
    if (labels.length === MANY_LABELS || left < ROOF_MARGIN.left || hidden) continue;
    taken.push(box);
    labels.push(makeSvg("text", { class: "point-label", x: left, y: up + 4 }, point.label));
  }
  return labels;
}

// Large points first, so that none hides a smaller one; the pointer reads the one whose middle is nearest.
function drawPoints(block, { x, y, tell, rest }) {
  const longest = block.points.reduce((most, p) => Math.max(most, p.time ?? 0), 1);
  const largest = block.points.length > MANY_POINTS ? LARGEST_POINT * 0.6 : LARGEST_POINT;
  const draw = (point, radius, kind) => {
    const at = { point, cx: x(point.x), cy: y(point.y) };
    at.circle = makeSvg("circle", { class: `${kind} f-r${point.precision % 6}`, cx: at.cx, cy: at.cy, r: radius, tabindex: block.points.length <= MANY_POINTS ? "0" : null, role: "img", "aria-label": point.name });
    at.circle.addEventListener("focus", () => tell(point));
    return at;
  };
  const all = [
    ...block.points.map((point) => draw(point, Math.max(largest * Math.sqrt((point.time ?? 0) / longest), LEAST_POINT), "point")),
    ...block.models.map((point) => draw(point, LARGEST_POINT - 4, "whole")),
  ];
  const group = makeSvg("g", null, all.map((at) => at.circle));
  let near = null;
  group.addEventListener("mousemove", (event) => {
    const box = group.ownerSVGElement.getBoundingClientRect();
    const distance = (at) => Math.hypot(at.cx - (event.clientX - box.left), at.cy - (event.clientY - box.top));
    near?.circle.classList.remove("near");
    // The ring around the model is read on its line only.
    const found = event.target.classList.contains("whole") ? all.filter((at) => at.circle === event.target) : all.slice(0, block.points.length);
    near = found.reduce((best, at) => (best === null || distance(at) <= distance(best) ? at : best), null);
    near.circle.classList.add("near");
    tell(near.point);
  });
  group.addEventListener("mouseleave", () => { near?.circle.classList.remove("near"); near = null; rest(); });
  return group;
}

// Memory over time: what it is used for stacked, what is reserved as a line, steps, the peak, and what the device has.
const MEMORY_HEIGHT = 300;
const MEMORY_MARGIN = { left: 76, right: 14, top: 22, bottom: 30 };
const MEMORY_HEADROOM = 1.06;
const MEMORY_NEAR_LIMIT = 2; // the device's size is drawn where the curve comes to half of it
const MEMORY_LABEL = 44; // pixels that the number of a step takes

function drawMemory(block) {
  const series = block.kinds.length ? block.kinds : [{ name: "in use", tone: "memory-in", values: block.allocated }];
  let moment = block.peak;
  let marks = null; // where the moment stands in the drawing
  const caption = make("p", { class: "caption memory-caption", "aria-live": "polite" });
  const slider = make("input", { type: "range", class: "memory-moment", min: 0, max: block.time.length - 1, step: 1, "aria-label": `Moment of ${block.title}`, oninput: () => look(+slider.value) });
  slider.value = `${moment}`;
  const toPeak = make("button", { type: "button", onclick: () => look(block.peak) }, "At the peak");

  const sizeText = (value) => withUnit(value, block.scale);
  function read(i) {
    const parts = series.filter((s) => s.values[i] > 0).map((s) => `${s.name} ${sizeText(s.values[i])}`);
    const held = block.reserved && block.reserved[i] !== null ? `, of ${sizeText(block.reserved[i])} reserved` : "";
    const step = block.steps.find(([, begin, end]) => begin <= block.time[i] && block.time[i] < end);
    const what = parts.length > 1 ? ` ${parts.join(", ")}` : "";
    return `${time(block.time[i])}${step ? `, step ${step[0]}` : ""}${i === block.peak ? " (the peak)" : ""}: ${sizeText(block.allocated[i])} in use${held}.${what}`;
  }
  function look(i) {
    moment = i;
    slider.value = `${i}`;
    slider.setAttribute("aria-valuetext", read(i));
    caption.textContent = read(i);
    caption.dataset.bytes = block.allocated[i];
    if (marks) marks(i);
  }
  const draw = (width, view) => {
    const drawn = memorySvg(block, series, width, view, look);
    marks = drawn.mark;
    marks(moment);
    return drawn.svg;
  };
  const figure = frameOf(block.title, draw, "x");
  look(moment);
  const lines = block.reserved ? [make("span", null, make("i", { class: "t-memory-reserved" }), "reserved")] : [];
  const keys = make("div", { class: "legend" }, series.map((s) => make("span", null, make("i", { class: `t-${s.tone}` }), s.name)), lines);
  return make("div", { class: "memory" }, heading3(block.title), keys, figure, make("div", { class: "tools memory-tools" }, slider, toPeak), caption);
}

// From each moment on its value holds, so the outline goes in steps; `below` are the values that it stands on.
function memoryOutline(times, below, values, x, y, end) {
  const forth = [];
  const back = [];
  for (let i = 0; i < times.length; i += 1) {
    const [from, to] = [x(times[i]), i + 1 < times.length ? x(times[i + 1]) : end];
    forth.push(`${from},${y(below[i] + values[i])}`, `${to},${y(below[i] + values[i])}`);
    back.push(`${from},${y(below[i])}`, `${to},${y(below[i])}`);
  }
  return { top: forth.join(" "), area: [...forth, ...back.reverse()].join(" ") };
}

function memorySvg(block, series, width, view, look) {
  const [first, last] = [block.time[0], block.time[block.time.length - 1]];
  const span = Math.max(last - first, 1);
  const [from, to] = [first + span * view.x[0], first + span * view.x[1]];
  const inner = Math.max(width - MEMORY_MARGIN.left - MEMORY_MARGIN.right, 10);
  const height = MEMORY_HEIGHT - MEMORY_MARGIN.top - MEMORY_MARGIN.bottom;
  const highest = Math.max(...block.allocated, ...(block.reserved ?? []).map((v) => v ?? 0), 1);
  const limited = block.limit !== null && block.limit <= highest * MEMORY_NEAR_LIMIT;
  const top = (limited ? Math.max(highest, block.limit) : highest) * MEMORY_HEADROOM;
  const x = (at) => MEMORY_MARGIN.left + (inner * (at - from)) / (to - from);
  const y = (value) => MEMORY_MARGIN.top + height * (1 - value / top);
  const [right, bottom] = [MEMORY_MARGIN.left + inner, MEMORY_MARGIN.top + height];
  const clip = `clip-${(clips += 1)}`;
  const below = block.time.map(() => 0);
  const areas = series.map((s) => {
    const { area } = memoryOutline(block.time, below, s.values, x, y, x(last));
    s.values.forEach((value, i) => { below[i] += value; });
    return makeSvg("polygon", { class: `f-${s.tone}`, points: area }, makeSvg("title", null, s.name));
  });
  const zero = block.time.map(() => 0);
  const outline = makeSvg("polyline", { class: "memory-line", points: memoryOutline(block.time, zero, block.allocated, x, y, x(last)).top });
  const held = block.reserved ? makeSvg("polyline", { class: "memory-held", points: memoryOutline(block.time, zero, block.reserved.map((v) => v ?? 0), x, y, x(last)).top }) : null;
  const limit = limited ? [makeSvg("line", { class: "memory-limit", x1: MEMORY_MARGIN.left, x2: right, y1: y(block.limit), y2: y(block.limit) }),
    makeSvg("text", { x: right - 4, y: y(block.limit) - 4, "text-anchor": "end" }, `the device has ${withUnit(block.limit, block.scale)}`)] : null;
  const cursor = makeSvg("line", { class: "memory-cursor", y1: MEMORY_MARGIN.top, y2: bottom });
  const dot = makeSvg("circle", { class: "memory-dot", r: 4 });
  const mark = (i) => {
    const at = x(block.time[i]);
    const seen = at >= MEMORY_MARGIN.left - 1 && at <= right + 1;
    for (const [node, attributes] of [[cursor, { x1: at, x2: at }], [dot, { cx: at, cy: y(block.allocated[i]) }]]) {
      fill(node, { ...attributes, visibility: seen ? "visible" : "hidden" }, []);
    }
  };
  const hit = makeSvg("rect", { class: "hit", x: MEMORY_MARGIN.left, y: MEMORY_MARGIN.top, width: inner, height });
  hit.addEventListener("pointermove", (event) => {
    const share = (event.clientX - hit.getBoundingClientRect().left) / Math.max(hit.getBoundingClientRect().width, 1);
    look(momentAt(block.time, from + share * (to - from)));
  });
  const svg = makeSvg("svg", { width, height: MEMORY_HEIGHT, role: "img", "aria-label": `${block.title}: at most ${withUnit(block.allocated[block.peak], block.scale)} at ${time(block.time[block.peak])}` },
    memoryGrid(block, { top, y, right, bottom, inner, x, from, to }),
    makeSvg("clipPath", { id: clip }, makeSvg("rect", { x: MEMORY_MARGIN.left, y: 0, width: inner, height: MEMORY_HEIGHT })),
    makeSvg("g", { "clip-path": `url(#${clip})` }, areas, outline, held, memorySteps(block.steps, x, bottom, [from, to]), peakMark(block, x, y), cursor, dot), limit, hit);
  return { svg, mark };
}

// The last moment at or before a time: what was in use then.
function momentAt(times, at) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (times[middle] <= at) low = middle; else high = middle - 1;
  }
  return low;
}

function memoryGrid(block, { top, y, right, bottom, inner, x, from, to }) {
  const { divisor, unit } = block.scale;
  const every = Math.max(Math.round(inner / 110), 1);
  const step = ticks(((to - from) * 4) / every)[1] ?? to - from;
  const scale = timeScale(to);
  const times = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) times.push(at);
  return [
    ticks(top / divisor).map((value) => [
      makeSvg("line", { class: "axis", x1: MEMORY_MARGIN.left, x2: right, y1: y(value * divisor), y2: y(value * divisor) }),
      makeSvg("text", { x: MEMORY_MARGIN.left - 8, y: y(value * divisor) + 4, "text-anchor": "end" }, `${+value.toPrecision(6)} ${unit}`),
    ]),
    times.map((at) => makeSvg("text", { x: Math.min(x(at), right - 16), y: bottom + 18, "text-anchor": "middle" }, `${+(at / scale.divisor).toPrecision(6)} ${scale.unit}`)),
  ];
}

function memorySteps(steps, x, bottom, [from, to]) {
  let free = -Infinity;
  return steps.filter(([, begin, end]) => end >= from && begin <= to).map(([number, begin]) => {
    const at = x(begin);
    const labelled = at - free >= MEMORY_LABEL;
    if (labelled) free = at;
    return [makeSvg("line", { class: "memory-step", x1: at, x2: at, y1: MEMORY_MARGIN.top - 8, y2: bottom }),
      labelled ? makeSvg("text", { x: at + 3, y: MEMORY_MARGIN.top - 8 }, `step ${number}`) : null];
  });
}

function peakMark(block, x, y) {
  const [at, up] = [x(block.time[block.peak]), y(block.allocated[block.peak])];
  return makeSvg("path", { class: "memory-peak", d: `M${at - 5},${up - 10}h10l-5,8z` }, makeSvg("title", null, `The peak: ${withUnit(block.allocated[block.peak], block.scale)}`));
}

Object.assign(DRAW, { memory: drawMemory });
