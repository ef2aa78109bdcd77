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
  const field = framed(block.title, (width, view) => rooflineSvg(block, width, view, tell, rest), "xy");
  const legend = block.precisions.map((name, i) => make("span", null, make("i", { class: `r-${i % 6}` }), name));
  return make("div", { class: "roofline" }, make("h3", null, block.title), make("div", { class: "legend" }, legend), field, told);
}

const basisOf = (point) => ({ modelled: " (work modelled from shapes)", mixed: " (work partly measured, partly modelled)" })[point.basis] ?? "";

// Which roof is over a point and how much of it is reached; of an operator what its calls would gain there.
function underRoof(point) {
  const roof = point.bound ? `${point.bound} bound: ${percent(point.share)} of the ${point.roof}` : `Its roof is ${point.roof}.`;
  const calls = point.count === undefined ? "" : `; ${counted(point.count, "call", "calls")}`;
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
