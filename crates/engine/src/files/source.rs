//! Sources of model files: a Hugging Face directory, the hub, or the library itself.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use maverl_hub::{Hub, HubId, Snapshot, read_file};
use serde::Serialize;

use crate::files::builtin;
#[cfg(feature = "candle")]
use crate::files::gguf::{self, GgufFile};
use crate::files::{ModelError, ModelErrorKind};

/// Source of a model's weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSource {
    /// A model embedded in the library.
    Builtin(String),
    /// A Hugging Face directory; a relative path is relative to the working directory.
    Directory(PathBuf),
    /// A GGUF file; a relative path is relative to the working directory.
    Gguf(PathBuf),
    /// A commit of a repository on the hub. It is in the local cache after [`fetch`](ModelSource::fetch).
    Hub(Snapshot),
}

impl ModelSource {
    /// Returns the source of a path: a GGUF file, by the end of its name, or a directory.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        if named && !path.is_dir() { Self::Gguf(path) } else { Self::Directory(path) }
    }

    /// Parses a path of the command line: `builtin:NAME`, `hf:ORG/NAME`, `hf:ORG/NAME@REVISION`, a GGUF file or a directory. A
    /// repository on the hub is pinned to a commit, see [`Hub::pin`].
    ///
    /// # Errors
    ///
    /// If no built-in model has the name, or the hub has no such model.
    pub fn parse(path: &str) -> Result<Self, ModelError> {
        if let Some(name) = path.strip_prefix("builtin:") {
            return if builtin::NAMES.contains(&name) {
                Ok(Self::Builtin(name.to_owned()))
            } else {
                Err(ModelError::new(ModelErrorKind::NotFound, builtin::unknown_model(name)))
            };
        }
        match path.strip_prefix("hf:") {
            Some(id) => Ok(Self::Hub(Hub::from_env()?.pin(&HubId::parse(id)?)?)),
            None => Ok(Self::at(path)),
        }
    }

    /// Downloads missing files of a source on the hub. Other sources need none.
    ///
    /// # Errors
    ///
    /// See [`Hub::download`].
    pub fn fetch(&self) -> Result<(), ModelError> {
        match self {
            Self::Builtin(_) | Self::Directory(_) | Self::Gguf(_) => Ok(()),
            Self::Hub(snapshot) => Ok(Hub::from_env()?.download(snapshot)?),
        }
    }
}

/// Writes the source in the form that users write.
impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::Directory(path) | Self::Gguf(path) => path.display().fmt(f),
            Self::Hub(snapshot) => snapshot.fmt(f),
        }
    }
}

/// Files of a model, by name.
pub struct ModelFiles {
    source: ModelSource,
    /// GGUF file, once it is opened.
    #[cfg(feature = "candle")]
    gguf: std::sync::OnceLock<Result<GgufFile, ModelError>>,
}

impl ModelFiles {
    /// Returns the files of a source; of one on the hub, those in the local cache.
    pub fn new(source: &ModelSource) -> Self {
        Self {
            source: source.clone(),
            #[cfg(feature = "candle")]
            gguf: std::sync::OnceLock::new(),
        }
    }

    /// Returns the name used in messages.
    pub fn describe(&self) -> String {
        self.source.to_string()
    }

    /// Returns the GGUF file, if the source is one.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    #[cfg(feature = "candle")]
    pub(crate) fn gguf(&self) -> Result<Option<&GgufFile>, ModelError> {
        let ModelSource::Gguf(path) = &self.source else { return Ok(None) };
        let opened = self.gguf.get_or_init(|| GgufFile::open(path));
        opened.as_ref().map(Some).map_err(Clone::clone)
    }

    /// Returns the content of a file of the model in a GGUF file.
    #[cfg(feature = "candle")]
    fn read_gguf(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        self.gguf()?.map_or(Ok(None), |file| gguf::content(file, name))
    }

    #[cfg(not(feature = "candle"))]
    fn read_gguf(&self, _: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        let lacks = maverl_settings::lacks_feature!("candle");
        let message = format!("{} is a GGUF file: {lacks}", self.describe());
        Err(ModelError::new(ModelErrorKind::Argument, message))
    }

    /// Returns the path of the model's directory or file, or `None` for an embedded model.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.source {
            ModelSource::Gguf(path) => Some(path),
            _ => self.directory(),
        }
    }

    /// Returns the directory, or `None` for a GGUF file or an embedded model.
    pub fn directory(&self) -> Option<&PathBuf> {
        match &self.source {
            ModelSource::Builtin(_) | ModelSource::Gguf(_) => None,
            ModelSource::Directory(dir) => Some(dir),
            ModelSource::Hub(snapshot) => Some(&snapshot.dir),
        }
    }

    /// Returns true if the files are those that a cache has, of a repository on the hub whose list of files is not known.
    pub fn is_of_cache(&self) -> bool {
        matches!(&self.source, ModelSource::Hub(snapshot) if snapshot.is_of_cache())
    }

    /// Returns the content of a file, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If it exists but cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        let dir = match &self.source {
            ModelSource::Builtin(model) => {
                return Ok(builtin::model_file(model, name).map(Cow::Borrowed));
            }
            ModelSource::Gguf(_) => return self.read_gguf(name),
            ModelSource::Directory(dir) => dir,
            ModelSource::Hub(snapshot) => &snapshot.dir,
        };
        let path = dir.join(name);
        match read_file(&path) {
            Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ModelError::at_path(&path, error)),
        }
    }

    /// Returns the names of the files in a folder of the directory, as [`ModelFiles::read`] takes them, sorted. The
    /// list is empty if the folder does not exist.
    ///
    /// # Errors
    ///
    /// If it exists but cannot be listed.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, ModelError> {
        let Some(path) = self.directory().map(|dir| dir.join(folder)).filter(|path| path.is_dir())
        else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|e| ModelError::at_path(&path, e))? {
            let entry = entry.map_err(|e| ModelError::at_path(&path, e))?;
            if let Some(name) = entry.file_name().to_str().filter(|_| entry.path().is_file()) {
                names.push(format!("{folder}/{name}"));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the content of a required file.
    ///
    /// # Errors
    ///
    /// If it does not exist or cannot be read.
    pub fn require(&self, name: &str) -> Result<Cow<'static, [u8]>, ModelError> {
        if let Some(dir) = self.directory().filter(|dir| !dir.is_dir()) {
            return Err(ModelError::new(
                ModelErrorKind::NotFound,
                format!(
                    "{} is not a directory; `path` names a Hugging Face model directory",
                    dir.display()
                ),
            ));
        }
        self.read(name)?.ok_or_else(|| {
            ModelError::new(
                ModelErrorKind::NotFound,
                format!("{} has no `{name}`", self.describe()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_that_are_not_regular_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::fs::create_dir(path("directory")).unwrap();
        for (name, target) in [("zero", "/dev/zero"), ("null", "/dev/null"), ("link", "pipe")] {
            std::os::unix::fs::symlink(target, path(name)).unwrap();
        }
        for name in ["pipe", "socket", "directory", "zero", "null", "link"] {
            let files = ModelFiles::new(&ModelSource::Directory(home.path().to_owned()));
            assert!(files.require(name).is_err(), "{name}");
        }
    }
}
