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

// Links into the page: #part?key=value. Each part says what its keys mean; the address follows what one does.
const routes = new Map();

function route(id, follow) {
  routes.set(id, follow);
}

function linkTo(id, params) {
  const known = Object.entries(params ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(known).toString();
  return `#${id}${query ? `?${query}` : ""}`;
}

// Puts the state of a part into the address, so that it can be copied; without a jump or an entry in the history.
function remember(id, params) {
  history.replaceState(null, "", linkTo(id, params));
}

function followLink() {
  const [id, query] = location.hash.slice(1).split("?");
  const target = id ? document.getElementById(id) : null;
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  const found = routes.get(id)?.(new URLSearchParams(query ?? ""));
  (found ?? target).scrollIntoView({ behavior: "instant", block: "start" });
}

// Light or dark: what the system says, until the button says otherwise. The choice is kept for the next page, where the
// browser lets files keep anything, and goes along in links to pages beside this one.
const THEME = "theme";

function keptTheme() {
  const asked = new URLSearchParams(location.search).get(THEME);
  if (asked === "light" || asked === "dark") return asked;
  try {
    return localStorage.getItem(`xsp-${THEME}`);
  } catch {
    return null;
  }
}

function keepTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(`xsp-${THEME}`, theme);
  } catch {
    // a page from a file may not keep anything: links take the choice along
  }
}

function takeThemeAlong(event) {
  const link = event.target.closest?.("a[href]");
  const theme = document.documentElement.dataset.theme;
  if (!link || !theme || !/^(?!#|[a-z][a-z0-9+.-]*:|\/\/)[^?#]*\.html(?:#|$)/i.test(link.getAttribute("href"))) return;
  const address = new URL(link.getAttribute("href"), document.baseURI); // in a drawing, link.href is no text
  address.searchParams.set(THEME, theme);
  link.setAttribute("href", address.href);
}

function themeButton() {
  const kept = keptTheme();
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = make("button", { type: "button", class: "theme", onclick: () => { keepTheme(dark() ? "light" : "dark"); name(); } });
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  addEventListener("click", takeThemeAlong, true);
  addEventListener("auxclick", takeThemeAlong, true);
  name();
  return button;
}
