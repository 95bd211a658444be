// The list of runs.

import { h, fill, a, num, td, muted, remark, say } from "./dom.js";
import { get, listenAgain, to } from "./data.js";
import { fixed, plural } from "./format.js";

/** Runs that can be compared at once. */
const MOST = 12;

/** What each state means. */
const STATES = {
  running: ["●", "good", "running"],
  checking: ["○", "muted", "looking"],
  complete: ["✓", "", "complete"],
  stopped: ["!", "warn", "stopped"],
  unreadable: ["✕", "bad", "unreadable"],
};

/**
 * @param {any} run
 * @returns {HTMLElement}
 */
export function state(run) {
  const [sign, name, word] = STATES[/** @type {keyof typeof STATES} */ (run.state)] ?? ["", "", run.state];
  return h("span", { class: name }, h("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${word}`);
}

/** @param {any} run */
export function progress(run) {
  const { step, steps, progress: beat } = run;
  if (run.state === "unreadable") return [say(run.problem ?? "")];
  const done = `step ${step} of ${steps ?? "?"}`;
  if (!beat || run.state === "complete") return [done];
  const part = beat.of > 0 ? `${beat.phase}: ${beat.done} of ${beat.of} ${beat.unit}` : beat.phase;
  const where = run.state === "stopped" ? `, in “${beat.phase}”` : "";
  const bar = run.state === "running" && beat.of > 0 && h("progress", { max: beat.of, value: beat.done, "aria-label": beat.phase });
  return run.state === "running" ? [done, " ", bar, " ", muted(part)] : [done + where];
}

/**
 * @param {HTMLElement} root
 * @returns {Promise<any>}
 */
export async function page(root) {
  /** @type {any[]} */
  let runs = await get("runs");
  /** @type {Set<string>} */
  const chosen = new Set();
  const compare = h("button", { disabled: true, onclick: () => (location.hash = to("compare", { runs: [...chosen].join(",") })) }, "compare");
  const all = h("button", { onclick: () => {
    for (const run of runs.slice(0, MOST)) chosen.add(run.r);
    /** @type {HTMLButtonElement} */ (compare).disabled = chosen.size < 2;
    draw();
  } }, "choose all");
  const body = h("tbody");
  const table = h(
    "div",
    { class: "scroll" },
    h("table", {},
      h("thead", {}, h("tr", {}, ["", "run", "state", "progress"].map((name) => h("th", {}, name)),
        ["before", "after", "seed"].map((name) => h("th", { class: "n" }, name)),
        ["algorithm", "orchestra", ""].map((name) => h("th", {}, name)))),
      body),
  );
  const row = (/** @type {any} */ run) => {
    const box = h("input", { type: "checkbox", "aria-label": `compare ${run.name}`, checked: chosen.has(run.r), onchange: choose });
    function choose() {
      if (/** @type {HTMLInputElement} */ (box).checked) chosen.add(run.r);
      else chosen.delete(run.r);
      /** @type {HTMLButtonElement} */ (compare).disabled = chosen.size < 2;
    }
    const share = (/** @type {any} */ value) => num(fixed(value?.mean));
    return h(
      "tr",
      { class: "row" },
      td(box),
      td(h("a", { class: "open", href: to(`r/${run.r}`) }, h("b", {}, run.name))),
      td(state(run)),
      td(progress(run), run.tracking.map((/** @type {string} */ text) => remark(say(text)))),
      share(run.before),
      share(run.after),
      num(run.seed ?? "–"),
      td(run.algorithm ?? ""),
      td(run.orchestra ?? ""),
      td(run.notices > 0 && a(to(`r/${run.r}`), h("span", { class: "badge bad" }, plural(run.notices, "notice")))),
    );
  };
  const draw = () => {
    fill(body, runs.map(row));
    all.hidden = runs.length < 2 || runs.length > MOST;
    table.hidden = runs.length === 0;
    none.hidden = runs.length > 0;
  };
  const none = h("p", { class: "empty" }, "No run yet. `maverl train` writes one; it appears here by itself.");
  fill(root, h("div", { class: "bar" }, h("h1", {}, "Runs"), compare, all), table, none);
  draw();
  const timer = setInterval(async () => {
    if (!root.isConnected && root.parentNode === null) return clearInterval(timer);
    if (document.hidden) return;
    const found = await get("runs").catch(() => runs);
    if (found.length === runs.length) return;
    runs = found;
    draw();
    listenAgain();
  }, 5000);
  return {
    title: "Runs",
    heard: (/** @type {string} */ kind, /** @type {any} */ run) => {
      const at = runs.findIndex((known) => known.r === run.r);
      if (at >= 0) runs[at] = kind === "run" ? run : { ...runs[at], step: run.step ?? 0 };
      draw();
    },
  };
}
