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

// The headings of groups and lanes: real buttons beside the canvas, to fold and to pin.
const PIN_SHAPE = "M5 1h6l-1 5 3 3H9v5l-1 2-1-2V9H3l3-3z";

function lineLabels(viewer, field) {
  const focused = document.activeElement?.dataset?.control;
  field.labels.replaceChildren(...field.stack.lines.filter((line) => line.kind !== "thin").map((line) => (line.kind === "group" ? groupLabel(viewer, line) : laneLabel(viewer, line))));
  if (focused) [...field.labels.querySelectorAll("[data-control]")].find((node) => node.dataset.control === focused)?.focus({ preventScroll: true });
}

function groupLabel(viewer, line) {
  const count = `${line.lanes.length} ${line.lanes.length === 1 ? "lane" : "lanes"}`;
  return make("div", { class: `viewer-label viewer-group${line.folded ? " folded" : ""}`, style: { top: `${line.top}px`, height: `${VIEWER_GROUP_LINE}px` } },
    foldButton(line.folded, line.group, `group ${line.group}`, () => viewer.toggle("foldedGroups", line.group)),
    make("span", { class: "viewer-count" }, line.folded ? `${count} folded` : ""));
}

function laneLabel(viewer, line) {
  const title = line.pinned ? `${line.title}, ${line.group}` : line.title;
  const counter = viewer.counters?.get(line.lane);
  return make("div", {
    class: "viewer-label viewer-lane", style: { top: `${line.top}px`, height: `${viewer.narrow ? 24 : line.height}px` },
    "data-lane": line.lane, "data-key": line.key, "data-box-top": line.boxTop, "data-row-height": line.rowHeight, "data-rows": line.rows,
  },
  foldButton(line.folded, title, `${line.title}, ${line.group}`, () => viewer.toggle("folds", line.key)),
  make("button", {
    type: "button", class: `viewer-pin${line.pinned ? " on" : ""}`, "aria-pressed": String(line.pinned), title: line.pinned ? "Unpin" : "Pin to the top",
    "aria-label": `${line.pinned ? "Unpin" : "Pin"} ${line.title}, ${line.group}`, "data-control": `pin ${line.key}`, onclick: () => viewer.togglePin(line.key),
  }, makeSvg("svg", { width: 14, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, makeSvg("path", { d: PIN_SHAPE, fill: line.pinned ? "currentColor" : "none", stroke: "currentColor" }))),
  counter ? make("span", { class: "viewer-value", "data-value-of": line.lane }, `0 to ${counterText(counter, counter.largest)}`) : null);
}

function foldButton(folded, text, name, toggle) {
  return make("button", {
    type: "button", class: "viewer-fold", "aria-expanded": String(!folded), "aria-label": name, title: `${folded ? "Unfold" : "Fold"} ${name}`, "data-control": `fold ${name}`, onclick: toggle,
  }, make("span", { class: "viewer-arrow", "aria-hidden": "true" }, folded ? "\u25b8" : "\u25be"), make("span", { class: "viewer-title" }, text));
}

// A counter's value with its unit, as every number on the page.
function counterText(counter, value) {
  return value === null || value === undefined ? UNKNOWN : quantity(value, ["bytes", "B"].includes(counter.unit) ? "byte" : counter.unit ?? "");
}

// The elements of the viewer: tools, the strip, the axis, the fields of lanes with their canvases, and what is told below.
const MAX_LANES_HEIGHT = 620; // pixels; beyond it lanes scroll
const WINDOW_REST = 190; // pixels of the window that tools and strips take where the viewer fills it

function viewerParts(viewer) {
  const { node } = viewer;
  const live = make("div", { class: "viewer-live", "aria-live": "polite" });
  const help = helpPopover();
  const search = viewerSearch(viewer);
  const details = make("div", { class: "told viewer-details", role: "region", "aria-label": "The chosen box" }, restText());
  const statistics = make("div", { class: "viewer-statistics", role: "region", "aria-label": "Statistics of the selected range" });
  const status = make("div", { class: "viewer-status" });
  const legend = make("div", { class: "legend" });
  const tip = viewerTip();
  const lanes = make("div", { class: "viewer-scroll" });
  viewer.overview = strip("viewer-overview", OVERVIEW_HEIGHT);
  viewer.axis = strip("viewer-axis", AXIS_HEIGHT);
  viewer.pinned = field(make("div", { class: "viewer-pinned" }), true);
  viewer.main = field(lanes, false);
  viewer.fields = [viewer.pinned, viewer.main];
  Object.assign(viewer, { search, help });
  node.append(viewerTools(viewer, search, help), help.node,
    make("div", { class: "viewer-stage" }, viewer.overview.node, viewer.axis.node, viewer.pinned.node, viewer.main.node, tip.node), status, legend, details, statistics, live);
  viewer.main.canvas.setAttribute("aria-label", `Timeline of the run: ${viewer.about.lanes.length} lanes. Arrow keys go from box to box, W and S zoom, A and D move, question mark lists all keys.`);
  return { live, help, legend, details, statistics, tip, tell: (now) => tellView(now, status) };
}

function viewerTools(viewer, search, help) {
  const button = (text, label, act, attributes) => make("button", { type: "button", "aria-label": label, title: label, onclick: act, ...attributes }, text);
  const ranging = button("Select a range", "Select a range by dragging (or hold Shift)", () => {
    viewer.ranging = !viewer.ranging;
    ranging.setAttribute("aria-pressed", String(viewer.ranging));
  }, { "aria-pressed": "false" });
  const filling = button("Fill the window", "Fill the window with the timeline", () => {
    const filled = viewer.node.classList.toggle("viewer-filled");
    filling.textContent = filled ? "Back to the page" : "Fill the window";
    viewer.layOut();
  });
  const steps = viewer.steps.length ? [button("\u2039", "Previous step ([)", () => viewer.nextStep(-1), { class: "viewer-square" }), make("span", { class: "viewer-step" }, "step"), button("\u203a", "Next step (])", () => viewer.nextStep(1), { class: "viewer-square" })] : [];
  return make("div", { class: "viewer-tools" },
    make("div", { class: "viewer-buttons" },
      button("+", "Zoom in (W)", () => viewer.zoom(ZOOM), { class: "viewer-square" }), button("\u2212", "Zoom out (S)", () => viewer.zoom(1 / ZOOM), { class: "viewer-square" }),
      button("Whole run", "Show the whole run (0)", () => viewer.showAll()), ...steps, ranging,
      button("Statistics", "Statistics of what is in view (M)", () => { viewer.selectRange(viewer.view.from, viewer.view.to, true); }),
      button("Save for Perfetto", "Save what is in view as a file for ui.perfetto.dev", () => saveForPerfetto(viewer)), filling, help.button),
    search.node);
}

// What is in view, and how: read with the eyes; keys say what they did themselves.
function tellView(viewer, status) {
  const { view, about, boxes } = viewer;
  const single = !boxes || boxes.resolution === 0;
  const resolution = single ? "" : ` Calls closer together than ${time(boxes.resolution)} are merged here.`;
  const coarse = !single && boxes.resolution > (view.to - view.from) / Math.max(viewer.width, 1) && about.left_out ? ` ${about.left_out}` : "";
  const text = `${time(view.to - view.from)} in view.${resolution}${coarse}`;
  if (status.textContent !== text) status.textContent = text;
}

function sharpen(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.max(Math.round(width * ratio), 1), Math.max(Math.round(height * ratio), 1)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
}

function strip(name, height) {
  const canvas = make("canvas", { class: name, "aria-hidden": "true" });
  const own = { node: make("div", { class: "viewer-strip" }, canvas), canvas, context: canvas.getContext("2d"), width: 0, resize: (width) => { own.width = width; sharpen(canvas, width, height); } };
  return own;
}

// A canvas over a stack of lines with their headings; the main one scrolls and paints what is in its window.
function field(scroller, isPinned) {
  const labels = make("div", { class: "viewer-labels" });
  const canvas = make("canvas", { class: "viewer-canvas", role: "application", tabindex: isPinned ? "-1" : "0", "aria-roledescription": "timeline", "aria-label": isPinned ? "Pinned lanes" : null });
  const space = make("div", { class: "viewer-space" }, canvas, labels);
  scroller.append(space);
  const own = { node: scroller, canvas, labels, context: canvas.getContext("2d"), stack: new Stack(), byLane: new Map(), width: 0, height: 0, isPinned };
  own.offset = () => scroller.scrollTop;
  own.scrollBy = (pixels) => { scroller.scrollTop += pixels; };
  own.visibleHeight = (height) => Math.min(height, scroller.closest(".viewer-filled") ? Math.max(innerHeight - WINDOW_REST, 200) : MAX_LANES_HEIGHT, Math.max(innerHeight * 0.72, 260));
  own.resize = (stack, width, height) => {
    Object.assign(own, { stack, width, height, byLane: linesByLane(stack) });
    scroller.style.height = `${height}px`;
    space.style.height = `${stack.height}px`;
    sharpen(canvas, width, height);
  };
  own.lineAt = (y) => stack(own).find((line) => line.kind !== "group" && y + own.offset() >= line.top && y + own.offset() < line.top + line.height) ?? null;
  own.scrollTo = (box) => {
    const line = own.byLane.get(box.lane);
    if (!line) return;
    const top = line.boxTop + Math.min(box.row, line.rows - 1) * line.rowHeight;
    if (top < scroller.scrollTop + 24 || top + line.rowHeight > scroller.scrollTop + own.height) scroller.scrollTop = top - own.height / 2;
  };
  return own;
}

const stack = (field) => field.stack.lines;

// What the pointer is at: a box's name and time, or a counter's value.
function viewerTip() {
  const node = make("div", { class: "viewer-tip", hidden: true });
  function show(viewer, field, x, y) {
    const line = field?.lineAt(y);
    const counter = line?.side === "counter" ? viewer.counters?.get(line.lane) : null;
    const text = counter ? `${line.title}: ${counterText(counter, counterAt(counter, viewer.timeAt(x)))}` : viewer.hover ? boxSentence(viewer, viewer.hover) : "";
    node.hidden = !text;
    if (!text) return;
    node.textContent = text;
    const stage = node.parentElement.getBoundingClientRect();
    const own = field.canvas.getBoundingClientRect();
    const left = Math.min(Math.max(own.left - stage.left + x + 12, 0), Math.max(stage.width - node.offsetWidth - 4, 0));
    Object.assign(node.style, { left: `${left}px`, top: `${own.top - stage.top + y + 16}px` });
  }
  return { node, show };
}

// Everything that makes the viewer paint anew or move.
function followViewer(viewer) {
  for (const field of viewer.fields) followPointers(viewer, field);
  followAxis(viewer);
  followKeys(viewer);
  viewer.main.node.addEventListener("scroll", () => viewer.change(), { passive: true });
  const recolour = () => viewer.width > 0 && viewer.recolour();
  new MutationObserver(recolour).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", recolour);
  addEventListener("beforeprint", () => { recolour(); viewer.scheduled = false; viewer.frame(performance.now()); });
  addEventListener("afterprint", recolour);
  addEventListener("resize", () => viewer.layOut());
}
