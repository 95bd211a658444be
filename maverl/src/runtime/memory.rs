//! The allocator's habits, set for numeric work.

/// Lets the allocator keep what is freed.
///
/// A training step frees and takes the same large buffers over and over. By default glibc gives each back to the system
/// and gets it again a page at a time; kept, a step of a small model is a fifth faster.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // a C function
pub(super) fn keep_freed() {
    const LARGEST_ON_HEAP: libc::c_int = 32 << 20; // the most that glibc accepts
    // SAFETY: `mallopt` takes two integers, may be called at any time and from any thread, and reports a value it does not
    // accept by its result, which changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_ON_HEAP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, 64 << 20);
    }
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn keep_freed() {}
