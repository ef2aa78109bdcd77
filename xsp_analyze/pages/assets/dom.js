// Elements, made so that text can only ever be text.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Draws now and whenever the element's width changes.
function onWidth(node, draw) {
  let last = -1;
  new ResizeObserver(() => {
    const width = Math.floor(node.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      draw(width);
    }
  }).observe(node);
}

const TAIL = 10; // characters at the end of a name that stay to be seen
const NEVER_CUT = 20;

// The two halves of a name: where there is no room, the first gives way, so that its end is seen too.
function middle(text) {
  if (text.length <= NEVER_CUT) return text;
  return [make("span", { class: "head" }, text.slice(0, -TAIL)), make("span", { class: "tail" }, text.slice(-TAIL))];
}

// A name that may be longer than there is room: cut in its middle, whole under the pointer, and at a tap or Enter.
function cutMiddle(text, whole = text) {
  if (text.length <= NEVER_CUT) return text;
  return make("button", { type: "button", class: "middle name-button", title: whole, "aria-expanded": "false", onclick: (event) => {
    const button = event.currentTarget;
    const open = button.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
    button.closest("td")?.classList.toggle("open", open);
  } }, middle(text));
}
