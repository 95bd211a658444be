//! A counting allocator, which measures the cost of hostile files.
#![allow(unsafe_code)] // required to implement an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes that this thread holds now, and the maximum since [`peak`] began.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
    /// Number of allocations of this thread.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + u64::from(bytes > 0)));
    // A thread that ends allocates after its locals are gone.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's guarantees are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // During the copy both allocations exist.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread so far.
pub(crate) fn asked() -> u64 {
    ASKED.with(Cell::get)
}

/// Returns the result of `f`, and the maximum number of bytes that this thread held during it beyond those before.
pub(crate) fn peak<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    });
    let result = f();
    let (_, most) = HELD.with(Cell::get);
    (result, (most - before) as usize)
}

#[test]
fn the_most_that_was_held_is_counted() {
    let (_, bytes) = peak(|| {
        drop(vec![0_u8; 1000]);
        vec![0_u8; 500]
    });
    assert_eq!(bytes, 1000);
}
