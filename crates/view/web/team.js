// The team of a run: who fails, who is rewarded, who is waited for, and what each agent replies.

import { h, a, foreign, num, td, muted, remark, sheet, table, word, WORDS, sentences } from "./dom.js";
import { to } from "./data.js";
import { fixed, percent, plural } from "./format.js";

/** @param {number} part @param {number} whole */
const share = (part, whole) => (whole > 0 ? part / whole : null);
/** @param {any} sums @param {string} name */
const mean = (sums, name) => (sums ? share(sums[name], sums.turns) : null);

/**
 * What is shown of the seats over the last steps.
 * @param {any} team
 * @param {string[]} seats
 */
function facts({ late, times }, seats) {
  const known = seats.filter((seat) => late.seats[seat]);
  const busy = (/** @type {string} */ seat) => (times ? share(times.seats[seat]?.alone ?? 0, times.seconds) : null);
  const slowest = known.reduce((/** @type {string | null} */ best, seat) => ((busy(seat) ?? 0) > (best === null ? 0 : (busy(best) ?? 0)) ? seat : best), null);
  return { known, busy, slowest };
}

/**
 * The answers in one look: who is the bottleneck in quality and in time, where the reward fell and why, and if it is hacked.
 * @param {any} team
 * @param {any} replies
 * @param {string[]} seats
 * @param {string} r
 */
export function brief(team, replies, seats, r) {
  const { late, times, parts } = team;
  const { lost, replaced, fall, reward } = replies;
  if (!late || late.episodes === 0) return null;
  const { busy, slowest } = facts(team, seats);
  const table = (/** @type {string} */ id) => () => document.getElementById(id)?.scrollIntoView();
  const seconds = parts.reduce((/** @type {number} */ sum, /** @type {any} */ [, of]) => sum + of, 0);
  const step = seconds > 0 && `Time: a step is ${parts.slice(0, 3).map((/** @type {any} */ [name, of]) => `${percent(of / seconds)} ${name}`).join(", ")}.`;
  const waits = times && slowest && `${step ? "" : "Time: "}${slowest} is the bottleneck of the rollout: in ${percent(busy(slowest))} of it, this agent alone has open requests, and all others wait.`;
  return h("section", { class: "card brief" }, h("h3", {}, `In short, steps ${late.steps.join(" to ")}`), sentences([
    [lost?.text, "by agent", table("bottlenecks")],
    [replaced?.text],
    (step || waits) && [[step, waits].filter(Boolean).join(" ")],
    [fall?.text, fall?.step && `step ${fall.step}`, () => (location.hash = to(`r/${r}/step`, { step: fall.step }))],
    [reward, "replies by outcome", table("replies")],
  ].filter((of) => of && of[0])), remark(`An unsolved episode is lost ${WORDS.lost}.`));
}

/**
 * Who fails, who is rewarded without a solved task, and who the others wait for.
 * @param {any} team
 * @param {any} replies
 * @param {string[]} seats
 * @param {string} r
 */
export function weak(team, { lost, replaced }, seats, r) {
  const { late, early, times } = team;
  if (!late || late.episodes === 0) return null;
  const { known, busy, slowest } = facts(team, seats);
  const undone = Object.keys(replaced?.undone ?? {}).length > 0 && replaced.undone;
  const losing = (/** @type {number} */ n = 0) => (lost ? share(n, lost.unsolved) : null);
  const tokens = known.reduce((sum, seat) => sum + late.seats[seat].solved.tokens + late.seats[seat].unsolved.tokens, 0);
  const cell = (/** @type {number | null} */ value, strong = false) => num(strong ? h("b", { class: "bad" }, percent(value)) : percent(value));
  const pair = (/** @type {any} */ sums, /** @type {any} */ before, /** @type {string} */ name) =>
    num(fixed(mean(sums, name), 2), before && muted(` (${fixed(mean(before, name), 2)})`));
  const rows = known.map((seat) => {
    const [sums, old, time] = [late.seats[seat], early?.seats[seat], times?.seats[seat]];
    return h("tr", { "data-team": seat }, td(a(to(`r/${r}/episodes`, { stage: "train", step: late.steps.join(".."), seat, solved: 0, sort: "-reward" }), seat)),
      cell(losing(lost?.seats[seat]), seat === lost?.seat), undone && cell(losing(undone[seat])), cell(share(sums.unsolved.failed, late.episodes - late.solved)),
      ["reward", "parts"].flatMap((name) => ["solved", "unsolved"].map((outcome) => pair(sums[outcome], old?.[outcome], name))),
      cell(share(sums.solved.tokens + sums.unsolved.tokens, tokens)),
      times && [cell(share(time?.busy ?? 0, times.seconds)), cell(busy(seat), seat === slowest), cell(share(time?.waited ?? 0, time?.open ?? 0))]);
  });
  /** @type {[import("./dom.js").Child, string][]} */
  const columns = [
    [word("lost"), "unsolved episodes, by its reply"], ...(undone ? [/** @type {[string, string]} */ (["replaced", "of them, a right answer, by it or after its reply"])] : []), [word("malformed"), "of the unsolved episodes, a reply"], ["reward", "a turn, if solved"], ["reward", "a turn, if not"],
    ["reward parts", "besides the score, if solved"], ["reward parts", "if not"], ["tokens", "of all sampled"]];
  if (times) columns.push(["busy", "of the rollout, with a request"], ["alone", "no other agent has one"], ["waited", "of its time, for the engine"]);
  return h("section", { id: "bottlenecks" }, h("h2", {}, "Bottlenecks: agents that fail, are rewarded, are waited for"), sheet(
    table([word("agent"), ...columns.map(([name, about]) => h("th", { class: "n" }, name, h("small", {}, about)))], [...rows, ...(lost?.others ?? []).map((/** @type {any} */ [name, n]) => h("tr", {}, td(name), cell(losing(n)), h("td", { colspan: columns.length - 1 })))])),
  remark(`Steps ${late.steps.join(" to ")}`, early && `, in parentheses steps ${early.steps.join(" to ")}`,
    ". Bold: the bottleneck, if one stands out."));
}

/**
 * What the seats with few replies say, by the outcome of the episode or by the answer before.
 * @param {any} found
 * @param {string[]} seats
 * @param {string} r
 */
export function said(found, seats, r) {
  const { early, late } = found;
  const part = (/** @type {any} */ turns, /** @type {any} */ all, /** @type {string} */ outcome) => (turns && all?.[outcome] > 0 ? turns[outcome] / all[outcome] : null);
  const few = seats.filter((seat) => found.seats[seat]?.few);
  if (few.length === 0) return null;
  const cell = (/** @type {any} */ of, /** @type {any} */ line, /** @type {string} */ outcome) =>
    num(percent(part(line.late, of.late, outcome)), early && muted(` (${percent(part(line.early, of.early, outcome))})`));
  const rows = few.flatMap((seat) => found.seats[seat].lines.map((/** @type {any} */ line, /** @type {number} */ i) => h("tr", { "data-said": seat },
    td(i === 0 && a(to(`r/${r}/episodes`, { stage: "train", step: late.join(".."), seat, solved: 0 }), seat), i === 0 && found.seats[seat].seen && muted(" by the answer before")), td(line.text === "" ? muted("nothing") : foreign(line.text)),
    cell(found.seats[seat], line, "solved"), cell(found.seats[seat], line, "unsolved"))));
  return h("section", { id: "replies" }, h("h2", {}, "What they reply"), sheet(
    table([word("agent"), "last line of the reply", "if solved or right", "if not"], rows, 2)),
  remark(`Shares of the turns in steps ${late.join(" to ")}`, early && `, in parentheses ${early.join(" to ")}`, `. ${found.unreadable > 0 ? `${plural(found.unreadable, "episode")} cannot be read. ` : ""}Agents whose replies mostly differ are not listed.`));
}
