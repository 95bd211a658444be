//! Declarations that a run has chosen from the registry by name.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::settings::{OpenKind, TaggedConfig};

/// A registered name with its options, defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// The registered name.
    pub name: String,
    /// An object.
    pub options: Value,
}

/// A declared estimator or surrogate with its settings, ready to be called. Two are equal if name and settings are.
pub struct Instance<T: ?Sized> {
    /// The registered name, and the settings with their defaults.
    pub chosen: Chosen,
    /// The value that was built from them.
    pub value: Arc<T>,
}

impl<T: ?Sized> Clone for Instance<T> {
    fn clone(&self) -> Self {
        Self { chosen: self.chosen.clone(), value: Arc::clone(&self.value) }
    }
}

impl<T: ?Sized> fmt::Debug for Instance<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chosen.fmt(f)
    }
}

impl<T: ?Sized> PartialEq for Instance<T> {
    fn eq(&self, other: &Self) -> bool {
        self.chosen == other.chosen
    }
}

impl<T: ?Sized> Serialize for Instance<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.chosen.serialize(serializer)
    }
}

impl<T: ?Sized> OpenKind for Instance<T> {
    fn kind(&self) -> &str {
        &self.chosen.name
    }

    fn written(&self) -> TaggedConfig {
        TaggedConfig::new(&self.chosen.name, &self.chosen.options)
    }
}
