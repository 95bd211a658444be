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

use super::{
    Device, DeviceKv, DeviceNumbers, DevicePlaced, DeviceTokens, Runner, Seen, empty, machine_error,
};
use crate::net::ops::{Buffer, Done, DrawnIds, KvCache, NewTokens};

/// Recorded passes of a decoder, by size.
pub struct DecodingPasses<M: Runner>(Mutex<BTreeMap<DecodingPass, RecordedPass<M>>>);

/// A recorded pass.
pub(super) struct RecordedPass<M: Runner> {
    recording: Recording<M>,
    pass: DecodingPass,
    /// Hidden states, in the workspace.
    hidden: DeviceNumbers<M, u16>,
}

impl<M: Runner> Default for DecodingPasses<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Runner> Debug for DecodingPasses<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} recorded passes", self.len())
    }
}

impl<M: Runner> DecodingPasses<M> {
    /// Returns the number of sizes that are recorded.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns true if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the recording of a size, which `record` makes if there is none.
    pub(super) fn with_recording<R>(
        &self,
        pass: DecodingPass,
        record: impl FnOnce() -> Done<RecordedPass<M>>,
        f: impl FnOnce(&RecordedPass<M>) -> Done<R>,
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
    pub(super) fn recorded_pass(&self, segments: &[Segment<'_>]) -> Option<DecodingPass> {
        if self.graphs { DecodingPass::for_segments(segments) } else { None }
    }

    /// Records the launches of `run`, which computes hidden states.
    pub(super) fn record(
        &self,
        pass: DecodingPass,
        shape: KvShape,
        run: impl FnOnce(&Self, &DevicePlaced<'_, M>, &DeviceKv<M>) -> Done<DeviceNumbers<M, u16>>,
    ) -> Done<RecordedPass<M>> {
        let recorder = Self { kernels: Arc::new(self.kernels.recording_kernels()), graphs: false };
        let (ids, positions, tables) =
            recorder.kernels.decoding_tokens(pass).map_err(machine_error)?;
        let at = DevicePlaced::All(Box::new(DeviceTokens {
            ids,
            positions,
            seen: Seen::Cached(tables),
        }));
        let keys = recorder.kernels.recorded_keys(shape.block_len());
        let kv = DeviceKv::for_recording(DeviceNumbers(Some(keys)), shape);
        let hidden = run(&recorder, &at, &kv)?;
        Ok(RecordedPass { recording: recorder.kernels.recorded_launches(), pass, hidden })
    }

    /// Replays a pass with these tokens, and returns the hidden states of the sequences.
    pub(super) fn replay(
        &self,
        of: &RecordedPass<M>,
        tokens: NewTokens<'_, Self>,
        kv: &mut DeviceKv<M>,
    ) -> Done<DeviceNumbers<M, u16>> {
        let NewTokens { ids, positions, segments, drawn } = tokens;
        let from = drawn.map_or(&[][..], |drawn| drawn.rows);
        let inputs = of.pass.pack_inputs([ids, positions, from], segments);
        let last = segments.iter().flat_map(|segment| segment.blocks).max();
        assert!(last.is_none_or(|&last| (last as usize) < kv.count()), "block {last:?} of a cache");
        let mut workspace = mem::take(&mut kv.workspace);
        if workspace.len() < of.recording.workspace_words() {
            drop(workspace);
            workspace = self.take(of.recording.workspace_words())?;
        }
        let array = workspace.0.as_mut().ok_or_else(empty)?;
        self.kernels.write_array(array, &inputs).map_err(machine_error)?;
        if let Some(DrawnIds { drawn, rows, vocab }) = drawn {
            self.kernels
                .place_sampled(of.pass, drawn, rows, vocab, array.slice_mut())
                .map_err(machine_error)?;
        }
        let done = {
            let mut blocks = kv.blocks();
            // SAFETY: the decoder that owns the recording holds its weights and tables, which are only written in place,
            // and the blocks of the sequences are in the cache.
            unsafe {
                self.kernels.replay_recording(&of.recording, array.slice_mut(), blocks.write()?)
            }
        };
        done.map_err(machine_error)?;
        let all = of.recording.result_slice(workspace.read()?, of.hidden.read()?);
        let elements = all.len() / of.pass.rows() * segments.len();
        let mut hidden = self.take(elements)?;
        self.kernels
            .copy_to_front(all.sub_slice(0..elements), hidden.write()?)
            .map_err(machine_error)?;
        kv.workspace = workspace;
        Ok(hidden)
    }
}
