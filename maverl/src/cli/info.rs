//! `maverl list` and `maverl info`.

use std::path::Path;

use super::{Failure, paths};
use crate::checkpoint::Checkpoints;
use crate::registry::{Declaration, Registry};
use crate::table::{Table, paragraphs};
use crate::train::Summary;

/// Everything that is linked in.
pub(super) fn list(registry: &Registry) -> Table {
    let header = ["kind", "name", "what it is", "options"];
    let mut table = Table::plain(header).prose(&[2, 3]).title(2);
    let mut add = |kind: &str, declaration: &Declaration| {
        let defaults = (declaration.defaults)();
        let options = defaults.as_object().into_iter().flatten();
        let options: Vec<String> =
            options.map(|(name, value)| format!("{name} = {value}")).collect();
        table.row([kind, declaration.name, declaration.summary, &options.join(", ")]);
    };
    registry.orchestras.values().for_each(|entry| add("orchestra", &entry.declaration));
    registry.agents.values().for_each(|entry| add("agent", &entry.declaration));
    registry.environments.values().for_each(|entry| add("environment", &entry.declaration));
    registry.rewards.values().for_each(|entry| add("reward", &entry.declaration));
    registry.tools.values().for_each(|entry| add("tool", &entry.declaration));
    table
}

/// What a run directory holds, and what came of the run.
pub(super) fn run(dir: &Path, width: usize) -> Result<String, Failure> {
    let run = paths::run(dir)?;
    let origin = run.origin()?;
    let steps = Checkpoints::of(run.path()).steps()?;
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "run          {}\nmaverl       {}\ndevice       {}, {} threads\norchestra    {}\nseed         {}\ncheckpoints  {}\n",
        dir.display(),
        origin.provenance.version,
        origin.provenance.device,
        origin.provenance.threads,
        origin.config.orchestra.name.as_deref().unwrap_or("(none)"),
        origin.config.seed,
        if steps.is_empty() { "(none)".to_owned() } else { format!("steps {}", steps.join(", ")) },
    );
    text = paragraphs(&text, width);
    let path = dir.join("summary.json");
    match std::fs::read(&path) {
        Ok(summary) => {
            let summary: Summary = serde_json::from_slice(&summary)?;
            text.push_str(&summary.table(dir, width));
        }
        Err(_) => {
            text.push_str("the run has no summary yet; `maverl train --resume` goes on with it")
        }
    }
    Ok(text)
}
