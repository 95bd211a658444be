//! Moments of all ranks in one file: rank 0 writes it, and asks the others for what it lacks, one tensor at a time.
//!
//! The file is the one of a single process, so that any number of ranks reads it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use crate::files::ModelError;
use crate::files::save::{SavedTensor, StoredDtype};
use crate::net::gradients::common;
use crate::net::ops::Ops;
use crate::net::{Params, Tensor};
use crate::runtime::optimizer::eight_bit::EightBitMoments;
use crate::runtime::peers::{Peers, lost_rank};
use maverl_dist::{Channel, RankError};

/// Names of the two moments.
const KINDS: [&str; 2] = ["m", "v"];

/// Moments in host memory, those of other ranks as they are read.
pub(crate) struct ShardMoments<'a, O: Ops> {
    params: &'a Params<O>,
    /// Moments of the ranges of this rank.
    both: [Vec<Cow<'a, [f32]>>; 2],
    /// Ranges of the parameters that each rank owns, by unit, if ranks divide the moments; and those of this rank.
    ranges: (&'a [Vec<Range<usize>>], &'a [Range<usize>]),
    /// Moments of all parameters, if they have 8 bits.
    eight_bit: Option<&'a EightBitMoments>,
    peers: Peers,
    /// Type in which those that have no 8 bits are written; `None` if none is. Moments before the first step are zero.
    written: Option<StoredDtype>,
    /// First failure of another rank.
    failure: RefCell<Option<RankError>>,
}

impl<'a, O: Ops> ShardMoments<'a, O> {
    pub(super) fn new(
        params: &'a Params<O>,
        both: [Vec<Cow<'a, [f32]>>; 2],
        ranges: (&'a [Vec<Range<usize>>], &'a [Range<usize>]),
        peers: Peers,
        written: Option<StoredDtype>,
    ) -> Self {
        Self { params, both, ranges, eight_bit: None, peers, written, failure: RefCell::default() }
    }

    /// Sets moments in 8 bits, which are written instead.
    pub(super) fn with_eight_bit(self, eight_bit: Option<&'a EightBitMoments>) -> Self {
        Self { eight_bit, ..self }
    }

    /// Returns the moments for writing.
    pub(crate) fn entries(&self) -> Vec<SavedTensor<'_>> {
        let Some(dtype) = self.written else { return Vec::new() };
        if let Some(moments) = self.eight_bit {
            return moments.entries(self.params);
        }
        let vars = self.params.vars().iter();
        let both = vars.flat_map(|(name, var)| {
            [0, 1].map(|kind| self.entry(kind, name, var).stored_as(dtype))
        });
        both.collect()
    }

    /// Returns one moment of a tensor for writing.
    fn entry<'s>(&'s self, kind: usize, name: &str, var: &'s Tensor<O>) -> SavedTensor<'s> {
        let name = format!("{}.{name}", KINDS[kind]);
        match self.peers.of_shards() {
            None => SavedTensor::slice(name, var.dims(), self.own_part(kind, &var.range())),
            Some(channel) => SavedTensor::computed(name, var.dims(), move || {
                self.whole_moment(channel, kind, var)
            }),
        }
    }

    /// Ends the requests to the other ranks. `written` is the result of writing.
    pub(crate) fn end(self, written: Result<(), ModelError>) -> Result<(), ModelError> {
        if let Some(error) = self.failure.into_inner() {
            return Err(lost_rank(error));
        }
        if let Some(channel) = self.peers.of_shards() {
            (1..channel.size()).try_for_each(|to| channel.send(to, &[])).map_err(lost_rank)?;
        }
        written
    }

    /// Returns one moment of a tensor; zeros after a failure, which [`Moments::end`] returns.
    fn whole_moment(&self, channel: &Channel, kind: usize, var: &Tensor<O>) -> Vec<f32> {
        let mut values = vec![0.0; var.elem_count()];
        if self.failure.borrow().is_none() {
            let collected = self.collect(channel, kind, var, &mut values);
            *self.failure.borrow_mut() = collected.err();
        }
        values
    }

    fn collect(
        &self,
        channel: &Channel,
        kind: usize,
        var: &Tensor<O>,
        values: &mut [f32],
    ) -> Result<(), RankError> {
        let place = var.range();
        let owned = self.ranges.0.iter().flat_map(|unit| unit.iter().enumerate());
        for (rank, range) in owned {
            let part = common(range, &place);
            if part.is_empty() {
                continue;
            }
            let to = &mut values[part.start - place.start..part.end - place.start];
            if rank == channel.rank() {
                to.copy_from_slice(self.own_part(kind, &part));
                continue;
            }
            let request = [kind, part.start, part.end].map(|number| number as u64);
            channel.send(rank, &request.map(u64::to_le_bytes).concat())?;
            channel.receive_f32(rank, to)?;
        }
        Ok(())
    }

    /// Returns one moment of a range that is part of one of this rank's.
    fn own_part(&self, kind: usize, part: &Range<usize>) -> &[f32] {
        part_of(&self.both[kind], self.ranges.1, part).unwrap_or_default()
    }
}

/// Returns the values of a range that is part of one of some ranges; `None` if there is none.
fn part_of<'v>(
    values: &'v [Cow<'_, [f32]>],
    ranges: &[Range<usize>],
    part: &Range<usize>,
) -> Option<&'v [f32]> {
    let at = ranges.iter().position(|own| own.start <= part.start && part.end <= own.end)?;
    values.get(at)?.get(part.start - ranges[at].start..part.end - ranges[at].start)
}

/// Sends the moments that rank 0 asks for until it has written them. `both` are those of the ranges of this rank.
pub(super) fn serve(
    channel: &Channel,
    both: &[Vec<Cow<'_, [f32]>>; 2],
    own: &[Range<usize>],
) -> Result<(), ModelError> {
    loop {
        let request = channel.receive(0).map_err(lost_rank)?;
        let numbers: Vec<usize> = request.chunks_exact(8).map(number).collect();
        let &[kind, start, end] = numbers.as_slice() else { return Ok(()) };
        let found = both.get(kind).and_then(|moment| part_of(moment, own, &(start..end)));
        channel.send_f32(0, found.unwrap_or_default()).map_err(lost_rank)?;
    }
}

fn number(bytes: &[u8]) -> usize {
    let mut own = [0; 8];
    own.copy_from_slice(bytes);
    u64::from_le_bytes(own) as usize
}
