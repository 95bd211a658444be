// Where the time of a run goes: its steps as bars, one step as lanes.

import { h, svg, fill, foreign, num, td, muted, remark, sheet, table, stepper } from "./dom.js";
import { get, isOffline, to } from "./data.js";
import { count, duration, fixed, percent } from "./format.js";

/** Parts of a step in the order of their colors. */
const PARTS = ["rollout", "update", "advantages", "checkpoint", "validation", "files"];
const HEIGHT = 160;
const LEFT = 44;
const LANE = 26;

/** @param {string} name */
function color(name) {
  return `c${Math.max(0, PARTS.indexOf(name)) % 6}`;
}

/** @param {any} step */
function parts(step) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const [name, policy, , lasts] of step.spans) if (policy === null) sums.set(name, (sums.get(name) ?? 0) + lasts);
  return sums;
}

/** @param {string[]} names */
function legend(names) {
  return h("div", { class: "legend" }, names.map((name) => h("span", { class: "entry" },
    svg("svg", { class: "swatch", width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: `bar-part ${color(name)}`, width: 12, height: 12 })), h("span", { class: "entry-name" }, name))));
}

/**
 * All steps as stacked bars; a bar of many steps is their mean.
 * @param {any[]} steps
 * @param {number} chosen
 * @param {(step: number) => void} choose
 */
function bars(steps, chosen, choose) {
  const width = 1100;
  const each = Math.ceil(steps.length / 300);
  /** @type {any[][]} */
  const groups = [];
  for (let i = 0; i < steps.length; i += each) groups.push(steps.slice(i, i + each));
  const means = groups.map((group) => PARTS.map((part) => group.reduce((sum, step) => sum + (parts(step).get(part) ?? 0), 0) / group.length));
  const most = means.reduce((max, values) => Math.max(max, values.reduce((x, y) => x + y, 0)), 1e-9);
  const wide = (width - LEFT) / groups.length;
  const y = (/** @type {number} */ seconds) => HEIGHT - 20 - (seconds / most) * (HEIGHT - 30);
  const drawn = groups.map((group, i) => {
    let sum = 0;
    const x = LEFT + i * wide;
    const rects = means[i].map((seconds, k) => {
      sum += seconds;
      return svg("rect", { class: `bar-part ${color(PARTS[k])}`, x: x + wide * 0.06, width: Math.max(wide * 0.88, 0.5), y: y(sum), height: Math.max(0, y(sum - seconds) - y(sum)) });
    });
    const label = `step ${group[0].step}: ${duration(sum)}`;
    const here = group.some((step) => step.step === chosen);
    return svg("g", { class: "bar-step", "data-step": group[0].step, onclick: () => choose(group[0].step) }, svg("title", {}, label), ...rects,
      here && svg("rect", { class: "bar-here", x, width: wide, y: HEIGHT - 18, height: 3 }));
  });
  const tick = (/** @type {number} */ i) => svg("text", { class: "tick", x: LEFT + (i + 0.5) * wide, y: HEIGHT - 4, "text-anchor": "middle" }, groups[i][0].step);
  const ticks = [...new Set([0, Math.floor((groups.length - 1) / 2), groups.length - 1])].map(tick);
  return svg("svg", { class: "timeline", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `seconds of ${steps.length} steps` },
    svg("text", { class: "tick", x: LEFT - 6, y: y(most) + 4, "text-anchor": "end" }, duration(most)), ...drawn, ...ticks);
}

/**
 * The parts of a step, and those of each policy below.
 * @param {any} step
 * @param {number} seconds
 * @param {(at: number) => number} x
 */
function lanes(step, seconds, x) {
  const policies = [...new Set(step.spans.map((/** @type {any} */ span) => span[1]).filter((/** @type {any} */ of) => of !== null))];
  const rows = ["step", ...policies];
  const drawn = step.spans.map((/** @type {any} */ [name, policy, begin, lasts]) => {
    const row = policy === null ? 0 : rows.indexOf(policy);
    return svg("g", { "data-span": name }, svg("title", {}, `${name}${policy ? `, ${policy}` : ""}: ${duration(lasts)}`),
      svg("rect", { class: `bar-part ${color(name)}`, x: x(begin), width: Math.max(x(begin + lasts) - x(begin), 0.75), y: row * LANE + 3, height: LANE - 8 }));
  });
  return { names: rows, drawn, height: rows.length * LANE };
}

/**
 * Requests of each seat at once, from the times of its turns.
 * @param {any[]} turns
 * @param {number} start
 * @param {(at: number) => number} x
 * @param {number} top
 */
function requests(turns, start, x, top) {
  const seats = [...new Set(turns.map((turn) => turn[2]))].sort();
  const counted = (/** @type {number[][]} */ changes) => {
    let [open, most, busy, last] = [0, 0, 0, 0];
    const points = changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([at, change]) => {
      if (open > 0) busy += at - last;
      const before = open;
      [open, last] = [open + change, at];
      most = Math.max(most, open);
      return [at, before, open];
    });
    return { points, most, busy: busy / 1e3 };
  };
  const rows = seats.map((seat, i) => {
    const its = turns.filter((turn) => turn[2] === seat);
    const timed = its.filter((turn) => turn[5] !== undefined);
    const open = counted(its.flatMap(([, , , asked, ended]) => [[asked, 1], [ended, -1]]));
    const running = counted(timed.flatMap(([, , , , ended, began]) => [[began, 1], [ended, -1]]));
    const base = top + (i + 1) * LANE - 3;
    const y = (/** @type {number} */ n) => base - (n / Math.max(open.most, 1)) * (LANE - 8);
    const area = (/** @type {number[][]} */ points, /** @type {string} */ name) => {
      const path = points.map(([at, before, after]) => `L${x(start + at / 1e3).toFixed(1)} ${y(before).toFixed(1)}V${y(after).toFixed(1)}`).join("");
      return svg("path", { class: `${name} c${i % 6}`, d: `M${x(start).toFixed(1)} ${base}${path}V${base}Z` });
    };
    const sum = its.reduce((sum, [, , , asked, ended]) => sum + ended - asked, 0);
    const waited = timed.length > 0 ? timed.reduce((sum, [, , , asked, , began]) => sum + began - asked, 0) / timed.length / 1e3 : null;
    const drawn = timed.length === its.length ? [area(open.points, "queue"), area(running.points, "area")] : [area(open.points, "area")];
    return { seat, turns: its.length, most: open.most, busy: open.busy, sum: sum / 1e3, waited, drawn };
  });
  return { rows, height: seats.length * LANE };
}

/**
 * Blocks of the cache that requests hold, and tokens per second, of each policy.
 * @param {Record<string, number[][]>} samples
 * @param {number} start
 * @param {(at: number) => number} x
 * @param {number} top
 */
function workers(samples, start, x, top) {
  const lanes = Object.entries(samples).flatMap(([policy, its]) => {
    const blocks = its.reduce((most, sample) => Math.max(most, sample[3]), 1);
    const used = its.reduce((most, sample) => Math.max(most, sample[2]), 0);
    const speeds = its.slice(1).map((sample, i) => [sample[0], (sample[1] - its[i][1]) / Math.max(sample[0] - its[i][0], 1e-3)]);
    const fastest = speeds.reduce((most, [, speed]) => Math.max(most, speed), 0);
    return [
      { name: `${policy}: cache`, label: `at most ${percent(used / blocks)} of the cache`, points: its.map((sample) => [sample[0], sample[2] / blocks]) },
      { name: `${policy}: tokens/s`, label: `at most ${count(Math.round(fastest))} tokens per second`, points: speeds.map(([time, speed]) => [time, speed / (fastest || 1)]) },
    ].filter((lane) => lane.points.length > 1);
  });
  const drawn = lanes.map((lane, i) => {
    const base = top + (i + 1) * LANE - 3;
    const path = lane.points.map(([time, share]) => `L${x(start + time).toFixed(1)} ${(base - share * (LANE - 8)).toFixed(1)}`).join("");
    const last = lane.points[lane.points.length - 1][0];
    return svg("g", { "data-worker": lane.name }, svg("title", {}, `${lane.name}: ${lane.label}`),
      svg("path", { class: `area c${i % 6}`, d: `M${x(start + lane.points[0][0]).toFixed(1)} ${base}${path}L${x(start + last).toFixed(1)} ${base}Z` }));
  });
  return { names: lanes.map((lane) => lane.name), labels: lanes.map((lane) => `${lane.name}: ${lane.label}`), drawn };
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  const [run, found] = await Promise.all([get(`runs/${r}`), get(`runs/${r}/spans`)]);
  const title = `Timeline of ${run.run.name}`;
  if (found.steps.length === 0) {
    fill(root, h("h1", {}, title), h("p", { class: "empty" }, "The run has no times of its steps: `record.clock` is off, or an older version made it."));
    return { title };
  }
  const last = found.steps[found.steps.length - 1].step;
  const wanted = Number(at.query.get("step") ?? last);
  const step = found.steps.find((/** @type {any} */ row) => row.step === wanted) ?? found.steps[found.steps.length - 1];
  const go = (/** @type {number} */ next) => (location.hash = to(`r/${r}/timeline`, { step: Math.min(Math.max(next, found.steps[0].step), last) }));
  const clock = await get(`runs/${r}/clock/${step.step}`).catch(() => null);
  const sums = parts(step);
  const seconds = [...sums.values()].reduce((x, y) => x + y, 0);
  const width = 1100;
  const x = (/** @type {number} */ time) => 150 + (time / (seconds || 1)) * (width - 160);
  const spans = lanes(step, seconds, x);
  const rollout = step.spans.find((/** @type {any} */ span) => span[0] === "rollout");
  const flight = clock && rollout ? requests(clock.turns, rollout[2], x, spans.height) : null;
  const machines = workers(step.samples ?? {}, rollout?.[2] ?? 0, x, spans.height + (flight?.height ?? 0));
  const names = [...spans.names, ...(flight?.rows.map((row) => row.seat) ?? []), ...machines.names];
  const height = names.length * LANE + 18;
  const drawn = svg("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `parts of step ${step.step}` },
    names.map((name, i) => svg("text", { class: "tick", x: 142, y: i * LANE + 16, "text-anchor": "end" }, name)),
    ...spans.drawn, flight?.rows.flatMap((row) => row.drawn) ?? [], machines.drawn,
    [0, 0.25, 0.5, 0.75, 1].map((share) => svg("text", { class: "tick", x: x(share * seconds), y: height - 3, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, duration(share * seconds))));
  const trace = h("a", { href: `api/runs/${r}/trace/${step.step}`, download: `step-${step.step}.trace.json` }, "save for Perfetto");
  fill(root,
    h("h1", {}, title),
    sheet(legend(PARTS), bars(found.steps, step.step, go)),
    found.of > found.steps.length && remark(`The last ${count(found.steps.length)} of ${count(found.of)} steps.`),
    h("div", { class: "bar section" }, h("h2", {}, `Step ${step.step}`), muted(duration(seconds)),
      stepper(step.step, step.step, last, go),
      h("span", { class: "end" }, !isOffline() && trace)),
    sheet(drawn),
    machines.labels.length > 0 && remark(`${machines.labels.join("; ")}.`),
    h("div", { class: "cols" },
      sheet(h("h3", {}, "Parts"), table(["part", "seconds", "share"],
        [...sums].map(([name, lasts]) => h("tr", { "data-part": name }, td(name), num(fixed(lasts)), num(percent(lasts / (seconds || 1))))))),
      flight && sheet(h("h3", {}, "Agents in the rollout"), table(["agent", "turns", "mean s", "waited s", "most at once", "busy"],
        flight.rows.map((row) => h("tr", {}, td(foreign(row.seat)), num(count(row.turns)), num(fixed(row.sum / row.turns)), num(fixed(row.waited)), num(row.most),
          num(percent(row.busy / (rollout[3] || 1)))))),
        remark("Mean: from the request to the reply. Waited: of it, until the engine began, above the filled area. Busy: the share of the rollout in which a request of the agent runs or waits."))));
  return { title, keys: { "[": () => go(step.step - 1), "]": () => go(step.step + 1) } };
}
