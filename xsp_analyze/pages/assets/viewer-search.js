// Search in the viewer: how many spans have the text in their name, and which one is looked at.
function viewerSearch(viewer) {
  const input = make("input", { type: "search", placeholder: "Search names", "aria-label": "Search the timeline" });
  const status = make("span", { class: "viewer-hits", role: "status" });
  const previous = make("button", { type: "button", class: "viewer-square", "aria-label": "Previous found", title: "Previous found (Shift+N)", disabled: true, onclick: () => turn(-1) }, "\u2039");
  const next = make("button", { type: "button", class: "viewer-square", "aria-label": "Next found", title: "Next found (N)", disabled: true, onclick: () => turn(1) }, "\u203a");
  const state = { text: "", at: -1, count: 0, complete: true };
  let asked = 0;

  // Searches for the text; `go` looks at the first one from the beginning of the view on.
  async function find(text, go = true) {
    const number = ++asked;
    input.value = text;
    state.text = text.trim();
    state.at = -1;
    viewer.matches = state.text ? matchingNames(viewer.about.names, state.text) : null;
    viewer.hits = [];
    if (!state.text) { finish(0, true); return; }
    status.textContent = "Searching";
    const { hits, count, complete } = await viewer.source.search(state.text);
    if (number !== asked) return;
    viewer.hits = hits;
    finish(count, complete);
    if (go && hits.length) turn(1);
  }

  function finish(count, complete) {
    Object.assign(state, { count, complete });
    previous.disabled = next.disabled = viewer.hits.length === 0;
    tell();
    viewer.change();
  }

  function tell() {
    const part = state.complete ? "" : " of the calls that stand alone";
    status.textContent = !state.text ? "" : state.count === 0 ? `None found${part}` : state.at < 0 ? `${count(state.count)} found${part}` : `${count(state.at + 1)} of ${count(state.count)}${part}`;
    Object.assign(viewer.node.dataset, { hits: state.count, hit: state.at });
  }

  function turn(by) {
    const { hits } = viewer;
    if (!hits.length) return;
    if (state.at < 0) {
      const after = hits.findIndex((hit) => hit.start + hit.duration >= (viewer.selected?.start ?? viewer.view.from));
      state.at = by > 0 ? Math.max(after, 0) : (after <= 0 ? hits.length : after) - 1;
    } else state.at = (state.at + by + hits.length) % hits.length;
    const hit = hits[state.at];
    viewer.reveal(hit);
    viewer.select({ merged: 0, busy: hit.duration, tone: -1, layer: -1, ...hit }, { tell: true });
    tell();
  }

  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => find(input.value, false), 150);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.key === "Escape" && input.value) { event.preventDefault(); find(""); return; }
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(waiting);
    if (input.value.trim() !== state.text) await find(input.value, false);
    turn(event.shiftKey ? -1 : 1);
  });
  return { node: make("div", { class: "viewer-search", role: "search" }, input, previous, next, status), find, turn, focus: () => { input.focus(); input.select(); }, state };
}
