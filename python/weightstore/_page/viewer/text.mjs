// Text for people: sizes, counts, numbers and names.

const SIZE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const COUNT_UNITS = ["", " K", " M", " B", " T"];

/** Three or so digits and a unit of powers of 1000. */
function scaled(value, units) {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return value.toFixed(digits) + (units === SIZE_UNITS ? " " : "") + units[unit];
}

/** "1.23 MB". */
export function sizeText(bytes) {
  return scaled(bytes, SIZE_UNITS);
}

/** "1.23 M". */
export function countText(count) {
  return scaled(count, COUNT_UNITS);
}

/** "1,234,567". Takes a number, or the decimal digits of one that is too large to be exact. */
export function exactText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "4096 × 11008", or "scalar". */
export function shapeText(shape) {
  return shape.length === 0 ? "scalar" : shape.join(" × ");
}

/** Four significant digits of a value of a tensor. */
export function numberText(value) {
  const number = Number(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number < 0 ? "−∞" : "∞";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text = size >= 1e6 || size < 1e-4 ? number.toExponential(3) : String(Number(number.toPrecision(4)));
  return text.replace("-", "−").replace("e-", "e−").replace("e+", "e");
}

/** "12.3 %"; never "0 %" or "100 %" of what is neither. */
export function shareText(part, whole) {
  if (!(whole > 0) || part === 0) return "0 %";
  if (part === whole) return "100 %";
  const percent = (100 * part) / whole;
  if (percent < 0.1) return "< 0.1 %";
  if (percent > 99.9) return "> 99.9 %";
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

/** "1 tensor", "2 tensors". */
export function plural(count, noun) {
  return `${exactText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// Control characters, marks that reorder or hide text, and lone halves of surrogate pairs.
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A name as it is shown: characters that nobody sees, or that change the order of others, become `\u{202e}`. */
export function printable(name) {
  return name.replace(UNPRINTABLE, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

/** A Python string literal of a name. */
export function pythonText(name) {
  const escaped = name.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n").replace(/\t/g, "\\t").replace(/\r/g, "\\r");
  return `"${escaped.replace(UNPRINTABLE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}"`;
}
