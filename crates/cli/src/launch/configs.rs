//! Configurations that a job trains, and what they name.

use std::path::{Path, PathBuf};

use maverl::cli::stage_configs;
use maverl::config::source::Sources;
use toml::{Table as Toml, Value};

use crate::{ConfigArgs, Failure, load_config};

/// Reads the configuration, or those of its stages, with the settings of the command. Returns true if there are stages.
pub(super) fn read_configs(
    args: &ConfigArgs,
    path: &Path,
) -> Result<(Vec<(PathBuf, Toml)>, bool), Failure> {
    let stages = stage_configs(args)?;
    let has_stages = stages.is_some();
    // The file of stages has to be where the machines read it, too.
    let mut configs: Vec<_> =
        has_stages.then(|| (path.to_owned(), Toml::new())).into_iter().collect();
    let mut problems = Vec::new();
    for file in stages.unwrap_or_else(|| vec![path.to_owned()]) {
        let sources = args.over(Sources::file(&file));
        match load_config(&sources) {
            Ok(_) => {
                let merged = sources.merged_file().and_then(|text| text.parse().ok());
                configs.push((file, merged.unwrap_or_default()));
            }
            Err(Failure(problem)) if has_stages => {
                problems.push(format!("{}: {problem}", file.display()));
            }
            Err(problem) => return Err(problem),
        }
    }
    if problems.is_empty() {
        return Ok((configs, has_stages));
    }
    Err(Failure(problems.join("\n")))
}

/// Returns the first key of a configuration that names a GPU.
pub(super) fn gpu_key(config: &Toml) -> Option<String> {
    let groups = config.get("worker_groups").and_then(Value::as_table);
    let named = groups.into_iter().flatten();
    let mut tables = config
        .get("runtime")
        .map(|table| ("runtime".to_owned(), table))
        .into_iter()
        .chain(named.map(|(name, table)| (format!("worker_groups.{name}"), table)));
    tables.find_map(|(name, table)| {
        let device = table.get("device")?.as_str()?;
        device.starts_with("cuda").then(|| format!("{name}.device"))
    })
}

/// Returns true if a machine reads the source from a path.
pub(super) fn is_file(kind: &str, source: &str) -> bool {
    !matches!(kind, "server" | "program")
        && !["builtin:", "stage:", "hf:"].iter().any(|scheme| source.starts_with(scheme))
}
