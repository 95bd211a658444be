//! The GPU through its driver.
#![allow(unsafe_code)] // for launches through the driver

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::{
    CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;

use super::code::Code;
use super::{ADVANTAGES, Element, Kernels, Launch, Machine, Module, nvrtc};

/// Error of opening or using a GPU.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CudaError {
    /// The driver's library was not found.
    #[error("no CUDA driver: libcuda is not on the library path; {INSTALL_DRIVER}")]
    NoDriver,
    /// NVRTC's library was not found.
    #[error(
        "no NVRTC: libnvrtc is neither on the library path nor in {searched:?}; {INSTALL_NVRTC}"
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
    /// A file of machine code cannot be used.
    #[error("the kernels in `{}` cannot be used: {reason}", path.display())]
    Cubins {
        /// Path of the file.
        path: PathBuf,
        /// Reason, with a remedy.
        reason: String,
    },
    /// The driver returned an error.
    #[error("the CUDA driver failed: {0}")]
    Driver(#[from] DriverError),
}

/// Remedy of a missing driver.
const INSTALL_DRIVER: &str = "install the driver of the GPU, which `nvidia-smi` is a part of";

/// Remedy of a missing NVRTC.
const INSTALL_NVRTC: &str = "install a CUDA toolkit, or `pip install nvidia-cuda-nvrtc` and name the folder in \
                             `MAVERL_SITE_PACKAGES`";

impl CudaError {
    /// Returns the end of the message of a missing library: what to install.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NoDriver => Some(INSTALL_DRIVER),
            Self::NoNvrtc { .. } => Some(INSTALL_NVRTC),
            Self::Compile { .. } | Self::Cubins { .. } | Self::Driver(_) => None,
        }
    }
}

/// Dynamic shared memory that a kernel has without asking for more.
const SHARED: u32 = 48 << 10;

/// One stream of a GPU, with the kernels compiled for it.
#[derive(Debug, Clone)]
pub struct Driver {
    pub(super) stream: Arc<CudaStream>,
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

    /// Loads modules for the device of a stream and runs their kernels on that stream. Their code is that of a file of
    /// [`cubins`](super::cubins), or NVRTC compiles it.
    ///
    /// # Errors
    ///
    /// If there is neither code in a file nor NVRTC, NVRTC fails, or the driver does.
    pub fn with_modules(stream: Arc<CudaStream>, modules: &[Module]) -> Result<Self, CudaError> {
        let context = stream.context();
        let code = Code::find(context.compute_capability()?)?;
        let mut functions = BTreeMap::new();
        for module in modules {
            let loaded = context.load_module(Ptx::from_binary(code.of(module)?))?;
            for name in module.kernels {
                functions.insert(*name, loaded.load_function(name)?);
            }
        }
        Ok(Self { stream, functions: Arc::new(functions) })
    }

    /// Compiles a source by NVRTC for the device of a stream, and runs its kernels on that stream. `file` is its name in
    /// messages.
    pub(super) fn with_source(
        stream: &Arc<CudaStream>,
        file: &str,
        source: &str,
        kernels: &[&'static str],
    ) -> Result<Self, CudaError> {
        let context = stream.context();
        let (major, minor) = context.compute_capability()?;
        let code = nvrtc::compile_source(file, source, &format!("sm_{major}{minor}"))?.code;
        let loaded = context.load_module(Ptx::from_binary(code))?;
        let mut functions = BTreeMap::new();
        for &name in kernels {
            functions.insert(name, loaded.load_function(name)?);
        }
        Ok(Self { stream: Arc::clone(stream), functions: Arc::new(functions) })
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

    fn reached(&self, event: &CudaEvent) -> Result<bool, CudaError> {
        Ok(event.try_is_complete()?)
    }

    fn stream(&self) -> Result<u64, CudaError> {
        self.stream.context().bind_to_thread()?;
        Ok(self.stream.cu_stream() as u64)
    }

    fn elapsed(&self, from: &CudaEvent, to: &CudaEvent) -> Result<f32, CudaError> {
        Ok(from.elapsed_ms(to)?)
    }
}
