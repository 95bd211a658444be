//! Known data sets: which of their columns maverl reads, and the environment that judges their tasks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::name::HubName;
use crate::config::{TaskConfig, Unsplit};

/// The table of known data sets.
const TABLE: &str = include_str!("presets.txt");

/// Settings for a data set that is known by its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preset {
    /// As `task.keys`.
    pub keys: BTreeMap<String, String>,
    /// As `task.ignore`.
    pub ignore: Vec<String>,
    /// Environment of its tasks; empty if it has none.
    pub environment: &'static str,
    /// Configuration that is meant if none is named and the card has no default; empty if there is none.
    pub config: &'static str,
}

/// Returns what is known about the data set of a name; `None` for an unknown one, and for data that are not on the hub.
pub fn preset(data: &str) -> Option<Preset> {
    let name = HubName::parse(data)?.ok()?;
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('|').map(str::trim)).find_map(|mut parts| {
        if parts.next()? != name.repo {
            return None;
        }
        let [keys, ignore, environment, config] =
            std::array::from_fn(|_| parts.next().unwrap_or_default());
        let keys = keys.split_whitespace().filter_map(|pair| pair.split_once('='));
        Some(Preset {
            keys: keys.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())).collect(),
            ignore: ignore.split_whitespace().map(str::to_owned).collect(),
            environment,
            config,
        })
    })
}

/// Returns the configuration of tasks with what is known about their data set. Keys that are written hold; those of the
/// training data do not for a known data set of evaluations.
pub(in crate::data) fn with_preset(task: &TaskConfig) -> Cow<'_, TaskConfig> {
    let written = !task.keys.is_empty() && task.unsplit == Unsplit::Hashed;
    match preset(&task.data) {
        Some(preset) if !written => {
            let ignore = match (task.ignore.is_empty(), task.unsplit) {
                (true, _) => preset.ignore,
                (false, Unsplit::Hashed) => task.ignore.clone(),
                (false, Unsplit::Every) => [preset.ignore, task.ignore.clone()].concat(),
            };
            Cow::Owned(TaskConfig { keys: preset.keys, ignore, ..task.clone() })
        }
        _ => Cow::Borrowed(task),
    }
}
