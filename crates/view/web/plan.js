// The plan of a run as a graph: seats, the policies that speak for them, and the worker groups that hold these.

import { h, svg } from "./dom.js";
import { count } from "./format.js";

/** Left ends of the columns, width of a box, distance of two boxes, and height of a box with a bar. */
const [COLUMNS, WIDE, GAP, TALL] = [[0, 300, 600], 230, 36, 62];
/** Characters that fit into a box. */
const FIT = 30;
/** Parts of the memory of a worker group. */
const PARTS = [["weight_bytes", "weights"], ["reference_bytes", "reference"], ["gradient_bytes", "gradients"], ["moment_bytes", "moments"], ["activation_bytes", "activations"], ["kv_bytes", "KV cache"]];

/** @typedef {{key: string, to: string | null, text: string, more: string, name: string, worker?: any, y: number}} Box */

/** @param {number} bytes */
export function mib(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(bytes || 1) / 10), units.length - 1);
  return bytes === 0 ? "–" : `${(bytes / 1024 ** power).toFixed(power > 0 ? 1 : 0)} ${units[power]}`;
}

/**
 * Boxes of the three columns. Each is beside those that lead to it.
 * @param {any} plan
 * @returns {Box[][]}
 */
function boxes({ summary, endpoints }) {
  const box = (/** @type {string} */ key, /** @type {string | null} */ to, /** @type {string} */ text, /** @type {string} */ more, /** @type {string} */ name, /** @type {any} */ worker = undefined) =>
    ({ key, to, text, more, name, worker, y: 0 });
  const outside = [...new Set(endpoints.map((/** @type {any} */ of) => of.endpoint))];
  /** @type {Box[][]} */
  const columns = [
    [...summary.seats.map((/** @type {any} */ of) => box(`seat ${of.seat}`, `policy ${of.policy}`, of.seat, "", of.trained ? "" : "frozen")),
      ...endpoints.map((/** @type {any} */ of) => box(`seat ${of.seat}`, `endpoint ${of.endpoint}`, of.seat, "", "outside"))],
    [...summary.policies.map((/** @type {any} */ of) => box(`policy ${of.name}`, `worker ${of.worker}`, of.name, of.adapter ? `LoRA ${of.adapter.rank ?? ""}` : "", of.trained ? "" : "frozen")),
      ...outside.map((name) => box(`endpoint ${name}`, null, name, "endpoint", "outside"))],
    summary.workers.map((/** @type {any} */ of) => box(`worker ${of.name}`, null, of.name, of.path, of.trained ? "" : "frozen", of)),
  ];
  columns.forEach((column, at) => {
    let free = 0;
    for (const one of column) {
      const from = at === 0 ? [] : columns[at - 1].filter((other) => other.to === one.key).map((other) => other.y);
      one.y = Math.max(free, from.length > 0 ? from.reduce((sum, y) => sum + y, 0) / from.length : 0);
      free = one.y + (one.worker ? TALL + 10 : GAP);
    }
  });
  return columns;
}

/**
 * A bar of the memory of a worker group.
 * @param {any} worker
 * @param {number} x
 * @param {number} y
 * @param {number} most bytes of the largest one
 */
function memory(worker, x, y, most) {
  let at = x + 8;
  return PARTS.map(([key, label], i) => {
    const width = ((worker[key] ?? 0) / (most || 1)) * (WIDE - 16);
    at += width;
    return width > 0 && svg("rect", { class: `c${i}`, x: at - width, y, width, height: 9, "data-part": key }, svg("title", {}, `${label}: ${mib(worker[key])}`));
  });
}

/** @param {any} worker */
function bytes(worker) {
  return PARTS.reduce((sum, [key]) => sum + (worker[key] ?? 0), 0);
}

/**
 * The graph, for a plan with seats.
 * @param {any} plan
 */
export function graph(plan) {
  const columns = boxes(plan);
  const all = columns.flat();
  const most = Math.max(...plan.summary.workers.map(bytes), 0);
  const place = new Map(columns.flatMap((column, i) => column.map((box) => /** @type {[string, any]} */ ([box.key, { ...box, x: COLUMNS[i] }]))));
  const edges = [...place.values()].flatMap((from) => {
    const to = from.to === null ? undefined : place.get(from.to);
    const [x1, y1, x2] = [from.x + WIDE, from.y + 14, to?.x];
    return to ? [svg("path", { class: `edge ${from.name}`, "data-edge": `${from.key} > ${from.to}`, d: `M${x1} ${y1}C${x1 + 35} ${y1} ${x2 - 35} ${to.y + 14} ${x2} ${to.y + 14}` })] : [];
  });
  const cut = (/** @type {string} */ text, /** @type {number} */ fit) => (text.length > fit ? `${text.slice(0, fit - 1)}…` : text);
  const drawn = [...place.values()].map((box) => svg("g", { class: box.name, "data-box": box.key },
    svg("title", {}, `${box.text} ${box.more}`),
    svg("rect", { class: "box", x: box.x + 0.5, y: box.y + 0.5, width: WIDE - 1, height: (box.worker ? TALL : 28) - 1, rx: 5 }),
    svg("text", { x: box.x + 8, y: box.y + 18 }, cut(box.text, box.more && !box.worker ? FIT - box.more.length - 2 : FIT)),
    box.more && svg("text", { class: "tick", x: box.worker ? box.x + 8 : box.x + WIDE - 8, y: box.y + (box.worker ? 34 : 18), "text-anchor": box.worker ? "start" : "end" },
      box.worker ? cut(`${box.more}, ${mib(bytes(box.worker))}`, FIT + 6) : box.more),
    box.worker && memory(box.worker, box.x, box.y + 44, most)));
  const height = Math.max(...all.map((box) => box.y + (box.worker ? TALL : 28)), 0) + 20;
  const heads = ["agents", "policies", "worker groups"].map((name, i) => svg("text", { class: "tick", x: COLUMNS[i], y: 11 }, name));
  const label = `${count(columns[0].length)} agents, ${count(columns[1].length)} policies and endpoints, ${count(columns[2].length)} worker groups; the tables below have the same`;
  return h("figure", { class: "card plan" },
    h("div", { class: "scroll" }, svg("svg", { width: COLUMNS[2] + WIDE, height, viewBox: `0 -20 ${COLUMNS[2] + WIDE} ${height}`, role: "img", "aria-label": label },
      svg("g", { transform: "translate(0 -20)" }, heads), edges, drawn)),
    h("figcaption", { class: "line muted" }, h("span", {}, "Grey: frozen. Dashed: served by an endpoint. Bars:"),
      PARTS.map(([, name], i) => h("span", {}, svg("svg", { width: 10, height: 10, "aria-hidden": "true" }, svg("rect", { class: `c${i}`, width: 10, height: 10 })), ` ${name}`))));
}
