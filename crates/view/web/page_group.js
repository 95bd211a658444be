// Groups of a step, and the arithmetic of every advantage of one group.

import { h, svg, fill, a, foreign, num, td, muted, remark, sheet, say, table, stepper } from "./dom.js";
import { get, to } from "./data.js";
import { fixed, minus, percent, plural, signed, turnPath } from "./format.js";

const BY = { task: "task; rewards of episodes are compared", task_turn: "task; rewards of turns are compared", task_seat: "task and agent; rewards of turns are compared", task_seat_turn: "task, agent and number of the turn; rewards of turns are compared", episode_seat: "episode and agent; rewards of turns are compared", branch: "branch, or task and agent without one; rewards of turns are compared" };

/**
 * A bar to the left or the right of zero.
 * @param {number} value
 * @param {number} most
 */
function bar(value, most) {
  const width = (Math.abs(value) / (most || 1)) * 48;
  return svg("svg", { class: "bars", width: 100, height: 16, "aria-hidden": "true" },
    svg("rect", { class: value >= 0 ? "plus" : "minus", x: value >= 0 ? 50 : 50 - width, y: 3, width, height: 10 }),
    svg("line", { class: "axis", x1: 50, x2: 50, y1: 0, y2: 16 }));
}

/**
 * A small constant, as it is written.
 * @param {number} value
 */
function constant(value) {
  return minus(value !== 0 && value < 1e-3 ? value.toExponential() : String(value));
}

/** @param {number} value */
function term(value) {
  return value < 0 ? `(${minus(value.toFixed(3))})` : value.toFixed(3);
}

/**
 * The advantage of a sample, written out, and the mean term of a teacher over its tokens.
 * @param {any} line
 * @param {any} page
 */
export function written(line, page) {
  const { teacher, taught, factor } = line.sample.record;
  const found = estimated(line, page);
  if (teacher === undefined) return found;
  const total = taught === undefined ? [] : ["; in the loss ", h("b", {}, signed(taught * (factor ?? 1)))];
  return [...found, ", and by a teacher ", h("b", {}, signed(teacher)), " a token", ...total];
}

/**
 * The advantage of a sample by its estimator, written out.
 * @param {any} line
 * @param {any} page
 */
function estimated(line, page) {
  const { record, arithmetic } = line.sample;
  const { estimator, group } = page;
  const result = h("b", {}, signed(record.advantage));
  if (!arithmetic) {
    if (record.values?.length) {
      const mean = (/** @type {number[]} */ values) => values.reduce((x, y) => x + y, 0) / values.length;
      const values = `value ${fixed(mean(record.values))}`;
      const returns = record.returns?.length ? `return ${fixed(mean(record.returns))} − ${values}` : values;
      return [`${returns}, ${record.advantages?.length ? "mean over tokens" : "every token"} = `, result];
    }
    if (estimator.estimator === "pair") return [`${["the worse reply of the pair", "in no pair", "the better reply of the pair"][Math.sign(record.advantage) + 1]} = `, result];
    if (estimator.estimator === "label") return [`${record.advantage > 0 ? "a good reply" : "a bad reply"} = `, result];
    return [`by “${estimator.estimator}” = `, result];
  }
  const parts = [];
  const unit = record.unit === undefined
    ? record.baseline ? `${term(record.reward)} − ${term(record.baseline)}` : term(record.reward)
    : `${term(record.unit)} of the episode`;
  const alone = group.size === 1 && estimator.baseline !== "none";
  const lead = estimator.baseline === "second_best";
  if (alone && estimator.singleton === "zero") parts.push("a group of one: 0");
  else if (lead && !alone && arithmetic.centered === 0) parts.push("not the best of the group: 0");
  else {
    const factor = estimator.baseline === "leave_one_out" ? ` · ${group.size} / ${group.size - 1}` : "";
    const centered = alone ? `a group of one: ${unit}` : estimator.baseline === "none" ? unit
      : lead ? `(${unit} − ${term(arithmetic.unit - arithmetic.centered)} of the second best)` : `(${unit} − ${term(group.baseline ?? group.mean)})${factor}`;
    const scaled = `${estimator.normalize_mean ? ` / ${term(group.mean)} of the group` : ""}${estimator.flat_factor ? ` · ${estimator.flat_factor.toFixed(3)}` : ""}`;
    const divided = arithmetic.deviation === null
      ? estimator.normalize_std ? " · 0: the group of the deviation has no spread" : scaled
      : alone && !line.deviation ? "" : ` / (${arithmetic.deviation.toFixed(3)} + ${constant(estimator.eps)})`;
    parts.push(centered + divided);
  }
  if (record.anchor !== undefined) parts.push(` + ${estimator.anchor_weight} · ${term(record.anchor)} among equal prompts`);
  const text = [parts.join("")];
  if (estimator.whiten) text.push(` = ${fixed(record.unwhitened)}, whitened: (${term(record.unwhitened)} − ${term(estimator.whiten[0])}) / ${(estimator.least_divisor ?? estimator.whiten[1]).toFixed(3)}`);
  const factor = record.factor === undefined ? [] : [` · ${record.factor.toFixed(3)} of policies updated before = `, h("b", {}, signed(record.advantage * record.factor))];
  return [...text, " = ", result, ...factor];
}

/** @param {any} estimator */
function rule(estimator) {
  if (estimator.estimator === "pair") return "A reply is all that the agent says in an episode, with the mean of its rewards. Those with the highest and the lowest reward make a pair (1 and −1), unless all are equal. The loss is that of DPO.";
  if (estimator.estimator === "label") return "A reply is all that the agent says in an episode, with the mean of its rewards. It is good (1) if this is at least the threshold, or else bad (−1). The loss is that of KTO.";
  if (estimator.estimator !== "group") return `Advantages are those of “${estimator.estimator}”${estimator.whiten ? ", whitened over the tokens of the step" : ""}.`;
  const centered = { mean: "reward − mean", leave_one_out: "(reward − mean) · n / (n − 1)", none: "reward", second_best: "best − second best, for the best", length_weighted: "reward − mean by length" }[/** @type {string} */ (estimator.baseline)];
  const divided = `Advantage A = ${estimator.normalize_std ? `(${centered}) / (deviation + ${constant(estimator.eps)})` : estimator.normalize_mean ? `(${centered}) / mean` : centered}${estimator.flat_factor ? " · units / units of groups with spread" : ""}`;
  return `${divided}${estimator.anchor_weight ? ` + ${estimator.anchor_weight} · anchor` : ""}${estimator.whiten ? ", whitened over the tokens of the step" : ""}. Reward: of a turn or an episode, less the baseline that was known before the step, if there is one`;
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const run = await get(`runs/${at.run}`);
  return at.path[0] === "group" ? one(root, at, run) : list(root, at, run);
}

/** Quantities by which groups and tasks are sorted: name, meaning, value and text. */
const SORTS = {
  size: { label: "size", about: "rewards", of: (/** @type {any} */ of) => of.size, text: (/** @type {number} */ v) => String(v) },
  reward: { label: "mean reward", about: "of its turns", of: (/** @type {any} */ of) => of.reward, text: fixed },
  deviation: { label: "deviation", about: "of the rewards", of: (/** @type {any} */ of) => of.group?.deviation ?? 0, text: fixed },
  advantages: { label: "sum of |A|", about: "of advantages, equal replies apart", of: (/** @type {any} */ of) => of.advantages, text: (/** @type {number} */ v) => fixed(v, 2) },
  weight: { label: "weight", about: "equal replies added up", of: (/** @type {any} */ of) => of.weight, text: (/** @type {number} */ v) => fixed(v, 2) },
  turn: { label: "a turn", about: "weight by turns", of: (/** @type {any} */ of) => of.weight / of.samples, text: fixed },
  share: { label: "part of the step", about: "of its weight", of: (/** @type {any} */ of) => of.share, text: percent },
};

/** @typedef {keyof typeof SORTS} Sort */

/**
 * Sorts lines by a quantity, then by their weight and its part of the step. Sums of the same numbers in another order are
 * equal up to rounding.
 * @param {any[]} lines
 * @param {Sort} sort
 */
function ranked(lines, sort) {
  const keys = /** @type {Sort[]} */ ([sort, "weight", "share"]);
  const rank = (/** @type {any} */ of) => keys.map((key) => Math.round(SORTS[key].of(of) * 1e6));
  return lines.map((of) => ({ of, rank: rank(of) })).sort((x, y) => keys.reduce((found, _, i) => found || y.rank[i] - x.rank[i], 0)).map(({ of }) => of);
}

/**
 * The line with the largest weight, and how many have the same.
 * @param {any[]} lines
 * @param {string} noun
 * @param {(of: any) => any} link
 */
function most(lines, noun, link) {
  const [first, next] = ranked(lines, "weight");
  const ties = lines.filter((of) => Math.abs(of.weight - first.weight) < 1e-6).length;
  return [link(first), ties > 1 ? ` and ${plural(ties - 1, `more ${noun}`)}, each with weight ` : ", with weight ", fixed(first.weight, 2), ties === 1 && next && ` (next: ${fixed(next.weight, 2)}), ${fixed(first.weight / first.samples)} a turn`];
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @param {any} run
 */
async function list(root, at, run) {
  const r = at.run;
  const every = (at.query.get("step") ?? "all") === "all";
  const step = every ? run.run.step : Number(at.query.get("step"));
  const go = (/** @type {any} */ changes) => (location.hash = to(`r/${r}/groups`, { step: every ? "all" : step, ...Object.fromEntries(at.query), ...changes }));
  const move = (/** @type {number} */ next) => go({ step: Math.min(Math.max(next, 1), run.run.step) });
  const [body, choice] = [h("div"), h("span")];
  const pressed = (/** @type {string} */ name, /** @type {boolean} */ is, /** @type {any} */ changes) => h("button", { "aria-pressed": String(is), onclick: () => go(changes) }, name);
  fill(root, h("h1", {}, `Groups of ${run.run.name}`), h("div", { class: "bar" }, stepper(step, every ? "" : step, run.run.step, move),
    pressed("all steps", every, { step: every ? step : "all" }), choice), body);
  try {
    const found = await get(every ? `runs/${r}/groups` : `runs/${r}/groups/${step}`);
    // Where a group has all agents of its task, there is nothing to add up.
    const whole = found.tasks.every((/** @type {any} */ of) => of.task.groups.length === 1);
    const byTask = !whole && at.query.get("by") === "task";
    const lines = byTask ? found.tasks : found.groups;
    if (!whole) fill(choice, pressed("groups", !byTask, { by: "" }), " ", pressed("tasks", byTask, { by: "task" }));
    const known = lines.every((/** @type {any} */ of) => of.weight !== null);
    const wanted = /** @type {Sort} */ (at.query.get("sort"));
    const sort = SORTS[wanted] && !(byTask && wanted === "deviation") ? wanted : known ? "weight" : "advantages";
    const top = lines.reduce((/** @type {number} */ top, /** @type {any} */ of) => Math.max(top, of.weight), 0);
    const flat = lines.filter((/** @type {any} */ of) => of.weight < 1e-6).length;
    const parts = (/** @type {any} */ of) => (of.task ? of.task.groups.toSorted((/** @type {any} */ x, /** @type {any} */ y) => y.weight - x.weight) : [of.group]);
    const href = (/** @type {any} */ of, /** @type {any} */ part) => to(`r/${r}/group/${of.step}/${part.id}`);
    const id = (/** @type {any} */ of) => (of.task ?? of.group).task;
    const link = (/** @type {any} */ of) => a(href(of, parts(of)[0]), `step ${of.step}, `, say(id(of)), of.group?.seat && `, ${of.group.seat}`);
    const seats = (/** @type {any} */ of) => parts(of).flatMap((/** @type {any} */ part, /** @type {number} */ i) => [i > 0 && ", ", byTask ? a(href(of, part), `${part.seat} ${fixed(part.weight, 2)}`) : (part.seat ?? "all")]);
    const columns = /** @type {Sort[]} */ (["size", "reward", ...(byTask ? [] : ["deviation"]), "advantages", "turn", "weight", "share"]);
    const head = (/** @type {Sort} */ key) => h("th", { class: "n", "aria-sort": sort === key && "descending" },
      h("button", { onclick: () => go({ sort: key }) }, SORTS[key].label, sort === key && " ↓"), h("small", {}, byTask && key === "size" ? "turns" : SORTS[key].about));
    if (found.samples > 0 && lines.length === 0) {
      fill(body, h("p", { class: "answer" }, h("b", {}, `“${found.estimator.estimator}” compares no groups.`), ` ${rule(found.estimator)}`),
        h("p", {}, `Each of the ${plural(found.samples, "turn")} has its advantage on the page of its episode: `, a(to(`r/${r}/episodes`, { step, stage: "train" }), `episodes of step ${step}`), "."));
      return { title: `Groups of ${run.run.name}`, keys: { "[": () => move(step - 1), "]": () => move(step + 1) } };
    }
    fill(body, known && lines.length > 0 && (top < 1e-6 ? h("p", { class: "answer" }, "No group taught anything: rewards of a group are equal, or its replies.") : [h("p", { class: "answer" }, h("b", {}, "The group that taught the most, all its turns added up: "), most(found.groups, "group", link), "."),
      found.agents.length > 1 && h("p", { "data-agents": "" }, "An agent that is asked twice has twice the turns to add up, so by agent: ", found.agents.flatMap((/** @type {any} */ of, /** @type {number} */ i) => [i > 0 && "; ", link(of), ` with ${fixed(of.weight, 2)}, ${fixed(of.weight / of.samples)} a turn`, of.equal > 1 && ` (${plural(of.equal - 1, "more group")} with equal weight)`]), "."),
      !whole && h("p", {}, "The task that taught the most, its groups added up: ", most(found.tasks, "task", link), ".")]),
      lines.length > 0 && (known ? h("p", {}, "Weight: advantages of equal replies to an equal prompt are added up, as A and −A of them cancel, then these sums without their signs. ",
        sort !== "weight" && `The list is sorted by ${SORTS[sort].label}, which does not say what taught the most.`) : h("p", { class: "warn" }, "Replies cannot be read, so which group taught the most cannot be told: equal replies with A and −A cancel.")),
      remark(every ? found.samples > 0 ? `The ${plural(lines.length, byTask ? "task" : "group")} with the largest weight in steps ${found.steps.join(" to ")}, of ${plural(found.samples, "turn")}. ` : "The run has no record of samples. "
        : `${plural(lines.length, byTask ? "task" : "group")}, ${plural(found.samples, "turn")}; ${flat} without weight. `, found.estimator && rule(found.estimator)),
      lines.length > 0 && sheet(table([...(every ? [h("th", { class: "n" }, "step")] : []), h("th", {}, "task"), h("th", {}, byTask ? "agents by weight" : "agent"), ...columns.map(head), ""],
        ranked(lines, sort).map((/** @type {any} */ of) => h("tr", { class: "row" }, every && num(of.step),
          td(h("a", { class: "open", href: href(of, parts(of)[0]) }, say(id(of)))), td(seats(of)),
          columns.map((key) => num(SORTS[key].text(SORTS[key].of(of)))), td(bar(of.weight, top)))))));
  } catch (error) {
    fill(body, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
  }
  return { title: `Groups of ${run.run.name}`, keys: { "[": () => move(step - 1), "]": () => move(step + 1) } };
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @param {any} run
 */
async function one(root, at, run) {
  const [r, [, step, id]] = [at.run, at.path];
  const found = await get(`runs/${r}/groups/${step}/${id}`);
  const { group, samples } = found;
  const most = samples.reduce((/** @type {number} */ sum, /** @type {any} */ of) => Math.max(sum, Math.abs(of.sample.record.advantage)), 0);
  const go = (/** @type {number} */ by) => {
    const next = Number(id) + by;
    if (next >= 0 && next < found.groups) location.hash = to(`r/${r}/group/${step}/${next}`);
  };
  const reward = (/** @type {any} */ line) => {
    const record = line.sample.record;
    const before = record.turn_reward ?? record.reward;
    const parts = line.parts.map((/** @type {any} */ part) => ` ${part.value < 0 ? "−" : "+"} ${fixed(Math.abs(part.value))} ${part.name}`).join("");
    const shaped = record.turn_reward === undefined ? "" : ` → ${fixed(record.reward)} by shaping`;
    return h("span", {}, h("b", {}, fixed(before)), parts && muted(` = ${fixed(line.score)}${parts}`), shaped);
  };
  const episodes = new Set(samples.map((/** @type {any} */ line) => line.index)).size;
  // The turns that gained and lost most.
  const sorted = [...samples].sort((/** @type {any} */ x, /** @type {any} */ y) => y.sample.record.advantage - x.sample.record.advantage);
  const beside = [sorted[0], sorted.findLast((/** @type {any} */ line) => line.index !== sorted[0].index)].map((line) => `${r}/train/${step}/${line?.sample.record.episode}`);
  // Of equal replies the first is shown, with a button that shows the others.
  const others = (/** @type {any} */ line) => samples.flatMap((/** @type {any} */ other, /** @type {number} */ i) => (other !== line && other.same === line.same ? [i] : []));
  const more = (/** @type {any} */ line, /** @type {number} */ i) => {
    const rest = others(line);
    if (rest.length === 0 || rest[0] < i) return null;
    const rewards = [i, ...rest].map((at) => samples[at].sample.record.reward);
    const [low, high] = [Math.min(...rewards), Math.max(...rewards)];
    const toggle = () => rest.forEach((/** @type {number} */ at) => (rows[at].hidden = !rows[at].hidden));
    return [" ", h("button", { class: "link", onclick: toggle }, `+ ${rest.length} equal`), high - low > 1e-9 && muted(` rewards ${fixed(low)} to ${fixed(high)}`)];
  };
  /** @type {HTMLElement[]} */
  const rows = samples.map((/** @type {any} */ line, /** @type {number} */ i) => h("tr", { class: "row", hidden: others(line)[0] < i },
    num(h("a", { class: "open", href: to(`r/${r}/episode/train/${step}/${line.sample.record.episode}`) }, line.index)),
    td(turnPath(line.path), !group.seat && muted(` ${line.seat}`)),
    td(reward(line)), h("td", { class: "sum" }, written(line, found)), h("td", { class: "wide" }, bar(line.sample.record.advantage, most)),
    td(foreign(line.reply + (line.cut ? " …" : "")), more(line, i), line.error && h("p", { class: "bad" }, `! ${line.error}`))));
  fill(root,
    h("div", { class: "line" }, h("h1", {}, `Step ${step}, `, say(group.task), group.seat && `, ${group.seat}`), muted(`group ${id} of ${found.groups}`),
      episodes > 1 && a(to("beside", { a: beside[0], b: beside[1] }), "best and worst episode side by side")),
    found.question && h("p", {}, say(found.question)),
    h("dl", { class: "facts card" },
      h("dt", {}, "grouped by"), h("dd", {}, BY[/** @type {keyof typeof BY} */ (group.by)]),
      h("dt", {}, "size"), h("dd", {}, `${plural(samples.length, "turn")} of ${plural(episodes, "episode")}; ${plural(group.size, "reward")} compared`),
      h("dt", {}, "mean"), h("dd", {}, fixed(group.mean)),
      h("dt", {}, "deviation"), h("dd", {}, `${fixed(group.deviation)} (n − 1)`, !group.spread && h("span", { class: "bad" }, "  all rewards are equal: this group teaches nothing")),
      h("dt", {}, "rule"), h("dd", {}, rule(found.estimator)),
      h("dt", {}, "weight"), h("dd", {}, `${fixed(found.weight, 2)}: advantages of equal replies added up, then these sums without their signs`)),
    sheet(table([h("th", { class: "n" }, "#"), "turn", "reward", "advantage", h("th", { class: "wide" }), "reply"],
      rows, 9)));
  return { title: `Group ${id} of step ${step}`, keys: { "[": () => go(-1), "]": () => go(1) } };
}
