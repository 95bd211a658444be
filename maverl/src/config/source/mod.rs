//! Reading of a configuration: its sources, and everything that is wrong in their text.
//!
//! ```text
//! Sources ─► Layers (values with positions) ─► Written (a typed configuration) ─► check
//!                    └─► Problems (messages with positions) ─► Diagnostic ─► render
//! ```
//!
//! A file in TOML (`file`, `syntax`) or YAML (`yaml`), or one in the program (`shipped`), variables of the environment and `--set`
//! (`assignment`) are one layer each. `load` reads the merged layers, and takes out what is wrong: unknown keys and wrong types (`wrong`, `alias`), keys of
//! another `kind` (`tagged`), numbers out of their range (`values`), secrets (`secrets`).

pub mod alias;
mod assignment;
mod diagnostic;
mod excerpt;
mod file;
mod kinds;
mod layer;
mod layers;
mod load;
mod merged;
pub mod missing;
mod names;
mod problems;
mod render;
mod secrets;
mod shipped;
mod sources;
mod syntax;
mod tagged;
mod toml_value;
mod types;
mod unread;
mod values;
mod written;
mod wrong;
mod yaml;

pub use diagnostic::Diagnostic;
#[cfg(test)]
pub(crate) use excerpt::{Excerpt, SourceText};
pub use file::irregular_kind;
pub use merged::file_table;
pub use names::{did_you_mean, snake_case};
pub(crate) use names::{key, list, path, path_within, suggestion};
pub(crate) use problems::{Problems, read_layers};
pub use render::{render, render_within};
pub use shipped::{Shipped, ShippedFile, ShippedFiles, ShippedName, config_stem, shipped_configs};
pub use sources::{File, Sources};
pub(crate) use tagged::DeclaredKinds;
pub use types::{type_of, type_of_option};
pub(crate) use values::empty_modules;
pub(crate) use written::{Written, read_settings};
pub(crate) use wrong::{home_of, option_help, plain_type};
