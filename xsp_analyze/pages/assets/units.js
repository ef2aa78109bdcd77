// Numbers as people read them, as `text/units.py` has it: three digits that count, thin spaces, the unit that suits.
// Columns come with their scale; only trees and charts choose one here.
const UNKNOWN = "-";
const THIN = "\u202f"; // narrow, and no line is broken at it

const { apart, axisMark, count, countOf, exact, percent, quantity, scaleFor, numberText, time, timeScale, withUnit } = (() => {
  const MOST_DECIMALS = 4;
  const MOST_APART = 9;
  const thousands = (prefixes, unit) => [...prefixes].map((prefix, place) => [`${prefix.trim()}${unit}`, 10 ** (3 * (prefixes.length - 1 - place))]);
  const LADDERS = {
    ns: [["s", 1e9], ["ms", 1e6], ["\u00b5s", 1e3], ["ns", 1]],
    byte: [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]],
    flop: thousands("PTGMk ", "FLOP"),
    "flop/s": thousands("PTGMk ", "FLOP/s"),
    "byte/s": thousands("TGMk ", "B/s"),
    Hz: thousands("GMk ", "Hz"),
    "%": [["%", 1]],
    share: [["%", 0.01]],
  };

  // The scale in which so much reads with one to three digits before the point, once rounded.
  function scaleFor(unit, largest) {
    const ladder = LADDERS[unit] ?? [[unit, 1]];
    const found = ladder.findIndex((_, place) => place + 1 === ladder.length || Math.abs(largest) >= 999.5 * ladder[place + 1][1]);
    return { unit: ladder[found][0], divisor: ladder[found][1], decimals: null };
  }

  const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);
  const groupDigits = (text) => text.replace(/^(-?)(\d+)/, (_, sign, digits) => sign + digits.replace(/\B(?=(?:\d{3})+$)/g, THIN));
  const power = (value, digits) => Number(Math.abs(value).toExponential(digits).split("e")[1]);
  const threeDigits = (value) => Math.min(Math.max(2 - power(value, 2), 0), MOST_DECIMALS);

  // A value too small for its decimals is shown as below the least one, never as 0. Without decimals: three digits that count.
  function figures(value, decimals, apart = true) {
    if (value === 0) return decimals === null ? "0" : (0).toFixed(decimals);
    const fraction = decimals ?? threeDigits(value);
    const least = Number(`1e-${fraction}`);
    if (Math.abs(value) < least / 2) return (value > 0 ? "<" : ">-") + least.toFixed(fraction);
    const text = value.toFixed(fraction);
    return apart ? groupDigits(text) : text;
  }

  function numberText(value, scale) {
    return isKnown(value) ? figures(value / scale.divisor, scale.decimals ?? null, scale.grouped ?? true) : UNKNOWN;
  }

  const withUnit = (value, scale) => (isKnown(value) && scale.unit ? `${numberText(value, scale)}${THIN}${scale.unit}` : numberText(value, scale));

  // Without decimals where the numbers are shown as they are and none of them has any.
  function whole(scale, values) {
    return scale.divisor === 1 && scale.unit !== "%" && values.every((value) => !isKnown(value) || Number.isInteger(value)) ? { ...scale, decimals: 0 } : scale;
  }

  // A single quantity whose unit at rest is given: ns, byte, flop, flop/s, byte/s, Hz, %, share; others stay as they are.
  function quantity(value, unit) {
    if (!isKnown(value)) return UNKNOWN;
    const scale = scaleFor(unit, value);
    return withUnit(value, unit in LADDERS ? whole(scale, [value]) : scale);
  }

  const time = (value) => quantity(value, "ns");
  const percent = (share) => quantity(share, "share");

  // A number of things; of a mean step perhaps a broken one.
  function count(value) {
    if (!isKnown(value)) return UNKNOWN;
    if (Number.isInteger(value)) return figures(value, 0);
    const text = figures(value, null);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  // `1 copy`, `2 copies`.
  const countOf = (value, one, many) => `${count(value)} ${value === 1 ? one : many}`;

  // Values that are compared, in one unit: with as many digits as the least difference among them needs.
  function apart(values, unit) {
    const scale = whole(scaleFor(unit, Math.max(0, ...values.filter(isKnown).map(Math.abs))), values);
    const sorted = [...new Set(values.filter(isKnown).map((value) => value / scale.divisor))].sort((a, b) => a - b);
    const steps = sorted.slice(1).map((value, place) => value - sorted[place]);
    if (scale.decimals === 0 || !steps.length) return values.map((value) => withUnit(value, scale));
    const needed = Math.min(1 - power(Math.min(...steps), 1), MOST_APART);
    return values.map((value) => withUnit(value, isKnown(value) && value ? { ...scale, decimals: Math.max(threeDigits(value / scale.divisor), needed) } : scale));
  }

  // The value as it is stored, in its unit at rest.
  function exact(value, unit) {
    if (value === null || value === undefined) return "unknown";
    return `${groupDigits(String(value))}${unit ? THIN + unit : ""}`;
  }

  // One scale for marks on an axis and charts: kept small enough that short entries do not vanish.
  const timeScale = (largest) => whole(scaleFor("ns", largest / 10), [largest]);

  // A mark on an axis: a round number, with no more digits than it has.
  const axisMark = (value, scale) => `${groupDigits(String(+(value / scale.divisor).toPrecision(6)))}${scale.unit ? THIN + scale.unit : ""}`;

  return { apart, axisMark, count, countOf, exact, percent, quantity, scaleFor, numberText, time, timeScale, withUnit };
})();
