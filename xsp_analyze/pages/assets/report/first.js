// The first screen of a report: one line, the bar of a step, the key numbers, what to do, and the doubts beside each.
const SMALL = 0.01; // of the bar: smaller parts are told in a list of their own
const FEW_PARTS = 8;
const SPARK = { width: 120, height: 26 };

function drawFirst(page) {
  const first = page.first;
  return make("div", { class: "first" },
    make("ul", { class: "first-line" }, first.line.map((part) => make("li", null, part)), first.doubts.length ? make("li", null, drawDoubts(first.doubts, "this trace")) : null),
    first.verdict ? make("p", { class: "verdict" }, make("b", null, first.verdict[0]), first.verdict[1]) : null,
    first.bar ? drawStepBar(first.bar) : null,
    first.tiles.length ? make("div", { class: "tiles" }, first.tiles.map(drawTile)) : null,
    drawFirstFindings(first),
    make("details", { class: "in-words" }, make("summary", null, "In words"), make("ul", { class: "short" }, page.short.map((sentence) => make("li", null, sentence)))));
}

// A small mark that unfolds to what is to be doubted.
function drawDoubts(doubts, about) {
  if (!doubts.length) return null;
  const count = doubts.length === 1 ? "1 caution" : `${doubts.length} cautions`;
  return make("details", { class: "doubts" }, make("summary", { "aria-label": `${count} about ${about}` }, make("i", { "aria-hidden": "true" }, "!"), count),
    make("ul", null, doubts.map((text) => make("li", null, text))));
}

function drawStepBar(bar) {
  const told = make("p", { class: "bar-told", "aria-live": "polite" });
  const rest = () => { told.textContent = bar.about; mark(null); };
  const boxes = bar.parts.map((part, i) => make("span", {
    class: part.tone, "data-part": i, title: partText(part), style: { flexGrow: part.share },
    onclick: part.link ? () => { location.hash = part.link; } : null,
  }));

  function mark(i) {
    boxes.forEach((box, at) => box.classList.toggle("on", at === i));
  }

  function tell(i) {
    mark(i);
    told.textContent = `${partText(bar.parts[i])}. ${bar.parts[i].about}`;
  }

  const entry = (i) => make("li", { onmouseenter: () => tell(i), onfocusin: () => tell(i) }, drawPart(bar.parts[i]));
  const all = bar.parts.map((_, i) => i);
  const large = bar.parts.length <= FEW_PARTS ? all : all.filter((i) => bar.parts[i].share >= SMALL);
  const small = all.filter((i) => !large.includes(i));
  const strip = make("div", { class: "step-bar", role: "img", "aria-label": `${bar.title}: ${bar.parts.map((p) => `${p.label} ${percent(p.share)}`).join(", ")}` }, boxes);
  strip.addEventListener("mouseover", (event) => { if (event.target.dataset.part) tell(Number(event.target.dataset.part)); });
  const node = make("div", { class: "bar-of-step", "data-total": bar.total },
    make("div", { class: "bar-head" }, make("h2", { title: exact(bar.total, "ns") }, bar.title), drawDoubts(bar.doubts, "this bar")),
    strip,
    make("ul", { class: "bar-legend" }, large.map(entry)),
    small.length ? make("details", { class: "bar-small" }, make("summary", null, smallText(bar, small)), make("ul", { class: "bar-legend" }, small.map(entry))) : null,
    told);
  node.addEventListener("mouseleave", rest);
  node.addEventListener("focusout", (event) => { if (!node.contains(event.relatedTarget)) rest(); });
  rest();
  return node;
}

const partText = (part) => `${part.label}: ${time(part.time)}, ${percent(part.share)}`;

function smallText(bar, small) {
  const sum = small.reduce((all, i) => all + bar.parts[i].share, 0);
  return `${small.length} ${small.length === 1 ? "part" : "parts"} below ${percent(SMALL)}, ${percent(sum)} together`;
}

function drawPart(part) {
  const inside = [make("i", { class: part.tone }), make("span", { class: "part-name" }, part.label),
    make("span", { class: "part-time", title: exact(part.time, "ns") }, time(part.time)), make("span", { class: "part-share", "data-share": part.share }, percent(part.share))];
  return part.link ? make("a", { href: `#${part.link}`, title: part.about }, inside) : make("span", { tabindex: "0", title: part.about }, inside);
}

function drawTile(tile) {
  return make("div", { class: "tile", "data-tile": tile.id },
    make("details", null,
      make("summary", null, make("span", { class: "label" }, tile.label), make("span", { class: "value", title: tile.exact || null }, unitApart(tile.value)), tile.spark ? drawSpark(tile.spark, tile.label) : null),
      make("p", { class: "note" }, tile.note),
      tile.spark ? make("p", { class: "note" }, tile.spark.text) : null,
      tile.link ? make("p", { class: "note" }, make("a", { href: `#${tile.link}` }, "See more")) : null),
    drawDoubts(tile.doubts, tile.label));
}

// The unit smaller than its number, so that long ones fit.
function unitApart(value) {
  const at = value.lastIndexOf(THIN);
  return at < 0 || /\d$/.test(value) ? value : [value.slice(0, at), make("small", null, value.slice(at))];
}

// A mark a step, from the least to the most; paler where it was left out of the mean.
function drawSpark(line, label) {
  const { width, height } = SPARK;
  const [low, high] = [Math.min(...line.values), Math.max(...line.values)];
  const at = (i) => 3 + (i * (width - 6)) / Math.max(line.values.length - 1, 1);
  const up = (value) => (high > low ? height - 4 - ((value - low) * (height - 8)) / (high - low) : height / 2);
  const kept = line.values.map((value, i) => (line.left_out[i] ? null : `${at(i).toFixed(1)},${up(value).toFixed(1)}`)).filter(Boolean);
  return makeSvg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "xMinYMid meet", role: "img", "aria-label": `${label}. ${line.text}` },
    makeSvg("polyline", { class: "drawn-line", points: kept.join(" ") }),
    line.values.map((value, i) => makeSvg("circle", { class: line.left_out[i] ? "left-out" : "", cx: at(i), cy: up(value), r: line.values.length > 20 ? 1.3 : 2.2 }, makeSvg("title", null, line.texts[i]))));
}

function drawFirstFindings(first) {
  if (!first.findings.length) return make("p", { class: "first-nothing" }, "No rule found anything to gain. Most rules look at device work, some at hardware counters.");
  const rest = first.finding_count - first.findings.length;
  return make("div", { class: "first-findings" },
    make("div", { class: "bar-head" }, make("h2", null, "What to do first"), make("a", { href: "#next" }, rest ? `All ${first.finding_count} findings` : "In full")),
    make("ol", null, first.findings.map((item) => make("li", null, make("details", { "data-finding": item.id },
      make("summary", null, adviceHead(item)), make("div", { class: "finding-body" }, adviceBody(item)))))));
}

// What the trace has nothing for: one line, unfolding to why, and how to get it.
function drawNotHere(missing) {
  const parts = missing.filter((one) => !/^[A-Z]\d\d$/.test(one.id));
  const analyses = missing.length - parts.length;
  const names = [...parts.map((one) => one.label), analyses ? `${analyses} ${analyses === 1 ? "analysis" : "analyses"}` : null].filter(Boolean);
  return make("section", { id: "not-here", class: "not-here", "aria-label": "Not here" },
    make("details", null, make("summary", null, make("b", null, "Not here: "), names.join(", "), "."),
      make("ul", { class: "plain-list" }, missing.map((one) => make("li", { id: one.id }, make("b", null, one.label), ` ${one.why}`, one.how ? make("span", { class: "advice" }, ` ${one.how}`) : null)))));
}

Object.assign(DRAW, { first: drawFirst, not_here: drawNotHere });

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
      make("span", { class: "muted" }, ` ${countOf(item.rows, "row", "rows")}`));
    const details = make("details", { id: item.id, class: "analysis-entry", ontoggle: () => { if (details.open) fillIn(); } }, summary, body);
    route(item.id, (params) => { details.open = true; fillIn(); table?.table.follow(params); });
    return details;
  }));
}
