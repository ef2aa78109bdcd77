// Which lane stands where: groups under their headings, pinned lanes on top, folded ones in one line.
const VIEWER_GUTTER = 188; // left of the boxes, for headings; 0 where the page is narrow: then they stand above
const VIEWER_NARROW = 620;
const VIEWER_LINE = 26; // the least height of a lane: its buttons are 24 px
const VIEWER_ROW = { host: 15, device: 20, counter: 34 };
const VIEWER_GROUP_LINE = 28;
const VIEWER_MAX_FOLDED = 12; // rows of a folded lane, lanes of a folded group, that still have a line of their own

// Lanes of each group, in order.
function laneGroups(about) {
  const groups = new Map();
  about.lanes.forEach((lane, index) => {
    if (!groups.has(lane.group)) groups.set(lane.group, []);
    groups.get(lane.group).push(index);
  });
  return groups;
}

// Of several ranks, the host's threads are folded but for the first; so are more lanes than a window shows.
function foldedAtFirst(about) {
  const groups = [...laneGroups(about)].filter(([, lanes]) => about.lanes[lanes[0]].side === "host");
  return new Set(groups.slice(1).map(([group]) => group));
}

// `pinned` and `scrolled`: lines from top to bottom, each a group's heading or a lane, and the height of all.
function laneLayout(about, { pins, folds, foldedGroups, narrow }) {
  const pinned = new Stack();
  for (const key of pins) {
    const index = about.lanes.findIndex((lane) => lane.key === key);
    if (index >= 0) pinned.lane(about, index, folds.has(key), narrow, true);
  }
  const scrolled = new Stack();
  for (const [group, lanes] of laneGroups(about)) {
    const shown = lanes.filter((index) => !pins.includes(about.lanes[index].key));
    if (!shown.length) continue;
    if (foldedGroups.has(group)) scrolled.foldedGroup(about, group, shown, narrow);
    else {
      scrolled.group(group, shown);
      for (const index of shown) scrolled.lane(about, index, folds.has(about.lanes[index].key), narrow, false);
    }
  }
  return { pinned, scrolled };
}

// Lines one under the other. A line has `top` and `height`; that of a lane also `boxTop`, `rowHeight` and `rows`.
class Stack {
  constructor() {
    this.lines = [];
    this.height = 0;
  }

  push(line, height) {
    this.lines.push({ ...line, top: this.height, height });
    this.height += height;
  }

  group(group, lanes) {
    this.push({ kind: "group", group, lanes, folded: false }, VIEWER_GROUP_LINE);
  }

  // A heading with one thin line a lane beside it, or below where the page is narrow.
  foldedGroup(about, group, lanes, narrow) {
    const top = this.height;
    const below = narrow ? VIEWER_GROUP_LINE : 0;
    const thin = lanes.slice(0, VIEWER_MAX_FOLDED);
    this.push({ kind: "group", group, lanes, folded: true }, VIEWER_GROUP_LINE + (narrow ? 20 : 0));
    const rowHeight = (narrow ? 16 : VIEWER_GROUP_LINE - 6) / thin.length;
    thin.forEach((lane, n) => {
      this.lines.push({ kind: "thin", lane, top: top + below + 3 + n * rowHeight, height: rowHeight, boxTop: top + below + 3 + n * rowHeight, rowHeight, rows: 1, side: about.lanes[lane].side });
    });
  }

  lane(about, index, folded, narrow, pinned) {
    const { side, rows, key, title, group } = about.lanes[index];
    const above = narrow ? 24 : 2;
    const shownRows = side === "counter" ? 1 : Math.max(rows, 1);
    const rowHeight = folded ? Math.max((VIEWER_LINE - 6) / Math.min(shownRows, VIEWER_MAX_FOLDED), 1) : VIEWER_ROW[side] ?? VIEWER_ROW.host;
    const taken = folded ? VIEWER_LINE - 6 : shownRows * rowHeight;
    const kept = folded ? Math.min(shownRows, VIEWER_MAX_FOLDED) : shownRows;
    const top = this.height;
    this.push({ kind: "lane", lane: index, key, title, group, side, folded, pinned, boxTop: top + above, rowHeight, rows: kept }, Math.max(taken + above + 4, VIEWER_LINE + (narrow ? 18 : 0)));
  }
}

// The line of a lane that is drawn (thin lines of folded groups too), by lane.
function linesByLane(stack) {
  return new Map(stack.lines.filter((line) => line.kind !== "group").map((line) => [line.lane, line]));
}
