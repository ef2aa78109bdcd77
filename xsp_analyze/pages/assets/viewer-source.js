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
    if (!decoded.coarser.has(cell)) decoded.coarser.set(cell, coarsened(decoded, cell, about.tones.length));
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

  async function windowed(path, from, to, resolution, decode) {
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

  const quantised = (resolution) => (resolution < 1 ? 0 : 2 ** Math.floor(Math.log2(resolution)));

  async function search(text) {
    const answer = await get("search", { text });
    return { hits: answer.results, count: answer.count, complete: true };
  }

  return {
    about,
    span: async () => null, // what links to spans are tables, which only a report has
    boxes: (from, to, resolution) => windowed("boxes", from, to, quantised(resolution), decodedBoxes),
    overview: async () => decodedBoxes(await get("boxes", { from: about.begin, to: about.end, resolution: Math.ceil((about.end - about.begin) / 1000) })),
    flows: (from, to) => windowed("flows", from, to, null, decodedColumns),
    gaps: (from, to) => windowed("gaps", from, to, null, decodedBoxes),
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
