// Routes, the bar at the top, keys, and live updates.

import { h, fill, a, td } from "./dom.js";
import { listen, to } from "./data.js";
import { clear } from "./chart.js";
import * as runs from "./page_runs.js";
import * as overview from "./page_overview.js";
import * as metrics from "./page_metrics.js";
import * as step from "./page_step.js";
import * as episodes from "./page_episodes.js";
import * as episode from "./page_episode.js";
import * as tokens from "./page_tokens.js";
import * as group from "./page_group.js";
import * as timeline from "./page_timeline.js";
import * as config from "./page_config.js";
import * as compare from "./page_compare.js";
import * as beside from "./page_beside.js";

/**
 * @typedef {{path: string[], query: URLSearchParams, run: string}} Route
 * @typedef {{title: string, heard?: (kind: string, data: any) => void, keys?: Record<string, () => void>}} Page
 */

/** Pages of a run: the part of the address, the label, and the module. */
const PAGES = [
  ["", "overview", overview],
  ["step", "step", step],
  ["episodes", "episodes", episodes],
  ["groups", "groups", group],
  ["metrics", "all metrics", metrics],
  ["timeline", "timeline", timeline],
  ["config", "config", config],
];

const KEYS = [
  ["/", "search on this page"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["[ ]", "previous and next step, episode of the group, or turn"],
  ["g", "group of the episode, or of the episode of the row"],
  ["t", "tokens of the turn"],
  ["← →", "move in a chart or among tokens; Enter opens the step"],
  ["drag", "zoom all charts; double click or Esc resets"],
  ["?", "this list"],
];

const [top, main] = [document.getElementById("top"), document.getElementById("main")];
/** @type {Page | null} */
let page = null;
let shown = 0;
/** @type {[string, any][] | null} What was heard while a page is made; null if none is. */
let heard = null;

/** @returns {Route} */
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "").map(decodeURIComponent);
  const run = parts[0] === "r" ? parts[1] : "";
  return { path: parts[0] === "r" ? parts.slice(2) : parts, query: new URLSearchParams(query ?? ""), run };
}

/** @param {Route} at */
function module(at) {
  if (at.run === "") return at.path[0] === "compare" ? compare : at.path[0] === "beside" ? beside : runs;
  if (at.path[0] === "episode") return episode;
  if (at.path[0] === "tokens") return tokens;
  if (at.path[0] === "group") return group;
  const found = PAGES.find(([path]) => path === (at.path[0] ?? ""));
  return /** @type {any} */ (found ? found[2] : runs);
}

async function render() {
  const number = ++shown;
  const at = route();
  bar(at);
  clear();
  const root = h("div");
  heard = [];
  try {
    const made = await module(at).page(root, at);
    if (number !== shown) return;
    page = made;
    document.title = `${made.title} · maverl`;
  } catch (error) {
    if (number !== shown) return;
    page = null;
    fill(root, h("div", { class: "error", role: "alert" }, String(/** @type {Error} */ (error).message ?? error)));
  }
  main?.replaceChildren(root);
  const missed = heard ?? [];
  heard = null;
  for (const [kind, data] of missed) page?.heard?.(kind, data);
}

/** @param {Route} at */
function bar(at) {
  if (!top || !main) return;
  const here = ["episode", "tokens"].includes(at.path[0]) ? "episodes" : at.path[0] === "group" ? "groups" : (at.path[0] ?? "");
  const links = at.run === ""
    ? [h("a", { href: to(""), "aria-current": here === "" && "page" }, "runs")]
    : [
        a(to(""), "runs"),
        ...PAGES.map(([path, label]) =>
          h("a", { href: to(`r/${at.run}${path ? `/${path}` : ""}`), "aria-current": here === path && "page" }, /** @type {string} */ (label)),
        ),
      ];
  const skip = h("button", { class: "skip", onclick: () => main.focus() }, "skip to content");
  fill(
    top,
    skip,
    h("a", { class: "brand", href: to("") }, "maverl"),
    h("nav", { "aria-label": "pages" }, links),
    h(
      "span",
      { class: "right" },
      h("span", { class: "muted", role: "status", id: "connection" }),
      h("button", { class: "quiet", onclick: theme, title: "switch between light and dark" }, "theme"),
      h("button", { class: "quiet", onclick: help, title: "keys" }, "keys"),
    ),
  );
}

/** @param {string} [wanted] */
function setTheme(wanted) {
  document.documentElement.dataset.theme = wanted;
}

function theme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  setTheme(next);
  try {
    localStorage.setItem("theme", next);
  } catch {
    // Private windows may have no storage: the choice lasts until the page is closed.
  }
}

function startTheme() {
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  let saved = null;
  try {
    saved = localStorage.getItem("theme");
  } catch {
    // As above.
  }
  setTheme(saved ?? (preferred.matches ? "dark" : "light"));
  preferred.addEventListener("change", () => saved ?? setTheme(preferred.matches ? "dark" : "light"));
}

function help() {
  const close = () => dialog.remove();
  const dialog = /** @type {HTMLDialogElement} */ (h(
    "dialog",
    { "aria-label": "keys", onclose: close },
    h("h3", {}, "Keys"),
    h("table", {}, h("tbody", {}, KEYS.map(([key, what]) => h("tr", {}, td(h("kbd", {}, key)), td(what))))),
    h("form", { method: "dialog" }, h("button", { onclick: () => dialog.close() }, "close")),
  ));
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog")) return;
  if (event.key === "?") return help();
  const search = /** @type {HTMLElement | null} */ (document.querySelector("input[type=search]"));
  if (event.key === "/" && search) {
    event.preventDefault();
    return search.focus();
  }
  if (event.key === "j" || event.key === "k") return move(event.key === "j" ? 1 : -1);
  page?.keys?.[event.key]?.();
});

/**
 * Moves the focus between rows.
 * @param {number} by
 */
function move(by) {
  const rows = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("tr.row:not([hidden]) a.open"))];
  const at = rows.findIndex((row) => row.closest("tr")?.contains(document.activeElement));
  rows[Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
}

startTheme();
addEventListener("hashchange", async () => {
  scrollTo(0, 0);
  await render();
});
listen(
  (kind, data) => (heard ? void heard.push([kind, data]) : page?.heard?.(kind, data)),
  (connected) => {
    const status = document.getElementById("connection");
    if (status) fill(status, connected ? "" : "not connected");
  },
);
render();
