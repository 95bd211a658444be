//! Inner loop: a tile of the left side times a panel of the right side.
#![allow(unsafe_code)]

mod operands;

use std::marker::PhantomData;

use super::layout::{BLOCK, Element, PANEL, Panel, Tile};
use super::path::{Inner, Path, prefetch};
use super::vectors::{Vectors, Work};
use operands::Operands;

/// Number of rows of the largest tile.
pub(super) const MOST_ROWS: usize = 32;

/// Sums of a tile's rows with a panel's columns.
pub(super) type Sums = [[f32; PANEL]; MOST_ROWS];

/// Output of a kernel: [`PANEL`] elements for each row of a tile.
pub(super) struct Places<'a> {
    start: *mut f32,
    stride: usize,
    rows: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl<'a> Places<'a> {
    /// Creates the output of `rows` rows, `stride` elements apart.
    ///
    /// # Safety
    ///
    /// Each row has [`PANEL`] elements, and all are in one allocation. While the result lives, no other reference to them
    /// exists.
    pub(super) unsafe fn new(start: *mut f32, stride: usize, rows: usize) -> Self {
        Self { start, stride, rows, borrow: PhantomData }
    }

    /// Returns the first `rows` of some sums.
    pub(super) fn of(sums: &'a mut Sums, rows: usize) -> Self {
        assert!(rows <= MOST_ROWS, "{rows} rows of sums");
        // SAFETY: these rows are borrowed.
        unsafe { Self::new(sums.as_mut_ptr().cast(), PANEL, rows) }
    }

    /// Returns the number of rows.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Returns a row.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> &mut [f32; PANEL] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row exists and is borrowed, as guaranteed to `new`.
        unsafe { &mut *self.start.add(row * self.stride).cast() }
    }

    /// Returns at most `count` rows from `first` on.
    #[inline(always)]
    fn some_rows(&mut self, first: usize, count: usize) -> Places<'_> {
        assert!(first < self.rows, "row {first} of {}", self.rows);
        let rows = count.min(self.rows - first);
        // SAFETY: these rows are borrowed, as guaranteed to `new`.
        unsafe { Places::new(self.start.add(first * self.stride), self.stride, rows) }
    }
}

/// Treatment of the output's old value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Then {
    Set,
    Add,
}

impl Then {
    /// Stores sums to the output.
    #[inline(always)]
    pub(super) fn put(self, sums: &[f32], out: &mut [f32]) {
        match self {
            Self::Set => out.copy_from_slice(sums),
            Self::Add => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
        }
    }
}

/// A path with the state that one thread needs for it.
pub(super) enum Kernel {
    Vectors(Path),
    #[cfg(target_arch = "x86_64")]
    Dot,
    #[cfg(target_arch = "x86_64")]
    Amx(super::amx::Tiles, Box<Sums>),
    #[cfg(test)]
    Tiles,
}

impl Kernel {
    /// Prepares this thread for a path.
    pub(super) fn of(path: Path) -> Self {
        match path.inner {
            Inner::Vectors => Self::Vectors(path),
            #[cfg(target_arch = "x86_64")]
            Inner::Dot => Self::Dot,
            #[cfg(target_arch = "x86_64")]
            Inner::Amx => {
                Self::Amx(super::amx::Tiles::enter(), Box::new([[0.0; PANEL]; MOST_ROWS]))
            }
            #[cfg(test)]
            Inner::Tiles => Self::Tiles,
        }
    }

    /// Stores the products of the rows of `tile` with `panel` to `out`, which has as many rows, and prefetches the
    /// lines that come next. AMX reads the tile up to a multiple of 16 rows.
    #[cfg_attr(
        not(any(test, target_arch = "x86_64")),
        allow(unused_mut, reason = "`Vectors` takes `out` whole")
    )]
    pub(super) fn multiply<E: Element>(
        &mut self,
        tile: Tile<'_>,
        panel: Panel<'_>,
        ahead: &mut Ahead,
        mut out: Places<'_>,
        then: Then,
    ) {
        match self {
            Self::Vectors(path) => path.run(Multiply::<E> {
                part: Part { tile, panel, ahead, out, then },
                element: PhantomData,
            }),
            #[cfg(target_arch = "x86_64")]
            Self::Dot => super::x86::dot(tile, panel, ahead, &mut out, then),
            #[cfg(target_arch = "x86_64")]
            Self::Amx(tiles, sums) => {
                super::amx::kernel(tiles, tile, panel, out.len().next_multiple_of(16), sums);
                (0..out.len()).for_each(|row| then.put(&sums[row], out.row(row)));
            }
            #[cfg(test)]
            Self::Tiles => super::tests::multiply_tile::<E>(tile, panel, &mut out, then),
        }
    }
}

/// Words of a sum between two prefetches.
pub(super) const STEPS: usize = 16;
/// Fractions of a line that [`Ahead`] counts.
const UNIT: usize = 64;

/// Lines of a panel that later kernels read. They are prefetched at an even pace, because the memory needs most of the
/// time that the kernels take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// First word of the first line. It may lie outside of the panels, because it is only prefetched.
    start: *const u32,
    /// Words from one line to the next, and to its second half.
    stride: usize,
    half: usize,
    lines: usize,
    /// Fractions of a line that are prefetched in each step, and those that are due.
    pace: usize,
    due: usize,
}

impl Ahead {
    /// Creates the prefetch of a panel like `panel`, line by line, in about `loops` loops over as many words.
    pub(super) fn new(start: *const u32, panel: Panel<'_>, loops: usize) -> Self {
        let Panel { stride, half, depth: lines, .. } = panel;
        let steps = loops.max(1) * lines.div_ceil(STEPS).max(1);
        Self { start, stride, half, lines, pace: (UNIT * lines).div_ceil(steps), due: 0 }
    }

    /// Returns a prefetch of nothing.
    pub(super) fn none() -> Self {
        Self { start: std::ptr::null(), stride: 0, half: 0, lines: 0, pace: 0, due: 0 }
    }

    /// Prefetches the lines that are due. Returns the number of words after which the next ones are.
    #[inline(always)]
    pub(super) fn step(&mut self) -> usize {
        // Most kernels prefetch nothing, and go through all words in one loop.
        if self.lines == 0 {
            return usize::MAX;
        }
        self.due += self.pace;
        while self.due >= UNIT && self.lines > 0 {
            prefetch(self.start);
            prefetch(self.start.wrapping_add(self.half));
            self.start = self.start.wrapping_add(self.stride);
            self.lines -= 1;
            self.due -= UNIT;
        }
        STEPS
    }
}

/// Some rows of a tile, a panel, and the output of their sums.
pub(super) struct Part<'a> {
    pub(super) tile: Tile<'a>,
    pub(super) panel: Panel<'a>,
    pub(super) ahead: &'a mut Ahead,
    pub(super) out: Places<'a>,
    pub(super) then: Then,
}

impl Part<'_> {
    /// Asserts that tile, panel and output have `rows` rows and the words of the panel.
    #[inline(always)]
    fn check<E: Element>(&self, rows: usize) {
        self.tile.check(rows, self.panel.depth * E::TERMS);
        self.panel.check();
        assert_eq!(self.out.len(), rows, "a kernel for its rows");
    }

    /// Returns the words from the first columns of a panel to the others. Vectors of a whole half read whole lines, which
    /// makes the number known to the compiler.
    #[inline(always)]
    fn half<V: Vectors>(&self) -> usize {
        if V::U32_LANES < BLOCK {
            return self.panel.half;
        }
        assert_eq!(self.panel.half, BLOCK, "a panel of whole lines");
        BLOCK
    }
}

struct Multiply<'a, E> {
    part: Part<'a>,
    element: PhantomData<E>,
}

impl<E: Element> Work for Multiply<'_, E> {
    type Output = ();

    /// Splits a range into parts as equal as possible.
    #[inline(always)]
    fn run<V: Vectors>(self, simd: V) {
        let Part { tile, panel, ahead, mut out, then } = self.part;
        tile.check(out.len(), panel.depth * E::TERMS);
        let most = V::rows::<E>();
        let kernels = out.len().div_ceil(most).max(1);
        let size = out.len().div_ceil(kernels).max(1);
        for (i, first) in (0..out.len()).step_by(size).enumerate() {
            let out = out.some_rows(first, size);
            let tile = Tile { words: &tile.words[i * size * tile.row..], ..tile };
            simd.multiply::<E>(Part { tile, panel, ahead: &mut *ahead, out, then });
        }
    }
}

/// Computes the sums of `R` rows, `N` vectors of columns at once. An element's sum is a chain of fused multiply-adds
/// over the terms in ascending order, whatever `R`, `N` and the vector are.
#[inline(always)]
pub(super) fn multiply_rows<V: Vectors, E: Element, const R: usize, const N: usize>(
    simd: V,
    part: Part<'_>,
) {
    part.check::<E>(R);
    let half = part.half::<V>();
    let Part { tile, panel, ahead, mut out, then } = part;
    let operands = Operands::<R>::of(tile, Panel { half, ..panel });
    for start in (0..PANEL).step_by(N * V::U32_LANES) {
        let operands = operands.at_column(start);
        let depth = panel.depth;
        // Paths with short vectors have few registers, and distances that the compiler knows need none. With up to three
        // rows nothing is gained, because the loop waits for memory.
        let constant = R > 3 && V::U32_LANES < BLOCK;
        // SAFETY: tile and panel have `depth` words, by the check of their part.
        let sums = unsafe {
            match (tile.word, panel.stride) {
                (1, BLOCK) if constant => {
                    let operands = operands.with_distances(1, BLOCK);
                    sums::<V, E, R, N, 4>(simd, operands, depth, ahead)
                }
                (BLOCK, BLOCK) if constant => {
                    let operands = operands.with_distances(BLOCK, BLOCK);
                    sums::<V, E, R, N, 4>(simd, operands, depth, ahead)
                }
                _ => sums::<V, E, R, N, 1>(simd, operands, depth, ahead),
            }
        };
        for (r, sums) in sums.iter().enumerate() {
            store(simd, then, sums, &mut out.row(r)[start..]);
        }
    }
}

/// Computes the sums of `R` rows and `N` vectors of columns over `depth` words, `TERMS` terms without a branch. Where the
/// compiler knows the distances of `operands`, such terms are read at constant offsets, without an addition for each.
///
/// # Safety
///
/// The operands have `depth` words.
#[inline(always)]
unsafe fn sums<V: Vectors, E: Element, const R: usize, const N: usize, const TERMS: usize>(
    simd: V,
    mut operands: Operands<R>,
    depth: usize,
    ahead: &mut Ahead,
) -> [[V::f32s; N]; R] {
    let at_once = (TERMS / E::TERMS).max(1);
    let mut sums = [[simd.splat_f32s(0.0); N]; R];
    let mut next = *ahead;
    let mut left = depth;
    while left > 0 {
        let words = next.step().min(left);
        left -= words;
        for _ in 0..words / at_once {
            for p in 0..at_once {
                // SAFETY: at most `depth` words, as guaranteed by the caller.
                unsafe { multiply_word::<V, E, R, N>(simd, &operands, p, &mut sums) };
            }
            operands.advance::<E>(at_once);
        }
        for _ in 0..words % at_once {
            // SAFETY: as above.
            unsafe { multiply_word::<V, E, R, N>(simd, &operands, 0, &mut sums) };
            operands.advance::<E>(1);
        }
    }
    *ahead = next;
    sums
}

/// Adds the products of word `p` of some operands to `sums`.
///
/// # Safety
///
/// The operands have this word.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "closures over vectors may lose their instructions")]
unsafe fn multiply_word<V: Vectors, E: Element, const R: usize, const N: usize>(
    simd: V,
    operands: &Operands<R>,
    p: usize,
    sums: &mut [[V::f32s; N]; R],
) {
    for term in 0..E::TERMS {
        // SAFETY: `r < R`, and the word exists, as guaranteed by the caller.
        let a = |r: usize| unsafe { operands.row(r, p * E::TERMS + term) };
        // SAFETY: `i < N`, and the word exists, as guaranteed by the caller.
        let b = |i: usize| unsafe { operands.columns::<V>(i, p) };
        // The smaller side is held in registers.
        if R < N {
            let mut terms = [simd.splat_f32s(0.0); R];
            for r in 0..R {
                terms[r] = simd.splat_f32s(a(r));
            }
            for i in 0..N {
                let b = E::term(simd, b(i), term);
                for r in 0..R {
                    sums[r][i] = simd.mul_add_f32s(terms[r], b, sums[r][i]);
                }
            }
        } else {
            let mut columns = [simd.splat_f32s(0.0); N];
            for i in 0..N {
                columns[i] = E::term(simd, b(i), term);
            }
            for r in 0..R {
                let a = simd.splat_f32s(a(r));
                for i in 0..N {
                    sums[r][i] = simd.mul_add_f32s(a, columns[i], sums[r][i]);
                }
            }
        }
    }
}

/// Stores some vectors of sums, or adds them to `out`.
#[inline(always)]
fn store<V: Vectors, const N: usize>(simd: V, then: Then, sums: &[V::f32s; N], out: &mut [f32]) {
    let (out, _) = V::as_mut_simd_f32s(&mut out[..N * V::F32_LANES]);
    for i in 0..N {
        out[i] = match then {
            Then::Set => sums[i],
            Then::Add => simd.add_f32s(out[i], sums[i]),
        };
    }
}
