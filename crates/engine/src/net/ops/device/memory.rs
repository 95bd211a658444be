//! Parameters, gradients and moments in a machine's memory.
//!
//! A trained weight is an f32 in two halves: one in bf16, which products read, and the bits that are lacking.

use std::borrow::Cow;
use std::ops::Range;

use maverl_kernels::adamw::AdamW;
use maverl_kernels::cuda::{Master, RopeTables, SampledTokens, from_bf16};
use maverl_kernels::muon::Muon;

use super::{DecodingPasses, Device, DeviceKv, DeviceNumbers, Runner, machine_error};
use crate::net::memory::OptimizerPart;
use crate::net::ops::{Done, Memory, Transfer};

/// Parameters in a machine's memory.
#[derive(Debug)]
pub struct Halves<M: Runner> {
    /// The parameters in bf16.
    pub(super) high: DeviceNumbers<M, u16>,
    /// The rest of their bits, if they are trained.
    pub(super) low: Option<DeviceNumbers<M, u16>>,
}

impl<M: Runner> Device<M> {
    /// Copies numbers on the machine.
    fn copy_numbers(&self, from: &DeviceNumbers<M, u16>) -> Done<DeviceNumbers<M, u16>> {
        let from = from.read()?;
        let mut to = self.take(from.len())?;
        self.kernels.copy_to_front(from, to.write()?).map_err(machine_error)?;
        Ok(to)
    }
}

impl<M: Runner> Memory for Device<M> {
    type Weights = Halves<M>;
    type Sums = DeviceNumbers<M, f32>;
    type Stream = DeviceNumbers<M, f32>;
    type Act = DeviceNumbers<M, u16>;
    type Lse = DeviceNumbers<M, f32>;
    type Packed = ();
    type Rope = RopeTables<M>;
    type Kv = DeviceKv<M>;
    type Spare = ();
    type Passes = DecodingPasses<M>;
    type Drawn = SampledTokens<M>;

    fn give((): &mut (), buffers: impl IntoIterator<Item = Self::Act>) {
        buffers.into_iter().for_each(drop);
    }

    fn give_streams((): &mut (), buffers: impl IntoIterator<Item = Self::Stream>) {
        buffers.into_iter().for_each(drop);
    }

    fn weights(&self, values: &[f32], trained: bool) -> Done<Halves<M>> {
        let low = trained.then(|| self.upload(&half_bits(values, 1))).transpose()?;
        Ok(Halves { high: self.upload(&half_bits(values, 0))?, low })
    }

    fn blank(&self, elements: usize, trained: bool) -> Done<Halves<M>> {
        let low = trained.then(|| self.take(elements)).transpose()?;
        Ok(Halves { high: self.take(elements)?, low })
    }

    fn copy_weights(&self, of: &Halves<M>, trained: bool) -> Done<Halves<M>> {
        let low = match (&of.low, trained) {
            (Some(low), true) => Some(self.copy_numbers(low)?),
            (None, true) => Some(self.zeros(of.high.read()?.len())?),
            (_, false) => None,
        };
        Ok(Halves { high: self.copy_numbers(&of.high)?, low })
    }

    fn assign(&self, to: &mut Halves<M>, values: &[f32]) -> Done<()> {
        // In place: recorded passes have the address.
        let Halves { high, low } = to;
        for (at, half) in [Some(high), low.as_mut()].into_iter().enumerate() {
            let Some(half) = half.and_then(|half| half.0.as_mut()) else { continue };
            if half.len() != values.len() {
                return Err(super::misused_error(
                    "as many parameters are overwritten as there are",
                ));
            }
            self.kernels.write_array(half, &half_bits(values, at)).map_err(machine_error)?;
        }
        Ok(())
    }

    fn read_weights<'a>(&self, of: &'a Halves<M>) -> Done<Cow<'a, [f32]>> {
        let high = self.read_numbers(&of.high)?;
        let Some(low) = &of.low else { return Ok(Cow::Owned(from_bf16(&high))) };
        let halves = high.into_iter().zip(self.read_numbers(low)?);
        Ok(Cow::Owned(halves.map(|(high, low)| Master::join_weight([high, low])).collect()))
    }

    fn sums(&self, elements: usize) -> Done<Self::Sums> {
        self.zeros(elements)
    }

    fn reuse(&self, _: Self::Sums) -> Option<Self::Sums> {
        None
    }

    fn sums_of(&self, values: Vec<f32>) -> Done<Self::Sums> {
        self.upload(&values)
    }

    fn read_sums<'a>(&self, of: &'a Self::Sums) -> Done<Cow<'a, [f32]>> {
        self.read_numbers(of).map(Cow::Owned)
    }

    fn update_sums(
        &self,
        of: &mut Self::Sums,
        f: &mut dyn FnMut(&mut [f32]) -> Done<()>,
    ) -> Done<()> {
        let mut values = self.read_sums(of)?.into_owned();
        f(&mut values)?;
        *of = DeviceNumbers::default();
        *of = self.sums_of(values)?;
        Ok(())
    }

    fn add_sums(&self, to: &mut Self::Sums, place: Range<usize>, of: &Self::Sums) -> Done<()> {
        let to = to.write()?.sub_slice(place);
        self.kernels.axpy(1.0, of.read()?, to).map_err(machine_error)
    }

    fn reduce(
        &self,
        transfer: &dyn Transfer,
        of: &mut Self::Sums,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        self.reduce_between(transfer, of, ranges)
    }

    fn spread_sums(
        &self,
        transfer: &dyn Transfer,
        of: &mut Self::Sums,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        self.spread_between(transfer, of, ranges)
    }

    fn spread_weights(
        &self,
        transfer: &dyn Transfer,
        of: &mut Halves<M>,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        self.spread_halves(transfer, of, ranges)
    }

    fn squares(
        &self,
        of: &Self::Sums,
        range: Range<usize>,
        _: impl Iterator<Item = Range<usize>>,
    ) -> Done<f64> {
        self.kernels.sum_of_squares(of.read()?.sub_slice(range)).map_err(machine_error)
    }

    fn adamw(
        &self,
        cfg: &AdamW,
        (step, scale): (u64, f32),
        range: Range<usize>,
        (weights, gradients): (&mut Halves<M>, &mut Self::Sums),
        [m, v]: [&mut Self::Sums; 2],
    ) -> Done<()> {
        let Halves { high, low: Some(low) } = weights else {
            let what = "an optimizer step on weights that are not trained";
            return Err(super::misused_error(what));
        };
        let halves = [high, low].map(|half| half.write().map(|half| half.sub_slice(range.clone())));
        let [high, low] = halves;
        let master = Master { high: high?, low: low? };
        let moments = [m.write()?, v.write()?];
        let gradients = gradients.write()?.sub_slice(range);
        self.kernels.adamw_step(cfg, step, scale, master, gradients, moments).map_err(machine_error)
    }

    fn muon(
        &self,
        _: (&Muon, &AdamW),
        _: (u64, f32),
        _: &[OptimizerPart],
        _: (&mut Halves<M>, &mut Self::Sums),
        _: [&mut Self::Sums; 2],
    ) -> Done<f64> {
        Err(super::misused_error("a step of Muon on a device"))
    }
}

/// Returns one half of each weight.
fn half_bits(values: &[f32], at: usize) -> Vec<u16> {
    values.iter().map(|&value| Master::split_weight(value)[at]).collect()
}
