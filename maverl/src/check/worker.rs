//! Worker groups, derived from the policies on them.

use std::collections::BTreeMap;

use super::models::{Models, Opened};
use super::policy::Group;
use crate::config::Config;
use crate::plan::{WorkerPlan, packed_bytes};

/// Returns the worker groups, sorted; `None` if a model could not be opened, which is reported.
pub(super) fn plan(
    config: &Config,
    groups: &BTreeMap<String, Group<'_>>,
    models: &Models,
) -> Option<Vec<WorkerPlan>> {
    let names: BTreeMap<&str, &str> =
        groups.values().map(|group| (group.worker.as_str(), group.model.as_str())).collect();
    let plan = |(name, model): (&str, &str)| {
        let Opened { source, parameters, shape, .. } = models.get(model)?;
        let dtype = config.models[model].dtype;
        Some(WorkerPlan {
            name: name.to_owned(),
            model: model.to_owned(),
            source: source.clone(),
            dtype,
            parameters: *parameters,
            packed_bytes: packed_bytes(shape, dtype.into()),
            chat_template_kwargs: config.models[model].chat_template_kwargs.clone(),
        })
    };
    names.into_iter().map(plan).collect()
}
