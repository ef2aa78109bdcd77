// Charts: horizontal bars, parts of a whole, stacked columns in order, lines.
const CHART_HEIGHT = 240;
const MARGIN = { left: 72, right: 8, top: 10, bottom: 26 };
const WIDEST_COLUMN = 46;
const BARS_AT_FIRST = 15;
const BAR_ROW = 23;
const LETTER = 6.6; // pixels, about

function legend(series) {
  return make("div", { class: "legend" }, series.map((s) => make("span", null, make("i", { class: `t-${s.tone}` }), s.name)));
}

const heading3 = (text) => (text ? make("h3", null, text) : null);

// A label for so many pixels: the middle is left out of one that is longer.
function cutText(text, width) {
  const room = Math.max(Math.floor(width / LETTER) - 1, 2);
  if (text.length * LETTER <= width) return text;
  return `${text.slice(0, Math.ceil(room / 2))}\u2026${text.slice(-Math.floor(room / 2))}`;
}


// The scale of a series: its own where it came with one, else that of times.
function scaleOf(series, largest) {
  return series.divisor ? { unit: series.unit, divisor: series.divisor, decimals: series.decimals } : timeScale(largest);
}

function drawBars(block) {
  const [series] = block.series;
  const largest = series.values.reduce((most, v) => Math.max(most, v ?? 0), 0);
  const scale = scaleOf(series, largest);
  let count = Math.min(block.labels.length, BARS_AT_FIRST);
  const texts = (i) => [withUnit(series.values[i], scale), block.shares ? (block.shares[i] === null ? UNKNOWN : percent(block.shares[i])) : ""];
  const draw = (width) => {
    const numbers = Math.max(...Array.from({ length: count }, (_, i) => texts(i).join("  ").length)) * LETTER + 12;
    const labels = Math.min(Math.max(...block.labels.slice(0, count).map((l) => l.length)) * LETTER + 12, width * 0.4);
    const room = Math.max(width - labels - numbers, 20);
    const rows = Array.from({ length: count }, (_, i) => {
      const y = i * BAR_ROW;
      const length = largest ? (room * Math.max(series.values[i] ?? 0, 0)) / largest : 0;
      return makeSvg("g", null, makeSvg("title", null, `${block.labels[i]}: ${exact(series.values[i], series.exact)}`),
        makeSvg("text", { class: "ink", x: 0, y: y + 15 }, cutText(block.labels[i], labels - 8)),
        makeSvg("rect", { class: `f-${series.tone ?? "layer"}`, x: labels, y: y + 3, width: Math.max(length, 1), height: BAR_ROW - 7, rx: 2 }),
        makeSvg("text", { class: "ink", x: width, y: y + 15, "text-anchor": "end" }, texts(i).filter(Boolean).join("  ")));
    });
    return makeSvg("svg", { width, height: count * BAR_ROW, role: "img", "aria-label": `${block.title ?? "Bars"}: ${block.labels.slice(0, 3).map((l, i) => `${l} ${texts(i)[0]}`).join(", ")}` }, rows);
  };
  const frame = frameOf(block.title ?? "Bars", draw, "");
  const more = block.labels.length > count
    ? make("p", { class: "text" }, make("button", { type: "button", onclick: (event) => { count = block.labels.length; event.target.remove(); frame.lookAt(0, 1); } }, `Show the other ${block.labels.length - count}`))
    : null;
  return make("div", { class: "hbars" }, heading3(block.title), frame, more);
}

const STACK_ROW = 34;
const DARK_TONES = new Set(["g1", "g3", "g13"]);

// Parts of a whole, a row each; a part's share stands in it where there is room.
function drawStack(block) {
  const title = block.title ?? "Parts of the whole";
  const rows = block.labels.map((label, row) => {
    const whole = block.series.reduce((sum, s) => sum + Math.max(s.values[row] ?? 0, 0), 0);
    const parts = block.series.map((s) => ({ series: s, value: s.values[row], share: whole ? Math.max(s.values[row] ?? 0, 0) / whole : 0 }));
    return { label, parts: parts.filter((part) => part.share > 0) };
  });
  const amount = (series, value) => (series.unit === "%" ? "" : `${series.divisor ? withUnit(value, series) : time(value)}, `);
  const text = ({ series, value, share }) => `${series.name}: ${amount(series, value)}${percent(share)}`;
  const draw = (width) => {
    const labels = Math.min(Math.max(...block.labels.map((l) => l.length)) * LETTER + 14, width * 0.4);
    const drawn = rows.map(({ label, parts }, row) => {
      let left = labels;
      const y = row * STACK_ROW + 4;
      const name = makeSvg("text", { class: "ink", x: 0, y: y + 17 }, makeSvg("title", null, label), cutText(label, labels - 8));
      const link = block.links?.[row];
      return makeSvg("g", null, link ? makeSvg("a", { href: link }, name) : name,
        parts.map((part) => {
          const wide = (width - labels) * part.share;
          const at = left;
          left += wide;
          const shade = ["rest", "idle"].includes(part.series.tone) ? "ink" : DARK_TONES.has(part.series.tone) ? "on-dark" : "on-tone";
          return makeSvg("g", null, makeSvg("title", null, text(part)),
            makeSvg("rect", { class: `f-${part.series.tone}`, x: at, y, width: Math.max(wide - 1, 0.5), height: STACK_ROW - 8 }),
            wide > 60 ? makeSvg("text", { class: shade, x: at + 7, y: y + 17 }, percent(part.share)) : null);
        }));
    });
    const read = rows.slice(0, 3).map(({ label, parts }) => `${label}: ${parts.map(text).join("; ")}`).join(". ");
    return makeSvg("svg", { width, height: rows.length * STACK_ROW, role: block.links?.some(Boolean) ? "group" : "img", "aria-label": `${title}. ${read}` }, drawn);
  };
  return make("div", { class: "text" }, heading3(block.title), legend(block.series), frameOf(title, draw, ""));
}

// Round steps for an axis: 1, 2 or 5 times a power of ten.
function ticks(largest) {
  const rough = largest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return Array.from({ length: Math.floor(largest / step) + 1 }, (_, i) => i * step);
}

function drawColumns(block) {
  const [, , , most] = block.series[0].spread ?? [];
  const totals = block.labels.map((_, i) => Math.max(block.series.reduce((sum, s) => sum + (s.values[i] ?? 0), 0), most?.[i] ?? 0));
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a column to read it.");
  const scale = scaleOf(block.series[0], Math.max(...totals, 1));
  const has = (i) => block.series.filter((s) => block.series.length === 1 || (s.values[i] ?? null) !== null); // a column may be of one series alone
  const tell = (i) => { caption.textContent = `${block.labels[i]}: ${has(i).map((s) => `${s.name} ${s.divisor ? withUnit(s.values[i], s) : time(s.values[i])}`).join(", ")}${spreadText(block.series[0], i)}`; };
  const title = block.title ?? "Columns, one a layer";
  const frame = frameOf(title, (width, view) => columnsSvg(block, { totals, scale, width, view, tell, title }), "x");
  return make("div", null, heading3(block.title), block.series.length > 1 ? legend(block.series) : null, frame, caption);
}

const spreadText = ({ spread, divisor, ...scale }, i) => (spread && spread[0][i] !== null
  ? `; over steps ${withUnit(spread[0][i], { divisor, ...scale })} to ${withUnit(spread[3][i], { divisor, ...scale })}, half of them ${withUnit(spread[1][i], { divisor, ...scale })} to ${withUnit(spread[2][i], { divisor, ...scale })}` : "");

// From the least to the most a thin line, from the first to the third quartile a thick one.
function whisker(spread, i, x, y) {
  const [least, first, third, most] = spread.map((values) => values[i]);
  if (least === null || most === null) return null;
  return [makeSvg("line", { class: "whisker", x1: x, x2: x, y1: y(least), y2: y(most) }), makeSvg("line", { class: "whisker thick", x1: x, x2: x, y1: y(first), y2: y(third) })];
}

function columnsSvg(block, { totals, scale, width, view, tell, title }) {
  const count = block.labels.length;
  const first = Math.floor(view.x[0] * count + 1e-9);
  const last = Math.max(Math.ceil(view.x[1] * count - 1e-9), first + 1);
  const seen = Array.from({ length: last - first }, (_, i) => first + i);
  const largest = Math.max(...seen.map((i) => totals[i]), 0) || 1;
  const room = width - MARGIN.left - MARGIN.right;
  const pitch = Math.min(room / seen.length, WIDEST_COLUMN);
  const height = CHART_HEIGHT - MARGIN.top - MARGIN.bottom;
  const y = (value) => MARGIN.top + height * (1 - value / largest);
  const end = MARGIN.left + pitch * seen.length;
  const lines = ticks(largest).map((value) => [
    makeSvg("line", { class: "axis", x1: MARGIN.left, x2: end, y1: y(value), y2: y(value) }),
    makeSvg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, axisMark(value, scale)),
  ]);
  const columns = seen.map((i, place) => {
    let below = 0;
    const x = MARGIN.left + place * pitch;
    const parts = block.series.map((s) => {
      const value = s.values[i] ?? 0;
      const part = makeSvg("rect", { class: `f-${s.tone}`, x, width: Math.max(pitch - (pitch > 5 ? 1 : 0.3), 0.8), y: y(below + value), height: (height * value) / largest });
      below += value;
      return part;
    });
    const spread = block.series[0].spread && pitch > 4 ? whisker(block.series[0].spread, i, x + pitch / 2, y) : null;
    const group = makeSvg("g", null, parts, spread, makeSvg("rect", { class: "hit", x, width: pitch, y: MARGIN.top, height }, makeSvg("title", null, block.labels[i])));
    group.addEventListener("mouseenter", () => { group.classList.add("on"); tell(i); });
    group.addEventListener("mouseleave", () => group.classList.remove("on"));
    return group;
  });
  const every = Math.max(Math.ceil(60 / pitch), 1);
  const marks = seen.flatMap((i, place) => (place % every ? [] : [
    makeSvg("text", { x: MARGIN.left + (place + 0.5) * pitch, y: CHART_HEIGHT - 8, "text-anchor": "middle" }, block.labels[i].split("  ")[0]),
  ]));
  return makeSvg("svg", { width, height: CHART_HEIGHT, role: "img", "aria-label": title }, lines, columns, marks);
}

// A line over an axis of powers of two, such as batch sizes.
function drawLine(block) {
  const largest = Math.max(...block.points.map(([, value]) => value)) || 1;
  const logs = block.points.map(([at]) => Math.log2(at));
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  const marks = ticks(largest).map((value) => [value, axisMark(value, block)]);
  const left = Math.max(...marks.map(([, text]) => text.length * LETTER + 14), MARGIN.left);
  const draw = (width) => {
    const room = width - left - MARGIN.right - 20;
    const height = CHART_HEIGHT - MARGIN.top - MARGIN.bottom - 14;
    const x = (at) => left + 10 + (high > low ? (room * (Math.log2(at) - low)) / (high - low) : room / 2);
    const y = (value) => MARGIN.top + height * (1 - value / largest);
    return makeSvg("svg", { width, height: CHART_HEIGHT, role: "img", "aria-label": `${block.title} over ${block.x}` },
      marks.map(([value, text]) => [
        makeSvg("line", { class: "axis", x1: left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
        makeSvg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text),
      ]),
      makeSvg("polyline", { class: "drawn-line", points: block.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }),
      block.points.map(([a, b]) => [
        makeSvg("circle", { class: "f-layer", cx: x(a), cy: y(b), r: 4 }, makeSvg("title", null, `${block.x} ${a}: ${withUnit(b, block)}`)),
        makeSvg("text", { x: x(a), y: CHART_HEIGHT - 22, "text-anchor": "middle" }, `${a}`),
      ]),
      makeSvg("text", { x: left + room / 2, y: CHART_HEIGHT - 6, "text-anchor": "middle" }, block.x));
  };
  return make("div", null, heading3(`${block.title} over ${block.x}`), frameOf(`${block.title} over ${block.x}`, draw, ""));
}
