// One step beside the one before it: what changed, and where.

import { h, fill, a, num, td, muted, remark, sheet, say, table, word, WORDS, folded, stepper } from "./dom.js";
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
 * Metrics of a step by their robust z: the difference from the median of the steps before, in units of the usual one.
 * @param {import("./data.js").Series} series
 * @param {number} step
 */
export function changes(series, step) {
  const now = series.steps.indexOf(step);
  const found = Object.entries(series.columns).filter(([name]) => !BY_RULE.test(name)).map(([name, values]) => {
    // An update follows the rollout of its step: what that of the step before did shows in this one.
    const update = /^(policy|critic|mixer|mismatch)\//.test(name);
    return (update ? [now - 1, now] : [now]).map((at) => {
      const value = values[at];
      const before = /** @type {number[]} */ (values.slice(Math.max(0, at - BEFORE), Math.max(0, at)).filter((of) => of !== null));
      if (value === null || value === undefined || before.length < 3) return null;
      const usual = median(before);
      const spread = 1.4826 * median(before.map((of) => Math.abs(of - usual)));
      const unit = Math.max(spread, 0.02 * Math.max(Math.abs(usual), Math.abs(value)), 1e-9);
      return { name, update, step: series.steps[at], value, usual, z: (value - usual) / unit };
    });
  }).flat();
  return found.filter((of) => of !== null && Math.abs(of.z) >= 3)
    .sort((x, y) => Math.abs(/** @type {any} */ (y).z) - Math.abs(/** @type {any} */ (x).z));
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
  const row = (/** @type {any} */ name, /** @type {number} */ by, /** @type {any[]} */ [now, before, weighted] = [], /** @type {any} */ link = "") => h("tr", { "data-term": by },
    td(name), num(now), num(muted(before)), num(muted(weighted)), num(adds(by)), td(link));
  const shown = (/** @type {any} */ { example }) => {
    if (!example || isOffline()) return "";
    const [n, other] = example;
    return other === null ? a(to(`r/${r}/episode/train/${step}/${n}`), "an episode") : a(to("beside", { a: `${r}/train/${step}/${n}`, b: `${r}/train/${step}/${other}` }), "side by side");
  };
  const terms = change.terms.filter((/** @type {any} */ of) => of.cause.kind !== "solved" || Math.abs(of.by) > 5e-4);
  // What the digits that are shown leave of the change.
  const shown3 = (/** @type {number} */ by) => Math.round(Number(by.toFixed(3)) * 1e3);
  const rest = [change.mix, change.new, ...terms.map((/** @type {any} */ of) => of.by)].reduce((left, by) => left - shown3(by), shown3(change.by)) / 1e3;
  const part = (/** @type {any} */ of, /** @type {number} */ tasks) => (of.episodes > 0 ? `${fixed(of.score)} of ${count(of.episodes)} (${plural(tasks, "task")})` : "–");
  const tasks = change.sources.flatMap((/** @type {any} */ of, /** @type {number} */ i) => [i > 0 && ", ", say(of.source), ` ${plural(of.tasks[0], "task")}, ${of.tasks[1]} before`]);
  return sheet(h("h3", {}, `What the change from step ${from} is made of`),
    table(["part", "episodes", `step ${from}`, h("th", { class: "n" }, `step ${from}`, h("small", {}, "at the new mix")), "adds", ""], [
      row([word("mix"), " of tasks: ", ...tasks], change.mix),
      change.new !== 0 && row("new sources", change.new),
      terms.map((/** @type {any} */ of) => row(say(of.text), of.by, [...of.episodes, fixed(of.weighted, 1)], shown(of))),
      rest !== 0 && h("tr", { "data-rounding": rest }, h("td", { colspan: 4 }, "rounding of the numbers above"), num(signed(rest)), td()),
      row(h("b", {}, "sum: change of the score"), change.by, [fixed(change.now), fixed(change.before)])].flat()),
    remark(`The parts are exact. An episode is lost ${WORDS.lost}. `,
      `At the new mix: the episodes of step ${from}, counted as if each source had its share of step ${step}.`),
    change.sources.length > 1 && [h("h3", {}, "The same by source"), table(["source", "score of episodes", `step ${from}`, "adds", ""],
      change.sources.map((/** @type {any} */ of) => h("tr", {}, td(say(of.source)), num(part(of.now, of.tasks[0])), num(muted(part(of.before, of.tasks[1]))), num(adds(of.mix + of.within)),
        td(`${signed(of.mix)} by its share, ${signed(of.within)} by its score`))))].flat());
}

/**
 * Agents of the step and of the step before.
 * @param {import("./api").Step} found
 * @param {string} r
 */
function seats(found, r) {
  const rows = Object.entries(found.now.seats).map(([seat, sums]) => {
    const old = found.before?.seats[seat];
    const of = (/** @type {string} */ name, /** @type {(value: any) => string} */ text) =>
      num(text(share(both(sums, name), both(sums, "turns"))), muted(` (${text(share(both(old, name), both(old, "turns")))})`));
    return h("tr", { "data-seat": seat }, td(a(to(`r/${r}/episodes`, { stage: "train", step: found.step, seat, sort: "reward" }), say(seat))), of("reward", fixed), of("malformed", percent), of("truncated", percent), of("tokens", short));
  });
  return sheet(h("h3", {}, "Agents"), table([word("agent"), "reward", word("malformed"), "truncated", "reply tokens"], rows), remark("An agent leads to its worst episodes.", found.earlier && ` In parentheses: step ${found.earlier[1]}.`));
}

/**
 * Tasks of the step, those first whose scores fell most.
 * @param {import("./api").Step} found
 * @param {string} r
 */
function tasks(found, r) {
  const mean = (/** @type {any} */ of) => (of.episodes > 0 ? fixed(of.score / of.episodes, 2) : "–");
  const cells = (/** @type {any} */ of) => [`${of.now.solved} of ${of.now.episodes}`, mean(of.now), mean(of.before)];
  const rows = folded(found.tasks, (/** @type {any} */ of) => cells(of).join(), (of, more) => {
    const id = of.task.slice(of.task.indexOf("/") + 1);
    return h("tr", { class: "row" }, td(h("a", { class: "open", href: to(`r/${r}/episodes`, { stage: "train", step: found.step, task: id }) }, say(id)), " ", more), cells(of).map((text) => num(text)));
  });
  return sheet(h("h3", {}, "Tasks"), table(["task", "solved", "score", "in earlier steps"], rows), found.of > found.tasks.length && remark(`${found.tasks.length} of ${count(found.of)} tasks.`));
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
  const title = `Step ${step} of ${run.run.name}`;
  const keys = { "[": () => go(step - 1), "]": () => go(step + 1) };
  const head = [h("h1", {}, title), h("div", { class: "bar" }, stepper(step, step, last, go),
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
    return h("tr", {}, h("td", { class: "mono" }, a(to(`r/${r}/metrics`, { q: of.name }), of.name), of.update && muted(` of step ${of.step}`)),
      num(short(of.value)), num(muted(short(of.usual))), num(signed(of.z, 0)), td(spark(steps, values)));
  };
  fill(root, head,
    h("div", { class: "card" }, change && h("p", { class: "answer" }, h("b", {}, say(change.answer))), change?.parts && h("p", {}, say(change.parts)), h("p", {}, "score ", h("b", { "data-step-score": step }, fixed(share(found.now.score, found.now.episodes))),
      change && [" = ", fixed(change.before), ` in step ${earlier[1]} `, adds(change.by),
        change.interval && ` (95 % interval ${signed(change.interval[0])} to ${signed(change.interval[1])}, tasks drawn anew)`],
      earlier && earlier[0] < earlier[1] && `; mean of steps ${earlier.join(" to ")}: ${fixed(found.usual)}`,
      `; ${count(found.now.solved)} of ${plural(found.now.episodes, "episode")} solved`),
    found.text.length > 0 && h("ul", { class: "reasons" }, found.text.map((/** @type {string} */ text) => h("li", {}, say(text)))),
    run.notices.filter((/** @type {any} */ of) => of.step === step && of.level !== "fine").map((/** @type {any} */ of) => h("p", { class: "warn", "data-notice": "" }, "! ", say(of.text))),
    by && h("p", { class: "muted", "data-estimator": "" }, `Advantages: “${by.estimator}”, computed on ${by.device ?? "the CPU"}${by.kernel ? ` by the kernel ${by.kernel}` : ""}.`)),
    change && parts(found, r),
    h("div", { class: "cols" }, seats(found, r), tasks(found, r)),
    h("h2", {}, "Metrics that are unlike the steps before"),
    far.length > 0 ? sheet(table(["metric", "value", "median before", "robust z", ""], far.map(row)),
    remark("Robust z: the difference from the median of the 10 steps before, in units of their usual difference from it. Metrics of an update: of this step, and of the step before, whose weights generated this step."))
      : remark(here < 3 ? "Too few steps before." : "None."));
  return { title, keys };
}
