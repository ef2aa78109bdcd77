// A measure of a series over its runs: a point a run, the mean between changes, and a mark at each change.
Object.assign(DRAW, { trend: drawTrend });

const TREND = { height: 270, left: 76, right: 12, top: 26, bottom: 30 };
const POINTS_AT_MOST = 500; // more are drawn as the span of those in each pixel
const ENDS_AT_MOST = 150; // of intervals: more are no lines that one could tell apart

function drawTrend(block) {
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a run to read it; a click opens its report, where there is one.");
  let chosen = 0;
  const buttons = block.measures.map((measure, n) => make("button", { type: "button", class: "choice", "aria-pressed": String(n === 0), onclick: () => show(n) }, measure.label));
  const frame = frameOf(block.title, (width, view) => trendSvg(block, block.measures[chosen], width, view, caption), "x");

  function show(n) {
    chosen = n;
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === n)));
    frame.lookAt(0, 1);
  }

  return make("div", { class: "trend" }, make("div", { class: "choices", role: "group", "aria-label": "Measure" }, buttons), frame, caption);
}

// Means of the runs between changes, as [first, last, value at first, value at last]; along a drift a line.
function trendLevels(measure) {
  const lines = [];
  let from = 0;
  const mean = (begin, end) => {
    const known = measure.values.slice(begin, end).filter((value) => value !== null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  };
  const level = (begin, end) => { const value = mean(begin, end); if (value !== null && end > begin) lines.push([begin, end - 1, value, value]); };
  for (const change of measure.changes) {
    if (change.drift) {
      level(from, change.begin);
      const part = Math.max(Math.floor((change.end - change.begin) / 5), 1);
      lines.push([change.begin, change.end, mean(change.begin, change.begin + part), mean(change.end + 1 - part, change.end + 1)]);
      from = change.end + 1;
    } else {
      level(from, change.at);
      from = change.at;
    }
  }
  level(from, measure.values.length);
  return lines;
}

function trendSvg(block, measure, width, view, caption) {
  const count = measure.values.length;
  const first = Math.floor(view.x[0] * count + 1e-9);
  const last = Math.max(Math.ceil(view.x[1] * count - 1e-9), first + 1);
  const seen = Array.from({ length: last - first }, (_, i) => first + i).filter((i) => measure.values[i] !== null);
  const room = width - TREND.left - TREND.right;
  const height = TREND.height - TREND.top - TREND.bottom;
  const [least, most] = trendRange(seen.map((i) => measure.values[i]));
  const scale = scaleFor(measure.unit, most);
  const x = (i) => TREND.left + (room * (i - first + 0.5)) / (last - first);
  const y = (value) => TREND.top + height * (1 - (Math.min(Math.max(value, least), most) - least) / (most - least));
  const end = width - TREND.right;
  const marks = trendTicks(least, most).map((value) => [
    makeSvg("line", { class: "axis", x1: TREND.left, x2: end, y1: y(value), y2: y(value) }),
    makeSvg("text", { x: TREND.left - 8, y: y(value) + 4, "text-anchor": "end" }, axisMark(value, scale)),
  ]);
  const inside = ([begin, until]) => until >= first && begin < last;
  const levels = trendLevels(measure).filter(inside).map(([begin, until, one, two]) => [
    measure.scatter ? makeSvg("polygon", { class: "trend-band", points: [[begin, one, 1], [until, two, 1], [until, two, -1], [begin, one, -1]].map(([i, value, side]) => `${clampX(x(i), end)},${y(value * (1 + 2 * side * measure.scatter))}`).join(" ") }) : null,
    makeSvg("line", { class: "trend-level", x1: clampX(x(begin - 0.5), end), x2: clampX(x(until + 0.5), end), y1: y(one), y2: y(two) }),
  ]);
  const changes = measure.changes.filter((change) => change.at >= first && change.at < last).map((change) => [
    change.drift ? null : makeSvg("line", { class: change.worse ? "trend-change worse" : "trend-change", x1: x(change.at - 0.5), x2: x(change.at - 0.5), y1: TREND.top - 6, y2: TREND.top + height }, makeSvg("title", null, change.text)),
    makeSvg("text", { class: change.worse ? "trend-mark worse" : "trend-mark", x: x(change.at - 0.5), y: TREND.top - 11, "text-anchor": "middle" }, changeMark(measure, change)),
  ]);
  const dates = trendDates(block, first, last, room).map(([i, text, anchor]) => makeSvg("text", { x: x(i), y: TREND.height - 8, "text-anchor": anchor }, text));
  const svg = makeSvg("svg", { width, height: TREND.height, role: "img", "aria-label": `${block.title}, ${measure.label.toLowerCase()}: ${block.read}` },
    marks, levels, seen.length > POINTS_AT_MOST ? trendSpan(seen, measure, x, y) : trendPoints(seen, measure, x, y), changes, dates);
  const nearest = (event) => {
    const at = first + Math.floor(((event.clientX - svg.getBoundingClientRect().left - TREND.left) / room) * (last - first));
    return Math.min(Math.max(at, first), last - 1);
  };
  svg.addEventListener("mousemove", (event) => { const i = nearest(event); caption.textContent = `${block.texts[i]}: ${quantity(measure.values[i], measure.unit)}${block.links[i] ? " (click for its report)" : ""}`; });
  svg.addEventListener("click", (event) => { const link = block.links[nearest(event)]; if (link) location.href = link; });
  return svg;
}

const clampX = (x, end) => Math.min(Math.max(x, TREND.left), end);

const changeMark = (measure, change) => change.text.match(/by ([^ ]+)/)?.[1].replace(/^/, / rose /.test(change.text) ? "+" : "-") ?? "";

// From the least to the most but for outliers, with some air; values apart from 0, so that a few per cent are seen.
function trendRange(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part) => sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] ?? 0;
  const [low, high] = sorted.length > 50 ? [at(0.002), at(0.998)] : [at(0), at(1)];
  const air = Math.max((high - low) * 0.2, Math.abs(high) * 0.005, 1e-12);
  return [Math.max(low - air, low >= 0 ? 0 : -Infinity), high + air];
}

function trendTicks(least, most) {
  const rough = (most - least) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const from = Math.ceil(least / step);
  return Array.from({ length: Math.floor(most / step) - from + 1 }, (_, i) => (from + i) * step);
}

function trendDates(block, first, last, room) {
  const many = Math.max(Math.min(Math.floor(room / 110), last - first), 1);
  const places = [...new Set(Array.from({ length: many }, (_, i) => first + Math.round(((last - first - 1) * i) / Math.max(many - 1, 1))))];
  const day = (i) => new Date(block.times[i] * 1000).toISOString().slice(0, 10);
  return places.map((i, n) => [i, day(i), n === 0 ? "start" : n === places.length - 1 ? "end" : "middle"]);
}

function trendPoints(seen, measure, x, y) {
  const ends = measure.low && seen.length <= ENDS_AT_MOST
    ? seen.filter((i) => measure.low[i] !== null).map((i) => makeSvg("line", { class: "whisker", x1: x(i), x2: x(i), y1: y(measure.low[i]), y2: y(measure.high[i]) })) : [];
  return [ends, seen.map((i) => makeSvg("circle", { class: "trend-run", cx: x(i), cy: y(measure.values[i]), r: seen.length > 150 ? 2 : 3 }))];
}

// Of many runs a pixel each: from the least to the most of those in it.
function trendSpan(seen, measure, x, y) {
  const spans = new Map();
  for (const i of seen) {
    const at = Math.floor(x(i));
    const [low, high] = spans.get(at) ?? [Infinity, -Infinity];
    spans.set(at, [Math.min(low, measure.values[i]), Math.max(high, measure.values[i])]);
  }
  const path = [...spans].map(([at, [low, high]]) => `M${at} ${y(low) + 0.7}V${y(high) - 0.7}`).join("");
  return makeSvg("path", { class: "trend-span", d: path });
}
