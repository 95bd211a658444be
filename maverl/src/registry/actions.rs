//! Names of actions: those that orchestras send, and those that environments understand.

use super::{EnvironmentEntry, OrchestraEntry};

/// Action name of an orchestra that acts with whatever the environment understands, and of an environment that hands actions on
/// to a server, which alone knows what it understands.
pub const ANY: &str = "any";

/// Returns true if a list of names includes an action; [`ANY`] is included in each that is not empty.
pub fn includes<T: AsRef<str>>(names: &[T], need: &str) -> bool {
    names.iter().any(|name| name.as_ref() == need) || need == ANY && !names.is_empty()
}

impl EnvironmentEntry {
    /// Returns true if it understands actions of this name, as far as its declaration says.
    pub fn understands(&self, need: &str) -> bool {
        self.declares(need) || self.offers.contains(&ANY)
    }

    /// Returns true if it declares actions of this name.
    pub fn declares(&self, need: &str) -> bool {
        includes(self.offers, need)
    }
}

impl OrchestraEntry {
    /// Returns true if the environment understands all actions that the orchestra sends.
    pub fn fits(&self, environment: &EnvironmentEntry) -> bool {
        self.needs.iter().all(|need| environment.understands(need))
    }
}
