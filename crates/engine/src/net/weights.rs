//! Weights of a model, in the memory of a device.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::files::shards::fits;
use crate::files::{HfConfig, ModelError, ModelFiles, Shards};
use crate::net::ops::{Cpu, Ops};
use crate::net::values::{Param, Params, Tensor};

/// Every weight of a model by its checkpoint name, in a fixed order.
///
/// Rollout and training read the same storage: there is nothing to synchronize. Cloning shares it too.
#[derive(Clone)]
pub struct Weights<O: Ops = Cpu> {
    params: Params<O>,
}

impl<O: Ops> Weights<O> {
    /// Takes parameters in checkpoint order.
    pub(super) fn over(params: Params<O>) -> Self {
        Self { params }
    }

    /// Names and values, in checkpoint order.
    pub fn vars(&self) -> &[(String, Tensor<O>)] {
        self.params.vars()
    }

    /// The array that holds them.
    pub fn params(&self) -> &Params<O> {
        &self.params
    }

    /// Parameters in all.
    pub fn parameters(&self) -> usize {
        self.vars().iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// The weights by name, each with its place among them.
    pub fn by_name(&self) -> BTreeMap<&str, Param<O>> {
        let vars = self.vars().iter().enumerate();
        vars.map(|(slot, (name, _))| (name.as_str(), self.params.param(slot))).collect()
    }
}

impl Weights {
    /// Reads the checkpoint of a model.
    ///
    /// # Errors
    ///
    /// Every missing, extra or misshapen tensor at once; a file that is not safetensors.
    pub fn load(files: &ModelFiles, config: &HfConfig) -> Result<Self, ModelError> {
        let shards = Shards::matching(files, config)?;
        let (tensors, layout) = (config.tensors(), shards.expert_layout(config));
        let params = Params::new(tensors.clone(), |index, values| {
            let (name, shape) = &tensors[index];
            shards.fill_tensor(config, layout, (name, shape), values)
        });
        Ok(Self { params: params? })
    }

    /// Weights made by `init(name, shape)`, in checkpoint order.
    ///
    /// # Errors
    ///
    /// If `init` returns a buffer of another length.
    pub fn init(
        config: &HfConfig,
        mut init: impl FnMut(&str, &[usize]) -> Vec<f32>,
    ) -> Result<Self, ModelError> {
        let tensors = config.tensors();
        let params = Params::new(tensors.clone(), |index, values| {
            let (name, shape) = &tensors[index];
            let found = init(name, shape);
            fits(found.len(), shape)?;
            values.copy_from_slice(&found);
            Ok(())
        });
        Ok(Self { params: params? })
    }

    /// A copy that shares nothing with these weights.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { params: self.params.duplicate() }
    }

    /// Copies values from the checkpoint of a model of a configuration; names and lengths must be those of these weights.
    ///
    /// # Errors
    ///
    /// If a tensor is missing or misshapen.
    pub fn assign(&self, config: &HfConfig, shards: &Shards) -> Result<(), ModelError> {
        let layout = shards.expert_layout(config);
        self.vars().iter().try_for_each(|(name, var)| {
            let place = (name.as_str(), var.dims());
            var.update(|values| shards.fill_tensor(config, layout, place, values))
        })
    }
}

/// SHA-256 over names, shapes and values, in the order given.
pub fn fingerprint<'v>(vars: impl IntoIterator<Item = &'v (String, Tensor)>) -> String {
    let mut hash = Sha256::new();
    for (name, var) in vars {
        hash.update(name.as_bytes());
        hash.update(format!("{:?}", var.dims()).as_bytes());
        var.values().iter().for_each(|v| hash.update(v.to_le_bytes()));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
