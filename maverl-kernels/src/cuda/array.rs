//! Arrays in a machine's memory, with their lengths, and arguments of kernels.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::recording::RangeLease;
use super::usage::HeldBytes;
use super::{DeviceElement, Kernels, Machine};

/// Array in a machine's memory.
pub struct DeviceArray<M: Machine, T: DeviceElement> {
    room: ArrayMemory<M, T>,
    at: u64,
    len: usize,
}

/// Memory of an array.
enum ArrayMemory<M: Machine, T: DeviceElement> {
    /// An allocation of the machine.
    Own(M::Array<T>, #[expect(dead_code, reason = "counts until it is dropped")] HeldBytes),
    /// A place in the workspace of a recording.
    Recorded(#[expect(dead_code, reason = "is free when it is dropped")] Option<RangeLease>),
}

/// Numbers in a machine's memory that a kernel reads.
#[derive(Debug)]
pub struct Slice<'a, T> {
    at: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

/// Numbers in a machine's memory that a kernel writes.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    at: u64,
    len: usize,
    of: PhantomData<&'a mut T>,
}

/// Message of an array without memory.
const RECORDED: &str = "a place of a recording holds no numbers";

impl<M: Machine> Kernels<M> {
    /// Copies numbers to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If launches are recorded.
    pub fn array_of<T: DeviceElement>(&self, host: &[T]) -> Result<DeviceArray<M, T>, M::Error> {
        assert!(self.recorder.is_none(), "a copy from the host cannot be recorded");
        let array = self.machine.upload_array(host)?;
        Ok(self.counted_array(array, host.len()))
    }

    /// Allocates an array of arbitrary content.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn new_array<T: DeviceElement>(&self, len: usize) -> Result<DeviceArray<M, T>, M::Error> {
        if let Some(recorder) = &self.recorder {
            let lease = recorder.lease_bytes((len * size_of::<T>()) as u64);
            let (at, room) = (lease.leased_address(), ArrayMemory::Recorded(Some(lease)));
            return Ok(DeviceArray { at, len, room });
        }
        let array = self.machine.allocate_array(len.max(1))?;
        Ok(self.counted_array(array, len))
    }

    /// Allocates an array of zeros.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If launches are recorded.
    pub fn zeroed_array<T: DeviceElement>(
        &self,
        len: usize,
    ) -> Result<DeviceArray<M, T>, M::Error> {
        assert!(self.recorder.is_none(), "an array of zeros cannot be recorded");
        let array = self.machine.allocate_zeros(len.max(1))?;
        Ok(self.counted_array(array, len))
    }

    fn counted_array<T: DeviceElement>(&self, array: M::Array<T>, len: usize) -> DeviceArray<M, T> {
        let at = self.machine.array_address(&array);
        let held = self.usage.hold_bytes(len * size_of::<T>());
        DeviceArray { room: ArrayMemory::Own(array, held), at, len }
    }

    /// Overwrites the front of an array by numbers of the host, after everything launched before has finished.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the array is shorter, or a place of a recording.
    pub fn write_array<T: DeviceElement>(
        &self,
        to: &mut DeviceArray<M, T>,
        host: &[T],
    ) -> Result<(), M::Error> {
        assert!(host.len() <= to.len, "{} elements to an array of {}", host.len(), to.len);
        match &mut to.room {
            ArrayMemory::Own(array, _) => self.machine.overwrite_array(array, host),
            ArrayMemory::Recorded(_) => panic!("{RECORDED}"),
        }
    }

    /// Copies the first `n` elements of an array to the host, after everything launched before has finished.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If there are fewer, or the array is a place of a recording.
    pub fn read_front<T: DeviceElement>(
        &self,
        array: &DeviceArray<M, T>,
        n: usize,
    ) -> Result<Vec<T>, M::Error> {
        assert!(n <= array.len, "{n} elements of an array of {}", array.len);
        match &array.room {
            ArrayMemory::Own(array, _) => self.machine.download_array(array, n),
            ArrayMemory::Recorded(_) => panic!("{RECORDED}"),
        }
    }

    /// Copies an array to the host, after everything launched before has finished.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the array is a place of a recording.
    pub fn read_array<T: DeviceElement>(
        &self,
        array: &DeviceArray<M, T>,
    ) -> Result<Vec<T>, M::Error> {
        self.read_front(array, array.len)
    }
}

impl<M: Machine> Kernels<M> {
    /// Copies an array to the host, after a point in the device's work. What was launched after the point does not write
    /// it, and need not have finished.
    pub(super) fn read_at<T: DeviceElement>(
        &self,
        at: &M::Event,
        array: &DeviceArray<M, T>,
    ) -> Result<Vec<T>, M::Error> {
        match &array.room {
            ArrayMemory::Own(own, _) => self.machine.download_at(at, own, array.len),
            ArrayMemory::Recorded(_) => panic!("{RECORDED}"),
        }
    }
}

impl<M: Machine, T: DeviceElement> DeviceArray<M, T> {
    /// Creates an array at a place that a recording gets an address for.
    pub(super) fn at_address(at: u64, len: usize) -> Self {
        Self { room: ArrayMemory::Recorded(None), at, len }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the whole array for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice { at: self.at, len: self.len, of: PhantomData }
    }

    /// Returns the whole array for writing.
    pub fn slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { at: self.at, len: self.len, of: PhantomData }
    }
}

impl<M: Machine, T: DeviceElement> fmt::Debug for DeviceArray<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements at {:#x}", self.len, self.at)
    }
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<'a, T> Slice<'a, T> {
    /// Returns the slice as bytes.
    pub fn as_bytes(self) -> Slice<'a, u8> {
        Slice { at: self.at, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Returns the address in the machine's memory.
    pub fn address(&self) -> u64 {
        self.at
    }

    /// Returns a part of other numbers, `begin` bytes after their first.
    ///
    /// # Panics
    ///
    /// If the part is not within them.
    pub(super) fn of_words<'w>(words: Slice<'w, u32>, begin: u64, len: usize) -> Slice<'w, T> {
        let (end, room) = (begin as usize + len * size_of::<T>(), 4 * words.len);
        assert!(end <= room, "{len} elements from byte {begin} of {room}");
        Slice { at: words.at + begin, len, of: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part.
    ///
    /// # Panics
    ///
    /// If the range is not within the slice, or does not begin at a multiple of 16 bytes.
    #[must_use]
    pub fn sub_slice(self, range: Range<usize>) -> Self {
        let (at, len) = part_range::<T>(self.at, self.len, range);
        Self { at, len, ..self }
    }
}

impl<'a, T> SliceMut<'a, T> {
    /// Returns the slice as bytes.
    pub fn as_bytes(self) -> SliceMut<'a, u8> {
        SliceMut { at: self.at, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Returns the address in the machine's memory.
    pub fn address(&self) -> u64 {
        self.at
    }

    /// Divides the slice at an element.
    ///
    /// # Panics
    ///
    /// If it is not within the slice, or is not at a multiple of 16 bytes.
    pub fn split_at(self, element: usize) -> (Self, Self) {
        let (at, len) = part_range::<T>(self.at, self.len, element..self.len);
        (Self { len: element, ..self }, Self { at, len, of: PhantomData })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part.
    ///
    /// # Panics
    ///
    /// If the range is not within the slice, or does not begin at a multiple of 16 bytes.
    #[must_use]
    pub fn sub_slice(self, range: Range<usize>) -> Self {
        let (at, len) = part_range::<T>(self.at, self.len, range);
        Self { at, len, ..self }
    }

    /// Borrows the slice again, for one more kernel.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut { at: self.at, len: self.len, of: PhantomData }
    }

    /// Borrows the slice for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice { at: self.at, len: self.len, of: PhantomData }
    }
}

fn part_range<T>(at: u64, len: usize, range: Range<usize>) -> (u64, usize) {
    assert!(range.start <= range.end && range.end <= len, "{range:?} of {len} elements");
    let begin = range.start * size_of::<T>();
    assert!(begin.is_multiple_of(16), "kernels read 16 bytes: {range:?} does not begin at them");
    (at + begin as u64, range.len())
}

/// An argument of a kernel: the bits of an address or a number.
pub(super) trait Arg {
    fn bits(&self) -> u64;
}

impl<T> Arg for Slice<'_, T> {
    fn bits(&self) -> u64 {
        self.at
    }
}

impl<T> Arg for SliceMut<'_, T> {
    fn bits(&self) -> u64 {
        self.at
    }
}

impl<A: Arg> Arg for Option<A> {
    fn bits(&self) -> u64 {
        self.as_ref().map_or(0, Arg::bits)
    }
}

impl<M: Machine, T: DeviceElement> Arg for DeviceArray<M, T> {
    fn bits(&self) -> u64 {
        self.at
    }
}

impl Arg for usize {
    fn bits(&self) -> u64 {
        *self as u64
    }
}

impl Arg for u64 {
    fn bits(&self) -> u64 {
        *self
    }
}

impl Arg for f32 {
    fn bits(&self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Arg for bool {
    fn bits(&self) -> u64 {
        u64::from(*self)
    }
}

/// Bits of the arguments of a kernel.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$($crate::cuda::array::Arg::bits(&$arg)),*] as &[u64] };
}
pub(super) use args;

/// Rounds numbers to the bits of bf16, to nearest even.
pub fn to_bf16(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| round_number(x)).collect()
}

fn round_number(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() { 0x7fff } else { ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16 }
}

/// Widens the bits of bf16.
pub fn from_bf16(x: &[u16]) -> Vec<f32> {
    x.iter().map(|&x| f32::from_bits(u32::from(x) << 16)).collect()
}

/// Asserts the length of an array of a kernel.
#[track_caller]
pub(super) fn expect_length(kernel: &str, name: &str, len: usize, want: usize) {
    assert_eq!(len, want, "{kernel}: {name} has {len} elements, not {want}");
}
