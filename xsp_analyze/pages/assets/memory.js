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
  const figure = framed(block.title, draw, "x");
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
