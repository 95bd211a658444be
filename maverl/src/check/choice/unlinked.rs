//! Help for orchestras and environments that are not linked into this program.

use crate::config::source::{did_you_mean, suggestion};
use crate::registry::has_feature;

/// Returns the orchestras and environments that need a feature of the program, with the feature, and whether it is there.
fn with_features() -> [(&'static str, &'static str, bool); 3] {
    [
        ("program/run", "serve", has_feature("serve")),
        ("grpc", "grpc", cfg!(feature = "grpc")),
        ("openenv", "openenv", cfg!(feature = "openenv")),
    ]
}

/// Returns the orchestras and environments that a program lacks because it was built without their feature, with the
/// feature.
pub fn lacking() -> Vec<(&'static str, &'static str)> {
    let lacking = with_features().into_iter().filter(|(_, _, there)| !there);
    lacking.map(|(name, feature, _)| (name, feature)).collect()
}

/// Returns help for an orchestra or environment of this name.
pub(super) fn link_help<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let lacks = with_features().into_iter().find(|(needs, _, there)| *needs == name && !there);
    if let Some((_, feature, _)) = lacks {
        return format!(
            "it needs the feature `{feature}`, which this program lacks: build it with `--features {feature}`"
        );
    }
    let crates = known.clone().filter_map(|known| known.split_once('/'));
    match name.split_once('/') {
        Some((of, _))
            if did_you_mean(name, known.clone()).is_none()
                && crates.clone().all(|(crate_, _)| crate_ != of) =>
        {
            format!(
                "{}; if another crate declares the {kind}, name that crate in `maverl::main!(..)`, or run its own program",
                suggestion(name, known)
            )
        }
        _ => suggestion(name, known),
    }
}
