//! Data sets on the hub: their commit, and the files of their configuration that is meant.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use maverl_hub::{Hub, HubId, Snapshot};

use super::card::{card_configs, card_rows};
use super::layout::{
    DataConfig, FileForm, data_configs, has_tables, keep_read, matched_config, most_form,
    named_files,
};
use super::name::HubName;
use super::presets::preset;
use crate::data::error::DataError;

/// The card of a data set.
const CARD: &str = "README.md";
/// Largest card in bytes.
const LONGEST_CARD: u64 = 16 << 20;
/// Revision of the hub's own conversion to Parquet.
const CONVERTED: &str = "refs/convert/parquet";

/// A configuration of a data set at a commit.
#[derive(Debug)]
pub struct HubData {
    name: HubName,
    hub: Hub,
    snapshot: Snapshot,
    config: DataConfig,
    /// Names of all configurations.
    configs: Vec<String>,
    /// Number of rows of each split that the card has.
    rows: Vec<(String, u64)>,
    /// True for the hub's own conversion of files in another form.
    pub is_converted: bool,
}

/// Finds a data set on the hub, and the files of the configuration that is meant. What is found once is kept for the process,
/// so that a run reads one commit.
///
/// # Errors
///
/// If there is no such data set or configuration, if the hub refuses it or cannot be reached, or if its files are not read.
pub fn find_data(data: &str) -> Result<Arc<HubData>, DataError> {
    static FOUND: Mutex<BTreeMap<HubName, Arc<HubData>>> = Mutex::new(BTreeMap::new());
    let name = HubName::parse(data).unwrap_or_else(|| Err(format!("`{data}` is not on the hub")));
    let name = name.map_err(|message| DataError::Hub { message })?;
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(data) = found.get(&name) {
        return Ok(Arc::clone(data));
    }
    let data = Arc::new(HubData::find(&name)?);
    // The pinned name is of the same data.
    let pinned = HubName::parse(&data.pinned()).and_then(Result::ok);
    for name in pinned.into_iter().chain([name]) {
        found.insert(name, Arc::clone(&data));
    }
    Ok(data)
}

impl HubData {
    fn find(name: &HubName) -> Result<Self, DataError> {
        let hub = Hub::from_env().map_err(hub_error)?;
        let snapshot = pin(&hub, &name.repo, &name.revision)?;
        let found = Self::of_snapshot((name, None), &hub, snapshot)?;
        let files: Vec<&String> = found.config.splits.iter().flat_map(|(_, files)| files).collect();
        let is_read = most_form(files.iter().copied()) != FileForm::Other;
        if is_read && (name.glob.is_some() || !has_tables(&found.config.splits)) {
            return Ok(found.with_read_files());
        }
        let files: Vec<&str> = files.into_iter().map(String::as_str).collect();
        let none = format!(
            "`{name}` has {}, and the hub has no Parquet of it at `{CONVERTED}`: Parquet and JSON are read",
            named_files(&files)
        );
        if name.glob.is_some() {
            return Err(DataError::Hub { message: none });
        }
        match hub.pin_data(&HubId::data_set(&name.repo, CONVERTED).map_err(hub_error)?) {
            Ok(snapshot) => found.converted(snapshot),
            Err(error) if error.kind != maverl_hub::HubErrorKind::NotFound => Err(hub_error(error)),
            Err(_) if is_read => Ok(found.with_read_files()),
            Err(_) => Err(DataError::Hub { message: none }),
        }
    }

    /// Returns the same configuration in the hub's own conversion.
    fn converted(self, snapshot: Snapshot) -> Result<Self, DataError> {
        let Self { name, hub, config, rows, .. } = self;
        let mut found = Self::of_snapshot((&name, Some(&config.name)), &hub, snapshot)?;
        // The conversion has no card that says which configuration is the default.
        if found.configs.len() > 1 && name.repo.contains('/') {
            found.name.config = Some(found.config.name.clone());
        }
        Ok(Self { is_converted: true, rows, ..found.with_read_files() })
    }

    fn of_snapshot(
        (name, meant): (&HubName, Option<&str>),
        hub: &Hub,
        snapshot: Snapshot,
    ) -> Result<Self, DataError> {
        let wrong = |what: String| DataError::Hub { message: format!("`{name}`: {what}") };
        let files: Vec<&str> = snapshot.files().map(|(file, _)| file).collect();
        let readme = read_card(hub, &snapshot)?;
        let config = match &name.glob {
            Some(glob) => matched_config(&files, glob).map(|config| (config, Vec::new())),
            None => card_configs(&readme)
                .and_then(|card| data_configs(&files, &card))
                .and_then(|configs| choose(configs, name, meant)),
        };
        let (config, configs) = config.map_err(wrong)?;
        if config.splits.is_empty() {
            let found = format!("it has no files of data; it has {}", named_files(&files));
            return Err(wrong([&[found][..], &config.notes].concat().join("; ")));
        }
        let rows = card_rows(&readme, &config.name);
        let (name, hub) = (name.clone(), hub.clone());
        Ok(Self { name, hub, snapshot, config, configs, rows, is_converted: false })
    }

    /// Keeps the files that are read.
    fn with_read_files(mut self) -> Self {
        keep_read(&mut self.config);
        if self.snapshot.is_of_cache() {
            self.config.notes.push(
                "`HF_HUB_OFFLINE` is set, and the cache has no list of the files: those that were not downloaded are missing"
                    .to_owned(),
            );
        }
        self
    }

    /// Returns sentences about what of the data set is not read.
    pub fn notes(&self) -> &[String] {
        &self.config.notes
    }

    /// Returns the name with its commit, which is of the same rows for ever.
    pub fn pinned(&self) -> String {
        HubName { revision: self.snapshot.commit.clone(), ..self.name.clone() }.to_string()
    }

    /// Returns the name of the configuration.
    pub fn config(&self) -> &str {
        &self.config.name
    }

    /// Returns the names of all configurations; none where files are named by a pattern.
    pub fn configs(&self) -> &[String] {
        &self.configs
    }

    /// Returns the number of rows of a split, if the card has it.
    pub fn listed_rows(&self, split: &str) -> Option<u64> {
        self.rows.iter().find(|(name, _)| name == split).map(|(_, rows)| *rows)
    }

    /// Returns the names of the splits.
    pub fn splits(&self) -> Vec<&str> {
        self.config.splits.iter().map(|(split, _)| split.as_str()).collect()
    }

    /// Returns true if the data set has one split, and no other of which nothing is read.
    pub(in crate::data) fn is_of_one_split(&self) -> bool {
        self.config.splits.len() == 1 && self.config.lost.is_empty()
    }

    /// Returns the source of the tasks.
    pub(in crate::data) fn source(&self) -> &str {
        self.name.source()
    }

    /// Returns the names of the files of a split, each with its size in bytes.
    pub(in crate::data) fn files(&self, split: &str) -> Vec<(&str, u64)> {
        let files = self.config.splits.iter().filter(|(name, _)| name == split);
        let size = |name: &str| {
            self.snapshot.files().find(|(file, _)| *file == name).and_then(|(_, size)| size)
        };
        let files = files.flat_map(|(_, files)| files);
        files.map(|file| (file.as_str(), size(file).unwrap_or_default())).collect()
    }

    /// Downloads a file, unless it is in the cache, and returns its path.
    pub(in crate::data) fn fetch(&self, file: &str) -> Result<PathBuf, DataError> {
        self.hub.fetch(&self.snapshot, file).map_err(hub_error)
    }
}

/// Returns the configuration of a name, and the names of all. `meant` is the one that is preferred if none is named.
fn choose(
    mut configs: Vec<DataConfig>,
    name: &HubName,
    meant: Option<&str>,
) -> Result<(DataConfig, Vec<String>), String> {
    let names: Vec<String> = configs.iter().map(|config| config.name.clone()).collect();
    let listed = format!("`{}`", names.join("`, `"));
    let position = |wanted: &str| names.iter().position(|name| name == wanted);
    let chosen = match &name.config {
        Some(wanted) => position(wanted),
        None if names.len() == 1 => Some(0),
        None => meant
            .and_then(position)
            .or_else(|| configs.iter().position(|config| config.is_default))
            .or_else(|| position("default"))
            .or_else(|| position(preset(&name.to_string())?.config)),
    };
    match (chosen, &name.config) {
        (Some(at), _) => Ok((configs.swap_remove(at), names)),
        (None, Some(wanted)) => {
            Err(format!("there is no configuration `{wanted}`; there are {listed}"))
        }
        (None, None) => Err(format!(
            "it has several configurations, {listed}; name one, as `hf:{}/{}`",
            name.repo,
            names.first().map_or("NAME", String::as_str)
        )),
    }
}

fn pin(hub: &Hub, repo: &str, revision: &str) -> Result<Snapshot, DataError> {
    let id = HubId::data_set(repo, revision).map_err(hub_error)?;
    hub.pin_data(&id).map_err(hub_error)
}

/// Reads the card of a data set; an empty text if it has none.
fn read_card(hub: &Hub, snapshot: &Snapshot) -> Result<String, DataError> {
    let Some((_, size)) = snapshot.files().find(|(file, _)| *file == CARD) else {
        return Ok(String::new());
    };
    if size.is_some_and(|size| size > LONGEST_CARD) {
        let message = format!("{snapshot}: `{CARD}` is larger than {} MiB", LONGEST_CARD >> 20);
        return Err(DataError::Hub { message });
    }
    let path = hub.fetch(snapshot, CARD).map_err(hub_error)?;
    let bytes = std::fs::read(&path).map_err(|source| DataError::Read { path, source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn hub_error(error: maverl_hub::HubError) -> DataError {
    DataError::Hub { message: error.message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn configs(names: &[(&str, bool)]) -> Vec<DataConfig> {
        let configs = names.iter().map(|(name, is_default)| {
            let (name, is_default) = ((*name).to_owned(), *is_default);
            DataConfig { name, is_default, ..DataConfig::default() }
        });
        configs.collect()
    }

    #[test]
    fn the_configuration_is_the_named_one_then_the_default_of_the_card_then_the_known_one() {
        let chosen = |data: &str, names: &[(&str, bool)], meant: Option<&str>| {
            let name = HubName::parse(data).unwrap().unwrap();
            choose(configs(names), &name, meant).map(|(config, _)| config.name)
        };
        let two = [("main", false), ("socratic", false)];
        assert_eq!(chosen("hf:openai/gsm8k", &two, None).unwrap(), "main");
        assert_eq!(chosen("hf:openai/gsm8k/socratic", &two, None).unwrap(), "socratic");
        assert_eq!(chosen("hf:openai/gsm8k", &[two[0], ("b", true)], None).unwrap(), "b");
        assert_eq!(chosen("hf:a/b", &two, Some("socratic")).unwrap(), "socratic");
        let told = chosen("hf:a/b", &two, None).unwrap_err();
        assert!(told.contains("several configurations, `main`, `socratic`"), "{told}");
    }
}
