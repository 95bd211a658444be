#![allow(clippy::unwrap_used)]

use std::num::{NonZeroU32, NonZeroUsize};

use super::*;
use crate::algo::testing::plan;
use crate::config::LoraSpec;
use crate::files::HfConfig;
use crate::plan::{AdapterPlan, DeviceModel, RanksSummary, activation_bytes, model_units};

const QWEN_32B: &str = include_str!("qwen2.5-32b.json");
const LLAMA_70B: &str = include_str!("llama-3.1-70b.json");
/// A micro-batch.
const MICRO: usize = 4096;

/// Returns a plan of one policy on a model, whose step has 64 tasks with so many tokens each.
fn large(config: &str, shard: Shard, tokens: usize) -> Plan {
    let shape = HfConfig::parse(config.as_bytes()).unwrap();
    let mut plan = plan(&[("t/one", true)]);
    plan.workers[0].parameters = model_units(&shape).parameters() as u64;
    plan.workers[0].units = model_units(&shape);
    plan.workers[0].layer_pass_bytes =
        activation_bytes(&shape, MICRO, MICRO, true, crate::config::Dtype::Bf16.into())
            - 4 * ((shape.layers.len() - 1) * MICRO * shape.hidden_size) as u64;
    plan.policies[0].gradient_checkpointing = true;
    plan.seats[0].sampling.max_tokens = 1024;
    plan.config = plan.config.with(|config| {
        config.dist.shard = shard;
        config.task.tasks_per_step = NonZeroUsize::new(64).unwrap();
        config.task.group_size = NonZeroU32::new(tokens as u32 / 1024).unwrap();
    });
    plan
}

/// Returns the numbers of 64 ranks, 8 a machine.
fn on_h100(plan: &Plan) -> RanksSummary {
    RanksSummary::new(plan, &Placement::new(64, DeviceModel::find("h100-80gb")))
}

fn group(plan: &Plan) -> ShardedGroup {
    on_h100(plan).sharding.unwrap().groups.remove(0)
}

/// Returns gigabytes with one decimal.
fn decimals<const N: usize>(bytes: [u64; N]) -> [String; N] {
    bytes.map(|bytes| format!("{:.1}", bytes as f64 / GB))
}

/// Returns whole gigabytes within a machine and across.
fn whole(of: &SentBytes) -> [u64; 2] {
    [of.machine, of.across].map(|bytes| (bytes as f64 / GB).round() as u64)
}

#[test]
fn a_model_of_32_billion_parameters_takes_and_sends_what_its_config_json_says() {
    let plan = large(QWEN_32B, Shard::Full, 16_384);
    let found = group(&plan);
    assert_eq!(found.parameters / 1_000_000, 32_763);
    assert_eq!(plan.workers[0].units.largest() / 100_000, 4876);
    let buffers = found.layer_bytes + found.sum_bytes;
    let memory = [found.shard_bytes, buffers, found.kept_bytes, found.copy_bytes];
    assert_eq!(decimals(memory), ["8.2", "5.9", "22.5", "65.5"]);
    assert_eq!(decimals([found.rollout_shard_bytes]), ["6.1"]);
    assert_eq!((found.kept_tokens, found.exchanges), (16_384, 202));
    assert_eq!(whole(&found.step), [225, 31]);
    assert_eq!([found.step.machine_s, found.step.across_s].map(amount), ["0.5", "0.6"]);
    assert_eq!((whole(&found.copy), whole(&found.layers)), ([57, 7], [57, 7]));
    let seconds = [found.layers.machine_s, found.layers.across_s];
    assert_eq!(seconds.map(|seconds| format!("{seconds:.2}")), ["0.13", "0.14"]);
    // Without division, a rank has 16 bytes a parameter.
    let whole_model = on_h100(&large(QWEN_32B, Shard::None, 16_384));
    let states = whole_model.weight_bytes + whole_model.gradient_bytes + whole_model.moment_bytes;
    assert_eq!(states / 1_000_000_000, 524);
}

#[test]
fn a_model_of_70_billion_parameters_takes_and_sends_what_its_config_json_says() {
    let plan = large(LLAMA_70B, Shard::Full, 8192);
    let found = group(&plan);
    assert_eq!(found.parameters / 1_000_000, 70_553);
    assert_eq!(plan.workers[0].units.largest() / 100_000, 8556);
    let buffers = found.layer_bytes + found.sum_bytes;
    let memory = [found.shard_bytes, buffers, found.kept_bytes, found.copy_bytes];
    assert_eq!(decimals(memory), ["17.6", "10.3", "22.3", "141.1"]);
    assert_eq!(whole(&found.step), [488, 66]);
    assert_eq!([found.step.machine_s, found.step.across_s].map(amount), ["1.1", "1.3"]);
    assert_eq!((found.rollout, whole(&found.layers)), ("layers", [123, 15]));
    let seconds = [found.layers.machine_s, found.layers.across_s];
    assert_eq!(seconds.map(|seconds| format!("{seconds:.1}")), ["0.3", "0.3"]);
}

#[test]
fn hybrid_has_the_weights_of_a_machine_and_gathers_within_it() {
    let found = group(&large(LLAMA_70B, Shard::Hybrid, 8192));
    assert_eq!(decimals([found.shard_bytes]), ["33.1"]);
    // Sums, new weights and rows of the embedding go across.
    assert_eq!(whole(&found.step), [488, 51]);
    assert_eq!(whole(&found.layers), [123, 0]);
    assert_eq!(amount(found.step.across_s), "1.0");
}

#[test]
fn a_base_under_an_adapter_is_divided_and_has_no_sums() {
    for (config, shard, share) in [
        (QWEN_32B, Shard::Full, "1.0"),
        (LLAMA_70B, Shard::Full, "2.2"),
        (LLAMA_70B, Shard::Hybrid, "17.6"),
    ] {
        let lora = LoraSpec::default().on(&HfConfig::parse(config.as_bytes()).unwrap());
        let mut plan = large(config, shard, 8192);
        plan.policies[0].adapter = Some(AdapterPlan { parameters: 640_000, lora, start: None });
        let found = group(&plan);
        assert_eq!(decimals([found.shard_bytes]), [share]);
        let sums = 8 * 640_000_u64.div_ceil(plan.workers[0].units.layers.len() as u64);
        assert_eq!(found.sum_bytes, sums);
        assert!(found.step.machine < found.copy.machine * 4, "{found:?}");
    }
}

#[test]
fn the_lines_of_a_plan_have_memory_rollout_and_messages() {
    let text = on_h100(&large(QWEN_32B, Shard::Full, 16_384)).text(120);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "dist.shard = \"full\", 8 ranks a machine",
        "of 85.9 GB in updates: shard 8.2, two layers 2.0, their sums 3.9, kept inputs 22.5 (16,384 tokens)",
        "rollout: copy, 65.5 + 6.1 of shards",
        "225, 31 GB an optimizer step (0.5, 0.6 s), 57, 7.2 GB a copy",
        "202 exchanges and ",
        "warning: this version plans with `dist.shard = \"full\"`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let none = on_h100(&large(QWEN_32B, Shard::None, 16_384)).text(120);
    assert!(!none.contains("dist.shard = ") && none.contains("\ngradients "), "{none}");
}

#[test]
fn what_does_not_fit_is_named_with_what_does() {
    let warnings = |shard, tokens, change: fn(&mut crate::config::Config), ranks| {
        let mut plan = large(LLAMA_70B, shard, tokens);
        plan.config = plan.config.with(change);
        let at = Placement::new(ranks, DeviceModel::find("h100-80gb"));
        RanksSummary::new(&plan, &at).warnings.join("\n")
    };
    let found = warnings(Shard::Full, 8192, |it| it.dist.rollout = RolloutWeights::Copy, 64);
    for part in [
        "`dist.rollout` is \"copy\": `t/one` needs 141.1 GB beside 13.2 of shards",
        "h100-80gb has 85.9; \"layers\" needs 3.4 and takes 0.6 s a pass for its exchanges, or name `rollout_servers`",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let stale = |it: &mut crate::config::Config| {
        (it.dist.rollout, it.rollout.staleness) = (RolloutWeights::Layers, 1);
    };
    let found = warnings(Shard::Full, 8192, stale, 64);
    let part = "`dist.rollout` is \"layers\" and rollouts use older weights: they need a copy (141.1 GB; h100-80gb has 72.7) or \
                `rollout_servers`";
    assert!(found.contains(part), "{found}");
    let found = warnings(Shard::Full, 65_536, |_| (), 64);
    let part = "kept inputs of 65,536 tokens a rank need 178.2 GB: set dist.round = 4 (44.6 GB; each round after the first sends";
    assert!(found.contains(part), "{found}");
    let found = warnings(Shard::Full, 65_536, |it| it.dist.round = 4, 64);
    assert!(!found.contains("kept inputs"), "{found}");
    let found = warnings(Shard::Hybrid, 8192, |_| (), 15);
    let part = "`dist.shard` is \"hybrid\": node-1 has 7 ranks and node-0 has 8; every machine needs as many, numbered machine by machine";
    assert!(found.contains(part), "{found}");
}

#[test]
fn half_a_billion_parameters_on_four_ranks_of_one_machine_send_as_stated() {
    let config = QWEN_32B
        .replace("\"hidden_size\": 5120", "\"hidden_size\": 896")
        .replace("\"intermediate_size\": 27648", "\"intermediate_size\": 4864")
        .replace("\"num_attention_heads\": 40", "\"num_attention_heads\": 14")
        .replace("\"num_hidden_layers\": 64", "\"num_hidden_layers\": 24")
        .replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 2")
        .replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true")
        .replace("\"vocab_size\": 152064", "\"vocab_size\": 151936");
    let mut plan = large(&config, Shard::Full, 1024);
    plan.config = plan.config.with(|it| it.task.tasks_per_step = NonZeroUsize::new(16).unwrap());
    let found = RanksSummary::new(&plan, &Placement::new(4, None).with_local(4));
    let found = found.sharding.unwrap().groups.remove(0);
    assert_eq!((found.parameters / 1_000_000, plan.workers[0].units.slices().len()), (494, 10));
    let buffers = found.layer_bytes + found.sum_bytes;
    let memory = [found.shard_bytes, buffers, found.kept_bytes];
    let memory = memory.map(|bytes| format!("{:.2}", bytes as f64 / GB));
    // On CPUs the embedding is gathered and summed whole, and log-probs are computed with the copy.
    assert_eq!(memory, ["1.98", "1.27", "0.40"]);
    assert_eq!((amount(found.step.machine as f64 / GB), found.step.across), ("4.9".to_owned(), 0));
    assert_eq!((found.whole_tables, found.log_probs.machine), (true, 0));
    let trained = RanksSummary::new(&plan, &Placement::new(4, None).with_local(4)).warnings;
    assert!(!trained.iter().any(|warning| warning.contains("does not train")), "{trained:?}");
    assert_eq!(decimals([found.copy_bytes]), ["2.0"]);
}
