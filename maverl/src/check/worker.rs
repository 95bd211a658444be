//! Worker groups, from the policies that are put on them.

use std::collections::BTreeMap;

use super::adapter;
use super::policy::{Group, Models, Opened};
use crate::config::Config;
use crate::plan::{WorkerPlan, packed_bytes};

/// The worker groups, sorted; `None` if a model could not be opened, which is reported.
pub(super) fn plan(
    config: &Config,
    groups: &BTreeMap<String, Group<'_>>,
    models: &Models,
) -> Option<Vec<WorkerPlan>> {
    let names: BTreeMap<&str, &str> =
        groups.values().map(|group| (group.worker.as_str(), group.model.as_str())).collect();
    let plan = |(name, model): (&str, &str)| {
        let Opened { source, parameters, .. } = models.get(model)?;
        let (dtype, shape) = (config.models[model].dtype, adapter::base(source).ok());
        Some(WorkerPlan {
            name: name.to_owned(),
            model: model.to_owned(),
            source: source.clone(),
            dtype,
            parameters: *parameters,
            packed_bytes: shape.map(|shape| packed_bytes(&shape, dtype.into())),
        })
    };
    names.into_iter().map(plan).collect()
}
