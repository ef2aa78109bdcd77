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
  return framed(block.title, draw, "");
}
