//! The neural network: weights, decoder, adapters and heads, forward and backward.
//!
//! Types are exported here; the paths of the files that contain them may change.

mod bert;
mod blocks;
mod copies;
#[doc(hidden)]
pub mod decoder;
#[doc(hidden)]
pub mod experts;
mod forest;
mod generation;
#[cfg(feature = "candle")]
mod gguf;
#[doc(hidden)]
pub mod gradients;
#[doc(hidden)]
pub mod heads;
#[doc(hidden)]
pub mod kv;
mod linear;
pub mod lora;
#[doc(hidden)]
pub mod memory;
mod model;
mod norm;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod pool;
#[doc(hidden)]
pub mod reward;
mod rows;
#[doc(hidden)]
pub mod tape;
mod units;
#[doc(hidden)]
pub mod values;
#[doc(hidden)]
pub mod weights;

pub use bert::BertModel;
pub use decoder::{Context, Decoder};
pub(crate) use forest::{Forest, PackedForest};
#[cfg(feature = "candle")]
pub use gguf::{GgufOptions, GgufReport};
pub use gradients::Gradients;
pub(crate) use gradients::PendingSums;
pub use heads::{HeadKind, ValueHead, ValueModel};
pub use kv::KvStore;
pub use lora::{Adapter, LoraConfig};
pub use model::{Model, decoder};
pub use pool::Pool;
pub use reward::{RewardHead, RewardModel, reply_ids, reply_odds, scored_ids};
pub use rows::Rows;
pub(crate) use tape::RoutedTokens;
pub use tape::Tape;
pub(crate) use units::{decoder_over, parts_in, unit_places};
pub use values::{Param, Params, Tensor};
pub use weights::Weights;

#[cfg(test)]
pub(crate) mod tests;
