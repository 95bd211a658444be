//! Where a model's files come from: a Hugging Face directory, or the library itself.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;

use crate::model::ModelError;
use crate::model::builtin;

/// Where a model's weights come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSource {
    /// Embedded in the library.
    Builtin(String),
    /// A Hugging Face directory, as it is opened from the working directory.
    Directory(PathBuf),
}

/// A file of a model, by name.
pub struct ModelFiles {
    source: ModelSource,
}

impl ModelFiles {
    /// The files of a source.
    pub fn new(source: &ModelSource) -> Self {
        Self { source: source.clone() }
    }

    /// What messages call it.
    pub fn describe(&self) -> String {
        match &self.source {
            ModelSource::Builtin(name) => format!("builtin:{name}"),
            ModelSource::Directory(dir) => dir.display().to_string(),
        }
    }

    /// The directory, unless it is embedded.
    pub fn directory(&self) -> Option<&PathBuf> {
        match &self.source {
            ModelSource::Builtin(_) => None,
            ModelSource::Directory(dir) => Some(dir),
        }
    }

    /// The content of a file, `None` if it is not there.
    ///
    /// # Errors
    ///
    /// If it is there but cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        match &self.source {
            ModelSource::Builtin(model) => Ok(builtin::file(model, name).map(Cow::Borrowed)),
            ModelSource::Directory(dir) => {
                let path = dir.join(name);
                match std::fs::read(&path) {
                    Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(ModelError(format!("{}: {error}", path.display()))),
                }
            }
        }
    }

    /// The content of a file that must be there.
    ///
    /// # Errors
    ///
    /// If it is not there or cannot be read.
    pub fn require(&self, name: &str) -> Result<Cow<'static, [u8]>, ModelError> {
        if let Some(dir) = self.directory().filter(|dir| !dir.is_dir()) {
            return Err(ModelError(format!(
                "{} is not a directory; `path` names a Hugging Face model directory",
                dir.display()
            )));
        }
        self.read(name)?.ok_or_else(|| ModelError(format!("{} has no `{name}`", self.describe())))
    }
}
