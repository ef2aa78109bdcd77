// Ranks: a heat map of rank by step, rates over sizes, and what is folded away under a line.
const HEAT = { left: 66, bottom: 26, row: 24, least: 5, tallest: 440, widest: 96 };
const FAINTEST = 0.08; // of the colour, so that the least still is a cell
const NARROWEST = 0.1; // of the largest value: what colours span at least, so that a few per cent differ little
const FEW_COLUMNS = 12;
const RATES = { left: 96, right: 16, top: 10, bottom: 40, height: 280 };

function drawFoldedAway(block) {
  return make("details", { class: "folded" }, make("summary", null, block.summary), block.blocks.map((inside) => DRAW[inside.type](inside)));
}

// Next to each other where each has room; many columns take the whole width.
function drawBeside(block) {
  const few = block.blocks.every((inside) => (inside.steps ?? inside.labels ?? []).length <= FEW_COLUMNS);
  return make("div", { class: few ? "beside" : null }, block.blocks.map((inside) => DRAW[inside.type](inside)));
}

const medianOf = (values) => {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : null;
};

function bytesText(v) {
  const power = Math.min(Math.floor(Math.log2(Math.max(v, 1)) / 10), 4);
  return `${power ? (v / 1024 ** power).toPrecision(3) : v} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// What each stage of a pipeline does over one step: a row a rank, a box a micro-batch and direction.
function drawStages(block) {
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a box to read it.");
  const row = 22;
  const svg = (width) => {
    const x = (at) => HEAT.left + 44 + ((width - HEAT.left - 48) * at) / block.window_ns;
    const rows = block.rows.map((each, i) => makeSvg("g", null, makeSvg("text", { class: "ink", x: 0, y: i * row + 15 }, each.name),
      each.units.map(([start, duration, kind, batch, text]) => {
        const wide = Math.max(x(start + duration) - x(start) - 0.5, 0.5);
        const label = wide > 14 ? makeSvg("text", { class: "heat-label", x: x(start) + 3, y: i * row + 15 }, batch) : null;
        return makeSvg("g", { onpointerover: () => { caption.textContent = text; } }, makeSvg("title", null, text),
          makeSvg("rect", { class: `stage-${kind}`, x: x(start), y: i * row + 2, width: wide, height: row - 4 }), label);
      })));
    return makeSvg("svg", { width, height: block.rows.length * row + 20, role: "img", "aria-label": block.title }, rows,
      makeSvg("text", { x: x(0), y: block.rows.length * row + 14 }, "0"), makeSvg("text", { x: x(block.window_ns), y: block.rows.length * row + 14, "text-anchor": "end" }, time(block.window_ns)));
  };
  const legend = ["forward", "backward", "weights"].filter((kind) => block.rows.some((each) => each.units.some((unit) => unit[2] === kind)));
  return make("div", { class: "stages" }, heading3(block.title),
    make("p", { class: "means" }, legend.map((kind) => make("span", null, make("i", { class: `stage-${kind}` }), ` ${kind === "weights" ? "backward of weights" : kind}  `)), block.note),
    frameOf(block.title, svg, ""), caption);
}

function drawHeatMap(block) {
  const [rows, columns] = [block.ranks.length, block.steps.length];
  const state = { measure: 0, at: null };
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a cell to read it; arrows move from cell to cell.");
  const scaleNote = make("p", { class: "heat-scale" });
  const switches = block.measures.map((measure, i) => make("button", { type: "button", "aria-pressed": "false", onclick: () => show(i) }, measure.name));
  const frame = frameOf(block.title, svg, "");
  const field = make("div", { class: "heat", tabindex: "0", role: "group", "aria-label": `${block.title}: ${rows} ranks, ${columns === 1 ? block.steps[0] : `${columns} columns`}. Arrows move from cell to cell.` }, frame);

  const values = () => block.measures[state.measure].values;
  const ends = (all) => all.reduce(([least, most], v) => (v === null ? [least, most] : [Math.min(least, v), Math.max(most, v)]), [Infinity, 0]);
  const value = (row, column) => values()[row * columns + column];
  const amount = (v) => (block.measures[state.measure].unit === "byte" ? bytesText(v) : time(v));

  // What the faintest and the strongest colour stand for.
  function range() {
    const [least, most] = ends(values());
    const room = Math.max((NARROWEST * most - (most - least)) / 2, 0);
    return [Math.max(least - room, 0), most + room];
  }

  const opacity = (v, [least, largest]) => (largest > least ? FAINTEST + (1 - FAINTEST) * ((v - least) / (largest - least)) : FAINTEST);

  function cellSentence(row, column) {
    const here = value(row, column);
    const median = medianOf(block.ranks.map((_, other) => value(other, column)));
    const share = here === null || !median ? "" : `, ${percent(Math.abs(here / median - 1))} ${here < median ? "under" : "over"} the median of ranks`;
    const where = block.names ? block.names[row * columns + column] : `${block.ranks[row]}, ${block.steps[column]}`;
    return `${where}: ${block.measures[state.measure].name.toLowerCase()} ${here === null ? "not known" : amount(here)}${share}`;
  }

  function svg(width) {
    const tall = Math.min(Math.max(HEAT.tallest / rows, HEAT.least), HEAT.row);
    const wide = Math.min((width - HEAT.left) / columns, HEAT.widest);
    const bounds = range();
    const { colour } = block.measures[state.measure];
    const every = Math.max(Math.ceil(13 / tall), 1);
    const names = block.ranks.flatMap((name, row) => (row % every ? [] : [makeSvg("text", { class: "ink", x: 0, y: (row + 0.5) * tall + 4 }, name)]));
    const cells = values().map((v, i) => cell(v, Math.floor(i / columns), i % columns, { tall, wide, bounds, colour }));
    const marks = Math.max(Math.ceil(74 / wide), 1);
    const steps = block.steps.flatMap((name, column) => (column % marks || (column && HEAT.left + column * wide + 56 > width) ? [] : [makeSvg("text", { x: HEAT.left + column * wide, y: rows * tall + 18 }, name)]));
    return makeSvg("svg", { width, height: rows * tall + HEAT.bottom, role: "img", "aria-label": `${block.title}, ${block.measures[state.measure].name}` }, cells, names, steps);
  }

  function cell(v, row, column, { tall, wide, bounds, colour }) {
    const on = state.at && state.at[0] === row && state.at[1] === column;
    const box = { x: HEAT.left + column * wide, y: row * tall, width: Math.max(wide - (wide > 4 ? 1 : 0), 0.5), height: Math.max(tall - (tall > 6 ? 1 : 0), 1) };
    const rect = v === null ? makeSvg("rect", { ...box, class: "heat-cell unknown" }) : makeSvg("rect", { ...box, class: `heat-cell heat-${colour}`, "fill-opacity": opacity(v, bounds).toFixed(3) });
    const label = v !== null && wide >= 70 && tall >= 18 ? makeSvg("text", { class: "heat-label", x: box.x + 6, y: box.y + tall / 2 + 4 }, amount(v)) : null;
    return makeSvg("g", { class: on ? "heat-at" : null, "data-row": row, "data-column": column, "data-value": v }, makeSvg("title", null, cellSentence(row, column)), rect, label);
  }

  function mark() {
    field.querySelectorAll(".heat-at").forEach((other) => other.classList.remove("heat-at"));
    if (!state.at) return;
    field.querySelector(`[data-row="${state.at[0]}"][data-column="${state.at[1]}"]`)?.classList.add("heat-at");
    caption.textContent = cellSentence(...state.at);
  }

  function show(measure) {
    state.measure = measure;
    switches.forEach((button, i) => button.setAttribute("aria-pressed", String(i === measure)));
    const [least, largest] = range();
    const { colour } = block.measures[measure];
    const shades = [0, 0.25, 0.5, 0.75, 1].map((part) => make("i", { class: `heat-${colour}`, style: { opacity: String(FAINTEST + (1 - FAINTEST) * part) } }));
    scaleNote.replaceChildren(`${amount(least)} `, make("span", { class: "shades", "aria-hidden": "true" }, shades), ` ${amount(largest)}`);
    frame.lookAt(0, 1);
    mark();
  }

  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
  const clamp = (at, count) => Math.min(Math.max(at, 0), count - 1);
  field.addEventListener("keydown", (event) => {
    const by = event.target === field ? moves[event.key] : null;
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    state.at = state.at ? [clamp(state.at[0] + by[0], rows), clamp(state.at[1] + by[1], columns)] : [0, 0];
    mark();
  });
  field.addEventListener("pointerover", (event) => {
    const found = event.target.closest?.("[data-row]");
    if (!found) return;
    state.at = [Number(found.dataset.row), Number(found.dataset.column)];
    mark();
  });
  const differs = ({ values: all }) => { const [least, most] = ends(all); return most - least > NARROWEST * most; };
  show(Math.max(block.measures.findIndex(differs), 0));
  return make("div", { class: "heat-map" }, heading3(block.title),
    make("div", { class: "heat-switches", role: "group", "aria-label": "What the colours show" }, switches),
    scaleNote, field, caption, block.note ? make("p", { class: "means" }, block.note) : null);
}

function drawBandwidth(block) {
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a dot to read it.");
  const spanOf = (marks) => [Math.log(marks[0].at), Math.log(marks[marks.length - 1].at)];
  const [sizes, rates] = [spanOf(block.sizes), spanOf(block.rates)];
  const share = ([low, high], at) => (high > low ? (Math.log(at) - low) / (high - low) : 0.5);
  const tell = (point) => () => { caption.textContent = point.text; };
  const draw = (width) => {
    const x = (at) => RATES.left + (width - RATES.left - RATES.right) * share(sizes, at);
    const y = (at) => RATES.top + (RATES.height - RATES.top - RATES.bottom) * (1 - share(rates, at));
    const end = y(block.rates[0].at);
    const few = Math.max(Math.ceil((block.sizes.length * 76) / (width - RATES.left)), 1);
    const lines = block.rates.map(({ at, text }) => [
      makeSvg("line", { class: "axis", x1: RATES.left, x2: width - RATES.right, y1: y(at), y2: y(at) }),
      makeSvg("text", { x: RATES.left - 8, y: y(at) + 4, "text-anchor": "end" }, text)]);
    const last = block.sizes.length - 1;
    const has = (at, i) => i === last || (i % few === 0 && x(block.sizes[last].at) - x(at) > 110);
    const marks = block.sizes.flatMap(({ at, text }, i) => (!has(at, i) ? [] : [makeSvg("text", { x: x(at), y: end + 18, "text-anchor": !i ? "start" : i === last ? "end" : "middle" }, text)]));
    const curves = block.series.map((series, i) => [
      makeSvg("polyline", { class: `rate-line f-r${i}`, points: series.points.map((p) => `${x(p.bytes)},${y(p.rate)}`).join(" ") }),
      series.points.map((p) => makeSvg("g", { class: "rate", tabindex: "0", role: "img", "aria-label": p.text, onfocus: tell(p), onpointerenter: tell(p) },
        makeSvg("title", null, p.text), makeSvg("circle", { class: "hit", cx: x(p.bytes), cy: y(p.rate), r: 12 }),
        makeSvg("circle", { class: `f-r${i}${p.matched ? "" : " hollow"}`, cx: x(p.bytes), cy: y(p.rate), r: 5 })))]);
    return makeSvg("svg", { width, height: RATES.height, role: "group", "aria-label": block.title }, lines, marks, curves,
      makeSvg("text", { x: RATES.left, y: RATES.height - 4 }, "size of a message"));
  };
  const legendOf = make("div", { class: "legend" }, block.series.map((s, i) => make("span", null, make("i", { class: `r-${i}` }), s.name)));
  const hollow = block.series.some((s) => s.points.some((p) => !p.matched)) ? make("p", { class: "means" }, "Hollow: not matched between ranks, so that waiting is in its time.") : null;
  return make("div", { class: "bandwidth" }, heading3(block.title), legendOf, frameOf(block.title, draw, ""), caption, hollow, block.note ? make("p", { class: "means" }, block.note) : null);
}

Object.assign(DRAW, { stages: drawStages, folded_away: drawFoldedAway, beside: drawBeside, heat_map: drawHeatMap, bandwidth: drawBandwidth });
