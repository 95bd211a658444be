//! Adapters of a plan.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::{AdapterPlan, LoraConfig};
use crate::config::{self, LoraPlan, TargetModules};
use crate::model::{HfConfig, ModelError};
use crate::runtime::LoraSpec;

impl AdapterPlan {
    /// Adapter on a base.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn new(
        config: &LoraPlan,
        start: Option<PathBuf>,
        base: &HfConfig,
    ) -> Result<Self, ModelError> {
        let lora = LoraSpec::from(config).on(base);
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, start, parameters })
    }

    /// The same with ranks, scales and targets of the adapter that it starts from.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn started(self, from: &LoraConfig, base: &HfConfig) -> Result<Self, ModelError> {
        let lora = LoraConfig { dropout: self.lora.dropout, ..from.clone() };
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, parameters, ..self })
    }
}

impl From<&LoraConfig> for config::LoraConfig {
    fn from(lora: &LoraConfig) -> Self {
        Self {
            rank: NonZeroUsize::new(lora.rank),
            alpha: Some(lora.alpha),
            dropout: Some(lora.dropout),
            target_modules: Some(TargetModules::Named(lora.target_modules.clone())),
            rslora: Some(lora.rslora),
        }
    }
}
