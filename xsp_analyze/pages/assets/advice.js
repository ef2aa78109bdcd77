// What to do next: each finding with what it can gain, its evidence, a link to its rows, and the rule behind it.
function drawAdvice(block) {
  const list = make("ol", { class: "advice-list" }, block.items.slice(0, block.first).map(drawOne));
  const rest = block.items.slice(block.first);
  if (!rest.length) return list;
  const more = make("button", { type: "button", onclick: () => { list.append(...rest.map(drawOne)); more.remove(); } }, `Show ${rest.length} more`);
  return make("div", null, list, make("p", { class: "text" }, more));
}

function drawOne(item) {
  return make("li", { id: `finding-${item.id}` }, adviceHead(item), adviceBody(item));
}

function adviceHead(item) {
  return make("span", { class: "advice-head" }, make("b", null, item.title), item.gain ? make("span", { class: "gain" }, item.gain) : null);
}

// What was found, the evidence, what to do, and the rule.
function adviceBody(item) {
  return [
    make("div", null, item.sentence),
    item.evidence.length ? make("div", { class: "evidence" }, item.evidence.map((e) => make("span", null, `${e.label} `, make("b", null, e.value)))) : null,
    make("div", null, make("span", { class: "advice" }, "To do: "), item.do),
    make("div", { class: "advice-links" },
      item.rows ? make("a", { href: linkTo(item.rows, { q: item.search }) }, "See where") : null,
      make("details", null, make("summary", null, "The rule"),
        make("dl", { class: "rule" }, item.about.map(([label, text]) => [make("dt", null, label), make("dd", null, text)]),
          make("dt", null, "Page"), make("dd", null, item.page)))),
  ];
}

// Every analysis, drawn when it is opened.
function drawAnalyses(block) {
  return make("div", { class: "analyses" }, block.items.map((item) => {
    const body = make("div", { class: "analysis" });
    let table = null;
    const fillIn = () => {
      if (body.childElementCount) return;
      body.append(
        item.read ? make("p", { class: "text read" }, item.read) : "");
      for (const part of item.blocks) {
        const drawn = DRAW[part.type](part);
        if (part.type === "table") table = drawn;
        body.append(drawn);
      }
      body.append(make("p", { class: "means definition" }, make("b", null, "Definition. "), item.doc));
    };
    const summary = make("summary", null, make("b", null, item.id), ` ${item.title}`,
      make("span", { class: "muted" }, ` ${counted(item.rows, "row", "rows")}`));
    const details = make("details", { id: item.id, class: "analysis-entry", ontoggle: () => { if (details.open) fillIn(); } }, summary, body);
    route(item.id, (params) => { details.open = true; fillIn(); table?.table.follow(params); });
    return details;
  }));
}
