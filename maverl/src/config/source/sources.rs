//! Sources of a configuration: a file, variables of the environment, and assignments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::shipped::{Shipped, ShippedName, plain_path};

/// Sources of a configuration. Later fields override earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Configuration file, if any.
    pub file: Option<File>,
    /// Environment variables; those that start with `MAVERL_` are keys (`MAVERL_RUNTIME__THREADS=2`).
    pub env: Vec<(String, String)>,
    /// Assignments of `--set key=value`.
    pub set: Vec<String>,
    /// Verifiers that earlier stages of a file of stages will write, by the names of the stages, with the keys of the questions
    /// that each is trained on. A reward names one as `stage:NAME`.
    pub verifiers: BTreeMap<String, BTreeSet<String>>,
}

/// A configuration file.
#[derive(Debug, Clone)]
pub enum File {
    /// A file on disk; relative paths in it are relative to its directory.
    Path(PathBuf),
    /// A configuration that the program brings, by name.
    Shipped(ShippedName),
    /// A text that is already read, or embedded.
    Text {
        /// Name in messages.
        name: String,
        /// Content of the file.
        text: String,
        /// Directory that relative paths in it are relative to.
        base: PathBuf,
    },
}

impl File {
    /// Returns the file at a path, or the configuration with a name, such as `example:single`.
    pub fn named_file(given: PathBuf) -> Self {
        ShippedName::parse(&given).map_or_else(|| Self::Path(given), Self::Shipped)
    }
}

impl Sources {
    /// Returns the file at a path, or the configuration with a name such as `example:single`, and this process's environment.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(File::named_file(path.into())), ..Self::environment() }
    }

    /// Returns this process's environment alone.
    pub fn environment() -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { env, ..Self::default() }
    }

    /// Returns a configuration that is already read, or embedded; relative paths in it are relative to `base`.
    #[must_use]
    pub fn text(
        mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        base: impl Into<PathBuf>,
    ) -> Self {
        self.file = Some(File::Text { name: name.into(), text: text.into(), base: base.into() });
        self
    }

    /// Adds `key=value`, as `--set` does.
    #[must_use]
    pub fn with(mut self, assignment: impl Into<String>) -> Self {
        self.set.push(assignment.into());
        self
    }

    /// Returns the directory that relative paths are relative to, for a configuration with this `base`.
    pub(crate) fn base(&self, base: Option<&str>) -> PathBuf {
        let own = match &self.file {
            Some(File::Path(path)) => path.parent().map(Path::to_path_buf).unwrap_or_default(),
            Some(File::Text { base, .. }) => base.clone(),
            Some(File::Shipped(name)) => {
                name.find().map(|shipped: Shipped| shipped.base()).unwrap_or_default()
            }
            None => PathBuf::new(),
        };
        let Some(base) = base else { return own };
        let dir = own.join(base);
        // A directory that does not exist may be one of the repository, which a shipped configuration counts from.
        // A missing file is reported later.
        dir.canonicalize().unwrap_or_else(|_| plain_path(&dir))
    }
}
