//! The orchestra of a run, and its options.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::entries::choose_entry;
use super::options::{filled_options, option_path};
use crate::config::Named;
use crate::config::source::{Problems, key, path};
use crate::orchestra::{DynOrchestra, MOST_SEATS};
use crate::plan::Chosen;
use crate::registry::{OrchestraEntry, Registry};
use crate::trajectory::Seat;

/// The orchestra of a run.
pub(crate) struct ChosenOrchestra {
    pub(crate) chosen: Chosen,
    pub(crate) members: BTreeSet<Seat>,
    /// Names of the components that it acts in beside its own.
    pub(crate) environments: Vec<String>,
    /// True if it may act in an environment.
    pub(crate) acts: bool,
    /// Messages of a task that it passes on.
    pub(crate) passes_on: Vec<&'static str>,
    /// Warnings about its options.
    pub(crate) warnings: Vec<String>,
}

/// Returns the orchestra; `None` if none can be chosen or built.
pub(crate) fn choose_orchestra(
    named: &Named,
    base: &Path,
    registry: &Registry,
    problems: &mut Problems<'_>,
) -> Option<ChosenOrchestra> {
    let table = path(["orchestra"]);
    let (name, entry) = choose_entry("orchestra", &table, named, &registry.orchestras, problems)?;
    let options = filled_options(&table, &named.options, &entry.declaration, entry.build, problems);
    // Options that cannot be built are reported elsewhere.
    let built = (entry.build)(&options).ok()?;
    let warnings = validate_options(&name, &options, entry, base, problems);
    let chosen = Chosen { name, options };
    let members = all_seats(&chosen, &*built, problems)?.into_iter().collect();
    let (environments, passes_on) = (built.environments(), built.passes_on());
    let acts = built.acts() || !entry.needs.is_empty() || !environments.is_empty();
    Some(ChosenOrchestra { chosen, members, environments, acts, passes_on, warnings })
}

/// Validates the options of an orchestra, and reports its problems. Returns its warnings.
fn validate_options(
    name: &str,
    options: &Value,
    entry: &OrchestraEntry,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let table = path(["orchestra"]);
    (entry.look)(options, base).unwrap_or_else(|found| {
        for problem in found {
            let at = option_path(&table, options, &problem);
            problems.value(&at, format!("orchestra `{name}`: {problem}"), None);
        }
        Vec::new()
    })
}

/// Returns the seats of an orchestra; `None` if it has more of one agent than allowed.
fn all_seats(
    Chosen { name, options }: &Chosen,
    orchestra: &dyn DynOrchestra,
    problems: &mut Problems<'_>,
) -> Option<Vec<Seat>> {
    let members = orchestra.members();
    let beyond = members.iter().find(|seat| seat.index == Some(MOST_SEATS));
    let Some(Seat { agent, .. }) = beyond else { return Some(members) };
    // The option with the number is not known by name: it is the one that is large enough.
    let options = options.as_object().into_iter().flatten();
    let mut numbers = options.filter_map(|(name, value)| Some((name, value.as_u64()?)));
    let (path, found) = match numbers.find(|(_, n)| *n > u64::from(MOST_SEATS)) {
        Some((option, n)) => {
            let path = path(["orchestra", option]);
            let found = format!("`{}` is {n}: ", key(&path));
            (path, found)
        }
        None => (path(["orchestra"]), String::new()),
    };
    let message =
        format!("{found}orchestra `{name}` has more than {MOST_SEATS} seats of `{agent}`");
    let help = format!("write at most {MOST_SEATS}");
    problems.value(&path, message, help);
    None
}

/// Returns the actions of a run's orchestra; empty if the orchestra is ambiguous.
pub(crate) fn needed_actions(named: &Named, registry: &Registry) -> &'static [&'static str] {
    let mut entries = registry.orchestras.iter();
    let entry = match (&named.name, registry.orchestras.len()) {
        (Some(name), _) => registry.orchestras.get(name.as_str()),
        (None, 1) => entries.next().map(|(_, entry)| entry),
        (None, _) => None,
    };
    entry.map_or(&[], |entry| entry.needs)
}
