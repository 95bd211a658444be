//! Checkpoints of models: directories with an adapter as PEFT writes it, its moments, and what the server knows of it.
//!
//! ```text
//! OUT/SESSION:train:N/weights/NAME/            adapter, optimizer.safetensors, tinker.json
//!                    /sampler_weights/NAME/    adapter, tinker.json
//! ```
//!
//! `tinker://SESSION:train:N/weights/NAME` is the address of the first. A directory is written under a temporary name, synced
//! and renamed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::results::RequestFailure;

/// Scheme of addresses.
const SCHEME: &str = "tinker://";
/// File with what the server knows of a checkpoint.
const FILE: &str = "tinker.json";
/// Longest name.
const LONGEST: usize = 128;

/// Kind of a checkpoint, the name of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckpointKind {
    /// To train on from.
    Weights,
    /// To sample from.
    Sampler,
}

impl CheckpointKind {
    fn folder(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Sampler => "sampler_weights",
        }
    }
}

/// Record of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CheckpointRecord {
    /// Version of this file.
    pub(super) protocol: u32,
    /// Name of the base.
    pub(super) base_model: String,
    /// Rank of the adapter.
    pub(super) lora_rank: usize,
    /// True if the maps of attention have adapters.
    pub(super) train_attn: bool,
    /// True if the maps of the MLP have adapters.
    pub(super) train_mlp: bool,
    /// Number of optimizer steps.
    pub(super) steps: u64,
    /// Metadata of the client.
    #[serde(default)]
    pub(super) user_metadata: Map<String, Value>,
}

/// Address of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckpointAddress {
    pub(super) model: String,
    pub(super) kind: CheckpointKind,
    pub(super) name: String,
}

impl CheckpointAddress {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub(super) fn read(text: &str) -> Result<Self, RequestFailure> {
        let parts = text.strip_prefix(SCHEME).map(|rest| rest.split('/').collect::<Vec<_>>());
        let found = match parts.as_deref() {
            Some([model, "weights", name]) => Some((model, CheckpointKind::Weights, name)),
            Some([model, "sampler_weights", name]) => Some((model, CheckpointKind::Sampler, name)),
            _ => None,
        };
        let found = found.filter(|(model, _, name)| is_name(model, true) && is_name(name, false));
        let Some((model, kind, name)) = found else {
            return Err(RequestFailure::user(format!(
                "`{text}` is no path of a checkpoint; write tinker://MODEL/weights/NAME or \
                 tinker://MODEL/sampler_weights/NAME"
            )));
        };
        Ok(Self { model: (*model).to_owned(), kind, name: (*name).to_owned() })
    }
}

impl std::fmt::Display for CheckpointAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, kind, name } = self;
        write!(f, "{SCHEME}{model}/{}/{name}", kind.folder())
    }
}

/// Returns true for a name that is one part of a path and no hidden file; names of models may have colons.
fn is_name(name: &str, colons: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || colons && c == ':';
    !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && name.chars().all(allowed)
}

/// Fails for a name that a checkpoint cannot have.
pub(super) fn check_name(name: &str) -> Result<(), RequestFailure> {
    if is_name(name, false) {
        return Ok(());
    }
    Err(RequestFailure::user(format!(
        "`{name}` is no name of a checkpoint; write up to {LONGEST} letters, digits, `.`, `_` and `-`, and no `.` in front"
    )))
}

/// Checkpoints below a directory.
#[derive(Debug, Clone)]
pub(super) struct CheckpointStore(pub(super) PathBuf);

/// A directory that is written.
pub(super) struct CheckpointDraft {
    pub(super) dir: PathBuf,
    to: PathBuf,
    overwrite: bool,
}

impl CheckpointStore {
    /// Returns the directory of a checkpoint.
    fn directory(&self, address: &CheckpointAddress) -> PathBuf {
        self.0.join(&address.model).join(address.kind.folder()).join(&address.name)
    }

    /// Returns the directory of a checkpoint that is there, and its description.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn find(
        &self,
        address: &CheckpointAddress,
    ) -> Result<(PathBuf, CheckpointRecord), RequestFailure> {
        let dir = self.directory(address);
        let text = match fs::read(dir.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message =
                    format!("there is no checkpoint `{address}` below the `--out` of this server");
                return Err(RequestFailure::user(message));
            }
            Err(error) => {
                return Err(RequestFailure::server(format!("`{address}` cannot be read: {error}")));
            }
        };
        let description = serde_json::from_slice(&text);
        let description = description
            .map_err(|error| RequestFailure::server(format!("{} of `{address}`: {error}", FILE)))?;
        Ok((dir, description))
    }

    /// Creates an empty directory for a checkpoint, beside the place that it gets.
    ///
    /// # Errors
    ///
    /// If there is a checkpoint of this name that may not be overwritten, or the directory cannot be created.
    pub(super) fn draft(
        &self,
        address: &CheckpointAddress,
        overwrite: bool,
    ) -> Result<CheckpointDraft, RequestFailure> {
        let to = self.directory(address);
        if to.exists() && !overwrite {
            return Err(RequestFailure::user(format!(
                "there is a checkpoint `{address}`; take another name, or overwrite it"
            )));
        }
        let dir = to.with_file_name(format!(".{}.tmp", address.name));
        let made = remove(&dir).and_then(|()| fs::create_dir_all(&dir));
        made.map_err(|error| {
            RequestFailure::server(format!("`{address}` cannot be written: {error}"))
        })?;
        Ok(CheckpointDraft { dir, to, overwrite })
    }
}

impl CheckpointDraft {
    /// Writes the description, and gives the directory its name.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub(super) fn finish(self, description: &CheckpointRecord) -> Result<PathBuf, RequestFailure> {
        let to = self.to.clone();
        self.write(description).map_err(|error| {
            RequestFailure::server(format!("{} cannot be written: {error}", to.display()))
        })?;
        Ok(to)
    }

    fn write(self, description: &CheckpointRecord) -> io::Result<()> {
        let Self { dir, to, overwrite } = self;
        fs::write(dir.join(FILE), serde_json::to_vec(description)?)?;
        for entry in fs::read_dir(&dir)? {
            File::open(entry?.path())?.sync_all()?;
        }
        File::open(&dir)?.sync_all()?;
        if overwrite {
            remove(&to)?;
        }
        fs::rename(&dir, &to)?;
        to.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }
}

/// Removes a directory, if it is there.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_has_a_model_a_kind_and_a_name() {
        let text = "tinker://s-1:train:0/weights/step-10";
        let address = CheckpointAddress::read(text).unwrap();
        assert_eq!((address.kind, address.name.as_str()), (CheckpointKind::Weights, "step-10"));
        assert_eq!(address.to_string(), text);
        for wrong in [
            "tinker://a/weights/../b",
            "tinker://../weights/b",
            "tinker://a/weights/.b",
            "tinker://a/other/b",
            "tinker://a/weights/b/c",
            "tinker:///weights/b",
            "/etc/passwd",
        ] {
            let failure = CheckpointAddress::read(wrong).unwrap_err();
            assert!(failure.by_user && failure.message.contains(wrong), "{failure:?}");
        }
        assert!(check_name("step-10").is_ok());
        assert!(check_name("a/b").is_err() && check_name("").is_err());
    }

    #[test]
    fn a_checkpoint_is_there_once_it_is_whole() {
        let out = tempfile::tempdir().unwrap();
        let checkpoints = CheckpointStore(out.path().to_owned());
        let address = CheckpointAddress::read("tinker://m/weights/a").unwrap();
        assert!(checkpoints.find(&address).unwrap_err().by_user);
        let description = CheckpointRecord {
            protocol: 1,
            base_model: "tiny".to_owned(),
            lora_rank: 8,
            train_attn: true,
            train_mlp: true,
            steps: 3,
            user_metadata: Map::new(),
        };
        let draft = checkpoints.draft(&address, false).unwrap();
        fs::write(draft.dir.join("x"), "y").unwrap();
        assert!(checkpoints.find(&address).is_err(), "it is not whole");
        let dir = draft.finish(&description).unwrap();
        assert_eq!(checkpoints.find(&address).unwrap(), (dir.clone(), description.clone()));
        assert!(checkpoints.draft(&address, false).err().unwrap().message.contains("overwrite"));
        checkpoints.draft(&address, true).unwrap().finish(&description).unwrap();
        assert!(!dir.join("x").exists());
    }
}
