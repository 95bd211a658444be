// The team of a run: who fails, who is rewarded, who is waited for, and what each seat replies.

import { h, a, foreign, num, td, muted, remark, sheet, table, word, sentences } from "./dom.js";
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
 * The answers in one look: who is the bottleneck in quality and in time, and if a reward is hacked.
 * @param {any} team
 * @param {any} lost
 * @param {string[]} seats
 */
export function brief(team, lost, seats) {
  const { late, times } = team;
  if (!late || late.episodes === 0) return null;
  const { known, busy, slowest } = facts(team, seats);
  const parts = (/** @type {string} */ seat) => [mean(late.seats[seat].solved, "parts"), mean(late.seats[seat].unsolved, "parts")];
  const rewarded = known.some((seat) => parts(seat).every((part) => part !== null) && parts(seat).some((part) => part !== 0));
  const hacked = known.flatMap((seat) => {
    const [yes, no] = parts(seat);
    return yes !== null && no !== null && no > 0.05 && no >= yes - 0.02
      ? [`Reward: that of ${seat} may be hacked. From reward parts it earns ${fixed(no, 2)} a turn where the task is not solved, ${fixed(yes, 2)} where it is.`] : [];
  });
  return h("section", { class: "card brief" }, h("h3", {}, `In short, steps ${late.steps.join(" to ")}`), sentences([
    lost?.text,
    times && slowest && `Time: ${slowest} is the bottleneck. Only its requests are open in ${percent(busy(slowest))} of the rollout, while all others wait.`,
    ...hacked,
    hacked.length === 0 && rewarded && "Reward: none seems hacked. No seat earns more than 0.05 from reward parts where the task is not solved, and as much as where it is.",
  ].filter(Boolean)), remark("Lost at a seat: its reply is malformed or truncated, or else the first that no solved episode of the task goes on from."));
}

/**
 * Who fails, who is rewarded without a solved task, and who the others wait for.
 * @param {any} team
 * @param {any} lost
 * @param {string[]} seats
 * @param {string} r
 */
export function weak(team, lost, seats, r) {
  const { late, early, times } = team;
  if (!late || late.episodes === 0) return null;
  const { known, busy, slowest } = facts(team, seats);
  const losing = (/** @type {string} */ seat) => (lost?.unsolved > 0 ? (lost.seats[seat] ?? 0) / lost.unsolved : null);
  const tokens = known.reduce((sum, seat) => sum + late.seats[seat].solved.tokens + late.seats[seat].unsolved.tokens, 0);
  const cell = (/** @type {number | null} */ value, strong = false) => num(strong ? h("b", { class: "bad" }, percent(value)) : percent(value));
  const pair = (/** @type {any} */ sums, /** @type {any} */ before, /** @type {string} */ name) =>
    num(fixed(mean(sums, name), 2), before && muted(` (${fixed(mean(before, name), 2)})`));
  const rows = known.map((seat) => {
    const [sums, old, time] = [late.seats[seat], early?.seats[seat], times?.seats[seat]];
    return h("tr", { "data-team": seat }, td(a(to(`r/${r}/episodes`, { stage: "train", step: late.steps.join(".."), seat, solved: 0, sort: "-reward" }), seat)),
      cell(losing(seat), seat === lost?.seat), cell(share(sums.unsolved.failed, late.episodes - late.solved)),
      ["reward", "parts"].flatMap((name) => ["solved", "unsolved"].map((outcome) => pair(sums[outcome], old?.[outcome], name))),
      cell(share(sums.solved.tokens + sums.unsolved.tokens, tokens)),
      times && [cell(share(time?.busy ?? 0, times.seconds)), cell(busy(seat), seat === slowest), cell(share(time?.waited ?? 0, time?.open ?? 0))]);
  });
  /** @type {[import("./dom.js").Child, string][]} */
  const columns = [
    [word("lost"), "of the unsolved episodes, at its reply"], [word("malformed"), "reply of it in unsolved episodes"], ["reward", "a turn, if solved"], ["reward", "if not solved"],
    [word("parts"), "reward but score, if solved"], ["parts", "if not solved"], ["tokens", "of all sampled"]];
  if (times) columns.push(["busy", "of the rollout, a request open"], ["alone", "only its requests open"], ["waited", "of its time, for the engine"]);
  return h("section", {}, h("h2", {}, "Bottlenecks: where it fails, who is rewarded, who is waited for"), sheet(
    table([word("seat"), ...columns.map(([name, about]) => h("th", { class: "n" }, name, h("small", {}, about)))], rows)),
  remark(`Steps ${late.steps.join(" to ")}`, early && `, in parentheses steps ${early.steps.join(" to ")}`,
    ". Bold: the bottleneck."));
}

/** Share of the replies of a seat that its listed lines must have: a seat whose replies are all unlike decides nothing by them. */
const FEW = 0.7;
/** Share of a line above which a seat says the same whatever the outcome. */
const SAME = 0.9;

/**
 * What the seats with few replies say, by the outcome of the episode.
 * @param {any} found
 * @param {string[]} seats
 * @param {string} r
 */
export function said(found, seats, r) {
  const { early, late } = found;
  const part = (/** @type {any} */ turns, /** @type {any} */ all, /** @type {string} */ outcome) => (turns && all?.[outcome] > 0 ? turns[outcome] / all[outcome] : null);
  const whole = (/** @type {any} */ turns) => turns.solved + turns.unsolved;
  const few = seats.filter((seat) => {
    const of = found.seats[seat];
    return of && whole(of.late) > 0 && of.lines.reduce((/** @type {number} */ sum, /** @type {any} */ line) => sum + whole(line.late), 0) >= FEW * whole(of.late);
  });
  if (few.length === 0) return null;
  const cell = (/** @type {any} */ of, /** @type {any} */ line, /** @type {string} */ outcome) =>
    num(percent(part(line.late, of.late, outcome)), early && muted(` (${percent(part(line.early, of.early, outcome))})`));
  const says = few.flatMap((seat) => {
    const of = found.seats[seat];
    const [first] = of.lines;
    const [yes, no] = ["solved", "unsolved"].map((outcome) => part(first.late, of.late, outcome));
    const before = ["unsolved", "solved"].map((outcome) => part(first.early, of.early, outcome));
    if (yes === null || no === null || Math.min(yes, no) < SAME) return [];
    return [h("li", {}, `${seat} replies `, foreign(first.text), ` in ${percent(no)} of its turns where the task is not solved, and in ${percent(yes)} where it is`,
      early && ` (steps ${early.join(" to ")}: ${before.map((share) => percent(share)).join(" and ")})`, ": its reply does not tell right from wrong.")];
  });
  const rows = few.flatMap((seat) => found.seats[seat].lines.map((/** @type {any} */ line, /** @type {number} */ i) => h("tr", { "data-said": seat },
    td(i === 0 && a(to(`r/${r}/episodes`, { stage: "train", step: late.join(".."), seat, solved: 0 }), seat)), td(line.text === "" ? muted("nothing") : foreign(line.text)),
    cell(found.seats[seat], line, "solved"), cell(found.seats[seat], line, "unsolved"))));
  return h("section", {}, h("h2", {}, "What they reply"), sheet(says.length > 0 && h("ul", { class: "reasons" }, says),
    table([word("seat"), "last line of the reply", "if solved", "if not"], rows, 2)),
  remark(`Shares of the turns in steps ${late.join(" to ")}`, early && `, in parentheses ${early.join(" to ")}`, `. ${found.unreadable > 0 ? `${plural(found.unreadable, "episode")} cannot be read. ` : ""}Seats whose replies are mostly unlike are not listed.`));
}
