//! The calls of MPI. One thread makes all of them, the one that has initialized MPI (`MPI_THREAD_FUNNELED`).
#![allow(unsafe_code)] // for MPI's C interface; the result of every call is checked

use std::marker::PhantomData;
use std::mem;

use mpi::Threading;
use mpi::environment::{Universe, library_version};
use mpi::ffi;
use mpi::topology::Communicator as _;

/// Tag of all messages. The order of messages between two ranks is that in which they were sent.
const TAG: i32 = 0;

/// All processes that MPI has started together. It stays on the thread that has created it.
pub(super) struct World {
    rank: usize,
    size: usize,
    /// Ends MPI when it is dropped.
    universe: Universe,
    _of_one_thread: PhantomData<*const ()>,
}

/// A transfer that MPI was asked for, with the memory that it reads or writes.
pub(super) struct MpiTransfer {
    request: ffi::MPI_Request,
    bytes: Vec<u8>,
    done: bool,
    _of_one_thread: PhantomData<*const ()>,
}

impl World {
    /// Initializes MPI. Every process of a job calls this, once.
    pub(super) fn start() -> Result<Self, String> {
        let (universe, level) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or("MPI was initialized in this process before; a process joins one run with it")?;
        if level < Threading::Funneled {
            return Err(format!(
                "{} provides threads of level {level:?}, and MPI_THREAD_FUNNELED is needed; use an MPI that was built \
                 with threads, or write `dist.transport = \"tcp\"`",
                library()
            ));
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        // SAFETY: MPI is initialized, and both handles are constants of it.
        let code = unsafe {
            ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN)
        };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(Self { rank, size, universe, _of_one_thread: PhantomData })
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Begins to send bytes to a rank.
    pub(super) fn send(&self, to: usize, bytes: Vec<u8>) -> Result<MpiTransfer, String> {
        let mut transfer = MpiTransfer::new(bytes);
        let (at, count) = (transfer.bytes.as_ptr(), transfer.count()?);
        // SAFETY: the bytes are those of the transfer, which keeps them until MPI has done with them.
        let code = unsafe {
            ffi::MPI_Isend(
                at.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                to as i32,
                TAG,
                ffi::RSMPI_COMM_WORLD,
                &raw mut transfer.request,
            )
        };
        transfer.done = code != 0;
        check("MPI_Isend", code).map(|()| transfer)
    }

    /// Begins to receive the next message of a rank, if it has come.
    pub(super) fn receive(&self, from: usize) -> Result<Option<MpiTransfer>, String> {
        let (mut come, mut count) = (0, 0);
        // SAFETY: a status is plain data, which the call fills if it finds a message.
        let mut status: ffi::MPI_Status = unsafe { mem::zeroed() };
        // SAFETY: the arguments are written during the call.
        let code = unsafe {
            ffi::MPI_Iprobe(from as i32, TAG, ffi::RSMPI_COMM_WORLD, &raw mut come, &raw mut status)
        };
        check("MPI_Iprobe", code)?;
        if come == 0 {
            return Ok(None);
        }
        let code =
            // SAFETY: the status is that of a message.
            unsafe { ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut count) };
        check("MPI_Get_count", code)?;
        let mut transfer = MpiTransfer::new(vec![0; count.max(0) as usize]);
        let at = transfer.bytes.as_mut_ptr();
        // SAFETY: the bytes are those of the transfer, which keeps them until MPI has done with them, and as many as the
        // message has.
        let code = unsafe {
            ffi::MPI_Irecv(
                at.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                from as i32,
                TAG,
                ffi::RSMPI_COMM_WORLD,
                &raw mut transfer.request,
            )
        };
        transfer.done = code != 0;
        check("MPI_Irecv", code).map(|()| Some(transfer))
    }

    /// Ends MPI, when every process does.
    pub(super) fn finish(self) {
        drop(self.universe);
    }

    /// Ends all processes of the job.
    pub(super) fn abort(&self) {
        // SAFETY: MPI is initialized.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
    }
}

impl MpiTransfer {
    fn new(bytes: Vec<u8>) -> Self {
        // SAFETY: a request is a handle, which a call sets before it is read.
        let request = unsafe { mem::zeroed() };
        Self { request, bytes, done: false, _of_one_thread: PhantomData }
    }

    fn count(&self) -> Result<i32, String> {
        i32::try_from(self.bytes.len()).map_err(|_| "a piece is too long".to_owned())
    }

    /// Returns true if the transfer has ended.
    pub(super) fn is_done(&mut self) -> Result<bool, String> {
        if !self.done {
            let mut done = 0;
            // SAFETY: the request is that of a transfer that has not ended; MPI has no status to write.
            let code = unsafe {
                ffi::MPI_Test(&raw mut self.request, &raw mut done, ffi::RSMPI_STATUS_IGNORE)
            };
            check("MPI_Test", code)?;
            self.done = done != 0;
        }
        Ok(self.done)
    }

    /// Returns the number of its bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of a transfer that has ended.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        mem::take(&mut self.bytes)
    }
}

impl Drop for MpiTransfer {
    fn drop(&mut self) {
        if !self.done {
            // MPI may still use the memory.
            mem::forget(mem::take(&mut self.bytes));
        }
    }
}

/// Returns the name and the version of the MPI library.
pub(super) fn library() -> String {
    let name = library_version().unwrap_or_default();
    let name = name.trim_end_matches('\0').lines().next().unwrap_or_default();
    name.split(", package").next().unwrap_or_default().to_owned()
}

/// Returns the reason if a call failed.
fn check(call: &str, code: i32) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // MPI's longest text has 512 bytes.
    let (mut text, mut length) = (vec![0_u8; 4096], 0);
    // SAFETY: the text is longer than any of MPI's.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
    text.truncate(length.max(0) as usize);
    Err(format!("{call}: {}", String::from_utf8_lossy(&text)))
}
