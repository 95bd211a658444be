//! NCCL: bytes between the GPUs of all ranks. Its library is opened at run time, by a table of the functions that are used.
//!
//! - The communicator does not block (NCCL 2.14): every call returns at once and is waited for here, so that the loss of a
//!   rank, an error of NCCL, and a time limit end every wait. The communicator is then aborted, once, and no longer used.
//! - All ranks meet over their other connection before a transfer, so that its time limit does not count their delays.
//! - Bytes are sent and received, and never summed by NCCL, whose order of addition depends on its version and topology.
#![allow(unsafe_code)] // for the library's C interface; the result of every call is checked

mod table;

use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Channel, RankError};
use table::{
    BYTES, CommHandle, IN_PROGRESS, NcclConfig, NcclTable, SUCCESS, StreamHandle, UniqueId,
};

/// Longest pause between two looks at an operation.
const PAUSE: Duration = Duration::from_millis(1);
/// Time in which an operation is looked at without a pause.
const BUSY: Duration = Duration::from_micros(200);

/// Options of NCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NcclOptions {
    /// Path of the library; `None` to search it.
    pub library: Option<PathBuf>,
    /// Time after which an operation that all ranks have begun has failed.
    pub timeout: Duration,
}

impl Default for NcclOptions {
    fn default() -> Self {
        Self { library: None, timeout: Duration::from_secs(60) }
    }
}

impl NcclOptions {
    /// Creates options with a time limit in seconds.
    pub fn within_seconds(timeout_s: f64) -> Self {
        Self { timeout: Duration::from_secs_f64(timeout_s), ..Self::default() }
    }
}

/// Bytes in the memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclSpan {
    /// Address.
    pub at: u64,
    /// Number.
    pub bytes: usize,
}

/// A communicator of NCCL with all ranks, on one GPU of each.
#[derive(Debug)]
pub struct Nccl {
    table: NcclTable,
    channel: Channel,
    timeout: Duration,
    /// `None` after an abort.
    comm: Mutex<Option<Comm>>,
}

#[derive(Debug)]
struct Comm(CommHandle);

// SAFETY: a communicator may be used by any thread, by one at a time, which the mutex around it ensures.
unsafe impl Send for Comm {}

impl Nccl {
    /// Creates the communicator of the GPU that is the one of this thread. Every rank calls this.
    ///
    /// # Errors
    ///
    /// If the library cannot be opened, or NCCL or a rank fails.
    pub fn join(channel: &Channel, options: &NcclOptions) -> Result<Self, RankError> {
        let table = NcclTable::open(options.library.as_deref()).map_err(failure)?;
        let mut id = UniqueId::default();
        if channel.rank() == 0 {
            // SAFETY: the id is as long as NCCL writes.
            let code = unsafe { (table.get_unique_id)(&raw mut id) };
            table.check("ncclGetUniqueId", code).map_err(failure)?;
        }
        let first = channel.broadcast(&id.0)?;
        let bytes = first.as_slice().try_into();
        id.0 = bytes.map_err(|_| failure(format!("an id of {} bytes", first.len())))?;
        let channel = channel.clone();
        let nccl = Self { table, channel, timeout: options.timeout, comm: Mutex::new(None) };
        let mut comm = nccl.lock();
        let mut handle: CommHandle = ptr::null_mut();
        let (size, rank) = (nccl.channel.size() as i32, nccl.channel.rank() as i32);
        let mut config = NcclConfig::new();
        // SAFETY: the handle and the configuration live during the call, which does not keep them.
        let code = unsafe { (nccl.table.init)(&raw mut handle, size, id, rank, &raw mut config) };
        *comm = (!handle.is_null()).then_some(Comm(handle));
        nccl.check_started(&mut comm, "ncclCommInitRankConfig", code)?;
        nccl.wait(&mut comm, "ncclCommInitRankConfig", &mut || Ok(true))?;
        drop(comm);
        Ok(nccl)
    }

    /// Sends bytes to each other rank and receives bytes from each, on a stream. `done` returns true when the stream has
    /// done what was launched before its first call. Every rank calls this.
    ///
    /// # Safety
    ///
    /// The memory of all spans lives until the return, nobody writes to it, and nobody reads what is received.
    ///
    /// # Errors
    ///
    /// If NCCL or a rank fails, or the time is over.
    pub unsafe fn exchange(
        &self,
        stream: u64,
        sends: &[NcclSpan],
        receives: &[NcclSpan],
        done: &mut dyn FnMut() -> Result<bool, String>,
    ) -> Result<(), RankError> {
        self.channel.barrier()?;
        let mut comm = self.lock();
        let Some(Comm(handle)) = *comm else { return Err(failure("it was aborted".to_owned())) };
        let stream = stream as StreamHandle;
        // SAFETY: no argument.
        let code = unsafe { (self.table.group_start)() };
        self.check_started(&mut comm, "ncclGroupStart", code)?;
        for ahead in 1..self.channel.size() {
            let (rank, size) = (self.channel.rank(), self.channel.size());
            let (to, from) = ((rank + ahead) % size, (rank + size - ahead) % size);
            let (NcclSpan { at, bytes }, peer) = (sends[to], to as i32);
            if bytes > 0 {
                // SAFETY: the caller's promise on the memory; the communicator was not aborted.
                let code = unsafe {
                    (self.table.send)(at as *const _, bytes, BYTES, peer, handle, stream)
                };
                self.check_started(&mut comm, "ncclSend", code)?;
            }
            let (NcclSpan { at, bytes }, peer) = (receives[from], from as i32);
            if bytes > 0 {
                // SAFETY: as above.
                let code = unsafe {
                    (self.table.receive)(at as *mut _, bytes, BYTES, peer, handle, stream)
                };
                self.check_started(&mut comm, "ncclRecv", code)?;
            }
        }
        // SAFETY: no argument.
        let code = unsafe { (self.table.group_end)() };
        self.check_started(&mut comm, "ncclGroupEnd", code)?;
        self.wait(&mut comm, "a transfer", done)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Comm>> {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts unless a call succeeded or is in progress.
    fn check_started(
        &self,
        comm: &mut Option<Comm>,
        call: &str,
        code: i32,
    ) -> Result<(), RankError> {
        match code {
            IN_PROGRESS => Ok(()),
            _ => self.table.check(call, code).map_err(|reason| self.abort(comm, reason)),
        }
    }

    /// Waits for the operations of a communicator, and then for `done`. Aborts when a rank is lost, an operation fails or
    /// the time is over.
    fn wait(
        &self,
        comm: &mut Option<Comm>,
        what: &str,
        done: &mut dyn FnMut() -> Result<bool, String>,
    ) -> Result<(), RankError> {
        let start = Instant::now();
        loop {
            let Some(Comm(handle)) = *comm else {
                return Err(failure("it was aborted".to_owned()));
            };
            if let Some(lost) = self.channel.failure() {
                self.abort(comm, String::new());
                return Err(lost);
            }
            let mut state = SUCCESS;
            // SAFETY: the communicator was not aborted, and the code is as long as NCCL writes.
            let code = unsafe { (self.table.async_error)(handle, &raw mut state) };
            self.check_started(comm, "ncclCommGetAsyncError", code)?;
            if state == SUCCESS && done().map_err(|reason| self.abort(comm, reason))? {
                return Ok(());
            }
            self.check_started(comm, what, state)?;
            let passed = start.elapsed();
            if passed > self.timeout {
                let seconds = passed.as_secs_f64();
                let reason = format!("{what} did not end within {seconds:.1} s (`dist.timeout_s`)");
                return Err(self.abort(comm, reason));
            }
            if passed < BUSY {
                std::hint::spin_loop()
            } else {
                std::thread::sleep((passed / 20).min(PAUSE))
            }
        }
    }

    /// Aborts the communicator, which ends its operations on the GPU. Returns the error.
    fn abort(&self, comm: &mut Option<Comm>, reason: String) -> RankError {
        if let Some(Comm(handle)) = comm.take() {
            // SAFETY: the communicator was not aborted before, and is no longer used.
            unsafe { (self.table.abort)(handle) };
        }
        failure(reason)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let mut comm = self.lock();
        if self.channel.failure().is_some() {
            self.abort(&mut comm, String::new());
        }
        let Some(Comm(handle)) = *comm else { return };
        // SAFETY: the communicator was not aborted.
        let code = unsafe { (self.table.finalize)(handle) };
        let begun = self.check_started(&mut comm, "ncclCommFinalize", code);
        let ended = begun.and_then(|()| self.wait(&mut comm, "ncclCommFinalize", &mut || Ok(true)));
        if let (Ok(()), Some(Comm(handle))) = (ended, comm.take()) {
            // SAFETY: the communicator is finalized, and no longer used.
            unsafe { (self.table.destroy)(handle) };
        }
    }
}

fn failure(reason: String) -> RankError {
    RankError::Devices { reason }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
