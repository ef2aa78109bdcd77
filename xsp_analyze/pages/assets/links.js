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

// Light or dark: what the system says, until the button says otherwise.
function themeButton() {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = make("button", { type: "button", class: "theme", onclick: () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; name(); } });
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  return button;
}
