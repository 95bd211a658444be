// One episode: a lane for each seat, and one for each environment.

import { h, fill, a, foreign, long, muted, remark, say } from "./dom.js";
import { get, to } from "./data.js";
import { count, fixed, plural, signed, turnPath } from "./format.js";
import { Lanes } from "./lanes.js";
import { episodePath } from "./page_episodes.js";

/** @param {number[]} a @param {number[]} b */
function before(a, b) {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    if (a[i] === undefined || b[i] === undefined) return a.length - b.length;
    if (a[i] !== b[i]) return a[i] - b[i];
  }
  return 0;
}

/**
 * Turns and actions in their order: an action stands before the turn that was asked next on its branch.
 * @param {any} episode
 * @returns {any[]}
 */
export function items(episode) {
  const turns = episode.turns.map((/** @type {any} */ turn, /** @type {number} */ i) => ({ kind: "turn", i, path: turn.path, order: 1, nth: 0, of: turn }));
  const acts = episode.acts.map((/** @type {any} */ act, /** @type {number} */ i) => ({ kind: "act", i, path: act.path, order: 0, nth: act.nth, of: act }));
  return [...turns, ...acts].sort((x, y) => before(x.path, y.path) || x.order - y.order || x.nth - y.nth);
}

/**
 * A reward as its sum.
 * @param {any} reward
 */
export function sum(reward) {
  if (!reward) return muted("no reward: unscored");
  const parts = reward.parts.map((/** @type {any} */ part) => ` ${part.value < 0 ? "−" : "+"} ${fixed(Math.abs(part.value))} ${part.name}${part.of === "episode" ? "" : ` (${part.of})`}`);
  return h("span", {}, `reward ${fixed(reward.total)}`, parts.length > 0 && muted(` = ${fixed(reward.score)} score${parts.join("")}`));
}

/**
 * The advantage of a turn, or why there is none.
 * @param {any} turn
 * @param {string} place of the groups of the step
 */
export function advantage(turn, place) {
  if (!turn.sample) return muted(`not trained on: ${turn.untrained}`);
  const { record } = turn.sample;
  const value = (record.taught ?? record.advantage) * (record.factor ?? 1);
  const text = h("b", { class: value > 0 ? "good" : value < 0 ? "bad" : "" }, `advantage ${signed(value)}`);
  return record.group === undefined ? text : a(to(`${place}/${record.group}`), text);
}

/** @param {any} value */
export function action(value) {
  if (value.text !== undefined) return foreign(value.text);
  return foreign(`${value.tool.name}(${JSON.stringify(value.tool.arguments)})`);
}

/**
 * Turns by the time at which they were asked, with the actions before them. Without times, in their order.
 * @param {any[]} ordered
 * @param {Map<number, [number, number]> | null} times asked and ended in ms, by turn
 */
function placed(ordered, times) {
  if (!times) return ordered.map((item, i) => ({ ...item, from: i, to: i + 0.8 }));
  /** @type {any[]} */
  const found = [];
  const end = Math.max(...[...times.values()].map(([, ended]) => ended));
  for (const item of [...ordered].reverse()) {
    const time = item.kind === "turn" ? times.get(item.i) : undefined;
    // An action has no time of its own: it is before the turn that follows it.
    const at = time?.[0] ?? found[0]?.from ?? end;
    found.unshift({ ...item, from: at, to: time?.[1] ?? at });
  }
  return found.map((item, i) => ({ item, i })).sort((x, y) => x.item.from - y.item.from || x.i - y.i).map(({ item }) => item);
}

/** Cards of one episode. */
class Cards {
  /**
   * @param {any} at
   * @param {any} episode
   * @param {any} run
   */
  constructor(at, episode, run) {
    const [, stage, step, n] = at.path;
    this.r = at.run;
    this.episode = episode;
    this.stage = stage;
    this.step = step;
    this.n = n;
    this.own = run.plan?.environment ?? "environment";
    const spoke = new Set(episode.turns.map((/** @type {any} */ turn) => turn.seat));
    const environments = new Set(episode.acts.map((/** @type {any} */ act) => act.environment ?? this.own));
    /** @type {string[]} */
    this.lanes = [...episode.seats.filter((/** @type {string} */ seat) => spoke.has(seat)), ...environments];
    /** @type {(key: string) => void} */
    this.reveal = () => {};
  }

  /** @param {any} item */
  lane(item) {
    return this.lanes.indexOf(item.kind === "turn" ? item.of.seat : (item.of.environment ?? this.own));
  }

  /**
   * A turn with its complete texts.
   * @param {number} i
   */
  whole(i) {
    return get(`runs/${this.r}/episodes/${this.stage}/${this.step}/${this.n}/turns/${i}`);
  }

  /** @param {any} m @param {number} i */
  message(m, i) {
    return h("div", { class: "message" }, h("span", { class: "role" }, m.role),
      long(m.content, async () => (await this.whole(i)).prompt.find((/** @type {any} */ other) => other.content.startsWith(m.content.start)).content));
  }

  /** @param {any} turn @param {number} i */
  prompt(turn, i) {
    const { shared } = turn;
    const messages = turn.prompt.length + (shared?.messages ?? 0);
    const all = async () => fill(body, (await this.whole(i)).prompt.map((/** @type {any} */ m) => this.message(m, i)));
    const body = h("div", {},
      shared && remark(`the first ${plural(shared.messages, "message")} as in turn ${turnPath(this.episode.turns[shared.turn].path)} `, h("button", { class: "link", onclick: all }, "show")),
      turn.prompt.map((/** @type {any} */ m) => this.message(m, i)));
    return h("details", {}, h("summary", {}, `prompt: ${plural(messages, "message")}${turn.tokens ? `, ${turn.tokens.prompt} tokens` : ""}`), body);
  }

  /** @param {any} turn */
  saw(turn) {
    const name = (/** @type {any} */ seen) => (seen.turn !== undefined ? turnPath(this.episode.turns[seen.turn].path) : `action ${seen.act}`);
    return turn.saw.length > 0 && h("span", {}, "saw: ", turn.saw.map((/** @type {any} */ seen, /** @type {number} */ k) => [k > 0 && ", ",
      h("button", { class: "link", onclick: () => this.reveal(key(seen)) }, name(seen))]).flat());
  }

  /** @param {any} turn @param {number} i */
  turn(turn, i) {
    const { tokens } = turn;
    const place = `r/${this.r}/tokens/${this.stage}/${this.step}/${this.n}/${i}`;
    return h("article", { class: `turn lane${this.lanes.indexOf(turn.seat) % 6}${turn.error ? " malformed" : ""}`, tabindex: 0, "data-turn": i, "aria-label": `turn ${turnPath(turn.path)}, ${turn.seat}` },
      h("header", {}, h("b", { class: "muted" }, turnPath(turn.path)), h("span", { class: "seat" }, turn.seat), sum(turn.reward), advantage(turn, `r/${this.r}/group/${this.step}`)),
      long(turn.reply, async () => (await this.whole(i)).reply),
      turn.error && h("p", { class: "bad" }, h("b", { "aria-hidden": "true" }, "! "), "malformed: ", say(typeof turn.error === "string" ? turn.error : turn.error.start)),
      this.prompt(turn, i),
      h("footer", {},
        h("span", {}, tokens ? `${turn.policy} v${tokens.version}` : turn.policy),
        tokens && a(to(place), "tokens"),
        tokens && h("span", {}, `${plural(tokens.completion, "token")}, temperature ${fixed(tokens.temperature, 1)}, log-prob ${fixed(tokens.logprob_sum, 2)}, ended by ${tokens.finish}`),
        turn.truncated && h("span", { class: "bad" }, "truncated"),
        turn.shortened > 0 && h("span", { class: "warn" }, `${count(turn.shortened)} characters of observations cut`),
        turn.forked && h("span", { class: "warn" }, "rendered again"),
        turn.masked && h("span", {}, "masked"),
        turn.tools.length > 0 && h("span", {}, `tools: ${turn.tools.join(", ")}`),
        this.saw(turn)));
  }

  /** @param {any} item */
  act(item) {
    const lane = this.lane(item);
    return h("article", { class: `turn lane${lane % 6}`, tabindex: 0, "aria-label": `action ${item.i}` },
      h("header", {}, h("span", { class: "seat" }, this.lanes[lane]), h("b", {}, action(item.of.action))),
      long(item.of.observation),
      item.of.done && h("footer", {}, "the environment accepts no further action"));
  }

  /**
   * All turns and actions in lanes.
   * @param {Map<number, [number, number]> | null} times
   */
  inLanes(times) {
    let branch = "";
    const all = placed(items(this.episode), times).map((item) => {
      const mine = times ? "" : item.path.slice(0, -1).join(".");
      const head = mine === branch ? null : mine === "" ? "after the branches" : `branch ${mine}`;
      branch = mine;
      const label = times ? (item.kind === "turn" ? `${fixed(item.from / 1e3, 2)} s` : "act") : item.kind === "turn" ? turnPath(item.path) : "act";
      return { key: `${item.kind}${item.i}`, lane: this.lane(item), label, branch: head, bad: Boolean(item.of.error), from: item.from, to: item.to,
        make: () => (item.kind === "turn" ? this.turn(item.of, item.i) : this.act(item)) };
    });
    const links = this.episode.turns.flatMap((/** @type {any} */ turn, /** @type {number} */ i) => turn.saw.map((/** @type {any} */ seen) => ({ from: key(seen), to: `turn${i}` })));
    const lanes = new Lanes(this.lanes, all, links);
    this.reveal = (name) => lanes.reveal(name);
    return lanes.element;
  }
}

/** @param {any} seen */
function key(seen) {
  return seen.turn !== undefined ? `turn${seen.turn}` : `act${seen.act}`;
}

/** @param {any} outcome */
export function verdict(outcome) {
  const score = outcome.scored;
  if (!score) return [h("b", { class: "bad" }, `unscored, ${outcome.unscored.kind}: `), say(outcome.unscored.message)];
  const metrics = Object.entries(score.metrics ?? {}).map(([name, value]) => `${name} ${typeof value === "number" ? fixed(value, 2) : value}`).join(", ");
  return [h("b", { class: score.solved ? "good" : "bad" }, score.solved ? "solved" : "not solved"), `, score ${fixed(score.reward)}`, metrics && ` (${metrics})`];
}

/**
 * What is known of an episode besides its turns.
 * @param {Cards} cards
 * @param {number[]} groups
 */
function facts({ r, stage, step, episode }, groups) {
  const { row, task } = episode;
  const square = (/** @type {any} */ other) => h("a", {
    class: `square${other.solved ? " solved" : ""}`, href: to(`r/${r}/${episodePath({ ...other, stage })}`),
    title: `step ${other.step}, episode ${other.index}: ${other.solved === null ? "unscored" : other.solved ? "solved" : "not solved"}`,
    "aria-current": other.n === row.n && other.step === row.step && "true",
  }, other.solved === null ? "?" : other.solved ? "✓" : "–");
  const group = episode.of_task.filter((/** @type {any} */ other) => other.step === row.step);
  const others = episode.of_task.filter((/** @type {any} */ other) => other.step !== row.step);
  const reference = h("span", {}, h("button", { class: "link", onclick: () => fill(reference, foreign(JSON.stringify(task.data, null, 1))) }, "show"));
  // The next one with another outcome, or the next one.
  const beside = group.find((/** @type {any} */ other) => other.solved !== row.solved) ?? group.find((/** @type {any} */ other) => other.n !== row.n);
  return h("dl", { class: "facts card" },
    h("dt", {}, "question"), h("dd", { class: "prose" }, long(task.question)),
    h("dt", {}, "answer"), h("dd", {}, episode.answer === null ? muted("none") : long(episode.answer)),
    h("dt", {}, "outcome"), h("dd", {}, verdict(episode.outcome)),
    h("dt", {}, "task data"), h("dd", {}, reference),
    h("dt", {}, "group"), h("dd", { class: "line" }, h("span", { class: "squares" }, group.map(square)),
      beside && a(to("beside", { a: `${r}/${stage}/${step}/${row.n}`, b: `${r}/${stage}/${beside.step}/${beside.n}` }), "side by side")),
    others.length > 0 && [h("dt", {}, "other steps"), h("dd", {}, h("span", { class: "squares" }, others.slice(0, 64).map(square)))],
    groups.length > 0 && [h("dt", {}, "compared in"), h("dd", {}, groups.map((id, i) => [i > 0 && ", ", a(to(`r/${r}/group/${step}/${id}`), `group ${id}`)]).flat())],
    stage === "train" && [h("dt", {}, "again"), h("dd", {}, foreign(`maverl replay RUN ${episode.name}`))]);
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const [, stage, step, n] = at.path;
  const [run, episode] = await Promise.all([get(`runs/${r}`), get(`runs/${r}/episodes/${stage}/${step}/${n}`)]);
  const times = episode.times.length > 0 ? new Map(episode.times.map((/** @type {any} */ [i, asked, ended]) => [i, [asked, ended]])) : null;
  const byTime = times !== null && at.query.get("order") === "time";
  const cards = new Cards(at, episode, run);
  const lanes = cards.inLanes(byTime ? times : null);
  const { row, task } = episode;
  const go = (/** @type {string} */ path, query = {}) => (location.hash = to(`r/${r}/${path}`, query));
  const goto = (/** @type {number} */ by) => {
    const group = episode.of_task.filter((/** @type {any} */ other) => other.step === row.step);
    const next = group[group.findIndex((/** @type {any} */ other) => other.n === row.n) + by];
    if (next) go(`episode/${stage}/${step}/${next.n}`, { order: at.query.get("order") });
  };
  const groups = [...new Set(episode.turns.map((/** @type {any} */ turn) => turn.sample?.record.group).filter((/** @type {any} */ id) => id !== undefined))];
  const order = (/** @type {string} */ name, /** @type {boolean} */ pressed) =>
    h("button", { "aria-pressed": String(pressed), onclick: () => go(`episode/${stage}/${step}/${n}`, { order: name === "time" ? name : "" }) }, name);
  fill(root,
    h("div", { class: "line" },
      h("h1", {}, `${stage === "train" ? "Step" : `${stage}, step`} ${step}, `, say(task.id)),
      muted(say(task.source), `, episode ${row.index} of the task`)),
    facts(cards, groups),
    episode.acts.length === 0 && run.holds && !episode.has_samples && remark("This run was made by a version that kept no record of actions and samples."),
    times && h("div", { class: "bar" }, muted(`${plural(episode.turns.length, "turn")}, in the order of their`), order("path", !byTime), order("time", byTime)),
    lanes);
  return {
    title: `${episode.name} of ${run.run.name}`,
    keys: {
      "]": () => goto(1),
      "[": () => goto(-1),
      t: () => {
        const turn = Number(document.activeElement?.closest("[data-turn]")?.getAttribute("data-turn") ?? 0);
        if (episode.turns[turn]?.tokens) go(`tokens/${stage}/${step}/${n}/${turn}`);
      },
      g: () => groups.length > 0 && go(`group/${step}/${groups[0]}`),
    },
  };
}
