// Two episodes of a task side by side: their answers, and the turn at which they part.

import { h, fill, a, foreign, long, muted, remark, say } from "./dom.js";
import { get, to } from "./data.js";
import { count, plural, turnPath } from "./format.js";
import { action, advantage, items, sum, verdict } from "./page_episode.js";

/** Rows that are shown from the one on at which the episodes part. */
const ROWS = 40;

/**
 * True if the server sent only the start of a text of a turn.
 * @param {any} item
 */
function cut({ kind, of }) {
  return kind === "turn" && [of.reply, ...of.prompt.map((/** @type {any} */ m) => m.content)].some((text) => text.start !== undefined);
}

/**
 * What is compared of a turn or an action.
 * @param {string} place
 * @param {any} item
 * @param {boolean} cut fetches the complete texts of a turn
 */
async function content(place, item, cut) {
  const { of } = item;
  if (item.kind === "act") return { who: "the environment", given: JSON.stringify(of.action), did: JSON.stringify(of.observation) };
  const whole = cut ? await get(`${place}/turns/${item.i}`) : of;
  return { who: of.seat, given: JSON.stringify([cut ? null : of.shared, whole.prompt]), did: JSON.stringify(whole.reply) };
}

/**
 * The first item at which two episodes differ, and how; the number of common items if there is none.
 * @param {{place: string, items: any[]}[]} sides
 */
async function parting([one, other]) {
  const length = Math.min(one.items.length, other.items.length);
  for (let i = 0; i < length; i++) {
    const [x, y] = await Promise.all([one, other].map((of) => content(of.place, of.items[i], cut(one.items[i]) || cut(other.items[i]))));
    if (x.who !== y.who) return { at: i, how: `${x.who} is asked in A, ${y.who} in B` };
    if (x.given !== y.given) return { at: i, how: x.who === "the environment" ? "the actions differ" : `the prompts of ${x.who} differ` };
    if (x.did !== y.did) return { at: i, how: x.who === "the environment" ? "equal actions observe something else" : `the replies of ${x.who} to equal prompts differ` };
  }
  return { at: length, how: one.items.length === other.items.length ? null : `only ${one.items.length > length ? "A" : "B"} goes on` };
}

/** @param {any} item */
function label(item) {
  return item.kind === "turn" ? `turn ${turnPath(item.path)}` : "an action";
}

/**
 * A text after the part that it shares with another.
 * @param {any} text
 * @param {any} other
 */
function apart(text, other) {
  if (typeof text !== "string" || typeof other !== "string") return long(text);
  let at = 0;
  while (at < text.length && text[at] === other[at]) at += 1;
  return at < 12 || at === text.length ? long(text) : h("div", {}, remark(`the first ${plural(at, "character")} are equal: `, foreign(text.slice(Math.max(0, at - 60), at))), long(text.slice(at)));
}

/**
 * A turn or an action of one episode.
 * @param {any} side
 * @param {any} item
 * @param {any} other
 */
function cell(side, item, other) {
  if (!item) return h("div", { class: "muted" }, "nothing more");
  const { of } = item;
  if (item.kind === "act") return h("article", { class: "turn" }, h("header", {}, h("b", {}, "action "), action(of.action)), apart(of.observation, other?.of.observation));
  return h("article", { class: `turn${of.error ? " malformed" : ""}` },
    h("header", {}, h("b", { class: "muted" }, turnPath(of.path)), h("b", {}, of.seat), sum(of.reward), advantage(of, `r/${side.r}/group/${side.step}`)),
    apart(of.reply, other?.of.reply),
    of.error && h("p", { class: "bad" }, "! malformed: ", say(typeof of.error === "string" ? of.error : of.error.start)));
}

/**
 * A link to what an episode is of: its step, or its run.
 * @param {any} of
 */
function back({ r, stage, step, run }) {
  return stage === "train" ? a(to(`r/${r}/step`, { step }), `step ${step} of ${run}`) : a(to(`r/${r}`), run);
}

/** @param {string} name */
async function side(name) {
  const [r, stage, step, n] = name.split("/");
  const place = `runs/${r}/episodes/${stage}/${step}/${n}`;
  const [run, episode] = await Promise.all([get(`runs/${r}`), get(place)]);
  return { r, stage, step, n, place, run: run.run.name, episode, items: items(episode) };
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const names = ["a", "b"].map((name) => at.query.get(name));
  if (names.some((name) => !name)) throw new Error("choose two episodes: a group and an episode have links to this page");
  const sides = await Promise.all(names.map(side));
  const { at: from, how } = await parting(sides);
  const go = (/** @type {number} */ i, /** @type {string} */ name) => (location.hash = to("beside", { a: i === 0 ? name : names[0], b: i === 1 ? name : names[1] }));
  const choice = (/** @type {any} */ of, /** @type {number} */ i) => {
    const select = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": `episode ${"AB"[i]}`, onchange: () => go(i, select.value) },
      of.episode.of_task.map((/** @type {any} */ other) => h("option", { value: `${of.r}/${of.stage}/${other.step}/${other.n}`, selected: `${other.step}/${other.n}` === `${of.step}/${of.n}` },
        `step ${other.step}, #${other.index}: ${other.solved === null ? "unscored" : other.solved ? "solved" : "not solved"}`))));
    return select;
  };
  const head = (/** @type {any} */ of, /** @type {number} */ i) => h("section", { class: "card", "data-side": "AB"[i] },
    h("div", { class: "line" }, h("h3", {}, `${"AB"[i]} `, a(to(`r/${of.r}/episode/${of.stage}/${of.step}/${of.n}`), say(`${of.episode.name} of ${of.run}`))), choice(of, i)),
    h("dl", { class: "facts" },
      h("dt", {}, "answer"), h("dd", {}, of.episode.answer === null ? muted("none") : long(of.episode.answer)),
      h("dt", {}, "outcome"), h("dd", {}, verdict(of.episode.outcome)),
      h("dt", {}, "length"), h("dd", {}, `${plural(of.episode.turns.length, "turn")}, ${count(of.episode.row.tokens)} sampled tokens`)));
  const most = Math.max(...sides.map((of) => of.items.length));
  const rows = Array.from({ length: Math.min(most - from, ROWS) }, (_, i) => from + i);
  const [first, second] = sides;
  const item = first.items[from] ?? second.items[from];
  fill(root,
    h("h1", {}, "Side by side"),
    h("p", { class: "line", "data-back": "" }, "back to", [...new Set(sides.map((of) => `${of.r}/${of.step}`))].map((_, i) => back(sides[i]))),
    h("p", {}, say(first.episode.task.question)),
    first.episode.task.id !== second.episode.task.id && h("p", { class: "bad" }, "These are episodes of different tasks."),
    h("div", { class: "cols" }, sides.map(head)),
    h("p", { "data-parting": from }, how === null ? h("b", {}, "Both are equal, turn by turn.") : [h("b", {}, `They part at ${label(item)}`), `: ${how}. `],
      from > 0 && how !== null && muted(`The ${plural(from, "row")} before ${from === 1 ? "is" : "are"} equal.`)),
    h("div", { class: "beside" }, rows.flatMap((i) => [cell(first, first.items[i], second.items[i]), cell(second, second.items[i], first.items[i])])),
    most - from > ROWS && remark(`The first ${ROWS} rows from there on; the pages of the episodes have all.`));
  return { title: "Side by side" };
}
