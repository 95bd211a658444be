//! Kernels as plain C++ on the CPU, as a machine.
#![allow(unsafe_code)] // memory that kernels write to through addresses

use std::alloc::{self, Layout};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;

#[cfg(test)]
use super::cublaslt::WORKSPACE;
use super::cublaslt::{CublasLt, LibraryProduct};
use super::machine::{DeviceElement, LaunchShape, Machine, Module, RecordedLaunch};
use crate::emulate::{EmulateError, KernelLibrary, ThreadSchedule};

/// Bytes before and after each array that no kernel may write.
const GUARD: usize = 512;
/// Byte of guards and of memory that was not written: NaN in each type of numbers.
const POISON: u8 = 0xff;

/// Kernels as C++ on the CPU. Arrays begin as NaN; a kernel that writes beside one is an error when it is read.
#[derive(Debug, Clone)]
pub struct Emulated {
    libraries: Vec<(Module, KernelLibrary)>,
    settings: Arc<Mutex<ThreadSchedule>>,
    /// Library of products, with its workspace.
    products: Option<Arc<(CublasLt, HostArray<u8>)>>,
}

/// Memory of an [`Emulated`] machine.
#[derive(Debug)]
pub struct HostArray<T> {
    at: *mut T,
    len: usize,
    layout: Layout,
}

// SAFETY: the array owns its memory, which is written through addresses by launches alone. Who launches a kernel promises
// that nobody reads what it writes meanwhile.
unsafe impl<T: DeviceElement> Send for HostArray<T> {}
// SAFETY: as above.
unsafe impl<T: DeviceElement> Sync for HostArray<T> {}

impl Emulated {
    /// Builds modules with the C++ compiler.
    ///
    /// # Errors
    ///
    /// If there is no compiler, or it fails.
    pub fn build(modules: &[Module]) -> Result<Self, EmulateError> {
        Self::build_by(modules, |module| {
            KernelLibrary::build(&module.source_text(), module.kernels)
        })
    }

    fn build_by(
        modules: &[Module],
        build: fn(&Module) -> Result<KernelLibrary, EmulateError>,
    ) -> Result<Self, EmulateError> {
        let built: Vec<Result<KernelLibrary, EmulateError>> =
            modules.par_iter().map(build).collect();
        let named = modules.iter().zip(built).map(|(module, library)| Ok((*module, library?)));
        Ok(Self::from_libraries(named.collect::<Result<_, EmulateError>>()?))
    }

    /// Creates a machine of modules that are built once ([`KernelLibrary::open_cached`]).
    ///
    /// # Errors
    ///
    /// If there is no compiler, or it failed.
    pub fn shared_machine(modules: &'static [Module]) -> Result<Self, String> {
        type Built = Result<Vec<(Module, KernelLibrary)>, String>;
        static BUILT: Mutex<BTreeMap<&str, Built>> = Mutex::new(BTreeMap::new());
        let Some(first) = modules.first() else { return Ok(Self::from_libraries(Vec::new())) };
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let libraries = built.entry(first.name).or_insert_with(|| {
            let built = Self::build_by(modules, |module| {
                KernelLibrary::open_cached(&module.source_text(), module.kernels)
            });
            built.map(|machine| machine.libraries).map_err(|error| error.to_string())
        });
        libraries.clone().map(Self::from_libraries)
    }

    /// Creates a machine of libraries that are built.
    pub fn from_libraries(libraries: Vec<(Module, KernelLibrary)>) -> Self {
        Self { libraries, settings: Arc::default(), products: None }
    }

    /// Returns the machine with a library for the products of backward passes, which computes on the CPU.
    #[cfg(test)]
    pub(super) fn with_products(self, library: CublasLt) -> Self {
        Self { products: Some(Arc::new((library, HostArray::new(WORKSPACE)))), ..self }
    }

    /// Sets the order of threads and the time of asynchronous copies.
    pub fn apply_settings(&self, settings: ThreadSchedule) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

impl<T: DeviceElement> HostArray<T> {
    fn new(len: usize) -> Self {
        let bytes = (len * size_of::<T>()).next_multiple_of(16) + 2 * GUARD;
        let layout = Layout::from_size_align(bytes, GUARD).expect("an array fits the memory");
        // SAFETY: the layout is not empty, and the bytes are inside.
        unsafe {
            let start = alloc::alloc(layout);
            assert!(!start.is_null(), "no memory for {bytes} bytes");
            start.write_bytes(POISON, bytes);
            Self { at: start.add(GUARD).cast(), len, layout }
        }
    }

    /// Returns true if nothing was written beside the array.
    fn guards_whole(&self) -> bool {
        let start = self.at.cast::<u8>().wrapping_sub(GUARD);
        let end = GUARD + self.len * size_of::<T>();
        // SAFETY: the memory is as long as its layout, and was written when it was made.
        let bytes = unsafe { std::slice::from_raw_parts(start, self.layout.size()) };
        bytes[..GUARD].iter().chain(&bytes[end..]).all(|&byte| byte == POISON)
    }
}

impl<T> Drop for HostArray<T> {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { alloc::dealloc(self.at.cast::<u8>().wrapping_sub(GUARD), self.layout) }
    }
}

impl Machine for Emulated {
    type Error = EmulateError;
    type Array<T: DeviceElement> = HostArray<T>;
    type Event = Instant;
    type Graph = Vec<RecordedLaunch>;

    fn upload_array<T: DeviceElement>(&self, host: &[T]) -> Result<HostArray<T>, EmulateError> {
        let array = HostArray::new(host.len());
        // SAFETY: the array is as long, and new.
        unsafe { std::ptr::copy_nonoverlapping(host.as_ptr(), array.at, host.len()) };
        Ok(array)
    }

    fn allocate_array<T: DeviceElement>(&self, n: usize) -> Result<HostArray<T>, EmulateError> {
        Ok(HostArray::new(n))
    }

    fn download_array<T: DeviceElement>(
        &self,
        array: &HostArray<T>,
        n: usize,
    ) -> Result<Vec<T>, EmulateError> {
        assert!(n <= array.len, "{n} elements of an array of {}", array.len);
        if !array.guards_whole() {
            let what = format!("a kernel writes beside an array of {} elements", array.len);
            return Err(EmulateError::Launch(what));
        }
        // SAFETY: the array is as long, every bit pattern is an element, and launches have returned.
        Ok(unsafe { std::slice::from_raw_parts(array.at, n) }.to_vec())
    }

    fn overwrite_array<T: DeviceElement>(
        &self,
        to: &mut HostArray<T>,
        host: &[T],
    ) -> Result<(), EmulateError> {
        assert!(host.len() <= to.len, "{} elements to an array of {}", host.len(), to.len);
        // SAFETY: the array is as long, and launches have returned.
        unsafe { std::ptr::copy_nonoverlapping(host.as_ptr(), to.at, host.len()) };
        Ok(())
    }

    fn array_address<T: DeviceElement>(&self, array: &HostArray<T>) -> u64 {
        array.at as u64
    }

    unsafe fn launch_kernel(
        &self,
        kernel: &'static str,
        shape: LaunchShape,
        args: &[u64],
    ) -> Result<(), EmulateError> {
        if shape.is_empty() {
            return Ok(());
        }
        let mut libraries = self.libraries.iter();
        let Some((_, library)) = libraries.find(|(module, _)| module.kernels.contains(&kernel))
        else {
            return Err(EmulateError::Launch(format!("no module with the kernel {kernel}")));
        };
        library.apply_settings(*self.settings.lock().unwrap_or_else(PoisonError::into_inner));
        let LaunchShape { grid, threads, shared } = shape;
        // SAFETY: the caller's promise.
        unsafe { library.launch_kernel(kernel, grid, threads, shared, args) }
    }

    unsafe fn create_graph(
        &self,
        launches: &[RecordedLaunch],
    ) -> Result<Vec<RecordedLaunch>, EmulateError> {
        Ok(launches.to_vec())
    }

    unsafe fn replay_graph(&self, graph: &Vec<RecordedLaunch>) -> Result<(), EmulateError> {
        // SAFETY: the caller's promise.
        graph.iter().try_for_each(|of| unsafe { self.launch_kernel(of.kernel, of.shape, &of.args) })
    }

    fn product_library(&self) -> Option<&CublasLt> {
        self.products.as_deref().map(|(library, _)| library)
    }

    unsafe fn multiply_by_library(&self, product: &LibraryProduct) -> Result<bool, EmulateError> {
        let Some((library, workspace)) = self.products.as_deref() else { return Ok(false) };
        // SAFETY: the caller's promise; products are computed one after the other.
        unsafe { library.queue_product(product, workspace.at as u64, std::ptr::null_mut()) }
            .map_err(|error| EmulateError::Launch(error.to_string()))
    }

    fn record_event(&self) -> Result<Instant, EmulateError> {
        Ok(Instant::now())
    }

    fn is_reached(&self, _: &Instant) -> Result<bool, EmulateError> {
        Ok(true)
    }

    fn stream_handle(&self) -> Result<u64, EmulateError> {
        Ok(0)
    }

    fn elapsed_millis(&self, from: &Instant, to: &Instant) -> Result<f32, EmulateError> {
        Ok(to.duration_since(*from).as_secs_f32() * 1e3)
    }
}
