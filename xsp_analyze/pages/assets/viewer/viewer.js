// The stretch of time that is in view, and how it moves.
const MIN_VIEW = 20; // ns
const VIEW_MARGIN = 0.02; // of the run, that the view may leave free beside it
const REVEALED = 0.02; // of the view, that a found box takes at least

class ViewerWindow {
  clamp(from, to) {
    const { begin, end } = this.about;
    const margin = Math.max((end - begin) * VIEW_MARGIN, 1);
    const span = Math.min(Math.max(to - from, MIN_VIEW), end - begin + 2 * margin);
    const start = Math.min(Math.max((from + to - span) / 2, begin - margin), end + margin - span);
    return { from: start, to: start + span };
  }

  show(from, to) {
    this.view = this.clamp(from, to);
    this.change();
    this.load();
  }

  zoom(factor, share = 0.5) {
    const { from, to } = this.view;
    const anchor = from + (to - from) * share;
    const span = Math.max((to - from) / factor, MIN_VIEW);
    this.show(anchor - span * share, anchor + span * (1 - share));
  }

  moveBy(share) {
    const { from, to } = this.view;
    const by = share * (to - from);
    this.show(from + by, to + by);
  }

  centre(at) {
    const half = (this.view.to - this.view.from) / 2;
    this.show(at - half, at + half);
  }

  showAll() { this.show(this.about.begin, this.about.end); }

  reset() { this.show(...(this.about.open ?? [this.about.begin, this.about.end])); }

  // The step before or after the one in the middle of the view.
  nextStep(by) {
    const { steps } = this;
    if (!steps.length) return;
    const middle = (this.view.from + this.view.to) / 2;
    const after = steps.findIndex((step) => step.end > middle);
    const at = after < 0 ? steps.length - 1 : after;
    const { begin, end, number } = steps[Math.min(Math.max(at + by, 0), steps.length - 1)];
    this.show(begin, end);
    this.say(`Step ${number}`);
  }

  lookAt(box) {
    if (!box) return;
    const room = Math.max(box.duration, MIN_VIEW / 2) * 0.15;
    this.show(box.start - room, box.start + box.duration + room);
  }

  // Brings a box into view, unfolded; closer where it would be hard to see.
  reveal(box) {
    const { from, to } = this.view;
    const span = Math.max(Math.min(to - from, Math.max(box.duration, 1) / REVEALED), MIN_VIEW);
    if (box.start < from || box.start + box.duration > to || span < to - from) this.show(box.start + box.duration / 2 - span / 2, box.start + box.duration / 2 + span / 2);
    const { group, key } = this.about.lanes[box.lane];
    if (this.foldedGroups.delete(group) | this.folds.delete(key)) this.layOut();
    this.main.scrollTo(box);
  }
}

// What is chosen in the viewer: a box with its launches, or a range of time with its statistics; and the boxes in view.
class ViewerChoice extends ViewerWindow {
  // Boxes of the view, one question at a time; what is there already is painted meanwhile. Done when those of the last view are there.
  load() {
    this.again = true;
    this.loading ??= this.loadAll().finally(() => { this.loading = null; });
    return this.loading;
  }

  async loadAll() {
    while (this.again) {
      this.again = false;
      const { from, to } = this.view;
      const [boxes, gaps] = await this.during(Promise.all([this.source.boxes(from, to, (to - from) / Math.max(this.width || 1200, 1)), this.source.gaps(from, to)]));
      if (boxes !== this.boxes || gaps !== this.gaps) this.change();
      Object.assign(this, { boxes, gaps });
    }
  }

  // The source's answer; until it is there, what is shown is not settled.
  async during(answer) {
    this.awaited += 1;
    this.settle();
    try { return await answer; } finally { this.awaited -= 1; this.settle(); }
  }

  boxUnder(field, x, y) {
    const line = field.lineAt(y);
    if (!line || !this.boxes || line.side === "counter") return null;
    const view = this.scaled();
    const row = Math.min(Math.max(Math.floor((y + field.offset() - line.boxTop) / line.rowHeight), 0), line.rows - 1);
    return boxAtPixel(this.boxes, line.lane, row, x, view) ?? this.gapUnder(line, x, view);
  }

  gapUnder(line, x, { from, scale }) {
    const at = from + x / scale;
    for (const lane of this.gaps ? this.gapLanes.get(line.lane) ?? [] : []) {
      const [i, end] = boxesBetween(this.gaps, lane, 0, at, at + 1);
      if (i < end) return { gap: true, merged: 0, lane: line.lane, row: 0, start: this.gaps.start[i], duration: this.gaps.duration[i], cause: this.gaps.cause[i], name: -1, tone: -1, span: -1 };
    }
    return null;
  }

  // Chooses a box (null: none); `tell` says it to those who do not see it.
  async select(box, { tell = false } = {}) {
    this.selected = box && this.completed(box);
    this.arrows = [];
    this.parts.details.replaceChildren(restText());
    if (box) {
      this.tellDetails();
      if (tell) this.say(`${boxSentence(this, this.selected)}; ${this.about.lanes[box.lane].title}, ${this.about.lanes[box.lane].group}`);
      await this.during(this.findArrows(this.selected));
      if (this.selected && this.arrows.length) this.tellDetails();
    }
    this.change();
  }

  tellDetails() {
    this.parts.details.replaceChildren(...boxDetails(this, this.selected).filter(Boolean));
  }

  // A hit of a search has fewer facts than its box where that is loaded.
  completed(box) {
    if (box.tone >= 0 || box.gap || !this.boxes) return box;
    const [first, last] = boxesBetween(this.boxes, box.lane, box.row, box.start, box.start + Math.max(box.duration, 1));
    for (let i = first; i < last; i += 1) if (this.boxes.start[i] === box.start && this.boxes.duration[i] === box.duration) return boxAt(this.boxes, i);
    return { ...box, tone: Math.max(box.tone, 0) };
  }

  async findArrows(box) {
    if (box.merged || box.gap) return;
    const { from, to } = this.view;
    const [flows, boxes] = await Promise.all([this.source.flows(from, to), this.source.exact?.(from, to) ?? this.boxes]);
    if (this.selected === box) this.arrows = arrowsOf(boxes, flows, box);
  }

  // Moves the selection along its row or to another row or lane.
  step(along, across) {
    const next = neighbour(this, this.selected, along, across);
    if (!next) return;
    const { from, to } = this.view;
    if (next.start + next.duration < from || next.start > to) this.centre(next.start + next.duration / 2);
    this.main.scrollTo(next);
    this.select(next, { tell: true });
  }

  goTo(lane, at) {
    const box = deepestAt(this.boxes, lane, at);
    this.reveal(box ?? { lane, row: 0, start: at, duration: 0 });
    if (box) this.select(box, { tell: true });
  }

  // Ranges

  // `done`: the statistics are worked out; while a range is drawn they are not. null: none.
  async selectRange(from, to, done) {
    this.range = from === null ? null : [Math.max(Math.min(from, to), this.about.begin), Math.min(Math.max(from, to), this.about.end)];
    this.change();
    if (!this.range || !done) { if (!this.range) this.parts.statistics.replaceChildren(); return; }
    const range = this.range;
    const answer = await this.during(this.source.statistics(...range));
    if (this.range !== range) return;
    this.parts.statistics.replaceChildren(...statisticsPanel(this, range, answer).filter(Boolean));
    this.say(`Statistics of ${time(range[1] - range[0])}`);
  }

  extendRange(share) {
    const { from, to } = this.view;
    const start = this.selected?.start ?? (from + to) / 2;
    const [begin, end] = this.range ?? [start, this.selected ? start + this.selected.duration : start];
    this.selectRange(begin, Math.max(end + share * (to - from), begin + 1), true);
  }

  measure() {
    const { from, to } = this.view;
    const box = this.selected;
    this.selectRange(...(box ? [box.start, box.start + Math.max(box.duration, 1)] : [from, to]), true);
  }

  // Lets go of what is chosen, one thing at a time.
  leave() {
    if (!this.parts.help.node.hidden) this.parts.help.toggle(false);
    else if (this.range) this.selectRange(null);
    else if (this.selected) this.select(null);
    else if (this.matches) this.search.find("");
    else this.reset();
  }
}

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
      selected: null, hover: null, range: null, ranging: false, narrow: false, pins: [], folds: new Set(), foldedGroups: groupsFoldedAtFirst(about),
      pointerX: null, scheduled: false, awaited: 0, loading: null, again: false, view: null,
    });
    this.view = this.clamp(...(about.open ?? [about.begin, about.end]));
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
    if (!this.colours) this.resize(); // a page opened by a link is followed before it was measured
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
