// The trace viewer: its state, its parts, and the frame in which it is painted. Data attributes of `.viewer` tell its state:
// ready, from, to, resolution, boxes, single, merged, selected, range, hits, hit, arrows.

Object.assign(DRAW, { viewer: drawViewer });

function drawViewer(block) {
  const node = make("div", { class: "viewer" });
  if (!block.served) new Viewer(node, embeddedSource(block)).begin();
  else {
    node.append(make("p", { class: "missing", role: "status" }, "Reading the trace."));
    fetch("about").then(async (answer) => {
      if (!answer.ok) { node.firstChild.textContent = await answer.text(); return; }
      const about = await answer.json();
      node.replaceChildren();
      new Viewer(node, fetchedSource(about)).begin();
    });
  }
  return node;
}

class Viewer extends ViewerChoice {
  constructor(node, source) {
    super();
    const { about } = source;
    Object.assign(this, {
      node, source, about, steps: about.steps.filter((step) => step.run === about.steps[0].run), painter: boxPainter(about),
      boxes: null, gaps: null, counters: null, overviewBoxes: null, overviewImage: null, colours: null, cut: null, matches: null, hits: [], arrows: [],
      selected: null, hover: null, range: null, ranging: false, narrow: false, pins: [], folds: new Set(), foldedGroups: foldedAtFirst(about),
      pointerX: null, scheduled: false, awaited: 0, loading: null, again: false, view: null,
    });
    this.view = this.bounded(...(about.open ?? [about.begin, about.end]));
    this.gapLanes = gapLanes(about);
    this.parts = viewerParts(this);
  }

  begin() {
    followViewer(this);
    onWidth(this.node, () => this.resize());
    route("timeline", (params) => this.follow(params));
    this.loadRest();
  }

  // Not needed for the first frame.
  async loadRest() {
    await this.load();
    this.counters = await this.source.counters();
    this.layOut();
    this.overviewBoxes = await this.source.overview();
    this.overviewImage = null;
    this.recolour();
    this.node.dataset.ready = "true";
    this.change();
  }

  get width() { return this.main.width; }

  timeAt(x) { return this.view.from + (x / Math.max(this.width, 1)) * (this.view.to - this.view.from); }

  pointerShare() { return this.pointerX === null ? 0.5 : this.pointerX / Math.max(this.width, 1); }

  // Sizes

  resize() {
    this.narrow = this.node.clientWidth < VIEWER_NARROW;
    this.node.classList.toggle("narrow", this.narrow);
    this.recolour();
    this.layOut();
  }

  recolour() {
    this.colours = viewerColours(this.node, this.about.tones, this.about.causes ?? []);
    this.main.context.font = VIEWER_FONT;
    this.cut ??= textCutter(this.main.context);
    this.overviewImage = null;
    if (this.overviewBoxes) this.parts.legend.replaceChildren(...viewerLegend(this));
    this.change();
  }

  layOut() {
    const width = this.node.clientWidth - (this.narrow ? 0 : VIEWER_GUTTER);
    if (width <= 0) return;
    const { pinned, scrolled } = laneLayout(this.about, this);
    this.pinned.resize(pinned, width, pinned.height);
    this.main.resize(scrolled, width, this.main.visibleHeight(scrolled.height));
    for (const strip of [this.overview, this.axis]) strip.resize(width);
    for (const field of this.fields) lineLabels(this, field);
    this.overviewImage = null;
    this.change();
  }

  // Lanes

  toggle(set, key) {
    if (!this[set].delete(key)) this[set].add(key);
    this.layOut();
  }

  togglePin(key) {
    this.pins = this.pins.includes(key) ? this.pins.filter((pin) => pin !== key) : [...this.pins, key];
    this.layOut();
  }

  // Links: #timeline?span=ID, ?from=&to=, ?name=
  follow(params) {
    if (params.has("from") && params.has("to")) this.show(Number(params.get("from")), Number(params.get("to")));
    if (params.has("name")) this.search.find(params.get("name"));
    if (params.has("span")) this.lookFor(Number(params.get("span")));
    return undefined;
  }

  async lookFor(span) {
    const box = await this.source.span(span);
    if (!box) { this.say("The page holds this call only merged with others."); return; }
    this.lookAt(box);
    await this.load();
    this.reveal(box);
    this.select(box, { tell: true });
  }

  // Frames

  pointAt(field, x, y) {
    this.pointerX = field ? x : null;
    this.hover = field ? this.boxUnder(field, x, y) : null;
    this.parts.tip.show(this, field, x, y);
    this.change();
  }

  say(text) { this.parts.live.textContent = text; }

  change() {
    if (this.scheduled) return;
    this.scheduled = true;
    this.settle();
    requestAnimationFrame((now) => this.frame(now));
  }

  scaled() {
    const { from, to } = this.view;
    return { from, to, width: this.width, scale: this.width / (to - from), matches: this.matches };
  }

  frame(now) {
    this.scheduled = false;
    if (!this.colours || this.width <= 0) return;
    const isHeld = this.moveHeld(now);
    const view = this.scaled();
    const counts = { boxes: 0, single: 0, merged: 0 };
    for (const field of this.fields) {
      if (!field.height) continue;
      paintField(this, field, view);
      for (const key of Object.keys(counts)) counts[key] += this.painter.counts[key];
    }
    paintAxis(this, view);
    paintOverview(this, view);
    this.publish(counts);
    if (isHeld) this.change();
  }

  publish(counts) {
    const { selected, range, boxes, arrows, node, view } = this;
    const name = selected && (selected.gap ? "gap" : selected.merged ? `merged ${selected.merged}` : this.about.names[selected.name]);
    Object.assign(node.dataset, {
      from: Math.round(view.from), to: Math.round(view.to), resolution: boxes?.resolution ?? "", ...counts, arrows: arrows.length,
      selected: name ?? "", span: selected?.span ?? "", range: range ? range.map(Math.round).join(",") : "",
    });
    this.parts.tell(this);
    this.settle();
  }

  settle() { this.node.dataset.settled = String(!this.awaited && !this.scheduled); }
}
