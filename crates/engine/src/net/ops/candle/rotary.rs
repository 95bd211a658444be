//! Rotary positions, in the rotate-half convention of Hugging Face. Shapes: `N` tokens, `H` heads of width `d`.

use std::sync::{PoisonError, RwLock};

use candle_core::{Device, Result, Tensor};

use crate::files::hf_config::Frequencies;

/// Cosines and sines by position and frequency. They are computed when a position is first used.
#[derive(Debug)]
pub struct CandleAngles {
    of: Frequencies,
    device: Device,
    /// Cosines and sines of the first positions, `[positions, half]` each; none before the first use.
    rows: RwLock<Option<[Tensor; 2]>>,
}

impl CandleAngles {
    /// Creates the angles of frequencies.
    pub(super) fn new(of: &Frequencies, device: &Device) -> Self {
        Self { of: of.clone(), device: device.clone(), rows: RwLock::default() }
    }

    /// Returns the width of a head.
    pub(super) fn head_dim(&self) -> usize {
        self.of.head_dim
    }

    /// Returns cosines and sines of some positions, `[N, half]` each.
    pub(super) fn of_positions(&self, positions: &[u32]) -> Result<[Tensor; 2]> {
        let needed = positions.iter().max().map_or(0, |&last| last as usize + 1);
        let [cos, sin] = self.first_rows(needed)?;
        let at = Tensor::from_slice(positions, positions.len(), &self.device)?;
        Ok([cos.index_select(&at, 0)?, sin.index_select(&at, 0)?])
    }

    /// Returns the rows of at least the first positions.
    fn first_rows(&self, needed: usize) -> Result<[Tensor; 2]> {
        let held = self.rows.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some([cos, sin]) = held.filter(|[cos, _]| cos.dims()[0] >= needed) {
            return Ok([cos, sin]);
        }
        let (count, half) = (needed.next_power_of_two(), self.of.inv_freq.len());
        let angles = (0..count).flat_map(|p| self.of.inv_freq.iter().map(move |f| p as f32 * f));
        let angles: Vec<f32> = angles.collect();
        let turned = [libm::cosf as fn(f32) -> f32, libm::sinf].map(|turn| {
            let values = angles.iter().map(|angle| turn(*angle) * self.of.factor);
            Tensor::from_vec(values.collect::<Vec<f32>>(), (count, half), &self.device)
        });
        let [cos, sin] = turned;
        let rows = [cos?, sin?];
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = Some(rows.clone());
        Ok(rows)
    }
}

/// Rotates heads `x [N, H, d]` by cosines and sines `[N, half]`; with `back`, by the opposite angles. The numbers of a head after
/// the first `2 half` stay.
///
/// ```text
/// (a, b) = halves of a head:   (a, b) ← (a cos θ − b sin θ, b cos θ + a sin θ)
/// ```
pub(super) fn rotate(x: &Tensor, [cos, sin]: [&Tensor; 2], back: bool) -> Result<Tensor> {
    let (half, dim) = (cos.dim(1)?, x.dim(2)?);
    let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
    let sin = if back { sin.neg()? } else { sin };
    let (a, b) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let mut parts = vec![first, second];
    if dim > 2 * half {
        parts.push(x.narrow(2, 2 * half, dim - 2 * half)?);
    }
    Tensor::cat(&parts, 2)
}
