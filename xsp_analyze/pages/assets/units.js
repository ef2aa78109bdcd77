// Numbers as people read them. Columns come with their scale; only trees and charts choose one here.
const UNKNOWN = "-";
const TIME = [[1e10, "s", 1e9], [1e7, "ms", 1e6], [1e4, "\u00b5s", 1e3], [0, "ns", 1]];
const fixed = new Map();

function formatter(decimals, grouped) {
  const key = `${decimals}/${grouped}`;
  if (!fixed.has(key)) {
    fixed.set(key, new Intl.NumberFormat("en-US", {
      minimumFractionDigits: decimals, maximumFractionDigits: decimals, useGrouping: grouped,
    }));
  }
  return fixed.get(key);
}

// A value too small for its decimals is shown as below the least one, never as 0.
function shown(value, scale) {
  if (value === null || value === undefined) return UNKNOWN;
  const decimals = scale.decimals ?? 3;
  const scaled = value / scale.divisor;
  const least = 10 ** -decimals;
  const format = formatter(decimals, scale.grouped ?? true);
  if (scaled !== 0 && Math.abs(scaled) < least / 2) return (scaled > 0 ? "<" : ">-") + format.format(least);
  return format.format(scaled);
}

function exact(value, unit) {
  if (value === null || value === undefined) return "unknown";
  return `${formatter(Number.isInteger(value) ? 0 : 3, true).format(value)} ${unit}`.trim();
}

function timeScale(largest) {
  const [, unit, divisor] = TIME.find(([least]) => Math.abs(largest) >= least);
  return { unit, divisor, decimals: divisor === 1 ? 0 : 3 };
}

function time(value) {
  const scale = timeScale(value * 10);
  return `${shown(value, scale)} ${scale.unit}`;
}

function percent(share) {
  return `${shown(share, { divisor: 0.01, decimals: 1 })} %`;
}
