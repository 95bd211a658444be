//! Matrices of a checkpoint that stay in the blocks of a GGUF file.

use std::collections::BTreeSet;

use super::Shards;
#[cfg(feature = "candle")]
use super::index::{Form, Stored};
use crate::files::HfConfig;
#[cfg(feature = "candle")]
use crate::files::gguf::write::Change;
#[cfg(feature = "candle")]
use crate::files::gguf::{BlockMatrix, NumberKind};
#[cfg(feature = "candle")]
use crate::files::{ModelError, ModelErrorKind};

impl HfConfig {
    /// Returns the names of the matrices that only products and lookups read: those of linear maps but routers, the embedding and
    /// the head.
    fn matrices(&self) -> BTreeSet<String> {
        let maps = self.linears().map(|(module, _)| self.names.weight_of_module(&module));
        maps.chain([self.names.embedding(), self.names.head.to_owned()]).collect()
    }
}

impl Shards {
    /// Returns the bytes of the weights of a model in memory, if matrices stay in the blocks of their file and all else is f32.
    pub fn bytes_in_blocks(&self, config: &HfConfig) -> u64 {
        let matrices = config.matrices();
        let bytes = config.tensors().into_iter().map(|(name, dims)| {
            let numbers = dims.iter().product::<usize>() * size_of::<f32>();
            let blocks = if matrices.contains(&name) { self.span(config, &name) } else { None };
            blocks.unwrap_or(numbers) as u64
        });
        bytes.sum()
    }

    /// Returns the bytes of a matrix in blocks; `None` if it is f32.
    #[cfg(feature = "candle")]
    fn span(&self, config: &HfConfig, name: &str) -> Option<usize> {
        let stored = self.tensors.get(self.stored_name(config, name))?;
        stored.in_blocks().map(|_| stored.span.len())
    }

    #[cfg(not(feature = "candle"))]
    fn span(&self, _: &HfConfig, _: &str) -> Option<usize> {
        None
    }

    /// Returns the blocks of each tensor of a model, in the order of [`HfConfig::tensors`]; `None` for those whose values are read.
    ///
    /// # Errors
    ///
    /// If a matrix is missing or damaged.
    #[cfg(feature = "candle")]
    pub(crate) fn blocks(&self, config: &HfConfig) -> Result<Vec<Option<BlockMatrix>>, ModelError> {
        let matrices = config.matrices();
        let blocks = config.tensors().into_iter().map(|(name, _)| {
            if !matrices.contains(&name) {
                return Ok(None);
            }
            let stored = self.stored_tensor(self.stored_name(config, &name))?;
            stored.in_blocks().map(|found| self.matrix(&name, stored, found)).transpose()
        });
        blocks.collect()
    }

    /// Copies the blocks of a matrix.
    #[cfg(feature = "candle")]
    fn matrix(
        &self,
        name: &str,
        stored: &Stored,
        (kind, dims, heads): (NumberKind, [usize; 2], Option<usize>),
    ) -> Result<BlockMatrix, ModelError> {
        BlockMatrix::new(kind, self.bytes(stored), dims, heads).map_err(|error| {
            let whole = error.to_string();
            let reason = whole.lines().next().unwrap_or_default();
            ModelError::new(ModelErrorKind::Invalid, format!("tensor `{name}`: {reason}"))
        })
    }
}

#[cfg(feature = "candle")]
impl Stored {
    /// Returns kind and dimensions of a matrix that stays as it is in a GGUF file, and the number of its heads where pairs of rows
    /// become halves; `None` of other tensors, and of those in f32.
    fn in_blocks(&self) -> Option<(NumberKind, [usize; 2], Option<usize>)> {
        let (&Form::Gguf(kind, change), &[rows, columns]) = (&self.form, &self.shape[..]) else {
            return None;
        };
        let heads = match change {
            Change::None => None,
            Change::Pairs(heads) => Some(heads),
            Change::PlusOne => return None,
        };
        (kind != NumberKind::F32).then_some((kind, [rows, columns], heads))
    }
}
