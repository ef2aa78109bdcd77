// What leaves the page: the clipboard and files that the browser saves. Nothing is sent anywhere.
function saveFile(name, type, content) {
  const link = make("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { style: { position: "fixed", opacity: "0" }, "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "xsp";

const PAINTED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];

// The drawing as a file of its own: styles that the page's sheet gives are written into each element.
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const property of PAINTED) to[i].setAttribute(property, style.getPropertyValue(property));
    to[i].removeAttribute("class");
    to[i].removeAttribute("tabindex");
  });
  copy.setAttribute("xmlns", SVG);
  copy.removeAttribute("class");
  const paper = makeSvg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

const SHARPNESS = 2; // pixels of a PNG for each of the page

function savePng(svg, name) {
  const image = new Image();
  const seen = svg.clientWidth > 0;
  const { width, height } = seen ? { width: svg.clientWidth, height: svg.clientHeight } : svg.viewBox.baseVal;
  image.onload = () => {
    const canvas = make("canvas", { width: width * SHARPNESS, height: height * SHARPNESS });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveFile(name, "image/png", blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
}

// What a spreadsheet would run as a formula gets an apostrophe before it, also where it splits at semicolons or tabs; a
// number is none. As xsp_analyze/render/csv_text.py has it.
const csvActs = (text) => /^(?:[\t-\r\x1c-\x1e\x85\u2028\u2029]|[\p{Z}\p{C}\p{Default_Ignorable_Code_Point}\u2800]*[=+\-@＝＋－＠﹦﹢﹣﹫])/u.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*%?$/.test(text);

const csvGuarded = (text) => (csvActs(text) ? "'" : "") + text.replace(/([;\t-\r\x1c-\x1e\x85\u2028\u2029][\p{Z}\p{C}\p{Default_Ignorable_Code_Point}\u2800"]*)([=+\-@＝＋－＠﹦﹢﹣﹫])/gu, "$1'$2");

const csvCell = (value) => {
  const cell = value === null || value === undefined ? "" : String(value);
  const text = typeof value === "string" ? csvGuarded(cell) : cell;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// Rows as CSV: our column names, full precision, empty for unknown.
function csvOf(columns, values, rows) {
  return [columns.map((c) => csvCell(c.key)), ...rows.map((row) => values.map((v) => csvCell(v[row])))].map((line) => line.join(",")).join("\n") + "\n";
}

// The frame around a drawing: zooms, pans, resets, and saves the drawing as SVG or PNG.
const ZOOM = 1.6;
const CLOSEST = 1e-6; // share of all that still can fill the drawing
const UNSEEN_WIDTH = 640; // pixels of a drawing that is saved before it was ever shown

// `draw(width, view)` gives an SVG for the part of the whole in view, [from, to] of 0..1 across and up.
// `axes`: "x", "xy" or "" (nothing to zoom).
function frameOf(title, draw, axes) {
  const view = { x: [0, 1], y: [0, 1] };
  const field = make("div", { class: "field", tabindex: axes ? "0" : null, role: axes ? "group" : null, "aria-label": axes ? `${title}. Plus and minus zoom in and out, arrows move, 0 shows all.` : null });
  const node = make("figure", { class: "framed" });
  let width = 0;

  function paint() {
    if (width > 0) field.replaceChildren(scalable(draw(width, view)));
    const whole = view.x[1] - view.x[0] === 1 && view.y[1] - view.y[0] === 1;
    node.classList.toggle("closer", !whole);
    back.disabled = whole;
  }

  function clamp([from, to]) {
    const span = Math.min(Math.max(to - from, CLOSEST), 1);
    const start = Math.min(Math.max(from, 0), 1 - span);
    return [start, start + span];
  }

  // Zooms by a factor around a point, given in shares of the drawing.
  function zoom(factor, atX = 0.5, atY = 0.5) {
    for (const [axis, at] of [["x", atX], ["y", atY]]) {
      if (!axes.includes(axis)) continue;
      const [from, to] = view[axis];
      const span = (to - from) / factor;
      const middle = from + (to - from) * at;
      view[axis] = clamp([middle - span * at, middle + span * (1 - at)]);
    }
    paint();
  }

  function move(acrossShare, upShare) {
    for (const [axis, by] of [["x", acrossShare], ["y", upShare]]) {
      if (!axes.includes(axis)) continue;
      const [from, to] = view[axis];
      const span = to - from;
      const start = Math.min(Math.max(from + by * span, 0), 1 - span);
      view[axis] = [start, start + span];
    }
    paint();
  }

  function reset() {
    view.x = [0, 1];
    view.y = [0, 1];
    paint();
  }

  const button = (text, label, act) => make("button", { type: "button", "aria-label": `${label}: ${title}`, title: label, onclick: act }, text);
  const back = button("Show all", "Show all", reset);
  const svg = () => {
    if (!field.querySelector("svg")) { width = UNSEEN_WIDTH; paint(); }
    return field.querySelector("svg");
  };
  const tools = make("div", { class: "tools frame-tools" },
    axes ? [button("+", "Zoom in", () => zoom(ZOOM)), button("\u2212", "Zoom out", () => zoom(1 / ZOOM)), back] : null,
    button("SVG", "Save as SVG", () => saveFile(`${fileName(title)}.svg`, "image/svg+xml", svgText(svg()))),
    button("PNG", "Save as PNG", () => savePng(svg(), `${fileName(title)}.png`)));

  if (axes) {
    follow(field, zoom, move, reset);
  }
  node.append(tools, field);
  node.lookAt = (from, to) => { view.x = clamp([from, to]); paint(); };
  onWidth(field, (found) => { width = found; paint(); });
  return node;
}

// Paper may be narrower than the window that the drawing was made for.
function scalable(svg) {
  if (!svg.hasAttribute("viewBox")) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
  return svg;
}

// Wheel with Ctrl, double click, drag and keys.
function follow(field, zoom, move, reset) {
  const place = (event) => {
    const box = field.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
  };
  field.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, ...place(event));
  }, { passive: false });
  field.addEventListener("dblclick", (event) => zoom(ZOOM, ...place(event)));
  let from = null;
  field.addEventListener("pointerdown", (event) => { from = event.button === 0 ? place(event) : null; });
  window.addEventListener("pointermove", (event) => {
    if (from === null || event.buttons === 0) { from = null; return; }
    const to = place(event);
    if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 0.004) return;
    move(from[0] - to[0], from[1] - to[1]);
    from = to;
  });
  window.addEventListener("pointerup", () => { from = null; });
  const keys = { "+": () => zoom(ZOOM), "=": () => zoom(ZOOM), "-": () => zoom(1 / ZOOM), 0: reset, ArrowLeft: () => move(-0.2, 0), ArrowRight: () => move(0.2, 0), ArrowUp: () => move(0, 0.2), ArrowDown: () => move(0, -0.2) };
  field.addEventListener("keydown", (event) => {
    if (event.target !== field || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
}
