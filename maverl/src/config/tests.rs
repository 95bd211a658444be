#![allow(clippy::unwrap_used)]

use super::*;
use crate::check::tables;
use crate::plan::{AlgorithmPlan, LossPlan, OptimPlan, Sampling};

/// The reference, as readers see it.
fn reference() -> String {
    let page = include_str!("../../../docs/src/config.md");
    let (_, block) = page.split_once("```toml\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// The reference with its examples: a `#` at the start of a line that no space follows is taken away.
fn with_examples() -> String {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    reference().lines().map(uncomment).collect()
}

fn defaults() -> Config {
    let algorithm = AlgorithmPlan::from(&AlgorithmConfig::default());
    let tiny = ModelConfig {
        path: "builtin:tiny".to_owned(),
        optim: OptimConfig::from(&OptimPlan::default()),
        frozen: false,
        dtype: Dtype::F32,
        gradient_checkpointing: false,
        lora: None,
        adapter: None,
        chat_template_kwargs: serde_json::Map::new(),
    };
    Config {
        sampling: SamplingConfig::from(&Sampling::default()),
        models: BTreeMap::from([("tiny".to_owned(), tiny)]),
        algorithm: algorithm.written(&LossPlan::default()),
        ..Config::default()
    }
}

#[test]
fn the_reference_is_exactly_the_defaults() {
    assert_eq!(toml::from_str::<Config>(&reference()).unwrap(), defaults());
}

#[test]
fn the_reference_with_its_examples_has_every_key_and_no_other() {
    toml::from_str::<Config>(&with_examples()).unwrap();
    let all: toml::Table = with_examples().parse().unwrap();
    let paths: [&[&str]; 22] = [
        &[],
        &["task"],
        &["task", "mixture", "quiz"],
        &["sampling"],
        &["models", "tiny"],
        &["models", "tiny", "optim"],
        &["models", "tiny", "lora"],
        &["endpoints", "expert"],
        &["agents", "search/verifier"],
        &["algorithm"],
        &["algorithm", "loss"],
        &["algorithm", "adaptive_kl"],
        &["algorithm", "reference"],
        &["algorithm", "happo"],
        &["algorithm", "influence"],
        &["algorithm", "preference"],
        &["algorithm", "critic"],
        &["rewards", "brevity"],
        &["rollout"],
        &["eval"],
        &["checkpoint"],
        &["runtime"],
    ];
    for ((name, keys), path) in tables().iter().zip(paths) {
        let table = path.iter().fold(&all, |table, key| table[*key].as_table().unwrap());
        let mut found: Vec<&str> = table.keys().map(String::as_str).collect();
        let mut keys = keys.to_vec();
        found.sort_unstable();
        keys.sort_unstable();
        assert_eq!(found, keys, "{name}");
    }
    for named in ["orchestra", "environment"] {
        assert!(all[named].as_table().unwrap().contains_key("name"));
    }
}

#[test]
fn every_key_of_the_reference_has_a_level() {
    for line in reference().lines().filter(|line| line.contains(" = ")) {
        let (_, comment) = line.trim_start_matches('#').split_once('#').unwrap();
        let level = comment.trim_start().split(':').next().unwrap();
        assert!(["row", "policy", "step", "run"].contains(&level), "{line}");
    }
}

#[test]
fn sections_of_the_reference_are_in_the_order_of_a_run() {
    let order = [
        "task",
        "orchestra",
        "environment",
        "environments",
        "sampling",
        "models",
        "endpoints",
        "agents",
        "algorithm",
        "rewards",
        "rollout",
        "eval",
        "checkpoint",
        "runtime",
    ];
    let mut sections: Vec<String> = with_examples()
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split(['.', ']']).next().map(str::to_owned))
        .collect();
    sections.dedup();
    assert_eq!(sections, order);
}

#[test]
fn what_is_left_out_is_inherited() {
    let base = SamplingConfig { temperature: Some(0.5), top_k: Some(3), ..Default::default() };
    let over = SamplingConfig { top_k: Some(0), ..Default::default() };
    let expected = SamplingConfig { temperature: Some(0.5), top_k: Some(0), ..Default::default() };
    assert_eq!(over.over(&base), expected);
}
