// The time axis with the numbers of steps, and the strip of the whole run above it with the window that is in view.
const AXIS_HEIGHT = 36;
const OVERVIEW_HEIGHT = 46;
const OVERVIEW_MAX_ROWS = 12;
const OVERVIEW_MAX_BAR = 26;
const TICK_WIDTH = 96; // pixels between ticks, at least
const TICK_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];
const TICK_SPACE = "\u202f";
const MAX_TICK_DIGITS = 5; // of a tick's own number; more begin at a base that is said once

// Times of ticks, how each is written, and what they are counted from where that is not the beginning.
function timeTicks(from, to, width) {
  const rough = ((to - from) * TICK_WIDTH) / Math.max(width, TICK_WIDTH);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = Math.max([1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? power, 1);
  const base = Math.abs(to) / step >= 10 ** MAX_TICK_DIGITS ? Math.floor(from / (step * 1000)) * step * 1000 : 0;
  const [divisor, unit] = TICK_UNITS.find(([size]) => Math.max(Math.abs(to - base), step) >= size) ?? TICK_UNITS[3];
  const at = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) at.push(time);
  const text = (time) => `${base ? "+" : ""}${+((time - base) / divisor).toPrecision(12)}${TICK_SPACE}${unit}`;
  return { at, text, base: base ? `${exactTime(base)} +` : "" };
}

// A time with all its digits, in the unit that leaves the fewest.
function exactTime(ns) {
  const [divisor, unit] = TICK_UNITS.find(([size]) => Math.abs(ns) >= size) ?? TICK_UNITS[3];
  return `${+(ns / divisor).toPrecision(15)}${TICK_SPACE}${unit}`;
}

function paintAxis(viewer, view) {
  const { context, width } = viewer.axis;
  const { colours } = viewer;
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, AXIS_HEIGHT);
  context.font = VIEWER_FONT;
  context.textBaseline = "middle";
  paintStepNumbers(viewer, view);
  const { at, text, base } = timeTicks(view.from, view.to, width);
  context.fillStyle = colours.muted;
  let end = base ? context.measureText(base).width + 8 : -1;
  if (base) context.fillText(base, 2, 25);
  for (const time of at) {
    const x = Math.round((time - view.from) * view.scale);
    context.fillRect(x, 30, 1, 6);
    const label = text(time);
    const wide = context.measureText(label).width;
    const left = Math.min(Math.max(x - wide / 2, 0), width - wide);
    if (left < end) continue;
    context.fillText(label, left, 25);
    end = left + wide + 8;
  }
  if (viewer.range) {
    const [left, right] = viewer.range.map((time) => (time - view.from) * view.scale);
    context.fillStyle = colours.accent;
    context.fillRect(Math.max(left, 0), 33, Math.max(Math.min(right, width) - Math.max(left, 0), 1), 3);
  }
}

function paintStepNumbers({ axis: { context, width }, colours, steps, cut }, { from, to, scale }) {
  steps.forEach((step, i) => {
    if (step.end < from || step.begin > to) return;
    const left = Math.max((step.begin - from) * scale, 0);
    const right = Math.min((step.end - from) * scale, width);
    context.fillStyle = i % 2 ? colours.rule : colours.tint;
    context.fillRect(Math.round(left), 0, Math.max(Math.round(right) - Math.round(left) - 1, 1), 16);
    const label = cut(`step ${step.number}`, right - left - 8) || (right - left > 14 ? cut(String(step.number), right - left - 2) : "");
    context.fillStyle = colours.ink;
    if (label) context.fillText(label, left + 4, 8.5);
  });
}

// The strip's boxes change with colours and lanes only: they are kept as a picture.
function overviewPicture(viewer) {
  const { overview: { width }, about, colours, overviewBoxes } = viewer;
  const ratio = devicePixelRatio || 1;
  const picture = make("canvas", { width: Math.round(width * ratio), height: OVERVIEW_HEIGHT * ratio });
  const context = picture.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = colours.raised;
  context.fillRect(0, 0, width, OVERVIEW_HEIGHT);
  if (!overviewBoxes) return picture;
  const of = (side) => about.lanes.flatMap((lane, index) => (lane.side === side ? [index] : []));
  const lanes = busiest(overviewBoxes, of("device").length ? of("device") : of("host"));
  const height = (OVERVIEW_HEIGHT - 10) / Math.max(lanes.length, 1);
  const painter = boxPainter(about);
  const view = { from: about.begin, to: about.end, scale: width / Math.max(about.end - about.begin, 1), width, matches: null };
  lanes.forEach((lane, n) => painter.addRow(overviewBoxes, { lane, side: "device" }, 0, 8 + n * height, Math.min(Math.max(height - 0.5, 1), OVERVIEW_MAX_BAR), view));
  painter.paint(context, colours, () => "");
  context.fillStyle = colours.muted;
  for (const step of viewer.steps) context.fillRect(Math.round((step.begin - about.begin) * view.scale), 0, 1, 6);
  return picture;
}

// Those of the lanes that have most boxes or time in them, in their order.
function busiest(boxes, lanes) {
  if (lanes.length <= OVERVIEW_MAX_ROWS) return lanes;
  const time = (lane) => {
    const range = boxes.rows.get(rowKey(lane, 0));
    let sum = 0;
    for (let i = range?.first ?? 0; i < (range?.last ?? 0); i += 1) sum += boxes.busy?.[i] || boxes.duration[i];
    return sum;
  };
  const kept = new Set([...lanes].sort((a, b) => time(b) - time(a)).slice(0, OVERVIEW_MAX_ROWS));
  return lanes.filter((lane) => kept.has(lane));
}

function paintOverview(viewer, view) {
  const { context, width } = viewer.overview;
  const { about, colours } = viewer;
  viewer.overviewImage ??= overviewPicture(viewer);
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.drawImage(viewer.overviewImage, 0, 0, width, OVERVIEW_HEIGHT);
  const scale = width / Math.max(about.end - about.begin, 1);
  const x = (at) => Math.min(Math.max((at - about.begin) * scale, 0), width);
  context.fillStyle = colours.error;
  for (const hit of viewer.hits) context.fillRect(Math.round(x(hit.start)), OVERVIEW_HEIGHT - 4, 1, 4);
  const [left, right] = [x(view.from), x(view.to)];
  context.fillStyle = colours.paper;
  context.globalAlpha = 0.6;
  context.fillRect(0, 0, left, OVERVIEW_HEIGHT);
  context.fillRect(right, 0, width - right, OVERVIEW_HEIGHT);
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.strokeRect(Math.max(left, 1), 1, Math.max(Math.min(right, width - 1) - Math.max(left, 1), 2), OVERVIEW_HEIGHT - 2);
}
