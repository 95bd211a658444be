//! Settings that are declared once, by `#[derive(Settings)]`: the traits that the derive implements, and what they use.
//!
//! The declaration of a key has its documentation, default, range and level. The crate contains no declarations of its own.
//!
//! Generated code has the path `::maverl::settings`. A crate below `maverl` names this one `settings` at its root, and
//! derives with `#[settings(crate = crate)]`.
#![warn(missing_docs)]

/// Message about a feature that this program lacks, and how to build it with the feature, which a crate names at a
/// dependency (`maverl` if none is given).
#[doc(hidden)]
#[macro_export]
macro_rules! lacks_feature {
    ($feature:literal) => {
        $crate::lacks_feature!($feature, "maverl")
    };
    ($feature:literal, $dependency:literal) => {
        concat!(
            "this program lacks the feature `",
            $feature,
            "`: build it with `--features ",
            $feature,
            "` in a clone of maverl, or in your crate with `features = [\"",
            $feature,
            "\"]` of the dependency `",
            $dependency,
            "`"
        )
    };
}

mod description;
mod key;
mod range;
mod read;
mod tagged;
mod tagged_list;
#[cfg(test)]
mod tests;

use serde::{Serialize, Serializer};
use serde_json::Value;

// The path of generated code in the tests of this crate.
#[cfg(test)]
use crate as settings;

#[doc(hidden)]
pub use description::Description;
#[doc(hidden)]
pub use key::{Idle, Key};
pub use maverl_macros::Settings;
#[doc(hidden)]
pub use range::{Bound, Numbers, OutOfRange, Range};
#[doc(hidden)]
pub use read::read;
pub use tagged::{NoKeys, OpenKind, TableKind, Tagged, TaggedConfig};
pub use tagged_list::TaggedListConfig;

/// Crates that generated code uses.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;
}

#[doc(hidden)]
pub use serde_json::Value as Json;

/// A table as users write it; implemented by the derive.
#[doc(hidden)]
pub trait Table {
    /// Name of the type.
    const NAME: &'static str;

    /// Every key, in the order of declaration.
    const KEYS: &'static [Key];

    /// Defaults by key, those of tables inside as objects.
    fn defaults() -> Value;

    /// Numbers out of their range, those of tables inside as well.
    fn out_of_range(&self) -> Vec<OutOfRange>;
}

/// Resolved settings; implemented by the derive for a struct with a partial form.
pub trait Settings: Default + Sized {
    /// The form that users write: keys that are left out are inherited.
    type Partial: Table + Default + PartialEq + Serialize;

    /// Values of `ours`, and where one is left out, that of `base`.
    fn over(ours: &Self::Partial, base: &Self::Partial) -> Self::Partial;

    /// Values of `partial`, and where one is left out, that of `default`.
    fn resolve(partial: &Self::Partial, default: Self) -> Self;

    /// The same as a user would write it.
    fn written(&self) -> Self::Partial;
}

/// A table that may be left out.
impl<T: Table> Table for Option<T> {
    const NAME: &'static str = T::NAME;

    const KEYS: &'static [Key] = T::KEYS;

    fn defaults() -> Value {
        T::defaults()
    }

    fn out_of_range(&self) -> Vec<OutOfRange> {
        self.as_ref().map(T::out_of_range).unwrap_or_default()
    }
}

/// A table as JSON.
#[doc(hidden)]
pub fn json<T: Serialize>(table: &T) -> Value {
    serde_json::to_value(table).unwrap_or_default()
}

/// Returns true if nothing is written.
#[doc(hidden)]
pub fn is_empty<P: Default + PartialEq>(partial: &P) -> bool {
    *partial == P::default()
}

/// Writes an `f32` as the shortest decimal that reads back as it: 0.8, not 0.800000011920929.
///
/// # Errors
///
/// Those of the serializer.
#[doc(hidden)]
pub fn shortest_decimal<S: Serializer>(
    value: &Option<f32>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value
        .map(|value| value.to_string().parse::<f64>().unwrap_or(f64::from(value)))
        .serialize(serializer)
}
