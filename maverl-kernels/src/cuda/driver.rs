//! The GPU through its driver, and the estimators on arrays in its memory.
#![allow(unsafe_code)] // for launches through the driver

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut,
    DriverError, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;

use super::kernels::{Add, Scan};
use super::{
    ADVANTAGES, Element, GroupingOn, Kernels, Launch, Machine, Module, PlacesOn, SegmentsOn, nvrtc,
};
use crate::advantage::{GaeSteps, Relative, same};

/// Error of opening or using a GPU.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CudaError {
    /// The driver's library was not found.
    #[error("no CUDA driver: libcuda is not on the library path; the CPU computes the same")]
    NoDriver,
    /// NVRTC's library was not found.
    #[error(
        "no NVRTC: libnvrtc is neither on the library path nor in {searched:?}; install a CUDA toolkit, or \
         `pip install nvidia-cuda-nvrtc` and name the folder in `MAVERL_SITE_PACKAGES`"
    )]
    NoNvrtc {
        /// Folders searched in addition to the library path.
        searched: Vec<PathBuf>,
    },
    /// NVRTC rejected the kernels.
    #[error("the kernels do not compile for {arch}: {why}")]
    Compile {
        /// Architecture that was compiled for.
        arch: String,
        /// Log of the compiler.
        why: String,
    },
    /// The driver returned an error.
    #[error("the CUDA driver failed: {0}")]
    Driver(#[from] DriverError),
}

/// Dynamic shared memory that a kernel has without asking for more.
const SHARED: u32 = 48 << 10;

/// One stream of a GPU, with the kernels compiled for it.
#[derive(Debug, Clone)]
pub struct Driver {
    stream: Arc<CudaStream>,
    functions: Arc<BTreeMap<&'static str, CudaFunction>>,
}

/// The estimators on a GPU.
///
/// The methods of [`Estimate`](crate::advantage::Estimate) take host slices, which are copied there and back. The
/// methods here take device slices, and groupings uploaded once. They return when the work is queued on the stream.
pub type Gpu = Kernels<Driver>;

impl Driver {
    /// Compiles the kernels of advantages for the device of a stream and runs them on that stream.
    ///
    /// # Errors
    ///
    /// If NVRTC is missing or fails, or the driver does.
    pub fn on(stream: Arc<CudaStream>) -> Result<Self, CudaError> {
        Self::with_modules(stream, &[ADVANTAGES])
    }

    /// Compiles modules for the device of a stream and runs their kernels on that stream.
    ///
    /// # Errors
    ///
    /// If NVRTC is missing or fails, or the driver does.
    pub fn with_modules(stream: Arc<CudaStream>, modules: &[Module]) -> Result<Self, CudaError> {
        let context = stream.context();
        let (major, minor) = context.compute_capability()?;
        let mut functions = BTreeMap::new();
        for module in modules {
            let compiled = nvrtc::compile(module, &format!("sm_{major}{minor}"))?;
            let loaded = context.load_module(Ptx::from_binary(compiled.code))?;
            for name in module.kernels {
                functions.insert(*name, loaded.load_function(name)?);
            }
        }
        Ok(Self { stream, functions: Arc::new(functions) })
    }
}

impl Machine for Driver {
    type Error = CudaError;
    type Array<T: Element> = CudaSlice<T>;
    type Event = CudaEvent;

    fn upload<T: Element>(&self, host: &[T]) -> Result<CudaSlice<T>, CudaError> {
        match host {
            [] => self.space(1),
            host => Ok(self.stream.clone_htod(host)?),
        }
    }

    fn space<T: Element>(&self, n: usize) -> Result<CudaSlice<T>, CudaError> {
        // SAFETY: any bits are a valid element, and kernels write all elements that are read later.
        Ok(unsafe { self.stream.alloc(n) }?)
    }

    fn zeros<T: Element>(&self, n: usize) -> Result<CudaSlice<T>, CudaError> {
        Ok(self.stream.alloc_zeros(n)?)
    }

    fn download<T: Element>(&self, array: &CudaSlice<T>, n: usize) -> Result<Vec<T>, CudaError> {
        let mut host = vec![T::default(); n];
        if n > 0 {
            self.stream.memcpy_dtoh(&array.slice(..n), &mut host)?;
        }
        self.stream.synchronize()?;
        Ok(host)
    }

    fn address<T: Element>(&self, array: &CudaSlice<T>) -> u64 {
        array.device_ptr(&self.stream).0
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Launch,
        args: &[u64],
    ) -> Result<(), CudaError> {
        if shape.is_empty() {
            return Ok(());
        }
        let function = &self.functions[kernel];
        if shape.shared > SHARED {
            let attribute =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shape.shared as i32)?;
        }
        let mut launch = self.stream.launch_builder(function);
        // The low bytes of an argument are the argument, on a little-endian host.
        for arg in args {
            launch.arg(arg);
        }
        let [x, y, z] = shape.grid;
        let (grid_dim, block_dim) = ((x, y, z), (shape.threads, 1, 1));
        // SAFETY: guaranteed by the caller.
        unsafe {
            launch.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: shape.shared })
        }?;
        Ok(())
    }

    fn record(&self) -> Result<CudaEvent, CudaError> {
        Ok(self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?)
    }

    fn elapsed(&self, from: &CudaEvent, to: &CudaEvent) -> Result<f32, CudaError> {
        Ok(from.elapsed_ms(to)?)
    }
}

impl Gpu {
    /// Opens the device of this number, for advantages.
    ///
    /// # Errors
    ///
    /// If the device or NVRTC is missing, or one of them fails.
    pub fn open(device: usize) -> Result<Self, CudaError> {
        Self::with_modules(device, &[ADVANTAGES])
    }

    /// Opens the device of this number, and compiles modules for it.
    ///
    /// # Errors
    ///
    /// If the device or NVRTC is missing, or one of them fails.
    pub fn with_modules(device: usize, modules: &[Module]) -> Result<Self, CudaError> {
        // SAFETY: opening a library runs its initializers; those of the driver touch no memory of this program.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let context = CudaContext::new(device)?;
        Ok(Self::new(Driver::with_modules(context.default_stream(), modules)?))
    }

    /// Returns the name of the device.
    ///
    /// # Errors
    ///
    /// If the driver fails.
    pub fn name(&self) -> Result<String, CudaError> {
        Ok(self.machine.stream.context().name()?)
    }

    /// Returns the stream that all work is queued on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.machine.stream
    }

    /// Writes [`Estimate::relative`](crate::advantage::Estimate::relative) of `values` to `out`, both `[N]`.
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
        same("relative_into", values.len(), by.len());
        same("relative_into", out.len(), by.len());
        let (values, _read) = values.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_at(values, by, options, Add::NOTHING, out)
    }

    /// Writes [`Estimate::relative_apart`](crate::advantage::Estimate::relative_apart) of `values` to `out`, both
    /// `[N]`.
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
            same("relative_apart_into", len, values.len());
        }
        let (values, _read) = values.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_rows(values, mean, Some(deviation), options, Add::NOTHING, out)
    }

    /// Computes the second half of [`Estimate::step_groups`](crate::advantage::Estimate::step_groups): writes
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
            same("step_groups_into", len, anchors.len);
        }
        let (to, _episodes) = episodes.device_ptr(self.stream());
        let (returns, _returns) = returns.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.relative_segments(returns, anchors, options, Add { to, weight }, out)
    }

    /// Writes [`Estimate::gae`](crate::advantage::Estimate::gae) of `rewards` and `values` to `advantages` and
    /// `returns`, all `[N]`; `after` is `[rows]`.
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
            same("gae_into", len, places.len);
        }
        same("gae_into", after.len(), places.count);
        let stream = self.stream();
        let (rewards, _rewards) = rewards.device_ptr(stream);
        let (values, _values) = values.device_ptr(stream);
        let (after, _after) = after.device_ptr(stream);
        let (advantages, _advantages) = advantages.device_ptr_mut(stream);
        let (returns, _returns) = returns.device_ptr_mut(stream);
        self.scan_at(&Scan { rewards, values, after, hops, advantages, returns }, places)
    }

    /// Writes [`Estimate::returns`](crate::advantage::Estimate::returns) of `rewards` to `out`, both `[N]`.
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
        same("returns_into", rewards.len(), places.len);
        same("returns_into", out.len(), places.len);
        let (rewards, _read) = rewards.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.scan_at(&Scan::returns(rewards, gamma, out), places)
    }

    /// Writes [`Estimate::whiten`](crate::advantage::Estimate::whiten) of `values` to `out`; all `[N]`.
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
            same("whiten_into", len, by.len);
        }
        let (values, _values) = values.device_ptr(self.stream());
        let (tokens, _tokens) = tokens.device_ptr(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.whiten_at(values, tokens, by, out)
    }

    /// Writes [`Estimate::ema`](crate::advantage::Estimate::ema) of `rewards` to `out`, both `[N]`. The averages
    /// `[seats]` stay in the device's memory from step to step.
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
        same("ema_into", rewards.len(), seats.len);
        same("ema_into", out.len(), seats.len);
        assert!(seats.groups <= averages.len(), "ema_into: one average per seat");
        let (rewards, _read) = rewards.device_ptr(self.stream());
        let (averages, _averages) = averages.device_ptr_mut(self.stream());
        let (out, _write) = out.device_ptr_mut(self.stream());
        self.ema_at(rewards, seats, momentum, averages, out)
    }
}
