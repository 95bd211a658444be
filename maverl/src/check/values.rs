//! Numbers that have the right type and cannot be meant.

use super::diagnostic::{Problems, key, path, within};
use crate::config::settings::{Bound, Numbers, OutOfRange, Range, Settings};
use crate::config::{
    AgentConfig, AlgorithmPlan, Config, LoraConfig, LoraPlan, LossPlan, OptimPlan, Sampling,
    SamplingConfig, TargetModules,
};
use crate::model::ChatInput;

const FINITE: Range = Range { from: None, to: None, whole: false };
const NOT_NEGATIVE: Range = Range { from: Some(Bound { value: 0.0, included: true }), ..FINITE };
const POSITIVE: Range = Range { from: Some(Bound { value: 0.0, included: false }), ..FINITE };
const SHARE: Range = Range { to: Some(Bound { value: 1.0, included: true }), ..NOT_NEGATIVE };

/// Largest number of threads.
const THREADS: usize = 1024;

/// Reports every number out of its range.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) {
    sampling(&config.sampling, &path(["sampling"]), problems);
    ranges::<AlgorithmPlan>(&config.algorithm, &path(["algorithm"]), problems);
    let critic = &config.algorithm.critic;
    lora(&critic.lora, &path(["algorithm", "critic", "lora"]), problems);
    for (name, model) in &config.models {
        label_name(name, &path(["models", name]), problems);
        ranges::<OptimPlan>(&model.optim, &path(["models", name, "optim"]), problems);
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
        number(problems, &table, "weight", &reward.weight, FINITE);
    }
    if config.runtime.threads > THREADS {
        let (path, found) = (path(["runtime", "threads"]), config.runtime.threads);
        let name = key(&path);
        let message = format!(
            "`{name}` is {found}; expected a whole number from 0 (one per core) to {THREADS}"
        );
        problems.value(&path, message, None);
    }
    let rollout = path(["rollout"]);
    number(problems, &rollout, "timeout_s", &config.rollout.timeout_s, POSITIVE);
    number(problems, &rollout, "max_unscored", &config.rollout.max_unscored, SHARE);
    if let Some(temperature) = &config.eval.temperature {
        number(problems, &path(["eval"]), "temperature", temperature, NOT_NEGATIVE);
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
        ranges::<LossPlan>(config, &within(table, "loss"), problems);
    }
    if let Some(config) = &config.optim {
        ranges::<OptimPlan>(config, &within(table, "optim"), problems);
    }
    for (number, config) in &config.seats {
        agent(config, &within(&within(table, "seats"), &number.to_string()), problems);
    }
}

fn sampling(config: &SamplingConfig, table: &[String], problems: &mut Problems<'_>) {
    ranges::<Sampling>(config, table, problems);
    if config.stop.iter().flatten().any(String::is_empty) {
        let path = within(table, "stop");
        let message =
            format!("`{}` holds an empty text, which ends every reply at once", key(&path));
        problems.value(&path, message, "remove it".to_owned());
    }
}

fn lora(config: &LoraConfig, table: &[String], problems: &mut Problems<'_>) {
    ranges::<LoraPlan>(config, table, problems);
    if config.target_modules == Some(TargetModules::Named(Vec::new())) {
        let path = within(table, "target_modules");
        let message = format!("`{}` names no module", key(&path));
        problems.value(&path, message, "remove it: all linear maps are corrected".to_owned());
    }
}

/// Reports numbers of a table of settings that are out of the declared ranges.
fn ranges<S: Settings>(written: &S::Partial, table: &[String], problems: &mut Problems<'_>) {
    for wrong in S::out_of_range(written) {
        report(&wrong, table, problems);
    }
}

/// Reports a number that is out of a range.
fn number<N: Numbers>(
    problems: &mut Problems<'_>,
    table: &[String],
    name: &'static str,
    value: &N,
    range: Range,
) {
    for wrong in range.check(name, value) {
        report(&wrong, table, problems);
    }
}

fn report(wrong: &OutOfRange, table: &[String], problems: &mut Problems<'_>) {
    let path = wrong.key.iter().fold(table.to_vec(), |table, part| within(&table, part));
    let OutOfRange { found, expected, several, .. } = wrong;
    let verb = if *several { "holds" } else { "is" };
    problems.value(&path, format!("`{}` {verb} {found}; expected {expected}", key(&path)), None);
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
