//! Help for orchestras and environments that are not linked into this program.

use crate::config::source::{did_you_mean, suggestion};
use crate::registry::lacking_gates;

/// Returns help for an orchestra or environment of this name.
pub(super) fn link_help<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    if let Some(gate) = lacking_gates().into_iter().find(|gate| gate.name == name) {
        let feature = gate.feature;
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
