//! Settings of the memory allocator for numeric work.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::{Mutex, PoisonError};

/// Bytes that an arena is enlarged by.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PAD: libc::c_int = 64 << 20;
/// Unused bytes at the end of an arena that stay while memory is given back.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SPARE: libc::c_int = 1 << 20;

/// Makes the allocator keep freed memory.
///
/// A training step frees and allocates the same large buffers over and over. By default glibc returns each to the
/// system and gets it back page by page. Keeping them makes a step of a small model a fifth faster.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // a C function
pub(super) fn keep_freed() {
    const LARGEST_ON_HEAP: libc::c_int = 32 << 20; // the most that glibc accepts
    // SAFETY: `mallopt` takes two integers, may be called at any time and from any thread, and reports a value it does
    // not accept by its result, which changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_ON_HEAP);
    }
    trim_beyond(libc::c_int::MAX, PAD);
}

/// Number of works that give memory back now.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static GIVING: Mutex<usize> = Mutex::new(0);

/// Runs a large piece of work, such as the encoding of a text of megabytes, whose memory is given back to the system. Otherwise
/// `keep_freed` keeps it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // a C function
pub fn giving_back<T>(work: impl FnOnce() -> T) -> T {
    /// Ends the work, also if it panics.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            let mut giving = GIVING.lock().unwrap_or_else(PoisonError::into_inner);
            *giving -= 1;
            // SAFETY: `malloc_trim` takes a number of bytes to keep, and may be called at any time and from any thread.
            unsafe { libc::malloc_trim(0) };
            if *giving == 0 {
                trim_beyond(libc::c_int::MAX, PAD);
            }
        }
    }
    {
        let mut giving = GIVING.lock().unwrap_or_else(PoisonError::into_inner);
        *giving += 1;
        // Other arenas than that of the main thread are trimmed by `free` alone.
        trim_beyond(SPARE, 0);
    }
    let _ended = Ended;
    work()
}

/// Sets the size beyond which the allocator gives the unused end of an arena back, and what it keeps of it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // a C function
fn trim_beyond(spare: libc::c_int, pad: libc::c_int) {
    // SAFETY: as in `keep_freed`.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, spare);
        libc::mallopt(libc::M_TOP_PAD, pad);
    }
}

/// Does nothing: other allocators are left unchanged.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn keep_freed() {}

/// Runs a large piece of work: other allocators are left unchanged.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn giving_back<T>(work: impl FnOnce() -> T) -> T {
    work()
}
