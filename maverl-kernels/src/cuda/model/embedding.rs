//! Lookup of tokens' rows in a table, and its gradient.

use super::SampledTokens;
use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};

/// Rows that a block has, of a warp each.
const ROWS: usize = 8;
/// Tokens of an id that are summed together. More are cut into pieces.
const PIECE: usize = 512;

/// Tokens of a pass, and the order in which the gradient of their embedding is summed.
#[derive(Debug)]
pub struct EmbeddingLayout<M: Machine> {
    ids: DeviceArray<M, u32>,
    most: u32,
    sorted: DeviceArray<M, u32>,
    starts: DeviceArray<M, u32>,
    piece_ids: DeviceArray<M, u32>,
    slots: DeviceArray<M, i32>,
    /// Ids of several pieces: the bounds of their slots, and the ids.
    merged: [DeviceArray<M, u32>; 2],
    partials: usize,
}

impl<M: Machine> EmbeddingLayout<M> {
    /// Returns the number of tokens.
    pub fn token_count(&self) -> usize {
        self.ids.len()
    }
}

impl<M: Machine> Kernels<M> {
    /// Sorts the tokens of a pass by id.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn embedding_layout(&self, ids: &[u32]) -> Result<EmbeddingLayout<M>, M::Error> {
        let mut sorted: Vec<u32> = (0..ids.len() as u32).collect();
        sorted.sort_by_key(|&token| ids[token as usize]);
        let (mut starts, mut piece_ids, mut slots) = (vec![0], Vec::new(), Vec::new());
        let (mut merged_starts, mut merged_ids, mut partials) = (vec![0_u32], Vec::new(), 0);
        for tokens in sorted.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
            let (id, single) = (ids[tokens[0] as usize], tokens.len() <= PIECE);
            for piece in tokens.chunks(PIECE) {
                starts.push(starts[starts.len() - 1] + piece.len() as u32);
                piece_ids.push(id);
                slots.push(if single { -1 } else { partials as i32 });
                partials += usize::from(!single);
            }
            if !single {
                merged_starts.push(partials as u32);
                merged_ids.push(id);
            }
        }
        Ok(EmbeddingLayout {
            ids: self.array_of(ids)?,
            most: ids.iter().copied().max().unwrap_or(0),
            sorted: self.array_of(&sorted)?,
            starts: self.array_of(&starts)?,
            piece_ids: self.array_of(&piece_ids)?,
            slots: self.array_of(&slots)?,
            merged: [self.array_of(&merged_starts)?, self.array_of(&merged_ids)?],
            partials,
        })
    }

    /// Replaces ids of tokens, for lookups alone, by those of sampled tokens: of the rows `from`, or none where that is
    /// [`FROM_HOST`](super::FROM_HOST). They are below `vocab`.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If there are not as many rows as tokens, or a row is not among the sampled tokens.
    pub fn replace_by_sampled(
        &self,
        at: &mut EmbeddingLayout<M>,
        tokens: &SampledTokens<M>,
        from: &[u32],
        vocab: usize,
    ) -> Result<(), M::Error> {
        let n = at.ids.len();
        expect_length("sampled_ids", "rows", from.len(), n);
        tokens.assert_rows(from);
        at.most = at.most.max(vocab.max(1) as u32 - 1);
        let from = self.array_of(from)?;
        let both = [from.as_slice().address(), at.ids.slice_mut().address()];
        self.replace_ids(tokens, both, n, vocab)
    }

    /// Returns tokens whose ids are a place of a recording, for lookups alone.
    pub(super) fn recorded_ids(
        &self,
        ids: DeviceArray<M, u32>,
    ) -> Result<EmbeddingLayout<M>, M::Error> {
        Ok(EmbeddingLayout {
            ids,
            most: 0,
            sorted: self.new_array(0)?,
            starts: self.new_array(0)?,
            piece_ids: self.new_array(0)?,
            slots: self.new_array(0)?,
            merged: [self.new_array(0)?, self.new_array(0)?],
            partials: 0,
        })
    }

    /// Writes the rows of `table [V, d]` of the tokens to `x [n, d]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or an id is out of range.
    pub fn gather_rows(
        &self,
        table: Slice<'_, u16>,
        at: &EmbeddingLayout<M>,
        d: usize,
        x: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let n = at.ids.len();
        expect_length("gather", "x", x.len(), n * d);
        assert!((at.most as usize + 1) * d <= table.len() || n == 0, "gather: id {}", at.most);
        let shape = LaunchShape::of_blocks(n.div_ceil(ROWS));
        self.run_model_kernel("gather", shape, args![table, at.ids, n, d, x])
    }

    /// Adds the rows of `dx [n, d]` to the rows of `table [V, d]` of their tokens, in the order of tokens.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or an id is out of range.
    pub fn scatter_add(
        &self,
        dx: Slice<'_, f32>,
        at: &EmbeddingLayout<M>,
        d: usize,
        table: SliceMut<'_, f32>,
    ) -> Result<(), M::Error> {
        let (n, pieces) = (at.ids.len(), at.piece_ids.len());
        expect_length("scatter", "dx", dx.len(), n * d);
        assert!((at.most as usize + 1) * d <= table.len() || n == 0, "scatter: id {}", at.most);
        let partials = self.new_array::<f32>(at.partials * d)?;
        let EmbeddingLayout { sorted, starts, piece_ids, slots, .. } = at;
        let arrays = args![dx, *sorted, *starts, *piece_ids, *slots, pieces, d, table, partials];
        self.run_model_kernel("scatter", scatter_shape(pieces, d), arrays)?;
        let [starts, ids] = &at.merged;
        let arrays = args![partials, *starts, *ids, ids.len(), d, table];
        self.run_model_kernel("scatter_merge", scatter_shape(ids.len(), d), arrays)
    }
}

/// Shape of additions to some rows of a table.
fn scatter_shape(rows: usize, d: usize) -> LaunchShape {
    let grid = [rows.div_ceil(ROWS) as u32, d.div_ceil(32) as u32, 1];
    LaunchShape { grid, ..LaunchShape::of_blocks(0) }
}
