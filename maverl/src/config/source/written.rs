//! What the sources of a configuration say, as types.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::diagnostic::Diagnostic;
use super::problems::{Problems, read_layers};
use super::sources::Sources;
use super::tagged::{self, DeclaredKinds};
use super::{load, secrets, values};
use crate::config::{AlgorithmConfig, Config, EvalData, ModelConfig, TaskConfig, is_served};

/// What the sources say: every key that is written, without those that are wrong. A key that is not written has the default of
/// its type; `Problems` knows where one is written.
#[derive(Debug)]
pub(crate) struct Written(Config);

impl Written {
    /// Reads the merged layers. What is wrong in them is reported.
    pub(crate) fn read(declared: &DeclaredKinds, problems: &mut Problems<'_>) -> Self {
        let config = load::config(problems);
        secrets::check(problems);
        let config = tagged::check_kinds(config, declared, problems);
        values::check(&config, problems);
        Self(inherit_values(config))
    }
}

impl Deref for Written {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

/// Fills in what agents inherit: a model, if none is written, and the coefficients of the loss that the preset sets.
fn inherit_values(written: Config) -> Config {
    let parts = written.algorithm.name.parts();
    let loss = written.algorithm.loss.over(&parts.loss);
    let models = if written.models.is_empty() {
        BTreeMap::from([("tiny".to_owned(), ModelConfig::default())])
    } else {
        written.models
    };
    let algorithm = AlgorithmConfig { loss, ..written.algorithm };
    let held_out = written.eval.data.iter().flat_map(EvalData::names);
    let served = held_out.chain([written.task.data.as_str()]).any(is_served);
    let environment = if served { written.environment.clone() } else { Default::default() };
    let task = TaskConfig { environment, ..written.task };
    Config { task, models, algorithm, ..written }
}

/// Reads and validates the values of the sources alone, without a team.
///
/// # Errors
///
/// All problems, in the order of the sources.
pub(crate) fn read_settings(sources: &Sources) -> Result<Config, Vec<Diagnostic>> {
    let layers = read_layers(sources)?;
    let mut problems = Problems::new(&layers);
    let config = load::config(&mut problems);
    values::check(&config, &mut problems);
    problems.finish(Some(config))
}
