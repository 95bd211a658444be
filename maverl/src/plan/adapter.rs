//! Adapters of a plan.

use std::path::PathBuf;

use super::{AdapterPlan, LoraConfig};
use crate::files::{HfConfig, ModelError};
use crate::runtime::LoraSpec;

impl AdapterPlan {
    /// Adapter on a base.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn new(
        config: &LoraSpec,
        start: Option<PathBuf>,
        base: &HfConfig,
    ) -> Result<Self, ModelError> {
        let lora = config.on(base);
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, start, parameters })
    }

    /// The same with ranks, scales and targets of the adapter that it starts from.
    ///
    /// # Errors
    ///
    /// If a target module is not in the base.
    pub(crate) fn started_from(
        self,
        from: &LoraConfig,
        base: &HfConfig,
    ) -> Result<Self, ModelError> {
        let lora = LoraConfig { dropout: self.lora.dropout, ..from.clone() };
        let parameters = lora.parameters(base)?;
        Ok(Self { lora, parameters, ..self })
    }
}
