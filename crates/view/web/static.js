// A page without a server: its answers are in the file, packed in blocks that are opened when they are needed.

import { h } from "./dom.js";
import { offline } from "./data.js";

/** @type {Map<string, Promise<any>>} */
const opened = new Map();

/** Blocks that are files beside the page. */
const files = new Set(/** @type {HTMLMetaElement | null} */ (document.querySelector("meta[name=blocks]"))?.content.split(" ") ?? []);

/** @type {Map<string, (packed: string) => void>} */
const waiting = new Map();

/** @type {any} The only addresses of scripts that the page adds. */
const addresses = files.size > 0 && /** @type {any} */ (globalThis).trustedTypes?.createPolicy("maverl", {
  createScriptURL: (/** @type {string} */ name) => {
    if (!/^data\/[a-z0-9-]+\.js$/.test(name)) throw new TypeError(`${name} is no block`);
    return name;
  },
});

/** Takes the content of a block from its file. */
/** @type {any} */ (globalThis).maverlBlock = (/** @type {string} */ id, /** @type {string} */ packed) => waiting.get(id)?.(packed);

/**
 * Loads a block from its file.
 * @param {string} id
 * @returns {Promise<string>}
 */
function file(id) {
  const name = `data/${id}.js`;
  return new Promise((resolve, reject) => {
    waiting.set(id, resolve);
    const script = h("script", { onerror: () => reject(new Error(`${name} is missing beside this page`)) });
    /** @type {HTMLScriptElement} */ (script).src = addresses ? addresses.createScriptURL(name) : name;
    document.head.append(script);
  });
}

/**
 * Opens a block: base64 of gzip of JSON.
 * @param {string} id
 * @returns {Promise<any>} answers by path; none without such a block
 */
function block(id) {
  const known = opened.get(id);
  if (known) return known;
  const open = async () => {
    const packed = document.getElementById(`block-${id}`)?.textContent ?? (files.has(id) ? await file(id) : null);
    if (!packed) return {};
    const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  const opening = open();
  opened.set(id, opening);
  return opening;
}

/**
 * The block of a path.
 * @param {string} path
 */
function home(path) {
  const step = path.match(/^runs\/([^/]+)\/(?:episodes\/[^/]+|groups|clock|steps)\/(\d+)/);
  return step ? `${step[1]}-${step[2]}` : "all";
}

/** @param {string} path */
async function stored(path) {
  const answer = (await block(home(path)))[path];
  if (answer === undefined) {
    const { episodes, of } = (await block("all")).contents;
    throw new Error(`this file holds ${episodes} of ${of} episodes, and not this part; \`maverl view\` shows everything`);
  }
  return answer;
}

/**
 * True if a value is in a range written `A..B`, or is the only value.
 * @param {string | null} range
 * @param {number | null} value
 */
function within(range, value) {
  if (!range) return true;
  const [low, high] = range.includes("..") ? range.split("..") : [range, range];
  return value !== null && (low === "" || value >= Number(low)) && (high === "" || value <= Number(high));
}

/**
 * Rows that a query selects, in its order.
 * @param {any[]} rows
 * @param {URLSearchParams} query
 */
function selected(rows, query) {
  const [seat, flag, sort] = [query.get("seat"), query.get("flag"), query.get("sort") ?? "step"];
  const cells = (/** @type {any} */ row) => (seat ? [row.seats[seat] ?? [0, 0, 0, 0, 0]] : Object.values(row.seats));
  const sum = (/** @type {any} */ row, /** @type {number} */ at) => cells(row).reduce((/** @type {number} */ all, /** @type {any} */ counts) => all + counts[at], 0);
  const fits = (/** @type {any} */ row) =>
    (!query.get("stage") || row.stage === query.get("stage"))
    && within(query.get("step"), row.step) && within(query.get("score"), row.score)
    && `${row.source}/${row.task}`.includes(query.get("task") ?? "")
    && (!seat || row.seats[seat] !== undefined)
    && (!query.get("solved") || row.solved === (query.get("solved") === "1"))
    && (flag !== "malformed" || sum(row, 1) > 0) && (flag !== "truncated" || sum(row, 2) > 0) && (flag !== "unscored" || row.score === null);
  /** @type {Record<string, (row: any) => number>} */
  const keys = {
    step: (row) => row.step,
    score: (row) => row.score ?? Infinity,
    turns: (row) => sum(row, 0),
    tokens: (row) => (seat ? sum(row, 3) : row.tokens),
    reward: (row) => sum(row, 4) / Math.max(sum(row, 0), 1),
  };
  const key = keys[sort.replace(/^-/, "")] ?? keys.step;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows.filter(fits).sort((x, y) => sign * (key(x) - key(y)));
}

/**
 * The whole text of a turn's prompt: messages that an earlier turn was given too stand there only.
 * @param {any} episode
 * @param {number} i
 * @returns {any[]}
 */
function prompt(episode, i) {
  const { shared, prompt: own } = episode.turns[i];
  return shared ? [...prompt(episode, shared.turn).slice(0, shared.messages), ...own] : own;
}

/** @param {any} text */
function plain(text) {
  return typeof text === "string" || text === null ? text : `${text.start} …`;
}

/**
 * The whole prompt of a turn in tokens.
 * @param {string} place
 * @param {number} i
 * @returns {Promise<any>}
 */
async function tokens(place, i) {
  const turn = await stored(`${place}/${i}/tokens`);
  if (!turn.shared) return turn.prompt;
  const [earlier, reply] = [await tokens(place, turn.shared.turn), (await stored(`${place}/${turn.shared.turn}/tokens`)).completion];
  /** @type {any} */
  const whole = { ids: [], texts: turn.prompt.texts && [], special: [], bytes: {} };
  for (const [part, most] of /** @type {[any, number][]} */ ([[earlier, turn.shared.tokens], [reply, turn.shared.tokens], [turn.prompt, Infinity]])) {
    const start = whole.ids.length;
    const length = Math.max(0, Math.min(part.ids.length, most - (most === Infinity ? 0 : start)));
    whole.ids.push(...part.ids.slice(0, length));
    whole.texts?.push(...part.texts.slice(0, length));
    for (const at of part.special ?? []) if (at < length) whole.special.push(start + at);
    for (const [at, hex] of Object.entries(part.bytes ?? {})) if (Number(at) < length) whole.bytes[start + Number(at)] = hex;
  }
  return whole;
}

/**
 * Answers as the server would.
 * @param {string} path
 * @returns {Promise<any>}
 */
async function answer(path) {
  const [plainPath, text] = path.split("?");
  const query = new URLSearchParams(text ?? "");
  if (plainPath === "compare") {
    return stored(`compare?runs=${(query.get("runs") ?? "").split(",").sort()}`);
  }
  if (/^runs\/[^/]+\/episodes$/.test(plainPath)) {
    const all = await stored(plainPath);
    const [rows, offset] = [selected(all.rows, query), Number(query.get("offset") ?? 0)];
    return { ...all, rows: rows.slice(offset, offset + Number(query.get("limit") ?? 100)), total: rows.length };
  }
  const turn = plainPath.match(/^(runs\/[^/]+\/episodes\/[^/]+\/\d+\/\d+)\/turns\/(\d+)(\/tokens)?$/);
  if (turn && turn[3]) {
    const found = await stored(plainPath);
    return query.get("prompt") === "whole" ? { ...found, prompt: await tokens(`${turn[1]}/turns`, Number(turn[2])) } : found;
  }
  if (turn) {
    const [episode, i] = [await stored(turn[1]), Number(turn[2])];
    const messages = prompt(episode, i).map((/** @type {any} */ message) => ({ ...message, content: plain(message.content) }));
    return { prompt: messages, reply: plain(episode.turns[i].reply), tools: episode.turns[i].tools };
  }
  return stored(plainPath.endsWith("/series") ? path : plainPath);
}

/**
 * Searches the texts of the episodes in the file.
 * @param {string} path
 * @param {(value: any) => void} each
 */
async function search(path, each) {
  const [place, text] = path.split("?");
  const query = new URLSearchParams(text);
  const words = (query.get("q") ?? "").toLowerCase();
  const run = place.replace(/\/search$/, "");
  const rows = selected((await stored(`${run}/episodes`)).rows, query);
  const around = (/** @type {any} */ value) => {
    const text = plain(value) ?? "";
    const at = text.toLowerCase().indexOf(words);
    return at < 0 ? null : text.slice(Math.max(0, at - 60), at + words.length + 60);
  };
  for (const [done, row] of rows.entries()) {
    const episode = await stored(`${run}/episodes/${row.stage}/${row.step}/${row.n}`);
    const places = [
      ["question", null, episode.task.question],
      ...episode.turns.flatMap((/** @type {any} */ turn, /** @type {number} */ i) => [["reply", i, turn.reply], ["error", i, turn.error]]),
      ...episode.acts.map((/** @type {any} */ act) => ["observation", null, act.observation]),
      ...episode.turns.flatMap((/** @type {any} */ turn, /** @type {number} */ i) => turn.prompt.map((/** @type {any} */ message) => ["prompt", i, message.content])),
      ["answer", null, episode.answer],
    ];
    const found = places.find(([, , text]) => around(text) !== null);
    if (found) each({ row, where: found[0], turn: found[1], snippet: around(found[2]) });
    each({ scanned: done + 1, of: rows.length, end: done + 1 === rows.length });
  }
}

offline({ answer, search });
