//! Lookup of rows in a table, and its gradient.

use pulp::Simd;
use rayon::prelude::*;

use crate::lanes::{self, Kernel, Lanes};
use crate::par;

/// Copies row `ids[i]` of `table [V, d]` to row `i` of `out [n, d]`.
///
/// # Panics
///
/// If the lengths differ from the shapes, or an id is out of range.
pub fn gather_rows(table: &[f32], ids: &[u32], d: usize, out: &mut [f32]) {
    check_shapes("gather", table.len(), ids, d, out.len());
    par::for_each_part(out, d, |start, out| {
        for (&id, out) in ids[start / d..].iter().zip(out.chunks_exact_mut(d)) {
            out.copy_from_slice(&table[id as usize * d..][..d]);
        }
    });
}

/// Adds row `i` of `dy [n, d]` to row `ids[i]` of `dtable [V, d]`, in ascending `i`.
///
/// # Panics
///
/// If the lengths differ from the shapes, or an id is out of range.
pub fn scatter_add(dy: &[f32], ids: &[u32], d: usize, dtable: &mut [f32]) {
    check_shapes("scatter_add", dtable.len(), ids, d, dy.len());
    // Each thread owns a range of ids and reads all tokens, so a row of the table is always summed in token order.
    if !par::worth_it(dy.len()) {
        return lanes::run_kernel(AddEmbeddingRows { dy, ids, d, first: 0, rows: dtable });
    }
    let each = (dtable.len() / d).div_ceil(4 * rayon::current_num_threads());
    dtable.par_chunks_mut(each * d).enumerate().for_each(|(i, rows)| {
        lanes::run_kernel(AddEmbeddingRows { dy, ids, d, first: i * each, rows });
    });
}

/// Adds rows of `dy` to the rows of the table in `rows`; the first of those is `first`.
struct AddEmbeddingRows<'a> {
    dy: &'a [f32],
    ids: &'a [u32],
    d: usize,
    first: usize,
    rows: &'a mut [f32],
}

impl Kernel for AddEmbeddingRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run_with_lanes<S: Simd, const N: usize>(self, lanes: Lanes<S, N>) {
        let Self { dy, ids, d, first, rows } = self;
        let range = first..first + rows.len() / d;
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(d)) {
            if range.contains(&(id as usize)) {
                let row = &mut rows[(id as usize - first) * d..][..d];
                lanes.add_to(row, dy);
            }
        }
    }
}

fn check_shapes(name: &str, table: usize, ids: &[u32], d: usize, tokens: usize) {
    let n = ids.len();
    assert!(d > 0 && table.is_multiple_of(d), "{name}: table of {table} is not rows of {d}");
    assert_eq!(tokens, n * d, "{name}: token rows have {tokens} elements, not [{n}, {d}]");
    let most = ids.iter().max().map_or(0, |&id| id as usize + 1);
    assert!(most <= table / d, "{name}: id {} of a table of {}", most.max(1) - 1, table / d);
}

#[cfg(test)]
mod tests;
