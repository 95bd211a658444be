//! Models and data sets on the Hugging Face hub, downloaded once into the cache that the other Hugging Face libraries use too.
//!
//! ```text
//! hf:org/name@main ─► pin ─► Snapshot: a commit, and its list of files ─► download ─► a model directory
//!                      └ config.json                                       └ tokenizer, template, safetensors
//! ```
//!
//! Environment variables: `HF_ENDPOINT`; `HF_TOKEN` (else the token that `hf auth login` stored); `HF_HUB_CACHE` (else
//! `hub` in `HF_HOME`); `HF_HUB_DOWNLOAD_TIMEOUT`, the seconds that a server may send nothing; and `HF_HUB_OFFLINE`, which
//! reads everything from the cache. Only the client itself needs the feature `hub`.
#![warn(missing_docs)]

#[cfg(feature = "hub")]
mod cache;
#[cfg(feature = "hub")]
mod client;
mod data;
mod environment;
mod error;
mod layout;
#[cfg(feature = "hub")]
mod push;
#[cfg(feature = "hub")]
mod requests;
#[cfg(feature = "http")]
pub mod retry;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::{HubError, HubErrorKind};
pub use layout::{
    COMPANIONS, INDEX, PICKLED, PICKLED_INDEX, SINGLE, open_file, read_file, weight_map,
};

use HubErrorKind as Kind;
use layout::{has_size, is_of_sentences};

/// Folder of additional chat templates, one file each, in the format of transformers 5.
const TEMPLATES: &str = "additional_chat_templates/";

/// Kind of a repository on the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoKind {
    /// A model.
    Model,
    /// A data set.
    Data,
}

/// A repository on the hub, and the requested revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubId {
    kind: RepoKind,
    repo: String,
    revision: String,
}

impl HubId {
    /// Parses `ORG/NAME` or `ORG/NAME@REVISION`. A revision is a branch, a tag or a commit; the default is `main`.
    ///
    /// # Errors
    ///
    /// If the text has another form.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let fine = repo.split('/').count() <= 2
            && repo.split('/').all(is_component)
            && revision.split('/').all(is_component);
        if fine {
            let (repo, revision) = (repo.to_owned(), revision.to_owned());
            Ok(Self { kind: RepoKind::Model, repo, revision })
        } else {
            Err(HubError::new(
                Kind::Argument,
                format!(
                    "`hf:{text}` names no model; write `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`"
                ),
            ))
        }
    }
}

/// Writes the id in the form that users write.
impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}@{}", self.repo, self.revision)
    }
}

/// A commit of a repository, and the cache directory of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    #[serde(skip)]
    kind: RepoKind,
    /// Repository, `ORG/NAME`.
    pub repo: String,
    /// Commit hash, in hexadecimal.
    pub commit: String,
    /// Directory of its files in the cache.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Files of the repository.
    #[serde(skip)]
    files: Vec<RemoteFile>,
    /// True if they are those that the cache has.
    #[serde(skip)]
    is_of_cache: bool,
}

/// A file of a repository, with its size and checksum on the hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RemoteFile {
    name: String,
    size: Option<u64>,
    sha256: Option<String>,
    /// Name of its content in the cache, if the hub lists one.
    blob: Option<String>,
}

/// Writes the snapshot in the form that users write.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}@{}", self.repo, self.commit)
    }
}

impl Snapshot {
    fn file(&self, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns an error if the repository lacks a file that every model has.
    fn check(&self) -> Result<(), String> {
        for name in ["config.json", "tokenizer.json"] {
            if self.file(name).is_none() {
                return Err(format!("there is no `{name}`"));
            }
        }
        let kinds = [SINGLE, INDEX, PICKLED, PICKLED_INDEX];
        if kinds.iter().any(|name| self.file(name).is_some()) {
            return Ok(());
        }
        let ends = [".bin", ".pt", ".pth", ".gguf"];
        let is_other = |file: &&RemoteFile| ends.iter().any(|end| file.name.ends_with(end));
        let instead = match self.files.iter().find(is_other).map(|other| &other.name) {
            Some(other) if other.ends_with(".gguf") => {
                format!("; download `{other}`, and write its path")
            }
            Some(other) => format!("; `{other}` is not read: convert it to safetensors"),
            None => String::new(),
        };
        Err(format!("there is neither `{SINGLE}` nor `{INDEX}`{instead}"))
    }

    /// Returns the name of the index of the weight files, if they have one. Safetensors come before what PyTorch pickled.
    fn index(&self) -> Option<&'static str> {
        let has = |name: &str| self.file(name).is_some();
        let pickled = !has(SINGLE) && !has(PICKLED) && has(PICKLED_INDEX);
        if has(INDEX) { Some(INDEX) } else { pickled.then_some(PICKLED_INDEX) }
    }

    /// Iterates over the files other than weights.
    fn companions(&self) -> impl Iterator<Item = &RemoteFile> {
        self.files.iter().filter(|file| {
            let template = file.name.starts_with(TEMPLATES) && file.name.ends_with(".jinja");
            COMPANIONS.contains(&file.name.as_str()) || template || is_of_sentences(&file.name)
        })
    }

    /// Returns the weight files. If there is an index, they are those that it names, once it is downloaded.
    fn weights(&self) -> Result<Vec<&RemoteFile>, String> {
        let Some(index) = self.index() else {
            return Ok(self.file(SINGLE).or_else(|| self.file(PICKLED)).into_iter().collect());
        };
        let content = read_file(&self.dir.join(index)).map_err(|e| format!("`{index}`: {e}"))?;
        let names: BTreeSet<String> = weight_map(&content)?.into_values().collect();
        let files = names.iter().map(|name| {
            self.file(name).ok_or_else(|| format!("`{index}` names `{name}`, which is not there"))
        });
        files.collect()
    }
}

/// The hub, with its local cache.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "hub"), expect(dead_code, reason = "what only the client reads"))]
pub struct Hub {
    endpoint: String,
    cache: PathBuf,
    token: Option<String>,
    offline: bool,
    /// Seconds that a server may send nothing.
    patience_s: f64,
}

impl Hub {
    /// Resolves a revision to its current commit, and downloads its `config.json` and the small files of an encoder. Offline, the
    /// commit is the one in the cache.
    ///
    /// # Errors
    ///
    /// If the hub has no such model, refuses it or cannot be reached; offline, if the cache lacks a part of it.
    pub fn pin(&self, id: &HubId) -> Result<Snapshot, HubError> {
        if self.offline {
            return self.cached_snapshot(id).map_err(|what| {
                let cache = self.cache.display();
                let message = format!(
                    "{id}: {what} in {cache}, and `HF_HUB_OFFLINE` is set; unset it to download the model"
                );
                HubError::new(Kind::NotFound, message)
            });
        }
        let (commit, files) = self.list(id)?;
        let dir = self.folder(id.kind, &id.repo).join("snapshots").join(&commit);
        let repo = id.repo.clone();
        let snapshot = Snapshot { kind: id.kind, repo, commit, dir, files, is_of_cache: false };
        snapshot.check().map_err(|what| HubError::new(Kind::NotFound, format!("{id}: {what}")))?;
        self.refer(id, &snapshot.commit)?;
        let small = |file: &&RemoteFile| file.name == "config.json" || is_of_sentences(&file.name);
        snapshot.files.iter().filter(small).try_for_each(|file| self.get(&snapshot, file))?;
        Ok(snapshot)
    }

    /// Downloads the files of a snapshot that a model directory needs and the cache lacks: configuration, tokenizer,
    /// chat templates and weights. Downloads are checked against the hub's sizes and checksums.
    ///
    /// # Errors
    ///
    /// If a file is missing, damaged or refused, or the hub cannot be reached. The error names repository, file and
    /// remedy.
    pub fn download(&self, snapshot: &Snapshot) -> Result<(), HubError> {
        let index = snapshot.index().and_then(|index| snapshot.file(index));
        for file in snapshot.companions().chain(index) {
            self.get(snapshot, file)?;
        }
        let weights = snapshot
            .weights()
            .map_err(|what| HubError::new(Kind::NotFound, format!("{snapshot}: {what}")))?;
        for file in weights {
            self.get(snapshot, file)?;
        }
        Ok(())
    }

    /// Downloads a file, unless the cache has it completely.
    fn get(&self, snapshot: &Snapshot, file: &RemoteFile) -> Result<(), HubError> {
        let path = snapshot.dir.join(&file.name);
        if has_size(&path, file.size) {
            return Ok(());
        }
        if self.offline {
            let name = &file.name;
            let message =
                format!("{snapshot}: `{name}` is not in the cache, and `HF_HUB_OFFLINE` is set");
            return Err(HubError::new(Kind::NotFound, message));
        }
        self.forget(&path);
        self.transfer(snapshot, file)
    }

    /// Removes an incomplete file: the link, and its target if that is in the cache.
    fn forget(&self, path: &Path) {
        let content = std::fs::canonicalize(path).ok();
        let cache = std::fs::canonicalize(&self.cache).ok();
        let own = content.zip(cache).filter(|(content, cache)| content.starts_with(cache));
        // Best effort: a file that cannot be removed is detected again later.
        let _ = std::fs::remove_file(path);
        let _ = own.map(|(content, _)| std::fs::remove_file(content));
    }

    /// Returns the cached commit of a revision, and the directory of its files.
    fn cached_commit(&self, id: &HubId) -> Result<(String, PathBuf), String> {
        let repo = self.folder(id.kind, &id.repo);
        let commit = std::fs::read_to_string(repo.join("refs").join(&id.revision));
        let commit = commit.map_or_else(|_| id.revision.clone(), |commit| commit.trim().to_owned());
        let dir = repo.join("snapshots").join(&commit);
        if is_commit(&commit) && dir.is_dir() {
            Ok((commit, dir))
        } else {
            Err("it is not".to_owned())
        }
    }

    /// Returns the cached snapshot of a revision, if it is a complete model.
    fn cached_snapshot(&self, id: &HubId) -> Result<Snapshot, String> {
        let (commit, dir) = self.cached_commit(id)?;
        let mut files = Vec::new();
        for (below, prefix) in [(dir.clone(), ""), (dir.join(TEMPLATES), TEMPLATES)] {
            let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
            // A link to a missing file does not count as a file.
            let names = entries.filter(|entry| entry.path().is_file());
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            files.extend(names.map(|name| RemoteFile {
                name: format!("{prefix}{name}"),
                size: None,
                sha256: None,
                blob: None,
            }));
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let repo = id.repo.clone();
        let snapshot = Snapshot { kind: id.kind, repo, commit, dir, files, is_of_cache: true };
        snapshot.check()?;
        snapshot.weights()?;
        Ok(snapshot)
    }

    /// Stores the commit of a revision, for offline use.
    fn refer(&self, id: &HubId, commit: &str) -> Result<(), HubError> {
        let path = self.folder(id.kind, &id.repo).join("refs").join(&id.revision);
        Self::keep(&path, commit.as_bytes())
    }

    /// Writes a file of the cache.
    fn keep(path: &Path, content: &[u8]) -> Result<(), HubError> {
        let written = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, content));
        written.map_err(|e| HubError::io(format!("cannot write {}: {e}", path.display()), e))
    }

    /// Returns the directory of a repository in the cache.
    fn folder(&self, kind: RepoKind, repo: &str) -> PathBuf {
        let kind = match kind {
            RepoKind::Model => "models",
            RepoKind::Data => "datasets",
        };
        self.cache.join(format!("{kind}--{}", repo.replace('/', "--")))
    }

    /// True if a repository can be uploaded to, as far as this machine knows.
    ///
    /// # Errors
    ///
    /// If there is no token, or the hub is not to be asked.
    pub fn check_push(&self, id: &HubId) -> Result<(), HubError> {
        if self.offline {
            return Err(HubError::new(
                Kind::Refused,
                format!("{id}: `HF_HUB_OFFLINE` is set; unset it to upload"),
            ));
        }
        match &self.token {
            Some(_) => Ok(()),
            None => Err(HubError::new(
                Kind::Refused,
                format!("{id}: an upload needs a token that may write; set `HF_TOKEN`"),
            )),
        }
    }

    /// Uploads a directory.
    ///
    /// # Errors
    ///
    /// Always: only the client can.
    #[cfg(not(feature = "hub"))]
    pub fn push(&self, id: &HubId, _: &Path, _: bool) -> Result<String, HubError> {
        Err(without_feature(id))
    }

    #[cfg(not(feature = "hub"))]
    fn list(&self, id: &HubId) -> Result<(String, Vec<RemoteFile>), HubError> {
        Err(without_feature(id))
    }

    #[cfg(not(feature = "hub"))]
    fn transfer(&self, snapshot: &Snapshot, _: &RemoteFile) -> Result<(), HubError> {
        Err(without_feature(snapshot))
    }
}

#[cfg(not(feature = "hub"))]
fn without_feature(what: impl fmt::Display) -> HubError {
    HubError::new(
        Kind::Argument,
        format!("{what}: name a local copy; {}", maverl_settings::lacks_feature!("hub")),
    )
}

/// Returns true if a text is a full commit hash.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns true if a text is one plain component of a path.
fn is_component(name: &str) -> bool {
    let mut chars = name.chars();
    !name.is_empty()
        && !name.starts_with('.')
        && chars.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_on_the_hub_are_read_and_nothing_else_is() {
        let id = HubId::parse("Qwen/Qwen2.5-0.5B").unwrap();
        assert_eq!(id.to_string(), "hf:Qwen/Qwen2.5-0.5B@main");
        assert_eq!(HubId::parse("a/b@refs/pr/1").unwrap().revision, "refs/pr/1");
        assert_eq!(HubId::parse("gpt2").unwrap().repo, "gpt2");
        for wrong in ["", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x", "a b", "/a", "a/"] {
            let told = HubId::parse(wrong).unwrap_err().to_string();
            assert!(told.contains("hf:ORG/NAME@REVISION"), "{told}");
        }
    }

    #[cfg(not(feature = "hub"))]
    #[test]
    fn without_the_feature_a_model_on_the_hub_is_an_error_that_names_it() {
        let endpoint = "http://127.0.0.1:9".to_owned();
        let cache = PathBuf::from("none");
        let hub = Hub { endpoint, cache, token: None, offline: false, patience_s: 1.0 };
        let told = hub.pin(&HubId::parse("a/b").unwrap()).unwrap_err().to_string();
        assert!(told.contains("lacks the feature `hub`: build it with `--features hub`"), "{told}");
    }

    fn snapshot(names: &[&str]) -> Snapshot {
        let file = |name: &&str| RemoteFile {
            name: (*name).to_owned(),
            size: None,
            sha256: None,
            blob: None,
        };
        let files = names.iter().map(file).collect();
        let (kind, commit) = (RepoKind::Model, "0".repeat(40));
        let (repo, dir) = ("a/b".to_owned(), PathBuf::new());
        Snapshot { kind, repo, commit, dir, files, is_of_cache: false }
    }

    #[test]
    fn pickled_weights_are_taken_where_there_are_no_safetensors() {
        let own = ["config.json", "tokenizer.json"];
        let weights = |names: &[&str]| {
            let snapshot = snapshot(&[&own, names].concat());
            snapshot.check().unwrap();
            let files = snapshot
                .weights()
                .map(|files| files.into_iter().map(|file| file.name.clone()).collect::<Vec<_>>());
            (snapshot.index(), files)
        };
        assert_eq!(weights(&[PICKLED]), (None, Ok(vec![PICKLED.to_owned()])));
        assert_eq!(weights(&[PICKLED, SINGLE]), (None, Ok(vec![SINGLE.to_owned()])));
        assert_eq!(weights(&[PICKLED_INDEX, SINGLE]), (None, Ok(vec![SINGLE.to_owned()])));
        assert_eq!(weights(&[PICKLED_INDEX, INDEX]).0, Some(INDEX));
        assert_eq!(
            weights(&[PICKLED_INDEX, "pytorch_model-00001-of-00002.bin"]).0,
            Some(PICKLED_INDEX)
        );
    }

    #[test]
    fn a_repository_without_weights_or_tokenizer_is_no_model() {
        let told = snapshot(&["config.json"]).check().unwrap_err();
        assert_eq!(told, "there is no `tokenizer.json`");
        let bin = snapshot(&["config.json", "tokenizer.json", "model.bin"]);
        let told = bin.check().unwrap_err();
        assert!(told.contains("`model.bin` is not read"), "{told}");
        let gguf = snapshot(&["config.json", "tokenizer.json", "a-Q4_K_M.gguf"]);
        let told = gguf.check().unwrap_err();
        assert!(told.contains("download `a-Q4_K_M.gguf`, and write its path"), "{told}");
        let fine = snapshot(&["config.json", "tokenizer.json", INDEX, "x.bin", "README.md"]);
        fine.check().unwrap();
        let names: Vec<&str> = fine.companions().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["config.json", "tokenizer.json"]);
    }
}
