// One step beside those before it: what changed, and where.

import { h, fill, a, foreign } from "./dom.js";
import { get, seriesOf, to } from "./data.js";
import { spark } from "./chart.js";
import { count, fixed, minus, percent, plural, short, signed } from "./format.js";

/** Steps before the step that it is compared with. */
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

/**
 * Sentences on sources of tasks that are new, or of which the step has another share than the steps before.
 * @param {any} found
 * @returns {string[]}
 */
function mixed({ sources, now, before }) {
  const mean = (/** @type {any} */ of) => fixed(share(of.score, of.episodes));
  return sources.flatMap((/** @type {any} */ of) => {
    const [is, was] = [of.now.episodes / now.episodes, of.before.episodes / Math.max(before.episodes, 1)];
    if (of.before.episodes === 0) return [`New are tasks of “${of.source}”: ${percent(is)} of the episodes; they score ${mean(of.now)}.`];
    if (of.now.episodes === 0) return [`Tasks of “${of.source}” are gone: they were ${percent(was)} of the episodes, and scored ${mean(of.before)}.`];
    if (sources.length === 1 || Math.abs(is - was) < 0.1) return [];
    return [`Tasks of “${of.source}” are ${percent(is)} of the episodes, ${percent(was)} before; they score ${mean(of.now)}, ${mean(of.before)} before.`];
  });
}

/**
 * Sentences on the change of the score, most telling first.
 * @param {any} found
 * @param {any} score
 */
function reasons(found, score) {
  const { now, before, known } = found;
  if (!before) return [];
  const list = [];
  if (known) {
    const worse = known.now - known.before;
    const mean = before.score / Math.max(before.episodes, 1);
    const harder = known.before - mean;
    if (Math.abs(harder) > 0.05) {
      list.push(`The ${plural(known.tasks, "task")} that earlier steps had too scored ${fixed(known.before)} there, where all tasks scored ${fixed(mean)}: the tasks of this step are ${harder < 0 ? "harder" : "easier"}.`);
    }
    list.push(Math.abs(worse) > 0.05
      ? `The same ${plural(known.tasks, "task")} scored ${fixed(known.before)} in earlier steps and ${fixed(known.now)} now: the team does ${worse < 0 ? "worse" : "better"} on equal tasks.`
      : `The same ${plural(known.tasks, "task")} scored ${fixed(known.before)} in earlier steps and ${fixed(known.now)} now: the team is about as good on equal tasks.`);
  }
  list.push(...mixed(found));
  if (!known && score.change !== null && list.length === 0) list.push("No task of this step was in an earlier one: tasks cannot be compared.");
  for (const [seat, sums] of Object.entries(now.seats)) {
    const [turns, earlier] = [both(sums, "turns"), both(before.seats[seat], "turns")];
    for (const [name, word] of [["malformed", "malformed"], ["truncated", "truncated"]]) {
      const [is, was] = [share(both(sums, name), turns), share(both(before.seats[seat], name), earlier)];
      if (is !== null && was !== null && Math.abs(is - was) > 0.05) {
        list.push(`${seat}: ${percent(is)} of its replies are ${word}, ${percent(was)} before.`);
      }
    }
  }
  return list;
}

/**
 * Seats of the step and of those before.
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
    h("tbody", {}, rows)), h("p", { class: "muted" }, "In parentheses: the steps before."));
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
  const scores = series.columns["rollout/score_mean"] ?? [];
  const here = series.steps.indexOf(step);
  const earlier = /** @type {number[]} */ (scores.slice(Math.max(0, here - BEFORE), Math.max(0, here)).filter((/** @type {number | null} */ of) => of !== null));
  const score = { now: share(found.now.score, found.now.episodes), usual: earlier.length > 0 ? median(earlier) : null, change: /** @type {number | null} */ (null) };
  if (score.now !== null && score.usual !== null) score.change = score.now - score.usual;
  const last_score = earlier.at(-1);
  const by_score = (/** @type {any} */ old) => { const by = (score.now ?? 0) - old; return h("b", { class: by < -0.05 ? "bad" : by > 0.05 ? "good" : "" }, signed(by)); };
  const why = reasons(found, score);
  const far = changes(series, step).slice(0, LISTED);
  const row = (/** @type {any} */ of) => {
    const values = series.columns[of.name].slice(Math.max(0, here - 3 * BEFORE), here + 1);
    const steps = series.steps.slice(Math.max(0, here - 3 * BEFORE), here + 1);
    return h("tr", {}, h("td", { class: "mono" }, a(to(`r/${r}/metrics`, { q: of.name }), of.name), of.update && h("span", { class: "muted" }, ` of step ${of.step}`)),
      h("td", { class: "n" }, short(of.value)), h("td", { class: "n muted" }, short(of.usual)), h("td", { class: "n" }, `${of.distance > 0 ? "+" : "−"}${minus(Math.abs(of.distance).toFixed(0))}`), h("td", {}, spark(steps, values)));
  };
  fill(root, head,
    h("div", { class: "card" }, h("p", {}, "score ", h("b", { "data-step-score": step }, fixed(score.now)),
      last_score !== undefined && [", ", by_score(last_score), ` from ${fixed(last_score)} in the step before`],
      earlier.length > 1 && [", ", by_score(score.usual), ` from ${fixed(score.usual)}, the median of ${plural(earlier.length, "step")} before`],
      `; ${count(found.now.solved)} of ${plural(found.now.episodes, "episode")} solved`),
    by && h("p", { class: "muted", "data-estimator": "" }, `Advantages: “${by.estimator}”, computed on ${by.device ?? "the CPU"}${by.kernel ? ` by the kernel ${by.kernel}` : ""}.`),
    why.length > 0 && h("ul", { class: "reasons" }, why.map((text) => h("li", {}, foreign(text, "plain"))))),
    h("div", { class: "cols" }, seats(found, r), tasks(found, r)),
    h("h2", {}, "Metrics that are unlike the steps before"),
    far.length > 0 ? h("div", { class: "card scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "metric"), ["value", "median before", "distance"].map((name) => h("th", { class: "n" }, name)), h("th"))), h("tbody", {}, far.map(row))),
    h("p", { class: "muted" }, "Distance is in units of the usual distance from the median of 10 steps. Metrics of an update are those of the step before: its weights played this step."))
      : h("p", { class: "muted" }, earlier.length < 3 ? "Too few steps before." : "None."));
  return { title, keys };
}
