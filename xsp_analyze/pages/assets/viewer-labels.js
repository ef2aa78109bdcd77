// The headings of groups and lanes: real buttons beside the canvas, to fold and to pin.
const PIN_SHAPE = "M5 1h6l-1 5 3 3H9v5l-1 2-1-2V9H3l3-3z";

function lineLabels(viewer, field) {
  const focused = document.activeElement?.dataset?.control;
  field.labels.replaceChildren(...field.stack.lines.filter((line) => line.kind !== "thin").map((line) => (line.kind === "group" ? groupLabel(viewer, line) : laneLabel(viewer, line))));
  if (focused) [...field.labels.querySelectorAll("[data-control]")].find((node) => node.dataset.control === focused)?.focus({ preventScroll: true });
}

function groupLabel(viewer, line) {
  const count = `${line.lanes.length} ${line.lanes.length === 1 ? "lane" : "lanes"}`;
  return make("div", { class: `viewer-label viewer-group${line.folded ? " folded" : ""}`, style: { top: `${line.top}px`, height: `${VIEWER_GROUP_LINE}px` } },
    foldButton(line.folded, line.group, `group ${line.group}`, () => viewer.toggle("foldedGroups", line.group)),
    make("span", { class: "viewer-count" }, line.folded ? `${count} folded` : ""));
}

function laneLabel(viewer, line) {
  const title = line.pinned ? `${line.title}, ${line.group}` : line.title;
  const counter = viewer.counters?.get(line.lane);
  return make("div", {
    class: "viewer-label viewer-lane", style: { top: `${line.top}px`, height: `${viewer.narrow ? 24 : line.height}px` },
    "data-lane": line.lane, "data-key": line.key, "data-box-top": line.boxTop, "data-row-height": line.rowHeight, "data-rows": line.rows,
  },
  foldButton(line.folded, title, `${line.title}, ${line.group}`, () => viewer.toggle("folds", line.key)),
  make("button", {
    type: "button", class: `viewer-pin${line.pinned ? " on" : ""}`, "aria-pressed": String(line.pinned), title: line.pinned ? "Unpin" : "Pin to the top",
    "aria-label": `${line.pinned ? "Unpin" : "Pin"} ${line.title}, ${line.group}`, "data-control": `pin ${line.key}`, onclick: () => viewer.togglePin(line.key),
  }, makeSvg("svg", { width: 14, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, makeSvg("path", { d: PIN_SHAPE, fill: line.pinned ? "currentColor" : "none", stroke: "currentColor" }))),
  counter ? make("span", { class: "viewer-value", "data-value-of": line.lane }, `0 to ${counterText(counter, counter.largest)}`) : null);
}

function foldButton(folded, text, name, toggle) {
  return make("button", {
    type: "button", class: "viewer-fold", "aria-expanded": String(!folded), "aria-label": name, title: `${folded ? "Unfold" : "Fold"} ${name}`, "data-control": `fold ${name}`, onclick: toggle,
  }, make("span", { class: "viewer-arrow", "aria-hidden": "true" }, folded ? "\u25b8" : "\u25be"), make("span", { class: "viewer-title" }, text));
}

// A counter's value with its unit, as every number on the page.
function counterText(counter, value) {
  return value === null || value === undefined ? UNKNOWN : quantity(value, ["bytes", "B"].includes(counter.unit) ? "byte" : counter.unit ?? "");
}
