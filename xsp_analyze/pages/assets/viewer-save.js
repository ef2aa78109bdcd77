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
