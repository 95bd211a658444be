//! Numbers that have the right type and cannot be meant.

use std::fmt::{Debug, Display};

use super::diagnostic::{Problems, key, path, within};
use crate::config::{
    AgentConfig, AlgorithmConfig, Config, CriticConfig, InfluenceConfig, LoraConfig, LossConfig,
    OptimConfig, SamplingConfig, TargetModules,
};
use crate::model::ChatInput;
use crate::model::lora::MAX_RANK;

/// A range of numbers, in words.
#[derive(Clone, Copy)]
struct Range {
    holds: fn(f64) -> bool,
    words: &'static str,
}

const FINITE: Range = Range { holds: |x| x.is_finite(), words: "a finite number" };
const NOT_NEGATIVE: Range =
    Range { holds: |x| x.is_finite() && x >= 0.0, words: "a finite number from 0" };
const POSITIVE: Range =
    Range { holds: |x| x.is_finite() && x > 0.0, words: "a finite number above 0" };
const SHARE: Range = Range { holds: |x| (0.0..=1.0).contains(&x), words: "a number from 0 to 1" };
const ABOVE_0_TO_1: Range =
    Range { holds: |x| x > 0.0 && x <= 1.0, words: "a number above 0 and at most 1" };
const DECAY: Range =
    Range { holds: |x| (0.0..1.0).contains(&x), words: "numbers from 0 to below 1" };
const DROPPED: Range =
    Range { holds: |x| (0.0..1.0).contains(&x), words: "a number from 0 to below 1" };
const BELOW_HALF: Range =
    Range { holds: |x| (0.0..0.5).contains(&x), words: "a number from 0 to below 0.5" };
const RANK: Range =
    Range { holds: |x| x <= MAX_RANK as f64, words: "a whole number from 1 to 65536" };
const THREADS: Range =
    Range { holds: |x| x <= 1024.0, words: "a whole number from 0 (one per core) to 1024" };
const ABOVE_1: Range =
    Range { holds: |x| x.is_finite() && x > 1.0, words: "a finite number above 1" };

/// Reports every number out of its range.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) {
    sampling(&config.sampling, &path(["sampling"]), problems);
    loss(&config.algorithm.loss, &path(["algorithm", "loss"]), problems);
    algorithm(&config.algorithm, &path(["algorithm"]), problems);
    for (name, model) in &config.models {
        label_name(name, &path(["models", name]), problems);
        optim(&model.optim, &path(["models", name, "optim"]), problems);
        if let Some(config) = &model.lora {
            lora(config, &path(["models", name, "lora"]), problems);
        }
        let kwargs = model.chat_template_kwargs.keys();
        for kwarg in kwargs.filter(|kwarg| ChatInput::VARIABLES.contains(&kwarg.as_str())) {
            let path = path(["models", name, "chat_template_kwargs", kwarg]);
            let message = format!("`{}` is what a conversation itself gives", key(&path));
            problems.key(&path, message, "remove it".to_owned());
        }
    }
    for (name, config) in &config.agents {
        agent(config, &path(["agents", name]), problems);
    }
    for (name, reward) in &config.rewards {
        let table = path(["rewards", name]);
        number(problems, &table, "weight", Some(reward.weight), FINITE);
    }
    let threads = u32::try_from(config.runtime.threads).unwrap_or(u32::MAX);
    number(problems, &path(["runtime"]), "threads", Some(threads), THREADS);
    let rollout = path(["rollout"]);
    number(problems, &rollout, "timeout_s", Some(config.rollout.timeout_s), POSITIVE);
    number(problems, &rollout, "max_unscored", Some(config.rollout.max_unscored), SHARE);
    number(problems, &path(["eval"]), "temperature", config.eval.temperature, NOT_NEGATIVE);
}

fn algorithm(config: &AlgorithmConfig, table: &[String], problems: &mut Problems<'_>) {
    number(problems, table, "advantage_eps", config.advantage_eps, NOT_NEGATIVE);
    number(problems, table, "anchor_weight", config.anchor_weight, NOT_NEGATIVE);
    number(problems, table, "discount", config.discount, SHARE);
    number(problems, table, "early_stop_kl", config.early_stop_kl, NOT_NEGATIVE);
    number(problems, table, "anchor_similarity", config.anchor_similarity, ABOVE_0_TO_1);
    number(problems, table, "baseline_momentum", config.baseline_momentum, DROPPED);
    number(problems, table, "shaping_weight", config.shaping_weight, NOT_NEGATIVE);
    let adaptive = within(table, "adaptive_kl");
    number(problems, &adaptive, "target", config.adaptive_kl.target, NOT_NEGATIVE);
    number(problems, &adaptive, "horizon", config.adaptive_kl.horizon, POSITIVE);
    number(problems, table, "observation_weight", config.observation_weight, SHARE);
    number(problems, &within(table, "happo"), "clip", config.happo.clip, SHARE);
    number(problems, table, "future_discount", config.future_discount, SHARE);
    let InfluenceConfig { follow, resist, provoke, persuade } = config.influence;
    let weights =
        [("follow", follow), ("resist", resist), ("provoke", provoke), ("persuade", persuade)];
    for (name, weight) in weights {
        number(problems, &within(table, "influence"), name, weight, NOT_NEGATIVE);
    }
    critic(&config.critic, &within(table, "critic"), problems);
    let (preference, table) = (&config.preference, &within(table, "preference"));
    number(problems, table, "beta", preference.beta, POSITIVE);
    number(problems, table, "label_smoothing", preference.label_smoothing, BELOW_HALF);
}

fn critic(config: &CriticConfig, table: &[String], problems: &mut Problems<'_>) {
    number(problems, table, "gamma", config.gamma, SHARE);
    number(problems, table, "lambda", config.lambda, SHARE);
    number(problems, table, "clip", config.clip, NOT_NEGATIVE);
    number(problems, table, "huber", config.huber, NOT_NEGATIVE);
    number(problems, table, "value_coef", config.value_coef, NOT_NEGATIVE);
    optim(&config.optim, &within(table, "optim"), problems);
    if let Some(config) = &config.lora {
        lora(config, &within(table, "lora"), problems);
    }
}

fn agent(config: &AgentConfig, table: &[String], problems: &mut Problems<'_>) {
    if let Some(worker) = &config.worker_group {
        label_name(worker, &within(table, "worker_group"), problems);
    }
    if let Some(adapter) = &config.adapter {
        label_name(adapter, &within(table, "adapter"), problems);
    }
    if let Some(config) = &config.lora {
        lora(config, &within(table, "lora"), problems);
    }
    if let Some(config) = &config.sampling {
        sampling(config, &within(table, "sampling"), problems);
    }
    if let Some(config) = &config.loss {
        loss(config, &within(table, "loss"), problems);
    }
    if let Some(config) = &config.optim {
        optim(config, &within(table, "optim"), problems);
    }
    for (number, config) in &config.seats {
        agent(config, &within(&within(table, "seats"), &number.to_string()), problems);
    }
}

fn sampling(config: &SamplingConfig, table: &[String], problems: &mut Problems<'_>) {
    number(problems, table, "temperature", config.temperature, NOT_NEGATIVE);
    number(problems, table, "top_p", config.top_p, ABOVE_0_TO_1);
    number(problems, table, "min_p", config.min_p, SHARE);
    number(problems, table, "repetition_penalty", config.repetition_penalty, POSITIVE);
    if config.stop.iter().flatten().any(String::is_empty) {
        let path = within(table, "stop");
        let message =
            format!("`{}` holds an empty text, which ends every reply at once", key(&path));
        problems.value(&path, message, "remove it".to_owned());
    }
}

fn loss(config: &LossConfig, table: &[String], problems: &mut Problems<'_>) {
    number(problems, table, "gate", config.gate.map(|gate| gate.0), POSITIVE);
    number(problems, table, "gate", config.gate.map(|gate| gate.1), POSITIVE);
    number(problems, table, "clip_low", config.clip_low, ABOVE_0_TO_1);
    number(problems, table, "clip_high", config.clip_high, POSITIVE);
    number(problems, table, "clip_dual", config.clip_dual, ABOVE_1);
    number(problems, table, "correction_cap", config.correction_cap, ABOVE_1);
    number(problems, table, "kl_coef", config.kl_coef, NOT_NEGATIVE);
    number(problems, table, "drift_coef", config.drift_coef, NOT_NEGATIVE);
    number(problems, table, "entropy_coef", config.entropy_coef, NOT_NEGATIVE);
    number(problems, table, "invalid_reply_penalty", config.invalid_reply_penalty, NOT_NEGATIVE);
    number(problems, table, "overlong_buffer", config.overlong_buffer, SHARE);
    number(problems, table, "overlong_penalty", config.overlong_penalty, NOT_NEGATIVE);
}

fn optim(config: &OptimConfig, table: &[String], problems: &mut Problems<'_>) {
    number(problems, table, "lr", config.lr, POSITIVE);
    number(problems, table, "betas", config.betas.map(|betas| betas.0), DECAY);
    number(problems, table, "betas", config.betas.map(|betas| betas.1), DECAY);
    number(problems, table, "eps", config.eps, POSITIVE);
    number(problems, table, "weight_decay", config.weight_decay, NOT_NEGATIVE);
    number(problems, table, "grad_clip", config.grad_clip, POSITIVE);
}

fn lora(config: &LoraConfig, table: &[String], problems: &mut Problems<'_>) {
    let rank = config.rank.map(|rank| rank.get() as f64);
    number(problems, table, "rank", rank, RANK);
    number(problems, table, "alpha", config.alpha, POSITIVE);
    number(problems, table, "dropout", config.dropout, DROPPED);
    if config.target_modules == Some(TargetModules::Named(Vec::new())) {
        let path = within(table, "target_modules");
        let message = format!("`{}` names no module", key(&path));
        problems.value(&path, message, "remove it: all linear maps are corrected".to_owned());
    }
}

fn number<T: Into<f64> + Debug + Display + Copy>(
    problems: &mut Problems<'_>,
    table: &[String],
    name: &str,
    value: Option<T>,
    range: Range,
) {
    if let Some(value) = value.filter(|&value| !(range.holds)(value.into())) {
        let path = within(table, name);
        // 1e-6 rather than 0.000001, and 1 rather than 1.0.
        let small = value.into() != 0.0 && value.into().abs() < 1e-4;
        let value = if small { format!("{value:?}") } else { value.to_string() };
        let verb = if matches!(name, "betas" | "gate") { "holds" } else { "is" };
        let message = format!("`{}` {verb} {value}; expected {}", key(&path), range.words);
        problems.value(&path, message, None);
    }
}

/// Names of models, workers and adapters are names of metrics and directories too.
fn label_name(name: &str, path: &[String], problems: &mut Problems<'_>) {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        let message = format!("{name:?} cannot name a model, worker or adapter");
        let help = "it becomes the name of metrics and of a directory: use letters, digits, `_`, `-` and `.`";
        problems.value(path, message, help.to_owned());
    }
}
