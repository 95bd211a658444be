//! Cargo features that bring crates above this one into a program.

/// Cargo feature of the command line that brings a crate above this one, or a part of it, into the program. That crate submits
/// it.
pub struct LinkedFeature(pub &'static str);

inventory::collect!(LinkedFeature);

/// Returns true if a linked crate submitted this feature.
pub fn has_feature(name: &str) -> bool {
    inventory::iter::<LinkedFeature>.into_iter().any(|linked| linked.0 == name)
}
