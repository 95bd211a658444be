//! Weights of products and lookups: numbers in the array of the parameters, or blocks of a file.
//!
//! Blocks become f32 by tiles of rows, which are multiplied and dropped: at most [`TILE`] numbers are there at a time, of one matrix.
//! The inputs of a product are not rounded to 8 bits, as candle's product with blocks has them, so results are those of the matrix
//! in f32, and rollout and training have one arithmetic.
//!
//! Shapes: `N` rows, `I` inputs, `O` outputs.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use super::{Candle, Done, weight};
use crate::files::gguf::BlockMatrix;
use crate::net::values::Param;

/// Most numbers of a tile, unless one row has more.
const TILE: usize = 1 << 20;

/// A weight `[O, I]`.
pub(super) enum Matrix {
    Dense(Tensor),
    Blocks(Arc<BlockMatrix>),
}

impl Matrix {
    /// Returns the weight of a linear map, or a table.
    pub(super) fn of(param: &Param<Candle>) -> Done<Self> {
        match param.blocks() {
            None => Ok(Self::Dense(weight(param)?)),
            Some(blocks) => Ok(Self::Blocks(Arc::clone(blocks))),
        }
    }

    /// Computes `x Wᵀ`, `[N, O]`, for `x [N, I]`.
    pub(super) fn times(&self, x: &Tensor) -> Result<Tensor> {
        let blocks = match self {
            Self::Dense(weight) => return x.matmul(&weight.t()?),
            Self::Blocks(blocks) => blocks,
        };
        let tiles = tiles(blocks.dims());
        let parts = tiles.map(|rows| x.matmul(&tile(blocks, rows, x.device())?.t()?));
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        if parts.len() == 1 { Ok(parts.remove(0)) } else { Tensor::cat(&parts, 1) }
    }

    /// Computes `dy W`, `[N, I]`, for `dy [N, O]`: the gradient of [`Matrix::times`] by its input.
    pub(super) fn times_back(&self, dy: &Tensor) -> Result<Tensor> {
        let blocks = match self {
            Self::Dense(weight) => return dy.matmul(weight),
            Self::Blocks(blocks) => blocks,
        };
        let [_, columns] = blocks.dims();
        let mut sum = Tensor::zeros((dy.dim(0)?, columns), dy.dtype(), dy.device())?;
        for rows in tiles(blocks.dims()) {
            let part = dy.narrow(1, rows.start, rows.len())?.contiguous()?;
            sum = (sum + part.matmul(&tile(blocks, rows, dy.device())?)?)?;
        }
        Ok(sum)
    }

    /// Reads rows of a table, `[N, I]`.
    pub(super) fn gather(&self, rows: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(table) => table.index_select(rows, 0),
            Self::Blocks(blocks) => {
                let (n, [_, columns]) = (rows.dim(0)?, blocks.dims());
                Tensor::from_vec(blocks.gather(&rows.to_vec1()?)?, (n, columns), rows.device())
            }
        }
    }
}

/// Splits the rows of a matrix into tiles.
fn tiles([rows, columns]: [usize; 2]) -> impl Iterator<Item = Range<usize>> {
    let most = (TILE / columns.max(1)).max(1);
    (0..rows).step_by(most).map(move |start| start..rows.min(start + most))
}

/// Computes the numbers of a tile.
fn tile(blocks: &BlockMatrix, rows: Range<usize>, device: &Device) -> Result<Tensor> {
    let dims = (rows.len(), blocks.dims()[1]);
    Tensor::from_vec(blocks.rows(rows)?, dims, device)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::files::gguf::NumberKind;

    #[test]
    fn tiles_of_a_matrix_are_all_of_its_rows_once() {
        for dims in [[1, 4], [5, TILE], [3, 2 * TILE], [1000, 4097], [TILE, 1]] {
            let found: Vec<Range<usize>> = tiles(dims).collect();
            assert!(found.iter().all(|rows| rows.len() == 1 || rows.len() * dims[1] <= TILE));
            assert_eq!(
                found.into_iter().flatten().collect::<Vec<_>>(),
                (0..dims[0]).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn products_with_blocks_are_those_with_their_numbers() {
        let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 60.0;
        let numbers = |n: usize| (0..n).map(number).collect::<Vec<f32>>();
        // Two tiles and a part of one.
        let (o, i, device) = (2 * TILE / 256 + 7, 256, Device::Cpu);
        for kind in [NumberKind::Q4_0, NumberKind::Q8_0, NumberKind::Q4K, NumberKind::F16] {
            let bytes = kind.write(&numbers(o * i)).unwrap();
            let of = Arc::new(BlockMatrix::new(kind, &bytes, [o, i], None).unwrap());
            let dense = Tensor::from_vec(of.rows(0..o).unwrap(), (o, i), &device).unwrap();
            let (blocks, dense) = (Matrix::Blocks(of), Matrix::Dense(dense));
            let x = Tensor::from_vec(numbers(3 * i), (3, i), &device).unwrap();
            let dy = Tensor::from_vec(numbers(3 * o), (3, o), &device).unwrap();
            let rows = Tensor::from_vec(vec![o as u32 - 1, 0, 5, 5], 4, &device).unwrap();
            let same = |found: Tensor, expected: Tensor| {
                let norm =
                    |x: Tensor| x.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
                let off = norm((found - &expected).unwrap()) / norm(expected);
                assert!(off.sqrt() <= 1e-6, "{kind:?}: {off:e}");
            };
            same(blocks.times(&x).unwrap(), dense.times(&x).unwrap());
            same(blocks.times_back(&dy).unwrap(), dense.times_back(&dy).unwrap());
            let gathered = [&blocks, &dense].map(|of| of.gather(&rows).unwrap());
            let [found, expected] = gathered.map(|of| of.to_vec2::<f32>().unwrap());
            assert_eq!(found, expected, "{kind:?}");
        }
    }
}
