//! Several maps of one input of few rows, in one launch.

use super::{FEW, ProductTile, count_pieces};
use crate::cuda::array::{args, expect_length};
use crate::cuda::{Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Largest number of maps.
const MAPS: usize = 3;
/// Arguments of a map.
const ARGS: usize = 5;

const MAPS_16: ProductTile = ProductTile { kernel: "products_nt_16", ..super::NT_16 };
const MAPS_64: ProductTile = ProductTile { kernel: "products_nt_64", ..super::NT_64 };

/// A map of an input `[m, k]`, without an adapter.
#[derive(Debug)]
pub struct MapOutput<'a> {
    /// Weight `[n, k]`.
    pub w: Slice<'a, u16>,
    /// Bias `[n]`.
    pub bias: Option<Slice<'a, u16>>,
    /// Result `[m, n]`.
    pub to: SliceMut<'a, u16>,
}

/// Returns true if so many maps of an input of so many rows can be computed by [`Kernels::linear_maps`].
pub fn fit_one_launch(maps: usize, rows: usize) -> bool {
    maps <= MAPS && (1..=FEW).contains(&rows)
}

impl<M: Machine> Kernels<M> {
    /// Computes maps of `x [m, k]`, as many and of as few rows as [`fit_one_launch`] allows, in one launch, and one more if a sum
    /// has several pieces. Each result has the bits of [`Self::linear`].
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or there are more maps or rows.
    pub fn linear_maps(
        &self,
        x: Slice<'_, u16>,
        [m, k]: [usize; 2],
        maps: &[MapOutput<'_>],
    ) -> Result<(), M::Error> {
        assert!(fit_one_launch(maps.len(), m) && k > 0, "linears: {} maps of {m} rows", maps.len());
        expect_length("linears", "x", x.len(), m * k);
        let tile = if m <= MAPS_16.rows { MAPS_16 } else { MAPS_64 };
        let (mut blocks, mut room, mut results, mut given) = (0, 0, 0, Vec::new());
        for MapOutput { w, bias, to } in maps {
            let n = w.len() / k;
            expect_length("linears", "a weight", w.len(), n * k);
            expect_length("linears", "a bias", bias.map_or(n, |bias| bias.len()), n);
            expect_length("linears", "a result", to.len(), m * n);
            let pieces = count_pieces(n, k);
            blocks += m.div_ceil(tile.rows) * n.div_ceil(tile.columns) * pieces;
            if pieces > 1 {
                (room, results) = (room + pieces * m * n, results + m * n);
            }
            given.extend_from_slice(args![*w, *bias, *to, n, pieces]);
        }
        while given.len() < MAPS * ARGS {
            given.extend_from_slice(args![0_usize, 0_usize, 0_usize, 0_usize, 1_usize]);
        }
        let parts = if room > 0 { Some(self.new_array::<f32>(room)?) } else { None };
        let shared = tile.stages * (tile.rows + tile.columns) * tile.terms * 2;
        let grid = [blocks as u32, 1, 1];
        let shape = LaunchShape { grid, threads: tile.threads, shared: shared as u32 };
        let all = [args![x, m, k], &given, args![parts]].concat();
        self.run_model_kernel(tile.kernel, shape, &all)?;
        if results == 0 {
            return Ok(());
        }
        let all = [args![parts, m], &given].concat();
        self.run_model_kernel("add_map_pieces", LaunchShape::of_threads(results), &all)
    }
}
