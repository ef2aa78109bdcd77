// An icicle: parents above, children below, widths in proportion to time. A click makes a box as wide as the page.
const ROW_HEIGHT = 25;
const LEAST_WIDTH = 1.5;
const KINDS = [["layer", "layer"], ["operator", "operator"], ["kernel", "kernel"], ["memcpy", "copy or memset"], ["outside", "in no layer"]];

function drawIcicle(block) {
  const children = block.parent.map(() => []);
  block.parent.forEach((parent, node) => { if (parent >= 0) children[parent].push(node); });
  const total = block.time[0];
  const counted = block.counted ?? ["piece of device work", "pieces of device work"];
  const nameOf = (node) => block.names[block.name[node]];
  let focus = 0;
  let width = 0;

  const crumbs = make("div", { class: "crumbs", "aria-label": "Path to the box in view" });
  const field = make("div", { class: "icicle" });
  const told = make("div", { class: "told", "aria-live": "polite" });
  const search = make("input", { type: "search", placeholder: "Search names", "aria-label": "Search the tree" });
  const found = make("span", { role: "status" });
  let query = "";

  const labelOf = (node) => (block.kind[node] === "kernel" ? bare(nameOf(node)) : nameOf(node));

  function pathTo(node) {
    const path = [];
    for (let at = node; at >= 0; at = block.parent[at]) path.unshift(at);
    return path;
  }

  // Boxes to draw: those above the focus and it at full width, below it what is wide enough to see.
  function boxes() {
    const path = pathTo(focus);
    const found = path.map((node, depth) => ({ node, depth, left: 0, share: 1, above: node !== focus }));
    const stack = [{ node: focus, depth: path.length - 1, left: 0, share: 1 }];
    while (stack.length) {
      const box = stack.pop();
      const narrow = { node: box.node, depth: box.depth + 1, left: 0, share: 0, above: false, narrow: 0 };
      let left = box.left;
      for (const child of children[box.node]) {
        const share = block.time[focus] ? block.time[child] / block.time[focus] : 0;
        if (share * width >= LEAST_WIDTH) {
          const below = { node: child, depth: box.depth + 1, left, share, above: false };
          found.push(below);
          stack.push(below);
          left += share;
        } else {
          narrow.share += share;
          narrow.narrow += 1;
        }
      }
      narrow.left = left;
      if (narrow.share * width >= LEAST_WIDTH) found.push(narrow);
    }
    return found;
  }

  function drawBox({ node, depth, left, share, above, narrow }) {
    const thin = share * width < 24;
    if (narrow) {
      const text = `${count(narrow)} too narrow to draw`;
      return make("div", { class: `cell k-others${thin ? " thin" : ""}`, "data-node": node, title: `${text}: click to zoom in`,
        style: { left: `${left * 100}%`, width: `calc(${share * 100}% - 1px)`, top: `${depth * ROW_HEIGHT}px` } }, thin ? "" : text);
    }
    const cell = make("div", {
      class: `cell k-${block.kind[node]}${above ? " above" : ""}${thin ? " thin" : ""}${matches(node) ? " found" : query ? " faint" : ""}`,
      role: "button", tabindex: thin ? null : "0", title: `${nameOf(node)}\n${summary(node)}`, "data-node": node,
      style: { left: `${left * 100}%`, width: `calc(${share * 100}% - 1px)`, top: `${depth * ROW_HEIGHT}px` },
    }, thin ? "" : labelOf(node));
    return cell;
  }

  function summary(node) {
    return `${time(block.time[node])}, ${percent(total ? block.time[node] / total : 0)} of all device time`;
  }

  function tell(node) {
    const inView = block.time[focus] ? block.time[node] / block.time[focus] : 0;
    told.replaceChildren(
      make("div", { class: "what", title: nameOf(node) }, make("b", null, nameOf(node))),
      make("div", { title: exact(block.time[node], "ns") }, summary(node),
        focus === 0 ? "" : `, ${percent(inView)} of what is in view`,
        block.count[node] ? `, ${count(block.count[node])} ${block.count[node] === 1 ? counted[0] : counted[1]}` : ""),
      make("div", { class: "muted" }, (node === 0 ? block.root : null) ?? describe(block.kind[node])));
  }

  const matches = (node) => query !== "" && nameOf(node).toLowerCase().includes(query);

  // Time of all that matches; what stands below a match is in it already.
  function look(text) {
    query = text.trim().toLowerCase();
    let [sum, boxes] = [0, 0];
    const inside = new Uint8Array(block.parent.length);
    block.parent.forEach((parent, node) => {
      inside[node] = parent >= 0 && inside[parent] ? 1 : 0;
      if (!inside[node] && matches(node)) { inside[node] = 1; sum += block.time[node]; boxes += 1; }
    });
    found.textContent = query === "" ? "" : boxes ? `${count(boxes)} found: ${time(sum)}, ${percent(total ? sum / total : 0)} of all` : "Nothing found";
    paint();
  }
  search.addEventListener("input", () => look(search.value));

  function zoom(node) {
    focus = block.kind[node] === "others" ? block.parent[node] : node;
    paint();
  }

  function paint() {
    const drawn = boxes();
    field.style.height = `${(Math.max(...drawn.map((box) => box.depth)) + 1) * ROW_HEIGHT}px`;
    field.replaceChildren(...drawn.map(drawBox));
    crumbs.replaceChildren(...pathTo(focus).flatMap((node, index) => [
      index ? make("span", { class: "sep" }, "\u203a") : null,
      node === focus ? make("span", null, labelOf(node)) : make("button", { type: "button", onclick: () => zoom(node) }, labelOf(node)),
    ]).filter(Boolean));
    tell(focus);
  }

  const nodeAt = (event) => event.target.closest?.(".cell")?.dataset.node;
  const with_node = (act) => (event) => { const node = nodeAt(event); if (node !== undefined) act(Number(node)); };
  field.addEventListener("click", with_node(zoom));
  field.addEventListener("mouseover", with_node(tell));
  field.addEventListener("focusin", with_node(tell));
  field.addEventListener("mouseleave", () => tell(focus));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); with_node(zoom)(event); }
    if (event.key === "Escape" && block.parent[focus] >= 0) zoom(block.parent[focus]);
  });
  onWidth(field, (found) => { width = found; paint(); });
  if (block.link) {
    route(block.link, (params) => {
      search.value = params.get("q") ?? "";
      look(search.value);
      const name = params.get("name");
      const node = name === null ? -1 : block.name.findIndex((n, i) => block.kind[i] === "layer" && block.names[n] === name);
      if (node >= 0) zoom(node);
    });
  }
  const present = new Set(block.kind);
  const legend = KINDS.filter(([kind]) => present.has(kind)).map(([kind, label]) => make("span", null, make("i", { class: `k-${kind}` }), label));
  return make("div", null, make("div", { class: "legend" }, legend), make("div", { class: "tools" }, search, found), crumbs, field, told);
}

function describe(kind) {
  return {
    all: "Everything that ran on a device.",
    outside: "Work that no layer holds.",
    layer: "A layer: all its calls in all steps, with the layers and operators in it.",
    operator: "A framework operator, with the operators and kernels it led to.",
    others: "The shortest ones here, too many to draw; click to see what surrounds them.",
    memcpy: "A copy.", memset: "A memset.", graph: "A whole graph replay, recorded as one.",
    kernel: "A function run on the device.",
  }[kind] ?? "";
}
