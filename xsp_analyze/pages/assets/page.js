// Builds the page from its data: each block of a section is drawn by the function of its type.
const data = JSON.parse(document.getElementById("data").textContent);

// What every page can hold; scripts of one page add theirs.
const DRAW = {
  text: (block) => make("p", { class: "text" }, block.text),
  missing: (block) => make("p", { class: "missing" }, block.text),
  facts: drawFacts,
  shares: drawShares,
  findings: drawFindings,
  list: drawList,
  table: drawTable,
  line: drawLine,
  bars: drawBars,
  stack: drawStack,
  columns: drawColumns,
};

function drawFacts(block) {
  return make("div", { class: "facts" }, block.items.map((item) => make("div", { class: "fact" },
    make("div", { class: "label" }, item.label),
    make("div", { class: "value", title: item.exact || null }, item.value),
    make("div", { class: "note" }, item.note))));
}

function drawShares(block) {
  const parts = block.parts.map((part) => make("span", {
    class: `t-${part.tone}`, style: { width: `${part.share * 100}%` }, title: `${part.label}: ${part.shown}, ${part.exact}`,
  }, part.share > 0.12 ? `${part.label}, ${part.shown}` : ""));
  const rows = block.parts.map((part) => make("li", null,
    make("span", { class: "share-label" }, make("i", { class: `t-${part.tone}` }), part.label),
    make("span", { class: "number" }, part.shown),
    make("span", { class: "number", title: part.exact }, part.value),
    make("span", { class: "sentence" }, `${part.sentence} `, part.advice ? make("span", { class: "advice" }, `${part.advice}.`) : "")));
  return make("div", null, make("div", { class: "bar", role: "img", "aria-label": "Shares of device time" }, parts), make("ul", { class: "share-list" }, rows));
}

function drawFindings(block) {
  return make("ul", { class: "findings" }, block.items.map((item) => make("li", null,
    make("span", { class: `severity ${item.severity}` }, item.severity),
    make("span", { class: "number" }, item.count),
    make("span", { class: "number" }, item.time),
    make("span", { class: "sentence" }, `${item.text}. `, item.advice ? make("span", { class: "advice" }, `${item.advice}.`) : ""))));
}

// A table with a name of its own in links answers to it, whichever part of the page it stands in.
function drawBlock(block, section) {
  let drawn;
  try {
    drawn = DRAW[block.type](block);
  } catch (error) { // one part that cannot be drawn must not take the others with it
    console.error(error);
    return make("p", { class: "missing", role: "alert" }, "This part could not be drawn; everything else stands.");
  }
  if (block.type === "table" && block.link && block.link === section.id) route(block.link, (params) => drawn.table.follow(params));
  return drawn;
}

function drawSection(section) {
  return make("section", { id: section.id, "aria-labelledby": `${section.id}-title` },
    make("h2", { id: `${section.id}-title` }, section.title, make("a", { class: "anchor", href: `#${section.id}`, "aria-label": `Link to ${section.title}` }, "#")),
    section.means ? make("p", { class: "means" }, section.means) : null,
    section.blocks.map((block) => drawBlock(block, section)));
}

// Entries with a name, perhaps a link, and a text; many are folded away under a summary.
function drawList(block) {
  const items = block.items.map((item) => make("li", null, nameOrLink(item.name, item.link), item.text ? ` ${item.text}` : ""));
  const list = [make("ul", { class: "plain-list" }, items), block.more ? make("p", { class: "means" }, block.more) : null];
  return block.summary ? make("details", null, make("summary", null, block.summary), list) : make("div", null, list);
}

function nameOrLink(name, link) {
  return link ? make("a", { href: link }, name) : make("b", null, name);
}

function drawPage() {
  const measured = data.measured?.length
    ? make("details", { class: "about" }, make("summary", null, "What was measured"),
      make("dl", { class: "measured" }, data.measured.map((row) => [make("dt", null, row.label), make("dd", null, row.text)])))
    : null;
  document.getElementById("page").append(
    make("header", null,
      make("p", { class: "kind" }, data.kind),
      make("h1", null, data.title),
      data.first ? DRAW.first(data) : make("ul", { class: "short" }, data.short.map((sentence) => make("li", null, sentence))),
      measured),
    make("nav", { "aria-label": "Parts of this page" }, data.sections.map((s) => make("a", { href: `#${s.id}` }, s.label)), themeButton()),
    make("main", null, data.sections.map(drawSection), data.missing?.length ? DRAW.not_here(data.missing) : null),
    make("footer", null, data.footer));
  addEventListener("hashchange", followLink);
  followLink();
}
