// Runs beside each other: what differs in their configurations, data and results.

import { h, fill, foreign, a } from "./dom.js";
import { get, to } from "./data.js";
import { Chart } from "./chart.js";
import { fixed, plural, signed } from "./format.js";
import { switches } from "./page_overview.js";

const CHARTS = [
  ["rollout/solved", "Solved in training"], ["rollout/score_mean", "Score in training"], ["group/zero_std_frac", "Groups with equal rewards"],
  ["rollout/turns_mean", "Turns per episode"], ["policy/*/entropy", "Entropy"], ["policy/*/grad_norm", "Gradient norm"], ["policy/*/kl", "KL"], ["time/step_s", "Seconds per step"],
];

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const chosen = (at.query.get("runs") ?? "").split(",").filter(Boolean);
  if (chosen.length < 2) throw new Error("choose two runs or more in the list of runs");
  const found = await get(`compare?runs=${chosen.join(",")}`);
  const series = await Promise.all(found.runs.map((/** @type {any} */ run) => get(`runs/${run.r}/series`)));
  const letter = (/** @type {number} */ i) => String.fromCharCode(65 + i);
  const heads = found.runs.map((/** @type {any} */ run, /** @type {number} */ i) => h("th", {}, a(to(`r/${run.r}`), `${letter(i)}  ${run.name}`)));
  const value = (/** @type {any} */ of) => h("td", {}, of === null ? h("span", { class: "muted" }, "–") : foreign(typeof of === "string" ? of : JSON.stringify(of)));
  const table = (/** @type {any[]} */ rows, /** @type {string} */ first) => h("div", { class: "card scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, first), heads)), h("tbody", {}, rows.map((row) => h("tr", {}, h("td", { class: "mono" }, row.key), row.values.map(value))))));
  const verdict = (/** @type {any} */ of) => (of.low > 0 ? "higher" : of.high < 0 ? "lower" : "not distinguishable");
  const pair = (/** @type {any} */ of, /** @type {number} */ i) => {
    const name = `${letter(i + 1)} − ${letter(0)}`;
    if (!of.difference) return h("tr", {}, h("td", {}, name), h("td", { colspan: 3, class: "muted" }, `no interval: ${of.reason}`));
    const { mean, low, high } = of.difference;
    return h("tr", { "data-pair": i + 1 }, h("td", {}, name), h("td", {}, h("b", {}, signed(mean)), ` (${signed(low)} to ${signed(high)}), ${verdict(of.difference)}`),
      h("td", {}, `${of.better} better, ${of.worse} worse of ${plural(of.tasks, "task")}`),
      h("td", {}, h("details", {}, h("summary", {}, "tasks that differ"), of.changed.map((/** @type {any} */ task) => h("div", {}, h("span", { class: "mono" }, task.task), ` ${fixed(task.shares[0], 2)} → ${fixed(task.shares[1], 2)}`)))));
  };
  const charts = CHARTS.map(([pattern, title]) => {
    const fits = new RegExp(`^${pattern.replace("*", ".+")}$`);
    const lines = found.runs.flatMap((/** @type {any} */ run, /** @type {number} */ i) => {
      const names = Object.keys(series[i].columns).filter((name) => fits.test(name));
      return names.map((name) => ({ name: `${letter(i)}${names.length > 1 ? ` ${name.split("/")[1]}` : ""}`, steps: series[i].steps, values: series[i].columns[name] }));
    });
    return lines.length > 0 && new Chart({ title, zero: true, lines }).element;
  });
  const differing = found.hashes.filter((/** @type {any} */ row) => !row.equal).map((/** @type {any} */ row) => ({ ...row, values: row.values.map((/** @type {any} */ hash) => hash?.slice(0, 12) ?? null) }));
  const equal = found.hashes.filter((/** @type {any} */ row) => row.equal).map((/** @type {any} */ row) => row.key);
  const set = (/** @type {any} */ of) => {
    const names = of.members.map(letter);
    const known = of.after.filter((/** @type {number | null} */ after) => after !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    return h("div", { class: "card", "data-seeds": names.join("") },
      h("p", {}, h("b", {}, names.join(", ")), " differ in the seed only. ",
        of.interval ? [`After training ${fixed(low)} to ${fixed(high)}; mean `, h("b", {}, fixed(of.interval.mean)), h("span", { class: "muted" }, ` (${fixed(of.interval.low)} to ${fixed(of.interval.high)}, 95 % for the mean over seeds)`)] : "Fewer than two have a result."),
      h("ul", { class: "reasons" }, of.pairs.map((/** @type {any} */ one, /** @type {number} */ i) => h("li", {}, `${names[i + 1]} − ${names[0]}: `,
        one.difference ? [h("b", {}, `${signed(one.difference.mean)} (${signed(one.difference.low)} to ${signed(one.difference.high)})`), `, ${verdict(one.difference)} over ${plural(one.tasks, "task")}`] : `no interval: ${one.reason}`))));
  };
  fill(root,
    h("h1", {}, "Compare"),
    h("p", { class: "line" }, found.runs.map((/** @type {any} */ run, /** @type {number} */ i) => h("span", {}, h("b", {}, letter(i)), " ", a(to(`r/${run.r}`), run.name), h("span", { class: "muted" }, ` after ${fixed(run.after?.mean)}`)))),
    found.seeds.length > 0 && [h("h2", {}, "Seeds"), ...found.seeds.map(set)],
    h("h2", {}, "Held-out tasks after training, paired by task"),
    h("div", { class: "card scroll" }, h("table", {}, h("tbody", {}, found.pairs.map(pair)))),
    h("h2", {}, "Keys that differ"),
    found.keys.length > 0 ? table(found.keys, "key") : h("p", { class: "muted" }, "No key differs."),
    h("h2", {}, "Data and starting weights"),
    differing.length > 0 && table(differing, "hash"),
    equal.length > 0 && h("p", { class: "muted" }, `Equal: ${equal.join(", ")}.`),
    h("div", { class: "bar section" }, h("h2", {}, "Metrics"), h("span", { class: "end" }, switches())),
    h("div", { class: "charts" }, charts));
  return { title: "Compare" };
}
