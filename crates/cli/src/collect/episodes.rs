//! Episodes of a collection with their origin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{ConfigArgs, Failure, paths, tell};
use maverl::collect::{Collected, RowSource};
use maverl::config::source::config_stem;
use maverl::config::{Config, EvalConfig, TaskConfig};
use maverl::data;
use maverl::plan::Plan;
use maverl::run_dir::FileHash;
use maverl::run_dir::disk::name;
use maverl::trajectory::{Episode, RewardOf, Seat};

/// Refuses a part of the reward that no turn has.
pub(super) fn has_part(part: &str, episodes: &[Collected]) -> Result<(), Failure> {
    let parts = episodes.iter().flat_map(|collected| &collected.episode.rewards);
    let names: BTreeSet<&str> = parts
        .filter(|part| matches!(part.of, RewardOf::Turn(_)))
        .map(|part| part.name.as_str())
        .collect();
    if names.contains(part) {
        return Ok(());
    }
    let known = names.into_iter().collect::<Vec<_>>().join("`, `");
    Err(Failure(if known.is_empty() {
        format!("no turn has a reward of its own, so `--label {part}` labels none; leave it out")
    } else {
        format!("no turn has a part `{part}` of the reward; write one of `{known}` for `--label`")
    }))
}

/// Refuses a seat that no episode has.
pub(super) fn has_seats(wanted: &[Seat], episodes: &[Collected]) -> Result<(), Failure> {
    let turns = episodes.iter().flat_map(|collected| &collected.episode.turns);
    let seats: BTreeSet<&Seat> = turns.map(|turn| &turn.seat).collect();
    let Some(missing) = wanted.iter().find(|seat| !seats.iter().any(|of| seat.covers(of))) else {
        return Ok(());
    };
    let known = seats.iter().map(|seat| format!("`{seat}`")).collect::<Vec<_>>().join(", ");
    Err(Failure(format!("no episode has the seat `{missing}`; seats: {known}")))
}

/// Returns the source of a run.
pub(super) fn of(dir: &Path, stage: &str) -> Result<RowSource, Failure> {
    let provenance = Some(paths::run(dir)?.origin()?.provenance);
    let absolute = std::path::absolute(dir)?;
    Ok(RowSource { provenance, ..source(name(&absolute), stage) })
}

/// Returns the source of a configuration that was not trained.
pub(super) fn of_config(config: &ConfigArgs, stage: &str) -> RowSource {
    let name = config.path().map(|path| config_stem(path));
    source(name.unwrap_or_else(|| "maverl".to_owned()), stage)
}

fn source(run: String, stage: &str) -> RowSource {
    let (steps, files) = (BTreeMap::new(), BTreeMap::new());
    RowSource { run, stage: stage.to_owned(), steps, files, provenance: None, played: None }
}

/// Returns the hash of each file that a plan's held-out tasks are read from, by the name that the configuration has for it.
pub(super) fn data_files(plan: &Plan, split: &str) -> Result<BTreeMap<String, FileHash>, Failure> {
    let config = plan.config.eval.held_out(&plan.config.task);
    let mut hashes = BTreeMap::new();
    let files = data::files(&config, &[split], &plan.base);
    for (name, path) in files.map_err(|error| Failure(error.to_string()))? {
        hashes.insert(name, FileHash::read(&path)?);
    }
    Ok(hashes)
}

/// Tasks that a configuration evaluates on.
pub(super) struct Evaluated {
    eval: EvalConfig,
    task: TaskConfig,
    base: PathBuf,
}

impl Evaluated {
    /// Returns the tasks that a configuration evaluates on.
    pub(super) fn of(config: &Config, base: &Path) -> Self {
        Self { eval: config.eval.clone(), task: config.task.clone(), base: base.to_owned() }
    }

    /// Warns if a split of some data has tasks that are evaluated on: what is trained on rows of them must not be evaluated on
    /// them.
    pub(super) fn warn(&self, data: &TaskConfig, split: &str) {
        if let Some(what) = self.shared_tasks(data, split) {
            tell(format_args!(
                "warning: the rows come from {what}: what is trained on them is not held out from that evaluation; name other \
                 data with `--data`, or another split with `--split`"
            ));
        }
    }

    /// Describes the tasks of a split that are evaluated on; `None` if there are none.
    fn shared_tasks(&self, data: &TaskConfig, split: &str) -> Option<String> {
        if let Some(own) = self.eval.own_data(&self.task) {
            let mut names = data::names(data).into_iter();
            let name =
                names.find(|name| own.names().any(|own| data::same_data(name, own, &self.base)))?;
            return Some(format!("{name:?}, the file of `eval.data`"));
        }
        let validation = (self.eval.every > 0).then_some(("split", &self.eval.split));
        let test = ("test_split", &self.eval.test_split);
        let (key, _) = [test].into_iter().chain(validation).find(|(_, held)| {
            split == data::ALL || held.as_str() == split || held.as_str() == data::ALL
        })?;
        Some(format!("split {split:?}, which has tasks of `eval.{key}`"))
    }
}

/// Returns episodes with their origin.
pub(super) fn with_origin(
    source: &RowSource,
    step: u64,
    weights: &Arc<BTreeMap<String, String>>,
    episodes: Vec<Episode>,
) -> impl Iterator<Item = Collected> + use<> {
    let (run, stage): (Arc<str>, Arc<str>) =
        (source.run.as_str().into(), source.stage.as_str().into());
    let weights = Arc::clone(weights);
    episodes.into_iter().map(move |episode| Collected {
        run: Arc::clone(&run),
        stage: Arc::clone(&stage),
        step,
        weights: Arc::clone(&weights),
        asked: None,
        episode,
    })
}
