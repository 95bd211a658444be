//! Provenance of a run: everything besides its configuration that its results depend on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything besides the configuration that the results of a run depend on. It has no clock and no path: equal runs
/// have equal provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of maverl.
    pub version: String,
    /// SHA-256 of the tasks of each used split, as JSON.
    pub data: BTreeMap<String, String>,
    /// SHA-256 of each data file, by the name that the configuration has for it. A run may be resumed with other files if the
    /// tasks of the used splits are the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Fingerprint of each policy's starting weights.
    pub weights: BTreeMap<String, String>,
    /// Device of the computations.
    pub device: String,
    /// Number of threads of the numeric kernels. Results do not depend on it.
    pub threads: usize,
    /// Number of ranks. Sums of gradients of other numbers differ by rounding.
    #[serde(default = "one_rank", skip_serializing_if = "is_one")]
    pub ranks: usize,
    /// False if results of a device depend on which requests share a pass, in their last bits.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub exact: bool,
}

fn yes() -> bool {
    true
}

fn is_yes(exact: &bool) -> bool {
    *exact
}

fn one_rank() -> usize {
    1
}

fn is_one(ranks: &usize) -> bool {
    *ranks == 1
}

impl Provenance {
    /// Adds a line for each difference that changes the run. Version and machine do not change it, nor does data whose
    /// name begins with `ignored`.
    pub(super) fn differences(&self, now: &Self, ignored: Option<&str>, lines: &mut Vec<String>) {
        let parts = [("data", &self.data, &now.data), ("weights", &self.weights, &now.weights)];
        for (part, then, now) in parts {
            let mut names: Vec<&String> = then.keys().chain(now.keys()).collect();
            names.sort();
            names.dedup();
            let ignored = ignored.filter(|_| part == "data");
            names.retain(|name| ignored.is_none_or(|ignored| !name.starts_with(ignored)));
            for name in names.into_iter().filter(|name| then.get(*name) != now.get(*name)) {
                let [then, now] = [then.get(name), now.get(name)].map(short_hash);
                lines.push(format!("{part} of `{name}` had hash {then}, has {now}"));
            }
        }
    }
}

fn short_hash(hash: Option<&String>) -> String {
    hash.map_or("none", String::as_str).chars().take(12).collect()
}
