// Numbers as text.

/** @param {number | null | undefined} value @param {number} [digits] */
export function fixed(value, digits = 3) {
  return value === null || value === undefined || Number.isNaN(value) ? "–" : minus(value.toFixed(digits).replace(/^-(?=[0.]*$)/, ""));
}

/** @param {number | null | undefined} value @param {number} [digits] */
export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return (value >= 0 ? "+" : "") + fixed(value, digits);
}

/** @param {number | null | undefined} share @param {number} [digits] */
export function percent(share, digits = 1) {
  return share === null || share === undefined ? "–" : `${fixed(100 * share, digits)} %`;
}

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en");
}

/**
 * A value of any size in a few characters.
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return minus(`${trim((value / 1e9).toPrecision(3))}G`);
  if (size >= 1e6) return minus(`${trim((value / 1e6).toPrecision(3))}M`);
  if (size >= 1e4) return minus(`${trim((value / 1e3).toPrecision(3))}k`);
  if (size < 1e-3) return minus(value.toExponential(1));
  return minus(trim(value.toPrecision(size >= 1000 ? 4 : 3)));
}

/** @param {string} text */
function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

/** @param {string} text */
export function minus(text) {
  return text.replace(/^-/, "−").replace("e-", "e−");
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * A singular or plural noun with its number.
 * @param {number} n
 * @param {string} noun
 */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** @param {number[]} path */
export function turnPath(path) {
  return path.join(".");
}
