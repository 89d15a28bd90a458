// Numbers with their units, as aorta prints them: four significant digits, sizes binary, rates decimal.

const ABSENT = "–";

const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const SIZE_UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const RATE_UNITS = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];

/** The number with four significant digits, without zeros behind the point that say nothing. */
function digits(value) {
  if (value === 0) return "0";
  const places = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return String(Number(value.toFixed(Math.min(places, 20))));
}

/** The number with the largest unit in which it is at least 1. Units are sorted from large to small. */
function inUnits(value, units) {
  if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
  const [name, size] = units.find(([, size]) => Math.abs(value) >= size) ?? units[units.length - 1];
  return `${digits(value / size)} ${name}`.trimEnd();
}

const formatTime = (ns) => inUnits(ns, TIME_UNITS);

const formatBytes = (bytes) => inUnits(bytes, SIZE_UNITS);

/** Something per second: `formatRate(3e9, "B")` is `3 GB/s`. */
const formatRate = (value, of) => inUnits(value, RATE_UNITS.map(([prefix, size]) => [`${prefix}${of}/s`, size]));

/** A value in a unit: seconds, bytes, something per second, or what is counted. */
function formatQuantity(value, unit) {
  if (unit === "s") return formatTime(value * 1e9);
  if (unit === "B") return formatBytes(value);
  if (unit.endsWith("/s")) return formatRate(value, unit === "1/s" ? "" : unit.slice(0, -2));
  if (unit === "") return digits(value);
  return Math.abs(value) < 1000 ? `${digits(value)} ${unit}` : inUnits(value, RATE_UNITS.map(([prefix, size]) => [`${prefix} ${unit}`.trim(), size]));
}

/** A share in percent: `formatShare(0.25)` is `25 %`. */
function formatShare(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return ABSENT;
  const percent = share * 100;
  return `${Math.abs(percent) < 9.95 ? Number(percent.toFixed(1)) : Math.round(percent)} %`;
}

/** The least of 1, 2, 5, 10, 20, … that is not below a number. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((size) => size >= least);
}

/** `1 operation`, `2 operations`. */
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/**
 * The text with each character that a browser would hide or obey, such as one that reverses the direction of writing,
 * in JSON's notation. Every text of a record is shown through this.
 */
function visible(text) {
  return String(text).replace(/[^\P{C}\n\t]|[\u115f\u1160\u2028\u2029\u3164\uffa0]/gu,
    (letter) => `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`);
}
