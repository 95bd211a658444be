//! Passes that add one token to each of some sequences: recorded at first use for each size, and replayed as a graph.
//!
//! A recording is independent of the sequences, and of where their keys and values lie. It has the addresses of weights,
//! which change in place, so it also serves after updates.
//!
//! To record, the layers run with a copy of the decoder that launches nothing (`Decoder::cached`). No stream of the
//! driver is captured, so worker groups on one stream do not disturb each other. A clone of a decoder has no
//! recordings, because it may get other weights.
#![allow(unsafe_code)] // for replays, which read weights by their addresses

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Debug};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use maverl_kernels::attention::Segment;
use maverl_kernels::cuda::{DecodingPass, KvShape, Recording};

use super::{Device, DeviceKv, Numbers, Placed, Runner, Seen, Tokens, empty, failed};
use crate::net::ops::{Buffer, Done, DrawnIds, KvCache, NewTokens};

/// Recorded passes of a decoder, by size.
pub struct Passes<M: Runner>(Mutex<BTreeMap<DecodingPass, Recorded<M>>>);

/// A recorded pass.
pub(super) struct Recorded<M: Runner> {
    recording: Recording<M>,
    pass: DecodingPass,
    /// Hidden states, in the workspace.
    hidden: Numbers<M, u16>,
}

impl<M: Runner> Default for Passes<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Runner> Debug for Passes<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} recorded passes", self.len())
    }
}

impl<M: Runner> Passes<M> {
    /// Returns the number of sizes that are recorded.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the recording of a size, which `record` makes if there is none.
    pub(super) fn with<R>(
        &self,
        pass: DecodingPass,
        record: impl FnOnce() -> Done<Recorded<M>>,
        f: impl FnOnce(&Recorded<M>) -> Done<R>,
    ) -> Done<R> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.entry(pass) {
            Entry::Occupied(found) => f(found.get()),
            Entry::Vacant(place) => f(place.insert(record()?)),
        }
    }
}

impl<M: Runner> Device<M> {
    /// Returns the size of the recorded pass for these sequences; `None` if their pass is not recorded.
    pub(super) fn recorded(&self, segments: &[Segment<'_>]) -> Option<DecodingPass> {
        if self.graphs { DecodingPass::of(segments) } else { None }
    }

    /// Records the launches of `run`, which computes hidden states.
    pub(super) fn record(
        &self,
        pass: DecodingPass,
        shape: KvShape,
        run: impl FnOnce(&Self, &Placed<'_, M>, &DeviceKv<M>) -> Done<Numbers<M, u16>>,
    ) -> Done<Recorded<M>> {
        let recorder = Self { kernels: Arc::new(self.kernels.recorder()), graphs: false };
        let (ids, positions, tables) = recorder.kernels.decoding_tokens(pass).map_err(failed)?;
        let at = Placed::All(Box::new(Tokens { ids, positions, seen: Seen::Cached(tables) }));
        let keys = recorder.kernels.recorded_keys(shape.block());
        let kv = DeviceKv::recorded(Numbers(Some(keys)), shape);
        let hidden = run(&recorder, &at, &kv)?;
        Ok(Recorded { recording: recorder.kernels.recording(), pass, hidden })
    }

    /// Replays a pass with these tokens, and returns the hidden states of the sequences.
    pub(super) fn replay(
        &self,
        of: &Recorded<M>,
        tokens: NewTokens<'_, Self>,
        kv: &mut DeviceKv<M>,
    ) -> Done<Numbers<M, u16>> {
        let NewTokens { ids, positions, segments, drawn } = tokens;
        let from = drawn.map_or(&[][..], |drawn| drawn.rows);
        let inputs = of.pass.pack([ids, positions, from], segments);
        let last = segments.iter().flat_map(|segment| segment.blocks).max();
        assert!(last.is_none_or(|&last| (last as usize) < kv.count()), "block {last:?} of a cache");
        let mut workspace = mem::take(&mut kv.workspace);
        if workspace.len() < of.recording.words() {
            drop(workspace);
            workspace = self.take(of.recording.words())?;
        }
        let array = workspace.0.as_mut().ok_or_else(empty)?;
        self.kernels.write(array, &inputs).map_err(failed)?;
        if let Some(DrawnIds { drawn, rows, vocab }) = drawn {
            self.kernels
                .place_sampled(of.pass, drawn, rows, vocab, array.slice_mut())
                .map_err(failed)?;
        }
        let done = {
            let mut blocks = kv.blocks();
            // SAFETY: the decoder that owns the recording holds its weights and tables, which are only written in place,
            // and the blocks of the sequences are in the cache.
            unsafe { self.kernels.replay(&of.recording, array.slice_mut(), blocks.write()?) }
        };
        done.map_err(failed)?;
        let all = of.recording.result(workspace.read()?, of.hidden.read()?);
        let elements = all.len() / of.pass.rows() * segments.len();
        let mut hidden = self.take(elements)?;
        self.kernels.copy(all.part(0..elements), hidden.write()?).map_err(failed)?;
        kv.workspace = workspace;
        Ok(hidden)
    }
}
