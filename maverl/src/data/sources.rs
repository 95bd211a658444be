//! Files of data: one that a path names, or those of a data set on the hub.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::bounds::Bounds;
use super::error::DataError;
use super::file::{DataFile, ROW};
use super::hub::{HubData, find_data, is_hub};
use super::split::{ALL, TaskChoice};
use crate::config::{TaskConfig, Unsplit};

/// A file of data.
pub(super) struct SourceFile {
    file: DataFile,
    /// Its place in a data set; `None` for a file that a path names.
    pub(super) set: Option<SetFile>,
}

/// Place of a file in its data set.
pub(super) struct SetFile {
    /// Source of its tasks.
    pub(super) source: String,
    /// Its name in the repository.
    name: String,
    split: String,
    /// True if the data set has no other split.
    alone: bool,
    /// Names of the values of columns that have numbers for them.
    labels: Vec<(String, Vec<String>)>,
}

/// Part of the data that is read.
#[derive(Clone, Copy)]
pub(super) struct WantedRows<'s> {
    pub(super) split: &'s str,
    /// Maximum number of rows that are used, if there is one.
    pub(super) limit: Option<usize>,
    pub(super) bounds: Bounds,
}

impl<'s> WantedRows<'s> {
    /// Returns the rows that a choice of tasks reads.
    pub(super) fn of_choice(config: &TaskConfig, choice: &TaskChoice<'s>) -> Self {
        let limit = choice.limit.map(std::num::NonZero::get);
        Self { split: choice.split, limit, bounds: Bounds::from(config) }
    }

    /// Returns the rows of a split that a configuration of tasks reads.
    pub(super) fn of_split(config: &'s TaskConfig, split: &'s str) -> Self {
        let limit = config.limit.map(std::num::NonZero::get);
        Self { split, limit, bounds: Bounds::from(config) }
    }
}

impl Deref for SourceFile {
    type Target = DataFile;

    fn deref(&self) -> &DataFile {
        &self.file
    }
}

impl SourceFile {
    /// Returns the source of tasks that name none: that of the data set, or the name of the file.
    pub(super) fn source(&self) -> String {
        self.set.as_ref().map_or_else(|| self.file.stem(), |set| set.source.clone())
    }

    /// Returns the key of a document without one: its place in the file; in a data set, after the name of the file.
    pub(super) fn document_key(&self, key: String) -> String {
        match &self.set {
            Some(set) => format!("{}:{key}", set.name),
            None => key,
        }
    }
}

impl SetFile {
    /// Returns the split of a row, which may have one of its own in a data set of one split.
    pub(super) fn row_split(&self, own: Option<String>, unsplit: Unsplit) -> Option<String> {
        match own.filter(|_| self.alone) {
            None if self.alone && unsplit == Unsplit::Every => None,
            None => Some(self.split.clone()),
            own => own,
        }
    }

    /// Returns true if a row, which may have a split of its own, is of a split.
    pub(super) fn has_row(&self, own: Option<String>, split: &str, unsplit: Unsplit) -> bool {
        split == ALL || self.row_split(own, unsplit).is_none_or(|own| own == split)
    }

    /// Returns the id of a row without one, which no row of another split has.
    pub(super) fn row_id(&self, number: usize) -> String {
        format!("{}-{number}", self.split)
    }

    /// Writes the names of values in place of their numbers.
    pub(super) fn name_labels(&self, row: &mut Map<String, Value>) {
        for (column, names) in &self.labels {
            let Some(value) = row.get_mut(column) else { continue };
            let name = value.as_u64().and_then(|at| names.get(usize::try_from(at).ok()?));
            if let Some(name) = name {
                *value = Value::String(name.clone());
            }
        }
    }
}

/// Returns the place of data: the path of a file, which is relative to `base`, or the name of a data set on the hub.
pub fn data_place(data: &str, base: &Path) -> PathBuf {
    if is_hub(data) { PathBuf::from(data) } else { base.join(data) }
}

/// Opens the files of a place: one, or those of a split of a data set on the hub, which are downloaded.
pub(super) fn open_sources(
    place: &Path,
    wanted: &WantedRows<'_>,
) -> Result<Vec<SourceFile>, DataError> {
    let Some(data) = place.to_str().filter(|place| is_hub(place)) else {
        let file = DataFile::open(place, wanted.bounds)?;
        return Ok(vec![SourceFile { file, set: None }]);
    };
    let set = find_data(data)?;
    let mut files = Vec::new();
    for split in chosen_splits(&set, data, wanted)? {
        files.extend(open_split(&set, data, split, wanted)?);
    }
    Ok(files)
}

/// Returns the files of a split of a data set on the hub that [`open_sources`] opens, each by its name and path.
pub(super) fn source_paths(
    data: &str,
    wanted: &WantedRows<'_>,
) -> Result<Vec<(String, PathBuf)>, DataError> {
    let set = find_data(data)?;
    let mut paths = Vec::new();
    for split in chosen_splits(&set, data, wanted)? {
        for (name, path) in needed_files(&set, data, split, wanted)? {
            paths.push((format!("{}:{name}", set.pinned()), path));
        }
    }
    Ok(paths)
}

/// Returns the splits of a data set that are read. In a data set of one split, rows may have splits of their own.
fn chosen_splits<'d>(
    set: &'d HubData,
    data: &str,
    wanted: &WantedRows<'_>,
) -> Result<Vec<&'d str>, DataError> {
    let splits = set.splits();
    if wanted.split == ALL {
        return Ok(splits);
    }
    if let Some(split) = splits.iter().find(|split| **split == wanted.split) {
        return Ok(vec![split]);
    }
    if let Some((split, _)) = wanted.split.split_once('[') {
        let message = format!(
            "`{data}`: {:?} is a part of a split; name the split {split:?}, and write `task.limit` for its first rows",
            wanted.split
        );
        return Err(DataError::Hub { message });
    }
    if set.is_of_one_split() {
        return Ok(splits);
    }
    let found = [vec![format!("`{}`", splits.join("`, `"))], set.notes().to_vec()].concat();
    Err(DataError::NoTasks {
        place: data.to_owned(),
        split: wanted.split.to_owned(),
        found: found.join("; "),
    })
}

fn open_split(
    set: &HubData,
    data: &str,
    split: &str,
    wanted: &WantedRows<'_>,
) -> Result<Vec<SourceFile>, DataError> {
    let alone = set.is_of_one_split();
    let files = needed_files(set, data, split, wanted)?.into_iter().map(|(name, path)| {
        let file = DataFile::open(&path, wanted.bounds)?;
        let (source, split) = (set.source().to_owned(), split.to_owned());
        let labels = file.class_labels();
        Ok(SourceFile { file, set: Some(SetFile { source, name, split, alone, labels }) })
    });
    files.collect()
}

/// Downloads the files of a split. Of a split that is larger than the bound, only those of the first rows that are used.
fn needed_files(
    set: &HubData,
    data: &str,
    split: &str,
    wanted: &WantedRows<'_>,
) -> Result<Vec<(String, PathBuf)>, DataError> {
    let files = set.files(split);
    let total: u64 = files.iter().map(|(_, size)| size).sum();
    let large = total > wanted.bounds.unpacked;
    let Some(limit) = wanted.limit.or((!large).then_some(usize::MAX)) else {
        let (mib, most) = (total >> 20, wanted.bounds.unpacked >> 20);
        let key = match wanted.bounds.keys[1] {
            "" => "write the number of rows that are used",
            "task.max_mib" => {
                "raise `task.max_mib`, or write `task.limit`: then its first files alone are downloaded"
            }
            _ => "raise `environment.max_mib`",
        };
        let message =
            format!("`{data}`: the files of `{split}` have {mib} MiB, more than {most}; {key}");
        return Err(DataError::Hub { message });
    };
    let (mut needed, mut rows) = (Vec::new(), 0);
    for (name, _) in files {
        if large && rows >= limit {
            break;
        }
        let path = set.fetch(name)?;
        if large {
            let file = DataFile::open(&path, wanted.bounds)?;
            rows += file.rows::<Map<String, Value>>(ROW)?.count();
        }
        needed.push((name.to_owned(), path));
    }
    Ok(needed)
}

#[cfg(test)]
mod tests;
