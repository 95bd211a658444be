//! What a run was made of, besides its configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a run was made of, besides its configuration. No clock and no path: equal runs have equal provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Of maverl.
    pub version: String,
    /// SHA-256 of the tasks of each split that is used, as JSON.
    pub data: BTreeMap<String, String>,
    /// Fingerprint of each policy's starting weights.
    pub weights: BTreeMap<String, String>,
    /// What the numbers were computed on.
    pub device: String,
    /// Threads of the numeric kernels. Results do not depend on it.
    pub threads: usize,
}

impl Provenance {
    /// Adds a line for each difference that makes another run of it. Version and machine do not, nor do the splits that
    /// `ignored` names.
    pub(super) fn differences(
        &self,
        now: &Self,
        ignored: impl Fn(&str) -> bool,
        lines: &mut Vec<String>,
    ) {
        let parts = [("data", &self.data, &now.data), ("weights", &self.weights, &now.weights)];
        for (part, then, now) in parts {
            let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
            names.sort();
            names.dedup();
            names.retain(|name| part != "data" || !ignored(name));
            for name in names.into_iter().filter(|name| then.get(*name) != now.get(*name)) {
                let hash =
                    |hash: Option<&String>| hash.map_or("none".to_owned(), |hash| short(hash));
                let (then, now) = (hash(then.get(name)), hash(now.get(name)));
                lines.push(format!("{part} of `{name}` had hash {then}, has {now}"));
            }
        }
    }
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}
