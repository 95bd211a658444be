// Every metric by its name.

import { h, fill } from "./dom.js";
import { get, joined, seriesOf, to } from "./data.js";
import { Chart, clear } from "./chart.js";
import { plural } from "./format.js";
import { switches } from "./page_overview.js";

/** Charts that are drawn at once; more are one button away. */
const SHOWN = 60;

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const [run, first] = await Promise.all([get(`runs/${r}`), seriesOf(r)]);
  let series = first;
  let limit = SHOWN;
  /** @type {Map<string, Chart>} */
  let charts = new Map();
  const onstep = (/** @type {number} */ step) => (location.hash = to(`r/${r}/step`, { step }));
  const [grid, found] = [h("div", { class: "charts" }), h("span", { class: "muted", role: "status" })];
  const search = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "filter names  ( / )", "aria-label": "filter names", value: at.query.get("q") ?? "" }));
  const line = (/** @type {string} */ name) => [{ name: "value", steps: series.steps, values: series.columns[name] }];
  const draw = () => {
    clear();
    charts = new Map();
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const names = Object.keys(series.columns).filter((name) => words.every((word) => name.toLowerCase().includes(word)));
    const drawn = names.slice(0, limit).map((name) => {
      const chart = new Chart({ title: name, lines: line(name), onstep });
      charts.set(name, chart);
      return chart.element;
    });
    const more = names.length > limit && h("button", { onclick: () => { limit = names.length; draw(); } }, `show all ${names.length}`);
    fill(grid, drawn, more);
    fill(found, plural(names.length, "metric"));
    history.replaceState(null, "", to(`r/${r}/metrics`, { q: search.value }));
  };
  search.addEventListener("input", () => { limit = SHOWN; draw(); });
  fill(root, h("h1", {}, `All metrics of ${run.run.name}`), h("div", { class: "bar" }, search, found, switches()), grid);
  draw();
  return {
    title: `Metrics of ${run.run.name}`,
    heard: async (/** @type {string} */ kind, /** @type {any} */ data) => {
      if (data.r !== run.run.r || kind === "run") return;
      const from = kind === "rows" ? (series.steps.at(-1) ?? 0) : 0;
      const news = await seriesOf(r, from);
      series = kind === "reset" ? news : joined(series, news);
      for (const [name, chart] of charts) if (series.columns[name]) chart.update(line(name));
    },
  };
}
