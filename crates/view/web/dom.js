// Elements without markup: every text is a text node.

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. Attributes that begin with `on` are listeners; `true` is an attribute without a value, and
 * `false`, `null` and `undefined` are none.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * Makes an element of SVG.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} attributes
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {(Child | Child[])[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return /** @type {Child[]} */ (children.flat())
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * A cell.
 * @param {...(Child | Child[])} children
 */
export function td(...children) {
  return h("td", {}, ...children);
}

/**
 * A cell of numbers.
 * @param {...(Child | Child[])} children
 */
export function num(...children) {
  return h("td", { class: "n" }, ...children);
}

/**
 * Secondary text.
 * @param {...(Child | Child[])} children
 */
export function muted(...children) {
  return h("span", { class: "muted" }, ...children);
}

/**
 * A paragraph of secondary text.
 * @param {...(Child | Child[])} children
 */
export function remark(...children) {
  return h("p", { class: "muted" }, ...children);
}

/**
 * A card with a table.
 * @param {...(Child | Child[])} children
 */
export function sheet(...children) {
  return h("div", { class: "card scroll" }, ...children);
}

/**
 * A table. Its columns from a place on are of numbers.
 * @param {Child[]} heads
 * @param {Child[]} rows
 * @param {number} [numbers]
 */
export function table(heads, rows, numbers = 1) {
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map((head, i) => (head instanceof Element && head.tagName === "TH" ? head : h("th", { class: i >= numbers && head && "n" }, head))))), h("tbody", {}, rows));
}

/**
 * A field and buttons that choose a step.
 * @param {number} step
 * @param {number | ""} value of the field
 * @param {number} last
 * @param {(step: number) => void} go
 */
export function stepper(step, value, last, go) {
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: last, value, onchange: () => go(Number(field.value)) }));
  return [h("label", {}, "step", field), h("button", { onclick: () => go(step - 1), "aria-label": "previous step" }, "←"), h("button", { onclick: () => go(step + 1), "aria-label": "next step" }, "→")];
}

/** Words of these pages. */
export const WORDS = {
  agent: "an agent of the team; of several instances, each counts by itself",
  lost: "by the agent whose reply is malformed or truncated, or else is the first after which no solved episode of the task goes on in the same way",
  malformed: "the reply has not the form that the agent asks for",
  mix: "shares of the sources of tasks among the episodes",
};

/**
 * A word with its meaning.
 * @param {keyof typeof WORDS} name
 */
export function word(name) {
  return h("abbr", { title: WORDS[name] }, name);
}

/**
 * Rows of which those that follow each other and are alike are folded: the first one, with a button that shows the others.
 * @template T
 * @param {T[]} all
 * @param {(of: T) => string} alike equal for rows that are alike
 * @param {(of: T, more: Child) => HTMLElement} row
 */
export function folded(all, alike, row) {
  /** @type {T[][]} */
  const sets = [];
  for (const of of all) {
    const last = sets.at(-1);
    if (last && alike(last[0]) === alike(of)) last.push(of);
    else sets.push([of]);
  }
  return sets.flatMap(([first, ...rest]) => {
    const others = rest.map((of) => row(of, null));
    const toggle = () => others.forEach((other) => (other.hidden = !other.hidden));
    toggle();
    return [row(first, rest.length > 0 && h("button", { class: "link", onclick: toggle }, `+ ${rest.length} equal`)), ...others];
  });
}

/**
 * Sentences, each with its start in bold, and with a button to what it is about.
 * @param {any[]} all text, label, what the button does
 */
export function sentences(all) {
  return h("ul", { class: "reasons" }, all.map(([text, label, onclick]) => {
    const [, lead, rest] = text.match(/^(.+?\.)( .*)?$/s) ?? ["", text];
    return h("li", {}, h("b", {}, say(lead)), say(rest ?? ""), label && [" ", h("button", { class: "link", onclick }, label)]);
  }));
}

/**
 * Replaces the content of an element. A link or control with the focus passes it on to its successor: the link to the
 * same address, or the control in the same place.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  const old = document.activeElement;
  const alike = () => [...element.querySelectorAll(old?.tagName ?? "a")].filter((other) => other.getAttribute("href") === old?.getAttribute("href"));
  const place = old && element.contains(old) ? alike().indexOf(old) : -1;
  element.replaceChildren(...nodes(children));
  if (place >= 0) /** @type {HTMLElement | undefined} */ (alike()[place])?.focus({ preventScroll: true });
}

// Control characters but tab and line feed, directions, and what is not seen.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]|[\u{e0000}-\u{e007f}]|[\ud800-\udfff]/gu;

/**
 * Text of a model or a task, isolated from the text around it. Characters that are not seen or change the direction
 * are marks.
 * @param {string} text
 * @param {string} [name] class
 * @returns {HTMLElement}
 */
export function foreign(text, name = "") {
  const element = h("bdi", { class: `foreign ${name}`.trim(), dir: "auto" });
  let last = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const code = (found[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    element.append(text.slice(last, found.index), h("span", { class: "mark" }, `U+${code}`));
    last = (found.index ?? 0) + found[0].length;
  }
  element.append(text.slice(last));
  return element;
}

/**
 * Foreign text in the letters of the page.
 * @param {string} text
 */
export function say(text) {
  return foreign(text, "plain");
}

const SHORT = 1200;

/**
 * A long text of a model, cut with a button that shows all of it.
 * @param {string | {start: string, chars: number} | null} text
 * @param {() => Promise<string>} [whole] fetches a text of which the server sent the start only
 * @returns {HTMLElement}
 */
export function long(text, whole) {
  const start = text === null ? "" : typeof text === "string" ? text : text.start;
  const chars = text !== null && typeof text !== "string" ? text.chars : start.length;
  const element = h("div", { class: "text" });
  if (chars <= SHORT) {
    element.append(foreign(start));
    return element;
  }
  const all = async () => {
    const complete = start.length === chars || !whole ? start : await whole();
    fill(element, foreign(complete));
  };
  const button = h("button", { class: "link", onclick: all }, `all ${chars.toLocaleString("en")} characters`);
  element.append(foreign(start.slice(0, SHORT)), "… ", button);
  return element;
}

/**
 * A link.
 * @param {string} href
 * @param {...Child} children
 */
export function a(href, ...children) {
  return h("a", { href }, ...children);
}
