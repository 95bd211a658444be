//! Configurations that a job trains, and what they name.

use std::path::{Path, PathBuf};

use maverl::config::source::ShippedName;
use toml::{Table as Toml, Value};

use crate::{ConfigArgs, Failure, load_config};

/// Reads the configuration, or those of its stages. Returns true if there are stages.
pub(super) fn read_configs(
    args: &ConfigArgs,
    path: &Path,
) -> Result<(Vec<(PathBuf, Toml)>, bool), Failure> {
    if let Some(shipped) = ShippedName::parse(path).and_then(|name| name.find()) {
        let stages = shipped.stages();
        if !stages.is_empty() {
            let stages = stages.iter().map(|stage| (path.to_owned(), stage.table()));
            return Ok((stages.collect(), true));
        }
    }
    let sources = args.sources(None);
    let merged = sources.merged_file().and_then(|text| text.parse::<Toml>().ok());
    let stages = merged.as_ref().and_then(|config| config.get("stages")?.as_array());
    let Some(stages) = stages else {
        load_config(&sources)?;
        return Ok((vec![(path.to_owned(), merged.unwrap_or_default())], false));
    };
    let base = path.parent().unwrap_or(Path::new(""));
    let mut configs = vec![(path.to_owned(), Toml::new())];
    for stage in stages.iter().filter_map(Value::as_str) {
        let stage = base.join(stage);
        let text = std::fs::read_to_string(&stage)
            .map_err(|error| Failure(format!("{}: {error}", stage.display())))?;
        let config =
            text.parse().map_err(|error| Failure(format!("{}: {error}", stage.display())))?;
        configs.push((stage, config));
    }
    Ok((configs, true))
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
