// Boxes that are shorter than a cell and begin in the same one, merged: what is below a pixel need not be gone through anew
// for every frame. Counts and busy time stay exact.
function coarsened(boxes, cell, toneCount) {
  const kept = { lane: [], row: [], start: [], duration: [], name: [], tone: [], merged: [], busy: [], span: [], layer: [] };
  const weight = new Float64Array(toneCount);
  const push = (box) => { for (const key of Object.keys(kept)) kept[key].push(box[key]); };
  let [count, first, end, busy, tone, number] = [0, 0, 0, 0, 0, -1];
  const flush = () => {
    if (count === 1) push(boxAt(boxes, first));
    else if (count > 1) push({ lane: boxes.lane[first], row: boxes.row[first], start: boxes.start[first], duration: end - boxes.start[first], name: -1, tone, merged: mergedCount, busy, span: -1, layer: -1 });
    weight.fill(0);
    count = 0;
  };
  let mergedCount = 0;
  for (const range of boxes.rows.values()) {
    for (let i = range.first; i < range.last; i += 1) {
      const duration = boxes.duration[i];
      const own = Math.floor(boxes.start[i] / cell);
      if (duration >= cell) { flush(); push(boxAt(boxes, i)); continue; }
      if (count && own !== number) flush();
      const time = boxes.merged[i] ? boxes.busy[i] : duration;
      if (!count) { [first, end, busy, tone, number, mergedCount] = [i, 0, 0, boxes.tone[i], own, 0]; }
      count += 1;
      mergedCount += boxes.merged[i] || 1;
      busy += time;
      end = Math.max(end, boxes.start[i] + duration);
      weight[boxes.tone[i]] += time;
      if (weight[boxes.tone[i]] > weight[tone]) tone = boxes.tone[i];
    }
    flush();
  }
  const typed = Object.fromEntries(Object.entries(kept).map(([key, values]) => [key, VIEWER_TIMES.has(key) ? Float64Array.from(values) : Int32Array.from(values)]));
  return Object.assign(indexed({ count: kept.lane.length, ...typed }), { resolution: cell, from: boxes.from, to: boxes.to });
}
