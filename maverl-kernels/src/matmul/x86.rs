//! AVX2 and AVX-512: operations of layouts and kernels that pulp lacks, and the dot product of `bf16` pairs.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::hint::black_box;

use pulp::Simd;
use pulp::bytemuck::cast;
use pulp::x86::{V3, V4};

use super::kernel::{Part, Places, Then, multiply_rows};
use super::layout::{BLOCK, Element, PANEL, Panel, Tile};
use super::vectors::{Block, Vectors, nearest, rows};

/// Prefetches a cache line.
#[inline(always)]
pub(super) fn prefetch(address: *const i8) {
    // SAFETY: a prefetch reads nothing that the program sees and does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address) }
}

/// Vectors of eight lanes, 16 registers: twelve sums, the columns' vectors, and a term.
impl Vectors for V3 {
    /// Returns fewer rows than without widening, which uses the registers of a row.
    ///
    /// //! Loops around the kernel: blocking of a product for the caches and for threads.
    /// //!
    /// //! A task has some rows and some columns. It processes as many columns at a time as fit the cache, and splits
    /// sums into
    /// //! pieces of at most [`MOST_WORDS`], so that the panels of a piece stay in the L2 cache while all rows of the
    /// task
    /// //! pass, one tile at a time. With few tiles, each panel serves all of them before the next panel is read. The
    /// blocking
    /// //! of rows and columns never changes an element's sum; the pieces of a sum depend on its length alone.
    /// #![allow(unsafe_code)]
    ///
    /// use std::{cell::RefCell, marker::PhantomData, ops::Range};
    ///
    /// use rayon::prelude::*;
    ///
    /// pub(super) use super::kernel::Then;
    /// use super::kernel::{Kernel, MOST_ROWS, Sums};
    /// use super::layout::{BLOCK, Element, GAP, Line, Matrix, PANEL, Panel, Panels, Tile};
    /// use super::path::{Path, prefetch};
    /// use crate::par;
    ///
    /// /// Words of a sum that are added before they are added to the earlier ones.
    /// pub(super) const MOST_WORDS: usize = 512;
    /// /// Words of the panels that are used while they are in the cache: half a megabyte.
    /// const CACHED: usize = 8 * PANEL * MOST_WORDS;
    /// /// Rows up to which a right side with consecutive columns is not worth packing.
    /// const IN_PLACE_ROWS: usize = 128;
    /// /// Tiles that are packed at once, so that each panel is read once for all of them. With few rows, panels come
    /// from a
    /// /// far cache. With more rows, tiles are processed one after the other.
    /// const FEW_TILES: usize = 8;
    /// /// Multiplications of words that are worth a task of their own.
    /// const GRAIN: usize = 1 << 19;
    /// /// Tasks for each thread, where there is enough work; the last tasks balance the load.
    /// const TASKS: usize = 4;
    ///
    /// /// A product `out (+)= a · b`.
    /// pub(super) struct Product<'a, E> {
    ///     pub(super) a: Matrix<'a, E>,
    ///     pub(super) b: Panels<'a, E>,
    ///     pub(super) out: Out<'a>,
    ///     pub(super) then: Then,
    ///     pub(super) path: Path,
    /// }
    ///
    /// /// Output of a product. Tasks write disjoint parts of it.
    /// pub(super) struct Out<'a> {
    ///     start: *mut f32,
    ///     len: usize,
    ///     columns: usize,
    ///     borrow: PhantomData<&'a mut [f32]>,
    /// }
    ///
    /// // SAFETY: it stands for a `&mut [f32]`, and tasks write disjoint parts of it (`Out::row`).
    /// unsafe impl Sync for Out<'_> {}
    ///
    /// impl<'a> Out<'a> {
    ///     pub(super) fn new(out: &'a mut [f32], columns: usize) -> Self {
    ///         Self { start: out.as_mut_ptr(), len: out.len(), columns, borrow: PhantomData }
    ///     }
    ///
    ///     /// Returns some columns of a row.
    ///     ///
    ///     /// # Safety
    ///     ///
    ///     /// While the result lives, no other reference to that part exists.
    ///     #[expect(clippy::mut_from_ref, reason = "the parts of different tasks are disjoint")]
    ///     unsafe fn row(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
    ///         let start = row * self.columns + columns.start;
    ///         assert!(columns.end <= self.columns && start + columns.len() <= self.len);
    ///         // SAFETY: in bounds of the borrowed slice, and exclusive as guaranteed by the caller.
    ///         unsafe { std::slice::from_raw_parts_mut(self.start.add(start), columns.len()) }
    ///     }
    /// }
    ///
    /// impl Out<'_> {
    ///     /// Prefetches the output of a kernel while its sums are computed.
    ///     fn prefetch(&self, rows: &Range<usize>, column: usize) {
    ///         for row in rows.clone() {
    ///             let start = self.start.wrapping_add(row * self.columns + column);
    ///             (0..PANEL).step_by(BLOCK).for_each(|i| prefetch(start.wrapping_add(i)));
    ///         }
    ///     }
    /// }
    ///
    /// /// Panels of a piece.
    /// struct View<'a, E> {
    ///     /// Panels that are read in place.
    ///     in_place: Option<&'a Matrix<'a, E>>,
    ///     /// Packed panels.
    ///     lines: &'a [Line],
    ///     /// Number of lines from one panel to the next.
    ///     stride: usize,
    ///     columns: Range<usize>,
    ///     words: Range<usize>,
    /// }
    ///
    /// impl<E: Element> View<'_, E> {
    ///     /// Returns the panel that begins at a column.
    ///     fn panel(&self, column: usize) -> Panel<'_> {
    ///         let lines = match self.in_place {
    ///             Some(matrix) if column + PANEL <= self.columns.end => {
    ///                 return matrix.panel_in_place(column, self.words.clone());
    ///             }
    ///             Some(_) => self.lines,
    ///             None => &self.lines[(column - self.columns.start) / PANEL * self.stride..],
    ///         };
    ///         Panel::of(&lines[..self.words.len()])
    ///     }
    /// }
    ///
    /// /// Buffers for one tile and the panels of one piece. Each thread keeps its own.
    /// #[derive(Default)]
    /// struct Scratch {
    ///     tile: Vec<u32>,
    ///     panels: Vec<Line>,
    /// }
    ///
    /// thread_local! {
    ///     static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// }
    ///
    /// impl<E: Element> Product<'_, E> {
    ///     /// Computes the product in the current pool.
    ///     pub(super) fn run(&self) {
    ///         let (m, n) = (self.a.indices, self.b.columns());
    ///         if m == 0 || n == 0 {
    ///             return;
    ///         }
    ///         let (rows, columns) = self.cut();
    ///         let across = n.div_ceil(columns);
    ///         let tasks = m.div_ceil(rows) * across;
    ///         let task = |i: usize| {
    ///             let (row, column) = (i / across * rows, i % across * columns);
    ///             self.task(row..m.min(row + rows), column..n.min(column + columns));
    ///         };
    ///         match tasks {
    ///             1 => task(0),
    ///             _ => (0..tasks).into_par_iter().with_max_len(1).for_each(task),
    ///         }
    ///     }
    ///
    ///     /// Returns the rows and columns of a task. Columns are split before rows, because each task packs its own
    ///     columns.
    ///     /// A task has at least enough columns to repay reading the rows.
    ///     fn cut(&self) -> (usize, usize) {
    ///         let (m, n) = (self.a.indices, self.b.columns());
    ///         let panels = n.div_ceil(PANEL);
    ///         let most = TASKS * par::threads();
    ///         let tasks = match par::threads() {
    ///             1 => 1,
    ///             _ => (m * panels * PANEL * self.a.words() / GRAIN).clamp(1, most),
    ///         };
    ///         let least_panels = if m <= 4 * self.path.rows::<E>() { 1 } else { 8 };
    ///         let across = tasks.min(panels.div_ceil(least_panels));
    ///         let down = tasks.div_ceil(across).min(m.div_ceil(self.path.rows::<E>()));
    ///         let rows = m.div_ceil(down).next_multiple_of(self.path.rows::<E>());
    ///         (rows, panels.div_ceil(across) * PANEL)
    ///     }
    ///
    ///     /// Returns the number of columns whose panels fit the cache, for the longest piece of a sum.
    ///     fn cached_columns(&self) -> usize {
    ///         let words = self.a.words().clamp(1, MOST_WORDS);
    ///         CACHED / words / PANEL * PANEL
    ///     }
    ///
    ///     /// Computes some rows and columns of the product.
    ///     fn task(&self, rows: Range<usize>, columns: Range<usize>) {
    ///         let mut kernel = Kernel::of(self.path);
    ///         SCRATCH.with_borrow_mut(|Scratch { tile, panels }| {
    ///             let most = self.cached_columns();
    ///             for start in columns.clone().step_by(most) {
    ///                 let columns = start..columns.end.min(start + most);
    ///                 if self.a.words() == 0 && self.then == Then::Set {
    ///                     rows.clone().for_each(|row| {
    ///                         // SAFETY: rows and columns of different tasks are disjoint.
    ///                         unsafe { self.out.row(row, columns.clone()) }.fill(0.0);
    ///                     });
    ///                 }
    ///                 for words in pieces(self.a.words()) {
    ///                     let panels = self.panels(rows.len(), columns.clone(), words, panels);
    ///                     self.piece(&mut kernel, &rows, &panels, tile);
    ///                 }
    ///             }
    ///         });
    ///     }
    ///
    ///     /// Returns the panels of some columns and words: in place, or packed into `scratch` if `rows` repay it.
    ///     fn panels<'s>(
    ///         &'s self,
    ///         rows: usize,
    ///         columns: Range<usize>,
    ///         words: Range<usize>,
    ///         scratch: &'s mut Vec<Line>,
    ///     ) -> View<'s, E> {
    ///         let depth = words.len();
    ///         let matrix = match &self.b {
    ///             Panels::Of(matrix) => matrix,
    ///             Panels::PackedWeight { lines, .. } => {
    ///                 let stride = self.a.words();
    ///                 let lines = &lines[columns.start / PANEL * stride + words.start..];
    ///                 return View { in_place: None, lines, stride, columns, words };
    ///             }
    ///         };
    ///         let in_place = (rows <= IN_PLACE_ROWS && matrix.has_panels_in_place()).then_some(matrix);
    ///         let skipped = if in_place.is_some() { columns.len() / PANEL * PANEL } else { 0 };
    ///         let starts = (columns.start + skipped..columns.end).step_by(PANEL);
    ///         if scratch.len() < starts.len() * depth {
    ///             scratch.resize(starts.len() * depth, Line::default());
    ///         }
    ///         for (start, out) in starts.zip(scratch.chunks_exact_mut(depth)) {
    ///             let columns = start..columns.end.min(start + PANEL);
    ///             matrix.panel(columns, words.clone(), out, self.path);
    ///         }
    ///         View { in_place, lines: scratch, stride: depth, columns, words }
    ///     }
    ///
    ///     /// Computes one piece of the sums of some rows and columns.
    ///     fn piece(
    ///         &self,
    ///         kernel: &mut Kernel,
    ///         rows: &Range<usize>,
    ///         panels: &View<'_, E>,
    ///         scratch: &mut Vec<u32>,
    ///     ) {
    ///         let (columns, words) = (&panels.columns, &panels.words);
    ///         let then = if words.start == 0 { self.then } else { Then::Add };
    ///         let mut sums: Sums = [[0.0; PANEL]; MOST_ROWS];
    ///         // Tiles of sizes as equal as possible.
    ///         let tiles = rows.len().div_ceil(self.path.rows::<E>());
    ///         let size = rows.len().div_ceil(tiles);
    ///         let at_once = if tiles <= FEW_TILES { size * tiles } else { size };
    ///         let len = words.len() * self.path.tile_words::<E>();
    ///         let room = (self.path.rows::<E>().max(BLOCK) + 1) * (len + GAP).next_multiple_of(BLOCK);
    ///         let scratch = aligned(scratch, room * at_once.div_ceil(size));
    ///         for start in rows.clone().step_by(at_once) {
    ///             let next = rows.end.min(start + at_once)..rows.end.min(start + 2 * at_once);
    ///             let rows = start..next.start;
    ///             let mut tiles = [Tile::default(); FEW_TILES];
    ///             let places = scratch.chunks_exact_mut(room).zip(rows.clone().step_by(size));
    ///             for (tile, (out, start)) in tiles.iter_mut().zip(places) {
    ///                 let rows = start..rows.end.min(start + size);
    ///                 *tile = self.a.tile(rows, words.clone(), out, self.path);
    ///             }
    ///             let panel_starts = columns.clone().step_by(PANEL);
    ///             let parts = panel_starts.len();
    ///             for (part, column) in panel_starts.enumerate() {
    ///                 self.a.prefetch(&next, words, part, parts);
    ///                 let panel = panels.panel(column);
    ///                 for (tile, start) in tiles.iter().zip(rows.clone().step_by(size)) {
    ///                     let rows = start..rows.end.min(start + size);
    ///                     self.out.prefetch(&rows, column);
    ///                     let columns = column..columns.end.min(column + PANEL);
    ///                     let mut out = <[&mut [f32]; MOST_ROWS]>::default();
    ///                     let out = &mut out[..rows.len()];
    ///                     for (out, row) in out.iter_mut().zip(rows) {
    ///                         // SAFETY: rows and columns of different tasks are disjoint.
    ///                         *out = unsafe { self.out.row(row, columns.clone()) };
    ///                     }
    ///                     if columns.len() == PANEL {
    ///                         kernel.multiply::<E>(*tile, panel, out, then);
    ///                     } else {
    ///                         let mut places = sums.each_mut().map(|sums| &mut sums[..]);
    ///                         kernel.multiply::<E>(*tile, panel, &mut places[..out.len()], Then::Set);
    ///                         let sums = places.iter().map(|sums| &sums[..columns.len()]);
    ///                         out.iter_mut().zip(sums).for_each(|(out, sums)| then.put(sums, out));
    ///                     }
    ///                 }
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// /// Splits a sum into pieces, as equal as steps allow.
    /// fn pieces(words: usize) -> impl Iterator<Item = Range<usize>> {
    ///     let steps = words.div_ceil(BLOCK);
    ///     let size = steps.div_ceil(words.div_ceil(MOST_WORDS).max(1)).max(1) * BLOCK;
    ///     (0..words).step_by(size).map(move |start| start..words.min(start + size))
    /// }
    ///
    /// /// Returns the first `len` words of `scratch` from the start of a cache line on.
    /// fn aligned(scratch: &mut Vec<u32>, len: usize) -> &mut [u32] {
    ///     if scratch.len() < len + BLOCK {
    ///         scratch.resize(len + BLOCK, 0);
    ///     }
    ///     let start = scratch.as_ptr().align_offset(64).min(BLOCK);
    ///     &mut scratch[start..start + len]
    /// }
    ///
    /// /// Packs all panels of a matrix, `[panels, words, PANEL]`.
    /// pub(super) fn pack<E: Element>(matrix: &Matrix<'_, E>, lines: &mut [Line], path: Path) {
    ///     let words = matrix.words();
    ///     if words == 0 {
    ///         return;
    ///     }
    ///     lines.par_chunks_exact_mut(words).enumerate().for_each(|(panel, out)| {
    ///         let start = panel * PANEL;
    ///         matrix.panel(start..matrix.indices.min(start + PANEL), 0..words, out, path);
    ///     });
    /// }
    #[inline(always)]
    fn rows<E: Element>() -> usize {
        if E::TERMS == 1 { 6 } else { 5 }
    }

    #[inline(always)]
    fn multiply<E: Element>(self, part: Part<'_, '_>) {
        if E::TERMS == 1 {
            rows!(self, part, E, 1 x 4, 2 x 4, 3 x 4, 4 x 2, 5 x 2, 6 x 2);
        } else {
            rows!(self, part, E, 1 x 4, 2 x 4, 3 x 2, 4 x 2, 5 x 2);
        }
    }

    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        let lines = *block;
        for i in 0..2 {
            for j in 0..2 {
                let mut eight = [self.avx._mm256_setzero_ps(); 8];
                for (row, eight) in eight.iter_mut().enumerate() {
                    *eight = cast(lines[8 * i + row].as_chunks::<8>().0[j]);
                }
                for (row, words) in eight_by_eight(self, eight).into_iter().enumerate() {
                    block[8 * j + row].as_chunks_mut::<8>().0[i] = cast(words);
                }
            }
        }
    }

    #[inline(always)]
    fn pairs(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        let (terms, _) = Self::as_simd_f32s(terms);
        let (words, _) = Self::as_mut_simd_u32s(words);
        for (words, terms) in words.iter_mut().zip(terms.as_chunks::<2>().0) {
            let mut halves = [self.avx._mm256_setzero_si256(); 2];
            for (half, &terms) in halves.iter_mut().zip(terms) {
                *half = self.avx2._mm256_srli_epi32::<16>(cast(nearest(self, terms)));
            }
            // Packing takes four words of each operand in turn.
            let packed = self.avx2._mm256_packus_epi32(halves[0], halves[1]);
            *words = cast(self.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
}

/// Transposes pairs of rows, then fours, then the halves of the vectors.
#[inline(always)]
fn eight_by_eight(V3 { avx, .. }: V3, rows: [__m256; 8]) -> [__m256; 8] {
    let mut pairs = rows;
    for i in 0..4 {
        pairs[2 * i] = avx._mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = avx._mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    // Half `h` of `fours[4 i + j]` is column `4 h + j` of rows `4 i..4 i + 4`.
    let mut fours = pairs;
    for i in 0..2 {
        for j in 0..2 {
            let (low, high) = (pairs[4 * i + j], pairs[4 * i + 2 + j]);
            fours[4 * i + 2 * j] = avx._mm256_shuffle_ps::<0b01_00_01_00>(low, high);
            fours[4 * i + 2 * j + 1] = avx._mm256_shuffle_ps::<0b11_10_11_10>(low, high);
        }
    }
    let mut columns = fours;
    for j in 0..4 {
        columns[j] = avx._mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = avx._mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}

/// Vectors of sixteen lanes, 32 registers.
impl Vectors for V4 {
    #[inline(always)]
    fn rows<E: Element>() -> usize {
        12
    }

    #[inline(always)]
    fn multiply<E: Element>(self, part: Part<'_, '_>) {
        rows!(
            self, part, E, 1 x 2, 2 x 2, 3 x 2, 4 x 2, 5 x 2, 6 x 2, 7 x 2, 8 x 2, 9 x 2, 10 x 2, 11 x 2, 12 x 2
        );
    }

    /// Transposes pairs of rows, then fours, then the quarters of the vectors.
    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        let V4 { avx512f, .. } = self;
        let mut rows = [avx512f._mm512_setzero_si512(); BLOCK];
        for (row, words) in rows.iter_mut().zip(&*block) {
            *row = cast(*words);
        }
        let mut pairs = rows;
        for i in 0..8 {
            pairs[2 * i] = avx512f._mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = avx512f._mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        // Quarter `q` of `fours[4 i + j]` is column `4 q + j` of rows `4 i..4 i + 4`.
        let mut fours = pairs;
        for i in 0..4 {
            let pairs = &pairs[4 * i..4 * i + 4];
            fours[4 * i] = avx512f._mm512_unpacklo_epi64(pairs[0], pairs[2]);
            fours[4 * i + 1] = avx512f._mm512_unpackhi_epi64(pairs[0], pairs[2]);
            fours[4 * i + 2] = avx512f._mm512_unpacklo_epi64(pairs[1], pairs[3]);
            fours[4 * i + 3] = avx512f._mm512_unpackhi_epi64(pairs[1], pairs[3]);
        }
        for j in 0..4 {
            let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
            let even = avx512f._mm512_shuffle_i32x4::<0x88>(a, b);
            let even_below = avx512f._mm512_shuffle_i32x4::<0x88>(c, d);
            let odd = avx512f._mm512_shuffle_i32x4::<0xdd>(a, b);
            let odd_below = avx512f._mm512_shuffle_i32x4::<0xdd>(c, d);
            block[j] = cast(avx512f._mm512_shuffle_i32x4::<0x88>(even, even_below));
            block[4 + j] = cast(avx512f._mm512_shuffle_i32x4::<0x88>(odd, odd_below));
            block[8 + j] = cast(avx512f._mm512_shuffle_i32x4::<0xdd>(even, even_below));
            block[12 + j] = cast(avx512f._mm512_shuffle_i32x4::<0xdd>(odd, odd_below));
        }
    }

    #[inline(always)]
    fn pairs(self, terms: &[f32; 2 * BLOCK], words: &mut [u32; BLOCK]) {
        const HIGH_HALVES: [u16; 32] = {
            let mut halves = [0; 32];
            let mut i = 0;
            while i < 32 {
                halves[i] = 2 * i as u16 + 1;
                i += 1;
            }
            halves
        };
        let (terms, _) = Self::as_simd_f32s(terms);
        let (low, high) = (cast(nearest(self, terms[0])), cast(nearest(self, terms[1])));
        *words = cast(self.avx512bw._mm512_permutex2var_epi16(low, cast(HIGH_HALVES), high));
    }
}

/// Returns true if the processor has the instructions of [`dot`].
pub(super) fn has_dot() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// Stores `tile [rows, depth]` times `panel [depth, PANEL]`, both of `bf16` pairs, to `out`, of at most twelve rows.
///
/// # Panics
///
/// If the processor lacks the instructions, or the shapes differ.
pub(super) fn dot(tile: Tile<'_>, panel: Panel<'_>, out: &mut Places<'_>, then: Then) {
    assert!(has_dot(), "the dot product is for processors that have it");
    // SAFETY: the processor has AVX-512F and AVX512_BF16.
    unsafe { dot_rows(tile, panel, out, then) }
}

/// Selects a kernel for each number of rows, so that all sums stay in registers.
#[target_feature(enable = "avx512f,avx512bf16")]
fn dot_rows(tile: Tile<'_>, panel: Panel<'_>, out: &mut Places<'_>, then: Then) {
    match out.len() {
        0 => {}
        1 => some_dot_rows::<1>(tile, panel, out, then),
        2 => some_dot_rows::<2>(tile, panel, out, then),
        3 => some_dot_rows::<3>(tile, panel, out, then),
        4 => some_dot_rows::<4>(tile, panel, out, then),
        5 => some_dot_rows::<5>(tile, panel, out, then),
        6 => some_dot_rows::<6>(tile, panel, out, then),
        7 => some_dot_rows::<7>(tile, panel, out, then),
        8 => some_dot_rows::<8>(tile, panel, out, then),
        9 => some_dot_rows::<9>(tile, panel, out, then),
        10 => some_dot_rows::<10>(tile, panel, out, then),
        11 => some_dot_rows::<11>(tile, panel, out, then),
        12 => some_dot_rows::<12>(tile, panel, out, then),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn some_dot_rows<const R: usize>(
    tile: Tile<'_>,
    panel: Panel<'_>,
    out: &mut Places<'_>,
    then: Then,
) {
    let Panel { words, stride, depth } = panel;
    tile.check(R, depth);
    assert_eq!(out.len(), R, "a kernel for its rows");
    assert!(depth == 0 || words.len() >= (depth - 1) * stride + PANEL);
    let mut acc = [[_mm512_setzero_ps(); 2]; R];
    for p in 0..depth {
        // SAFETY: the last line ends within `words`, by the last assertion.
        let b = unsafe {
            let line = words.as_ptr().add(p * stride).cast();
            [_mm512_loadu_epi32(line), _mm512_loadu_epi32(line.add(BLOCK))]
        };
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: `r < R` and `p < depth`, which the tile has.
            let a = unsafe { *tile.words.get_unchecked(r * tile.row + p * tile.word) };
            let a = cast(_mm512_set1_epi32(a as i32));
            acc[0] = _mm512_dpbf16_ps(acc[0], a, cast(b[0]));
            acc[1] = _mm512_dpbf16_ps(acc[1], a, cast(b[1]));
        }
    }
    for (out, [mut low, mut high]) in out.iter_mut().zip(acc) {
        let out: &mut [f32; PANEL] = (&mut **out).try_into().expect("a row of a panel");
        // SAFETY: these are the 32 elements of a row of `out`.
        unsafe {
            let start = out.as_mut_ptr();
            if then == Then::Add {
                low = _mm512_add_ps(_mm512_loadu_ps(start), low);
                high = _mm512_add_ps(_mm512_loadu_ps(start.add(BLOCK)), high);
            }
            _mm512_storeu_ps(start, low);
            _mm512_storeu_ps(start.add(BLOCK), high);
        }
    }
}

/// Multiplies pairs in registers, `steps` times. Returns the number of multiply-adds.
///
/// # Panics
///
/// If the processor lacks the instructions.
pub(super) fn dot_registers(steps: usize) -> usize {
    assert!(has_dot(), "the dot product is for processors that have it");
    // SAFETY: the processor has AVX-512F and AVX512_BF16.
    unsafe { some_dot_registers(steps) }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn some_dot_registers(steps: usize) -> usize {
    const SUMS: usize = 24;
    /// A pair of the `bf16` number 0.25.
    const QUARTERS: u32 = 0x3e80_3e80;
    let quarters = cast(_mm512_set1_epi32(black_box(QUARTERS) as i32));
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, quarters, quarters);
        }
    }
    black_box(sums);
    steps * SUMS * 2 * BLOCK
}
