// One turn in tokens, colored by a quantity of each.

import { h, fill, a, foreign, muted, remark, say } from "./dom.js";
import { get, to } from "./data.js";
import { count, fixed, minus, plural, signed, turnPath } from "./format.js";

/** Quantities by name: the label, the ends of the steps of color, and if there is a sign. */
const QUANTITIES = {
  logprob: { label: "log-prob", ends: [-0.105, -0.693, -1.609, -2.996], text: ["p ≥ 0.90", "≥ 0.50", "≥ 0.20", "≥ 0.05", "below"] },
  entropy: { label: "entropy", ends: [-0.1, -0.5, -1, -2], text: ["≤ 0.1 nats", "≤ 0.5", "≤ 1", "≤ 2", "above"] },
  advantage: { label: "advantage", sign: true },
  moved: { label: "moved", sign: true },
  mismatch: { label: "mismatch", sign: true },
  reference: { label: "reference", sign: true },
};

/** What each quantity is. */
const MEANING = {
  logprob: "log-probability of the token when it was sampled, without top-k and top-p",
  entropy: "entropy of the distribution of the token, in nats, at the first optimizer step of the turn",
  advantage: "advantage of the token in the loss",
  moved: "log-ratio in the loss at the last optimizer step of the turn, before that step",
  mismatch: "log-prob of the trainer before the update less that of the rollout",
  reference: "log-prob of the trainer less that of the reference",
};

/** @typedef {keyof typeof QUANTITIES} Quantity */

/**
 * The class of a value: `q0` to `q4` by size, or `m2`, `m1`, `z0`, `p1`, `p2` by sign and size.
 * @param {Quantity} name
 * @param {number | null | undefined} value
 * @param {number} most
 */
function shade(name, value, most) {
  if (value === null || value === undefined) return "unknown";
  const { ends, sign } = /** @type {any} */ (QUANTITIES[name]);
  if (sign) {
    const size = Math.abs(value) > 0.5 * most ? 2 : Math.abs(value) > 0.1 * most ? 1 : 0;
    return size === 0 ? "z0" : `${value < 0 ? "m" : "p"}${size}`;
  }
  const at = ends.findIndex((/** @type {number} */ end) => (name === "entropy" ? -value : value) >= end);
  return `q${at < 0 ? ends.length : at}`;
}

/**
 * The text of a token. Line ends are marks before the end itself; bytes of half a character are hexadecimal.
 * @param {any} of
 * @param {number} i
 */
function word(of, i) {
  if (of.texts === undefined) return h("span", {}, `${of.ids[i]} `);
  const text = of.texts[i];
  if (text === "") return h("span", { class: "mark" }, of.bytes[i] ?? "");
  const element = foreign(text);
  if (text.includes("\n")) element.classList.add("ends");
  return element;
}

/**
 * A quantity of a token with its name.
 * @param {string} label
 * @param {string | null} text
 */
function fact(label, text) {
  return text !== null && h("span", {}, muted(`${label} `), h("b", {}, text));
}

/** @param {number | null | undefined} value */
function tiny(value) {
  if (value === null || value === undefined) return null;
  const text = value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toFixed(3);
  return `${value >= 0 ? "+" : ""}${minus(text)}`;
}

/**
 * Everything that is known of a token.
 * @param {any} turn
 * @param {number} i
 */
function describe(turn, i) {
  const of = turn.completion;
  const [logprob, moved] = [of.logprob[i], of.moved?.[i]];
  const ratio = moved === undefined || moved === null ? null : Math.exp(moved);
  const advantage = of.advantage?.[i];
  /** @type {string | null} */
  let clipped = null;
  if (ratio !== null && turn.clip) {
    const [low, high] = turn.clip;
    const out = (ratio < low && advantage < 0) || (ratio > high && advantage > 0);
    clipped = `${out ? "clipped" : "not clipped"}: ${fixed(low, 2)} to ${fixed(high, 2)}`;
  }
  return [
    h("span", {}, muted(`token ${i} `), h("b", {}, "“", word(of, i), "”")),
    fact("id", String(of.ids[i])),
    fact("p", Math.exp(logprob).toPrecision(3)),
    fact("log-prob", fixed(logprob)),
    fact("entropy", of.entropy?.[i] === undefined || of.entropy[i] === null ? null : fixed(of.entropy[i])),
    fact("mismatch", tiny(of.mismatch?.[i])),
    fact("reference", tiny(of.reference?.[i])),
    fact("A", advantage === undefined ? null : signed(advantage)),
    fact("ratio", ratio === null ? null : fixed(ratio) + (clipped ? ` (${clipped})` : "")),
    of.top && h("span", { class: "instead" }, muted("likeliest "), of.top[i].flatMap((/** @type {any} */ [text, logprob, id], /** @type {number} */ k) =>
      [k > 0 && ", ", h("span", {}, "“", text ? foreign(text) : String(id), "” ", h("b", {}, Math.exp(logprob).toFixed(3)))])),
  ];
}

/**
 * Tokens without quantities.
 * @param {any} of
 */
function plain(of) {
  const special = new Set(of.special);
  return h("div", { class: "tokens" }, of.ids.map((/** @type {number} */ _, /** @type {number} */ i) =>
    h("span", { class: `token${special.has(i) ? " special" : ""}` }, word(of, i))));
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const [, stage, step, n, number] = at.path;
  const place = `runs/${r}/episodes/${stage}/${step}/${n}/turns/${number}/tokens`;
  const turn = await get(place);
  const of = turn.completion;
  const names = /** @type {Quantity[]} */ (Object.keys(QUANTITIES).filter((name) => of[name]));
  const wanted = /** @type {Quantity} */ (at.query.get("color") ?? "logprob");
  let shown = names.includes(wanted) ? wanted : names[0];
  let current = -1;
  const special = new Set(of.special);
  const tokens = of.ids.map((/** @type {number} */ _, /** @type {number} */ i) =>
    h("span", { id: `token-${i}`, role: "option", "aria-selected": "false", onclick: () => select(i), onpointerenter: () => current < 0 && fill(panel, ...describe(turn, i)) }, word(of, i)));
  const list = h("div", { class: "tokens card", role: "listbox", tabindex: 0, "aria-label": "sampled tokens", onkeydown: key }, tokens);
  const panel = h("div", { class: "card line token-facts", role: "status" }, muted("Point at a token, or move with the arrow keys."));
  const legend = h("span", { class: "line muted" });
  const choice = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => color(/** @type {Quantity} */ (choice.value)) },
    names.map((name) => h("option", { value: name, selected: name === shown }, QUANTITIES[name].label))));

  /** @param {Quantity} name */
  function color(name) {
    shown = name;
    const most = of[name].reduce((/** @type {number} */ max, /** @type {number | null} */ value) => Math.max(max, Math.abs(value ?? 0)), 0);
    tokens.forEach((/** @type {HTMLElement} */ token, /** @type {number} */ i) => {
      token.className = `token ${shade(name, of[name][i], most)}${special.has(i) ? " special" : ""}${i === current ? " current" : ""}`;
    });
    const sample = (/** @type {string} */ name, /** @type {string} */ text) => h("span", { class: `token ${name}` }, text);
    const { text, sign } = /** @type {any} */ (QUANTITIES[name]);
    const unknown = of[name].some((/** @type {number | null} */ value) => value === null) && sample("unknown", "not recorded");
    fill(legend, ...(sign
      ? [sample("m2", `below ${tiny(-0.5 * most)}`), sample("m1", `below ${tiny(-0.1 * most)}`), sample("z0", "about 0"), sample("p1", `above ${tiny(0.1 * most)}`), sample("p2", `above ${tiny(0.5 * most)}`)]
      : text.map((/** @type {string} */ label, /** @type {number} */ i) => sample(`q${i}`, label))), unknown);
    fill(meaning, MEANING[name]);
    history.replaceState(null, "", to(`r/${r}/tokens/${stage}/${step}/${n}/${number}`, { color: name }));
  }

  /** @param {number} i */
  function select(i) {
    tokens[current]?.classList.remove("current");
    tokens[current]?.setAttribute("aria-selected", "false");
    current = Math.min(Math.max(i, 0), tokens.length - 1);
    const token = tokens[current];
    if (!token) return;
    token.classList.add("current");
    token.setAttribute("aria-selected", "true");
    token.scrollIntoView({ block: "nearest" });
    list.setAttribute("aria-activedescendant", token.id);
    fill(panel, ...describe(turn, current));
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const moves = { ArrowRight: current + 1, ArrowLeft: current - 1, ArrowDown: current + 10, ArrowUp: current - 10, Home: 0, End: tokens.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    select(moves[/** @type {keyof typeof moves} */ (event.key)]);
  }

  const meaning = h("span", { class: "muted" });
  const sum = of.logprob.reduce((/** @type {number} */ all, /** @type {number} */ value) => all + value, 0);
  const surprising = of.logprob.map((/** @type {number} */ value, /** @type {number} */ i) => [value, i])
    .sort((/** @type {number[]} */ x, /** @type {number[]} */ y) => x[0] - y[0]).slice(0, 8);
  const prompt = h("div", {}, plain(turn.prompt));
  const all = async () => fill(prompt, plain((await get(`${place}?prompt=whole`)).prompt));
  const fresh = turn.prompt.ids.length;
  const go = (/** @type {number} */ to_turn) => {
    if (to_turn >= 0 && to_turn < turn.turns) location.hash = to(`r/${r}/tokens/${stage}/${step}/${n}/${to_turn}`, { color: shown });
  };
  fill(root,
    h("div", { class: "line" }, h("h1", {}, `Turn ${turnPath(turn.path)} of `, a(to(`r/${r}/episode/${stage}/${step}/${n}`), say(turn.name))),
      muted(`${turn.seat}, ${turn.policy} v${turn.version}, temperature ${fixed(turn.temperature, 1)}, ${turn.finish}`)),
    turn.error && h("p", { class: "bad" }, "! malformed: ", say(turn.error)),
    !turn.words && remark("The run has no tokenizer of this policy: tokens are shown as ids."),
    turn.sample && !of.entropy && remark(`Entropies and ratios are recorded in step 1 and in every step that is a multiple of record.tokens_every (${turn.tokens_every ?? 10}); not in this one.`),
    h("section", {}, h("div", { class: "bar section" }, h("h2", {}, "Prompt"), muted(plural(turn.prompt_tokens, "token")),
      turn.shared && muted(`the first ${count(turn.shared.tokens)} as turn ${turnPath(turn.shared.path)} had them `, h("button", { class: "link", onclick: all }, "show"))),
      h("details", { open: fresh <= 400 }, h("summary", {}, `${plural(fresh, "token")} shown`), prompt)),
    h("section", {}, h("div", { class: "bar section" }, h("h2", {}, "Sampled"),
      muted(`${plural(of.ids.length, "token")}, sum of log-probs ${fixed(sum, 2)}, perplexity ${fixed(Math.exp(-sum / Math.max(of.ids.length, 1)), 2)}`),
      h("label", { class: "end" }, "color", choice)),
      h("p", { class: "line" }, legend, meaning), panel, list),
    stage === "train" && !of.top && remark("The likeliest tokens beside the sampled ones: ",
      foreign(`maverl replay RUN ${turn.name} --top 5 --out RUN/samples/step-${step.padStart(6, "0")}.top-${n}.json`), ", then load this page again."),
    h("section", {}, h("h2", {}, "Least sure"), h("p", { class: "line" }, surprising.map((/** @type {number[]} */ [value, i]) =>
      h("button", { onclick: () => { select(i); list.focus(); } }, word(of, i), ` ${fixed(value, 2)}`)))));
  color(shown);
  return {
    title: `Turn ${turnPath(turn.path)} of ${turn.name}, tokens`,
    keys: { "[": () => go(Number(number) - 1), "]": () => go(Number(number) + 1) },
  };
}
