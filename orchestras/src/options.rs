//! Robustness of integer options of orchestras and environments: large values never end the process.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use maverl::orchestra::MOST_SEATS;
use maverl::registry::Registry;
use serde_json::{Value, json};

const LARGE: [i64; 4] = [1 << 21, u32::MAX as i64, 1 << 53, i64::MAX];

/// Returns every integer option alone, with each of the large values.
fn options(defaults: &Value) -> Vec<Value> {
    let whole = defaults.as_object().unwrap().iter().filter(|(_, value)| value.is_u64());
    whole.flat_map(|(name, _)| LARGE.map(|number| json!({ name: number }))).collect()
}

#[test]
fn an_orchestra_has_no_more_seats_than_there_may_be() {
    let registry = Registry::collect().unwrap();
    let mut tried = 0;
    for (name, entry) in &registry.orchestras {
        for options in options(&(entry.declaration.defaults)()) {
            let Ok(orchestra) = (entry.build)(&options) else { continue };
            let members = orchestra.members();
            let most = usize::try_from(MOST_SEATS).unwrap() + 8;
            assert!(members.len() <= most, "{name} with {options}: {}", members.len());
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn an_environment_starts_or_refuses_whatever_its_counts() {
    let registry = Registry::collect().unwrap();
    let mut tried = 0;
    for entry in registry.environments.values() {
        for options in options(&(entry.declaration.defaults)()) {
            // A rejected value is as good as an accepted one.
            let _ = (entry.start)(&options, Path::new(""));
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}
