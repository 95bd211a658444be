//! Configurations with every default written out.

use std::ops::Deref;

use serde::Serialize;

use super::Config;

/// A configuration with every default written out: it gives the same plan even if the defaults change. It can only be replaced
/// as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Resolved(Config);

impl Resolved {
    pub(crate) fn new(config: Config) -> Self {
        Self(config)
    }

    /// Returns the same with a change.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = self.0.clone();
        change(&mut config);
        Self(config)
    }
}

impl Deref for Resolved {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}
