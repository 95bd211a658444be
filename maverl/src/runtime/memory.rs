//! Settings of the memory allocator for numeric work.

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
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, 64 << 20);
    }
}

/// Does nothing: other allocators are left unchanged.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn keep_freed() {}
