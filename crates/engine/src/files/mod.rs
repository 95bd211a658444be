//! Files of models: Hugging Face directories, the hub, and models that the library contains.
//!
//! Types are exported here; the paths of the files that contain them may change.

pub mod blank;
pub mod builtin;
pub mod create;
mod describe;
mod encoder_config;
mod error;
mod flat_vectors;
#[cfg(feature = "candle")]
pub mod gguf;
#[doc(hidden)]
pub mod hf_config;
mod map;
#[doc(hidden)]
pub mod parts;
pub(crate) mod perturb;
pub(crate) mod pickle;
pub mod save;
mod sentence;
mod shapes;
#[doc(hidden)]
pub mod shards;
mod source;
pub(crate) mod stored;

pub use encoder_config::{EncoderActivation, EncoderConfig};
pub use error::{ModelError, ModelErrorKind};
pub use flat_vectors::{FlatMetric, FlatVectors, FlatWriter};
pub use hf_config::HfConfig;
pub use maverl_hub::{Hub, HubId, Snapshot};
#[doc(hidden)]
pub use maverl_hub::{open_file, read_file, weight_map};
pub use save::{SaveOptions, StoredDtype};
pub use sentence::{SentenceFiles, SentencePooling};
pub use shards::Shards;
pub use source::{ModelFiles, ModelSource};
