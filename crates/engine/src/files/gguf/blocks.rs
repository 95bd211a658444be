//! Numbers in blocks, by the kernels of candle (`candle_core::quantized`).

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{CpuStorage, Device, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::kinds::NumberKind;

/// Numbers that are computed at once: whole blocks of every kind.
const CHUNK: usize = 1 << 14;

impl NumberKind {
    pub(super) fn ggml(self) -> GgmlDType {
        match self {
            Self::F32 => GgmlDType::F32,
            Self::F16 => GgmlDType::F16,
            Self::Bf16 => GgmlDType::BF16,
            Self::Q4_0 => GgmlDType::Q4_0,
            Self::Q4_1 => GgmlDType::Q4_1,
            Self::Q5_0 => GgmlDType::Q5_0,
            Self::Q5_1 => GgmlDType::Q5_1,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::Q2K => GgmlDType::Q2K,
            Self::Q3K => GgmlDType::Q3K,
            Self::Q4K => GgmlDType::Q4K,
            Self::Q5K => GgmlDType::Q5K,
            Self::Q6K => GgmlDType::Q6K,
        }
    }

    /// Writes the numbers of blocks as f32. The bytes begin at an even address. Returns false if candle fails.
    pub(crate) fn read(self, bytes: &[u8], to: &mut [f32]) -> bool {
        let Some(width) = self.bytes_of(CHUNK) else { return false };
        let kind = self.ggml();
        to.par_chunks_mut(CHUNK).zip(bytes.par_chunks(width)).all(|(to, bytes)| {
            match kind.from_data(Cow::Borrowed(bytes)).dequantize(to.len()) {
                Ok(CpuStorage::F32(values)) => {
                    to.copy_from_slice(&values);
                    true
                }
                _ => false,
            }
        })
    }

    /// Returns numbers of this kind, in whole blocks, rounded to nearest.
    ///
    /// # Errors
    ///
    /// If a number is not finite or too large, or candle fails.
    pub(crate) fn write(self, values: &[f32]) -> Result<Vec<u8>, String> {
        if !values.iter().all(|value| value.is_finite()) {
            return Err("a number is not finite".to_owned());
        }
        // The scales of blocks are F16, too.
        let most =
            if matches!(self, Self::F32 | Self::Bf16) { f32::MAX } else { f16::MAX.to_f32() };
        if let Some(value) = values.iter().find(|value| value.abs() > most) {
            return Err(format!(
                "{value:e} is beyond {most:e}, the largest number of {}",
                self.name()
            ));
        }
        let plain = match self {
            Self::F32 => Some(values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Self::F16 => {
                Some(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect())
            }
            Self::Bf16 => {
                Some(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect())
            }
            _ => None,
        };
        if let Some(bytes) = plain {
            return Ok(bytes);
        }
        let kind = self.ggml();
        let chunks = values.par_chunks(CHUNK).map(|chunk| -> candle_core::Result<Vec<u8>> {
            let chunk = Tensor::from_slice(chunk, chunk.len(), &Device::Cpu)?;
            Ok(QTensor::quantize(&chunk, kind)?.data()?.into_owned())
        });
        let chunks = chunks.collect::<candle_core::Result<Vec<_>>>();
        chunks.map(|chunks| chunks.concat()).map_err(|error| format!("candle failed: {error}"))
    }
}
