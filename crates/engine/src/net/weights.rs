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
    /// Hash of all values, if some of them are not kept.
    hash: Option<Sha256>,
}

impl<O: Ops> Weights<O> {
    /// Takes parameters in checkpoint order.
    pub(super) fn over(params: Params<O>) -> Self {
        Self { params, hash: None }
    }

    /// Returns parameters of the same values over these, which may be on another device.
    pub(super) fn moved<P: Ops>(&self, params: Params<P>) -> Weights<P> {
        Weights { params, hash: self.hash.clone() }
    }

    /// Returns true if they have all values: see [`Weights::keep`] and [`Weights::in_blocks`].
    pub(super) fn is_whole(&self) -> bool {
        self.hash.is_none()
    }

    /// Returns true if some of them stay in the blocks of a file.
    pub(super) fn in_blocks(&self) -> bool {
        self.vars().iter().any(|(_, var)| var.is_in_blocks())
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
        Ok(Self::over(params?))
    }

    /// Reads the checkpoint of a model in a GGUF file. Matrices of products and lookups stay in the blocks of the file.
    ///
    /// # Errors
    ///
    /// See [`Weights::load`].
    #[cfg(feature = "candle")]
    pub(super) fn load_blocks(files: &ModelFiles, config: &HfConfig) -> Result<Self, ModelError> {
        let shards = Shards::matching(files, config)?;
        let (shapes, layout) = (config.tensors(), shards.expert_layout(config));
        let tensors = shapes.iter().cloned().zip(shards.blocks(config)?);
        let tensors = tensors.map(|((name, dims), blocks)| (name, dims, blocks));
        let params = Params::with_blocks(tensors, |index, values| {
            let (name, shape) = &shapes[index];
            shards.fill_tensor(config, layout, (name, shape), values)
        })?;
        let all = Self::over(params);
        let hash = all.in_blocks().then(|| all.hash());
        Ok(Self { hash, ..all })
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
        Ok(Self::over(params?))
    }

    /// Returns the weights with the values of those alone that `keep` selects by index, and the hash of all.
    pub(super) fn keep(&self, keep: impl Fn(usize) -> bool) -> Self {
        Self { params: self.params.keep(keep), hash: Some(self.hash()) }
    }

    /// Returns the SHA-256 over names, shapes and values, to which others may be added ([`hash_tensors`]).
    pub(super) fn hash(&self) -> Sha256 {
        self.hash.clone().unwrap_or_else(|| hash_tensors(Sha256::new(), self.vars()))
    }

    /// A copy that shares nothing with these weights.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self::over(self.params.duplicate())
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

/// Adds names, shapes and values to a SHA-256, in the order given; of what stays in blocks, their kind and bytes.
pub(super) fn hash_tensors(mut hash: Sha256, vars: &[(String, Tensor)]) -> Sha256 {
    for (name, var) in vars {
        hash.update(name.as_bytes());
        hash.update(format!("{:?}", var.dims()).as_bytes());
        #[cfg(feature = "candle")]
        if let Some(blocks) = var.blocks() {
            hash.update(blocks.kind().name().as_bytes());
            hash.update(&*blocks.bytes());
            continue;
        }
        var.values().iter().for_each(|v| hash.update(v.to_le_bytes()));
    }
    hash
}

/// Formats a SHA-256.
pub(super) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
