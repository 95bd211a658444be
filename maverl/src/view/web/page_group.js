// Groups of a step, and the arithmetic of every advantage of one group.

import { h, svg, fill, a, foreign } from "./dom.js";
import { get, to } from "./data.js";
import { fixed, minus, percent, plural, signed, turnPath } from "./format.js";

const BY = { task: "task (a unit is an episode)", task_turn: "task (a unit is a turn)", task_seat: "task and seat (a unit is a turn)" };

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
 * The advantage of a sample, written out.
 * @param {any} line
 * @param {any} page
 */
export function written(line, page) {
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
    return [`by “${estimator.estimator}” = `, result];
  }
  const parts = [];
  const unit = record.unit === undefined
    ? record.baseline ? `${term(record.reward)} − ${term(record.baseline)}` : term(record.reward)
    : `${term(record.unit)} of the unit`;
  const alone = group.size === 1 && estimator.baseline !== "none";
  const lead = estimator.baseline === "second_best";
  if (alone && estimator.singleton === "zero") parts.push("a group of one: 0");
  else if (lead && !alone && arithmetic.centered === 0) parts.push("not the best of the group: 0");
  else {
    const factor = estimator.baseline === "leave_one_out" ? ` · ${group.size} / ${group.size - 1}` : "";
    const centered = alone ? `a group of one: ${unit}` : estimator.baseline === "none" ? unit
      : lead ? `(${unit} − ${term(arithmetic.unit - arithmetic.centered)} of the second best)` : `(${unit} − ${term(group.mean)})${factor}`;
    const divided = arithmetic.deviation === null
      ? estimator.normalize_std ? " · 0: the group of the deviation has no spread" : ""
      : alone && !line.deviation ? "" : ` / (${arithmetic.deviation.toFixed(3)} + ${constant(estimator.eps)})`;
    parts.push(centered + divided);
  }
  if (record.anchor !== undefined) parts.push(` + ${estimator.anchor_weight} · ${term(record.anchor)} among equal prompts`);
  const text = [parts.join("")];
  if (estimator.whiten) text.push(` = ${fixed(record.unwhitened)}, whitened: (${term(record.unwhitened)} − ${term(estimator.whiten[0])}) / ${estimator.whiten[1].toFixed(3)}`);
  const factor = record.factor === undefined ? [] : [` · ${record.factor.toFixed(3)} of policies updated before = `, h("b", {}, signed(record.advantage * record.factor))];
  return [...text, " = ", result, ...factor];
}

/** @param {any} estimator */
function rule(estimator) {
  if (estimator.estimator !== "group") return `Advantages are those of “${estimator.estimator}”${estimator.whiten ? ", whitened over the tokens of the step" : ""}.`;
  const centered = { mean: "u − mean", leave_one_out: "(u − mean) · n / (n − 1)", none: "u", second_best: "best − second best, for the best" }[/** @type {string} */ (estimator.baseline)];
  const divided = estimator.normalize_std ? `A = (${centered}) / (deviation + ${constant(estimator.eps)})` : `A = ${centered}`;
  return `${divided}${estimator.anchor_weight ? ` + ${estimator.anchor_weight} · anchor` : ""}${estimator.whiten ? ", whitened over the tokens of the step" : ""}; u: reward − baseline known before the step`;
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

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @param {any} run
 */
async function list(root, at, run) {
  const r = at.run;
  const every = (at.query.get("step") ?? "all") === "all";
  const step = every ? run.run.step : Number(at.query.get("step"));
  const sort = at.query.get("sort") ?? "advantages";
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: run.run.step, value: every ? "" : step, onchange: () => go(Number(field.value)) }));
  const go = (/** @type {number} */ to_step) => (location.hash = to(`r/${r}/groups`, { step: Math.min(Math.max(to_step, 1), run.run.step), sort: at.query.get("sort") }));
  const body = h("div");
  fill(root, h("h1", {}, `Groups of ${run.run.name}`), h("div", { class: "bar" }, h("label", {}, "step", field),
    h("button", { onclick: () => go(step - 1), "aria-label": "previous step" }, "←"), h("button", { onclick: () => go(step + 1), "aria-label": "next step" }, "→"),
    h("button", { "aria-pressed": String(every), onclick: () => (location.hash = to(`r/${r}/groups`, { step: every ? step : "all", sort: at.query.get("sort") })) }, "all steps")), body);
  const keys = { "[": () => go(step - 1), "]": () => go(step + 1) };
  const title = `Groups of ${run.run.name}`;
  try {
    const found = await get(every ? `runs/${r}/groups` : `runs/${r}/groups/${step}`);
    const value = (/** @type {any} */ of) => (sort === "reward" ? of.reward : sort === "deviation" ? of.group.deviation : sort === "size" ? of.group.size : sort === "share" ? of.share : of.advantages);
    // Groups of equal size and equal shares of solved episodes have equal sums: those of a quieter step come first.
    const rounded = (/** @type {any} */ of) => Math.round(value(of) * 1e6);
    const groups = found.groups.sort((/** @type {any} */ x, /** @type {any} */ y) => rounded(y) - rounded(x) || y.share - x.share);
    const most = groups.reduce((/** @type {number} */ sum, /** @type {any} */ of) => Math.max(sum, of.advantages), 0);
    const head = (/** @type {string} */ key, /** @type {string} */ label) => h("th", { class: "n", "aria-sort": sort === key && "descending" },
      h("button", { onclick: () => (location.hash = to(`r/${r}/groups`, { step: every ? "all" : step, sort: key })) }, label, sort === key && " ↓"));
    const flat = groups.filter((/** @type {any} */ of) => !of.group.spread).length;
    const about = every
      ? groups.length > 0 && `The ${plural(groups.length, "group")} with the largest sums of |A| in steps ${found.steps[0]} to ${found.steps[1]}, of ${plural(found.samples, "sample")}. `
      : `${plural(groups.length, "group")}, ${plural(found.samples, "sample")}; ${flat} with equal rewards. `;
    const ties = groups.filter((/** @type {any} */ of) => Math.abs(of.advantages - most) < 1e-6).sort((/** @type {any} */ x, /** @type {any} */ y) => y.share - x.share);
    const [first] = ties;
    fill(body,
      most > 0 && h("p", {}, h("b", {}, ties.length === 1 ? "One group taught the most" : `${ties.length} groups tie for the most`), `, with a sum of |A| of ${fixed(most, 2)}${ties.length > 1 ? " each. The largest part of its step is that of " : ": "}`,
        a(to(`r/${r}/group/${first.step}/${first.group.id}`), `step ${first.step}, `, foreign(first.group.task, "plain"), `, ${first.group.seat ?? "all seats"}`), ` (${percent(first.share)}).`),
      most > 0 && h("p", {}, "Measured by the sum of the absolute advantages |A| of its turns: its weight in the update, before clipping. A group with equal rewards teaches nothing."),
      h("p", { class: "muted" }, about || "The run has no record of samples. ", found.estimator && rule(found.estimator)),
      groups.length > 0 && h("div", { class: "card scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, every && h("th", { class: "n" }, "step"), h("th", {}, "task"), h("th", {}, "seat"), head("size", "size"), head("reward", "mean reward"), head("deviation", "deviation"), head("advantages", "sum of |A|"), head("share", "of the step"), h("th"))),
        h("tbody", {}, groups.map((/** @type {any} */ of) => h("tr", { class: "row" }, every && h("td", { class: "n" }, of.step),
          h("td", {}, h("a", { class: "open", href: to(`r/${r}/group/${of.step}/${of.group.id}`) }, foreign(of.group.task, "plain"))), h("td", {}, of.group.seat ?? "all"),
          h("td", { class: "n" }, of.group.size), h("td", { class: "n" }, fixed(of.reward)), h("td", { class: "n" }, fixed(of.group.deviation)),
          h("td", { class: "n" }, fixed(of.advantages, 2)), h("td", { class: "n" }, percent(of.share)), h("td", {}, bar(of.advantages, most))))))));
  } catch (error) {
    fill(body, h("p", { class: "empty" }, String(/** @type {Error} */ (error).message)));
  }
  return { title, keys };
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
    return h("span", {}, h("b", {}, fixed(before)), parts && h("span", { class: "muted" }, ` = ${fixed(line.score)}${parts}`), shaped);
  };
  const episodes = new Set(samples.map((/** @type {any} */ line) => line.index)).size;
  // The turns that gained and lost most.
  const sorted = [...samples].sort((/** @type {any} */ x, /** @type {any} */ y) => y.sample.record.advantage - x.sample.record.advantage);
  const beside = [sorted[0], sorted.findLast((/** @type {any} */ line) => line.index !== sorted[0].index)].map((line) => `${r}/train/${step}/${line?.sample.record.episode}`);
  fill(root,
    h("div", { class: "line" }, h("h1", {}, `Step ${step}, `, foreign(group.task, "plain"), group.seat && `, ${group.seat}`), h("span", { class: "muted" }, `group ${id} of ${found.groups}`),
      episodes > 1 && a(to("beside", { a: beside[0], b: beside[1] }), "best and worst episode side by side")),
    found.question && h("p", {}, foreign(found.question, "plain")),
    h("dl", { class: "facts card" },
      h("dt", {}, "grouped by"), h("dd", {}, BY[/** @type {keyof typeof BY} */ (group.by)]),
      h("dt", {}, "size"), h("dd", {}, `${plural(samples.length, "turn")} of ${plural(episodes, "episode")}; ${plural(group.size, "unit")}`),
      h("dt", {}, "mean"), h("dd", {}, fixed(group.mean)),
      h("dt", {}, "deviation"), h("dd", {}, `${fixed(group.deviation)} (n − 1)`, !group.spread && h("span", { class: "bad" }, "  all rewards are equal: this group teaches nothing")),
      h("dt", {}, "rule"), h("dd", {}, rule(found.estimator))),
    h("div", { class: "card scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { class: "n" }, "#"), h("th", {}, "turn"), h("th", {}, "reward"), h("th", {}, "advantage"), h("th", { class: "wide" }), h("th", {}, "reply"))),
      h("tbody", {}, samples.map((/** @type {any} */ line) => h("tr", { class: "row" },
        h("td", { class: "n" }, h("a", { class: "open", href: to(`r/${r}/episode/train/${step}/${line.sample.record.episode}`) }, line.index)),
        h("td", {}, turnPath(line.path), !group.seat && h("span", { class: "muted" }, ` ${line.seat}`)),
        h("td", {}, reward(line)), h("td", { class: "sum" }, written(line, found)), h("td", { class: "wide" }, bar(line.sample.record.advantage, most)),
        h("td", {}, foreign(line.reply + (line.cut ? " …" : "")), line.error && h("p", { class: "bad" }, `! ${line.error}`))))))));
  return { title: `Group ${id} of step ${step}`, keys: { "[": () => go(-1), "]": () => go(1) } };
}
