//! Copies of models on devices.

use std::sync::Arc;

use crate::files::{HfConfig, ModelError};
#[cfg(any(feature = "cuda", feature = "candle"))]
use crate::net::ops::Cpu;
use crate::net::ops::Ops;
use crate::net::{Decoder, Model, Params, Weights};

#[cfg(any(feature = "cuda", feature = "candle"))]
impl Model {
    /// Returns the model with its weights on a device, for training or not.
    pub(super) fn on<O: Ops>(&self, ops: &O, trained: bool) -> Result<Model<O>, ModelError> {
        let own = trained && self.adapter.is_none();
        if own || !self.weights.in_blocks() {
            self.require_weights()?;
        }
        let base = self.move_to(ops, self.weights.params().on(ops, own)?)?;
        match &self.adapter {
            Some(adapter) => Ok(base.with_adapter(adapter.on(ops, trained)?)),
            None => Ok(base),
        }
    }
}

impl<O: Ops> Model<O> {
    /// Returns the model with a copy of its trainable weights on the same device, for training or not; the base under
    /// an adapter stays shared.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn copy(&self, trained: bool) -> Result<Self, ModelError> {
        let ops = self.decoder.ops();
        match &self.adapter {
            Some(adapter) => Ok(self.with_adapter(adapter.copy(ops, trained)?)),
            None => {
                self.require_weights()?;
                self.move_to(ops, self.weights.params().copy(ops, trained)?)
            }
        }
    }

    /// Returns another form of the base under a copy of the adapter, for generation; `None` without an adapter.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn copy_adapter_to(&self, base: &Self) -> Result<Option<Self>, ModelError> {
        let copied = self.adapter.as_ref().map(|adapter| adapter.copy(self.decoder.ops(), false));
        Ok(copied.transpose()?.map(|adapter| base.with_adapter(adapter)))
    }

    /// Returns the base over other weights on a device.
    fn move_to<P: Ops>(&self, ops: &P, params: Params<P>) -> Result<Model<P>, ModelError> {
        let weights = self.weights.moved(params);
        let decoder = decoder_on(ops, &self.config, &weights)?;
        let Self { config, name, companions, skipped, .. } = self;
        let (config, name) = (config.clone(), name.clone());
        let (companions, skipped) = (companions.clone(), skipped.clone());
        Ok(Model { config, weights, decoder, adapter: None, name, companions, skipped })
    }

    /// Returns the model on the CPU, with a copy of all its weights.
    #[cfg(any(feature = "cuda", feature = "candle"))]
    pub(super) fn to_host(&self, ops: &O) -> Result<Model, ModelError> {
        let base = self.move_to(&Cpu::default(), self.weights.params().to_host(ops)?)?;
        match &self.adapter {
            Some(adapter) => Ok(base.with_adapter(adapter.to_host(ops)?)),
            None => Ok(base),
        }
    }
}

/// Creates a decoder over weights on a device, all of them trained.
pub(super) fn decoder_on<O: Ops>(
    ops: &O,
    config: &Arc<HfConfig>,
    weights: &Weights<O>,
) -> Result<Decoder<O>, ModelError> {
    let params = weights.by_name();
    Decoder::on(ops.clone(), config, &|name| {
        params.get(name).cloned().ok_or_else(|| ModelError::no_match(format!("no weight `{name}`")))
    })
}
