// One step beside the one before it: what changed, and where.

import { h, fill, a, foreign } from "./dom.js";
import { get, isOffline, seriesOf, to } from "./data.js";
import { spark } from "./chart.js";
import { count, fixed, percent, plural, short, signed } from "./format.js";

/** Steps before the step that its metrics are compared with. */
const BEFORE = 10;
/** Metrics that are listed. */
const LISTED = 14;
/** Metrics that change by rule, and counts that depend on nothing else. */
const BY_RULE = /\/(version|lr|optimizer_steps|rows|tokens|episodes|flat_steps|count)$|^time\/eval_s$|^eval\//;

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((x, y) => x - y);
  return sorted[Math.floor(sorted.length / 2)];
}

/**
 * Metrics of a step by their distance from the median of the steps before, in units of the usual distance from it.
 * @param {import("./data.js").Series} series
 * @param {number} step
 */
export function changes(series, step) {
  const now = series.steps.indexOf(step);
  const found = Object.entries(series.columns).filter(([name]) => !BY_RULE.test(name)).map(([name, values]) => {
    // An update follows the rollout of its step: what it did shows in the next one.
    const update = /^(policy|critic|mixer|mismatch)\//.test(name);
    const at = update ? now - 1 : now;
    const value = values[at];
    const before = /** @type {number[]} */ (values.slice(Math.max(0, at - BEFORE), Math.max(0, at)).filter((of) => of !== null));
    if (value === null || value === undefined || before.length < 3) return null;
    const usual = median(before);
    const spread = 1.4826 * median(before.map((of) => Math.abs(of - usual)));
    const unit = Math.max(spread, 0.02 * Math.max(Math.abs(usual), Math.abs(value)), 1e-9);
    return { name, update, step: series.steps[at], value, usual, distance: (value - usual) / unit };
  });
  return found.filter((of) => of !== null && Math.abs(of.distance) >= 3)
    .sort((x, y) => Math.abs(/** @type {any} */ (y).distance) - Math.abs(/** @type {any} */ (x).distance));
}

/** @param {number} part @param {number} whole */
function share(part, whole) {
  return whole > 0 ? part / whole : null;
}

/**
 * Sums of a seat over both outcomes.
 * @param {any} sums
 * @param {string} name
 */
function both(sums, name) {
  return (sums?.solved[name] ?? 0) + (sums?.unsolved[name] ?? 0);
}

/** @param {number} by */
function adds(by) {
  return h("b", { class: by < -0.05 ? "bad" : by > 0.05 ? "good" : "" }, signed(by));
}

/**
 * The terms of the change of the score, which add up to it.
 * @param {any} found
 * @param {string} r
 */
function parts({ change, step, earlier }, r) {
  const from = earlier[1];
  const row = (/** @type {any} */ name, /** @type {any} */ now, /** @type {any} */ before, /** @type {number} */ by, /** @type {any} */ link = "") => h("tr", { "data-term": by },
    h("td", {}, name), h("td", { class: "n" }, now), h("td", { class: "n muted" }, before), h("td", { class: "n" }, adds(by)), h("td", {}, link));
  const table = (/** @type {string[]} */ heads, /** @type {any} */ rows) => h("table", {}, h("thead", {}, h("tr", {}, heads.map((name, i) => h("th", { class: i > 0 && "n" }, name)), h("th"))), h("tbody", {}, rows));
  const shown = (/** @type {any} */ { example }) => {
    if (!example || isOffline()) return "";
    const [n, other] = example;
    return other === null ? a(to(`r/${r}/episode/train/${step}/${n}`), "an episode") : a(to("beside", { a: `${r}/train/${step}/${n}`, b: `${r}/train/${step}/${other}` }), "side by side");
  };
  const terms = change.terms.filter((/** @type {any} */ of) => of.cause.kind !== "solved" || Math.abs(of.by) > 5e-4);
  const part = (/** @type {any} */ of) => (of.episodes > 0 ? `${fixed(of.score)} of ${count(of.episodes)}` : "–");
  return h("div", { class: "card scroll" }, h("h3", {}, `What the change from step ${from} is made of`),
    table(["part", "episodes", `step ${from}`, "adds"], [
      row("mix: other shares of the sources", "", "", change.mix),
      change.new !== 0 && row("new sources", "", "", change.new),
      terms.map((/** @type {any} */ of) => row(foreign(of.text, "plain"), of.episodes[0], of.episodes[1], of.by, shown(of))),
      row(h("b", {}, "sum: change of the score"), fixed(change.now), fixed(change.before), change.by)].flat()),
    h("p", { class: "muted" }, "Each part is exact, and they add up. Lost at a reply: until then the episode is equal to a solved one of its task."),
    change.sources.length > 1 && [h("h3", {}, "The same by source"), table(["source", "score of episodes", `step ${from}`, "adds"],
      change.sources.map((/** @type {any} */ of) => row(foreign(of.source, "plain"), part(of.now), part(of.before), of.mix + of.within, `${signed(of.mix)} by its share, ${signed(of.within)} by its score`)))].flat());
}

/**
 * Seats of the step and of the step before.
 * @param {any} found
 * @param {string} r
 */
function seats(found, r) {
  const cell = (/** @type {number | null} */ now, /** @type {number | null} */ before, /** @type {(value: any) => string} */ text) =>
    h("td", { class: "n" }, text(now), h("span", { class: "muted" }, ` (${text(before)})`));
  const rows = Object.entries(found.now.seats).map(([seat, sums]) => {
    const old = found.before?.seats[seat];
    const [turns, was] = [both(sums, "turns"), both(old, "turns")];
    const of = (/** @type {string} */ name, /** @type {(value: any) => string} */ text) => cell(share(both(sums, name), turns), share(both(old, name), was), text);
    return h("tr", { "data-seat": seat }, h("td", {}, foreign(seat, "plain")), of("reward", fixed), of("malformed", percent), of("truncated", percent), of("tokens", short),
      h("td", {}, a(to(`r/${r}/episodes`, { stage: "train", step: found.step, seat, sort: "reward" }), "worst")));
  });
  return h("div", { class: "card scroll" }, h("h3", {}, "Seats"), h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "seat"), ["reward", "malformed", "truncated", "reply tokens"].map((name) => h("th", { class: "n" }, name)), h("th"))),
    h("tbody", {}, rows)), found.before && h("p", { class: "muted" }, `In parentheses: step ${found.earlier[1]}.`));
}

/**
 * Tasks of the step, those first whose scores fell most.
 * @param {any} found
 * @param {string} r
 */
function tasks(found, r) {
  const mean = (/** @type {any} */ of) => (of.episodes > 0 ? fixed(of.score / of.episodes, 2) : "–");
  const rows = found.tasks.slice(0, 30).map((/** @type {any} */ of) => {
    const id = of.task.slice(of.task.indexOf("/") + 1);
    return h("tr", { class: "row" }, h("td", {}, h("a", { class: "open", href: to(`r/${r}/episodes`, { stage: "train", step: found.step, task: id }) }, foreign(id, "plain"))),
      h("td", { class: "n" }, `${of.now.solved} of ${of.now.episodes}`), h("td", { class: "n" }, mean(of.now)), h("td", { class: "n muted" }, mean(of.before)));
  });
  return h("div", { class: "card scroll" }, h("h3", {}, "Tasks"), h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "task"), ["solved", "score", "in earlier steps"].map((name) => h("th", { class: "n" }, name)))),
    h("tbody", {}, rows)), found.of > rows.length && h("p", { class: "muted" }, `${rows.length} of ${count(found.of)} tasks.`));
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const [run, series] = await Promise.all([get(`runs/${r}`), seriesOf(r)]);
  const last = run.run.step;
  const step = Number(at.query.get("step") ?? last);
  const go = (/** @type {number} */ next) => (location.hash = to(`r/${r}/step`, { step: Math.min(Math.max(next, 1), last) }));
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: last, value: step, onchange: () => go(Number(field.value)) }));
  const title = `Step ${step} of ${run.run.name}`;
  const keys = { "[": () => go(step - 1), "]": () => go(step + 1) };
  const head = [h("h1", {}, title), h("div", { class: "bar" }, h("label", {}, "step", field),
    h("button", { onclick: () => go(step - 1), "aria-label": "previous step" }, "←"), h("button", { onclick: () => go(step + 1), "aria-label": "next step" }, "→"),
    a(to(`r/${r}/episodes`, { stage: "train", step }), "episodes"), a(to(`r/${r}/groups`, { step }), "groups"), a(to(`r/${r}/timeline`, { step }), "timeline"))];
  const found = await get(`runs/${r}/steps/${step}`).catch((/** @type {Error} */ error) => error);
  if (found instanceof Error) {
    fill(root, head, h("p", { class: "empty" }, found.message));
    return { title, keys };
  }
  const by = found.estimator;
  const here = series.steps.indexOf(step);
  const { change, earlier } = found;
  const far = changes(series, step).slice(0, LISTED);
  const row = (/** @type {any} */ of) => {
    const values = series.columns[of.name].slice(Math.max(0, here - 3 * BEFORE), here + 1);
    const steps = series.steps.slice(Math.max(0, here - 3 * BEFORE), here + 1);
    return h("tr", {}, h("td", { class: "mono" }, a(to(`r/${r}/metrics`, { q: of.name }), of.name), of.update && h("span", { class: "muted" }, ` of step ${of.step}`)),
      h("td", { class: "n" }, short(of.value)), h("td", { class: "n muted" }, short(of.usual)), h("td", { class: "n" }, signed(of.distance, 0)), h("td", {}, spark(steps, values)));
  };
  fill(root, head,
    h("div", { class: "card" }, h("p", {}, "score ", h("b", { "data-step-score": step }, fixed(share(found.now.score, found.now.episodes))),
      change && [" = ", fixed(change.before), ` in step ${earlier[1]} `, adds(change.by),
        change.interval && ` (95 % interval ${signed(change.interval[0])} to ${signed(change.interval[1])}, tasks drawn anew)`],
      earlier && earlier[0] < earlier[1] && `; mean of steps ${earlier.join(" to ")}: ${fixed(found.usual)}`,
      `; ${count(found.now.solved)} of ${plural(found.now.episodes, "episode")} solved`),
    found.text.length > 0 && h("ul", { class: "reasons" }, found.text.map((/** @type {string} */ text) => h("li", {}, foreign(text, "plain")))),
    by && h("p", { class: "muted", "data-estimator": "" }, `Advantages: “${by.estimator}”, computed on ${by.device ?? "the CPU"}${by.kernel ? ` by the kernel ${by.kernel}` : ""}.`)),
    change && parts(found, r),
    h("div", { class: "cols" }, seats(found, r), tasks(found, r)),
    h("h2", {}, "Metrics that are unlike the steps before"),
    far.length > 0 ? h("div", { class: "card scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "metric"), ["value", "median before", "distance"].map((name) => h("th", { class: "n" }, name)), h("th"))), h("tbody", {}, far.map(row))),
    h("p", { class: "muted" }, "Distance is in units of the usual distance from the median of 10 steps. Metrics of an update are those of the step before: its weights played this step."))
      : h("p", { class: "muted" }, here < 3 ? "Too few steps before." : "None."));
  return { title, keys };
}
