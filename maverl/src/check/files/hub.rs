//! Data on the hub, pinned to their commits.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::source::{Problems, path, path_within};
use crate::config::{Config, EvalConfig, EvalData, Named, TaskConfig};
use crate::data::{find_data, is_hub, names};
use crate::files::ModelSource;

/// Option of environments that names documents.
const CORPUS: &str = "corpus";
/// Option of environments that names a model for embeddings.
const ENCODER: &str = "encoder";

/// Returns the configuration with the commit of each data set and encoder on the hub, so that a resumed run reads the same ones.
/// Those that cannot be found are reported.
pub(crate) fn pin_data(config: &Config, problems: &mut Problems<'_>) -> Config {
    let TaskConfig { data, mixture, .. } = &config.task;
    let mut mixture = mixture.clone();
    for (name, component) in &mut mixture {
        let table = path(["task", "mixture", name]);
        component.data = pinned(&component.data, &path_within(&table, "data"), problems);
        pin_options(&mut component.environment, &path_within(&table, "environment"), problems);
    }
    let data = pinned(data, &path(["task", "data"]), problems);
    let held_out = config.eval.data.as_ref();
    let held_out = held_out.map(|data| data.map_data(|data, at| pinned(data, at, problems)));
    let (mut environment, mut environments) =
        (config.environment.clone(), config.environments.clone());
    pin_options(&mut environment, &path(["environment"]), problems);
    for (name, named) in &mut environments {
        pin_options(named, &path(["environments", name]), problems);
    }
    Config {
        task: TaskConfig { data, mixture, ..config.task.clone() },
        eval: EvalConfig { data: held_out, ..config.eval.clone() },
        environment,
        environments,
        ..config.clone()
    }
}

fn pin_options(named: &mut Named, table: &[String], problems: &mut Problems<'_>) {
    if let Some(Value::String(corpus)) = named.options.get_mut(CORPUS) {
        *corpus = pinned(corpus, &path_within(table, CORPUS), problems);
    }
    let Some(Value::String(encoder)) = named.options.get_mut(ENCODER) else { return };
    let at = path_within(table, ENCODER);
    if is_hub(encoder) && !problems.is_reported(&at) {
        match ModelSource::parse(encoder) {
            Ok(model) => *encoder = model.to_string(),
            Err(error) => problems.value(&at, error.to_string(), None),
        }
    }
}

/// Returns data with their commit; other data, and those that cannot be found, as they are.
fn pinned(data: &str, at: &[String], problems: &mut Problems<'_>) -> String {
    if !is_hub(data) || problems.is_reported(at) {
        return data.to_owned();
    }
    match find_data(data) {
        Ok(found) => found.pinned(),
        Err(error) => {
            problems.value(at, error.to_string(), None);
            data.to_owned()
        }
    }
}

/// Returns warnings about what of the data sets on the hub is not read.
pub(super) fn data_notes(config: &Config) -> Vec<String> {
    let held_out = config.eval.data.iter().flat_map(EvalData::names);
    let environments = config.environments.values().chain([&config.environment]);
    let components = config.task.mixture.values().map(|component| &component.environment);
    let corpora =
        environments.chain(components).filter_map(|named| named.options.get(CORPUS)?.as_str());
    let all: BTreeSet<&str> =
        names(&config.task).into_iter().chain(held_out).chain(corpora).collect();
    let mut notes = Vec::new();
    for data in all.into_iter().filter(|data| is_hub(data)) {
        // Data that cannot be found are a problem, and no warning.
        let Ok(found) = find_data(data) else { continue };
        notes.extend(found.notes().iter().map(|note| format!("`{data}`: {note}")));
    }
    notes
}
