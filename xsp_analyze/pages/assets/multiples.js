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
  const top = makeSvg("text", { x: SMALL_CHART.left, y: 13 }, `${shown(most, measure)} ${measure.unit}`);
  return make("figure", { class: "multiple" }, make("figcaption", { title: item.title }, cutText(item.title, SMALL_CHART.width)),
    makeSvg("svg", { viewBox: `0 0 ${SMALL_CHART.width} ${SMALL_CHART.height}`, role: lines.some((line) => line.link) ? "group" : "img", "aria-label": `${item.title}, ${measure.label.toLowerCase()}: ${told}` }, base, top, drawn, marks));
}

function multipleText(block, line, measure, batch, value) {
  return `${block.systems[line.system]}${batch ? `, batch size ${batch}` : ""}: ${shown(value, measure)} ${measure.unit}`;
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
