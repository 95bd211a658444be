//! Moments in 8 bits of the parameters of a model, tensor by tensor.

use maverl_kernels::adamw::{AdamW, adamw_step};
use maverl_kernels::adamw8::{DynamicMap, Moment8, adamw8_step};

use crate::files::save::{SavedTensor, StoredDtype};
use crate::files::{ModelError, Shards};
use crate::net::Params;
use crate::net::memory::OptimizerPart;
use crate::net::ops::Ops;

/// Fewest elements of a tensor whose moments have 8 bits. Norms and biases are below, and few.
const SMALLEST: usize = 4096;

/// Names of the moments in a file: whole numbers, codes, and largest magnitudes of blocks.
const NAMES: [[&str; 3]; 2] = [["m", "m8", "m8_scale"], ["v", "v8", "v8_scale"]];

/// Moments of all tensors, in the order of the parameters.
pub(super) struct EightBitMoments(Vec<TensorMoments>);

/// First and second moment of a tensor.
enum TensorMoments {
    Whole([Vec<f32>; 2]),
    Blocks([Moment8; 2]),
}

impl TensorMoments {
    fn zeros(elements: usize) -> Self {
        if elements < SMALLEST {
            return Self::Whole([vec![0.0; elements], vec![0.0; elements]]);
        }
        let maps = [DynamicMap::Signed, DynamicMap::Unsigned];
        Self::Blocks(maps.map(|map| Moment8::zeros(map, elements)))
    }

    fn restored(saved: &Shards, name: &str, dims: &[usize]) -> Result<Self, ModelError> {
        let mut moments = Self::zeros(dims.iter().product());
        for (kind, [whole, codes, scales]) in NAMES.into_iter().enumerate() {
            match &mut moments {
                Self::Whole(both) => {
                    saved.fill(&format!("{whole}.{name}"), dims, &mut both[kind])?;
                }
                Self::Blocks(both) => {
                    let moment = &mut both[kind];
                    let mut numbers = vec![0.0; moment.codes.len()];
                    saved.fill(&format!("{codes}.{name}"), dims, &mut numbers)?;
                    moment.codes = numbers.into_iter().map(|code| code as u8).collect();
                    let blocks = [moment.scales.len()];
                    saved.fill(&format!("{scales}.{name}"), &blocks, &mut moment.scales)?;
                }
            }
        }
        Ok(moments)
    }

    /// Returns the moments for writing. Codes up to 255 are the same in half of the bytes of an f32.
    fn entries<'a>(&'a self, name: &str, dims: &[usize]) -> Vec<SavedTensor<'a>> {
        let mut entries = Vec::new();
        for (kind, [whole, codes, scales]) in NAMES.into_iter().enumerate() {
            match self {
                Self::Whole(both) => {
                    entries.push(SavedTensor::slice(format!("{whole}.{name}"), dims, &both[kind]));
                }
                Self::Blocks(both) => {
                    let Moment8 { codes: numbers, scales: largest, .. } = &both[kind];
                    let read = move || numbers.iter().map(|code| f32::from(*code)).collect();
                    let stored = SavedTensor::computed(format!("{codes}.{name}"), dims, read);
                    entries.push(stored.stored_as(StoredDtype::Bf16));
                    let blocks = [largest.len()];
                    entries.push(SavedTensor::slice(format!("{scales}.{name}"), &blocks, largest));
                }
            }
        }
        entries
    }
}

impl EightBitMoments {
    /// Creates moments of zero.
    pub(super) fn zeros<O: Ops>(params: &Params<O>) -> Self {
        let vars = params.vars().iter();
        Self(vars.map(|(_, var)| TensorMoments::zeros(var.elem_count())).collect())
    }

    /// Reads the moments of parameters.
    pub(super) fn restored<O: Ops>(params: &Params<O>, saved: &Shards) -> Result<Self, ModelError> {
        let vars = params.vars().iter();
        let restored = vars.map(|(name, var)| TensorMoments::restored(saved, name, var.dims()));
        Ok(Self(restored.collect::<Result<_, _>>()?))
    }

    /// Returns the moments for writing.
    pub(super) fn entries<'a, O: Ops>(&'a self, params: &Params<O>) -> Vec<SavedTensor<'a>> {
        let tensors = params.vars().iter().zip(&self.0);
        tensors.flat_map(|((name, var), moments)| moments.entries(name, var.dims())).collect()
    }

    /// Takes one step. Blocks do not cross tensors.
    pub(super) fn step(
        &mut self,
        cfg: &AdamW,
        (step, scale): (u64, f32),
        parts: &[OptimizerPart],
        (weights, gradients): (&mut [f32], &[f32]),
    ) {
        for (OptimizerPart { range, .. }, moments) in parts.iter().zip(&mut self.0) {
            let (weights, gradients) = (&mut weights[range.clone()], &gradients[range.clone()]);
            match moments {
                TensorMoments::Whole([m, v]) => {
                    adamw_step(cfg, step, scale, weights, gradients, m, v);
                }
                TensorMoments::Blocks([m, v]) => {
                    adamw8_step(cfg, step, scale, weights, gradients, [m, v]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::loss::testing::{learning, numbers};

    #[test]
    fn the_codes_of_a_block_are_the_recorded_ones() {
        for (name, map) in [("first", DynamicMap::Signed), ("second", DynamicMap::Unsigned)] {
            let case = learning(&format!("optimizer/block8/{name}"));
            let block = numbers(&case["inputs"]["block"]);
            let scale = case["outputs"]["absmax"].as_f64().unwrap();
            let codes = numbers(&case["outputs"]["codes"]);
            let back = numbers(&case["outputs"]["back"]);
            for ((value, code), back) in block.iter().zip(codes).zip(back) {
                let found = map.code((value / scale) as f32);
                assert_eq!(f64::from(found), code, "{name}: {value}");
                let read = f64::from(map.values()[usize::from(found)]) * scale;
                assert!((read - back).abs() <= 1e-6 * back.abs(), "{name}: {read} {back}");
            }
        }
    }
}
