//! Options of the server, and the bases that it trains on.

use std::path::PathBuf;

use maverl::runtime::TrainingHost;

/// Behavior of the server.
#[derive(Debug, Clone)]
pub struct TinkerSettings {
    /// Directory of checkpoints.
    pub out: PathBuf,
    /// Largest rank of an adapter.
    pub max_rank: usize,
    /// Numerator of the scale of adapters, `alpha / rank`.
    pub lora_alpha: f64,
    /// Maximum size of a request in bytes, unpacked.
    pub max_body: usize,
}

/// A base that clients train adapters on.
pub struct TrainedBase {
    /// Name in requests.
    pub name: String,
    /// Its thread: the place of the base, one for each model, and places for adapters that only generate.
    pub host: TrainingHost,
    /// Name on the hub or local directory, from which clients load the tokenizer.
    pub tokenizer: String,
    /// Largest number of models at once.
    pub max_models: usize,
}
