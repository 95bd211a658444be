//! Selection and sums of rows, and copies of whole arrays.

use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Rows that a block has, of a warp each.
const ROWS: usize = 8;
/// Elements of a step of a copy.
const STEP: usize = 8;

/// Rows of an array that each row of a result is the sum of.
#[derive(Debug)]
pub struct RowSources<M: Machine> {
    starts: DeviceArray<M, u32>,
    sources: DeviceArray<M, u32>,
    rows: usize,
    /// Number of rows that the array must have.
    given: usize,
}

impl<M: Machine> Kernels<M> {
    /// Selects rows: row `i` of the result is row `rows[i]`.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn selected_rows(&self, rows: &[u32]) -> Result<RowSources<M>, M::Error> {
        let starts: Vec<u32> = (0..=rows.len() as u32).collect();
        let given = rows.iter().max().map_or(0, |&row| row as usize + 1);
        self.row_sources(&starts, rows, given)
    }

    /// Reverses [`Self::selected_rows`]: row `rows[i]` of the `n` rows of the result is the sum of row `i` and of the
    /// other rows with the same number, in order.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If a row is not below `n`.
    pub fn scattered_rows(&self, rows: &[u32], n: usize) -> Result<RowSources<M>, M::Error> {
        let mut starts = vec![0; n + 1];
        rows.iter().for_each(|&row| starts[row as usize + 1] += 1);
        for row in 0..n {
            starts[row + 1] += starts[row];
        }
        let mut sources: Vec<u32> = (0..rows.len() as u32).collect();
        sources.sort_by_key(|&source| rows[source as usize]);
        self.row_sources(&starts, &sources, rows.len())
    }

    fn row_sources(
        &self,
        starts: &[u32],
        sources: &[u32],
        given: usize,
    ) -> Result<RowSources<M>, M::Error> {
        let rows = starts.len() - 1;
        let (starts, sources) = (self.array_of(starts)?, self.array_of(sources)?);
        Ok(RowSources { starts, sources, rows, given })
    }

    /// Writes the sums of rows of `x`, of `d` numbers each, to `y`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a row does not exist.
    pub fn combine_rows(
        &self,
        x: Slice<'_, u16>,
        of: &RowSources<M>,
        d: usize,
        y: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let RowSources { starts, sources, rows, given } = of;
        expect_length("combine_rows", "y", y.len(), rows * d);
        assert!(given * d <= x.len(), "combine_rows: row {given} of {}", x.len() / d.max(1));
        let args = args![x, *starts, *sources, *rows, d, y];
        self.run_model_kernel("combine_rows", LaunchShape::of_blocks(rows.div_ceil(ROWS)), args)
    }

    /// Copies `x` to the front of `y`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If `y` is shorter, or the length is not a multiple of 8.
    pub fn copy_to_front(&self, x: Slice<'_, u16>, y: SliceMut<'_, u16>) -> Result<(), M::Error> {
        let (n, room) = (x.len(), y.len());
        assert!(n.is_multiple_of(STEP) && n <= room, "copy: {n} elements to {room}");
        self.run_model_kernel("copy", LaunchShape::of_threads(n / STEP), args![x, n / STEP, y])
    }

    /// Copies a part of an array to another part of it.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If a part is not within the array, both overlap, or a start or the length is not a multiple of 8.
    pub fn copy_within(
        &self,
        array: SliceMut<'_, u16>,
        [from, to]: [usize; 2],
        len: usize,
    ) -> Result<(), M::Error> {
        assert!(from.abs_diff(to) >= len, "copy: {len} elements from {from} to {to} overlap");
        let fit = from.max(to) + len <= array.len();
        let whole = [from, to, len].iter().all(|n| n.is_multiple_of(STEP));
        assert!(fit && whole, "copy: {len} elements from {from} to {to}");
        let x = array.as_slice().sub_slice(from..from + len);
        let args = args![x, len / STEP, array.as_slice().sub_slice(to..to + len)];
        self.run_model_kernel("copy", LaunchShape::of_threads(len / STEP), args)
    }
}
