// The stretch of time that is in view, and how it moves.
const MIN_VIEW = 20; // ns
const VIEW_MARGIN = 0.02; // of the run, that the view may leave free beside it
const REVEALED = 0.02; // of the view, that a found box takes at least

class ViewerWindow {
  bounded(from, to) {
    const { begin, end } = this.about;
    const margin = Math.max((end - begin) * VIEW_MARGIN, 1);
    const span = Math.min(Math.max(to - from, MIN_VIEW), end - begin + 2 * margin);
    const start = Math.min(Math.max((from + to - span) / 2, begin - margin), end + margin - span);
    return { from: start, to: start + span };
  }

  show(from, to) {
    this.view = this.bounded(from, to);
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
