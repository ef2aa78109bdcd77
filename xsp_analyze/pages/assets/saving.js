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
// number is none. As xsp_analyze/render/csv_cells.py has it.
const csvActs = (text) => /^(?:[\t\r\n]|[\s\0\u200b-\u200f\u2060]*[=+\-@＝＋－＠])/.test(text) && !/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*%?$/.test(text);

const csvGuarded = (text) => (csvActs(text) ? "'" : "") + text.replace(/([;\t\r\n][\s\0\u200b-\u200f\u2060"]*)([=+\-@＝＋－＠])/g, "$1'$2");

const csvCell = (value) => {
  const cell = value === null || value === undefined ? "" : String(value);
  const text = typeof value === "string" ? csvGuarded(cell) : cell;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// Rows as CSV: our column names, full precision, empty for unknown.
function csvOf(columns, values, rows) {
  return [columns.map((c) => csvCell(c.key)), ...rows.map((row) => values.map((v) => csvCell(v[row])))].map((line) => line.join(",")).join("\n") + "\n";
}
