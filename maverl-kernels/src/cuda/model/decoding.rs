//! Passes that add one token to each of some sequences, as recordings have them: of few sizes, with inputs at fixed places.

use super::cached::{BlockTables, SPAN};
use super::{EmbeddingLayout, FROM_HOST, Positions, SampledTokens};
use crate::attention::{BLOCK_TOKENS, Segment};
use crate::cuda::{Kernels, Machine, SliceMut};

/// Sequences of a pass. Those that lack are filled up by sequences without tokens.
const ROWS: [usize; 17] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
/// Spans of the longest sequence.
const SPANS: [usize; 4] = [1, 2, 4, 8];
/// Words that the inputs of a pass begin at multiples of, as recorded places do.
const STEP: usize = 128;
/// Slot of a token that is not kept.
const NOWHERE: u32 = u32::MAX;

/// Size of a pass that adds one token to each of some sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecodingPass {
    rows: usize,
    spans: usize,
}

impl DecodingPass {
    /// Returns the smallest pass for these sequences; `None` if one of them has several new tokens, or they are too many
    /// or too long.
    pub fn for_segments(segments: &[Segment<'_>]) -> Option<Self> {
        if segments.is_empty() || segments.iter().any(|segment| segment.new_tokens != 1) {
            return None;
        }
        let longest = segments.iter().map(|segment| segment.len).max().unwrap_or(0);
        let rows = ROWS.into_iter().find(|&rows| rows >= segments.len())?;
        let spans = SPANS.into_iter().find(|&spans| spans >= longest.div_ceil(SPAN))?;
        Some(Self { rows, spans })
    }

    /// Returns the number of sequences.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Blocks of a row of the table.
    fn row_blocks(self) -> usize {
        self.spans * (SPAN / BLOCK_TOKENS)
    }

    /// Words of ids, positions, slots, sequences, the table of blocks, and the rows that ids are sampled from.
    fn input_words(self) -> [usize; 6] {
        let Self { rows, .. } = self;
        [rows, rows, rows, 4 * rows, rows * self.row_blocks(), rows]
    }

    /// Returns the begins of the inputs in the workspace, and the end of the last.
    fn input_begins(self) -> ([usize; 6], usize) {
        let mut begin = 0;
        let begins = self.input_words().map(|words| {
            let at = begin;
            begin += words.next_multiple_of(STEP);
            at
        });
        (begins, begin)
    }

    /// Returns the inputs of a pass, as they lie at the front of its workspace. Where `from` has a row of sampled tokens
    /// and not [`FROM_HOST`], the id is one that [`Kernels::place_sampled`] replaces; `from` may be empty.
    ///
    /// # Panics
    ///
    /// If the pass is not one for these sequences, or a sequence has more tokens than its blocks.
    pub fn pack_inputs(
        self,
        [ids, positions, from]: [&[u32]; 3],
        segments: &[Segment<'_>],
    ) -> Vec<u32> {
        let n = segments.len();
        assert!(n <= self.rows && ids.len() == n && positions.len() == n, "{n} sequences");
        let (begins, words) = self.input_begins();
        let mut all = vec![0; words];
        let [at_ids, at_positions, at_slots, at_rows, at_table, at_from] = begins;
        all[at_from..][..self.rows].fill(FROM_HOST);
        all[at_from..][..from.len()].copy_from_slice(from);
        all[at_ids..][..n].copy_from_slice(ids);
        all[at_positions..][..n].copy_from_slice(positions);
        all[at_slots..][n..self.rows].fill(NOWHERE);
        for row in 0..self.rows {
            let of = segments.get(row).map_or(0, |segment| segment.len) as u32;
            all[at_rows + 4 * row..][..3].copy_from_slice(&[row as u32, row as u32, of]);
        }
        for (row, &Segment { len, blocks, .. }) in segments.iter().enumerate() {
            let used = len.div_ceil(BLOCK_TOKENS);
            assert!(
                len > 0 && used <= blocks.len().min(self.row_blocks()),
                "segment {row}: {len} tokens"
            );
            all[at_table + row * self.row_blocks()..][..used].copy_from_slice(&blocks[..used]);
            let (block, place) = (blocks[used - 1] as usize, (len - 1) % BLOCK_TOKENS);
            all[at_slots + row] = (block * BLOCK_TOKENS + place) as u32;
        }
        all
    }
}

/// Ids, positions and blocks of the tokens of a pass.
pub(super) type DecodingTokens<M> = (EmbeddingLayout<M>, Positions<M>, BlockTables<M>);

impl<M: Machine> Kernels<M> {
    /// Returns the tokens of a pass at the front of the workspace of a recorder, which has given no other place yet. The
    /// caller checks ids and positions against the tables, and blocks against the keys and values.
    ///
    /// # Errors
    ///
    /// None: a recording takes no memory.
    pub fn decoding_tokens(&self, pass: DecodingPass) -> Result<DecodingTokens<M>, M::Error> {
        let [ids, positions, slots, single, table, from] = pass.input_words();
        let (ids, positions) = (self.new_array(ids)?, self.new_array(positions)?);
        let (slots, single, table) =
            (self.new_array(slots)?, self.new_array(single)?, self.new_array(table)?);
        // Read before the pass, which may have the place.
        drop(self.new_array::<u32>(from)?);
        let tables = BlockTables {
            new_tokens: pass.rows,
            blocks: 1,
            table,
            most: pass.row_blocks(),
            tiles: self.new_array(0)?,
            single,
            longest: pass.spans * SPAN,
            slots,
        };
        Ok((self.recorded_ids(ids)?, Positions { array: positions, most: 0 }, tables))
    }

    /// Replaces ids of a pass, whose inputs of [`DecodingPass::pack_inputs`] are at the front of a workspace, by those of sampled
    /// tokens. They are below `vocab`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the workspace is too small, or a row of `from` is not among the tokens.
    pub fn place_sampled(
        &self,
        pass: DecodingPass,
        tokens: &SampledTokens<M>,
        from: &[u32],
        vocab: usize,
        workspace: SliceMut<'_, u32>,
    ) -> Result<(), M::Error> {
        tokens.assert_rows(from);
        let ([at_ids, .., at_from], _) = pass.input_begins();
        let places = [at_from, at_ids]
            .map(|begin| workspace.as_slice().sub_slice(begin..begin + pass.rows).address());
        self.replace_ids(tokens, places, pass.rows, vocab)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pass_has_the_least_size_that_fits_and_rows_without_tokens_are_kept_nowhere() {
        let blocks = [5, 9, 7];
        let of = |new_tokens, len| Segment { new_tokens, len, blocks: &blocks, state: 0 };
        assert_eq!(DecodingPass::for_segments(&[]), None);
        assert_eq!(DecodingPass::for_segments(&[of(1, 3), of(2, 3)]), None);
        assert_eq!(DecodingPass::for_segments(&[of(1, 8 * SPAN + 1)]), None);
        assert_eq!(DecodingPass::for_segments(&vec![of(1, 1); 1025]), None);
        let size = |segments: &[Segment<'_>]| {
            DecodingPass::for_segments(segments).map(|pass| [pass.rows, pass.spans]).unwrap()
        };
        assert_eq!(size(&[of(1, SPAN)]), [1, 1]);
        assert_eq!(size(&vec![of(1, 2 * SPAN + 1); 17]), [24, 4]);
        let segments = [of(1, 17), of(1, 48), of(1, 1)];
        let pass = DecodingPass::for_segments(&segments).unwrap();
        let packed = pass.pack_inputs([&[1, 2, 3], &[16, 47, 0], &[FROM_HOST, 7, 0]], &segments);
        assert_eq!(packed.len(), 4 * STEP + 4 * 128 + STEP);
        assert_eq!(packed[4 * STEP + 4 * 128..][..4], [FROM_HOST, 7, 0, FROM_HOST]);
        assert_eq!(packed[..4], [1, 2, 3, 0]);
        assert_eq!(packed[STEP..][..4], [16, 47, 0, 0]);
        assert_eq!(packed[2 * STEP..][..4], [9 * 16, 7 * 16 + 15, 5 * 16, NOWHERE]);
        assert_eq!(packed[3 * STEP..][4..16], [1, 1, 48, 0, 2, 2, 1, 0, 3, 3, 0, 0]);
        assert_eq!(packed[4 * STEP..][128..132], [5, 9, 7, 0]);
    }
}
