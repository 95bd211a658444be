//! Pages about runs: `maverl view`, a read-only server on the loopback address, or one file; `maverl show` and `maverl
//! extract`.
//!
//! - `report` reads the directory of a run and returns data: values of JSON and sentences. It has no HTTP.
//! - `pages` serves them, with the listener and the guard of maverl's servers, and writes pages without a server.
//! - [`extract_part()`] writes parts of a run in the formats of other programs; [`show_episodes`] prints episodes.
//!
//! Nothing is ever written into a run, and no path of a request is ever the path of a file: runs have names in a list, and
//! stages of episodes are a fixed list.
#![cfg_attr(test, allow(clippy::disallowed_methods))] // tests compare with the functions of the C library

#[macro_use]
mod json;

mod compact;
mod extract;
mod pages;
mod report;
#[cfg(test)]
mod tests;

pub use extract::show::{Detail, ShowError, ShownEpisodes, show_episodes, show_json};
pub use extract::{ExtractError, ExtractFormat, ExtractPart, extract_part};
pub use pages::offline::{PageChoice, PageError, PageSummary};
pub use pages::serve::serve_pages;
pub use pages::viewer::Viewer;
pub use report::watched::notices_of;

inventory::submit!(maverl::registry::LinkedFeature("view"));
