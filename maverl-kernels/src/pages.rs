//! Memory of large arrays in huge pages, where the system offers them on request (Linux: `madvise`).
//!
//! The first write to each page of 4 KiB interrupts the program, and reading many pages misses the processor's table of
//! pages. Pages of 2 MiB do so once for 512 of them.
#![allow(unsafe_code)] // a C function

/// Bytes of a huge page.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

/// Returns an array of zeros, in huge pages if it is large.
pub fn large_zeros(len: usize) -> Vec<f32> {
    let zeros = vec![0.0; len];
    prefer_huge_pages(&zeros);
    zeros
}

/// Returns bytes of zero, in huge pages if they are many.
pub fn large_zero_bytes(len: usize) -> Vec<u8> {
    let zeros = vec![0; len];
    prefer_huge_pages(&zeros);
    zeros
}

/// Returns an array of copies of a value, in huge pages if it is large.
pub(crate) fn large_array<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut array = Vec::with_capacity(len);
    prefer_huge_pages(&array);
    array.resize(len, value);
    array
}

/// Asks the system for huge pages where an array fills them. Pages that were written before stay as they are.
#[cfg(target_os = "linux")]
fn prefer_huge_pages<T>(array: &Vec<T>) {
    let start = array.as_ptr() as usize;
    let end = (start + array.capacity() * size_of::<T>()) / HUGE * HUGE;
    let start = start.next_multiple_of(HUGE);
    if start < end {
        // SAFETY: the pages are those of the array, and the call changes none of their bytes. A system without huge pages
        // refuses it, which changes nothing.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Does nothing: other systems choose pages themselves.
#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages<T>(_: &Vec<T>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arrays_have_their_values_in_pages_of_every_size() {
        for len in [0, 1, 1000, 1 << 19, (1 << 20) - 1, (1 << 20) + 1, 5 << 20] {
            assert!(large_zeros(len).iter().all(|x| x.to_bits() == 0));
            assert_eq!(large_zero_bytes(len), vec![0_u8; len]);
            let array = large_array(7_u64, len);
            assert_eq!((array.len(), array.iter().all(|x| *x == 7)), (len, true));
        }
    }
}
