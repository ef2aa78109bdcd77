// Columns of the trace viewer: packed in the page or by `xsp view`, typed arrays here; and where each lane's rows begin in them.
const VIEWER_SUMMED = new Set(["lane", "start", "time", "times", "span", "from_lane", "from_time", "to_lane", "to_time"]);
const VIEWER_TIMES = new Set(["start", "duration", "busy", "time", "times", "from_time", "to_time"]);
const VIEWER_MAX_ROWS = 65536; // rows of a lane: lane and row make one key

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Zigzag LEB128 into `values`; `summed`: each is the difference from the one before. Factors instead of shifts: times have 53 bits.
function readVarints(bytes, values, summed) {
  let at = 0;
  let last = 0;
  for (let i = 0; i < values.length; i += 1) {
    let byte = bytes[at++];
    let coded = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = bytes[at++];
      coded += (byte & 127) * factor;
    }
    const value = coded % 2 ? -(coded + 1) / 2 : coded / 2;
    last = summed ? last + value : value;
    values[i] = last;
  }
  return values;
}

async function decodedColumn(key, text, count) {
  const values = VIEWER_TIMES.has(key) ? new Float64Array(count) : new Int32Array(count);
  return readVarints(await inflate(text), values, VIEWER_SUMMED.has(key));
}

async function decodedColumns({ count, columns }) {
  const keys = Object.keys(columns);
  const values = await Promise.all(keys.map((key) => decodedColumn(key, columns[key], count)));
  return { count, ...Object.fromEntries(keys.map((key, i) => [key, values[i]])) };
}

// Boxes in order of lane, row and start, with `rows`: first and last index by lane and row; and `reach`: the latest end
// up to each box within its row, which grows, so that what is in view is found by halves even where boxes overlap.
async function decodedBoxes(packed) {
  const boxes = await decodedColumns(packed);
  boxes.row ??= new Int32Array(boxes.count);
  return addIndex(boxes);
}

function addIndex(boxes) {
  boxes.rows = new Map();
  boxes.reach = new Float64Array(boxes.count);
  let key = -1;
  for (let i = 0; i < boxes.count; i += 1) {
    const own = rowKey(boxes.lane[i], boxes.row[i]);
    const end = boxes.start[i] + boxes.duration[i];
    if (own !== key) boxes.rows.set(own, { first: i, last: i });
    boxes.reach[i] = own === key ? Math.max(end, boxes.reach[i - 1]) : end;
    boxes.rows.get((key = own)).last = i + 1;
  }
  return boxes;
}

const rowKey = (lane, row) => lane * VIEWER_MAX_ROWS + row;

// The first index of [first, last) whose value is beyond `limit`; values grow.
function firstBeyond(values, limit, first, last) {
  let [low, high] = [first, last];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Indexes of the boxes of a row that overlap [from, to), as [first, last).
function boxesBetween(boxes, lane, row, from, to) {
  const range = boxes.rows.get(rowKey(lane, row));
  if (!range) return [0, 0];
  const first = firstBeyond(boxes.reach, from, range.first, range.last);
  return [first, firstBeyond(boxes.start, to, first, range.last)];
}

function boxAt(boxes, i) {
  const merged = boxes.merged?.[i] ?? 0;
  return {
    lane: boxes.lane[i], row: boxes.row[i], start: boxes.start[i], duration: boxes.duration[i], tone: boxes.tone?.[i] ?? -1, merged,
    name: boxes.name?.[i] ?? -1, busy: merged && boxes.busy ? boxes.busy[i] : boxes.duration[i], span: boxes.span?.[i] ?? -1, layer: boxes.layer?.[i] ?? -1,
  };
}

// Boxes that are shorter than a cell and begin in the same one, merged: what is below a pixel need not be gone through anew
// for every frame. Counts and busy time stay exact.
function coarsen(boxes, cell, toneCount) {
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
  return Object.assign(addIndex({ count: kept.lane.length, ...typed }), { resolution: cell, from: boxes.from, to: boxes.to });
}

// Where the viewer's boxes come from: levels of detail within the page, or `xsp view`, asked for what is in view.
const MANY_BOXES = 150000; // of a level, that are not gone through for every frame
const COARSER = 4; // times, from one merged level to the next
const SEARCH_LIMIT = 20000; // hits that are kept; all are counted

function embeddedSource(about) {
  const levels = about.levels.map((level) => ({ ...level, decoded: null }));
  const once = {};

  async function decodedLevel(level) {
    level.decoded ??= decodedBoxes(level.boxes).then((boxes) => Object.assign(boxes, { resolution: level.resolution, from: level.from, to: level.to }));
    return level.decoded;
  }

  const covers = (level, from, to) => level.from <= Math.max(from, about.begin) && level.to >= Math.min(to, about.end);

  // The coarsest level that is as fine as was asked for; else the finest that covers what was asked for.
  function levelFor(from, to, resolution) {
    const covering = levels.filter((level) => covers(level, from, to));
    return covering.filter((level) => level.resolution <= resolution).at(-1) ?? covering[0] ?? levels.at(-1);
  }

  // Single spans of every level, each where no finer level says it.
  async function search(text) {
    const names = matchingNames(about.names, text);
    const hits = [];
    for (const [n, level] of levels.entries()) {
      const boxes = await decodedLevel(level);
      for (let i = 0; i < boxes.count; i += 1) {
        if (!names.has(boxes.name[i]) || levels.slice(0, n).some((finer) => boxes.start[i] >= finer.from && boxes.start[i] < finer.to)) continue;
        hits.push(boxAt(boxes, i));
      }
    }
    hits.sort((a, b) => a.start - b.start || a.lane - b.lane || a.row - b.row);
    return { hits: hits.slice(0, SEARCH_LIMIT), count: hits.length, complete: covers(levels[0], about.begin, about.end) && levels[0].resolution === 0 };
  }

  // The call with this id; null where it is only merged with others.
  async function span(id) {
    for (const level of levels) {
      const boxes = await decodedLevel(level);
      const i = boxes.span.indexOf(id);
      if (i >= 0) return boxAt(boxes, i);
    }
    return null;
  }

  // Of very many boxes, what is below a pixel merged once and kept, so that a frame is soon painted.
  async function boxes(from, to, resolution) {
    const decoded = await decodedLevel(levelFor(from, to, resolution));
    const cell = COARSER ** Math.floor(Math.log(Math.max(resolution, 1)) / Math.log(COARSER));
    if (decoded.count < MANY_BOXES || cell <= Math.max(decoded.resolution, 1)) return decoded;
    decoded.coarser ??= new Map();
    if (!decoded.coarser.has(cell)) decoded.coarser.set(cell, coarsen(decoded, cell, about.tones.length));
    return decoded.coarser.get(cell);
  }

  return {
    about, boxes, span,
    exact: (from, to) => decodedLevel(levelFor(from, to, 0)),
    overview: () => decodedLevel(levels.at(-1)),
    flows: () => (once.flows ??= decodedColumns(about.flows)),
    gaps: () => (once.gaps ??= decodedBoxes(about.gaps)),
    counters: () => (once.counters ??= decodedCounters(about)),
    search,
    statistics: async (from, to) => rangeStatistics(about, await decodedLevel(levelFor(from, to, 0)), await (once.gaps ??= decodedBoxes(about.gaps)), from, to),
  };
}

// What `xsp view` serves: one window at a time, three views wide, kept until the view leaves it or comes much closer.
function fetchedSource(about) {
  const kept = new Map();
  const get = async (path, params) => {
    const answer = await fetch(`${path}?${new URLSearchParams(params)}`);
    if (!answer.ok) throw new Error(`xsp view: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };

  async function fetchWindow(path, from, to, resolution, decode) {
    const last = kept.get(path);
    const near = [Math.max(from, about.begin), Math.min(to, about.end)];
    if (last && last.from <= near[0] && last.to >= near[1] && last.resolution === resolution) return last.answer;
    const margin = to - from;
    const window = [Math.max(Math.floor(from - margin), about.begin), Math.min(Math.ceil(to + margin), about.end)];
    const answer = get(path, { from: window[0], to: window[1], ...(resolution === null ? {} : { resolution }) })
      .then(async (json) => Object.assign(await decode(json), { resolution: json.resolution ?? resolution, from: json.from ?? window[0], to: json.to ?? window[1] }));
    kept.set(path, { from: window[0], to: window[1], resolution, answer });
    answer.catch(() => kept.delete(path));
    return answer;
  }

  const gridResolution = (resolution) => (resolution < 1 ? 0 : 2 ** Math.floor(Math.log2(resolution)));

  async function search(text) {
    const answer = await get("search", { text });
    return { hits: answer.results, count: answer.count, complete: true };
  }

  return {
    about,
    span: async () => null, // what links to spans are tables, which only a report has
    boxes: (from, to, resolution) => fetchWindow("boxes", from, to, gridResolution(resolution), decodedBoxes),
    overview: async () => decodedBoxes(await get("boxes", { from: about.begin, to: about.end, resolution: Math.ceil((about.end - about.begin) / 1000) })),
    flows: (from, to) => fetchWindow("flows", from, to, null, decodedColumns),
    gaps: (from, to) => fetchWindow("gaps", from, to, null, decodedBoxes),
    counters: () => decodedCounters(about),
    search,
    statistics: (from, to) => get("statistics", { from: Math.floor(from), to: Math.ceil(to) }),
  };
}

// By lane: times, values, the largest value and the least, 0 included.
async function decodedCounters(about) {
  const counters = await Promise.all((about.counters ?? []).map(async (counter) => {
    const times = await decodedColumn("times", counter.times, counter.values.length);
    const known = counter.values.filter((value) => value !== null);
    return { ...counter, times, largest: known.reduce((a, b) => Math.max(a, b), 0), smallest: known.reduce((a, b) => Math.min(a, b), 0) };
  }));
  return new Map(counters.map((counter) => [counter.lane, counter]));
}

// Indexes of the names that hold the text, whatever its case.
function matchingNames(names, text) {
  const wanted = text.trim().toLowerCase();
  return new Set(wanted ? names.flatMap((name, i) => (name.toLowerCase().includes(wanted) ? [i] : [])) : []);
}

// Statistics of a range of time from the boxes that the page holds: all times are cut to the range.
function rangeStatistics(about, boxes, gaps, from, to) {
  const [names, classes, calls] = [new Map(), new Map(), new Map()];
  const devices = new Map();
  let merged = 0;
  for (const [key, { first, last }] of boxes.rows) {
    const lane = about.lanes[Math.floor(key / VIEWER_MAX_ROWS)];
    const begin = firstBeyond(boxes.reach, from, first, last);
    const end = firstBeyond(boxes.start, to, begin, last);
    for (let i = begin; i < end; i += 1) {
      const box = boxAt(boxes, i);
      const cut = Math.min(box.start + box.duration, to) - Math.max(box.start, from);
      if (cut <= 0 && box.duration > 0) continue;
      const part = box.duration > 0 ? (cut / box.duration) * box.busy : 0;
      if (box.merged) merged += 1;
      if (lane.side === "device") {
        addTo(classes, about.tones[box.tone], box.merged || 1, part, about.tones[box.tone]);
        (devices.get(deviceKey(lane)) ?? devices.set(deviceKey(lane), []).get(deviceKey(lane))).push([Math.max(box.start, from), Math.min(box.start + box.duration, to)]);
      }
      if (box.name >= 0) addTo(lane.side === "device" ? names : calls, about.names[box.name], 1, part, about.tones[box.tone]);
    }
  }
  const exactly = merged === 0;
  return {
    exact: exactly, by_name: byTime(names), by_class: byTime(classes), host: byTime(calls),
    devices: devicesOf(about).map(({ key, title, lanes }) => {
      const busy = exactly ? coveredTime(devices.get(key) ?? []) : null;
      return { title, busy, idle: busy === null ? null : to - from - busy, gaps: causesBetween(about, gaps, lanes, from, to) };
    }),
  };
}

const deviceKey = (lane) => `${lane.run}/${lane.device}`;

// Each device that has lanes: its heading and the indexes of its lanes.
function devicesOf(about) {
  const devices = new Map();
  about.lanes.forEach((lane, index) => {
    if (lane.side !== "device") return;
    const key = deviceKey(lane);
    if (!devices.has(key)) devices.set(key, { key, title: lane.group, lanes: [] });
    devices.get(key).lanes.push(index);
  });
  return [...devices.values()];
}

function addTo(sums, name, count, duration, tone) {
  const sum = sums.get(name) ?? { name, tone, count: 0, duration: 0 };
  sum.count += count;
  sum.duration += duration;
  sums.set(name, sum);
}

const byTime = (sums) => [...sums.values()].sort((a, b) => b.duration - a.duration || (a.name < b.name ? -1 : 1));

// Time that at least one of these stretches covers.
function coveredTime(stretches) {
  stretches.sort((a, b) => a[0] - b[0]);
  let [sum, reach] = [0, -Infinity];
  for (const [start, end] of stretches) {
    sum += Math.max(end - Math.max(start, reach), 0);
    reach = Math.max(reach, end);
  }
  return sum;
}

function causesBetween(about, gaps, lanes, from, to) {
  const causes = new Map();
  for (const lane of lanes) {
    const [first, last] = boxesBetween(gaps, lane, 0, from, to);
    for (let i = first; i < last; i += 1) {
      const cut = Math.min(gaps.start[i] + gaps.duration[i], to) - Math.max(gaps.start[i], from);
      const sum = causes.get(gaps.cause[i]) ?? { cause: gaps.cause[i], count: 0, duration: 0 };
      sum.count += 1;
      sum.duration += cut;
      causes.set(gaps.cause[i], sum);
    }
  }
  return [...causes.values()].sort((a, b) => b.duration - a.duration);
}
