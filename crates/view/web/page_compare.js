// Runs beside each other: what differs in their configurations, data and results.

import { h, fill, a, foreign, td, muted, remark, sheet, table } from "./dom.js";
import { get, isOffline, seriesOf, to } from "./data.js";
import { Chart } from "./chart.js";
import { fixed, plural, signed } from "./format.js";
import { switches } from "./page_overview.js";

const CHARTS = [
  ["rollout/solved", "Solved in training"], ["rollout/score_mean", "Score in training"], ["group/zero_std_frac", "Groups with equal rewards"],
  ["rollout/turns_mean", "Turns per episode"], ["policy/*/entropy", "Entropy"], ["policy/*/grad_norm", "Gradient norm"], ["policy/*/kl", "KL"],
  ["policy/*/loss", "Loss"], ["policy/*/pair_accuracy", "Pair accuracy"], ["policy/*/reward_margin", "Reward margin"],
  ["verifier/loss", "Loss of the verifier"], ["verifier/*/accuracy", "Accuracy of the verifier"], ["verifier/*/auc", "AUC of the verifier"], ["verifier/*/ece", "Calibration error of the verifier"], ["time/step_s", "Seconds per step"],
];

/** What the horizontal axis can count. */
const AXES = ["steps", "episodes", "tokens", "seconds"];

/**
 * What the axis counts at each row of a run, summed over the rows until it.
 * @param {any} series
 * @param {string} axis
 * @returns {number[]}
 */
function along(series, axis) {
  if (axis === "steps") return series.steps;
  const of = (/** @type {string} */ name, /** @type {number} */ i) => series.columns[name]?.[i] ?? 0;
  const seats = Object.keys(series.columns).flatMap((name) => name.match(/^rollout\/(.+)\/completion_tokens_mean$/)?.[1] ?? []);
  let sum = 0;
  return series.steps.map((/** @type {number} */ _, /** @type {number} */ i) => {
    const tokens = () => seats.reduce((all, seat) => all + Math.round(of(`rollout/${seat}/turns`, i) * of(`rollout/${seat}/completion_tokens_mean`, i)), 0);
    sum += axis === "tokens" ? tokens() : of(axis === "episodes" ? "rollout/episodes" : "time/step_s", i);
    return sum;
  });
}

/**
 * Lines of several runs as one: the mean of those that have a step, and their range.
 * @param {string} name
 * @param {{series: any, xs: number[], column: (number | null)[]}[]} its
 */
function together(name, its) {
  const steps = [...new Set(its.flatMap((of) => of.series.steps))].sort((x, y) => x - y);
  const rows = steps.flatMap((step) => {
    const known = its.flatMap(({ series, xs, column }) => { const at = series.steps.indexOf(step); const value = column[at]; return at < 0 || value === null || value === undefined ? [] : [{ x: xs[at], value }]; });
    const values = known.map((of) => of.value);
    const mean = (/** @type {number[]} */ of) => of.reduce((x, y) => x + y, 0) / of.length;
    return known.length > 0 ? [{ x: mean(known.map((of) => of.x)), value: mean(values), low: Math.min(...values), high: Math.max(...values) }] : [];
  });
  return { name, steps: rows.map((row) => row.x), values: rows.map((row) => row.value), low: rows.map((row) => row.low), high: rows.map((row) => row.high) };
}

/**
 * Lines of a chart: one for each run and metric, or for each set of runs that differ in the seed only.
 * @param {RegExp} fits
 * @param {any[]} series of the runs
 * @param {number[][]} sets
 * @param {string} axis
 */
function drawn(fits, series, sets, axis) {
  return sets.flatMap((set) => {
    const names = Object.keys(series[set[0]].columns).filter((name) => fits.test(name));
    return names.map((name) => {
      const its = set.map((i) => ({ series: series[i], xs: along(series[i], axis), column: series[i].columns[name] ?? [] }));
      const label = `${set.map(letter).join(", ")}${names.length > 1 ? ` ${name.split("/")[1]}` : ""}`;
      return set.length > 1 ? together(label, its) : { name: label, steps: its[0].xs, values: its[0].column };
    });
  });
}

/**
 * The only run that has a value; −1 if several have one.
 * @param {any} row
 * @returns {number}
 */
function own(row) {
  const known = row.values.flatMap((/** @type {any} */ value, /** @type {number} */ i) => (value === null ? [] : [i]));
  return known.length === 1 ? known[0] : -1;
}

/**
 * The tables of some keys, each once: of `agents.a/b.loss.kl` it is `agents.a/b`.
 * @param {string[]} keys
 */
function tables(keys) {
  const names = [...new Set(keys.map((key) => key.split(".").slice(0, 2).join(".")))];
  return names.length > 6 ? `${names.slice(0, 6).join(", ")} and ${names.length - 6} more` : names.join(", ");
}

/** @param {number} i */
function letter(i) {
  return String.fromCharCode(65 + i);
}

/**
 * A task of which the runs solve different shares, with an episode of each.
 * @param {any} task
 * @param {any[]} pair of runs
 */
function different(task, pair) {
  const id = task.task.slice(task.task.indexOf("/") + 1);
  const places = task.episodes.map((/** @type {any} */ at, /** @type {number} */ i) => at && `${pair[i]}/after/${at[0]}/${at[1]}`);
  return h("div", { class: "line" }, foreign(task.task), ` ${fixed(task.shares[0], 2)} → ${fixed(task.shares[1], 2)}`,
    !isOffline() && places.every(Boolean) && [a(to("beside", { a: places[0], b: places[1] }), "side by side"),
      ...pair.map((r, i) => a(to(`r/${r}/episodes`, { stage: "after", task: id }), `episodes of ${letter(task.runs[i])}`))]);
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const chosen = (at.query.get("runs") ?? "").split(",").filter(Boolean);
  if (chosen.length < 2) throw new Error("choose two runs or more in the list of runs");
  const found = await get(`compare?runs=${chosen.join(",")}`);
  const series = await Promise.all(found.runs.map((/** @type {any} */ run) => seriesOf(run.r)));
  const heads = () => found.runs.map((/** @type {any} */ run, /** @type {number} */ i) => h("th", {}, a(to(`r/${run.r}`), `${letter(i)}  ${run.name}`)));
  const value = (/** @type {any} */ of) => td(of === null ? muted("–") : foreign(typeof of === "string" ? of : JSON.stringify(of)));
  const rowOf = (/** @type {any} */ row) => h("tr", {}, h("td", { class: "mono" }, row.key), row.values.map(value));
  // What one run alone has, such as the agents of another team, is listed by run.
  const listed = (/** @type {any[]} */ rows, /** @type {string} */ first) => {
    const shared = rows.filter((row) => own(row) < 0);
    return [shared.length > 0 && sheet(table([first, ...heads()], shared.map(rowOf))),
      found.runs.map((/** @type {any} */ run, /** @type {number} */ i) => {
        const its = rows.filter((row) => own(row) === i);
        return its.length > 0 && h("details", { class: "card", "data-only": letter(i) }, h("summary", {}, `Only ${letter(i)}, ${run.name}, has ${plural(its.length, first)}: ${tables(its.map((row) => row.key))}`),
          table([first, "value"], its.map((row) => h("tr", {}, h("td", { class: "mono" }, row.key), value(row.values[i]))), 9));
      })].flat();
  };
  const verdict = (/** @type {any} */ of) => (of.low > 0 ? "higher" : of.high < 0 ? "lower" : "not distinguishable");
  // An end at 0 is 0, and one near it has the digits that show on which side it is.
  const end = (/** @type {number} */ of) => (of === 0 ? "0" : signed(of, Math.abs(of) < 5e-4 ? 6 : 3));
  const axis = AXES.find((name) => name === at.query.get("x")) ?? "steps";
  const joined = at.query.get("seeds") === "one";
  const go = (/** @type {any} */ changes) => (location.hash = to("compare", { ...Object.fromEntries(at.query), ...changes }));
  const name = (/** @type {any} */ of) => of.runs.toReversed().map(letter).join(" − ");
  const interval = (/** @type {any} */ of) => (of.low === null ? "unknown" : `${end(of.low)} to ${end(of.high)}`);
  const result = (/** @type {any} */ { difference: of, reason, tasks }) => (of
    ? [h("b", {}, `${signed(of.mean)} (95 % interval ${interval(of)})`), `, ${verdict(of)}`, tasks !== undefined && `, over ${plural(tasks, "task")}`] : `no interval: ${reason}`);
  const pair = (/** @type {any} */ of) => h("tr", { "data-pair": name(of) }, td(name(of)), td(result(of)),
    of.difference && [td(`${of.better} better, ${of.worse} worse`), td(of.changed.length > 0 && h("details", {}, h("summary", {}, "tasks that differ"),
      of.changed.map((/** @type {any} */ task) => different({ ...task, runs: of.runs }, of.runs.map((/** @type {number} */ i) => found.runs[i].r)))))]);
  const whole = joined ? found.seeds.map((/** @type {any} */ set) => set.members) : [];
  const sets = [...whole, ...found.runs.map((/** @type {any} */ _, /** @type {number} */ i) => [i]).filter((/** @type {number[]} */ [i]) => !whole.flat().includes(i))];
  const charts = CHARTS.map(([pattern, title]) => {
    const lines = drawn(new RegExp(`^${pattern.replace("*", ".+")}$`), series, sets, axis);
    return lines.length > 0 && new Chart({ title, zero: true, lines, axis: axis === "steps" ? undefined : axis }).element;
  });
  const select = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => go({ x: select.value }) }, AXES.map((name) => h("option", { value: name, selected: name === axis }, name))));
  const differing = found.hashes.filter((/** @type {any} */ row) => !row.equal).map((/** @type {any} */ row) => ({ ...row, values: row.values.map((/** @type {any} */ hash) => hash?.slice(0, 12) ?? null) }));
  const equal = found.hashes.filter((/** @type {any} */ row) => row.equal).map((/** @type {any} */ row) => row.key);
  const set = (/** @type {any} */ of) => {
    const names = of.members.map(letter);
    const known = of.after.filter((/** @type {number | null} */ after) => after !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const its = found.pairs.filter((/** @type {any} */ one) => one.runs.every((/** @type {number} */ i) => of.members.includes(i)));
    return h("div", { class: "card", "data-seeds": names.join("") },
      of.text.map((/** @type {string} */ text) => h("p", { class: "answer" }, h("b", {}, text))), of.note && h("p", {}, of.note),
      h("p", {}, h("b", {}, names.join(", ")), " differ in the seed only. ",
        of.interval ? [`Held-out score after training ${fixed(low)} to ${fixed(high)}; mean `, h("b", {}, fixed(of.interval.mean)), muted(` (${of.interval.low === null ? "unknown" : `${fixed(of.interval.low)} to ${fixed(of.interval.high)}`}, 95 % for the mean over seeds)`)] : "Fewer than two have a result."),
      h("ul", { class: "reasons" }, its.map((/** @type {any} */ one) => h("li", {}, `${name(one)}: score `, result(one), ...(one.gain ? ["; gain ", result({ difference: one.gain })] : [])))));
  };
  fill(root,
    h("h1", {}, "Compare"),
    h("p", { class: "line" }, found.runs.map((/** @type {any} */ run, /** @type {number} */ i) => h("span", {}, h("b", {}, letter(i)), " ", a(to(`r/${run.r}`), run.name), ` held-out score after training ${fixed(run.after?.mean)}, before ${fixed(run.before?.mean)}`))),
    found.seeds.length > 0 && [h("h2", {}, "Seeds"), ...found.seeds.map(set)],
    h("h2", {}, "Held-out tasks after training, paired by task"),
    sheet(h("table", {}, h("tbody", {}, found.pairs.map(pair)))),
    h("h2", {}, "Keys that differ"),
    found.keys.length > 0 ? listed(found.keys, "key") : remark("No key differs."),
    h("h2", {}, "Data and starting weights"),
    differing.length > 0 && listed(differing, "hash"),
    equal.length > 0 && remark(`Equal: ${equal.join(", ")}.`),
    h("div", { class: "bar section" }, h("h2", {}, "Metrics"), h("span", { class: "end line" }, h("label", {}, "over", select),
      found.seeds.length > 0 && h("button", { "aria-pressed": String(joined), onclick: () => go({ seeds: joined ? "" : "one" }) }, "seeds as one line"), switches())),
    joined && remark("A line of several runs is their mean, with the lowest and the highest of them."),
    axis === "tokens" && remark("Tokens: sampled in scored episodes."),
    h("div", { class: "charts" }, charts));
  return { title: "Compare" };
}
