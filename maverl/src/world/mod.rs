//! Built-in worlds: generated corpora and tasks that need no download.

mod draw;
pub mod facts;

pub use draw::Draw;

use serde::{Deserialize, Serialize};

/// A document of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Unique in its corpus; breaks ties between equally good matches.
    pub key: String,
    /// May be empty.
    pub title: String,
    /// What it says.
    pub text: String,
}
