// Colours and cut names for canvases: the page's own variables as the theme (or paper) has them now, and widths measured once.
const VIEWER_FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const VIEWER_INKS = ["#14161a", "#ffffff"];
const MIN_CUT_TEXT = 3; // letters left of a cut name, else none

// Custom properties hold light-dark(...) as text; a color that uses one is resolved.
function viewerColours(node, tones, causes) {
  const probe = make("span", { hidden: true });
  node.append(probe);
  const colour = (value) => {
    probe.style.color = "";
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const toned = (tone) => colour(`var(--c-${tone}, var(--${tone}, var(--others)))`);
  const colours = {
    tones: tones.map(toned), causes: causes.map(({ tone }) => toned(tone)), device: toned("idle-unknown"), other: toned("other"),
    ...Object.fromEntries(["paper", "raised", "ink", "muted", "rule", "accent", "tint", "error"].map((name) => [name, colour(`var(--${name})`)])),
  };
  probe.remove();
  colours.inks = colours.tones.map((value) => VIEWER_INKS[Number(luminance(value) < 0.197)]);
  return colours;
}

// Relative luminance of rgb(...), as WCAG defines it.
function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// `cut(text, width)`: as much of the text as fits, with an ellipsis where it is less than all; "" where too little would be left.
function textCutter(context) {
  const widths = new Map();
  const widthOf = (text) => {
    let width = widths.get(text);
    if (width === undefined) {
      width = context.measureText(text).width;
      widths.set(text, width);
    }
    return width;
  };
  return (text, width) => {
    const full = widthOf(text);
    if (full <= width) return text;
    for (let letters = Math.floor((text.length * width) / full) - 1; letters >= MIN_CUT_TEXT; letters -= 1) {
      const shorter = `${text.slice(0, letters)}\u2026`;
      if (widthOf(shorter) <= width) return shorter;
    }
    return "";
  };
}
