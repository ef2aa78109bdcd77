// What the viewer says in words: the box that was chosen, the statistics of a range, and the keys.
const STATISTICS_ROWS = 12; // at first, of names
const UNTOLD = 0.001; // of idle time: less without a cause is rounding

const VIEWER_HELP = [
  ["W S, + \u2212, Ctrl and the wheel, pinch", "zoom in and out; the wheel alone scrolls"],
  ["A D, drag, Shift and the wheel", "move in time"],
  ["arrows", "from box to box: along a row, to the caller, to what it calls, to the next lane"],
  ["click, tap", "choose a box: its details, and arrows from a call to what it launched"],
  ["double click, Enter, F", "zoom to the box"],
  ["Shift and drag, drag on the axis, Shift and \u2190 \u2192", "select a range of time: its statistics"],
  ["M", "the statistics of the chosen box's time, or of what is in view"],
  ["[ ]", "previous and next step"],
  ["/ then Enter, N, Shift and N", "search; next and previous of what was found"],
  ["0, Home", "the whole run; the step of the beginning"],
  ["Escape", "let go of range, box and search; then back to the beginning"],
];

function helpPopover() {
  const node = make("div", { class: "viewer-help", hidden: true, role: "region", "aria-label": "Keys and pointers of the timeline" },
    make("dl", null, VIEWER_HELP.map(([keys, text]) => [make("dt", null, keys), make("dd", null, text)])),
    make("p", null, "A box with a pale top stands for several calls too short to draw one by one: it is filled as high as they are busy. Zoom in to see them apart."));
  const button = make("button", { type: "button", "aria-expanded": "false", title: "Keys and pointers (?)", onclick: () => toggle() }, "Help");
  function toggle(open = node.hidden) {
    node.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  }
  return { node, button, toggle };
}

// While nothing is chosen.
const restText = () => make("div", { class: "muted" }, "Point at a box for its name and time, click it for its details and launches, double click to zoom to it. Shift and drag selects a range for its statistics; ", make("b", null, "?"), " lists the keys.");

// The colours that are drawn: classes of device work by time, causes of idle time, then levels of the host.
function viewerLegend({ about, overviewBoxes, gaps, colours }) {
  const times = new Float64Array(about.tones.length);
  for (let i = 0; i < overviewBoxes.count; i += 1) times[overviewBoxes.tone[i]] += overviewBoxes.duration[i] || 1;
  const host = new Set(VIEWER_HOST_TONES);
  const present = about.tones.map((tone, i) => ({ tone, time: times[i], colour: colours.tones[i], text: toneText(tone) })).filter((entry) => entry.time > 0);
  const device = present.filter(({ tone }) => !host.has(tone)).sort((a, b) => b.time - a.time);
  const causes = new Set(gaps.cause);
  const idle = about.causes.flatMap(({ text }, i) => (causes.has(i) ? [{ text: `idle: ${text}`, colour: colours.causes[i] }] : []));
  return [...device, ...idle, ...present.filter(({ tone }) => host.has(tone))].map(({ text, colour }) => make("span", null, make("i", { style: { background: colour } }), text));
}

// One sentence about a box, for pointers and screen readers.
function boxSentence(viewer, box) {
  const { about } = viewer;
  if (box.gap) return `Idle, ${time(box.duration)}: ${about.causes[box.cause].text}`;
  if (box.merged) return `${callsOf(viewer, box)} in ${time(box.duration)}, ${percent(box.duration ? Math.min(box.busy / box.duration, 1) : 1)} busy`;
  return `${about.names[box.name]}, ${time(box.duration)}`;
}

const plural = (number, noun) => countOf(number, noun, `${noun}s`);
const callsOf = (viewer, box) => (viewer.about.lanes[box.lane].side === "device" ? `${count(box.merged)} kernels or copies` : `${count(box.merged)} calls`);

function boxDetails(viewer, box) {
  const { about } = viewer;
  const lane = about.lanes[box.lane];
  const where = `${lane.title}, ${lane.group}`;
  const when = make("span", { title: exact(box.start, "ns") }, `from ${exactTime(box.start)} on`);
  const tools = make("div", { class: "tools" },
    make("button", { type: "button", onclick: () => viewer.lookAt(box) }, "Zoom to it"),
    make("button", { type: "button", onclick: () => viewer.selectRange(box.start, box.start + Math.max(box.duration, 1), true) }, "Statistics of its time"),
    box.name >= 0 ? make("button", { type: "button", onclick: () => viewer.search.find(about.names[box.name]) }, "Find all of this name") : null,
    make("button", { type: "button", onclick: () => viewer.select(null) }, "Close"));
  if (box.gap) return [make("div", { class: "what" }, make("b", null, "Idle device")), make("div", null, `${time(box.duration)}, `, when, `; ${where}. Cause: ${about.causes[box.cause].text}.`), tools];
  if (box.merged) {
    const share = box.duration ? Math.min(box.busy / box.duration, 1) : 1;
    return [
      make("div", { class: "what" }, make("b", null, `${callsOf(viewer, box)}, drawn as one`)),
      make("div", null, make("span", { title: exact(box.busy, "ns") }, time(box.busy)), ` in ${time(box.duration)}, ${percent(share)} busy, `, when, `; ${where}. Most of it is ${toneText(about.tones[box.tone])}.`),
      viewer.boxes.resolution > 0 && about.left_out ? make("div", { class: "muted" }, about.left_out) : null, tools];
  }
  const name = about.names[box.name];
  const layer = box.layer >= 0 ? about.names[box.layer] : null;
  const link = lane.side === "device" && document.getElementById("kernels") ? make("a", { href: linkTo("kernels", { kernel: name }) }, "In the table of kernels") : null;
  if (link) tools.prepend(link);
  return [
    make("div", { class: "what" }, make("i", { class: "viewer-swatch", style: { background: viewer.colours.tones[box.tone] } }), make("b", { title: name }, name)),
    make("div", null, make("span", { title: exact(box.duration, "ns") }, time(box.duration)), `, ${toneText(about.tones[box.tone])}, `, when, `; ${where}`,
      layer ? ["; in layer ", document.getElementById("layers") ? make("a", { href: linkTo("layers", { layer }) }, layer) : layer] : lane.side === "device" ? "; in no layer" : "", stepText(viewer, box), "."),
    launchText(viewer, box), tools];
}

const VIEWER_HOST_TONES = ["model", "layer", "operator", "library", "runtime"];
const toneText = (tone) => ({ model: "step or range", library: "library call", runtime: "runtime call" }[tone] ?? tone.replaceAll("-", " "));

function stepText(viewer, box) {
  const step = viewer.steps.find(({ begin, end }) => box.start >= begin && box.start < end);
  return step ? `; in step ${step.number}` : "";
}

// The launches that the arrows show, in words, each with a button that goes to the other end.
function launchText(viewer, box) {
  if (!viewer.arrows.length) return null;
  const [first] = viewer.arrows;
  if (first.toLane === box.lane && first.toTime === box.start) {
    return make("div", null, `Launched ${time(Math.max(first.toTime - first.fromTime, 0))} before. `, make("button", { type: "button", onclick: () => viewer.goTo(first.fromLane, first.fromTime) }, "Go to its launch"));
  }
  const last = viewer.arrows.reduce((a, b) => (b.toTime > a.toTime ? b : a));
  return make("div", null, `${plural(viewer.arrows.length, "piece")} of device work launched in it, the first ${time(Math.max(first.toTime - first.fromTime, 0))} after its launch call. `,
    make("button", { type: "button", onclick: () => viewer.goTo(first.toLane, first.toTime) }, "Go to the first"), " ",
    viewer.arrows.length > 1 ? make("button", { type: "button", onclick: () => viewer.goTo(last.toLane, last.toTime) }, "Go to the last") : null);
}

// Statistics of the range: devices with their gaps, then classes, then names.
function statisticsPanel(viewer, [from, to], answer) {
  const length = to - from;
  const { about } = viewer;
  const rows = (entries, limit, onHost) => {
    const body = make("tbody");
    const more = make("button", { type: "button", onclick: () => fillRows(entries.length) }, `Show all ${count(entries.length)}`);
    const fillRows = (most) => { body.replaceChildren(...entries.slice(0, most).map((entry) => statisticsRow(viewer, entry, length, onHost))); more.hidden = most >= entries.length; };
    fillRows(limit);
    return [make("table", null, make("thead", null, make("tr", null, ["name", "count", "time", "of the range"].map((text, i) => make("th", { class: i ? "n" : null, scope: "col" }, text)))), body), more];
  };
  const part = (title, entries, limit, onHost = false) => (entries?.length ? make("div", null, make("h4", null, title), make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, rows(entries, limit, onHost))) : null);
  return [
    make("div", { class: "panel-head" },
      make("h3", { title: exact(length, "ns") }, `${time(length)}, from ${exactTime(Math.round(from))} to ${exactTime(Math.round(to))}`),
      make("div", { class: "tools" },
        make("button", { type: "button", onclick: () => viewer.show(from, to) }, "Zoom to it"),
        make("button", { type: "button", onclick: () => viewer.selectRange(null) }, "Close"))),
    answer.exact ? null : make("p", { class: "means" }, "Here the page holds merged boxes: times of classes hold, those of names are of the calls that stand alone, and busy time is not known.", about.left_out ? ` ${about.left_out}` : ""),
    make("ul", { class: "plain-list viewer-devices" }, answer.devices.map((device) => make("li", null, make("b", null, device.title), `: ${deviceText(viewer, device, length)}`))),
    make("div", { class: "viewer-columns" }, part("Device work by class", answer.by_class.map((entry) => ({ ...entry, name: toneText(entry.tone) })), 20),
      part("Device work by name", answer.by_name, STATISTICS_ROWS), part("Host calls by name, nested ones each", answer.host, STATISTICS_ROWS, true)),
    answer.by_class.length || answer.host?.length ? null : make("p", { class: "missing" }, "Nothing ran in this range."),
  ];
}

function deviceText(viewer, { busy, idle, gaps }, length) {
  const share = (value) => `${time(value)}, ${percent(length ? value / length : 0)}`;
  const causes = (gaps ?? []).filter(({ duration }) => duration > 0).map(({ cause, duration }) => `${viewer.about.causes[cause].text} ${time(duration)}`);
  const rest = idle === null ? 0 : idle - (gaps ?? []).reduce((sum, { duration }) => sum + duration, 0);
  if (rest > idle * UNTOLD) causes.push(`no cause told for ${time(rest)}`);
  return `${busy === null ? "busy time not known here" : `busy ${share(busy)}; idle ${share(idle)}`}${causes.length ? ` (${causes.join(", ")})` : ""}`;
}

function statisticsRow(viewer, { name, tone, count: calls, duration }, length, onHost) {
  const index = viewer.about.tones.indexOf(tone);
  return make("tr", null,
    make("td", { class: "name", title: name }, make("i", { class: "viewer-swatch", style: { background: viewer.colours.tones[index] ?? "" } }), onHost ? name : bare(name)),
    make("td", { class: "n" }, count(calls)), make("td", { class: "n", title: exact(duration, "ns"), "data-ns": duration }, time(duration)),
    make("td", { class: "n" }, percent(length ? duration / length : 0)));
}

// Search in the viewer: how many spans have the text in their name, and which one is looked at.
function viewerSearch(viewer) {
  const input = make("input", { type: "search", placeholder: "Search names", "aria-label": "Search the timeline" });
  const status = make("span", { class: "viewer-hits", role: "status" });
  const previous = make("button", { type: "button", class: "viewer-square", "aria-label": "Previous found", title: "Previous found (Shift+N)", disabled: true, onclick: () => turn(-1) }, "\u2039");
  const next = make("button", { type: "button", class: "viewer-square", "aria-label": "Next found", title: "Next found (N)", disabled: true, onclick: () => turn(1) }, "\u203a");
  const state = { text: "", at: -1, count: 0, complete: true };
  let asked = 0;

  // Searches for the text; `go` looks at the first one from the beginning of the view on.
  async function find(text, go = true) {
    const number = ++asked;
    input.value = text;
    state.text = text.trim();
    state.at = -1;
    viewer.matches = state.text ? matchingNames(viewer.about.names, state.text) : null;
    viewer.hits = [];
    if (!state.text) { finish(0, true); return; }
    status.textContent = "Searching";
    const { hits, count, complete } = await viewer.source.search(state.text);
    if (number !== asked) return;
    viewer.hits = hits;
    finish(count, complete);
    if (go && hits.length) turn(1);
  }

  function finish(count, complete) {
    Object.assign(state, { count, complete });
    previous.disabled = next.disabled = viewer.hits.length === 0;
    tell();
    viewer.change();
  }

  function tell() {
    const part = state.complete ? "" : " of the calls that stand alone";
    status.textContent = !state.text ? "" : state.count === 0 ? `None found${part}` : state.at < 0 ? `${count(state.count)} found${part}` : `${count(state.at + 1)} of ${count(state.count)}${part}`;
    Object.assign(viewer.node.dataset, { hits: state.count, hit: state.at });
  }

  function turn(by) {
    const { hits } = viewer;
    if (!hits.length) return;
    if (state.at < 0) {
      const after = hits.findIndex((hit) => hit.start + hit.duration >= (viewer.selected?.start ?? viewer.view.from));
      state.at = by > 0 ? Math.max(after, 0) : (after <= 0 ? hits.length : after) - 1;
    } else state.at = (state.at + by + hits.length) % hits.length;
    const hit = hits[state.at];
    viewer.reveal(hit);
    viewer.select({ merged: 0, busy: hit.duration, tone: -1, layer: -1, ...hit }, { tell: true });
    tell();
  }

  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => find(input.value, false), 150);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.key === "Escape" && input.value) { event.preventDefault(); find(""); return; }
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(waiting);
    if (input.value.trim() !== state.text) await find(input.value, false);
    turn(event.shiftKey ? -1 : 1);
  });
  return { node: make("div", { class: "viewer-search", role: "search" }, input, previous, next, status), find, turn, focus: () => { input.focus(); input.select(); }, state };
}

// What is in view as a file that Perfetto opens: Chrome's trace event format, in microseconds, with counters and launches.
function chromeTrace(about, boxes, flows, counters, from, to) {
  const events = [];
  const groups = new Map();
  const microseconds = (ns) => ns / 1000;
  const inView = (at) => at >= from && at <= to;
  about.lanes.forEach(({ group, title }, tid) => {
    if (!groups.has(group)) {
      groups.set(group, groups.size + 1);
      events.push({ ph: "M", pid: groups.get(group), name: "process_name", args: { name: group } });
    }
    events.push({ ph: "M", pid: groups.get(group), tid, name: "thread_name", args: { name: title } });
  });
  const pidOf = (lane) => groups.get(about.lanes[lane].group);
  for (const [key, { first, last }] of boxes.rows) {
    const lane = Math.floor(key / VIEWER_MAX_ROWS);
    const begin = firstBeyond(boxes.reach, from, first, last);
    const end = firstBeyond(boxes.start, to, begin, last);
    for (let i = begin; i < end; i += 1) events.push(completeEvent(about, boxAt(boxes, i), pidOf(lane), microseconds));
  }
  for (let i = 0; i < (flows?.count ?? 0); i += 1) {
    if (!inView(flows.from_time[i]) || !inView(flows.to_time[i])) continue;
    const shared = { name: "launch", cat: "launch", id: i + 1 };
    events.push({ ph: "s", ...shared, pid: pidOf(flows.from_lane[i]), tid: flows.from_lane[i], ts: microseconds(flows.from_time[i]) });
    events.push({ ph: "f", bp: "e", ...shared, pid: pidOf(flows.to_lane[i]), tid: flows.to_lane[i], ts: microseconds(flows.to_time[i]) });
  }
  for (const [lane, { times, values, unit }] of counters ?? []) {
    values.forEach((value, i) => {
      if (value !== null && inView(times[i])) events.push({ ph: "C", pid: pidOf(lane), name: about.lanes[lane].title, ts: microseconds(times[i]), args: { [unit || "value"]: value } });
    });
  }
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}

function completeEvent(about, box, pid, microseconds) {
  const layer = box.layer >= 0 ? { layer: about.names[box.layer] } : {};
  const merged = box.merged ? { merged: box.merged, busy_us: microseconds(box.busy) } : {};
  return {
    ph: "X", pid, tid: box.lane, cat: about.tones[box.tone], name: box.name >= 0 ? about.names[box.name] : `${box.merged} calls, drawn as one`,
    ts: microseconds(box.start), dur: microseconds(box.duration), args: { ...layer, ...merged },
  };
}

async function saveForPerfetto(viewer) {
  const { from, to } = viewer.view;
  const { source, about } = viewer;
  const [boxes, flows] = await Promise.all([source.boxes(from, to, 0), source.flows(from, to)]);
  const title = fileName(about.title ?? data.title ?? "trace");
  saveFile(`${title}-timeline.json`, "application/json", chromeTrace(about, boxes, flows, viewer.counters, from, to));
}
