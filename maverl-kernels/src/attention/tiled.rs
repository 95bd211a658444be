//! Attention of queries with many keys: products of blocks of queries and blocks of keys, as in FlashAttention-2
//! (Dao, 2023, arXiv:2307.08691).
//!
//! A block has the keys of [`KEYS`] positions from a multiple of it on. A query takes its blocks in ascending order, and has a
//! running maximum `m`, sum `l` and result `o` (`j` are the keys of a block):
//!
//! ```text
//! m' = max(m, max_j s_j),   f = exp(m − m'),   p_j = exp(s_j − m')
//! l ← f l + Σ_j p_j,   o ← f o + Σ_j p_j v_j,   m ← m'
//! ```
//!
//! A score is a sum over `dim`, and `Σ p v` one over the keys of the block, with the order and the rounding of a matrix product
//! (see [`matmul`](crate::matmul)). Keys that a query does not attend to have `p = 0`, which changes no sum. So the bits of a
//! query depend on nothing but its position and its keys (K-1).

mod backward;
mod decode;
mod forward;
mod online;
mod queries;
mod weights;

use std::ops::Range;

pub(super) use backward::add_long_gradients;
pub(super) use decode::attend_in_place;
pub(super) use forward::attend_in_tiles;

/// Keys of a block. Their products with a block of queries, and the values, fit a level-2 cache.
pub(super) const KEYS: usize = 256;
/// Rows that are multiplied at once; a row belongs to one query and head. A multiple of the rows of a tile on every path.
pub(super) const ROWS: usize = 96;
/// Rows of a task of the forward pass. Each block of keys is packed once for all of them.
pub(super) const TASK_ROWS: usize = 4 * ROWS;
/// Rows of a key head up to which, as for one query, the keys of a cache are read in place: packing them would take
/// longer than their products.
pub(super) const FEW_ROWS: usize = 64;
/// Columns of scores are whole panels of a product.
const PANEL: usize = 32;

/// Returns the blocks of keys that the queries at some positions may read, of which the first attends to `first_key` first.
fn key_blocks(first_key: usize, end: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (first_key / KEYS * KEYS..end).step_by(KEYS);
    starts.map(move |start| start..end.min(start + KEYS))
}
