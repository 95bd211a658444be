//! NCCL as the transfer between the devices of a worker group's ranks.
#![allow(unsafe_code)] // addresses in the memory of devices

use std::sync::Arc;

use maverl_kernels::cuda::{Slice, SliceMut};

use super::peers::{Peers, lost_rank};
use crate::files::{ModelError, ModelErrorKind};
use crate::net::ops::device::{Device, Runner};
use crate::net::ops::{Done, Transfer};
use crate::runtime::RuntimeOptions;
use maverl_dist::{Nccl, NcclSpan};

/// A communicator, and the place of this rank.
#[derive(Debug)]
struct NcclDevices {
    nccl: Nccl,
    rank: usize,
    size: usize,
}

impl Peers {
    /// Connects the devices of the ranks, if there are others and the options ask for it.
    pub(crate) fn connect<M: Runner>(
        &self,
        device: &Device<M>,
        options: &RuntimeOptions,
    ) -> Result<Self, ModelError> {
        let (Some(channel), Some(nccl)) = (self.channel(), &options.nccl) else {
            return Ok(self.clone());
        };
        // Makes the device the one of this thread.
        let bound = device.kernels().machine().stream_handle();
        bound.map_err(|error| ModelError::new(ModelErrorKind::Device, error.to_string()))?;
        let (rank, size) = (channel.rank(), channel.size());
        let nccl = Nccl::join(channel, nccl).map_err(lost_rank)?;
        Ok(self.with_transfer(Arc::new(NcclDevices { nccl, rank, size })))
    }
}

impl Transfer for NcclDevices {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &self,
        stream: u64,
        sends: &[Slice<'_, u8>],
        receives: &mut [SliceMut<'_, u8>],
        done: &mut dyn FnMut() -> Done<bool>,
    ) -> Done<()> {
        let sends: Vec<NcclSpan> =
            sends.iter().map(|part| NcclSpan { at: part.address(), bytes: part.len() }).collect();
        let receives: Vec<NcclSpan> = receives
            .iter()
            .map(|part| NcclSpan { at: part.address(), bytes: part.len() })
            .collect();
        let mut done = || done().map_err(|error| error.to_string());
        // SAFETY: the slices borrow their memory during the call, those that are received into alone.
        unsafe { self.nccl.exchange(stream, &sends, &receives, &mut done) }.map_err(lost_rank)
    }
}
