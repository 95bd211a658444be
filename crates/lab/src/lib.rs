//! Experiments and measurements, which are no part of the product. `cargo run --release -p maverl-lab --bin NAME` runs one.
//!
//! - `bench_servers`: measures the servers of `maverl serve`, the gateway, gRPC, and episodes of a team.
//! - `claims`: trains the arms of claims of papers with equal budgets, and compares them by seed.
//! - `environments`: trains each of the examples for a minute, and reports solved tasks before and after.
//! - `gradient_norms`: effect of unequal rewards on gradients with one baseline for all agents and with one for each.
//! - `learners`: trains every preset for a minute, and reports the improvement of each.
//! - `make_tiny`: generates `builtin:tiny`: tokenizer, random weights, supervised training on imperfect demonstrations.
//! - `make_generalist`: generates `builtin:generalist`: `builtin:tiny` trained on replies of every example's team in its
//!   environment.

pub mod games;
pub mod measure;
pub mod statistics;
pub mod teach;

use std::path::{Path, PathBuf};

/// Returns the folder of the examples.
pub fn examples_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    #[test]
    fn every_program_is_in_the_list_of_programs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let list = fs::read_to_string(root.join("lib.rs")).unwrap();
        for entry in fs::read_dir(root.join("bin")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(list.contains(&format!("//! - `{name}`")), "{name} is missing");
        }
    }
}
