//! Sums and parameters of the devices of all processes.

use std::ops::Range;

use maverl_kernels::cuda::{DeviceElement, Slice, SliceMut};

use super::{Device, DeviceNumbers, Halves, Runner, machine_error};
use crate::net::ops::{Done, Transfer};
use crate::net::values::ALIGN;

/// Elements of all processes that are exchanged at once, which bounds the memory for those of the others.
const PIECE: usize = 16 << 20;

impl<M: Runner> Device<M> {
    /// Adds the sums of all processes in their order; this one gets those of its range.
    pub(super) fn reduce_between(
        &self,
        transfer: &dyn Transfer,
        of: &mut DeviceNumbers<M, f32>,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        let (rank, size) = (transfer.rank(), transfer.size());
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        let length = (PIECE / size).next_multiple_of(ALIGN);
        let room = length.min(ranges[rank].len()) * (size - 1);
        let mut others: DeviceNumbers<M, f32> = self.take(room)?;
        for from in (0..longest).step_by(length) {
            let mut parts: Vec<Range<usize>> =
                ranges.iter().map(|range| piece_of(range, from, length)).collect();
            let own = parts[rank].clone();
            parts[rank].end = own.start;
            let sums = of.read()?;
            let sends: Vec<Slice<'_, u8>> =
                parts.into_iter().map(|part| sums.sub_slice(part).as_bytes()).collect();
            let mut rest = others.write()?.sub_slice(0..own.len() * (size - 1));
            let mut receives = Vec::with_capacity(size);
            for from in 0..size {
                let (part, after) = rest.split_at(if from == rank { 0 } else { own.len() });
                receives.push(part.as_bytes());
                rest = after;
            }
            self.exchange(transfer, &sends, &mut receives)?;
            let others = others.write()?.sub_slice(0..own.len() * (size - 1));
            let sum = of.write()?.sub_slice(own);
            self.kernels.sum_in_order(sum, rank, others).map_err(machine_error)?;
        }
        Ok(())
    }

    /// Fills an array, of which each process has its range.
    pub(super) fn spread_between<T: DeviceElement>(
        &self,
        transfer: &dyn Transfer,
        of: &mut DeviceNumbers<M, T>,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        let rank = transfer.rank();
        let (mut rest, mut at) = (of.write()?, 0);
        let mut parts: Vec<SliceMut<'_, u8>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (_, after) = rest.split_at(range.start - at);
            let (part, after) = after.split_at(range.len());
            parts.push(part.as_bytes());
            (rest, at) = (after, range.end);
        }
        // The part of this process is only read.
        let (empty, own) = parts.remove(rank).split_at(0);
        parts.insert(rank, empty);
        let mut sends = vec![own.as_slice(); ranges.len()];
        sends[rank] = own.as_slice().sub_slice(0..0);
        self.exchange(transfer, &sends, &mut parts)
    }

    /// Fills parameters, of which each process has its range.
    pub(super) fn spread_halves(
        &self,
        transfer: &dyn Transfer,
        of: &mut Halves<M>,
        ranges: &[Range<usize>],
    ) -> Done<()> {
        self.spread_between(transfer, &mut of.high, ranges)?;
        match &mut of.low {
            Some(low) => self.spread_between(transfer, low, ranges),
            None => Ok(()),
        }
    }

    fn exchange(
        &self,
        transfer: &dyn Transfer,
        sends: &[Slice<'_, u8>],
        receives: &mut [SliceMut<'_, u8>],
    ) -> Done<()> {
        let mut event = None;
        let stream = self.kernels.machine().stream_handle().map_err(machine_error)?;
        transfer.exchange(stream, sends, receives, &mut || self.is_reached(&mut event))
    }

    /// Returns true if a point is reached. It is recorded when this is asked first.
    fn is_reached(&self, event: &mut Option<M::Event>) -> Done<bool> {
        let machine = self.kernels.machine();
        let event = match event {
            Some(event) => event,
            none => none.insert(machine.record_event().map_err(machine_error)?),
        };
        machine.is_reached(event).map_err(machine_error)
    }
}

/// Returns the part of a range from an offset on.
fn piece_of(range: &Range<usize>, offset: usize, length: usize) -> Range<usize> {
    let start = (range.start + offset).min(range.end);
    start..(start + length).min(range.end)
}
