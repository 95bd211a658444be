// Configuration, plan and provenance.

import { h, fill, num, td, sheet, table } from "./dom.js";
import { get } from "./data.js";
import { count } from "./format.js";
import { graph, mib } from "./plan.js";

/**
 * @param {string[]} heads
 * @param {(any)[][]} rows
 * @param {number} numbers columns from this one on are numbers
 */
function list(heads, rows, numbers) {
  return sheet(table(heads, rows.map((row) => h("tr", {}, row.map((value, i) => (i >= numbers ? num(value) : td(value))))), numbers));
}

/**
 * @param {HTMLElement} root
 * @param {any} at
 * @returns {Promise<any>}
 */
export async function page(root, at) {
  const [run, config] = await Promise.all([get(`runs/${at.run}`), get(`runs/${at.run}/config`)]);
  const { plan, provenance } = run;
  const text = h("pre", { class: "text" }, config.given || config.resolved);
  const show = (/** @type {string} */ which) => () => fill(text, config[which] || "(the run has no such text)");
  const summary = plan?.summary;
  fill(root,
    h("h1", {}, `Configuration of ${run.run.name}`),
    summary && [
      h("h2", {}, "Plan"),
      graph(plan),
      h("h2", {}, "Seats"),
      list(["agent", "policy", "trained", "temperature", "max tokens"],
        [...summary.seats.map((/** @type {any} */ seat) => [h("b", {}, seat.seat), seat.policy, seat.trained ? "yes" : "no", seat.temperature, count(seat.max_tokens)]),
          ...plan.endpoints.map((/** @type {any} */ of) => [h("b", {}, of.seat), `endpoint ${of.endpoint}`, "no", "", ""])], 3),
      h("h2", {}, "Policies and worker groups"),
      list(["policy", "worker group", "agents", "trained", "parameters", "own bytes"],
        summary.policies.map((/** @type {any} */ of) => [h("b", {}, of.name), of.worker, of.agents.join(", "), of.trained ? "yes" : "no", count(of.parameters), mib(of.bytes)]), 4),
      list(["worker group", "model", "from", "weights", "gradients", "moments", "activations", "KV cache"],
        summary.workers.map((/** @type {any} */ of) => [h("b", {}, of.name), of.model, of.path, mib(of.weight_bytes), mib(of.gradient_bytes), mib(of.moment_bytes), mib(of.activation_bytes), mib(of.kv_bytes)]), 3),
    ],
    h("h2", {}, "Provenance"),
    provenance && h("dl", { class: "facts card" },
      [["maverl", provenance.version], ["device", `${provenance.device}, ${provenance.threads} threads`],
        ...Object.entries(provenance.weights).map(([name, hash]) => [`weights of ${name}`, hash]),
        ...Object.entries(provenance.data).map(([name, hash]) => [`tasks: ${name}`, hash])]
        .flatMap(([name, value]) => [h("dt", {}, name), h("dd", { class: "mono" }, /** @type {string} */ (value))])),
    h("div", { class: "bar" }, h("h2", {}, "Configuration"), h("button", { onclick: show("given") }, "as given"), h("button", { onclick: show("resolved") }, "with every default")),
    text);
  return { title: `Configuration of ${run.run.name}` };
}
