// The team of a run: who fails, who is rewarded, who is waited for, and what each seat replies.

import { h, a, foreign } from "./dom.js";
import { to } from "./data.js";
import { fixed, percent, plural } from "./format.js";

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
  const known = seats.filter((seat) => late.seats[seat]);
  const share = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : null);
  const unsolved = late.episodes - late.solved;
  const failed = (/** @type {string} */ seat) => share(late.seats[seat].unsolved.failed, unsolved);
  const busy = (/** @type {string} */ seat) => (times ? share(times.seats[seat]?.alone ?? 0, times.seconds) : null);
  const most = (/** @type {(seat: string) => number | null} */ of) => known.reduce((/** @type {string | null} */ best, seat) => ((of(seat) ?? 0) > (best === null ? 0 : (of(best) ?? 0)) ? seat : best), null);
  const mean = (/** @type {any} */ sums, /** @type {string} */ name) => (sums ? share(sums[name], sums.turns) : null);
  const losing = (/** @type {string} */ seat) => (lost?.unsolved > 0 ? (lost.seats[seat] ?? 0) / lost.unsolved : null);
  const [worst, slowest] = [lost?.seat, most(busy)];
  const tokens = known.reduce((sum, seat) => sum + late.seats[seat].solved.tokens + late.seats[seat].unsolved.tokens, 0);
  const cell = (/** @type {number | null} */ value, /** @type {(value: any) => string} */ text, strong = false) => h("td", { class: "n" }, strong ? h("b", { class: "bad" }, text(value)) : text(value));
  const pair = (/** @type {any} */ sums, /** @type {any} */ before, /** @type {string} */ name) =>
    h("td", { class: "n" }, fixed(mean(sums, name), 2), before && h("span", { class: "muted" }, ` (${fixed(mean(before, name), 2)})`));
  const rows = known.map((seat) => {
    const [sums, old] = [late.seats[seat], early?.seats[seat]];
    return h("tr", { "data-team": seat }, h("td", {}, a(to(`r/${r}/episodes`, { stage: "train", step: late.steps.join(".."), seat, solved: 0, sort: "-reward" }), seat)),
      cell(losing(seat), percent, seat === worst), cell(failed(seat), percent), pair(sums.solved, old?.solved, "reward"), pair(sums.unsolved, old?.unsolved, "reward"),
      pair(sums.solved, old?.solved, "parts"), pair(sums.unsolved, old?.unsolved, "parts"),
      cell(share(sums.solved.tokens + sums.unsolved.tokens, tokens), percent), times && cell(share(times.seats[seat]?.busy ?? 0, times.seconds), percent), times && cell(busy(seat), percent, seat === slowest), times && cell(share(times.seats[seat]?.waited ?? 0, times.seats[seat]?.open ?? 0), percent));
  });
  const parts = (/** @type {string} */ seat) => [mean(late.seats[seat].solved, "parts"), mean(late.seats[seat].unsolved, "parts")];
  const rewarded = known.some((seat) => parts(seat).every((part) => part !== null) && parts(seat).some((part) => part !== 0));
  const hacked = known.flatMap((seat) => {
    const [yes, no] = parts(seat);
    return yes !== null && no !== null && no > 0.05 && no >= yes - 0.02
      ? [`${seat} may have a hacked reward: from reward parts it earns ${fixed(no, 2)} where the task is not solved, ${fixed(yes, 2)} where it is.`] : [];
  });
  const says = [
    lost?.text,
    times && slowest && `Time: ${slowest} is the bottleneck. Only its requests are open in ${percent(busy(slowest))} of the rollout, while all others wait.`,
    ...hacked,
    hacked.length === 0 && rewarded && "Reward parts do not suggest a hacked reward: no seat earns more than 0.05 from them where the task is not solved, and as much as where it is.",
  ].filter(Boolean);
  return h("section", {}, h("h2", {}, "Bottlenecks: where it fails, who is rewarded, who is waited for"), h("div", { class: "card scroll" },
    says.length > 0 && h("ul", { class: "reasons" }, says.map((text) => h("li", {}, foreign(/** @type {string} */ (text), "plain")))),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "seat"), [
      ["lost", "of the unsolved episodes, at its reply"], ["malformed", "reply of it in unsolved episodes"], ["reward", "a turn, if solved"], ["reward", "if not solved"],
      ["parts", "reward but score, if solved"], ["parts", "if not solved"], ["tokens", "of all sampled"],
      ...(times ? [["busy", "of the rollout, a request open"], ["alone", "only its requests open"], ["waited", "of its time, for the engine"]] : [])].map(([name, note]) => h("th", { class: "n" }, name, h("small", {}, note))))),
      h("tbody", {}, rows))),
  h("p", { class: "muted" }, `Steps ${late.steps.join(" to ")}`, early && `, in parentheses steps ${early.steps.join(" to ")}`,
    ". Lost: the reply is malformed or truncated, or the last solved episode of the task goes on otherwise from there. Bold: the bottleneck."));
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
    h("td", { class: "n" }, percent(part(line.late, of.late, outcome)), early && h("span", { class: "muted" }, ` (${percent(part(line.early, of.early, outcome))})`));
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
    h("td", {}, i === 0 && a(to(`r/${r}/episodes`, { stage: "train", step: late.join(".."), seat, solved: 0 }), seat)), h("td", {}, line.text === "" ? h("span", { class: "muted" }, "nothing") : foreign(line.text)),
    cell(found.seats[seat], line, "solved"), cell(found.seats[seat], line, "unsolved"))));
  return h("section", {}, h("h2", {}, "What they reply"), h("div", { class: "card scroll" }, says.length > 0 && h("ul", { class: "reasons" }, says),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "seat"), h("th", {}, "last line of the reply"), ["if solved", "if not"].map((name) => h("th", { class: "n" }, name)))), h("tbody", {}, rows))),
  h("p", { class: "muted" }, `Shares of the turns in steps ${late.join(" to ")}`, early && `, in parentheses ${early.join(" to ")}`, `. ${found.unreadable > 0 ? `${plural(found.unreadable, "episode")} cannot be read. ` : ""}Seats whose replies are mostly unlike are not listed.`));
}
