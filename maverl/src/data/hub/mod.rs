//! Data sets on the Hugging Face hub, by their name.
//!
//! ```text
//! hf:ORG/NAME ─► HubName ─► HubData: a commit, and the files of each split ─► files in the cache
//! ```

mod card;
mod find;
mod layout;
mod name;
mod presets;

pub use find::{HubData, find_data};
pub use name::{HubName, is_hub};
pub(super) use presets::with_preset;
pub use presets::{Preset, preset};
