//! Moments of all ranks in one file: rank 0 writes it, and asks the others for what it lacks, one tensor at a time.
//!
//! The file is the one of a single process, so that any number of ranks reads it.

use std::borrow::Cow;
use std::cell::RefCell;

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
    /// Moments of this rank, with their places in its shard.
    both: [Cow<'a, [f32]>; 2],
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
        both: [Cow<'a, [f32]>; 2],
        peers: Peers,
        written: Option<StoredDtype>,
    ) -> Self {
        Self { params, both, eight_bit: None, peers, written, failure: RefCell::default() }
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
            None => SavedTensor::slice(name, var.dims(), &self.both[kind][var.range()]),
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
        let shards = self.peers.shards(self.params.elements());
        for (rank, shard) in shards.iter().enumerate() {
            let part = common(shard, &place);
            if part.is_empty() {
                continue;
            }
            let to = &mut values[part.start - place.start..part.end - place.start];
            if rank == channel.rank() {
                let own = &self.both[kind][part.start - shard.start..part.end - shard.start];
                to.copy_from_slice(own);
                continue;
            }
            let request = [kind, part.start, part.end].map(|number| number as u64);
            channel.send(rank, &request.map(u64::to_le_bytes).concat())?;
            channel.receive_f32(rank, to)?;
        }
        Ok(())
    }
}

/// Sends the moments that rank 0 asks for until it has written them. `first` is the first element of this rank's shard.
pub(super) fn serve(
    channel: &Channel,
    both: &[Cow<'_, [f32]>; 2],
    first: usize,
) -> Result<(), ModelError> {
    loop {
        let request = channel.receive(0).map_err(lost_rank)?;
        let numbers: Vec<usize> = request.chunks_exact(8).map(number).collect();
        let &[kind, start, end] = numbers.as_slice() else { return Ok(()) };
        let asked = both.get(kind).zip(start.checked_sub(first).zip(end.checked_sub(first)));
        let found = asked.and_then(|(moment, (start, end))| moment.get(start..end));
        channel.send_f32(0, found.unwrap_or_default()).map_err(lost_rank)?;
    }
}

fn number(bytes: &[u8]) -> usize {
    let mut own = [0; 8];
    own.copy_from_slice(bytes);
    u64::from_le_bytes(own) as usize
}
