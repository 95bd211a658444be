// Rows of episodes: filters, order, search in texts.

import { h, fill, foreign, num, td, muted, sheet, say } from "./dom.js";
import { get, lines, to } from "./data.js";
import { count, fixed, plural } from "./format.js";

/** Rows of a page. */
const ROWS = 50;

/** @param {any} row */
export function episodePath(row) {
  return `episode/${row.stage}/${row.step}/${row.n}`;
}

/** @param {any} row */
function flags(row) {
  const seats = Object.entries(/** @type {Record<string, number[]>} */ (row.seats));
  const short = (/** @type {string} */ seat) => seat.split("/").pop();
  const some = (/** @type {number} */ at, /** @type {string} */ word) =>
    seats.filter(([, counts]) => counts[at] > 0).map(([seat, counts]) =>
      h("span", { class: "badge bad" }, `${short(seat)}: ${counts[at] > 1 ? `${counts[at]} ` : ""}${word}`));
  return [row.fault && h("span", { class: "badge bad" }, `unscored: ${row.fault}`), ...some(1, "malformed"), ...some(2, "truncated")];
}

/** @param {any} row */
export function solved(row) {
  if (row.solved === null || row.solved === undefined) return muted("unscored");
  return h("span", { class: row.solved ? "good" : "muted" }, row.solved ? "yes" : "no");
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const run = await get(`runs/${r}`);
  /** @type {Record<string, string>} */
  const query = Object.fromEntries(at.query);
  query.stage ??= run.stages.includes("train") ? "train" : "";
  const body = h("tbody");
  const heads = h("tr");
  const pager = h("div", { class: "bar" });
  const message = h("p", { class: "muted", role: "status" });
  const answer = h("p", { class: "muted", role: "status" });
  let total = 0;
  /** @type {AbortController | null} */
  let searching = null;

  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {HTMLElement} */ element) => {
    element.addEventListener("change", () => change({ [name]: /** @type {HTMLInputElement} */ (element).value }));
    return h("label", {}, label, element);
  };
  const options = (/** @type {string} */ name, /** @type {[string, string][]} */ values) =>
    h("select", {}, values.map(([value, label]) => h("option", { value, selected: (query[name] ?? "") === value }, label)));
  const input = (/** @type {string} */ name, /** @type {string} */ hint, size = 9) =>
    h("input", { value: query[name] ?? "", placeholder: hint, size });
  const form = h("div", { class: "bar", role: "search" },
    field("stage", "stage", options("stage", [["", "all"], ...run.stages.map((/** @type {string} */ stage) => /** @type {[string, string]} */ ([stage, stage]))])),
    field("step", "step", input("step", "3 or 1..30", 7)),
    field("task", "task", input("task", "id", 8)),
    field("seat", "agent", options("seat", [["", "any"], ...run.seats.map((/** @type {string} */ seat) => /** @type {[string, string]} */ ([seat, seat]))])),
    field("solved", "solved", options("solved", [["", "any"], ["1", "yes"], ["0", "no"]])),
    field("flag", "with", options("flag", [["", "anything"], ["malformed", "malformed"], ["truncated", "truncated"], ["unscored", "no score"]])),
    field("q", "", h("input", { type: "search", value: query.q ?? "", placeholder: "words in texts  ( / )", "aria-label": "words in texts", size: 15 })));

  /** @param {Record<string, any>} changes */
  function change(changes) {
    Object.assign(query, { offset: "" }, changes);
    fill(answer);
    history.replaceState(null, "", to(`r/${r}/episodes`, query));
    load();
  }

  const columns = [["step", "step"], ["", "task"], ["", "#"], ["", "solved"], ["score", "score"], ["reward", "mean reward by agent"], ["turns", "turns"], ["tokens", "tokens"], ["", "answer"]];
  const numbers = ["step", "#", "score", "turns", "tokens"];
  function head() {
    const sort = query.sort ?? "step";
    const sorted = (/** @type {string} */ key) => (sort === key ? "ascending" : sort === `-${key}` ? "descending" : null);
    fill(heads, columns.map(([key, label]) => {
      const name = numbers.includes(label) ? "n" : "";
      if (!key) return h("th", { class: name }, label);
      const now = sorted(key);
      const next = now === "descending" ? key : now === "ascending" ? `-${key}` : key === "step" ? key : `-${key}`;
      return h("th", { class: name, "aria-sort": now }, h("button", { onclick: () => change({ sort: next }) }, label, now && (now === "ascending" ? " ↑" : " ↓")));
    }));
  }

  /** @param {any} row @param {any} [found] */
  function line(row, found) {
    const seats = Object.entries(/** @type {Record<string, number[]>} */ (row.seats));
    const reward = seats.map(([seat, counts]) => `${seat.split("/").pop()} ${fixed(counts[4] / Math.max(counts[0], 1), 2)}`).join(" · ");
    const turns = seats.reduce((sum, [, counts]) => sum + counts[0], 0);
    const cells = [
      num(row.step),
      td(h("a", { class: "open", href: to(`r/${r}/${episodePath(row)}`) }, say(row.task)), " ", flags(row)),
      num(row.index), td(solved(row)), num(fixed(row.score, 2)),
      td(row.score === null ? "–" : reward), num(turns), num(count(row.tokens)),
      td(found ? [muted(`${found.where}: `), foreign(found.snippet)] : row.answer === null ? muted("none") : foreign(row.answer)),
    ];
    const open = (/** @type {MouseEvent} */ event) => {
      if (!(/** @type {HTMLElement} */ (event.target).closest("a, button"))) location.hash = to(`r/${r}/${episodePath(row)}`);
    };
    return h("tr", { class: "row", onclick: open }, cells);
  }

  const filters = () => new URLSearchParams(Object.entries(query).filter(([name, value]) => value && name !== "offset" && name !== "q")).toString();

  async function load() {
    head();
    searching?.abort();
    if (query.q) return search();
    const offset = Number(query.offset || 0);
    try {
      const page = await get(`runs/${r}/episodes?${filters()}&offset=${offset}&limit=${ROWS}`);
      total = page.total;
      fill(body, page.rows.map((/** @type {any} */ row) => line(row)));
      fill(message, page.total === 0 && "No episode fits. ",
        run.forgotten > 0 && `The ${count(run.forgotten)} oldest training episodes are not listed: their rows do not fit into memory. `, page.scanning && `The list is being made: ${page.scanning[1] - page.scanning[0]} of ${page.scanning[1]} files.`);
      fill(pager,
        h("button", { disabled: offset === 0, onclick: () => turn(-1) }, "← previous"),
        h("span", {}, total > 0 && `${count(offset + 1)}–${count(Math.min(offset + ROWS, total))} of ${count(total)}`, muted(` (of ${count(page.of)})`)),
        h("button", { disabled: offset + ROWS >= total, onclick: () => turn(1) }, "next →"));
    } catch (error) {
      fill(body);
      fill(message, h("span", { class: "bad" }, String(/** @type {Error} */ (error).message)));
    }
  }

  async function search() {
    const mine = new AbortController();
    searching = mine;
    fill(body);
    fill(pager, h("button", { onclick: () => mine.abort() }, "stop"), h("button", { onclick: () => change({ q: "" }) }, "clear the search"));
    let found = 0;
    try {
      await lines(`runs/${r}/search?q=${encodeURIComponent(query.q)}&${filters()}`, (value) => {
        if (value.row) {
          found += 1;
          if (found <= ROWS) body.append(line(value.row, value));
        } else fill(message, `${plural(found, "episode")} with “${query.q}” in ${count(value.scanned)} of ${count(value.of)}${value.unreadable ? `, of which ${count(value.unreadable)} cannot be read` : ""}${found > ROWS ? `; the first ${ROWS} are shown` : ""}`);
      }, mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) fill(message, h("span", { class: "bad" }, String(/** @type {Error} */ (error).message)));
    }
  }

  /** @param {number} by */
  function turn(by) {
    const offset = Number(query.offset || 0) + by * ROWS;
    if (offset < 0 || offset >= total) return;
    Object.assign(query, { offset: offset || "" });
    location.hash = to(`r/${r}/episodes`, query);
  }

  /** Opens the first group of the row with the focus. */
  async function group() {
    const link = document.activeElement?.closest("tr")?.querySelector("a.open");
    const path = link?.getAttribute("href")?.match(/episode\/(.+)$/)?.[1];
    if (!path) return;
    const episode = await get(`runs/${r}/episodes/${path}`).catch((error) => void fill(answer, h("span", { class: "bad" }, error.message)));
    if (!episode) return;
    const id = episode.turns.map((/** @type {any} */ turn) => turn.sample?.record.group).find((/** @type {any} */ of) => of !== undefined);
    if (id === undefined) fill(answer, "This episode is in no group.");
    else location.hash = to(`r/${r}/group/${episode.row.step}/${id}`);
  }

  /** @param {number} by */
  function step(by) {
    const steps = String(query.step ?? "").split("..").map(Number);
    if (query.step) change({ step: Math.max(0, (by < 0 ? steps[0] : steps[steps.length - 1]) + by) });
  }

  fill(root, h("h1", {}, `Episodes of ${run.run.name}`), form, message, answer,
    sheet(h("table", {}, h("thead", {}, heads), body)), pager);
  await load();
  return {
    title: `Episodes of ${run.run.name}`,
    keys: { "]": () => step(1), "[": () => step(-1), g: group },
    heard: (/** @type {string} */ kind, /** @type {any} */ data) => {
      if (data.r === run.run.r && kind !== "run" && !query.q) load();
    },
  };
}
