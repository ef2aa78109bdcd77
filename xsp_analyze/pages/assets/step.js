// One step over time: a track per host thread and per stream, to one scale; and the step as a file for Perfetto.
const LANE = { host: 13, device: 19 };
const LANE_GAP = 20;
const DEEPEST = 12;
const LEAST_BOX = 0.8;

function drawStep(block) {
  const told = make("div", { class: "told", "aria-live": "polite" });
  const rest = () => told.replaceChildren(make("div", { class: "muted" }, "Point at a box to read it."));
  const rowsOf = (lane) => Math.min(lane.depth.reduce((most, d) => Math.max(most, d), 0) + 1, lane.side === "host" ? DEEPEST : 4);
  const title = block.number === null ? "The whole trace over time" : `Step ${block.number} over time`;

  function tell(lane, i) {
    const layer = lane.layer[i] === null ? null : block.names[lane.layer[i]];
    told.replaceChildren(
      make("div", { class: "what" }, make("b", null, block.names[lane.name[i]])),
      make("div", null, `${time(lane.time[i])}, from ${time(lane.start[i])} on; ${lane.title}`, lane.earlier[i] ? "; launched before the step" : "", layer ? [", in layer ", make("a", { href: linkTo("layers", { layer }) }, layer)] : ", in no layer"));
  }

  function draw(width, view) {
    const [from, to] = view.x.map((share) => share * block.length);
    const scale = width / Math.max(to - from, 1);
    let top = 18;
    const marks = timeMarks(from, to, scale, width);
    const lanes = block.lanes.map((lane) => {
      const height = LANE[lane.side];
      const rows = rowsOf(lane);
      const drawn = laneBoxes(block, lane, { from, to, scale, top: top + 14, height, rows, tell });
      const label = makeSvg("text", { x: 0, y: top + 10 }, lane.title);
      top += 14 + rows * height + LANE_GAP - 14;
      return makeSvg("g", null, label, drawn);
    });
    const svg = makeSvg("svg", { width, height: top, role: "img", "aria-label": `${title}: ${block.lanes.length} lanes` }, marks, lanes);
    svg.addEventListener("mouseleave", rest);
    return svg;
  }

  rest();
  const frame = framed(title, draw, "x");
  frame.classList.add("step-frame");
  frame.querySelector(".frame-tools").append(
    make("button", { type: "button", onclick: () => saveFile(`${fileName(block.model)}-${block.number === null ? "trace" : `step-${block.number}`}.json`, "application/json", chromeTrace(block)) }, "Save for Perfetto"));
  const present = new Set(block.lanes.flatMap((lane) => lane.kind));
  const kinds = [["model", "step"], ["layer", "layer"], ["operator", "operator"], ["library", "library call"], ["runtime", "runtime call"], ["kernel", "kernel"], ["memcpy", "copy or memset"]];
  const legend = kinds.filter(([kind]) => present.has(kind)).map(([kind, label]) => make("span", null, make("i", { class: `k-${kind}` }), label));
  return make("div", { class: "step" }, make("div", { class: "legend" }, legend), frame, told);
}

function timeMarks(from, to, scale, width) {
  const step = ticks(to - from)[1] ?? to - from;
  const unit = timeScale(to * 10);
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = (at - from) * scale;
    marks.push(makeSvg("line", { class: "axis", x1: x, x2: x, y1: 14, y2: "100%" }));
    if (x < width - 40) marks.push(makeSvg("text", { x: x + 3, y: 11 }, `${+(at / unit.divisor).toPrecision(6)} ${unit.unit}`));
  }
  return marks;
}

// Boxes narrower than a pixel that touch are drawn as one, so that a busy stretch looks busy and costs little.
function laneBoxes(block, lane, { from, to, scale, top, height, rows, tell }) {
  const ends = new Array(rows).fill(-1);
  const boxes = [];
  for (let i = 0; i < lane.start.length; i += 1) {
    const [start, end] = [lane.start[i], lane.start[i] + lane.time[i]];
    if (end < from || start > to || lane.depth[i] >= rows) continue;
    const left = Math.max((start - from) * scale, 0);
    const right = Math.max(Math.min((end - from) * scale, (to - from) * scale), left + LEAST_BOX);
    const row = lane.depth[i];
    if (right - left < 1.5 && right <= ends[row] + 0.5) continue;
    ends[row] = Math.max(ends[row], right);
    boxes.push(stepBox(block, lane, i, { left, width: right - left, y: top + row * height, height: height - 2, tell }));
  }
  return boxes;
}

function stepBox(block, lane, i, { left, width, y, height, tell }) {
  const rect = makeSvg("rect", { class: `box f-k-${lane.kind[i]}${lane.earlier[i] ? " earlier" : ""}`, x: left, y, width: Math.max(width - (width > 3 ? 0.7 : 0), LEAST_BOX), height });
  rect.addEventListener("mouseenter", () => tell(lane, i));
  rect.addEventListener("click", () => tell(lane, i));
  if (width < 34) return rect;
  const name = lane.side === "device" ? bare(block.names[lane.name[i]]) : block.names[lane.name[i]];
  const text = makeSvg("text", { class: "ink in", x: left + 3, y: y + height - (height > 14 ? 4.5 : 2) }, cutText(name, width - 4));
  return makeSvg("g", null, rect, text);
}

// Chrome's trace event format: complete events in microseconds, a process a device, a thread a stream.
function chromeTrace(block) {
  const events = [];
  const microseconds = (ns) => ns / 1000;
  block.lanes.forEach((lane, number) => {
    const pid = lane.side === "host" ? 0 : 1;
    events.push({ ph: "M", pid, tid: number, name: "thread_name", args: { name: lane.title } });
    lane.start.forEach((start, i) => {
      const layer = lane.layer[i] === null ? {} : { layer: block.names[lane.layer[i]] };
      events.push({ ph: "X", pid, tid: number, cat: lane.kind[i], name: block.names[lane.name[i]], ts: microseconds(start), dur: microseconds(lane.time[i]), args: layer });
    });
  });
  events.push({ ph: "M", pid: 0, name: "process_name", args: { name: "host" } }, { ph: "M", pid: 1, name: "process_name", args: { name: "devices" } });
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}
