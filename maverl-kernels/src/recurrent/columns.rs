//! Division of rows into columns, each computed over all tokens by one thread.

use std::ops::Range;

use rayon::prelude::*;

use crate::lanes::LANES;
use crate::par;

/// Returns ranges of at most sixteen columns.
pub(super) fn cut_columns(columns: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = columns.end;
    columns.step_by(LANES).map(move |start| start..end.min(start + LANES))
}

/// Overwrites the rows of `out [n, width]` by columns: `f` gets the index of a range of `tiles`, its element of `extras`, and
/// sixteen numbers for each row, zeros at first. `work` is the number of elements that all of them process.
pub(super) fn for_each_tile<E: Send>(
    out: &mut [f32],
    (width, tiles): (usize, &[Range<usize>]),
    extras: Vec<E>,
    work: usize,
    f: impl Fn(usize, E, &mut [[f32; LANES]]) + Sync,
) {
    let n = out.len() / width;
    if n == 0 {
        return;
    }
    let mut found = vec![[0.0; LANES]; n * tiles.len()];
    if par::worth_it(work) {
        let parts = found.par_chunks_exact_mut(n).zip(extras).enumerate();
        parts.for_each(|(tile, (part, extra))| f(tile, extra, part));
    } else {
        let parts = found.chunks_exact_mut(n).zip(extras).enumerate();
        parts.for_each(|(tile, (part, extra))| f(tile, extra, part));
    }
    par::for_each_part(out, width, |start, out| {
        for (row, out) in (start / width..).zip(out.chunks_exact_mut(width)) {
            for (tile, columns) in tiles.iter().enumerate() {
                out[columns.clone()].copy_from_slice(&found[tile * n + row][..columns.len()]);
            }
        }
    });
}
