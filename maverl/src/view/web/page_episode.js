// One episode: a lane for each seat, and one for each environment.

import { h, svg, fill, a, foreign, long } from "./dom.js";
import { get, to } from "./data.js";
import { count, fixed, plural, signed, turnPath } from "./format.js";
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
 */
function items(episode) {
  const turns = episode.turns.map((/** @type {any} */ turn, /** @type {number} */ i) => ({ kind: "turn", i, path: turn.path, order: 1, nth: 0, of: turn }));
  const acts = episode.acts.map((/** @type {any} */ act, /** @type {number} */ i) => ({ kind: "act", i, path: act.path, order: 0, nth: act.nth, of: act }));
  return [...turns, ...acts].sort((x, y) => before(x.path, y.path) || x.order - y.order || x.nth - y.nth);
}

/**
 * A reward as its sum.
 * @param {any} reward
 */
export function sum(reward) {
  if (!reward) return h("span", { class: "muted" }, "no reward: unscored");
  const parts = reward.parts.map((/** @type {any} */ part) => ` ${part.value < 0 ? "−" : "+"} ${fixed(Math.abs(part.value))} ${part.name}`);
  return h("span", {}, `R ${fixed(reward.total)}`, parts.length > 0 && h("span", { class: "muted" }, ` = ${fixed(reward.score)} score${parts.join("")}`));
}

/** @param {any} value */
function action(value) {
  if (value.text !== undefined) return foreign(value.text);
  return foreign(`${value.tool.name}(${JSON.stringify(value.tool.arguments)})`);
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
  const whole = (/** @type {number} */ i) => get(`runs/${r}/episodes/${stage}/${step}/${n}/turns/${i}`);
  const spoke = new Set(episode.turns.map((/** @type {any} */ turn) => turn.seat));
  const seats = episode.seats.filter((/** @type {string} */ seat) => spoke.has(seat));
  const environments = [...new Set(episode.acts.map((/** @type {any} */ act) => act.environment ?? run.plan?.environment ?? "environment"))];
  const lanes = [...seats, ...environments];
  const all = items(episode);
  /** @type {Map<string, HTMLElement>} */
  const cards = new Map();
  const key = (/** @type {any} */ seen) => (seen.turn !== undefined ? `turn${seen.turn}` : `act${seen.act}`);
  const name = (/** @type {any} */ seen) => (seen.turn !== undefined ? turnPath(episode.turns[seen.turn].path) : `action ${seen.act}`);

  const messages = (/** @type {any} */ turn, /** @type {number} */ i) => {
    const shared = turn.shared;
    const count = turn.prompt.length + (shared?.messages ?? 0);
    const label = `prompt: ${plural(count, "message")}${turn.tokens ? `, ${turn.tokens.prompt} tokens` : ""}`;
    const all = async () => {
      const full = await whole(i);
      fill(body, full.prompt.map((/** @type {any} */ m) => message(m, i)));
    };
    const body = h("div", {},
      shared && h("p", { class: "muted" }, `the first ${plural(shared.messages, "message")} as in turn ${turnPath(episode.turns[shared.turn].path)} `, h("button", { class: "link", onclick: all }, "show")),
      turn.prompt.map((/** @type {any} */ m) => message(m, i)));
    return h("details", {}, h("summary", {}, label), body);
  };
  const message = (/** @type {any} */ m, /** @type {number} */ i) =>
    h("div", { class: "message" }, h("span", { class: "role" }, m.role), long(m.content, async () => (await whole(i)).prompt.find((/** @type {any} */ other) => other.content.startsWith(m.content.start)).content));

  const advantage = (/** @type {any} */ turn) => {
    if (!turn.sample) return h("span", { class: "muted", title: "not trained on" }, `not trained on: ${turn.untrained}`);
    const { record } = turn.sample;
    const value = record.advantage * (record.factor ?? 1);
    const text = h("b", { class: value > 0 ? "good" : value < 0 ? "bad" : "" }, `A ${signed(value)}`);
    return record.group === undefined ? text : a(to(`r/${r}/group/${step}/${record.group}`), text);
  };

  const turnCard = (/** @type {any} */ item) => {
    const turn = item.of;
    const lane = lanes.indexOf(turn.seat);
    const tokens = turn.tokens;
    const saw = turn.saw.length > 0 && h("span", {}, "saw: ", turn.saw.map((/** @type {any} */ seen, /** @type {number} */ k) => [k > 0 && ", ",
      h("button", { class: "link", onclick: () => cards.get(key(seen))?.scrollIntoView({ block: "center" }) }, name(seen))]).flat());
    return h("article", { class: `turn lane${lane % 6}${turn.error ? " malformed" : ""}`, tabindex: 0, "data-turn": item.i, "aria-label": `turn ${turnPath(turn.path)}, ${turn.seat}` },
      h("header", {}, h("b", { class: "muted" }, turnPath(turn.path)), h("span", { class: "seat" }, turn.seat), sum(turn.reward), advantage(turn)),
      long(turn.reply, async () => (await whole(item.i)).reply),
      turn.error && h("p", { class: "bad" }, h("b", { "aria-hidden": "true" }, "! "), "malformed: ", foreign(typeof turn.error === "string" ? turn.error : turn.error.start, "plain")),
      messages(turn, item.i),
      h("footer", {},
        h("span", {}, tokens ? `${turn.policy} v${tokens.version}` : turn.policy),
        tokens && h("span", {}, a(to(`r/${r}/tokens/${stage}/${step}/${n}/${item.i}`), "tokens")),
        tokens && h("span", {}, `${plural(tokens.completion, "token")}, T ${fixed(tokens.temperature, 1)}, log-prob ${fixed(tokens.logprob_sum, 2)}`),
        turn.truncated && h("span", { class: "bad" }, "truncated"),
        turn.shortened > 0 && h("span", { class: "warn" }, `${count(turn.shortened)} characters of observations cut`),
        turn.forked && h("span", { class: "warn" }, "rendered again"),
        turn.masked && h("span", {}, "masked"),
        turn.tools.length > 0 && h("span", {}, `tools: ${turn.tools.join(", ")}`),
        saw));
  };
  const actCard = (/** @type {any} */ item) => {
    const act = item.of;
    const lane = lanes.indexOf(act.environment ?? run.plan?.environment ?? "environment");
    return h("article", { class: `turn lane${lane % 6}`, tabindex: 0, "aria-label": `action ${item.i}` },
      h("header", {}, h("span", { class: "seat" }, lanes[lane]), h("b", {}, action(act.action))),
      long(act.observation),
      act.done && h("footer", {}, "the environment accepts no further action"));
  };

  const grid = h("div", { class: "lanes", role: "list", "aria-label": "turns and actions" });
  const links = svg("svg", { class: "links", "aria-hidden": "true" });
  /** @type {Node[]} */
  const rows = [];
  lanes.forEach((lane, i) => rows.push(placed(h("div", { class: `lane-head lane${i % 6}` }, lane), i + 2, 1)));
  let line = 2;
  let branch = "";
  for (const item of all) {
    const mine = item.path.slice(0, -1).join(".");
    if (mine !== branch) {
      branch = mine;
      rows.push(placed(h("div", { class: "branch" }, mine === "" ? "after the branches" : `branch ${mine}`), null, line++));
    }
    const card = item.kind === "turn" ? turnCard(item) : actCard(item);
    const lane = item.kind === "turn" ? lanes.indexOf(item.of.seat) : lanes.indexOf(item.of.environment ?? run.plan?.environment ?? "environment");
    cards.set(`${item.kind}${item.i}`, card);
    rows.push(placed(h("div", { class: "lane-path" }, item.kind === "turn" ? turnPath(item.path) : "act"), 1, line));
    rows.push(placed(card, lane + 2, line++));
  }
  grid.style.setProperty("grid-template-columns", `2.4rem repeat(${Math.max(lanes.length, 1)}, minmax(13rem, 1fr))`);
  fill(grid, links, rows);

  /** Draws a line from each text to the turns that were given it. */
  const connect = () => {
    const box = grid.getBoundingClientRect();
    if (getComputedStyle(links).display === "none") return;
    const paths = episode.turns.flatMap((/** @type {any} */ turn, /** @type {number} */ i) => turn.saw.map((/** @type {any} */ seen) => {
      const [from, target] = [cards.get(key(seen))?.getBoundingClientRect(), cards.get(`turn${i}`)?.getBoundingClientRect()];
      if (!from || !target || from.left === target.left) return null;
      const right = target.left > from.left;
      const [x1, y1] = [(right ? from.right : from.left) - box.left, from.top + Math.min(16, from.height / 2) - box.top];
      const [x2, y2] = [(right ? target.left : target.right) - box.left, target.top + Math.min(16, target.height / 2) - box.top];
      const middle = right ? x2 - 6 : x2 + 6;
      return [svg("path", { d: `M${x1} ${y1}L${middle} ${y1}L${middle} ${y2}L${x2} ${y2}`, "data-from": key(seen), "data-to": `turn${i}` }),
        svg("circle", { cx: x2, cy: y2, r: 2.5 })];
    }));
    fill(links, paths.filter(Boolean).flat());
  };
  const highlight = (/** @type {string | null} */ of) => {
    for (const path of links.querySelectorAll("path")) {
      const on = of !== null && (path.dataset.from === of || path.dataset.to === of);
      path.classList.toggle("on", on);
    }
    const turn = of?.startsWith("turn") ? episode.turns[Number(of.slice(4))] : null;
    const seen = new Set((turn?.saw ?? []).map(key));
    for (const [name, card] of cards) card.classList.toggle("seen", seen.has(name));
  };
  for (const [name, card] of cards) {
    card.addEventListener("pointerenter", () => highlight(name));
    card.addEventListener("pointerleave", () => highlight(null));
    card.addEventListener("focusin", () => highlight(name));
    card.addEventListener("toggle", connect, true);
  }
  new ResizeObserver(connect).observe(grid);

  const { row, task, outcome } = episode;
  const group = episode.of_task.filter((/** @type {any} */ other) => other.step === row.step);
  const others = episode.of_task.filter((/** @type {any} */ other) => other.step !== row.step);
  const goto = (/** @type {number} */ by) => {
    const here = group.findIndex((/** @type {any} */ other) => other.n === row.n);
    const next = group[here + by];
    if (next) location.hash = to(`r/${r}/episode/${stage}/${step}/${next.n}`);
  };
  const square = (/** @type {any} */ other) => h("a", {
    class: `square${other.solved ? " solved" : ""}`, href: to(`r/${r}/${episodePath({ ...other, stage })}`),
    title: `step ${other.step}, episode ${other.index}: ${other.solved === null ? "unscored" : other.solved ? "solved" : "not solved"}`,
    "aria-current": other.n === row.n && other.step === row.step && "true",
  }, other.solved === null ? "?" : other.solved ? "✓" : "–");
  const groups = [...new Set(episode.turns.map((/** @type {any} */ turn) => turn.sample?.record.group).filter((/** @type {any} */ id) => id !== undefined))];
  const reference = h("span", {}, h("button", { class: "link", onclick: () => fill(reference, foreign(JSON.stringify(task.data, null, 1))) }, "show"));
  const score = outcome.scored;
  const metrics = Object.entries(score?.metrics ?? {}).map(([name, value]) => `${name} ${typeof value === "number" ? fixed(value, 2) : value}`).join(", ");
  fill(root,
    h("div", { class: "line" },
      h("h1", {}, `${stage === "train" ? "Step" : `${stage}, step`} ${step}, ${task.id}`),
      h("span", { class: "muted" }, `${task.source}, episode ${row.index} of the task`)),
    h("dl", { class: "facts card" },
      h("dt", {}, "question"), h("dd", { class: "prose" }, long(task.question)),
      h("dt", {}, "answer"), h("dd", {}, episode.answer === null ? h("span", { class: "muted" }, "none") : long(episode.answer)),
      h("dt", {}, "outcome"), h("dd", {}, score
        ? [h("b", { class: score.solved ? "good" : "bad" }, score.solved ? "solved" : "not solved"), `, score ${fixed(score.reward)}`, metrics && ` (${metrics})`]
        : [h("b", { class: "bad" }, `unscored, ${outcome.unscored.kind}: `), foreign(outcome.unscored.message, "plain")]),
      h("dt", {}, "task data"), h("dd", {}, reference),
      h("dt", {}, "group"), h("dd", {}, h("span", { class: "squares" }, group.map(square))),
      others.length > 0 && [h("dt", {}, "other steps"), h("dd", {}, h("span", { class: "squares" }, others.slice(0, 64).map(square)))],
      groups.length > 0 && [h("dt", {}, "compared in"), h("dd", {}, groups.map((id, i) => [i > 0 && ", ", a(to(`r/${r}/group/${step}/${id}`), `group ${id}`)]).flat())],
      stage === "train" && [h("dt", {}, "again"), h("dd", { class: "mono" }, `maverl replay RUN ${episode.name}`)]),
    episode.acts.length === 0 && run.holds && !episode.has_samples && h("p", { class: "muted" }, "This run was made by a version that kept no record of actions and samples."),
    h("div", { class: "scroll" }, grid));
  return {
    title: `${episode.name} of ${run.run.name}`,
    keys: {
      "]": () => goto(1),
      "[": () => goto(-1),
      t: () => {
        const turn = Number(document.activeElement?.closest("[data-turn]")?.getAttribute("data-turn") ?? 0);
        if (episode.turns[turn]?.tokens) location.hash = to(`r/${r}/tokens/${stage}/${step}/${n}/${turn}`);
      },
      g: () => groups.length > 0 && (location.hash = to(`r/${r}/group/${step}/${groups[0]}`)),
    },
  };
}

/**
 * Places a card in the grid.
 * @param {HTMLElement} element
 * @param {number | null} column
 * @param {number} row
 */
function placed(element, column, row) {
  if (column !== null) element.style.gridColumn = String(column);
  element.style.gridRow = String(row);
  element.setAttribute("role", "listitem");
  return element;
}
