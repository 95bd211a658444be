//! The estimators on arrays in the memory of a GPU.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};

use super::code::KernelCode;
use super::cublaslt::CublasLtError;
use super::kernels::{ScanArguments, SumBase};
use super::{ADVANTAGES, CudaError, Driver, Gpu, GroupingOn, Module, PlacesOn, SegmentsOn, found};
use crate::advantage::{GaeSteps, Relative, assert_same_length};

impl Gpu {
    /// Opens the device of this number, for advantages.
    ///
    /// # Errors
    ///
    /// If the device or NVRTC is missing, or one of them fails.
    pub fn open(device: usize) -> Result<Self, CudaError> {
        Self::with_modules(device, &[ADVANTAGES])
    }

    /// Opens the device of this number, and loads modules for it: from a file of [`cubins`](super::cubins), or compiled
    /// by NVRTC.
    ///
    /// # Errors
    ///
    /// If the device is missing, there is neither code in a file nor NVRTC, or one of them fails.
    pub fn with_modules(device: usize, modules: &[Module]) -> Result<Self, CudaError> {
        found::check_driver()?;
        let context = CudaContext::new(device)?;
        Ok(Self::new(Driver::with_modules(context.default_stream(), modules)?))
    }

    /// Returns the origin of the code of kernels on the device of this number, without loading it.
    ///
    /// # Errors
    ///
    /// If the device is missing, or there is neither code in a file nor NVRTC.
    pub fn code_origin(device: usize) -> Result<String, CudaError> {
        found::check_driver()?;
        Ok(KernelCode::find(CudaContext::new(device)?.compute_capability()?)?.name())
    }

    /// Returns the free and the total bytes of the device's memory.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn memory_bytes(&self) -> Result<[u64; 2], CudaError> {
        let (free, total) = self.machine.stream.context().mem_get_info()?;
        Ok([free as u64, total as u64])
    }

    /// Returns the name of the device.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn name(&self) -> Result<String, CudaError> {
        Ok(self.machine.stream.context().name()?)
    }

    /// Returns the version of cuBLASLt, by which products of backward passes are computed, or the reason why it is not used.
    ///
    /// # Errors
    ///
    /// If the library is missing or failed, or no module has products.
    pub fn library_version(&self) -> Result<String, CublasLtError> {
        self.machine.library_state()
    }

    /// Returns the stream that all work is queued on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.machine.stream
    }

    /// Writes [`Arithmetic::relative_advantages`](crate::advantage::Arithmetic::relative_advantages) of `values` to
    /// `out`, both `[N]`.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or the baseline is the second best, of which there is no kernel.
    pub fn relative_into(
        &self,
        values: &impl DevicePtr<f32>,
        by: &GroupingOn<Driver>,
        options: &Relative,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        assert_same_length("relative_into", values.len(), by.len());
        assert_same_length("relative_into", out.len(), by.len());
        let (values, _read) = values.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_at(values, by, options, SumBase::NOTHING, out)
    }

    /// Writes [`Arithmetic::relative_advantages`](crate::advantage::Arithmetic::relative_advantages) of `values` to
    /// `out`, both `[N]`.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or the baseline is the second best, of which there is no kernel.
    pub fn relative_apart_into(
        &self,
        values: &impl DevicePtr<f32>,
        mean: &GroupingOn<Driver>,
        deviation: &GroupingOn<Driver>,
        options: &Relative,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        for len in [mean.len(), deviation.len(), out.len()] {
            assert_same_length("relative_apart_into", len, values.len());
        }
        let (values, _read) = values.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_rows(values, mean, Some(deviation), options, SumBase::NOTHING, out)
    }

    /// Computes the second half of [`Arithmetic::step_groups`](crate::advantage::Arithmetic::step_groups): writes
    /// `episodes + weight · A` to `out`, with `A` the advantage of `returns` within their anchor groups; all `[N]`.
    /// [`Self::returns_into`] is the first half.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or the baseline is the second best, of which there is no kernel.
    pub fn step_groups_into(
        &self,
        episodes: &impl DevicePtr<f32>,
        returns: &impl DevicePtr<f32>,
        anchors: &SegmentsOn<Driver>,
        weight: f64,
        options: &Relative,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        for len in [episodes.len(), returns.len(), out.len()] {
            assert_same_length("step_groups_into", len, anchors.len);
        }
        let (to, _episodes) = episodes.device_ptr(self.stream());
        let (returns, _returns) = returns.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_segments(returns, anchors, options, SumBase { to, weight }, out)
    }

    /// Writes [`Arithmetic::gae_advantages`](crate::advantage::Arithmetic::gae_advantages) of `rewards` and `values` to
    /// `advantages` and `returns`, all `[N]`; `after` is `[rows]`.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn gae_into(
        &self,
        [rewards, values, after]: [&CudaSlice<f32>; 3],
        places: &PlacesOn<Driver>,
        hops: GaeSteps,
        [advantages, returns]: [&mut CudaSlice<f32>; 2],
    ) -> Result<(), CudaError> {
        for len in [rewards.len(), values.len(), advantages.len(), returns.len()] {
            assert_same_length("gae_into", len, places.len);
        }
        assert_same_length("gae_into", after.len(), places.count);
        let stream = self.stream();
        let (rewards, _rewards) = rewards.device_ptr(stream);
        let (values, _values) = values.device_ptr(stream);
        let (after, _after) = after.device_ptr(stream);
        let (advantages, _advantages) = advantages.device_ptr_mut(stream);
        let (returns, _returns) = returns.device_ptr_mut(stream);
        self.scan_at(&ScanArguments { rewards, values, after, hops, advantages, returns }, places)
    }

    /// Writes [`Arithmetic::discounted_returns`](crate::advantage::Arithmetic::discounted_returns) of `rewards` to
    /// `out`, both `[N]`.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn returns_into(
        &self,
        rewards: &impl DevicePtr<f32>,
        places: &PlacesOn<Driver>,
        gamma: f64,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        assert_same_length("returns_into", rewards.len(), places.len);
        assert_same_length("returns_into", out.len(), places.len);
        let (rewards, _read) = rewards.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.scan_at(&ScanArguments::for_returns(rewards, gamma, out), places)
    }

    /// Writes [`Arithmetic::whiten_groups`](crate::advantage::Arithmetic::whiten_groups) of `values` to `out`; all `[N]`.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn whiten_into(
        &self,
        values: &impl DevicePtr<f32>,
        tokens: &impl DevicePtr<u32>,
        by: &SegmentsOn<Driver>,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        for len in [values.len(), tokens.len(), out.len()] {
            assert_same_length("whiten_into", len, by.len);
        }
        let (values, _values) = values.device_ptr(self.stream());
        let (tokens, _tokens) = tokens.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.whiten_at(values, tokens, by, out)
    }

    /// Writes [`Arithmetic::subtract_average`](crate::advantage::Arithmetic::subtract_average) of `rewards` to `out`,
    /// both `[N]`. The averages `[seats]` stay in the device's memory from step to step.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or a seat has no average.
    pub fn ema_into(
        &self,
        rewards: &impl DevicePtr<f32>,
        seats: &SegmentsOn<Driver>,
        momentum: f64,
        averages: &mut impl DevicePtrMut<f64>,
        out: &mut impl DevicePtrMut<f32>,
    ) -> Result<(), CudaError> {
        assert_same_length("ema_into", rewards.len(), seats.len);
        assert_same_length("ema_into", out.len(), seats.len);
        assert!(seats.groups <= averages.len(), "ema_into: one average per seat");
        let (rewards, _read) = rewards.device_ptr(self.stream());
        let (averages, _averages) = averages.device_ptr_mut(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.ema_at(rewards, seats, momentum, averages, out)
    }
}
