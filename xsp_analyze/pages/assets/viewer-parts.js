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
