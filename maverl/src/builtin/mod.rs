//! Built-in data: generated corpora and tasks that need no download.

pub mod arithmetic;
pub mod code;
mod document;
pub mod facts;
pub mod nli;
pub mod resets;
mod splits;
pub mod tools;

pub use document::Document;

use crate::task::Task;

/// Generates tasks of a built-in data source from another seed than that of the shipped tasks, by split. `None` for a
/// name without a generator.
pub fn invent(name: &str, seed: u64) -> Option<Vec<(&'static str, Vec<Task>)>> {
    match name {
        arithmetic::NAME => Some(arithmetic::invent(seed)),
        code::NAME => Some(code::invent(seed)),
        nli::NAME => Some(nli::invent(seed)),
        tools::NAME => Some(tools::invent(seed)),
        _ => None,
    }
}
