//! cuBLASLt: products of backward passes by NVIDIA's library, where it is found.
//!
//! A step repeats to the bit. The algorithm of a shape is the first that the library's heuristics propose for it, with the
//! number of tokens rounded up to 256; it is asked for once and kept. Parts of a sum are never added in place or by
//! atomics: no split sums, or split sums that a kernel of its own adds from the workspace. The workspace has a fixed
//! size, and all products are on one stream.
//!
//! Matrices of the library are column-major, so that a row-major array is its own transpose there. With `A` and `B` of the
//! library:
//!
//! | product | row-major | `D` | `A` | `B` |
//! |---|---|---|---|---|
//! | gradient of the input | `dy [m, k] · w [k, n]` | `[n, m]`, leading `n` | `w`, `[n, k]`, leading `n` | `dy`, `[k, m]`, leading `k` |
//! | gradient of the weight | `dyᵀ · x`, `dy [k, m]`, `x [k, n]` | `[n, m]`, leading `n` | `x`, `[n, k]`, leading `n` | `dy`, `[m, k]` transposed, leading `m` |
//!
//! The functions that are called are a table of this crate (`cublaslt/functions.rs`). Those of `cudarc` panic where one
//! is missing, and tests replace the table by a library in C++.
#![allow(unsafe_code)] // for the library's C interface; the status of every call is checked

mod error;
mod functions;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use error::CublasLtError;
pub(crate) use functions::Functions;
use functions::{
    Algorithm, COMPUTE_32F, CONFIG_REDUCTION_SCHEME, CublasStatus, DESC_TRANSA, DESC_TRANSB,
    Heuristic, INVALID_VALUE, NOT_SUPPORTED, OP_N, OP_T, PREF_MAX_WORKSPACE_BYTES,
    PREF_MIN_ALIGNMENT, PREF_REDUCTION_SCHEME_MASK, Pointer, R_16BF, R_32F, REDUCTION_COMPUTE_TYPE,
    REDUCTION_NONE, SUCCESS,
};

/// Bytes of the workspace, as NVIDIA recommends for sm_90.
pub(super) const WORKSPACE: usize = 32 << 20;
/// Tokens that the shape of which an algorithm is chosen is rounded up to.
const TOKENS: usize = 256;
/// Bytes that addresses and rows are multiples of.
const ALIGNMENT: u32 = 16;
/// Proposals of the heuristics that are considered.
const PROPOSALS: usize = 8;

/// Which gradient a product of a backward pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProductGradient {
    /// Of the input: `dy [m, k] · w [k, n]`.
    Input,
    /// Of the weight: `dyᵀ · x`, with `dy [k, m]` and `x [k, n]`.
    Weight,
}

/// A product of a backward pass: `to = scale · product + onto`, `[m, n]`, of terms in bf16.
#[derive(Debug, Clone, Copy)]
pub struct LibraryProduct {
    /// Which gradient it computes.
    pub of: ProductGradient,
    /// Address of `dy`.
    pub dy: u64,
    /// Address of the weight, or of the input.
    pub right: u64,
    /// Rows, columns and terms of a sum.
    pub shape: [usize; 3],
    /// Factor of the product.
    pub scale: f32,
    /// Address of what is added, in f32; 0 if there is nothing.
    pub onto: u64,
    /// Address of the result.
    pub to: u64,
    /// True if the result is bf16, else it is f32.
    pub bf16: bool,
}

/// Properties of a product that decide its algorithm.
type AlgorithmKey = (ProductGradient, [usize; 3], bool);

/// The library on a device.
pub struct CublasLt {
    functions: Functions,
    handle: Pointer,
    /// Algorithm of each shape; none if the library has no suitable one.
    chosen: Mutex<BTreeMap<AlgorithmKey, Option<Algorithm>>>,
    computed: AtomicU64,
}

// SAFETY: a handle of cuBLASLt may be used from any thread, and by several at once.
unsafe impl Send for CublasLt {}
// SAFETY: as above.
unsafe impl Sync for CublasLt {}

impl fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuBLASLt {}", self.functions.version())
    }
}

/// An object of the library, destroyed when it is dropped.
struct Object {
    at: Pointer,
    destroy: unsafe extern "C" fn(Pointer) -> CublasStatus,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the library made the object, and nobody else destroys it.
        unsafe { (self.destroy)(self.at) };
    }
}

/// Description of a product, with the layouts of `A`, `B` and `D`.
struct DescribedProduct {
    product: Object,
    layouts: [Object; 3],
}

fn check_status(call: &'static str, status: CublasStatus) -> Result<(), CublasLtError> {
    match status {
        SUCCESS => Ok(()),
        status => Err(CublasLtError::Failed { call, status }),
    }
}

impl CublasLt {
    /// Opens the library for the device that is current in this thread.
    pub(super) fn new(functions: Functions) -> Result<Self, CublasLtError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the library writes the handle.
        check_status("cublasLtCreate", unsafe { (functions.create)(&raw mut handle) })?;
        let chosen = Mutex::default();
        Ok(Self { functions, handle, chosen, computed: AtomicU64::new(0) })
    }

    /// Returns the version, such as `13.1.0`.
    pub fn version(&self) -> String {
        self.functions.version()
    }

    /// Returns the number of products that the library has computed.
    pub fn product_count(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// Queues a product on a stream. Returns false, without any effect, if the library has no suitable algorithm.
    ///
    /// # Safety
    ///
    /// The memory at each address is as long as the shape says and lives until the product has been computed. The
    /// workspace has [`WORKSPACE`] bytes, and only products of this stream use it.
    pub(super) unsafe fn queue_product(
        &self,
        product: &LibraryProduct,
        workspace: u64,
        stream: *mut c_void,
    ) -> Result<bool, CublasLtError> {
        if !product.is_aligned() {
            return Ok(false);
        }
        let Some(algorithm) = self.find_algorithm(product)? else { return Ok(false) };
        let described = self.describe_product(product.of, product.shape, product.bf16)?;
        let DescribedProduct { product: description, layouts: [a, b, d] } = &described;
        let (alpha, beta) = (product.scale, if product.onto == 0 { 0.0_f32 } else { 1.0 });
        let onto = if product.onto == 0 { product.to } else { product.onto };
        // SAFETY: the objects are alive, the numbers are f32 as the description says, and the memory is the caller's
        // promise.
        let status = unsafe {
            (self.functions.matmul)(
                self.handle,
                description.at,
                (&raw const alpha).cast(),
                product.right as *const c_void,
                a.at,
                product.dy as *const c_void,
                b.at,
                (&raw const beta).cast(),
                onto as *const c_void,
                d.at,
                product.to as *mut c_void,
                d.at,
                &raw const algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream,
            )
        };
        match status {
            // The algorithm was chosen for more tokens.
            NOT_SUPPORTED | INVALID_VALUE => Ok(false),
            status => {
                check_status("cublasLtMatmul", status)?;
                self.computed.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
        }
    }

    /// Returns the algorithm of products of this shape, which is chosen once.
    fn find_algorithm(&self, product: &LibraryProduct) -> Result<Option<Algorithm>, CublasLtError> {
        let &LibraryProduct { of, shape: [m, n, k], bf16, .. } = product;
        let shape = match of {
            ProductGradient::Input => [m.next_multiple_of(TOKENS), n, k],
            ProductGradient::Weight => [m, n, k.next_multiple_of(TOKENS)],
        };
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = chosen.get(&(of, shape, bf16)) {
            return Ok(*found);
        }
        let found = self.choose_algorithm(of, shape, bf16)?;
        chosen.insert((of, shape, bf16), found);
        Ok(found)
    }

    /// Asks the library for algorithms, and takes the first whose results repeat to the bit.
    fn choose_algorithm(
        &self,
        of: ProductGradient,
        shape: [usize; 3],
        bf16: bool,
    ) -> Result<Option<Algorithm>, CublasLtError> {
        let preference = self.create_preference()?;
        let DescribedProduct { product, layouts: [a, b, d] } =
            self.describe_product(of, shape, bf16)?;
        let mut found = [Heuristic::default(); PROPOSALS];
        let mut count = 0;
        // SAFETY: the objects are alive, and the array has so many elements.
        let status = unsafe {
            (self.functions.heuristic)(
                self.handle,
                product.at,
                a.at,
                b.at,
                d.at,
                d.at,
                preference.at,
                PROPOSALS as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        if status == NOT_SUPPORTED {
            return Ok(None);
        }
        check_status("cublasLtMatmulAlgoGetHeuristic", status)?;
        let proposals = found.iter().take(usize::try_from(count).unwrap_or(0));
        let fitting = proposals.filter(|of| of.status == SUCCESS && of.workspace <= WORKSPACE);
        Ok(fitting.map(|of| of.algorithm).find(|algorithm| self.is_repeatable(algorithm)))
    }

    /// Returns true if an algorithm adds parts of sums in a fixed order.
    fn is_repeatable(&self, algorithm: &Algorithm) -> bool {
        let (mut scheme, mut written) = (u32::MAX, 0);
        // SAFETY: the library writes at most four bytes.
        let status = unsafe {
            let to = (&raw mut scheme).cast();
            (self.functions.config_get)(algorithm, CONFIG_REDUCTION_SCHEME, to, 4, &raw mut written)
        };
        status == SUCCESS && [REDUCTION_NONE, REDUCTION_COMPUTE_TYPE].contains(&scheme)
    }

    fn create_preference(&self) -> Result<Object, CublasLtError> {
        let Functions { preference_create, preference_set, preference_destroy, .. } =
            self.functions;
        let mut at = ptr::null_mut();
        // SAFETY: the library writes the object.
        check_status("cublasLtMatmulPreferenceCreate", unsafe { preference_create(&raw mut at) })?;
        let preference = Object { at, destroy: preference_destroy };
        let (bytes, alignment, scheme) = (WORKSPACE as u64, ALIGNMENT, REDUCTION_COMPUTE_TYPE);
        let workspace = (PREF_MAX_WORKSPACE_BYTES, (&raw const bytes).cast::<c_void>(), 8);
        let alignments = PREF_MIN_ALIGNMENT.map(|of| (of, (&raw const alignment).cast(), 4));
        let mask = (PREF_REDUCTION_SCHEME_MASK, (&raw const scheme).cast(), 4);
        for (of, value, size) in [workspace].into_iter().chain(alignments).chain([mask]) {
            // SAFETY: the value has this size, as the attribute's type in the header.
            let status = unsafe { preference_set(preference.at, of, value, size) };
            check_status("cublasLtMatmulPreferenceSetAttribute", status)?;
        }
        Ok(preference)
    }

    fn describe_product(
        &self,
        of: ProductGradient,
        [m, n, k]: [usize; 3],
        bf16: bool,
    ) -> Result<DescribedProduct, CublasLtError> {
        let Functions { description_create, description_set, description_destroy, .. } =
            self.functions;
        let mut at = ptr::null_mut();
        // SAFETY: the library writes the object.
        let status = unsafe { description_create(&raw mut at, COMPUTE_32F, R_32F) };
        check_status("cublasLtMatmulDescCreate", status)?;
        let product = Object { at, destroy: description_destroy };
        let (transposed, dy) = match of {
            ProductGradient::Input => (OP_N, [k, m]),
            ProductGradient::Weight => (OP_T, [m, k]),
        };
        for (of, operation) in [(DESC_TRANSA, OP_N), (DESC_TRANSB, transposed)] {
            // SAFETY: an operation is four bytes.
            let status =
                unsafe { description_set(product.at, of, (&raw const operation).cast(), 4) };
            check_status("cublasLtMatmulDescSetAttribute", status)?;
        }
        let result = if bf16 { R_16BF } else { R_32F };
        let layouts = [
            self.create_layout(R_16BF, [n, k])?,
            self.create_layout(R_16BF, dy)?,
            self.create_layout(result, [n, m])?,
        ];
        Ok(DescribedProduct { product, layouts })
    }

    /// Makes the layout of a column-major matrix without gaps.
    fn create_layout(&self, of: u32, [rows, columns]: [usize; 2]) -> Result<Object, CublasLtError> {
        let Functions { layout_create, layout_destroy, .. } = self.functions;
        let mut at = ptr::null_mut();
        let (rows, columns, leading) = (rows as u64, columns as u64, rows as i64);
        // SAFETY: the library writes the object.
        let status = unsafe { layout_create(&raw mut at, of, rows, columns, leading) };
        check_status("cublasLtMatrixLayoutCreate", status)?;
        Ok(Object { at, destroy: layout_destroy })
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: nobody uses the handle any more.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

impl LibraryProduct {
    /// Returns true if addresses and rows begin at multiples of 16 bytes, which algorithms are chosen for.
    fn is_aligned(&self) -> bool {
        let [m, n, k] = self.shape;
        let leading = if self.of == ProductGradient::Input { k } else { m };
        let rows = [n, leading].iter().all(|width| width.is_multiple_of(8));
        let addresses = [self.dy, self.right, self.onto, self.to];
        rows && addresses.iter().all(|at| at.is_multiple_of(u64::from(ALIGNMENT)))
    }
}
