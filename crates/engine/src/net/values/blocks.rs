//! Parameters of which some stay in the blocks of a file.

use std::sync::Arc;

use maverl_kernels::large_zeros;

use super::{ALIGN, Params, Storage, Tensor};
use crate::files::ModelError;
use crate::files::gguf::BlockMatrix;
use crate::net::memory::Cpu;

impl Params {
    /// Creates tensors by name, dimensions and, where they have some, blocks. `fill` gets the index of each of the others and its
    /// values, which are zero, and writes them.
    ///
    /// # Errors
    ///
    /// The error of `fill`.
    pub(in crate::net) fn with_blocks(
        tensors: impl IntoIterator<Item = (String, Vec<usize>, Option<BlockMatrix>)>,
        mut fill: impl FnMut(usize, &mut [f32]) -> Result<(), ModelError>,
    ) -> Result<Self, ModelError> {
        let (storage, mut end) = (Storage::<Cpu>::new(Vec::new()), 0);
        let vars = tensors.into_iter().map(|(name, dims, blocks)| {
            let len = if blocks.is_some() { 0 } else { dims.iter().product::<usize>() };
            let range = end..end + len;
            end = range.end.next_multiple_of(ALIGN);
            let tensor = Tensor::new(dims.into(), storage.clone(), range);
            (name, Tensor { blocks: blocks.map(Arc::new), ..tensor })
        });
        let params = Self { vars: vars.collect(), storage };
        *params.storage.write() = large_zeros(params.elements());
        for (index, (_, var)) in params.vars.iter().enumerate() {
            if var.blocks.is_none() {
                var.update(|values| fill(index, values))?;
            }
        }
        Ok(params)
    }
}

impl Tensor {
    /// Returns its numbers in the blocks of a file, if they are there in place of values.
    pub(in crate::net) fn blocks(&self) -> Option<&BlockMatrix> {
        self.blocks.as_deref()
    }

    /// Computes the numbers of its blocks, if it has some.
    pub(super) fn numbers_of_blocks(&self) -> Option<Vec<f32>> {
        let blocks = self.blocks()?;
        Some(blocks.rows(0..blocks.dims()[0]).expect("blocks of a file that was read have numbers"))
    }
}
