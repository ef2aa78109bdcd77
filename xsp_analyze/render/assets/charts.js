// Charts: horizontal bars, parts of a whole, and stacked columns in order.
const CHART_HEIGHT = 240;
const MARGIN = { left: 64, right: 8, top: 10, bottom: 26 };
const LEAST_COLUMN = 3;
const WIDEST_COLUMN = 46;
const BARS_AT_FIRST = 15;

function legend(series) {
  return make("div", { class: "legend" }, series.map((s) => make("span", null, make("i", { class: `t-${s.tone}` }), s.name)));
}

function drawBars(block) {
  const [series] = block.series;
  const largest = series.values.reduce((most, v) => Math.max(most, v ?? 0), 0);
  const scale = timeScale(largest);
  const box = make("div", { class: "hbars" });
  const row = (label, index) => [
    make("div", { class: "label", title: label }, label),
    make("div", { class: "track" }, make("div", { class: "fill", style: { width: `${largest ? (100 * Math.max(series.values[index] ?? 0, 0)) / largest : 0}%` } })),
    make("div", { class: "number", title: exact(series.values[index], series.exact) }, `${shown(series.values[index], scale)} ${scale.unit}`),
    make("div", { class: "number share" }, block.shares[index] === null ? UNKNOWN : percent(block.shares[index])),
  ];
  const rows = block.labels.map(row);
  box.append(...rows.slice(0, BARS_AT_FIRST).flat());
  if (rows.length <= BARS_AT_FIRST) return box;
  const more = make("button", { type: "button", onclick: () => { box.append(...rows.slice(BARS_AT_FIRST).flat()); more.remove(); } },
    `Show the other ${rows.length - BARS_AT_FIRST}`);
  return make("div", null, box, make("p", { class: "text" }, more));
}

function drawStack(block) {
  const rows = block.labels.map((label, row) => {
    const whole = block.series.reduce((sum, s) => sum + Math.max(s.values[row] ?? 0, 0), 0);
    const parts = block.series.map((s) => {
      const share = whole ? Math.max(s.values[row] ?? 0, 0) / whole : 0;
      const text = `${s.name}: ${time(s.values[row] ?? 0)}, ${percent(share)}`;
      return make("span", { class: `t-${s.tone}`, style: { width: `${share * 100}%` }, title: text }, share > 0.07 ? percent(share) : "");
    }).filter((part) => part.style.width !== "0%");
    return make("div", { class: "stackrow" }, make("div", null, label), make("div", { class: "bar" }, parts));
  });
  return make("div", { class: "text" }, legend(block.series), rows);
}

// Round steps for an axis: 1, 2 or 5 times a power of ten.
function ticks(largest) {
  const rough = largest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return Array.from({ length: Math.floor(largest / step) + 1 }, (_, i) => i * step);
}

function drawColumns(block) {
  const count = block.labels.length;
  const totals = block.labels.map((_, i) => block.series.reduce((sum, s) => sum + s.values[i], 0));
  const largest = Math.max(...totals, 1);
  const scale = timeScale(largest);
  const scroll = make("div", { class: "scroll" });
  const caption = make("p", { class: "caption", "aria-live": "polite" }, "Point at a column to read it.");
  const tell = (i) => {
    caption.textContent = `${block.labels[i]}: ${block.series.map((s) => `${s.name} ${time(s.values[i])}`).join(", ")}`;
  };
  onWidth(scroll, (width) => scroll.replaceChildren(columnsSvg(block, { count, totals, largest, scale, width, tell })));
  return make("div", null, legend(block.series), scroll, caption);
}

function columnsSvg(block, { count, largest, scale, width, tell }) {
  const room = Math.max(width - MARGIN.left - MARGIN.right, count * LEAST_COLUMN);
  const pitch = Math.min(room / count, WIDEST_COLUMN);
  const height = CHART_HEIGHT - MARGIN.top - MARGIN.bottom;
  const y = (value) => MARGIN.top + height * (1 - value / largest);
  const end = MARGIN.left + pitch * count;
  const lines = ticks(largest).map((value) => [
    makeSvg("line", { class: "axis", x1: MARGIN.left, x2: end, y1: y(value), y2: y(value) }),
    makeSvg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, `${+(value / scale.divisor).toPrecision(6)} ${scale.unit}`),
  ]);
  const columns = block.labels.map((label, i) => {
    let below = 0;
    const x = MARGIN.left + i * pitch;
    const parts = block.series.map((s) => {
      const part = makeSvg("rect", { class: `f-${s.tone}`, x, width: Math.max(pitch - (pitch > 5 ? 1 : 0.3), 0.8), y: y(below + s.values[i]), height: (height * s.values[i]) / largest });
      below += s.values[i];
      return part;
    });
    const group = makeSvg("g", null, parts, makeSvg("rect", { class: "hit", x, width: pitch, y: MARGIN.top, height }, makeSvg("title", null, label)));
    group.addEventListener("mouseenter", () => { group.classList.add("on"); tell(i); });
    group.addEventListener("mouseleave", () => group.classList.remove("on"));
    return group;
  });
  const every = Math.max(Math.ceil(60 / pitch), 1);
  const marks = block.labels.flatMap((label, i) => (i % every ? [] : [
    makeSvg("text", { x: MARGIN.left + (i + 0.5) * pitch, y: CHART_HEIGHT - 8, "text-anchor": "middle" }, label.split("  ")[0]),
  ]));
  return makeSvg("svg", { width: end + MARGIN.right, height: CHART_HEIGHT, role: "img", "aria-label": "Stacked columns, one a layer" }, lines, columns, marks);
}
