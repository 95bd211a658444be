//! The GPU through its driver.
#![allow(unsafe_code)] // for launches through the driver

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{
    CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;

use super::code::KernelCode;
use super::copies::Copies;
use super::cublaslt::{CublasLt, CublasLtError, Functions, LibraryProduct, WORKSPACE};
use super::{
    ADVANTAGES, DeviceElement, Kernels, LaunchShape, Machine, Module, RecordedLaunch, nvrtc,
};

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
    /// cuBLASLt returned an error.
    #[error("{0}; `MAVERL_CUBLASLT=off` computes products without it")]
    Library(#[from] CublasLtError),
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
            Self::Compile { .. } | Self::Cubins { .. } | Self::Driver(_) | Self::Library(_) => None,
        }
    }
}

/// A kernel of the module of products, for which a library is opened.
const PRODUCT: &str = "product_nn_128";
/// Dynamic shared memory that a kernel has without asking for more.
const SHARED: u32 = 48 << 10;

/// One stream of a GPU, with the kernels compiled for it.
#[derive(Debug, Clone)]
pub struct Driver {
    pub(super) stream: Arc<CudaStream>,
    functions: Arc<BTreeMap<&'static str, CudaFunction>>,
    /// Library of the products of backward passes, or why there is none.
    library: Arc<Result<ProductLibrary, CublasLtError>>,
    copies: Arc<Copies>,
}

/// cuBLASLt with its workspace.
#[derive(Debug)]
struct ProductLibrary {
    library: CublasLt,
    workspace: CudaSlice<u8>,
}

/// A graph of the driver.
#[derive(Debug)]
pub struct DriverGraph {
    graph: sys::CUgraphExec,
    stream: Arc<CudaStream>,
    /// Keeps the modules of its kernels loaded.
    _functions: Arc<BTreeMap<&'static str, CudaFunction>>,
}

// SAFETY: a graph may be launched and destroyed from any thread; the driver's calls bind its context.
unsafe impl Send for DriverGraph {}
// SAFETY: as above; launches of one graph are ordered by its stream.
unsafe impl Sync for DriverGraph {}

impl Drop for DriverGraph {
    fn drop(&mut self) {
        // Launches of the graph end before it is destroyed. An error of the device shows at its next call.
        let _ = self.stream.synchronize();
        // SAFETY: nobody launches the graph any more.
        let _ = unsafe { sys::cuGraphExecDestroy(self.graph) };
    }
}

/// A graph that nodes are added to, destroyed when it is dropped.
struct Nodes(sys::CUgraph);

impl Drop for Nodes {
    fn drop(&mut self) {
        // SAFETY: what was instantiated of the graph does not depend on it.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// The estimators on a GPU.
///
/// The methods of [`Arithmetic`](crate::advantage::Arithmetic) take host slices, which are copied there and back. The
/// methods here take device slices, and groupings uploaded once. They return when the work is queued on the stream.
pub type Gpu = Kernels<Driver>;

impl Driver {
    /// Compiles the kernels of advantages for the device of a stream and runs them on that stream.
    ///
    /// # Errors
    ///
    /// If NVRTC is missing or fails, or the driver does.
    pub fn on_stream(stream: Arc<CudaStream>) -> Result<Self, CudaError> {
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
        let code = KernelCode::find(context.compute_capability()?)?;
        let multiplies = modules.iter().any(|module| module.kernels.contains(&PRODUCT));
        let library =
            if multiplies { ProductLibrary::open(&stream) } else { Err(CublasLtError::Unused) };
        let mut functions = BTreeMap::new();
        for module in modules {
            let loaded = context.load_module(Ptx::from_binary(code.code_of(module)?))?;
            for name in module.kernels {
                functions.insert(*name, loaded.load_function(name)?);
            }
        }
        let copies = Arc::new(Copies::new(context)?);
        Ok(Self { stream, functions: Arc::new(functions), library: Arc::new(library), copies })
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
        let library = Arc::new(Err(CublasLtError::Unused));
        let (stream, copies) = (Arc::clone(stream), Arc::new(Copies::new(context)?));
        Ok(Self { stream, functions: Arc::new(functions), library, copies })
    }

    /// Returns the version of cuBLASLt, or the reason why it is not used.
    pub(super) fn library_state(&self) -> Result<String, CublasLtError> {
        self.library.as_ref().as_ref().map(|of| of.library.version()).map_err(Clone::clone)
    }

    /// Allows a kernel so much dynamic shared memory.
    fn allow_shared_memory(function: &CudaFunction, shared: u32) -> Result<(), CudaError> {
        if shared > SHARED {
            let attribute =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shared as i32)?;
        }
        Ok(())
    }
}

impl ProductLibrary {
    /// Opens the library for the device of a stream.
    fn open(stream: &Arc<CudaStream>) -> Result<Self, CublasLtError> {
        let functions = Functions::find()?;
        stream.context().bind_to_thread().map_err(|error| driver_failure("the context", error))?;
        // SAFETY: the library writes the workspace before it reads it.
        let workspace = unsafe { stream.alloc(WORKSPACE) };
        let workspace = workspace.map_err(|error| driver_failure("the workspace", error))?;
        Ok(Self { library: CublasLt::new(functions)?, workspace })
    }
}

fn driver_failure(call: &'static str, error: DriverError) -> CublasLtError {
    CublasLtError::Failed { call, status: error.0 as u32 }
}

impl Machine for Driver {
    type Error = CudaError;
    type Array<T: DeviceElement> = CudaSlice<T>;
    type Event = CudaEvent;
    type Graph = DriverGraph;

    fn upload_array<T: DeviceElement>(&self, host: &[T]) -> Result<CudaSlice<T>, CudaError> {
        match host {
            [] => self.allocate_array(1),
            host => Ok(self.stream.clone_htod(host)?),
        }
    }

    fn allocate_array<T: DeviceElement>(&self, n: usize) -> Result<CudaSlice<T>, CudaError> {
        // SAFETY: any bits are a valid element, and kernels write all elements that are read later.
        Ok(unsafe { self.stream.alloc(n) }?)
    }

    fn allocate_zeros<T: DeviceElement>(&self, n: usize) -> Result<CudaSlice<T>, CudaError> {
        Ok(self.stream.alloc_zeros(n)?)
    }

    fn download_array<T: DeviceElement>(
        &self,
        array: &CudaSlice<T>,
        n: usize,
    ) -> Result<Vec<T>, CudaError> {
        let mut host = vec![T::default(); n];
        if n > 0 {
            self.stream.memcpy_dtoh(&array.slice(..n), &mut host)?;
        }
        self.stream.synchronize()?;
        Ok(host)
    }

    fn download_at<T: DeviceElement>(
        &self,
        at: &CudaEvent,
        array: &CudaSlice<T>,
        n: usize,
    ) -> Result<Vec<T>, CudaError> {
        assert!(n <= array.len(), "{n} elements of an array of {}", array.len());
        let mut host = vec![T::default(); n];
        // SAFETY: the array is as long, and is borrowed until the copy has ended.
        unsafe { self.copies.read_from(at, self.array_address(array), &mut host) }?;
        Ok(host)
    }

    fn overwrite_array<T: DeviceElement>(
        &self,
        to: &mut CudaSlice<T>,
        host: &[T],
    ) -> Result<(), CudaError> {
        Ok(self.stream.memcpy_htod(host, to)?)
    }

    fn array_address<T: DeviceElement>(&self, array: &CudaSlice<T>) -> u64 {
        array.device_ptr(&self.stream).0
    }

    unsafe fn launch_kernel(
        &self,
        kernel: &'static str,
        shape: LaunchShape,
        args: &[u64],
    ) -> Result<(), CudaError> {
        if shape.is_empty() {
            return Ok(());
        }
        let function = &self.functions[kernel];
        Self::allow_shared_memory(function, shape.shared)?;
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

    unsafe fn create_graph(&self, launches: &[RecordedLaunch]) -> Result<DriverGraph, CudaError> {
        self.stream.context().bind_to_thread()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the driver writes the graph.
        unsafe { sys::cuGraphCreate(&raw mut graph, 0) }.result()?;
        let nodes = Nodes(graph);
        let mut last: sys::CUgraphNode = ptr::null_mut();
        for RecordedLaunch { kernel, shape, args } in
            launches.iter().filter(|of| !of.shape.is_empty())
        {
            let function = &self.functions[kernel];
            Self::allow_shared_memory(function, shape.shared)?;
            // The low bytes of an argument are the argument, on a little-endian host.
            let mut args: Vec<*mut c_void> =
                args.iter().map(|arg| ptr::from_ref(arg).cast_mut().cast()).collect();
            let [x, y, z] = shape.grid;
            let node = sys::CUDA_KERNEL_NODE_PARAMS {
                func: function.cu_function(),
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: shape.threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: shape.shared,
                kernelParams: args.as_mut_ptr(),
                extra: ptr::null_mut(),
                kern: ptr::null_mut(),
                ctx: ptr::null_mut(),
            };
            let (before, mut added): (sys::CUgraphNode, sys::CUgraphNode) = (last, ptr::null_mut());
            let count = usize::from(!before.is_null());
            // SAFETY: the driver copies the arguments, as many as the kernel has by the caller's promise, and the node
            // before is one of this graph.
            unsafe {
                sys::cuGraphAddKernelNode_v2(
                    &raw mut added,
                    nodes.0,
                    &raw const before,
                    count,
                    &node,
                )
            }
            .result()?;
            last = added;
        }
        let mut graph = ptr::null_mut();
        // SAFETY: the driver writes the graph.
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut graph, nodes.0, 0) }.result()?;
        let (stream, functions) = (Arc::clone(&self.stream), Arc::clone(&self.functions));
        Ok(DriverGraph { graph, stream, _functions: functions })
    }

    unsafe fn replay_graph(&self, graph: &DriverGraph) -> Result<(), CudaError> {
        self.stream.context().bind_to_thread()?;
        // SAFETY: the graph lives until its launches have ended, and the caller's promise.
        Ok(unsafe { sys::cuGraphLaunch(graph.graph, self.stream.cu_stream()) }.result()?)
    }

    fn product_library(&self) -> Option<&CublasLt> {
        self.library.as_ref().as_ref().ok().map(|of| &of.library)
    }

    unsafe fn multiply_by_library(&self, product: &LibraryProduct) -> Result<bool, CudaError> {
        let Ok(ProductLibrary { library, workspace }) = self.library.as_ref() else {
            return Ok(false);
        };
        self.stream.context().bind_to_thread()?;
        let workspace = workspace.device_ptr(&self.stream).0;
        // SAFETY: the caller's promise; all products are on this stream.
        Ok(unsafe { library.queue_product(product, workspace, self.stream.cu_stream().cast()) }?)
    }

    fn record_event(&self) -> Result<CudaEvent, CudaError> {
        Ok(self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))?)
    }

    fn is_reached(&self, event: &CudaEvent) -> Result<bool, CudaError> {
        Ok(event.try_is_complete()?)
    }

    fn stream_handle(&self) -> Result<u64, CudaError> {
        self.stream.context().bind_to_thread()?;
        Ok(self.stream.cu_stream() as u64)
    }

    fn elapsed_millis(&self, from: &CudaEvent, to: &CudaEvent) -> Result<f32, CudaError> {
        Ok(from.elapsed_ms(to)?)
    }
}
