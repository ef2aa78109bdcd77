// Which lane stands where: groups under their headings, pinned lanes on top, folded ones in one line.
const VIEWER_GUTTER = 188; // left of the boxes, for headings; 0 where the page is narrow: then they stand above
const VIEWER_NARROW = 620;
const VIEWER_LINE = 26; // the least height of a lane: its buttons are 24 px
const VIEWER_ROW = { host: 15, device: 20, counter: 34 };
const VIEWER_GROUP_LINE = 28;
const VIEWER_MAX_FOLDED = 12; // rows of a folded lane, lanes of a folded group, that still have a line of their own

// Lanes of each group, in order.
function laneGroups(about) {
  const groups = new Map();
  about.lanes.forEach((lane, index) => {
    if (!groups.has(lane.group)) groups.set(lane.group, []);
    groups.get(lane.group).push(index);
  });
  return groups;
}

// Of several ranks, the host's threads are folded but for the first; so are more lanes than a window shows.
function groupsFoldedAtFirst(about) {
  const groups = [...laneGroups(about)].filter(([, lanes]) => about.lanes[lanes[0]].side === "host");
  return new Set(groups.slice(1).map(([group]) => group));
}

// `pinned` and `scrolled`: lines from top to bottom, each a group's heading or a lane, and the height of all.
function laneLayout(about, { pins, folds, foldedGroups, narrow }) {
  const pinned = new Stack();
  for (const key of pins) {
    const index = about.lanes.findIndex((lane) => lane.key === key);
    if (index >= 0) pinned.lane(about, index, folds.has(key), narrow, true);
  }
  const scrolled = new Stack();
  for (const [group, lanes] of laneGroups(about)) {
    const shown = lanes.filter((index) => !pins.includes(about.lanes[index].key));
    if (!shown.length) continue;
    if (foldedGroups.has(group)) scrolled.foldedGroup(about, group, shown, narrow);
    else {
      scrolled.group(group, shown);
      for (const index of shown) scrolled.lane(about, index, folds.has(about.lanes[index].key), narrow, false);
    }
  }
  return { pinned, scrolled };
}

// Lines one under the other. A line has `top` and `height`; that of a lane also `boxTop`, `rowHeight` and `rows`.
class Stack {
  constructor() {
    this.lines = [];
    this.height = 0;
  }

  push(line, height) {
    this.lines.push({ ...line, top: this.height, height });
    this.height += height;
  }

  group(group, lanes) {
    this.push({ kind: "group", group, lanes, folded: false }, VIEWER_GROUP_LINE);
  }

  // A heading with one thin line a lane beside it, or below where the page is narrow.
  foldedGroup(about, group, lanes, narrow) {
    const top = this.height;
    const below = narrow ? VIEWER_GROUP_LINE : 0;
    const thin = lanes.slice(0, VIEWER_MAX_FOLDED);
    this.push({ kind: "group", group, lanes, folded: true }, VIEWER_GROUP_LINE + (narrow ? 20 : 0));
    const rowHeight = (narrow ? 16 : VIEWER_GROUP_LINE - 6) / thin.length;
    thin.forEach((lane, n) => {
      this.lines.push({ kind: "thin", lane, top: top + below + 3 + n * rowHeight, height: rowHeight, boxTop: top + below + 3 + n * rowHeight, rowHeight, rows: 1, side: about.lanes[lane].side });
    });
  }

  lane(about, index, folded, narrow, pinned) {
    const { side, rows, key, title, group } = about.lanes[index];
    const above = narrow ? 24 : 2;
    const shownRows = side === "counter" ? 1 : Math.max(rows, 1);
    const rowHeight = folded ? Math.max((VIEWER_LINE - 6) / Math.min(shownRows, VIEWER_MAX_FOLDED), 1) : VIEWER_ROW[side] ?? VIEWER_ROW.host;
    const taken = folded ? VIEWER_LINE - 6 : shownRows * rowHeight;
    const kept = folded ? Math.min(shownRows, VIEWER_MAX_FOLDED) : shownRows;
    const top = this.height;
    this.push({ kind: "lane", lane: index, key, title, group, side, folded, pinned, boxTop: top + above, rowHeight, rows: kept }, Math.max(taken + above + 4, VIEWER_LINE + (narrow ? 18 : 0)));
  }
}

// The line of a lane that is drawn (thin lines of folded groups too), by lane.
function linesByLane(stack) {
  return new Map(stack.lines.filter((line) => line.kind !== "group").map((line) => [line.lane, line]));
}

// Colours and cut names for canvases: the page's own variables as the theme (or paper) has them now, and widths measured once.
const VIEWER_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const VIEWER_INKS = ["#14161a", "#ffffff"];
const MIN_CUT_TEXT = 3; // letters left of a cut name, else none

// Custom properties hold light-dark(...) as text; a color that uses one is resolved.
function viewerColours(node, tones, causes) {
  const probe = make("span", { hidden: true });
  node.append(probe);
  const colour = (value) => {
    probe.style.color = "";
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const toneColour = (tone) => colour(`var(--c-${tone}, var(--${tone}, var(--others)))`);
  const colours = {
    tones: tones.map(toneColour), causes: causes.map(({ tone }) => toneColour(tone)), device: toneColour("idle-unknown"), other: toneColour("other"),
    ...Object.fromEntries(["paper", "raised", "ink", "muted", "rule", "accent", "tint", "error"].map((name) => [name, colour(`var(--${name})`)])),
  };
  probe.remove();
  colours.inks = colours.tones.map((value) => VIEWER_INKS[Number(luminance(value) < 0.197)]);
  return colours;
}

// Relative luminance of rgb(...), as WCAG defines it.
function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// `cut(text, width)`: as much of the text as fits, with an ellipsis where it is less than all; "" where too little would be left.
function textCutter(context) {
  const widths = new Map();
  const widthOf = (text) => {
    let width = widths.get(text);
    if (width === undefined) {
      width = context.measureText(text).width;
      widths.set(text, width);
    }
    return width;
  };
  return (text, width) => {
    const full = widthOf(text);
    if (full <= width) return text;
    for (let letters = Math.floor((text.length * width) / full) - 1; letters >= MIN_CUT_TEXT; letters -= 1) {
      const shorter = `${text.slice(0, letters)}\u2026`;
      if (widthOf(shorter) <= width) return shorter;
    }
    return "";
  };
}

// Paints the boxes of lanes: what is a pixel wide or more by itself, what is narrower merged a pixel at a time. A box that
// stands for several is pale, and filled from below as high as they are busy; a single one is filled whole.
const MIN_NAMED = 26; // pixels of a box that has its name in it
const PALE = 0.38;
const FAINT = 0.22; // what a search does not find
const MERGED_CAP = 2; // pixels at the top of a merged box that stay pale however busy it is

function boxPainter(about) {
  const tones = about.tones.length;
  const lists = () => Array.from({ length: tones }, () => []);
  const [solid, pale, faint] = [lists(), lists(), lists()];
  const texts = [];
  const weight = new Float64Array(tones); // of the pixel that is being merged: time by tone
  const counts = { boxes: 0, single: 0, merged: 0 };
  const shortNames = new Map();

  function clear() {
    for (const list of [...solid, ...pale, ...faint]) list.length = 0;
    texts.length = 0;
    Object.assign(counts, { boxes: 0, single: 0, merged: 0 });
  }

  function add(tone, x, y, width, height, seen) {
    (seen ? solid : faint)[tone].push(x, y, width, height);
  }

  function addMerged(tone, x, y, width, height, share, seen) {
    if (!seen) { add(tone, x, y, width, height, false); return; }
    const filled = Math.max(Math.round(Math.min(share, 1) * height), 1);
    const level = Math.min(filled, Math.max(height - (height > 6 ? MERGED_CAP : 0.5), 1));
    pale[tone].push(x, y, width, height - level);
    solid[tone].push(x, y + height - level, width, level);
  }

  function nameOf(index, side) {
    const key = side === "device" ? index : -1 - index;
    let name = shortNames.get(key);
    if (name === undefined) shortNames.set(key, (name = side === "device" ? bare(about.names[index]) : about.names[index]));
    return name;
  }

  // One row of a line: `y` and `height` of its boxes; `scale` is pixels a nanosecond from view.from on.
  function addRow(boxes, line, row, y, height, { from, to, scale, width, matches }) {
    const [first, last] = boxesBetween(boxes, line.lane, row, from, to);
    const { start, duration, tone, merged, name, busy } = boxes;
    const named = height >= 11;
    let [pixel, columnCount, runBusy, strongest, runSeen, runMerged] = [-1, 0, 0, 0, false, 0];
    let column = null; // merged pixels side by side that look the same
    const flushColumn = () => { if (column) addMerged(column.tone, column.x, y, column.width, height, column.share, column.seen); column = null; };
    const flush = () => {
      if (columnCount === 0) return;
      if (columnCount === 1 && !runMerged) { flushColumn(); add(strongest, pixel, y, 1, height, runSeen); counts.single += 1; } else {
        const share = Math.round(Math.min(runBusy * scale, 1) * height) / height;
        counts.merged += 1;
        if (column && column.tone === strongest && column.share === share && column.seen === runSeen && column.x + column.width === pixel) column.width += 1;
        else { flushColumn(); column = { tone: strongest, x: pixel, width: 1, share, seen: runSeen }; }
      }
      weight.fill(0);
      [columnCount, runBusy, runSeen, runMerged] = [0, 0, false, 0];
    };
    counts.boxes += last - first;
    for (let i = first; i < last; i += 1) {
      const x = (start[i] - from) * scale;
      const wide = duration[i] * scale;
      const seen = matches === null || matches.has(name[i]);
      if (wide >= 1) {
        flush();
        flushColumn();
        const left = Math.max(Math.round(x), -2);
        const right = Math.min(Math.max(Math.round(x + wide), left + 1), width + 2);
        const drawnWidth = right - left - (right - left > 3 ? 1 : 0);
        if (merged[i]) { addMerged(tone[i], left, y, drawnWidth, height, busy[i] / duration[i], seen); counts.merged += 1; } else { add(tone[i], left, y, drawnWidth, height, seen); counts.single += 1; }
        if (named && drawnWidth >= MIN_NAMED) texts.push({ x: Math.max(left, 0) + 3, y, height, width: right - Math.max(left, 0) - 6, tone: tone[i], seen, merged: merged[i], name: name[i] < 0 ? `${count(merged[i])} calls` : nameOf(name[i], line.side) });
        continue;
      }
      const at = Math.floor(x);
      if (at !== pixel) { flush(); pixel = at; }
      const own = merged[i] ? busy[i] : duration[i];
      if (columnCount === 0) strongest = tone[i];
      weight[tone[i]] += own + 1e-9;
      if (weight[tone[i]] > weight[strongest]) strongest = tone[i];
      columnCount += 1;
      runBusy += own;
      runMerged += merged[i];
      runSeen ||= seen;
    }
    flush();
    flushColumn();
  }

  // Everything that was added, a colour at a time.
  function paint(context, colours, cut) {
    fillAll(context, faint, colours.tones, FAINT);
    fillAll(context, pale, colours.tones, PALE);
    fillAll(context, solid, colours.tones, 1);
    context.textBaseline = "middle";
    let last = null;
    for (const text of texts) {
      const shown = cut(text.name, text.width);
      if (!shown) continue;
      const ink = !text.seen ? colours.muted : text.merged ? colours.ink : colours.inks[text.tone];
      if (ink !== last) context.fillStyle = last = ink;
      context.fillText(shown, text.x, text.y + text.height / 2 + 0.5);
    }
  }

  return { clear, addRow, paint, counts };
}

function fillAll(context, lists, fills, alpha) {
  context.globalAlpha = alpha;
  lists.forEach((list, tone) => {
    if (!list.length) return;
    context.fillStyle = fills[tone];
    for (let k = 0; k < list.length; k += 4) context.fillRect(list[k], list[k + 1], list[k + 2], list[k + 3]);
  });
  context.globalAlpha = 1;
}

// The box at a pixel of a row; the merged ones of that pixel as one; null where nothing is drawn within `slack` pixels.
function boxAtPixel(boxes, lane, row, x, { from, scale }, slack = 2) {
  const time = from + x / scale;
  const [first, last] = boxesBetween(boxes, lane, row, time - (slack + 1) / scale, time + (slack + 1) / scale);
  const candidates = [];
  for (let i = first; i < last; i += 1) {
    const left = (boxes.start[i] - from) * scale;
    const wide = boxes.duration[i] * scale;
    const shownLeft = wide >= 1 ? left : Math.floor(left);
    const distance = Math.max(shownLeft - x, x - (shownLeft + Math.max(wide, 1)), 0);
    if (distance <= slack) candidates.push({ i, distance, narrow: wide < 1, pixel: shownLeft });
  }
  if (!candidates.length) return null;
  const nearest = candidates.reduce((a, b) => (b.distance < a.distance ? b : a));
  const same = nearest.narrow ? candidates.filter((c) => c.narrow && c.pixel === nearest.pixel) : [nearest];
  return same.length === 1 ? boxAt(boxes, nearest.i) : mergeOf(same.map((c) => boxAt(boxes, c.i)));
}

function mergeOf(parts) {
  const tones = new Map();
  for (const part of parts) tones.set(part.tone, (tones.get(part.tone) ?? 0) + part.busy);
  const [tone] = [...tones].reduce((a, b) => (b[1] > a[1] ? b : a));
  const end = Math.max(...parts.map((part) => part.start + part.duration));
  return {
    lane: parts[0].lane, row: parts[0].row, start: parts[0].start, duration: end - parts[0].start, tone, name: -1, span: -1, layer: -1,
    merged: parts.reduce((sum, part) => sum + (part.merged || 1), 0), busy: parts.reduce((sum, part) => sum + part.busy, 0),
  };
}

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
