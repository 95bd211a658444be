// One run: outcome, what to look at first, quality, agents, learning, speed.

import { h, svg, fill, a, num, td, muted, remark, sheet, say, table, word } from "./dom.js";
import { get, joined, seriesOf, to } from "./data.js";
import { Chart, redraw, spark, view } from "./chart.js";
import { duration, fixed, percent, plural, short, signed } from "./format.js";
import { progress, state } from "./page_runs.js";
import { brief, said, weak } from "./team.js";

/** @typedef {import("./data.js").Series} Series */

/**
 * The evaluations before and after training as points with their intervals, and the intervals of validations by the
 * column that they belong to.
 * @param {any} run
 */
function evaluated(run) {
  const point = (/** @type {string} */ name, /** @type {number} */ step, /** @type {any} */ of) => of && { name, points: true, steps: [step], values: [of.mean], low: [of.low], high: [of.high] };
  const marks = [point("before", 0, run.before?.overall.avg), point("after", run.run.step, run.after?.overall.avg)].filter(Boolean);
  /** @type {Map<string, Map<number, any>>} */
  const ranges = new Map();
  for (const of of run.validations) {
    const name = `eval/${of.split}/exact_match`;
    ranges.set(name, (ranges.get(name) ?? new Map()).set(of.step, of));
  }
  return { marks, ranges };
}

/**
 * True if a policy is trained on advantages of sampled replies: not on given replies, nor on pairs.
 * @param {string[]} names of metrics
 * @param {string | undefined} policy
 */
function gradient(names, policy) {
  return names.includes("rollout/episodes") && !names.includes(`policy/${policy}/pair_accuracy`);
}

/**
 * The intervals of a column whose ends are columns too, by step.
 * @param {Series} series
 * @param {string} name
 */
function between(series, name) {
  const end = (/** @type {string} */ of, /** @type {number} */ i) => series.columns[`${name}_${of}`]?.[i] ?? null;
  return new Map([[name, new Map(series.steps.map((step, i) => [step, { low: end("low", i), high: end("high", i) }]))]]);
}

/**
 * Charts of a run, in sections. A line is left out where the run has no such metric, and a chart without lines too.
 * @param {Series} series
 * @param {any} run
 */
function sections(series, run) {
  const { marks, ranges } = evaluated(run);
  const names = Object.keys(series.columns);
  const line = (/** @type {string} */ name, /** @type {string} */ label, points = false) => ({ column: name, name: label, points });
  const every = (/** @type {RegExp} */ pattern, points = false) =>
    names.filter((name) => pattern.test(name)).map((name) => line(name, name.match(pattern)?.[1] ?? name, points));
  // A chart whose axis has 0.
  const zero = (/** @type {string} */ title, /** @type {any[]} */ ...lines) => ({ title, zero: true, lines });
  const quality = [
    { title: "Solved", zero: true, max: 1, marks, ranges, lines: [line("rollout/solved", "training"), ...every(/^eval\/([^/]+)\/exact_match$/, true), ...every(/^eval\/([^/]+\/greedy)_exact_match$/, true)] },
    { title: "Reward", lines: [line("rollout/score_mean", "score"), ...every(/^rollout\/reward\/(.+)$/)] },
    { title: "Groups", zero: true, max: 1, lines: [line("group/zero_std_frac", "equal rewards"), line("group/all_good_frac", "all solved"), line("group/all_bad_frac", "none solved")] },
    { title: "Environment", lines: every(/^rollout\/score\/(.+)$/) },
    zero("Unscored", line("rollout/unscored", "episodes")),
  ];
  const splits = [...new Set(names.flatMap((name) => name.match(/^verifier\/([^/]+)\/auc$/)?.[1] ?? []))];
  const held = (/** @type {string} */ quantity, label = "") => splits.map((split) => line(`verifier/${split}/${quantity}`, split + label, true));
  const verifier = [
    zero("Loss", line("verifier/loss", "training"), ...held("nll")),
    zero("Accuracy", line("verifier/accuracy", "training"), ...held("accuracy")),
    { ...zero("AUC", ...held("auc"), ...every(/^verifier\/live_auc\/(.+)$/, true)), ranges: between(series, "verifier/test/auc") },
    zero("Calibration error", ...held("ece"), ...held("ece_unscaled", ", not scaled")),
    zero("Probability", ...held("mean", ", mean"), ...held("base_rate", ", right rows")),
    zero("AUC of probes", ...every(/^verifier\/probe\/(.+)$/, true)),
    zero("Gradient norm", line("verifier/grad_norm", "before clipping")),
    zero("Learning rate", line("verifier/lr", "lr")),
  ];
  const policies = [...new Set(names.map((name) => name.match(/^policy\/(.+)\/[^/]+$/)?.[1]).filter(Boolean))];
  const learning = policies.flatMap((policy) => {
    const of = (/** @type {string} */ quantity, /** @type {string} */ label) => line(`policy/${policy}/${quantity}`, label);
    const title = (/** @type {string} */ text) => (policies.length > 1 ? `${policy}: ${text.toLowerCase()}` : text);
    const pairs = [
      { ...zero(title("Pair accuracy"), of("pair_accuracy", "better reply ahead")), max: 1 },
      { title: title("Reward margin"), lines: [of("reward_margin", "margin"), of("reward_chosen", "better reply"), of("reward_rejected", "worse reply")] },
    ];
    const always = [zero(title("Gradient norm"), of("grad_norm", "before clipping")), zero(title("Learning rate"), of("lr", "lr"))];
    // Only a policy gradient has advantages and ratios to the sampler.
    if (!gradient(names, policy)) return [{ title: title("Loss"), lines: [of("loss", "loss")] }, ...pairs, ...always];
    return [
      zero(title("Entropy"), of("entropy", "nats")),
      zero(title("KL"), of("kl", "to the start"), of("reward_kl", "in the reward"), of("ppo_kl", "of the update")),
      zero(title("Clipped tokens"), of("clip_frac_low", "low"), of("clip_frac_high", "high"), of("clip_frac_dual", "dual")),
      zero(title("Gradient norm"), of("grad_norm", "before clipping")),
      { title: title("Advantages"), lines: [of("adv_mean", "mean"), of("adv_std", "deviation")] },
      { title: title("Loss"), lines: [of("loss", "loss"), of("pg_loss", "surrogate")] },
      zero(title("Learning rate"), of("lr", "lr")),
      zero(title("Rollout against trainer"), line(`mismatch/${policy}/logp_abs_max`, "max"), line(`mismatch/${policy}/logp_abs_mean`, "mean")),
    ];
  });
  const values = [...every(/^(critic\/.+)\/explained_variance$/), ...every(/^(mixer)\/explained_variance$/)].flatMap(({ name }) => [
    { title: `${name}: explained variance`, lines: [line(`${name}/explained_variance`, "share")] },
    { title: `${name}: values`, lines: [line(`${name}/value_mean`, "values"), line(`${name}/return_mean`, "returns")] },
  ]);
  const speed = [
    zero("Turns per episode", line("rollout/turns_mean", "turns")),
    zero("Sampled tokens per second", line("perf/rollout_tokens_per_s", "tokens/s")),
    zero("Seconds per step", line("time/rollout_s", "rollout"), line("time/update_s", "update"), line("time/eval_s", "validation", true)),
    zero("Requests per decode pass", ...every(/^engine\/(.+)\/decode_batch_mean$/)),
    zero("Prompt tokens", ...every(/^engine\/(.+\/prefill)_tokens$/), ...every(/^engine\/(.+\/reused)_tokens$/)),
    zero("Preemptions", ...every(/^engine\/(.+)\/preemptions$/)),
    zero("Endpoint requests", ...every(/^endpoint\/(.+\/requests)$/), ...every(/^endpoint\/(.+\/failures)$/)),
  ];
  const there = (/** @type {any} */ chart) => ({ ...chart, lines: chart.lines.filter((/** @type {any} */ of) => series.columns[of.column]?.some((v) => v !== null)) });
  const flat = (/** @type {any} */ chart) => chart.lines.every((/** @type {any} */ of) => series.columns[of.column].every((value) => !value));
  /** @type {[string, any[]][]} */
  const all = [["Quality", quality], ["Verifier", verifier], ["Learning", [...learning, ...values]], ["Speed", speed]];
  return all.map(([title, its]) => {
    const charts = its.map(there).filter((chart) => chart.lines.length);
    return { title, charts: charts.filter((chart) => !flat(chart)), zero: charts.filter(flat).map((chart) => chart.title) };
  });
}

/**
 * @param {Series} series
 * @param {any} chart
 */
export function lines(series, chart) {
  const drawn = chart.lines.map((/** @type {any} */ of) => {
    const range = chart.ranges?.get(of.column);
    const end = (/** @type {string} */ name) => range && series.steps.map((step) => range.get(step)?.[name] ?? null);
    return { name: of.name, points: of.points, steps: series.steps, values: series.columns[of.column] ?? [], low: end("low"), high: end("high") };
  });
  return [...drawn, ...(chart.marks ?? [])];
}

/** The switches above charts. */
export function switches() {
  const smooth = h("select", { onchange: () => { view.smooth = Number(/** @type {HTMLSelectElement} */ (smooth).value); redraw(); } },
    [["0", "none"], ["2", "5 steps"], ["10", "21 steps"]].map(([value, label]) => h("option", { value, selected: Number(value) === view.smooth }, label)));
  const log = h("input", { type: "checkbox", checked: view.log, onchange: () => { view.log = /** @type {HTMLInputElement} */ (log).checked; redraw(); } });
  return h("span", { class: "line muted" }, h("label", {}, "smoothing", smooth), h("label", {}, log, "log scale"));
}

/**
 * The last evaluation of a verifier on rows that it is not trained on.
 * @param {Series} series
 */
function judged(series) {
  const split = ["test", "validation"].find((name) => series.columns[`verifier/${name}/auc`]);
  if (!split) return null;
  const at = series.columns[`verifier/${split}/auc`].findLastIndex((value) => value !== null);
  const of = (/** @type {string} */ name) => series.columns[`verifier/${split}/${name}`]?.[at] ?? null;
  const [low, high, rows] = ["auc_low", "auc_high", "n"].map(of);
  const facts = [["AUC", of("auc")], ["accuracy", of("accuracy")], ["calibration error", of("ece")], ["right rows", of("base_rate")]];
  return h("div", { "data-judged": split }, h("dl", { class: "facts" }, facts.flatMap(([name, value]) => [h("dt", {}, name),
    h("dd", {}, h("b", {}, fixed(/** @type {number} */ (value))), name === "AUC" && low !== null && muted(` (${fixed(low)} to ${fixed(high)}, 95 %)`))])),
  remark(`The verifier on its ${split} rows in step ${series.steps[at]}${rows === null ? "" : `; ${plural(rows, "row")}`}.`));
}

/**
 * Shares with their intervals on one axis; of a verifier, its last evaluation.
 * @param {any} run
 * @param {Series} series
 */
function outcome(run, series) {
  const rows = [["before", run.before], ["after", run.after]].filter(([, report]) => report);
  if (rows.length === 0) return judged(series) ?? remark(run.run.state === "complete" ? "The run has no evaluation." : "No evaluation yet.");
  const x = (/** @type {number} */ share) => 4 + share * 292;
  const plot = (/** @type {any} */ report) => {
    const { mean, low, high } = report.overall.avg;
    return svg("svg", { viewBox: "0 0 300 22", height: 22, role: "img", "aria-label": `${fixed(mean)}, ${fixed(low)} to ${fixed(high)}, greedy ${fixed(report.greedy?.mean)}` },
      svg("line", { class: "track", x1: x(0), x2: x(1), y1: 11, y2: 11 }),
      [0, 0.5, 1].map((tick) => svg("line", { class: "track", x1: x(tick), x2: x(tick), y1: 8, y2: 14 })),
      svg("line", { class: "range", x1: x(low), x2: x(high), y1: 11, y2: 11 }),
      svg("circle", { class: "mean", cx: x(mean), cy: 11, r: 4.5 }),
      report.greedy && svg("path", { class: "greedy", d: `M${x(report.greedy.mean)} 5l6 6l-6 6l-6 -6z` }));
  };
  const short = (/** @type {any} */ overall, /** @type {string} */ k) => {
    const left = overall.pass_left_out?.[k];
    return left ? ` (${left} of ${plural(overall.tasks, "task")} left out)` : "";
  };
  const first = /** @type {any} */ (rows[0][1]);
  const gain = run.gain;
  return h("div", {},
    h("div", { class: "dotplot" }, rows.flatMap(([name, report]) => {
      const { mean, low, high } = /** @type {any} */ (report).overall.avg;
      return [muted(/** @type {string} */ (name)), plot(report),
        h("span", {}, h("b", { "data-outcome": name }, fixed(mean)), muted(` (${fixed(low)} to ${fixed(high)})`, /** @type {any} */ (report).greedy && `, greedy ${fixed(/** @type {any} */ (report).greedy.mean)}`,
          Object.entries(/** @type {any} */ (report).overall.pass).filter(([k]) => Number(k) > 1).map(([k, of]) => `, pass@${k} ${fixed(of.mean)}${short(/** @type {any} */ (report).overall, k)}`)))];
    })),
    !gain && rows.length > 1 && h("p", {}, "not paired: the evaluations before and after have no task in common"),
    gain && h("p", {}, "gain ", h("b", { class: gain.low > 0 ? "good" : gain.high < 0 ? "bad" : "" }, signed(gain.mean)),
      muted(` (95 %: ${gain.low === null ? "unknown" : `${signed(gain.low)} to ${signed(gain.high)}`}), paired over ${plural(gain.tasks, "task")}`)),
    remark(`${run.measure ?? "solved"} on “${first.split}”, 95 %; ${plural(first.overall.tasks, "task")}, ${plural(first.samples, "sample")} each; ◇ greedy`,
      first.unscored > 0 && `; ${first.unscored} unscored`));
}

/** What each page shows of a notice. */
const LOOK = { step: "what changed there", episodes: "those episodes", groups: "those groups", timeline: "where its time went" };

/** @param {any} run @param {string} r */
function notices(run, r) {
  const signs = { problem: ["!", "bad"], warning: ["!", "warn"], fine: ["✓", "good"] };
  if (run.notices.length === 0) return remark("Nothing yet.");
  return h("ul", { class: "notices" }, run.notices.slice(0, 12).map((/** @type {any} */ notice) => {
    const [sign, name] = signs[/** @type {keyof typeof signs} */ (notice.level)];
    const link = notice.link ?? (notice.step ? `step?step=${notice.step}` : null);
    return h("li", {}, h("span", { class: `sign ${name}`, "aria-label": notice.level }, sign),
      h("span", {}, say(notice.text.slice(0, 400)), link && [" ", a(`#/r/${r}/${link}`, LOOK[/** @type {keyof typeof LOOK} */ (link.split("?")[0])])]));
  }));
}

/**
 * @param {any} run
 * @param {Series} series
 * @param {string} r
 */
function agents(run, series, r) {
  const drawn = (/** @type {(number | null)[] | undefined} */ values, /** @type {(value: any) => string} */ text) =>
    values?.some((value) => value !== null) ? num(spark(series.steps, values), " ", text(values.filter((value) => value !== null).at(-1))) : h("td", { class: "n muted" }, "–");
  const cell = (/** @type {string} */ name, /** @type {(value: any) => string} */ text) => drawn(series.columns[name], text);
  const seats = run.seats.filter((/** @type {string} */ seat) => series.columns[`rollout/${seat}/turns`]);
  if (seats.length === 0) return null;
  // Columns that most runs have no use for are left out where they are 0.
  const rare = ["shortened_chars", "forked"].map((name) => seats.some((/** @type {string} */ seat) => series.columns[`rollout/${seat}/${name}`]?.some(Boolean)));
  const heads = ["reward", word("malformed"), "truncated", "turns", "prompt", "reply", rare[0] && "shortened", rare[1] && "forked"].filter(Boolean);
  return h("section", {}, h("h2", {}, "Agents"), sheet(table([word("agent"), ...heads, h("th", {}, "last step")],
    seats.map((/** @type {string} */ seat, /** @type {number} */ i) => {
      const name = (/** @type {string} */ quantity) => `rollout/${seat}/${quantity}`;
      const turns = series.columns[name("turns")];
      const each = (/** @type {string} */ column) => series.columns[column]?.map((value, at) => (value === null || !turns[at] ? null : value / turns[at]));
      const step = series.steps.at(-1);
      const filter = (/** @type {any} */ more) => to(`r/${r}/episodes`, { step, stage: "train", seat, ...more });
      return h("tr", { class: `lane${i % 6}`, "data-agent": seat }, td(h("b", {}, seat)),
        cell(name("reward_mean"), fixed), cell(name("reply_error_rate"), percent), cell(name("truncated_rate"), percent),
        cell(name("turns"), short), cell(name("prompt_tokens_mean"), short), cell(name("completion_tokens_mean"), short),
        rare[0] && drawn(each(name("shortened_chars")), short), rare[1] && drawn(each(name("forked")), percent),
        td(a(filter({ sort: "reward" }), "worst"), " · ", a(filter({ sort: "-tokens" }), "longest")));
    }))), remark("Lines are over all steps, numbers of the last one; prompt and reply: mean tokens of a turn",
    rare[0] && "; shortened: characters of observations that were cut, per turn", rare[1] && "; forked: turns whose conversation was rendered again", "."));
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const r = at.run;
  /** @type {[any, Series]} */
  let [run, series] = await Promise.all([get(`runs/${r}`), seriesOf(r)]);
  const [head, short, cards, team, sums] = [h("div"), h("div"), h("div", { class: "cols" }), h("div"), h("div")];
  const onstep = (/** @type {number} */ step) => step > 0 && (location.hash = to(`r/${r}/step`, { step }));
  /** @type {Map<string, Chart>} */
  let charts = new Map();
  const body = h("div");

  const draw = () => {
    const { run: line, summary, provenance } = run;
    fill(head,
      h("div", { class: "line" }, h("h1", {}, line.name), state(line), h("span", {}, progress(line)),
        line.state === "complete" && summary?.train_seconds && muted(`trained ${duration(summary.train_seconds)}`)),
      h("p", { class: "line muted" }, [line.orchestra, line.algorithm, `seed ${line.seed}`, provenance?.device, provenance && `maverl ${provenance.version}`]
        .filter(Boolean).map((text) => h("span", {}, text))),
      line.tracking.map((/** @type {string} */ text) => remark(say(text))),
      line.problem && h("div", { class: "error" }, say(line.problem)),
      run.scanning && remark(`making the list of episodes: ${run.scanning[1] - run.scanning[0]} of ${run.scanning[1]} files`));
    fill(cards,
      h("section", { class: "card" }, h("h3", {}, "Outcome"), outcome(run, series)),
      h("section", { class: "card" }, h("h3", {}, "Look here first"), notices(run, r)));
    fill(team, agents(run, series, r), sums);
  };
  const sum = async () => {
    const [team, replies] = await Promise.all(["team", "replies"].map((part) => get(`runs/${r}/${part}`)));
    fill(short, brief(team, replies, run.seats, r));
    fill(sums, weak(team, replies, run.seats, r), said(replies, run.seats, r));
  };
  /** @param {string} title of a section */
  const about = (title) => {
    const parts = Object.keys(series.columns).flatMap((name) => name.match(/^rollout\/reward\/(.+)$/)?.[1] ?? []);
    const policies = run.plan?.summary?.policies ?? [];
    if (title === "Quality") return `Reward: the score of the environment${parts.length > 0 ? `, and reward parts of single agents or turns (${parts.join(", ")})` : ""}. Unscored: episodes that a fault ended. `;
    return title === "Learning" && policies.map((/** @type {any} */ of) => `Policy ${of.name} generates the replies of ${of.agents.join(", ")}. `).join("");
  };
  const build = () => {
    for (const chart of charts.values()) chart.remove();
    charts = new Map();
    const found = sections(series, run).filter((section) => section.charts.length);
    const made = found.map((section, i) => h("section", {},
      i === 0 ? h("div", { class: "bar section" }, h("h2", {}, section.title), muted("click a step: what changed there"), h("span", { class: "end" }, switches())) : h("h2", {}, section.title),
      h("div", { class: "charts" }, section.charts.map((spec) => {
        const chart = new Chart({ ...spec, lines: lines(series, spec), onstep });
        charts.set(spec.title, chart);
        return chart.element;
      })),
      remark(about(section.title), section.zero.length > 0 && `0 in every step: ${section.zero.join(", ")}.`)));
    const [quality, ...others] = made;
    fill(body, quality, team, ...others);
    if (!quality) fill(body, team);
  };
  fill(root, head, short, cards, body);
  draw();
  build();
  await sum();
  return {
    title: run.run.name,
    heard: async (/** @type {string} */ kind, /** @type {any} */ data) => {
      if (data.r !== run.run.r) return;
      const from = kind === "rows" ? (series.steps.at(-1) ?? 0) : 0;
      const [newRun, news] = await Promise.all([get(`runs/${r}`), kind === "run" ? null : seriesOf(r, from)]);
      const ended = JSON.stringify(newRun.after) !== JSON.stringify(run.after);
      run = newRun;
      if (news) series = kind === "reset" ? news : joined(series, news);
      if (news || ended) {
        const specs = sections(series, run).flatMap((section) => section.charts);
        if (specs.length !== charts.size || kind === "reset") build();
        for (const spec of specs) charts.get(spec.title)?.update(lines(series, spec));
      }
      draw();
      await sum();
    },
  };
}
