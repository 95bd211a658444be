//! `maverl data`: what is in a file or in a data set on the hub, and what maverl reads of it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use maverl::config::TaskConfig;
use maverl::data::{DataDescription, describe, raw_rows};
use maverl::output;
use maverl::table::Table;

use super::{Failure, number, print, terminal};

/// Characters of a value that are shown.
const SHOWN: usize = 200;

/// Arguments of `maverl data`.
#[derive(Args)]
pub(crate) struct DataArgs {
    /// A file, or a data set on the hub: `hf:ORG/NAME[/CONFIG][@REVISION][:GLOB]`.
    #[arg(value_name = "DATA")]
    data: String,
    /// Split whose first row is shown.
    #[arg(long, value_name = "SPLIT", default_value = "train")]
    split: String,
    /// Field with another name in the data, as in `task.keys`: `--key question=query`; can be repeated.
    #[arg(long = "key", value_name = "OURS=THEIRS", value_parser = key_pair)]
    keys: Vec<(String, String)>,
    /// Print so many rows of the split as lines of JSON, as they are in the files, and nothing else.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    rows: Option<NonZeroUsize>,
    /// Print the description as JSON.
    #[arg(long, conflicts_with = "rows")]
    json: bool,
}

/// Describes data, or prints rows of it.
pub(crate) fn data(args: &DataArgs) -> Result<ExitCode, Failure> {
    let keys: BTreeMap<String, String> = args.keys.iter().cloned().collect();
    let (data, split) = (args.data.clone(), args.split.clone());
    let task = TaskConfig { data, split, keys, ..TaskConfig::default() };
    let failed = |error: maverl::data::DataError| Failure(error.to_string());
    if let Some(rows) = args.rows {
        let limited = TaskConfig { limit: Some(rows), ..task };
        let rows = raw_rows(&limited, Path::new(""), rows.get()).map_err(failed)?;
        let lines = rows.iter().map(output::json_line).collect::<Result<Vec<_>, _>>()?;
        return print(&lines.join("\n"));
    }
    let described = describe(&task, Path::new("")).map_err(failed)?;
    if args.json {
        return print(&output::json(&described)?);
    }
    print(&text(&described, terminal::width()))
}

/// Parses `OURS=THEIRS`.
fn key_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(ours, theirs)| !ours.is_empty() && !theirs.is_empty());
    let (ours, theirs) = pair.ok_or("write OURS=THEIRS, as `question=query`")?;
    Ok((ours.to_owned(), theirs.to_owned()))
}

/// Formats a description.
fn text(described: &DataDescription, width: usize) -> String {
    let mut parts = vec![described.data.clone()];
    if described.configs.len() > 1 {
        let configs = described.configs.join(", ");
        parts.push(format!("configurations: {configs}; this is {}", described.config));
    }
    if !described.splits.is_empty() {
        let mut table = Table::with_frame(["split", "rows", "files", "MiB"].map(str::to_owned));
        for split in &described.splits {
            let rows = split.rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string());
            let mib = format!("{:.1}", split.bytes as f64 / f64::from(1 << 20));
            table.row(vec![split.name.clone(), rows, split.files.to_string(), mib]);
        }
        parts.push(table.draw(width));
    }
    let mut table = Table::with_frame(["column", "type", "first row"].map(str::to_owned));
    for column in &described.columns {
        let value = described.first.get(&column.name).map(shown).unwrap_or_default();
        table.row(vec![column.name.clone(), column.kind.clone(), value]);
    }
    parts.push(table.draw(width));
    parts.push(read_as(described));
    let known = described.known.iter().map(|line| format!("known data set: {line}"));
    parts.extend(known.chain(described.notes.iter().map(|note| format!("note: {note}"))));
    parts.join("\n\n")
}

/// Says what the first row is to maverl.
fn read_as(described: &DataDescription) -> String {
    let Some(task) = &described.task else {
        let reason = described.no_task.as_deref().unwrap_or_default();
        return format!(
            "as a task: no: {reason}\n`task.keys` (here `--key`) names the column of `question`, and that of `answer`"
        );
    };
    let mut lines = vec![format!("as a task: `{}` of `{}`", task.id, task.source)];
    lines.push(format!("  question: {}", shown(&task.question.as_str().into())));
    let others = task.data.iter().map(|(key, value)| format!("  {key}: {}", shown(value)));
    lines.extend(others);
    lines.join("\n")
}

/// Returns the beginning of a value.
fn shown(value: &serde_json::Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}
