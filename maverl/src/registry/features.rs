//! Cargo features: those that bring crates above this one into a program, and those that declarations need.

/// Cargo feature of the command line that brings a crate above this one, or a part of it, into the program. That crate submits
/// it.
pub struct LinkedFeature(pub &'static str);

inventory::collect!(LinkedFeature);

/// Returns true if a linked crate submitted this feature.
pub fn has_feature(name: &str) -> bool {
    inventory::iter::<LinkedFeature>.into_iter().any(|linked| linked.0 == name)
}

/// An orchestra or environment that a program has only with a Cargo feature. Its module submits it with
/// [`behind_feature!`](crate::behind_feature), whether the program has the feature or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeatureGate {
    /// Name of the orchestra or environment.
    pub name: &'static str,
    /// Cargo feature that it needs.
    pub feature: &'static str,
    /// True if the program has the feature.
    pub is_built: bool,
}

inventory::collect!(FeatureGate);

/// Returns the orchestras and environments that this program lacks because it was built without their feature, by name.
pub fn lacking_gates() -> Vec<FeatureGate> {
    let gates = inventory::iter::<FeatureGate>.into_iter().copied();
    let mut lacking: Vec<FeatureGate> = gates.filter(|gate| !gate.is_built).collect();
    lacking.sort_unstable();
    lacking
}

/// Declares that an orchestra or environment of this crate needs a Cargo feature of it: `behind_feature!("NAME", "FEATURE")`.
///
/// Without the feature, messages about the name say which one to build with.
#[doc(hidden)]
#[macro_export]
macro_rules! behind_feature {
    ($name:literal, $feature:literal) => {
        $crate::__private::inventory::submit! {
            $crate::registry::FeatureGate {
                name: $name,
                feature: $feature,
                is_built: cfg!(feature = $feature),
            }
        }
    };
}
