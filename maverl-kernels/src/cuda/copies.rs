//! A stream of copies to the host, which do not wait for launches on the stream of kernels.
#![allow(unsafe_code)] // for calls of the driver

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, DriverError, result, sys};

/// A stream that waits for a point in another stream's work before each copy.
///
/// It is a stream of the driver that `cudarc` does not know of: with two streams of its own, `cudarc` records an event at each
/// access of an array.
#[derive(Debug)]
pub(super) struct Copies {
    stream: sys::CUstream,
    context: Arc<CudaContext>,
}

// SAFETY: streams may be used from any thread that has bound their context, which each call does.
unsafe impl Send for Copies {}
// SAFETY: as above.
unsafe impl Sync for Copies {}

impl Copies {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // Others would wait for all of the default stream.
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { stream, context: Arc::clone(context) })
    }

    /// Copies numbers from an address, after a point in the work of another stream.
    ///
    /// # Safety
    ///
    /// As many numbers are at the address from the point on, until this returns.
    pub(super) unsafe fn read_from<T>(
        &self,
        at: &CudaEvent,
        address: u64,
        to: &mut [T],
    ) -> Result<(), DriverError> {
        if to.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread()?;
        let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the stream and the event live, both arrays by the caller's promise until the stream has ended the copy.
        unsafe {
            result::stream::wait_event(self.stream, at.cu_event(), wait)?;
            let copied = result::memcpy_dtoh_async(to, address, self.stream);
            result::stream::synchronize(self.stream)?;
            copied
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // An error of the device shows at its next call.
        let _ = self.context.bind_to_thread();
        // SAFETY: each copy has ended, and nobody uses the stream any more.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}
