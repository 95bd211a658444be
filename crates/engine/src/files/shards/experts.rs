//! Experts in files: numbers of several tensors in one, and MXFP4 (OCP Microscaling Formats, version 1.0, section 5).

use std::collections::BTreeMap;

use half::{bf16, f16};
use safetensors::Dtype;

use super::index::{Form, Stored, is_supported};
use super::{Shards, fits};
use crate::files::parts::ExpertLayout;
use crate::files::stored::{BLOCK, StoredPart};
use crate::files::{HfConfig, ModelError};

/// Ends of the names of blocks, and of their scales.
const ENDS: [&str; 2] = ["_blocks", "_scales"];
/// Values of the numbers of MXFP4 (E2M1) without sign.
const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

impl Shards {
    /// Returns the layout of the experts in these files.
    pub(crate) fn expert_layout(&self, config: &HfConfig) -> ExpertLayout {
        let any = |end: &str| self.tensors.keys().any(|name| name.ends_with(end));
        match config.expert_layout {
            ExpertLayout::ByInputs if any(".experts.gate_up_proj_blocks") => ExpertLayout::Blocks,
            ExpertLayout::Each if any(".experts.gate_up_proj") => ExpertLayout::Stacked,
            layout => layout,
        }
    }

    /// Writes the values of a tensor of a model to a buffer of its shape.
    ///
    /// # Errors
    ///
    /// If it is not there, its type is not supported, or it has another number of values.
    pub(crate) fn fill_tensor(
        &self,
        config: &HfConfig,
        layout: ExpertLayout,
        (name, dims): (&str, &[usize]),
        to: &mut [f32],
    ) -> Result<(), ModelError> {
        let part = config.stored_part(layout, name, dims);
        if part.is_whole(dims) {
            return self.fill(self.stored_name(config, name), dims, to);
        }
        if part.blocks {
            return self.fill_blocks(&part, dims, to);
        }
        let stored = self.stored_tensor(&part.name)?;
        fits(stored.shape.iter().product(), &part.shape)?;
        let bytes = self.bytes(stored);
        if let Form::Rows(dtype) = stored.form {
            part.each_number(dims, |index, at| to[index] = number_at(dtype, bytes, at));
            return Ok(());
        }
        let values = self.values(&part.name)?;
        part.each_number(dims, |index, at| to[index] = values[at]);
        Ok(())
    }

    /// Writes numbers in blocks.
    ///
    /// ```text
    /// value · 2^(scale − 127),   the low half of a byte first
    /// ```
    fn fill_blocks(
        &self,
        part: &StoredPart,
        dims: &[usize],
        to: &mut [f32],
    ) -> Result<(), ModelError> {
        let [blocks, scales] = ENDS.map(|end| self.stored_tensor(&format!("{}{end}", part.name)));
        let (blocks, scales) = (blocks?, scales?);
        fits(blocks.shape.iter().product::<usize>() * 2, &part.shape)?;
        fits(scales.shape.iter().product::<usize>() * BLOCK, &part.shape)?;
        let (blocks, scales) = (self.bytes(blocks), self.bytes(scales));
        part.each_number(dims, |index, at| {
            let half = blocks[at / 2] >> (4 * (at % 2));
            let value = VALUES[usize::from(half & 7)];
            let value = if half & 8 == 0 { value } else { -value };
            to[index] = libm::ldexpf(value, i32::from(scales[at / BLOCK]) - 127);
        });
        Ok(())
    }

    /// Returns the names and shapes of the tensors that a configuration asks for.
    pub(super) fn wanted_tensors(&self, config: &HfConfig) -> BTreeMap<String, Vec<usize>> {
        let layout = self.expert_layout(config);
        let mut wanted = BTreeMap::new();
        for (name, dims) in config.tensors() {
            let part = config.stored_part(layout, &name, &dims);
            if !part.blocks {
                wanted.insert(self.stored_name(config, &part.name).to_owned(), part.shape);
                continue;
            }
            let [blocks, scales] = ENDS.map(|end| format!("{}{end}", part.name));
            let [experts, rows, columns] = part.shape[..] else { continue };
            let count = columns / BLOCK;
            wanted.insert(blocks, vec![experts, rows, count, BLOCK / 2]);
            wanted.insert(scales, vec![experts, rows, count]);
        }
        wanted
    }
}

impl Stored {
    /// Returns the problem with the type of a tensor of a name, if there is one.
    pub(super) fn type_problem(&self, name: &str, layout: ExpertLayout) -> Option<String> {
        let in_blocks = ENDS.iter().any(|end| name.ends_with(end));
        let blocks = layout == ExpertLayout::Blocks && in_blocks;
        let dtype = self.form.dtype()?;
        let (fine, wanted) = match dtype {
            Dtype::U8 => (blocks, "f32, f16 or bf16 are supported"),
            _ if blocks => (false, "bytes are needed"),
            _ => (is_supported(dtype), "f32, f16 or bf16 are supported"),
        };
        (!fine).then(|| format!("`{name}` is {dtype:?}; {wanted}"))
    }
}

/// Returns the number of an index; 0 of a type that is not supported, which is refused before.
fn number_at(dtype: Dtype, bytes: &[u8], at: usize) -> f32 {
    match dtype {
        Dtype::F32 => f32::from_le_bytes(bytes.as_chunks().0[at]),
        Dtype::F16 => f16::from_le_bytes(bytes.as_chunks().0[at]).to_f32(),
        Dtype::BF16 => bf16::from_le_bytes(bytes.as_chunks().0[at]).to_f32(),
        _ => 0.0,
    }
}
