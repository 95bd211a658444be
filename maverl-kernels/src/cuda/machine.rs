//! Devices that run kernels, and the modules of kernels they load.

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use super::cublaslt::{CublasLt, LibraryProduct};

/// Threads of a block of the kernels that do not say otherwise.
pub const BLOCK: u32 = 256;

/// Element type of arrays on a machine.
pub trait DeviceElement:
    Copy + Default + Send + Sync + DeviceRepr + ValidAsZeroBits + 'static
{
}

impl DeviceElement for f32 {}
impl DeviceElement for f64 {}
impl DeviceElement for u8 {}
/// The bits of bf16.
impl DeviceElement for u16 {}
impl DeviceElement for u32 {}
impl DeviceElement for i32 {}
impl DeviceElement for u64 {}

/// Kernels that are compiled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// Name, as compilers print it.
    pub name: &'static str,
    /// Parts of the source, in order. NVRTC compiles them; for [`Emulated`](super::Emulated) a C++ compiler does.
    pub source: &'static [&'static str],
    /// Names of the kernels.
    pub kernels: &'static [&'static str],
}

impl Module {
    /// Returns the source.
    pub fn source_text(&self) -> String {
        self.source.concat()
    }
}

/// Shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

impl LaunchShape {
    /// Shape of at least `threads` threads, in blocks of [`BLOCK`] along one axis.
    pub fn of_threads(threads: usize) -> Self {
        Self::of_blocks(threads.div_ceil(BLOCK as usize))
    }

    /// Shape of so many blocks of [`BLOCK`] threads along one axis.
    pub fn of_blocks(blocks: usize) -> Self {
        Self { grid: [blocks as u32, 1, 1], threads: BLOCK, shared: 0 }
    }

    /// Returns true if there are no blocks, which no device accepts.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// A launch of a kernel, with the bits of its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedLaunch {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Shape.
    pub shape: LaunchShape,
    /// Arguments, as [`Machine::launch_kernel`] takes them.
    pub args: Vec<u64>,
}

/// A device with its own memory that runs the kernels of its modules one after the other.
pub trait Machine {
    /// Error of the device.
    type Error;
    /// Array in the device's memory.
    type Array<T: DeviceElement>: Send + Sync;
    /// Point in the device's work.
    type Event: Send + Sync;
    /// Launches that run one after the other by one call.
    type Graph: Send + Sync;

    /// Copies a host array to the device. An empty array may have any address.
    fn upload_array<T: DeviceElement>(&self, host: &[T]) -> Result<Self::Array<T>, Self::Error>;

    /// Allocates `n` elements of arbitrary content, at a multiple of 256 bytes.
    fn allocate_array<T: DeviceElement>(&self, n: usize) -> Result<Self::Array<T>, Self::Error>;

    /// Allocates `n` zeros.
    fn allocate_zeros<T: DeviceElement>(&self, n: usize) -> Result<Self::Array<T>, Self::Error> {
        self.upload_array(&vec![T::default(); n])
    }

    /// Copies the first `n` elements to the host, after everything launched before has finished.
    fn download_array<T: DeviceElement>(
        &self,
        array: &Self::Array<T>,
        n: usize,
    ) -> Result<Vec<T>, Self::Error>;

    /// Copies the first `n` elements to the host, after a point in the device's work. What was launched after the point
    /// does not write them, and need not have finished.
    fn download_at<T: DeviceElement>(
        &self,
        _: &Self::Event,
        array: &Self::Array<T>,
        n: usize,
    ) -> Result<Vec<T>, Self::Error> {
        self.download_array(array, n)
    }

    /// Copies host elements to the front of an array, after everything launched before has finished.
    fn overwrite_array<T: DeviceElement>(
        &self,
        to: &mut Self::Array<T>,
        host: &[T],
    ) -> Result<(), Self::Error>;

    /// Returns the address of an array.
    fn array_address<T: DeviceElement>(&self, array: &Self::Array<T>) -> u64;

    /// Runs a kernel. An argument is the bits of an address, an integer, an `f32` or an `f64`. A launch without blocks
    /// does nothing.
    ///
    /// # Safety
    ///
    /// The arguments match the kernel's parameters in number and meaning. The memory at each address is as long as the
    /// kernel reads and writes, and lives until the launch has run. Memory that the kernel writes is not read by others
    /// meanwhile.
    #[allow(unsafe_code)]
    unsafe fn launch_kernel(
        &self,
        kernel: &'static str,
        shape: LaunchShape,
        args: &[u64],
    ) -> Result<(), Self::Error>;

    /// Makes a graph of launches. Those without blocks are left out.
    ///
    /// # Safety
    ///
    /// As of [`Machine::launch_kernel`] for each of them, whenever the graph is replayed.
    #[allow(unsafe_code)]
    unsafe fn create_graph(&self, launches: &[RecordedLaunch]) -> Result<Self::Graph, Self::Error>;

    /// Runs the launches of a graph.
    ///
    /// # Safety
    ///
    /// As of [`Machine::create_graph`].
    #[allow(unsafe_code)]
    unsafe fn replay_graph(&self, graph: &Self::Graph) -> Result<(), Self::Error>;

    /// Returns the library that computes the products of backward passes, if the machine has one.
    fn product_library(&self) -> Option<&CublasLt> {
        None
    }

    /// Computes a product by the library, after everything launched before. Returns false, without any effect, if there is
    /// no library, or the library has no suitable algorithm for this shape.
    ///
    /// # Safety
    ///
    /// The memory at each address is as long as the shape says, and lives until the product has been computed. Memory
    /// that is written is not read by others meanwhile.
    #[allow(unsafe_code)]
    unsafe fn multiply_by_library(&self, _: &LibraryProduct) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Records the point after everything launched so far.
    fn record_event(&self) -> Result<Self::Event, Self::Error>;

    /// Returns true if a point is reached. Does not wait.
    fn is_reached(&self, event: &Self::Event) -> Result<bool, Self::Error>;

    /// Returns the handle of the stream on which everything is launched, for libraries that launch work of their own there,
    /// and makes the device the one of the calling thread. 0 is the stream of a machine that has none.
    fn stream_handle(&self) -> Result<u64, Self::Error>;

    /// Returns the milliseconds between two points, after the second is reached.
    fn elapsed_millis(&self, from: &Self::Event, to: &Self::Event) -> Result<f32, Self::Error>;
}
