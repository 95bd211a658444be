//! Numbers that have the right type and cannot be meant.

use super::names::{key, path, path_within};
use super::problems::Problems;
use crate::config::{AgentConfig, Config, LoraConfig, ModelConfig, SamplingConfig, TargetModules};
use crate::settings::{OutOfRange, Table};
use crate::text::ChatInput;

/// Reports every number out of its range.
pub(super) fn check(config: &Config, problems: &mut Problems<'_>) {
    ranges(&config.task, &path(["task"]), problems);
    for (name, component) in &config.task.mixture {
        ranges(component, &path(["task", "mixture", name]), problems);
    }
    sampling(&config.sampling, &path(["sampling"]), problems);
    for (name, config) in &config.models {
        model(name, config, problems);
    }
    for (name, config) in &config.endpoints {
        ranges(config, &path(["endpoints", name]), problems);
    }
    for (name, config) in &config.rollout_servers {
        ranges(config, &path(["rollout_servers", name]), problems);
    }
    for (name, config) in &config.teachers {
        ranges(config, &path(["teachers", name]), problems);
    }
    for (name, config) in &config.agents {
        agent(config, &path(["agents", name]), problems);
    }
    ranges(&config.algorithm, &path(["algorithm"]), problems);
    for (name, config) in &config.rewards {
        let table = path(["rewards", name]);
        ranges(config, &table, problems);
        ranges(&config.server, &path_within(&table, "server"), problems);
        ranges(&config.judge, &path_within(&table, "judge"), problems);
        ranges(&config.python, &path_within(&table, "python"), problems);
        ranges(&config.usage, &path_within(&table, "usage"), problems);
    }
    ranges(&config.rollout, &path(["rollout"]), problems);
    ranges(&config.rollout.branch, &path(["rollout", "branch"]), problems);
    ranges(&config.eval, &path(["eval"]), problems);
    ranges(&config.runtime, &path(["runtime"]), problems);
    ranges(&config.dist, &path(["dist"]), problems);
}

fn model(name: &str, model: &ModelConfig, problems: &mut Problems<'_>) {
    let table = path(["models", name]);
    label_name(name, &table, problems);
    ranges(&model.optim, &path_within(&table, "optim"), problems);
    if let Some(config) = &model.loss_scale {
        ranges(config, &path_within(&table, "loss_scale"), problems);
    }
    if let Some(config) = &model.lora {
        lora(config, &path_within(&table, "lora"), problems);
    }
    let kwargs = model.chat_template_kwargs.keys();
    for kwarg in kwargs.filter(|kwarg| ChatInput::VARIABLES.contains(&kwarg.as_str())) {
        let path = path_within(&path_within(&table, "chat_template_kwargs"), kwarg);
        let message = format!("`{}` is what a conversation itself gives", key(&path));
        problems.key(&path, message, "remove it".to_owned());
    }
}

fn agent(config: &AgentConfig, table: &[String], problems: &mut Problems<'_>) {
    if let Some(worker) = &config.worker_group {
        label_name(worker, &path_within(table, "worker_group"), problems);
    }
    if let Some(adapter) = &config.adapter {
        label_name(adapter, &path_within(table, "adapter"), problems);
    }
    if let Some(config) = &config.lora {
        lora(config, &path_within(table, "lora"), problems);
    }
    if let Some(config) = &config.sampling {
        sampling(config, &path_within(table, "sampling"), problems);
    }
    if let Some(config) = &config.loss {
        ranges(config, &path_within(table, "loss"), problems);
    }
    if let Some(config) = &config.optim {
        ranges(config, &path_within(table, "optim"), problems);
    }
    for (number, config) in &config.seats {
        agent(config, &path_within(&path_within(table, "seats"), &number.to_string()), problems);
    }
}

fn sampling(config: &SamplingConfig, table: &[String], problems: &mut Problems<'_>) {
    ranges(config, table, problems);
    if config.stop.iter().flatten().any(String::is_empty) {
        let path = path_within(table, "stop");
        let message =
            format!("`{}` holds an empty text, which ends every reply at once", key(&path));
        problems.value(&path, message, "remove it".to_owned());
    }
}

fn lora(config: &LoraConfig, table: &[String], problems: &mut Problems<'_>) {
    ranges(config, table, problems);
    empty_modules(config, table, problems);
}

/// Reports an empty list of modules.
pub(crate) fn empty_modules(config: &LoraConfig, table: &[String], problems: &mut Problems<'_>) {
    if config.target_modules == Some(TargetModules::Named(Vec::new())) {
        let path = path_within(table, "target_modules");
        let message = format!("`{}` names no module", key(&path));
        problems.value(&path, message, "remove it: all linear maps are corrected".to_owned());
    }
}

/// Reports numbers of a table that are out of their declared ranges.
fn ranges<T: Table>(written: &T, table: &[String], problems: &mut Problems<'_>) {
    for wrong in written.out_of_range() {
        out_of_range(&wrong, table, problems);
    }
}

/// Reports a number of a table that is out of its range.
pub(super) fn out_of_range(wrong: &OutOfRange, table: &[String], problems: &mut Problems<'_>) {
    let path = wrong.key.iter().fold(table.to_vec(), |table, part| path_within(&table, part));
    problems.value(&path, format!("`{}` {}", key(&path), wrong.message()), None);
}

/// Names of models, workers and adapters are names of metrics and directories too.
fn label_name(name: &str, path: &[String], problems: &mut Problems<'_>) {
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if name.is_empty() || name.starts_with('.') || !fits {
        let message = format!("{name:?} cannot name a model, worker or adapter");
        let help = "it becomes the name of metrics and of a directory: use letters, digits, `_`, `-` and `.`";
        problems.value(path, message, help.to_owned());
    }
}
