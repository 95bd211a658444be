//! Origin of a run: its configuration and data, and the settings that may change on resume.
//!
//! A resume may change keys of level *run* alone (`config/tables.rs`: `may_change`). All other keys, the training data,
//! the starting weights and the held-out data of an unchanged `[eval]` must be equal; each difference is reported.
//! Ranks are compared by code of their own (`train/ranks.rs`).

use std::path::{Path, PathBuf};

use toml::Value;
use toml_edit::DocumentMut;

use super::disk::{name, parent};
use super::error::encode_error;
use super::{RESOLVED, RunDirError};
use crate::config::table::table_of;
use crate::config::tables::may_change;
use crate::config::{Config, source};
use crate::run_dir::Provenance;

/// Prefix of the names of held-out data in [`Provenance::data`].
pub const HELD_OUT: &str = "held out ";

/// Origin of a run; written before its first step and compared when the run is resumed.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// Configuration as the user gave it, with everything that was given beside it; empty if there was no file.
    pub given: String,
    /// Configuration with every default.
    pub config: Config,
    /// Absolute directory that relative paths of the configuration start from.
    pub base: PathBuf,
    /// Versions and hashes of data, weights, program and machine.
    pub provenance: Provenance,
}

impl Origin {
    /// Returns every difference that changes the run, as lines for the user.
    pub(super) fn differences(&self, now: &Self, path: &Path) -> Result<Vec<String>, RunDirError> {
        let [then, later] = [table_of(&self.config), table_of(&now.config)]
            .map(|table| table.map_err(|error| encode_error(&path.join(RESOLVED), error)));
        let (then, later) = (with_trackers(then?), with_trackers(later?));
        let mut differences = Vec::new();
        compare(&mut Vec::new(), Some(&then), Some(&later), &mut differences);
        differences.retain(|(key, _)| !may_change(key));
        let mut lines: Vec<String> = differences.into_iter().map(|(_, line)| line).collect();
        // Changed evaluations use other tasks. Unchanged evaluations must use the same tasks.
        let ignored = (self.config.eval != now.config.eval).then_some(HELD_OUT);
        self.provenance.differences(&now.provenance, ignored, &mut lines);
        Ok(lines)
    }

    /// Returns the same origin for a run directory, with `base` relative to it.
    pub(super) fn placed_in(&self, dir: &Path) -> Result<Self, RunDirError> {
        let base = relative(dir, &self.base);
        let Some(base) = base.to_str() else {
            let reason = format!("`{}` cannot be written as text", base.display());
            return Err(encode_error(&dir.join(RESOLVED), reason));
        };
        let given = match self.given.parse::<DocumentMut>() {
            Ok(mut document) if !self.given.is_empty() => {
                document.insert("base", toml_edit::value(base));
                document.to_string()
            }
            // Callers of the library may store any text here.
            _ => self.given.clone(),
        };
        let config = Config { base: Some(base.to_owned()), ..self.config.clone() };
        Ok(Self { given, config, ..self.clone() })
    }
}

/// Returns a configuration whose table of trackers is there: it is written only where a run has some.
fn with_trackers(mut table: toml::Table) -> Value {
    table.entry("track").or_insert_with(|| Value::Table(toml::Table::new()));
    Value::Table(table)
}

/// Adds a line with the key for each leaf at which two configurations differ.
fn compare(
    key: &mut Vec<String>,
    then: Option<&Value>,
    now: Option<&Value>,
    lines: &mut Vec<(Vec<String>, String)>,
) {
    if then == now {
        return;
    }
    if let (Some(Value::Table(then)), Some(Value::Table(now))) = (then, now) {
        let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            key.push(name.clone());
            compare(key, then.get(name), now.get(name), lines);
            key.pop();
        }
        return;
    }
    let (name, [then, now]) = (source::key(key), [then, now].map(shown_value));
    lines.push((key.clone(), format!("`{name}` was {then}, is {now}")));
}

fn shown_value(value: Option<&Value>) -> String {
    match value {
        None => "not set".to_owned(),
        Some(Value::Table(table)) => format!("a table of {} keys", table.len()),
        Some(value) => value.to_string(),
    }
}

/// Returns the absolute path, with links resolved if it exists.
fn absolute(path: &Path) -> PathBuf {
    let found = path.canonicalize().or_else(|_| std::path::absolute(path));
    found.unwrap_or_else(|_| path.to_owned())
}

/// Returns the relative path from a directory, whose last component may not exist yet, to another, with links resolved.
fn relative(from: &Path, to: &Path) -> PathBuf {
    // The run directory may be opened through a link.
    let from = from.canonicalize().unwrap_or_else(|_| absolute(parent(from)).join(name(from)));
    let to = absolute(to);
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return to;
    }
    let up = from.components().skip(shared).map(|_| std::path::Component::ParentDir);
    let way: PathBuf = up.chain(to.components().skip(shared)).collect();
    if way.as_os_str().is_empty() { PathBuf::from(".") } else { way }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_way_from_a_run_leads_to_the_files_of_its_configuration() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for dir in ["project/configs", "project/runs", "scratch"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        let way = |from: &str, to: &str| relative(&home.join(from), &home.join(to));
        assert_eq!(way("project/runs/a-1", "project/configs"), Path::new("../../configs"));
        assert_eq!(way("project/runs/a-1", "project"), Path::new("../.."));
        assert_eq!(way("project", "project"), Path::new("."));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(home.join("scratch"), home.join("project/linked")).unwrap();
            let linked = way("project/linked/a-1", "project/configs");
            assert_eq!(linked, Path::new("../../project/configs"));
            std::fs::create_dir(home.join("scratch/b-1")).unwrap();
            let latest = home.join("project/latest");
            std::os::unix::fs::symlink(home.join("scratch/b-1"), latest).unwrap();
            let linked = way("project/latest", "project/configs");
            assert_eq!(linked, Path::new("../../project/configs"));
        }
    }
}
