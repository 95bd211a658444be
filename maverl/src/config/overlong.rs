//! Handling of rows of supervised training that do not fit the context.
//!
//! `check/overlong.rs` counts them, and `train/supervised/fitting.rs` leaves them out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Row of supervised training that is longer than the context of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlongText {
    /// An error before the first step.
    #[default]
    Error,
    /// It is left out.
    Drop,
    /// The beginning of its prompt is cut; of a reply that is longer than the context alone, the end.
    Truncate,
}
