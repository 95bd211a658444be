//! The card of a collection: what its rows are, and what was left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::collect::collection::{Collection, DataSet, RowSource};
use crate::collect::kind::Kind;
use crate::collect::options::CollectOptions;
use crate::collect::rows::Row;

/// Returns the card in Markdown, with the header that the Hugging Face hub reads.
pub(super) fn card(
    collection: &Collection,
    options: &CollectOptions,
    sources: &[RowSource],
) -> String {
    let mut text = "---\nconfigs:\n".to_owned();
    // Writing to a text cannot fail.
    for (kind, set) in &collection.sets {
        let _ = writeln!(text, "- config_name: {}\n  data_files:", kind.name());
        for (split, rows) in splits(set, options) {
            // The hub does not read a file without rows.
            if !rows.is_empty() {
                let path = options.file_name(*kind, split);
                let _ = writeln!(text, "  - split: {split}\n    path: {path}");
            }
        }
    }
    text.push_str("---\n\n# Rows collected by maverl\n\n");
    for RowSource { run, stage, steps, .. } in sources {
        let episodes: u64 = steps.values().sum();
        let range = match (steps.keys().next(), steps.keys().last()) {
            (Some(first), Some(last)) if *last > 0 => format!(", steps {first} to {last}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "- `{run}`: {episodes} episodes of `{stage}`{range}");
    }
    let Collection { episodes, unscored, .. } = collection;
    let _ = writeln!(text, "\n{unscored} of {episodes} episodes have no score, and give no rows.");
    for (kind, set) in &collection.sets {
        text.push_str(&section(*kind, set, options));
    }
    text.push_str("\n`provenance.json` has the origin of every file, and all options.\n");
    text
}

/// Returns the splits of a data set that have a file.
fn splits<'s>(set: &'s DataSet, options: &CollectOptions) -> Vec<(&'static str, &'s [Row])> {
    let mut splits = vec![("train", set.train.as_slice())];
    if options.test_share > 0.0 {
        splits.push(("test", &set.test));
    }
    splits
}

/// Returns a line of the table of a section.
fn counts_line(name: &str, counts: &[usize]) -> String {
    let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
    format!("| {name} | {} |\n", counts.join(" | "))
}

/// Value by which rows are counted; none for a row without one.
type GroupValue = fn(&Row) -> Option<String>;

fn section(kind: Kind, set: &DataSet, options: &CollectOptions) -> String {
    let mut text = format!("\n## {}\n\n", kind.name());
    let splits = splits(set, options);
    let names: Vec<&str> = splits.iter().map(|(split, _)| *split).collect();
    let _ = writeln!(text, "| rows | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    let all: Vec<usize> = splits.iter().map(|(_, rows)| rows.len()).collect();
    text.push_str(&counts_line("all", &all));
    let groups: [(&str, GroupValue); 3] = [
        ("label", |row| row.label.map(|label| label.to_string())),
        ("source", |row| Some(row.task.0.clone())),
        ("seat", |row| Some(row.seat.clone())),
    ];
    for (name, group) in groups {
        let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (i, (_, rows)) in splits.iter().enumerate() {
            for value in rows.iter().filter_map(group) {
                counts.entry(value).or_insert_with(|| vec![0; splits.len()])[i] += 1;
            }
        }
        for (value, counts) in counts {
            text.push_str(&counts_line(&format!("{name} `{value}`"), &counts));
        }
    }
    if !set.removed.is_empty() {
        let removed = set.removed.iter().map(|(reason, n)| format!("{n} by `{reason}`"));
        let _ = writeln!(text, "\nLeft out: {}.", removed.collect::<Vec<_>>().join(", "));
    }
    text
}
