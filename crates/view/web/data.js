// What the server says, and what changes.

/** @typedef {{answer: (path: string) => Promise<any>, search: (path: string, each: (value: any) => void) => Promise<void>}} Local */

/** @type {Local | null} Answers of a page without a server. */
let local = null;

/**
 * Takes answers from the page itself.
 * @param {Local} answers
 */
export function offline(answers) {
  local = answers;
}

/** True if the page has no server. */
export function isOffline() {
  return local !== null;
}

/** Base of every path: the page's own address, key included. */
const BASE = new URL("./api/", location.href.split("#")[0]);

/**
 * Fetches JSON. A refusal is an error with the server's reason.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  if (local) return local.answer(path);
  const response = await fetch(new URL(path, BASE), { signal });
  const value = await response.json();
  if (!response.ok) throw new Error(value.error ?? `status ${response.status}`);
  return value;
}

/** @typedef {{steps: number[], columns: Record<string, (number | null)[]>}} Series */

/**
 * Fetches the metrics of a run from a step on. The server sends long ones in several parts.
 * @param {string | number} r
 * @param {number} [from]
 * @returns {Promise<Series>}
 */
export async function seriesOf(r, from = 0) {
  const found = await get(`runs/${r}/series${from ? `?from=${from}` : ""}`);
  return found.next ? joined(found, await seriesOf(r, found.next)) : found;
}

/**
 * A series with the rows that came since; the last known step may have got more values.
 * @param {Series} known
 * @param {Series} news
 * @returns {Series}
 */
export function joined(known, news) {
  const kept = known.steps.filter((step) => step < (news.steps[0] ?? Infinity)).length;
  const steps = [...known.steps.slice(0, kept), ...news.steps];
  const names = new Set([...Object.keys(known.columns), ...Object.keys(news.columns)]);
  /** @type {Series["columns"]} */
  const columns = {};
  for (const name of names) {
    const [old, fresh] = [known.columns[name] ?? Array(kept).fill(null), news.columns[name] ?? news.steps.map(() => null)];
    columns[name] = [...old.slice(0, kept), ...fresh];
  }
  return { steps, columns };
}

/**
 * Fetches lines of JSON as they come.
 * @param {string} path
 * @param {(value: any) => void} each
 * @param {AbortSignal} signal
 */
export async function lines(path, each, signal) {
  if (local) return local.search(path, each);
  const response = await fetch(new URL(path, BASE), { signal });
  if (!response.ok || !response.body) throw new Error((await response.json()).error);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) each(JSON.parse(part));
  }
}

/** @type {EventSource | null} */
let source = null;

let restart = () => {};

/** Listens anew: a stream tells of the runs that there were when it began. */
export function listenAgain() {
  restart();
}

/**
 * Listens to changes while the page is visible. A browser gives a host six connections, so hidden tabs have none.
 * @param {(kind: string, data: any) => void} heard
 * @param {(connected: boolean) => void} connected
 */
export function listen(heard, connected) {
  if (local) return;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(new URL("events", BASE));
    source.onopen = () => connected(true);
    source.onerror = () => connected(false);
    for (const kind of ["run", "rows", "reset"]) {
      source.addEventListener(kind, (event) => heard(kind, JSON.parse(/** @type {MessageEvent} */ (event).data)));
    }
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  restart = () => {
    close();
    open();
  };
  open();
}

/**
 * The address of a page.
 * @param {string} path
 * @param {Record<string, any>} [query]
 */
export function to(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}
