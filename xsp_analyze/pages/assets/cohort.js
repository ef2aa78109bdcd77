// What only pages over many traces draw: the first few by each measure, and a tree of what is alike.
Object.assign(DRAW, { tops: drawTops, dendrogram: drawDendrogram });

function drawTops(block) {
  return make("div", { class: "tops" }, block.items.map((item) => make("div", null, make("h3", null, item.title),
    make("ol", null, item.rows.map(([name, value]) => make("li", null, `${name} `, make("span", { class: "number" }, value)))))));
}

const LEAF_ROW = 22;
const LEAF_NAMES = 0.4; // most of the width that names may take
const DENDROGRAM_TICKS = 4;

// Each join is a bracket: its two parts at their heights and distances, and its own distance.
function drawDendrogram(block) {
  const largest = Math.max(...block.joins.map((join) => join.at), 0) || 1;
  const draw = (width) => {
    const left = Math.min(Math.max(...block.labels.map((l) => l.length)) * LETTER + 14, width * LEAF_NAMES);
    const room = width - left - 30;
    const height = block.labels.length * LEAF_ROW;
    const x = (distance) => left + (room * distance) / largest;
    const y = (row) => row * LEAF_ROW;
    const ticks = Array.from({ length: DENDROGRAM_TICKS + 1 }, (_, n) => (largest * n) / DENDROGRAM_TICKS).map((distance) => [
      makeSvg("line", { class: "axis", x1: x(distance), x2: x(distance), y1: 0, y2: height }),
      makeSvg("text", { x: x(distance), y: height + 14, "text-anchor": "middle" }, distance.toFixed(2)),
    ]);
    const names = block.labels.map((label, leaf) => makeSvg("text", { class: "ink", x: left - 8, y: y(leaf + 0.5) + 4, "text-anchor": "end" },
      makeSvg("title", null, label), cutText(label, left - 8)));
    const joins = block.joins.map(({ from: [[d1, h1], [d2, h2]], at }) => makeSvg("path", { class: "drawn-line", d: `M${x(d1)} ${y(h1)}H${x(at)}V${y(h2)}H${x(d2)}` },
      makeSvg("title", null, `Distance ${at.toFixed(3)}`)));
    return makeSvg("svg", { width, height: height + 22, role: "img", "aria-label": block.read }, ticks, names, joins);
  };
  return frameOf(block.title, draw, "");
}

// Small multiples: a chart a model, all alike; the measure is chosen for all at once.
Object.assign(DRAW, { multiples: drawMultiples });

const SMALL_CHART = { width: 230, height: 128, left: 8, right: 10, top: 20, bottom: 20 };

function drawMultiples(block) {
  const grid = make("div", { class: "multiples" });
  const buttons = block.measures.map((measure, n) => make("button", { type: "button", class: "choice", "aria-pressed": "false", onclick: () => show(n) }, measure.label));
  const colours = make("div", { class: "legend" }, block.systems.map((name, n) => make("span", null, make("i", { class: `t-g${n}` }), name)));

  function show(chosen) {
    buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(n === chosen)));
    const items = block.items.filter((item) => item.lines.some((line) => line.points[chosen].length));
    grid.replaceChildren(...items.map((item) => smallChart(block, item, chosen)));
  }

  show(0);
  return make("div", null, make("div", { class: "choices", role: "group", "aria-label": "Measure" }, buttons), colours, grid);
}

function smallChart(block, item, chosen) {
  const measure = block.measures[chosen];
  const lines = item.lines.filter((line) => line.points[chosen].length);
  const most = Math.max(...lines.flatMap((line) => line.points[chosen].map(([, value]) => value))) || 1;
  const batches = [...new Set(lines.flatMap((line) => line.points[chosen].map(([batch]) => batch ?? 0)))].sort((a, b) => a - b);
  const room = SMALL_CHART.width - SMALL_CHART.left - SMALL_CHART.right;
  const height = SMALL_CHART.height - SMALL_CHART.top - SMALL_CHART.bottom;
  const x = (batch) => SMALL_CHART.left + (batches.length > 1 ? (room * batches.indexOf(batch ?? 0)) / (batches.length - 1) : room / 2);
  const y = (value) => SMALL_CHART.top + height * (1 - value / most);
  const drawn = lines.map((line) => smallLine(block, line, chosen, { x, y, alone: batches.length < 2, room, count: lines.length, at: lines.indexOf(line) }));
  const marks = batches.length > 1 || batches[0] ? batches.map((batch) => makeSvg("text", { x: x(batch), y: SMALL_CHART.height - 5, "text-anchor": batch === batches[0] && batches.length > 1 ? "start" : batch === batches.at(-1) && batches.length > 1 ? "end" : "middle" }, batch ? (batch === batches[0] ? `batch ${batch}` : `${batch}`) : "-")) : [];
  const told = lines.map((line) => line.points[chosen].map(([batch, value]) => multipleText(block, line, measure, batch, value)).join("; ")).join(". ");
  const base = makeSvg("line", { class: "axis", x1: SMALL_CHART.left, x2: SMALL_CHART.width - SMALL_CHART.right, y1: y(0), y2: y(0) });
  const top = makeSvg("text", { x: SMALL_CHART.left, y: 13 }, `${numberText(most, measure)} ${measure.unit}`);
  return make("figure", { class: "multiple" }, make("figcaption", { title: item.title }, cutText(item.title, SMALL_CHART.width)),
    makeSvg("svg", { viewBox: `0 0 ${SMALL_CHART.width} ${SMALL_CHART.height}`, role: lines.some((line) => line.link) ? "group" : "img", "aria-label": `${item.title}, ${measure.label.toLowerCase()}: ${told}` }, base, top, drawn, marks));
}

function multipleText(block, line, measure, batch, value) {
  return `${block.systems[line.system]}${batch ? `, batch size ${batch}` : ""}: ${numberText(value, measure)} ${measure.unit}`;
}

const TARGET = 24; // pixels that a finger hits

// A line over batch sizes; where there is one alone, bars side by side. What can be hit leads to the report.
function smallLine(block, line, chosen, { x, y, alone, room, count, at }) {
  const measure = block.measures[chosen];
  const points = line.points[chosen];
  const hit = (point, shape) => {
    const text = makeSvg("title", null, multipleText(block, line, measure, ...point));
    return line.link ? makeSvg("a", { href: line.link, "aria-label": `Report of ${line.name}` }, text, shape) : makeSvg("g", null, text, shape);
  };
  if (alone) {
    const wide = Math.min(room / count, 46);
    const left = SMALL_CHART.left + (room - wide * count) / 2 + wide * at;
    return points.map((point) => [
      makeSvg("rect", { class: `f-g${line.system}`, x: left, width: Math.max(wide - 3, 2), y: y(point[1]), height: Math.max(y(0) - y(point[1]), 1) }),
      wide >= TARGET ? hit(point, makeSvg("rect", { class: "hit", x: left, width: wide, y: SMALL_CHART.top, height: y(0) - SMALL_CHART.top })) : null,
    ]);
  }
  return makeSvg("g", null, makeSvg("polyline", { class: `s-g${line.system}`, points: points.map(([batch, value]) => `${x(batch)},${y(value)}`).join(" ") }),
    points.map((point) => [makeSvg("circle", { class: `f-g${line.system}`, cx: x(point[0]), cy: y(point[1]), r: 3.5 }),
      hit(point, makeSvg("circle", { class: "hit", cx: x(point[0]), cy: y(point[1]), r: TARGET / 2 }))]));
}

// Many traces at a glance: a row each, with its report, what its step is made of, and the first finding.
Object.assign(DRAW, { glances: drawGlances });

const GLANCES_AT_FIRST = 100;

function drawGlances(block) {
  const body = make("ul", { class: "glances" });
  const tones = new Map(block.rows.flatMap((row) => (row.bar ? row.bar.parts.map((part) => [part.tone, part.label]) : [])));
  const idleLast = [...tones].sort(([one], [other]) => one.startsWith("c-idle") - other.startsWith("c-idle"));
  const colours = make("div", { class: "legend" }, idleLast.map(([tone, label]) => make("span", null, make("i", { class: tone }), label)));
  const more = make("button", { type: "button", onclick: () => show(block.rows.length) });
  function show(count) {
    body.replaceChildren(...block.rows.slice(0, count).map(glanceRow));
    more.textContent = `Show the other ${block.rows.length - count}`;
    more.hidden = count >= block.rows.length;
  }
  show(Math.min(GLANCES_AT_FIRST, block.rows.length));
  return make("div", null, colours, body, more);
}

function glanceRow(row) {
  const name = row.link ? make("a", { href: row.link }, row.name) : make("b", null, row.name);
  return make("li", null, make("div", { class: "glance-name" }, name, row.bar ? make("span", { class: "muted" }, `: ${row.bar.title}`) : null),
    row.bar ? glanceBar(row) : make("div", { class: "muted" }, "No time on a device to divide."),
    make("div", { class: "glance-finding" }, row.finding ? [row.finding.title, row.finding.gain ? make("span", { class: "muted" }, `: ${row.finding.gain}`) : null] : make("span", { class: "muted" }, "No finding.")));
}

function glanceBar({ name, bar }) {
  const share = (part) => (bar.total ? part.time / bar.total : 0);
  const text = (part) => `${part.label} ${time(part.time)}, ${percent(share(part))}`;
  return make("div", { class: "glance-bar", role: "img", "aria-label": `${name}: ${bar.parts.map(text).join("; ")}` },
    bar.parts.map((part) => make("span", { class: part.tone, style: { width: `${share(part) * 100}%` }, title: text(part) })));
}
