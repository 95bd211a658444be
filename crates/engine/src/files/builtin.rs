//! Models that ship with the library: those of the crate `maverl-models`, with the feature `models`.

#[cfg(any(test, feature = "models"))]
pub use maverl_models::{FILES, NAMES, model_file};

/// Names that `path = "builtin:NAME"` may have.
#[cfg(not(any(test, feature = "models")))]
pub const NAMES: &[&str] = &[];

/// Files of a shipped model.
#[cfg(not(any(test, feature = "models")))]
pub const FILES: &[&str] = &[];

/// Returns a file of a shipped model.
#[cfg(not(any(test, feature = "models")))]
pub fn model_file(_model: &str, _name: &str) -> Option<&'static [u8]> {
    None
}

/// Returns the reason why no shipped model has a name, with what to write instead.
pub fn unknown_model(name: &str) -> String {
    match NAMES {
        [] => format!(
            "`builtin:{name}` is not in this program; compile it with the feature `models` of `maverl-engine`"
        ),
        names => format!(
            "no built-in model is called {name:?}; there is `builtin:{}`",
            names.join("`, `builtin:")
        ),
    }
}
