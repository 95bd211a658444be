// Lanes of an episode: cards in columns, of which only those near the window are made.

import { h, svg, fill } from "./dom.js";

/** Items of a slice. A slice far from the window is an empty box of its height. */
const SLICE = 30;
/** Height in pixels of an item that was never made. */
const GUESS = 110;
/** Items from which on there is a map. */
const MAPPED = 9;
/** Width of the map, and height of a lane in it. */
const [WIDE, TALL] = [1000, 7];

/**
 * @typedef {{key: string, lane: number, label: string, branch: string | null, bad: boolean, from: number, to: number,
 *   make: () => HTMLElement}} Item an item, with the place at which the map shows it
 * @typedef {{first: number, element: HTMLElement, made: boolean, height: number}} Slice
 */

export class Lanes {
  /**
   * @param {string[]} names of the lanes
   * @param {Item[]} items in their order
   * @param {{from: string, to: string}[]} links from a text to the item that was given it
   */
  constructor(names, items, links) {
    this.names = names;
    this.items = items;
    this.links = links;
    this.places = new Map(items.map((item, i) => [item.key, i]));
    /** @type {Map<string, HTMLElement>} Cards in the document, by their keys. */
    this.cards = new Map();
    this.at = 0;
    /** @type {string | null} Card to which the page scrolls once all around it is made. */
    this.target = null;
    this.lines = svg("svg", { class: "links", "aria-hidden": "true" });
    const heads = this.grid(names.map((name, i) => placed(h("div", { class: `lane-head lane${i % 6}` }, name), i + 2, 1)));
    heads.classList.add("lane-heads");
    /** @type {Slice[]} */
    this.slices = [];
    for (let first = 0; first < items.length; first += SLICE) this.slices.push({ first, element: this.grid([]), made: false, height: GUESS * Math.min(SLICE, items.length - first) });
    const body = h("div", { class: "scroll lane-body", onscroll: () => (heads.scrollLeft = body.scrollLeft) },
      h("div", { class: "lane-slices", role: "list", "aria-label": "turns and actions" }, this.lines, this.slices.map((slice) => slice.element)));
    this.map = items.length >= MAPPED ? this.minimap() : null;
    this.element = h("div", {}, h("div", { class: "lane-top" }, this.map, heads), body);
    this.watch();
  }

  /** @param {HTMLElement[]} children */
  grid(children) {
    const grid = h("div", { class: "lanes" }, children);
    grid.style.setProperty("grid-template-columns", `2.4rem repeat(${Math.max(this.names.length, 1)}, minmax(13rem, 1fr))`);
    return grid;
  }

  /** Makes the slices near the window, and draws what depends on their places. */
  watch() {
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const slice = this.slices.find((of) => of.element === entry.target);
        if (slice) entry.isIntersecting ? this.show(slice) : this.hide(slice);
      }
      const card = this.target === null ? null : this.cards.get(this.target);
      this.target = null;
      card?.scrollIntoView({ block: "center" });
    }, { rootMargin: "1200px 0px" });
    for (const slice of this.slices) {
      this.shrink(slice);
      observer.observe(slice.element);
    }
    if (this.slices.length > 0) this.show(this.slices[0]);
    new ResizeObserver(() => this.connect()).observe(this.element);
    const scrolled = () => (this.element.isConnected ? this.mark() : removeEventListener("scroll", scrolled));
    addEventListener("scroll", scrolled);
  }

  /** @param {Slice} slice */
  shrink(slice) {
    slice.element.style.setProperty("min-height", `${slice.height}px`);
  }

  /** @param {Slice} slice */
  show(slice) {
    if (slice.made) return;
    slice.made = true;
    slice.element.style.removeProperty("min-height");
    let row = 1;
    fill(slice.element, this.items.slice(slice.first, slice.first + SLICE).flatMap((item) => {
      const card = item.make();
      this.cards.set(item.key, card);
      card.addEventListener("pointerenter", () => this.highlight(item.key));
      card.addEventListener("pointerleave", () => this.highlight(null));
      card.addEventListener("focusin", () => this.highlight(item.key));
      card.addEventListener("toggle", () => this.connect(), true);
      card.setAttribute("role", "listitem");
      const branch = item.branch !== null && placed(h("div", { class: "branch" }, item.branch), null, row++);
      return [branch, placed(h("div", { class: "lane-path" }, item.label), 1, row), placed(card, item.lane + 2, row++)];
    }));
    requestAnimationFrame(() => this.connect());
  }

  /** @param {Slice} slice */
  hide(slice) {
    if (!slice.made || slice.element.contains(document.activeElement)) return;
    slice.made = false;
    slice.height = slice.element.offsetHeight;
    this.shrink(slice);
    for (const item of this.items.slice(slice.first, slice.first + SLICE)) this.cards.delete(item.key);
    fill(slice.element);
  }

  /**
   * Scrolls to an item.
   * @param {string} key
   */
  reveal(key) {
    const slice = this.slices[Math.floor((this.places.get(key) ?? 0) / SLICE)];
    if (!slice) return;
    if (!slice.made) this.target = key;
    this.show(slice);
    this.cards.get(key)?.scrollIntoView({ block: "center" });
  }

  /** Draws a line from each text to the items that were given it. */
  connect() {
    this.mark();
    if (getComputedStyle(this.lines).display === "none") return;
    const box = this.lines.getBoundingClientRect();
    fill(this.lines, this.links.flatMap(({ from, to }) => {
      const [start, end] = [this.cards.get(from)?.getBoundingClientRect(), this.cards.get(to)?.getBoundingClientRect()];
      if (!start || !end || start.left === end.left) return [];
      const right = end.left > start.left;
      const [x1, y1] = [(right ? start.right : start.left) - box.left, start.top + Math.min(16, start.height / 2) - box.top];
      const [x2, y2] = [(right ? end.left : end.right) - box.left, end.top + Math.min(16, end.height / 2) - box.top];
      const middle = right ? x2 - 6 : x2 + 6;
      return [svg("path", { d: `M${x1} ${y1}L${middle} ${y1}L${middle} ${y2}L${x2} ${y2}`, "data-from": from, "data-to": to }), svg("circle", { cx: x2, cy: y2, r: 2.5 })];
    }));
  }

  /** @param {string | null} key */
  highlight(key) {
    for (const path of this.lines.querySelectorAll("path")) {
      path.classList.toggle("on", key !== null && (path.dataset.from === key || path.dataset.to === key));
    }
    const seen = new Set(this.links.filter((link) => link.to === key).map((link) => link.from));
    for (const [name, card] of this.cards) card.classList.toggle("seen", seen.has(name));
  }

  /** Every item as a mark at its place, and the part of them that is on the screen. */
  minimap() {
    const tall = this.names.length * TALL + 3;
    const low = this.items.reduce((least, item) => Math.min(least, item.from), Infinity);
    const high = this.items.reduce((most, item) => Math.max(most, item.to), -Infinity);
    this.x = (/** @type {number} */ at) => ((at - low) / (high - low || 1)) * WIDE;
    this.frame = svg("rect", { class: "map-frame", y: 0.5, height: tall - 1 });
    const drawn = svg("svg", { viewBox: `0 0 ${WIDE} ${tall}`, preserveAspectRatio: "none", height: 2 * tall, "aria-hidden": "true" },
      this.items.flatMap((item) => {
        const x = this.x?.(item.from) ?? 0;
        const width = Math.max((this.x?.(item.to) ?? 0) - x, 1.5);
        return [item.bad && svg("rect", { class: "map-bad", x, width: 1.5, y: 0, height: tall }), svg("rect", { class: `c${item.lane % 6}`, x, width, y: item.lane * TALL + 2, height: TALL - 2 })];
      }), this.frame);
    const map = h("div", {
      class: "minimap", role: "slider", tabindex: 0, "aria-label": "place in the episode", "aria-valuemin": 1, "aria-valuemax": this.items.length,
      onclick: (/** @type {MouseEvent} */ event) => {
        const box = map.getBoundingClientRect();
        const at = low + ((event.clientX - box.left) / box.width) * (high - low);
        const far = (/** @type {Item} */ item) => Math.max(item.from - at, at - item.to, 0);
        this.go(this.items.reduce((best, item, i) => (far(item) < far(this.items[best]) ? i : best), 0));
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        /** @type {Record<string, number>} */
        const moves = { ArrowRight: this.at + 1, ArrowLeft: this.at - 1, PageDown: this.at + 10, PageUp: this.at - 10, Home: 0, End: this.items.length - 1 };
        if (!(event.key in moves)) return;
        event.preventDefault();
        this.go(Math.min(Math.max(moves[event.key], 0), this.items.length - 1));
      },
    }, drawn);
    return map;
  }

  /** @param {number} at */
  go(at) {
    this.reveal(this.items[at].key);
    this.at = at;
    this.tell();
  }

  tell() {
    this.map?.setAttribute("aria-valuenow", String(this.at + 1));
    this.map?.setAttribute("aria-valuetext", `${this.items[this.at].label}, ${this.names[this.items[this.at].lane]}`);
  }

  /** Marks the items on the screen in the map. */
  mark() {
    if (!this.map || !this.frame || !this.x) return;
    const visible = [...this.cards].filter(([, card]) => { const box = card.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; })
      .map(([key]) => this.places.get(key) ?? 0);
    if (visible.length === 0) return;
    if (!visible.includes(this.at)) this.at = Math.min(...visible);
    this.tell();
    const its = visible.map((i) => this.items[i]);
    const [from, to] = [this.x(Math.min(...its.map((item) => item.from))), this.x(Math.max(...its.map((item) => item.to)))];
    this.frame.setAttribute("x", String(from));
    this.frame.setAttribute("width", String(Math.max(to - from, 2)));
  }
}

/**
 * Places an element in the grid.
 * @param {HTMLElement} element
 * @param {number | null} column
 * @param {number} row
 */
function placed(element, column, row) {
  if (column !== null) element.style.gridColumn = String(column);
  element.style.gridRow = String(row);
  return element;
}
