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
