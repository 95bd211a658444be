//! The layout of a data set: which files are of which configuration and split, as the package `datasets` finds them.
//!
//! The configurations are those of the card. Without them, the first of these rules that finds a file:
//!
//! ```text
//! CONFIG/SPLIT/0000.parquet, no card       the hub's own conversion, at the revision `refs/convert/parquet`
//! data/SPLIT-00000-of-00001*.*            sharded files
//! folders, then files, with a keyword     train, validation or test, between the signs `-._ ` and digits
//! all files                               `train`
//! ```

use std::collections::{BTreeMap, BTreeSet};

use glob::{MatchOptions, Pattern};

use super::card::{CardConfig, SplitPatterns};

/// Files of a split, in the order in which they are read.
pub(super) type SplitFiles = (String, Vec<String>);

/// A configuration of a data set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DataConfig {
    pub(super) name: String,
    pub(super) is_default: bool,
    pub(super) splits: Vec<SplitFiles>,
    /// Names of the splits of which no file is read.
    pub(super) lost: Vec<String>,
    /// Sentences about what of the data set is not read.
    pub(super) notes: Vec<String>,
}

/// Form of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileForm {
    Parquet,
    Json,
    /// A form that is not read.
    Other,
}

/// Signs around a keyword.
const AROUND: &str = "[-._ 0-9]";
/// Splits, and the keywords of their files.
const KEYWORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];
/// Files that are about the data.
const IGNORED: [&str; 6] = [
    "README.md",
    "config.json",
    "dataset_info.json",
    "dataset_infos.json",
    "dummy_data.zip",
    "dataset_dict.json",
];
/// Endings of files of tables that are not read.
const TABLES: [&str; 4] = ["csv", "tsv", "arrow", "txt"];
/// File of a task of Harbor.
const HARBOR: &str = "**/task.toml";

/// Returns the configurations of a data set with these files, sorted by name, and this card.
///
/// # Errors
///
/// The files or the part of the card whose layout is not supported.
pub(super) fn data_configs(files: &[&str], card: &[CardConfig]) -> Result<Vec<DataConfig>, String> {
    let configs: Vec<DataConfig> = if card.is_empty() {
        match converted_configs(files) {
            Some(converted) => converted,
            None => {
                let splits = found_splits(files)?;
                let notes = left_out(files, &splits).into_iter().collect();
                let name = "default".to_owned();
                vec![DataConfig { name, is_default: true, splits, notes, ..DataConfig::default() }]
            }
        }
    } else {
        card.iter().map(|config| card_splits(files, config)).collect::<Result<_, _>>()?
    };
    Ok(configs)
}

/// Returns the files that match a pattern as one configuration.
///
/// # Errors
///
/// If the pattern is none, or no file matches it.
pub(super) fn matched_config(files: &[&str], pattern: &str) -> Result<DataConfig, String> {
    let found = matched(files, pattern)?;
    if found.is_empty() {
        return Err(format!("no file matches `{pattern}`; it has {}", named_files(files)));
    }
    let splits = vec![("train".to_owned(), found)];
    let name = pattern.to_owned();
    Ok(DataConfig { name, is_default: true, splits, ..DataConfig::default() })
}

/// Names some files, for messages.
pub(super) fn named_files(files: &[&str]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = files.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if files.len() > SHOWN { ", .." } else { "" };
    if names.is_empty() { "no files".to_owned() } else { names.join(", ") + more }
}

fn card_splits(files: &[&str], config: &CardConfig) -> Result<DataConfig, String> {
    let CardConfig { name, is_default, folder, patterns } = config;
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let inside: Vec<&str> = files.iter().filter_map(|file| file.strip_prefix(&prefix)).collect();
    let (mut splits, notes) = match patterns {
        Some(patterns) => (resolved(&inside, patterns)?, unmatched(&inside, patterns)?),
        None => (found_splits(&inside)?, Vec::new()),
    };
    splits.iter_mut().flat_map(|(_, files)| files).for_each(|file| *file = prefix.clone() + file);
    let is_lost = |split: &String| splits.iter().all(|(other, _)| other != split);
    let declared = patterns.iter().flatten().map(|(split, _)| split);
    let lost = declared.filter(|split| is_lost(split)).cloned().collect();
    Ok(DataConfig { name: name.clone(), is_default: *is_default, splits, lost, notes })
}

/// Returns a note about each pattern of a card that no file matches.
fn unmatched(files: &[&str], patterns: &SplitPatterns) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for (split, patterns) in patterns {
        for pattern in patterns {
            if matched(files, pattern)?.is_empty() {
                notes.push(format!(
                    "`{pattern}`, which the card names for the split `{split}`, is no file of the repository, and is not read"
                ));
            }
        }
    }
    Ok(notes)
}

/// Returns a note about the files of a form that is read which are of no split, if there are some.
fn left_out(files: &[&str], splits: &[SplitFiles]) -> Option<String> {
    let read: BTreeSet<&str> =
        splits.iter().flat_map(|(_, files)| files).map(String::as_str).collect();
    let others = files.iter().copied().filter(|file| {
        file_form(file) != FileForm::Other && !is_ignored(file, "") && !read.contains(file)
    });
    let others: Vec<&str> = others.collect();
    (!others.is_empty()).then(|| {
        format!(
            "{} is not read: its name is that of no split; a pattern names such files (`hf:ORG/NAME:GLOB`)",
            named_files(&others)
        )
    })
}

/// Returns the configurations of the hub's own conversion; `None` if files have another layout.
fn converted_configs(files: &[&str]) -> Option<Vec<DataConfig>> {
    if files.contains(&"README.md") {
        return None;
    }
    let mut configs: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    let mut partial: BTreeSet<(&str, &str)> = BTreeSet::new();
    for file in files.iter().filter(|file| !is_ignored(file, "")) {
        let [config, split, name] = file.split('/').collect::<Vec<_>>()[..] else { return None };
        let number = name.strip_suffix(".parquet")?;
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let whole = split.strip_prefix("partial-").unwrap_or(split);
        if whole != split {
            partial.insert((config, whole));
        }
        let split = whole;
        configs.entry(config).or_default().entry(split).or_default().push((*file).to_owned());
    }
    let configs = configs.into_iter().map(|(name, splits)| {
        let splits = splits.into_iter().map(|(split, files)| (split.to_owned(), files)).collect();
        let notes = partial.iter().filter(|(config, _)| *config == name).map(|(_, split)| {
            format!("the hub's conversion has only the first rows of the split `{split}`")
        });
        let (notes, is_default) = (notes.collect(), name == "default");
        let (name, splits) = (name.to_owned(), sorted(splits));
        DataConfig { name, is_default, splits, notes, ..DataConfig::default() }
    });
    Some(configs.collect::<Vec<_>>()).filter(|configs| !configs.is_empty())
}

/// Finds the splits by the names of files.
fn found_splits(files: &[&str]) -> Result<Vec<SplitFiles>, String> {
    let sharded = sharded_splits(files);
    if !sharded.is_empty() {
        return Ok(sharded);
    }
    if !matched(files, HARBOR)?.is_empty() {
        return Err(
            "it is a tree of tasks of Harbor (`task.toml`), which run in containers; no environment of maverl reads them"
                .to_owned(),
        );
    }
    for patterns in [keyword_patterns(true), keyword_patterns(false)] {
        let splits = resolved(files, &patterns)?;
        if !splits.is_empty() {
            return Ok(splits);
        }
    }
    resolved(files, &vec![("train".to_owned(), vec!["**".to_owned()])])
}

/// Returns the splits of files named `data/SPLIT-00000-of-00001*.*`.
fn sharded_splits(files: &[&str]) -> Vec<SplitFiles> {
    let mut splits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let Some(name) = file.strip_prefix("data/").filter(|name| !name.contains('/')) else {
            continue;
        };
        if let Some(split) = shard_split(name) {
            splits.entry(split.to_owned()).or_default().push((*file).to_owned());
        }
    }
    sorted(splits.into_iter().collect())
}

/// Returns the split of `SPLIT-00000-of-00001*.*`.
fn shard_split(name: &str) -> Option<&str> {
    let (at, _) = name.rmatch_indices("-of-").find(|(at, _)| {
        let digits = |text: Option<&str>| {
            text.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        digits(at.checked_sub(5).and_then(|start| name.get(start..*at)))
            && digits(name.get(at + 4..at + 9))
            && name.get(at + 9..).is_some_and(|rest| rest.contains('.'))
    })?;
    let split = name[..at - 5].strip_suffix('-')?;
    let plain = split.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
    (plain && !split.is_empty()).then_some(split)
}

/// Sorts train, validation and test before the other splits, which are sorted by name.
fn sorted(mut splits: Vec<SplitFiles>) -> Vec<SplitFiles> {
    let rank = |split: &str| KEYWORDS.iter().position(|(name, _)| *name == split).unwrap_or(3);
    splits.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b)));
    splits
}

/// Returns the patterns of folders, or of files, whose name has a keyword of a split.
fn keyword_patterns(folders: bool) -> SplitPatterns {
    let splits = KEYWORDS.iter().map(|(split, keywords)| {
        let patterns = keywords.iter().flat_map(|word| {
            if folders {
                vec![
                    format!("**/{word}/**"),
                    format!("**/{word}{AROUND}*/**"),
                    format!("**/*{AROUND}{word}/**"),
                    format!("**/*{AROUND}{word}{AROUND}*/**"),
                ]
            } else {
                vec![format!("**/{word}{AROUND}*"), format!("**/*{AROUND}{word}{AROUND}*")]
            }
        });
        ((*split).to_owned(), patterns.collect())
    });
    splits.collect()
}

/// Returns the files of each split that has some: those of each pattern by name, each file once.
fn resolved(files: &[&str], patterns: &SplitPatterns) -> Result<Vec<SplitFiles>, String> {
    let mut splits = Vec::new();
    for (split, patterns) in patterns {
        let mut found: Vec<String> = Vec::new();
        for pattern in patterns {
            for file in matched(files, pattern)? {
                if !found.contains(&file) {
                    found.push(file);
                }
            }
        }
        if !found.is_empty() {
            splits.push((split.clone(), found));
        }
    }
    Ok(splits)
}

/// Returns the files that match a pattern, by name. `*` does not match `/`.
fn matched(files: &[&str], pattern: &str) -> Result<Vec<String>, String> {
    let pattern = pattern.trim_start_matches("./");
    let compiled = Pattern::new(pattern).map_err(|error| format!("`{pattern}`: {error}"))?;
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    let found = files
        .iter()
        .filter(|file| compiled.matches_with(file, options) && !is_ignored(file, pattern));
    let mut found: Vec<String> = found.map(|file| (*file).to_owned()).collect();
    found.sort();
    Ok(found)
}

/// Returns true for files about the data, and for hidden and special ones (`.x`, `__x/`) that a pattern does not name.
fn is_ignored(file: &str, pattern: &str) -> bool {
    let about = IGNORED.contains(&file_name(file)) && file_name(file) != file_name(pattern);
    about
        || hidden_parts(file) != hidden_parts(pattern)
        || special_folders(file) != special_folders(pattern)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the number of parts of a path that begin with a dot.
fn hidden_parts(path: &str) -> usize {
    path.split('/').filter(|part| part.starts_with('.')).count()
}

/// Returns the number of folders of a path that begin with two underscores.
fn special_folders(path: &str) -> usize {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.split('/').filter(|part| part.starts_with("__")).count()
}

/// Returns the form of a file by the endings of its name.
pub(super) fn file_form(file: &str) -> FileForm {
    let endings = file_name(file).split('.').skip(1).collect::<Vec<_>>();
    let has = |names: &[&str]| endings.iter().any(|ending| names.contains(ending));
    if has(&["parquet"]) {
        FileForm::Parquet
    } else if has(&["jsonl", "json", "ndjson"]) {
        FileForm::Json
    } else {
        FileForm::Other
    }
}

/// Returns the form that most files have; of equally many, the first.
pub(super) fn most_form<'f>(files: impl IntoIterator<Item = &'f String>) -> FileForm {
    let mut counts: BTreeMap<FileForm, usize> = BTreeMap::new();
    for file in files {
        *counts.entry(file_form(file)).or_default() += 1;
    }
    let most = counts.values().max().copied().unwrap_or_default();
    counts.into_iter().find(|(_, count)| *count == most).map_or(FileForm::Other, |(form, _)| form)
}

/// Returns true if at least half of the files of a split are tables of a form that is not read, which the hub converts.
pub(super) fn has_tables(splits: &[SplitFiles]) -> bool {
    splits.iter().any(|(_, files)| {
        let tables = files.iter().filter(|file| {
            TABLES.iter().any(|ending| file_name(file).split('.').skip(1).any(|it| it == *ending))
        });
        let tables = tables.count();
        tables > 0 && 2 * tables >= files.len()
    })
}

/// Keeps the files of each split that have the form of most of them, and notes the others.
pub(super) fn keep_read(config: &mut DataConfig) {
    for (split, files) in &mut config.splits {
        let form = most_form(&*files);
        let (kept, others): (Vec<String>, Vec<String>) =
            files.drain(..).partition(|file| form != FileForm::Other && file_form(file) == form);
        *files = kept;
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        if !others.is_empty() {
            let why = if files.is_empty() {
                config.lost.push(split.clone());
                "Parquet and JSON are"
            } else {
                "files of a split have one form"
            };
            config.notes.push(format!(
                "{} of the split `{split}` is not read: {why}",
                named_files(&others)
            ));
        }
    }
    config.splits.retain(|(_, files)| !files.is_empty());
}

#[cfg(test)]
mod tests;
