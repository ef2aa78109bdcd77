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
      const busy = exactly ? covered(devices.get(key) ?? []) : null;
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
function covered(stretches) {
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
