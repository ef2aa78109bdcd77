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
