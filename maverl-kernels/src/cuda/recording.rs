//! Launches that are recorded, and replayed as one graph.
//!
//! [`Kernels::recording_kernels`] returns kernels that launch nothing: they note each launch, and give arrays places in a workspace
//! that has no memory yet. The recording therefore depends neither on the address of the workspace, nor on that of the keys
//! and values, which move when their array grows. A graph is made for both addresses when the recording is replayed, and
//! kept while they stay the same. All other addresses are those of parameters and tables, which never move.
#![allow(unsafe_code)] // for replays; who replays promises that parameters are where they were

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{DeviceArray, DeviceElement, Kernels, Machine, RecordedLaunch, Slice, SliceMut};

/// Address of the workspace in a recording. No address of memory and no number that is passed to a kernel of a forward
/// pass has this bit or the next.
const WORKSPACE: u64 = 1 << 60;
/// Address of the keys and values in a recording.
const KEYS: u64 = 1 << 61;
/// Bytes that places are multiples of.
const STEP: u64 = 512;

/// Launches, and places of a workspace.
#[derive(Debug, Default)]
pub(super) struct LaunchRecorder {
    launches: Mutex<Vec<RecordedLaunch>>,
    places: Mutex<FreeRanges>,
}

/// Places that are free, by their begin, and the end of all places.
#[derive(Debug, Default)]
struct FreeRanges {
    free: BTreeMap<u64, u64>,
    end: u64,
}

/// A place in the workspace, until it is dropped. Launches run in order, so the next array may have it at once.
#[derive(Debug)]
pub(super) struct RangeLease {
    begin: u64,
    bytes: u64,
    of: Arc<LaunchRecorder>,
}

/// Launches that can be replayed.
pub struct Recording<M: Machine> {
    launches: Vec<RecordedLaunch>,
    bytes: u64,
    /// Graph, and the addresses that it was made for.
    graph: Mutex<Option<([u64; 2], M::Graph)>>,
}

impl<M: Machine> fmt::Debug for Recording<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} launches over {} bytes", self.launches.len(), self.bytes)
    }
}

impl FreeRanges {
    /// Takes the smallest free place that is large enough, or one at the end.
    fn take_range(&mut self, bytes: u64) -> u64 {
        let fits = self.free.iter().filter(|(_, room)| **room >= bytes);
        let Some((&begin, &room)) = fits.min_by_key(|(begin, room)| (**room, **begin)) else {
            self.end += bytes;
            return self.end - bytes;
        };
        self.free.remove(&begin);
        if room > bytes {
            self.free.insert(begin + bytes, room - bytes);
        }
        begin
    }

    /// Frees a place, and joins it with those beside it.
    fn free_range(&mut self, mut begin: u64, mut bytes: u64) {
        if let Some(after) = self.free.remove(&(begin + bytes)) {
            bytes += after;
        }
        if let Some((&before, &room)) = self.free.range(..begin).next_back()
            && before + room == begin
        {
            (begin, bytes) = (before, bytes + room);
        }
        self.free.insert(begin, bytes);
    }
}

impl LaunchRecorder {
    pub(super) fn add_launch(&self, launch: RecordedLaunch) {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).push(launch);
    }

    pub(super) fn lease_bytes(self: &Arc<Self>, bytes: u64) -> RangeLease {
        let bytes = bytes.max(1).next_multiple_of(STEP);
        let begin = self.places.lock().unwrap_or_else(PoisonError::into_inner).take_range(bytes);
        RangeLease { begin, bytes, of: Arc::clone(self) }
    }
}

impl RangeLease {
    pub(super) fn leased_address(&self) -> u64 {
        WORKSPACE + self.begin
    }
}

impl Drop for RangeLease {
    fn drop(&mut self) {
        let mut places = self.of.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.free_range(self.begin, self.bytes);
    }
}

impl<M: Machine> Kernels<M> {
    /// Returns kernels that record their launches. Nothing can be copied to or from their arrays.
    #[must_use]
    pub fn recording_kernels(&self) -> Self
    where
        M: Clone,
    {
        Self { recorder: Some(Arc::default()), ..self.fork() }
    }

    /// Returns keys and values of so many elements that get their address when a recording is replayed.
    pub fn recorded_keys<T: DeviceElement>(&self, len: usize) -> DeviceArray<M, T> {
        DeviceArray::at_address(KEYS, len)
    }

    /// Returns what kernels of [`Self::recording_kernels`] have recorded.
    pub fn recorded_launches(&self) -> Recording<M> {
        let none = LaunchRecorder::default();
        let LaunchRecorder { launches, places } = self.recorder.as_deref().unwrap_or(&none);
        let launches = launches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bytes = places.lock().unwrap_or_else(PoisonError::into_inner).end;
        Recording { launches, bytes, graph: Mutex::new(None) }
    }

    /// Runs the launches of a recording, in the order in which they were recorded.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the workspace is too small.
    ///
    /// # Safety
    ///
    /// Arrays whose addresses were passed to launches, other than places of the workspace and the recorded keys, are still
    /// where they were. Blocks that the inputs at the front of the workspace name are within the keys.
    #[expect(clippy::needless_pass_by_value, reason = "who passes a slice for writing gives it up")]
    pub unsafe fn replay_recording(
        &self,
        recording: &Recording<M>,
        workspace: SliceMut<'_, u32>,
        keys: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let room = 4 * workspace.len() as u64;
        assert!(recording.bytes <= room, "{} bytes in {room}", recording.bytes);
        let at = [workspace.address(), keys.address()];
        let mut graph = recording.graph.lock().unwrap_or_else(PoisonError::into_inner);
        if graph.as_ref().is_none_or(|(made_for, _)| *made_for != at) {
            let launches: Vec<RecordedLaunch> =
                recording.launches.iter().map(|launch| launch.with_addresses(at)).collect();
            // The former graph is dropped first.
            *graph = None;
            // SAFETY: the callers of launches have asserted that arrays are long enough; the workspace is as large as
            // the places, and all else is the caller's promise.
            *graph = Some((at, unsafe { self.machine.create_graph(&launches) }?));
        }
        match &*graph {
            // SAFETY: as above.
            Some((_, graph)) => unsafe { self.machine.replay_graph(graph) },
            None => Ok(()),
        }
    }
}

impl<M: Machine> Recording<M> {
    /// Returns the words of its workspace.
    pub fn workspace_words(&self) -> usize {
        self.bytes as usize / 4
    }

    /// Returns a result in the workspace, from where it was recorded.
    ///
    /// # Panics
    ///
    /// If it is not in the workspace.
    pub fn result_slice<'a, T: DeviceElement>(
        &self,
        workspace: Slice<'a, u32>,
        recorded: Slice<'_, T>,
    ) -> Slice<'a, T> {
        let begin = recorded.address().checked_sub(WORKSPACE).expect("a place of the workspace");
        Slice::of_words(workspace, begin, recorded.len())
    }
}

impl RecordedLaunch {
    /// Returns the launch with the addresses of workspace and keys.
    fn with_addresses(&self, [workspace, keys]: [u64; 2]) -> Self {
        let args = self.args.iter().map(|&arg| match arg {
            KEYS.. if arg < 2 * KEYS => keys + (arg - KEYS),
            WORKSPACE.. if arg < KEYS => workspace + (arg - WORKSPACE),
            _ => arg,
        });
        Self { args: args.collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::cuda::{Emulated, LaunchShape, MODEL, to_bf16};

    #[test]
    fn places_are_used_again_and_joined_when_they_are_free() {
        let recorder = Arc::new(LaunchRecorder::default());
        let (a, b, c) =
            (recorder.lease_bytes(1), recorder.lease_bytes(1024), recorder.lease_bytes(512));
        assert_eq!([&a, &b, &c].map(|of| of.begin), [0, 512, 1536]);
        drop(b);
        let small = recorder.lease_bytes(512);
        assert_eq!(small.begin, 512);
        drop((a, small));
        assert_eq!(recorder.lease_bytes(1536).begin, 0);
        drop(c);
        let places = recorder.places.lock().unwrap();
        assert_eq!((places.end, &places.free), (2048, &BTreeMap::from([(0, 2048)])));
    }

    #[test]
    fn only_places_of_the_workspace_and_keys_get_other_addresses() {
        let shape = LaunchShape::of_threads(1);
        let half = u64::from(0.5_f32.to_bits());
        let args = vec![WORKSPACE, WORKSPACE + 512, KEYS + 64, 7, half, 0x7fff_0000_1000];
        let placed =
            RecordedLaunch { kernel: "copy", shape, args }.with_addresses([0x1000, 0x9000]);
        assert_eq!(placed.args, [0x1000, 0x1200, 0x9040, 7, half, 0x7fff_0000_1000]);
    }

    #[test]
    fn a_recording_runs_again_over_other_inputs_other_keys_and_another_workspace() {
        if let Err(error) = crate::emulate::check_compiler() {
            return eprintln!("skipped: {error}");
        }
        let kernels = Kernels::new(Emulated::shared_machine(&MODEL).unwrap());
        let recorder = kernels.recording_kernels();
        let keys = recorder.recorded_keys::<u16>(16);
        let mut input = recorder.new_array::<u16>(8).unwrap();
        let mut sum = recorder.new_array::<u16>(8).unwrap();
        recorder.copy_to_front(keys.as_slice().sub_slice(8..16), input.slice_mut()).unwrap();
        recorder.copy_to_front(input.as_slice(), sum.slice_mut()).unwrap();
        drop(input);
        let recording = recorder.recorded_launches();
        assert_eq!((recording.launches.len(), recording.workspace_words()), (2, 256));
        for seed in 0..3 {
            let numbers = to_bf16(&crate::testing::random(seed, 16));
            let mut keys = kernels.array_of(&numbers).unwrap();
            let mut workspace = kernels.new_array::<u32>(256).unwrap();
            // SAFETY: no other arrays were passed.
            unsafe {
                kernels.replay_recording(&recording, workspace.slice_mut(), keys.slice_mut())
            }
            .unwrap();
            let result = recording.result_slice(workspace.as_slice(), sum.as_slice());
            let mut out = kernels.new_array::<u16>(8).unwrap();
            kernels.copy_to_front(result, out.slice_mut()).unwrap();
            assert_eq!(kernels.read_array(&out).unwrap(), numbers[8..]);
        }
    }
}
