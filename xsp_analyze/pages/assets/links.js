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
