//! Directories that adapters start from.

use std::path::{Path, PathBuf};

use crate::config::ModelConfig;
use crate::config::source::missing::{self, WantedEntry};
use crate::config::source::{Problems, path};
use crate::files::HfConfig;
use crate::net::{LoraConfig, lora};

/// Adapter that the adapters on a model start from.
pub(crate) struct AdapterStart {
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Its settings, as the directory has them.
    pub(crate) lora: LoraConfig,
    /// Reason why its weights do not fit the model, if they do not.
    pub(crate) unfit: Option<String>,
}

impl AdapterStart {
    /// Compares the weights with the shape of the model.
    pub(crate) fn compare_shape(self, shape: &HfConfig) -> Self {
        let unfit = lora::inspect(&self.dir, shape).err().map(|error| error.to_string());
        Self { unfit, ..self }
    }
}

/// Returns the adapter that adapters on a model start from; an unreadable one is reported.
pub(super) fn start_adapter(
    name: &str,
    model: &ModelConfig,
    base: &Path,
    problems: &mut Problems<'_>,
) -> Option<AdapterStart> {
    let given = Path::new(model.adapter.as_ref()?);
    let dir = base.join(given);
    if !dir.is_dir() {
        let message = missing::message(given, base, WantedEntry::Directory);
        let help = missing::help(given, base, WantedEntry::Directory);
        problems.value(&path(["models", name, "adapter"]), message, help);
        return None;
    }
    match LoraConfig::read(&dir) {
        Ok(lora) => Some(AdapterStart { dir, lora, unfit: None }),
        Err(error) => {
            let help = "`adapter` of a model names a PEFT directory (`adapter_config.json`, \
                        `adapter_model.safetensors`), relative to the file that names it";
            problems.value(&path(["models", name, "adapter"]), error.to_string(), help.to_owned());
            None
        }
    }
}
