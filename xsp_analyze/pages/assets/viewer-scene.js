// What stands around the boxes of a field: stripes, gaps, counters, steps, the selected range, arrows and outlines.
const MIN_GAP = 2; // pixels of a gap that is marked
const MIN_GAP_NAMED = 60;
const MAX_ARROWS = 300;
const ARROW_HEAD = 4;

// Paints one field (a canvas with its stack of lines) from `offset` pixels down.
function paintField(viewer, field, view) {
  const { context, stack, width, height } = field;
  const { colours } = viewer;
  const offset = field.offset();
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  context.font = VIEWER_FONT;
  context.setTransform(ratio, 0, 0, ratio, 0, -offset * ratio);
  const lines = stack.lines.filter((line) => line.top + line.height > offset && line.top < offset + height);
  paintStripes(viewer, field, lines);
  viewer.painter.clear();
  for (const line of lines) {
    if (line.kind === "group") continue;
    if (line.side === "counter") paintCounter(viewer, field, line, view);
    else if (line.side === "device") paintGaps(viewer, field, line, view);
    if (line.side !== "counter" && viewer.boxes) addLine(viewer, line, view);
  }
  paintSteps(viewer, field, view, offset, height);
  viewer.painter.paint(context, colours, viewer.cut);
  paintRange(viewer, field, view, offset, height);
  paintArrows(viewer, field, view);
  for (const box of [viewer.hover, viewer.selected]) if (box) outline(viewer, field, box, view, box === viewer.selected);
}

function addLine(viewer, line, view) {
  const gap = line.rowHeight > 6 ? 1 : 0;
  for (let row = 0; row < line.rows; row += 1) viewer.painter.addRow(viewer.boxes, line, row, Math.round(line.boxTop + row * line.rowHeight), Math.max(Math.round(line.rowHeight) - gap, 1), view);
}

function paintStripes({ colours }, { context, width }, lines) {
  for (const line of lines) {
    if (line.kind === "thin") continue;
    context.fillStyle = line.kind === "group" ? colours.raised : colours.rule;
    if (line.kind === "group") context.fillRect(0, line.top, width, line.height);
    else context.fillRect(0, line.top + line.height - 1, width, 1);
  }
}

// Idle stretches of the device; named in the lane that has them, where there is room.
function paintGaps(viewer, { context }, line, { from, to, scale, width }) {
  if (!viewer.gaps) return;
  const { gaps, about, colours } = viewer;
  const height = Math.max(Math.round(line.rowHeight * line.rows) - 1, 1);
  for (const lane of viewer.gapLanes.get(line.lane) ?? []) {
    const [first, last] = boxesBetween(gaps, lane, 0, from, to);
    for (let i = first; i < last; i += 1) {
      const left = Math.max(Math.round((gaps.start[i] - from) * scale), 0);
      const right = Math.min(Math.round((gaps.start[i] + gaps.duration[i] - from) * scale), width);
      if (right - left < MIN_GAP) continue;
      context.fillStyle = colours.causes[gaps.cause[i]];
      context.fillRect(left, line.boxTop, right - left, height);
      if (right - left < MIN_GAP_NAMED || height < 12 || lane !== line.lane) continue;
      context.fillStyle = colours.muted;
      context.textBaseline = "middle";
      const text = viewer.cut(`idle ${time(gaps.duration[i])}: ${about.causes[gaps.cause[i]].text}`, right - left - 8);
      if (text) context.fillText(text, left + 4, line.boxTop + height / 2 + 0.5);
    }
  }
}

// A step function; where several changes share a pixel, all that they span is filled.
function paintCounter(viewer, { context, width }, line, { from, to, scale }) {
  const counter = viewer.counters?.get(line.lane);
  if (!counter) return;
  const { times, values, largest, smallest } = counter;
  const height = line.rowHeight - 2;
  const y = (value) => line.boxTop + height - (height * (value - smallest)) / (largest - smallest || 1);
  context.fillStyle = viewer.colours.accent;
  let i = Math.max(firstBeyond(times, from, 0, times.length) - 1, 0);
  for (; i < times.length && times[i] < to; i += 1) {
    if (values[i] === null) continue;
    const left = Math.max(Math.round((times[i] - from) * scale), 0);
    const pixel = Math.floor(left);
    let [low, high] = [values[i], values[i]];
    while (i + 1 < times.length && times[i + 1] < to && Math.floor((times[i + 1] - from) * scale) <= pixel) {
      i += 1;
      if (values[i] === null) break;
      low = Math.min(low, values[i]);
      high = Math.max(high, values[i]);
    }
    const right = i + 1 < times.length ? Math.min(Math.round((times[i + 1] - from) * scale), width) : width;
    const top = y(values[i] ?? low);
    context.globalAlpha = 0.22;
    context.fillRect(left, top, Math.max(right - left, 1), line.boxTop + height - top);
    context.globalAlpha = 1;
    context.fillRect(left, top - 0.5, Math.max(right - left, 1), 1.5);
    context.fillRect(pixel, y(high), 1, Math.max(y(low) - y(high), 1));
  }
}

// The value of a counter at a time; null before its first.
function counterAt(counter, at) {
  const i = firstBeyond(counter.times, at, 0, counter.times.length) - 1;
  return i < 0 ? null : counter.values[i];
}

function paintSteps(viewer, { context }, { from, to, scale }, top, height) {
  context.fillStyle = viewer.colours.muted;
  context.globalAlpha = 0.35;
  for (const step of viewer.steps) {
    for (const at of [step.begin, step.end]) if (at >= from && at <= to) context.fillRect(Math.round((at - from) * scale), top, 1, height);
  }
  context.globalAlpha = 1;
}

function paintRange(viewer, { context, width }, { from, scale }, top, height) {
  if (!viewer.range) return;
  const [left, right] = viewer.range.map((at) => (at - from) * scale);
  context.fillStyle = viewer.colours.accent;
  context.globalAlpha = 0.13;
  context.fillRect(Math.max(left, 0), top, Math.min(right, width) - Math.max(left, 0), height);
  context.globalAlpha = 1;
  for (const x of [left, right]) context.fillRect(Math.round(x), top, 1, height);
}

function outline(viewer, field, box, { from, scale, width }, selected) {
  const line = field.byLane.get(box.lane);
  if (!line || box.row >= line.rows) return;
  const left = Math.max(Math.round((box.start - from) * scale), -3);
  const right = Math.min(Math.max(Math.round((box.start + box.duration - from) * scale), left + 1), width + 3);
  const height = box.gap ? line.rowHeight * line.rows : line.rowHeight;
  field.context.lineWidth = selected ? 2 : 1;
  field.context.strokeStyle = viewer.colours.ink;
  field.context.strokeRect(left - 0.5, Math.round(line.boxTop + box.row * line.rowHeight) - 0.5, right - left + 1, height);
}

// From calls to what they launched. An end in a lane that this field does not show is at its upper or lower edge.
function paintArrows(viewer, field, { from, scale, width }) {
  const { context, byLane } = field;
  const y = (lane, row, low) => {
    const line = byLane.get(lane);
    if (line) return line.boxTop + (Math.min(row, line.rows - 1) + (low ? 1 : 0.5)) * line.rowHeight;
    return field.offset() + (field.isPinned ? field.height : 0);
  };
  context.strokeStyle = viewer.colours.ink;
  context.fillStyle = viewer.colours.ink;
  context.lineWidth = 1.2;
  for (const arrow of viewer.arrows.slice(0, MAX_ARROWS)) {
    const [x1, x2] = [arrow.fromTime, arrow.toTime].map((at) => (at - from) * scale);
    if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) continue;
    const [y1, y2] = [y(arrow.fromLane, arrow.fromRow, true), y(arrow.toLane, arrow.toRow, false)];
    const bend = Math.max(Math.min(Math.abs(x2 - x1) / 2, 60), 12);
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - ARROW_HEAD, y2);
    context.stroke();
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - ARROW_HEAD * 1.6, y2 - ARROW_HEAD);
    context.lineTo(x2 - ARROW_HEAD * 1.6, y2 + ARROW_HEAD);
    context.fill();
  }
}
