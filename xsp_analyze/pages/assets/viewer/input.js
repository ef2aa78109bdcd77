// Pointers, wheel and keys: what each does to the viewer.
const WHEEL_ZOOM = 1.0022; // a pixel of the wheel
const KEY_ZOOM = 1.3;
const KEY_MOVE = 0.12; // of the view
const HELD_AFTER_MS = 180; // then a held key moves with every frame
const HELD_ZOOM = 1.0025; // a millisecond
const HELD_MOVE = 0.0011; // of the view, a millisecond
const CLICK_SLACK = 4; // pixels a pointer may move and still click
const RANGE_STEP = 0.02; // of the view, that a key moves the end of a range by

function followPointers(viewer, field) {
  const pointers = new Map();
  let drag = null;
  const { canvas } = field;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const point = at(event);
    pointers.set(event.pointerId, point);
    canvas.setPointerCapture(event.pointerId);
    const ranged = event.shiftKey || viewer.ranging;
    drag = { from: point, last: point, moved: false, ranged, anchor: viewer.timeAt(point.x), pinch: pointers.size > 1 };
  });

  canvas.addEventListener("pointermove", (event) => {
    const point = at(event);
    if (!pointers.has(event.pointerId)) { viewer.pointAt(field, point.x, point.y); return; }
    if (pointers.size === 2) { pinch(event.pointerId, point); return; }
    pointers.set(event.pointerId, point);
    if (!drag.moved && Math.hypot(point.x - drag.from.x, point.y - drag.from.y) < CLICK_SLACK) return;
    drag.moved = true;
    if (drag.ranged) viewer.selectRange(drag.anchor, viewer.timeAt(point.x), false);
    else {
      viewer.moveBy((drag.last.x - point.x) / field.width);
      if (event.pointerType === "mouse") field.scrollBy(drag.last.y - point.y);
    }
    drag.last = point;
  });

  // Two fingers: the times under them stay under them.
  function pinch(id, point) {
    const other = [...pointers].find(([key]) => key !== id)[1];
    const before = pointers.get(id);
    pointers.set(id, point);
    drag.moved = true;
    const spread = Math.abs(before.x - other.x);
    const factor = Math.abs(point.x - other.x) / Math.max(spread, 1);
    if (factor > 0.2 && factor < 5) viewer.zoom(factor, other.x / field.width);
  }

  const release = (event) => {
    if (!pointers.delete(event.pointerId) || !drag) return;
    if (event.type === "pointerup" && !drag.moved && !drag.pinch) {
      if (drag.ranged) viewer.selectRange(null);
      viewer.select(viewer.boxUnder(field, drag.from.x, drag.from.y), { tell: true });
    } else if (drag.ranged && drag.moved) viewer.selectRange(...viewer.range, true);
    if (pointers.size === 0) drag = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => viewer.pointAt(null));
  canvas.addEventListener("dblclick", (event) => {
    const point = at(event);
    const box = viewer.boxUnder(field, point.x, point.y);
    if (box) viewer.lookAt(box);
    else viewer.zoom(2, point.x / field.width);
  });
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      viewer.zoom(WHEEL_ZOOM ** -pixelsOf(event), at(event).x / field.width);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      viewer.moveBy((event.deltaX || event.deltaY) / field.width);
    }
  }, { passive: false });
}

const pixelsOf = (event) => event.deltaY * (event.deltaMode === 1 ? 16 : 1);

// On the axis a drag selects a range; on the strip it moves the window, and a click brings it there.
function followAxis(viewer) {
  onDrag(viewer.axis.canvas, (x, anchor) => viewer.selectRange(viewer.timeAt(anchor), viewer.timeAt(x), false), () => viewer.range && viewer.selectRange(...viewer.range, true));
  const { begin, end } = viewer.about;
  onDrag(viewer.overview.canvas, (x) => viewer.centre(begin + ((end - begin) * x) / viewer.overview.width), () => {}, true);
}

function onDrag(canvas, move, done, atOnce = false) {
  let anchor = null;
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (event) => {
    anchor = place(event);
    canvas.setPointerCapture(event.pointerId);
    if (atOnce) move(anchor, anchor);
  });
  canvas.addEventListener("pointermove", (event) => { if (anchor !== null && (atOnce || Math.abs(place(event) - anchor) >= CLICK_SLACK)) move(place(event), anchor); });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { if (anchor !== null) done(); anchor = null; });
}

// Keys that move while they are held; a short press moves by a step.
const VIEWER_HELD = {
  w: { step: (viewer) => viewer.zoom(KEY_ZOOM, viewer.pointerShare()), held: (viewer, ms) => viewer.zoom(HELD_ZOOM ** ms, viewer.pointerShare()) },
  s: { step: (viewer) => viewer.zoom(1 / KEY_ZOOM, viewer.pointerShare()), held: (viewer, ms) => viewer.zoom(HELD_ZOOM ** -ms, viewer.pointerShare()) },
  a: { step: (viewer) => viewer.moveBy(-KEY_MOVE), held: (viewer, ms) => viewer.moveBy(-HELD_MOVE * ms) },
  d: { step: (viewer) => viewer.moveBy(KEY_MOVE), held: (viewer, ms) => viewer.moveBy(HELD_MOVE * ms) },
};

const VIEWER_KEYS = {
  "+": (viewer) => viewer.zoom(KEY_ZOOM), "=": (viewer) => viewer.zoom(KEY_ZOOM), "-": (viewer) => viewer.zoom(1 / KEY_ZOOM),
  0: (viewer) => viewer.showAll(), Home: (viewer) => viewer.reset(), Escape: (viewer) => viewer.leave(),
  ArrowLeft: (viewer) => viewer.step(-1, 0), ArrowRight: (viewer) => viewer.step(1, 0), ArrowUp: (viewer) => viewer.step(0, -1), ArrowDown: (viewer) => viewer.step(0, 1),
  "Shift+ArrowLeft": (viewer) => viewer.extendRange(-RANGE_STEP), "Shift+ArrowRight": (viewer) => viewer.extendRange(RANGE_STEP),
  Enter: (viewer) => viewer.lookAt(viewer.selected), f: (viewer) => viewer.lookAt(viewer.selected), m: (viewer) => viewer.measure(),
  "[": (viewer) => viewer.nextStep(-1), "]": (viewer) => viewer.nextStep(1), "/": (viewer) => viewer.search.focus(),
  n: (viewer) => viewer.search.turn(1), "Shift+N": (viewer) => viewer.search.turn(-1), "?": (viewer) => viewer.help.toggle(),
};

function followKeys(viewer) {
  const held = new Map();
  viewer.node.addEventListener("keydown", (event) => {
    const inControl = event.target.closest("input, button, a, summary");
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    if (inControl && (event.key === "Enter" || event.key === " ")) return;
    const lower = event.key.toLowerCase();
    if (lower in VIEWER_HELD && !event.shiftKey) {
      event.preventDefault();
      if (event.repeat || held.has(lower)) return;
      held.set(lower, performance.now());
      VIEWER_HELD[lower].step(viewer);
      viewer.change();
      return;
    }
    const shifted = event.shiftKey && `Shift+${event.key}` in VIEWER_KEYS ? `Shift+${event.key}` : event.key;
    const act = VIEWER_KEYS[shifted];
    if (!act) return;
    event.preventDefault();
    act(viewer);
  });
  const letGo = (event) => held.delete(event.key?.toLowerCase());
  viewer.node.addEventListener("keyup", letGo);
  viewer.node.addEventListener("focusout", () => held.clear());
  let before = performance.now();
  // Moves for the time since the last frame; whether anything is still held.
  viewer.moveHeld = (now) => {
    const passed = Math.min(now - before, 50);
    before = now;
    for (const [key, since] of held) if (now - since > HELD_AFTER_MS) VIEWER_HELD[key].held(viewer, passed);
    return held.size > 0;
  };
}

// From box to box: neighbours for keys, the ends of launches, a span by its id.
const MAX_NESTING = 64;

// The deepest box of a lane at a time; null where there is none.
function deepestAt(boxes, lane, at) {
  let deepest = null;
  for (let row = 0; row < MAX_NESTING; row += 1) {
    const [first, last] = boxesBetween(boxes, lane, row, at, at + 1);
    if (first < last && boxes.start[first] <= at) deepest = boxAt(boxes, first);
    else if (!boxes.rows.has(rowKey(lane, row))) break;
  }
  return deepest;
}

// Launches between a box and the other side: of a call, all that start within it; of device work, its own.
function arrowsOf(boxes, flows, box) {
  const arrows = [];
  const end = box.start + box.duration;
  for (let i = 0; i < flows.count; i += 1) {
    const launches = flows.from_lane[i] === box.lane && flows.from_time[i] >= box.start && flows.from_time[i] <= end;
    const launched = flows.span[i] === box.span || (flows.to_lane[i] === box.lane && flows.to_time[i] === box.start);
    if (launches || launched) arrows.push({ fromLane: flows.from_lane[i], fromTime: flows.from_time[i], toLane: flows.to_lane[i], toTime: flows.to_time[i] });
  }
  for (const arrow of arrows.slice(0, MAX_ARROWS)) {
    arrow.fromRow = deepestAt(boxes, arrow.fromLane, arrow.fromTime)?.row ?? 0;
    arrow.toRow = deepestAt(boxes, arrow.toLane, arrow.toTime)?.row ?? 0;
  }
  return arrows.sort((a, b) => a.toTime - b.toTime);
}

// The box that a key goes to. Without a selection: the one nearest to the middle of the view in the first lane that has any.
function neighbour(viewer, box, along, across) {
  const { boxes } = viewer;
  if (!boxes) return null;
  const lines = viewer.fields.flatMap((field) => field.stack.lines).filter((line) => line.kind === "lane" && line.side !== "counter");
  const middle = (viewer.view.from + viewer.view.to) / 2;
  if (!box) return lines.map((line) => nearestIn(boxes, line.lane, 0, middle)).find(Boolean) ?? null;
  if (along) return beside(boxes, box, along);
  const at = box.start + box.duration / 2;
  const here = lines.findIndex((line) => line.lane === box.lane);
  for (let row = box.row + across; row >= 0 && row < (lines[here]?.rows ?? 0); row += across) {
    const near = nearestIn(boxes, box.lane, row, at);
    if (near) return near;
  }
  for (let line = here + across; line >= 0 && line < lines.length; line += across) {
    const rows = Array.from({ length: lines[line].rows }, (_, row) => row);
    if (across < 0) rows.reverse();
    for (const row of rows) {
      const near = nearestIn(boxes, lines[line].lane, row, at);
      if (near) return near;
    }
  }
  return null;
}

function nearestIn(boxes, lane, row, at) {
  const range = boxes.rows.get(rowKey(lane, row));
  if (!range) return null;
  const after = firstBeyond(boxes.start, at, range.first, range.last);
  const distance = (i) => Math.max(boxes.start[i] - at, at - boxes.start[i] - boxes.duration[i], 0);
  const [near] = [after - 1, after].filter((i) => i >= range.first && i < range.last).sort((a, b) => distance(a) - distance(b));
  return near === undefined ? null : boxAt(boxes, near);
}

// The next or previous box of the row: of a merged one, beyond its end.
function beside(boxes, box, along) {
  const range = boxes.rows.get(rowKey(box.lane, box.row));
  if (!range || box.gap) return range ? nearestIn(boxes, box.lane, box.row, box.start + (along > 0 ? box.duration : 0)) : null;
  const i = along > 0 ? firstBeyond(boxes.start, box.start + (box.merged ? box.duration : 0), range.first, range.last) : firstBeyond(boxes.start, box.start - 1, range.first, range.last) - 1;
  return i >= range.first && i < range.last ? boxAt(boxes, i) : null;
}

// The lanes whose gaps are drawn in a lane: all of its device.
function gapLanes(about) {
  return new Map(devicesOf(about).flatMap(({ lanes }) => lanes.map((lane) => [lane, lanes])));
}
