// Line charts in SVG, with one crosshair for all charts of a page.

import { h, svg, fill, num, table } from "./dom.js";
import { short, fixed } from "./format.js";

/**
 * @typedef {{name: string, steps: number[], values: (number | null)[], points?: boolean, low?: (number | null)[],
 *   high?: (number | null)[]}} Line a line, or points, with the range of each value
 * @typedef {{title: string, lines: Line[], zero?: boolean, max?: number, axis?: string,
 *   onstep?: (step: number) => void}} Spec `axis`: what the horizontal axis counts, if not steps
 */

/** What all charts of a page share. */
/** @type {{smooth: number, log: boolean, zoom: [number, number] | null}} */
export const view = { smooth: 0, log: false, zoom: null };

/** @type {Set<Chart>} */
const charts = new Set();

/** Forgets the charts of the last page. */
export function clear() {
  charts.clear();
  view.zoom = null;
}

/** Draws every chart again. */
export function redraw() {
  for (const chart of charts) chart.draw();
}

/** @param {number | null} step */
function crosshair(step) {
  for (const chart of charts) chart.mark(step);
}

const observer = new ResizeObserver((entries) => {
  for (const entry of entries) {
    for (const chart of charts) if (chart.element === entry.target) chart.resized();
  }
});

const LEFT = 44;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const HEIGHT = 150;

export class Chart {
  /** @param {Spec} spec */
  constructor(spec) {
    this.spec = spec;
    this.width = 0;
    /** @type {number | null} */
    this.at = null;
    /** @type {ReturnType<typeof shown>[]} What is drawn, and where. */
    this.lines = [];
    /** @type {number[]} Steps of all lines. */
    this.steps = [];
    /** @type {(value: number) => number} */
    this.x = () => 0;
    /** @type {(value: number) => number} */
    this.y = () => 0;
    /** @type {SVGElement | null} */
    this.cross = null;
    /** @type {SVGElement[]} */
    this.dots = [];
    this.legend = h("div", { class: "legend" });
    this.plot = h("div", { class: "plot", title: spec.onstep && "click: what changed in this step" });
    this.table = h("div", { class: "chart-table", hidden: true });
    const tools = h(
      "span",
      { class: "tools" },
      h("button", { class: "quiet", onclick: () => this.toggleTable() }, "table"),
      h("button", { class: "quiet", onclick: () => this.copy(csv(this.spec)) }, "CSV"),
      h("button", { class: "quiet", onclick: () => this.copy(this.standalone()) }, "SVG"),
    );
    this.element = h(
      "figure",
      { class: `chart${spec.onstep ? " steps" : ""}`, "data-title": spec.title },
      h("figcaption", {}, h("span", { class: "chart-title" }, spec.title), tools),
      this.legend,
      this.plot,
      this.table,
    );
    charts.add(this);
    observer.observe(this.element);
  }

  /** Takes the chart out of the page's charts. */
  remove() {
    charts.delete(this);
    observer.unobserve(this.element);
  }

  /** @param {Line[]} lines */
  update(lines) {
    this.spec.lines = lines;
    this.draw();
  }

  resized() {
    const width = Math.floor(this.plot.clientWidth);
    if (width > 0 && width !== this.width) {
      this.width = width;
      this.draw();
    }
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.plot.hidden = !this.table.hidden;
    if (!this.table.hidden) fill(this.table, tabular(this.spec));
  }

  /** @param {string} text */
  async copy(text) {
    await navigator.clipboard.writeText(text);
  }

  /** The chart as a file of its own, with its colors. */
  standalone() {
    const drawn = this.plot.querySelector("svg");
    if (!drawn) return "";
    const copy = /** @type {SVGElement} */ (drawn.cloneNode(true));
    const originals = drawn.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, i) => {
      const computed = getComputedStyle(originals[i]);
      for (const name of ["stroke", "fill", "stroke-width", "stroke-dasharray", "font-size", "font-family"]) {
        element.setAttribute(name, computed.getPropertyValue(name));
      }
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return new XMLSerializer().serializeToString(copy);
  }

  draw() {
    if (this.width === 0) return this.resized();
    const lines = this.spec.lines.map((line) => shown(line));
    this.steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
    const low = view.zoom ? view.zoom[0] : (this.steps[0] ?? Infinity);
    const high = view.zoom ? view.zoom[1] : (this.steps.at(-1) ?? -Infinity);
    this.x = scale(low, Math.max(high, low + 1), LEFT, this.width - RIGHT);
    const y = vertical(lines, this.spec, low, high);
    this.y = y.at;
    this.lines = lines;
    const cross = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    const dots = lines.map((_, i) => svg("circle", { class: `dot c${i % 6}`, r: 3, visibility: "hidden" }));
    [this.cross, this.dots] = [cross, dots];
    const clip = `clip-${this.spec.title.replace(/[^a-zA-Z0-9]/g, "-")}`;
    const drawn = svg(
      "svg",
      {
        width: this.width,
        height: HEIGHT,
        viewBox: `0 0 ${this.width} ${HEIGHT}`,
        role: "img",
        tabindex: 0,
        "aria-label": `${this.spec.title}: ${lines.map((line) => `${line.name} ${short(last(line))}${this.ended(line) || ""}`).join(", ")}`,
      },
      svg("clipPath", { id: clip }, svg("rect", { x: LEFT - 4, y: 0, width: Math.max(this.width - LEFT - RIGHT + 8, 1), height: HEIGHT })),
      y.ticks.map((tick) => [
        svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y.at(tick), y2: y.at(tick) }),
        svg("text", { class: "tick", x: LEFT - 6, y: y.at(tick) + 3.5, "text-anchor": "end" }, y.label(tick)),
      ]).flat(),
      ticks(low, high, Math.max(3, Math.floor(this.width / 80)), true).map((tick) =>
        svg("text", { class: "tick", x: this.x(tick), y: HEIGHT - 5, "text-anchor": "middle" }, this.spec.axis ? short(tick) : String(tick)),
      ),
      svg("g", { "clip-path": `url(#${clip})` }, lines.map((line, i) => path(line, i, this.x, y.at, this.width)).flat(), cross, dots),
    );
    drawn.addEventListener("pointermove", (event) => this.moved(/** @type {PointerEvent} */ (event)));
    drawn.addEventListener("pointerleave", () => crosshair(null));
    drawn.addEventListener("pointerdown", (event) => this.down(/** @type {PointerEvent} */ (event)));
    drawn.addEventListener("pointerup", (event) => this.up(/** @type {PointerEvent} */ (event)));
    drawn.addEventListener("dblclick", () => zoomed(null));
    drawn.addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)));
    fill(this.plot, drawn);
    if (!this.table.hidden) fill(this.table, tabular(this.spec));
    this.mark(this.at);
  }

  /** @param {PointerEvent} event */
  step(event) {
    const box = this.plot.getBoundingClientRect();
    const at = event.clientX - box.left;
    let best = null;
    for (const step of this.steps) {
      if (best === null || Math.abs(this.x(step) - at) < Math.abs(this.x(best) - at)) best = step;
    }
    return best;
  }

  /** @param {PointerEvent} event */
  moved(event) {
    crosshair(this.step(event));
  }

  /** @param {PointerEvent} event */
  down(event) {
    this.from = { step: this.step(event), x: event.clientX };
  }

  /** @param {PointerEvent} event */
  up(event) {
    const [from, step] = [this.from, this.step(event)];
    this.from = undefined;
    if (!from || from.step === null || step === null) return;
    if (Math.abs(event.clientX - from.x) < 5) this.spec.onstep?.(step);
    else if (from.step !== step) zoomed([Math.min(from.step, step), Math.max(from.step, step)]);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { steps } = this;
    const at = this.at === null ? -1 : steps.indexOf(this.at);
    const moves = { ArrowRight: at + 1, ArrowLeft: at === -1 ? steps.length - 1 : at - 1, Home: 0, End: steps.length - 1 };
    if (event.key === "Enter" && this.at !== null) return this.spec.onstep?.(this.at);
    if (event.key === "Escape") return zoomed(null);
    if (!(event.key in moves)) return;
    event.preventDefault();
    crosshair(steps[Math.min(Math.max(moves[/** @type {keyof typeof moves} */ (event.key)], 0), steps.length - 1)] ?? null);
  }

  /**
   * The place of a step in a line. Lines over another axis have no equal places: the last one before it counts.
   * @param {{steps: number[]}} line
   * @param {number} step
   */
  place(line, step) {
    if (!this.spec.axis) return line.steps.indexOf(step);
    return step > (line.steps.at(-1) ?? -Infinity) ? -1 : line.steps.findLastIndex((of) => of <= step);
  }

  /**
   * The last step of a line that ends before the others.
   * @param {{steps: number[]}} line
   */
  ended(line) {
    const end = line.steps.at(-1);
    return end !== undefined && end !== this.steps.at(-1) && ` (${this.spec.axis ? "" : "step "}${short(end)})`;
  }

  /** @param {number | null} step */
  mark(step) {
    this.at = step;
    const lines = this.lines;
    const places = lines.map((line) => (step === null ? line.raw.length - 1 : this.place(line, step)));
    const values = lines.map((line, i) => line.raw[places[i]] ?? null);
    fill(
      this.legend,
      lines.map((line, i) =>
        h("span", { class: "entry" }, swatch(i, line.points), h("span", { class: "entry-name" }, line.name), " ",
          h("b", {}, short(values[i])), step === null && this.ended(line)),
      ),
      step !== null && h("span", { class: "entry muted" }, this.spec.axis ? `${short(step)} ${this.spec.axis}` : `step ${step}`),
    );
    if (!this.cross) return;
    const visible = step !== null && places.some((at) => at >= 0);
    this.cross.setAttribute("visibility", visible ? "visible" : "hidden");
    if (visible && step !== null) {
      this.cross.setAttribute("x1", String(this.x(step)));
      this.cross.setAttribute("x2", String(this.x(step)));
    }
    lines.forEach((line, i) => {
      const value = step === null ? undefined : line.values[places[i]];
      const dot = this.dots[i];
      dot.setAttribute("visibility", value === undefined ? "hidden" : "visible");
      if (value !== undefined) {
        dot.setAttribute("cx", String(this.x(line.steps[places[i]])));
        dot.setAttribute("cy", String(this.y(value)));
      }
    });
  }
}

/** @param {[number, number] | null} range */
function zoomed(range) {
  view.zoom = range;
  redraw();
}

/**
 * The line without missing values, smoothed.
 * @param {Line} line
 */
function shown(line) {
  const places = line.steps.map((_, i) => i).filter((i) => line.values[i] !== null && line.values[i] !== undefined);
  const steps = places.map((i) => line.steps[i]);
  const raw = places.map((i) => /** @type {number} */ (line.values[i]));
  const values = view.smooth > 0 && !line.points ? smoothed(raw, view.smooth) : raw;
  const range = places.map((i) => [line.low?.[i] ?? null, line.high?.[i] ?? null]);
  return { ...line, steps, raw, values, range };
}

/**
 * Means over a window around each value.
 * @param {number[]} values
 * @param {number} window
 */
function smoothed(values, window) {
  return values.map((_, i) => {
    const part = values.slice(Math.max(0, i - window), i + window + 1);
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}

/** @param {{raw: number[]}} line */
function last(line) {
  return line.raw.length ? line.raw[line.raw.length - 1] : null;
}

/**
 * @param {number} from
 * @param {number} to
 * @param {number} low
 * @param {number} high
 */
function scale(from, to, low, high) {
  return (/** @type {number} */ value) => low + ((value - from) / (to - from || 1)) * (high - low);
}

/**
 * @param {ReturnType<typeof shown>[]} lines
 * @param {Spec} spec
 * @param {number} from
 * @param {number} to
 */
function vertical(lines, spec, from, to) {
  const all = lines.flatMap((line) => line.raw.flatMap((value, i) => (line.steps[i] >= from && line.steps[i] <= to ? [value, ...line.range[i].filter((end) => end !== null)] : [])));
  const positive = all.filter((value) => value > 0);
  const log = view.log && positive.length > 0 && positive.length === all.length;
  const forward = (/** @type {number} */ value) => (log ? Math.log10(value) : value);
  let low = all.reduce((a, b) => Math.min(a, b), Infinity);
  let high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  if (spec.zero && !log) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (spec.max !== undefined && !log) high = Math.max(high, spec.max);
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  const [a, b] = [forward(low), forward(high)];
  const pad = spec.zero && low >= 0 ? 0 : (b - a) * 0.04;
  const inner = scale(a - pad, b + (b - a) * 0.04, HEIGHT - BOTTOM, TOP);
  const found = log
    ? ticks(a, b, 3, false).map((tick) => 10 ** tick)
    : ticks(low, high, 4, false);
  const digits = Math.max(0, Math.min(4, -Math.floor(Math.log10((found[1] ?? high) - (found[0] ?? low) || 1) + 1e-9)));
  const plain = !log && Math.abs(high) < 1000 && high - low >= 1e-3;
  return {
    at: (/** @type {number} */ value) => inner(forward(value)),
    ticks: found,
    label: (/** @type {number} */ value) => (plain ? fixed(value, digits) : short(value)),
  };
}

/**
 * Round numbers in a range.
 * @param {number} low
 * @param {number} high
 * @param {number} n
 * @param {boolean} whole
 */
function ticks(low, high, n, whole) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [];
  if (high === low) return [low];
  const raw = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const wide = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw) ?? raw;
  const step = whole ? Math.max(1, Math.round(wide)) : wide;
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + step * 1e-9; tick++) found.push(tick * step);
  return found;
}

/**
 * The marks of a line. Where there are more values than pixels, each pixel column shows its lowest and highest.
 * @param {ReturnType<typeof shown>} line
 * @param {number} i
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} width
 */
function path(line, i, x, y, width) {
  if (line.points) {
    return line.steps.flatMap((step, k) => [
      line.range[k][0] !== null && svg("line", { class: `whisker c${i % 6}`, x1: x(step), x2: x(step), y1: y(/** @type {number} */ (line.range[k][0])), y2: y(/** @type {number} */ (line.range[k][1])) }),
      svg("circle", { class: `point c${i % 6}`, cx: x(step), cy: y(line.values[k]), r: 2.5 }),
    ]);
  }
  const known = line.steps.flatMap((step, k) => (line.range[k][0] === null ? [] : [{ step, low: /** @type {number} */ (line.range[k][0]), high: /** @type {number} */ (line.range[k][1]) }]));
  const corner = (/** @type {number} */ step, /** @type {number} */ value) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`;
  const band = known.length > 1 && svg("path", { class: `band c${i % 6}`, d: `M${known.map((of) => corner(of.step, of.high)).join("L")}L${known.reverse().map((of) => corner(of.step, of.low)).join("L")}Z` });
  const draw = (/** @type {number[]} */ values, /** @type {string} */ name) =>
    svg("path", { class: `${name} c${i % 6}`, d: outline(line.steps, values, x, y, width) });
  const main = draw(line.values, "line");
  const lone = line.steps.length === 1
    ? [svg("circle", { class: `point c${i % 6}`, cx: x(line.steps[0]), cy: y(line.values[0]), r: 2.5 })]
    : [];
  return [band, view.smooth > 0 && draw(line.raw, "raw"), main, ...lone];
}

/**
 * @param {number[]} steps
 * @param {number[]} values
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} width
 */
export function outline(steps, values, x, y, width) {
  const point = (/** @type {number} */ step, /** @type {number} */ value) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`;
  if (steps.length <= 2 * width) return steps.map((step, k) => (k ? "L" : "M") + point(step, values[k])).join("");
  /** @type {Map<number, [number, number]>} */
  const columns = new Map();
  steps.forEach((step, k) => {
    const column = Math.round(x(step));
    const [low, high] = columns.get(column) ?? [Infinity, -Infinity];
    columns.set(column, [Math.min(low, values[k]), Math.max(high, values[k])]);
  });
  const parts = [...columns].map(([column, [low, high]], k) =>
    `${k ? "L" : "M"}${column},${y(low).toFixed(1)}L${column},${y(high).toFixed(1)}`);
  return parts.join("");
}

/** @param {number} i @param {boolean} [points] */
function swatch(i, points) {
  return svg(
    "svg",
    { class: "swatch", width: 18, height: 8, "aria-hidden": "true" },
    points
      ? svg("circle", { class: `point c${i % 6}`, cx: 9, cy: 4, r: 2.5 })
      : svg("line", { class: `line c${i % 6}`, x1: 0, x2: 18, y1: 4, y2: 4 }),
  );
}

/** @param {Line[]} lines @returns {(number | null)[][]} */
function rows(lines) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  return steps.map((step) => [step, ...lines.map((line) => line.values[line.steps.indexOf(step)] ?? null)]);
}

/** @param {Spec} spec */
function tabular({ lines, axis }) {
  return table([axis ?? "step", ...lines.map((line) => line.name)], rows(lines).map((row) => h("tr", {}, row.map((value) => num(value ?? "–")))), 0);
}

/** @param {Spec} spec */
function csv({ lines, axis }) {
  const quoted = (/** @type {string} */ name) => (/[",]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
  const head = [axis ?? "step", ...lines.map((line) => quoted(line.name))].join(",");
  return [head, ...rows(lines).map((row) => row.map((value) => value ?? "").join(","))].join("\n") + "\n";
}

/**
 * A line without axes.
 * @param {number[]} steps
 * @param {(number | null)[]} values
 */
export function spark(steps, values) {
  const line = shown({ name: "", steps, values });
  const [width, height] = [88, 20];
  const low = line.values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = line.values.reduce((a, b) => Math.max(a, b), -Infinity);
  const x = scale(line.steps[0] ?? 0, line.steps[line.steps.length - 1] ?? 1, 1, width - 1);
  const y = low === high ? () => height / 2 : scale(low, high, height - 2, 2);
  return svg(
    "svg",
    { class: "spark", width, height, "aria-hidden": "true" },
    svg("path", { class: "line c0", d: outline(line.steps, line.values, x, y, width) }),
  );
}
