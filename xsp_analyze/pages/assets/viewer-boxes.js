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
  return same.length === 1 ? boxAt(boxes, nearest.i) : mergedOf(same.map((c) => boxAt(boxes, c.i)));
}

function mergedOf(parts) {
  const tones = new Map();
  for (const part of parts) tones.set(part.tone, (tones.get(part.tone) ?? 0) + part.busy);
  const [tone] = [...tones].reduce((a, b) => (b[1] > a[1] ? b : a));
  const end = Math.max(...parts.map((part) => part.start + part.duration));
  return {
    lane: parts[0].lane, row: parts[0].row, start: parts[0].start, duration: end - parts[0].start, tone, name: -1, span: -1, layer: -1,
    merged: parts.reduce((sum, part) => sum + (part.merged || 1), 0), busy: parts.reduce((sum, part) => sum + part.busy, 0),
  };
}
