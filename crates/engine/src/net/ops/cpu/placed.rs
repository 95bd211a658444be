//! Tokens of a pass on the CPU.

use std::borrow::Cow;
use std::ops::Range;

use maverl_kernels::attention::{Packing, Segment};

use crate::net::memory::Cpu;
use crate::net::ops::{DrawnIds, FROM_HOST, NewTokens};
use crate::net::rows::Rows;

/// Tokens of a pass.
#[derive(Debug)]
pub struct Placed<'a> {
    pub(super) ids: Cow<'a, [u32]>,
    pub(super) positions: &'a [u32],
    /// Bounds of packed rows; none of cached sequences.
    pub(super) packing: Packing<'a>,
    /// Cached sequences; none of packed rows.
    pub(super) segments: Cow<'a, [Segment<'a>]>,
}

impl<'a> Placed<'a> {
    /// Creates the tokens of packed rows.
    pub(super) fn of_rows(rows: Rows<'a>) -> Self {
        let Rows { ids, positions, packing } = rows;
        Self { ids: ids.into(), positions, packing, segments: Cow::Borrowed(&[]) }
    }

    /// Creates the new tokens of cached sequences.
    pub(super) fn of_cached(tokens: NewTokens<'a, Cpu>) -> Self {
        let NewTokens { positions, segments, .. } = tokens;
        let (ids, segments) = (ids(tokens), Cow::Borrowed(segments));
        Self { ids, positions, packing: Packing::from_offsets(&[0]), segments }
    }

    /// Returns some of the new tokens.
    pub(super) fn part(&self, tokens: Range<usize>) -> Placed<'_> {
        Placed {
            ids: Cow::Borrowed(&self.ids[tokens.clone()]),
            positions: &self.positions[tokens.clone()],
            packing: self.packing,
            segments: cut_segments(&self.segments, tokens),
        }
    }
}

/// Returns the ids of new tokens, sampled ones included.
fn ids<'a>(tokens: NewTokens<'a, Cpu>) -> Cow<'a, [u32]> {
    let Some(DrawnIds { drawn, rows, vocab }) = tokens.drawn else { return tokens.ids.into() };
    let ids = tokens.ids.iter().zip(rows).map(|(&given, &row)| match row {
        FROM_HOST => given,
        row => drawn[row as usize].map_or(0, |sampled| sampled.id.min(vocab as u32 - 1)),
    });
    ids.collect()
}

/// Returns the segments of a range of new tokens. A segment that continues beyond the range is cut at its end.
fn cut_segments<'s>(segments: &'s [Segment<'_>], tokens: Range<usize>) -> Cow<'s, [Segment<'s>]> {
    if segments.iter().all(|segment| segment.new_tokens == 1) {
        return Cow::Borrowed(&segments[tokens]);
    }
    let mut start = 0;
    let parts = segments.iter().filter_map(|segment| {
        let new = start..start + segment.new_tokens;
        start = new.end;
        let (first, end) = (new.start.max(tokens.start), new.end.min(tokens.end));
        let part = Segment {
            new_tokens: end.checked_sub(first)?,
            len: segment.len + end - new.end,
            ..*segment
        };
        (part.new_tokens > 0).then_some(part)
    });
    Cow::Owned(parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_cut_where_the_tokens_are() {
        let blocks = [7];
        let segment = |new_tokens, len| Segment { new_tokens, len, blocks: &blocks, state: 0 };
        let all = [segment(2, 5), segment(0, 4), segment(4, 4), segment(1, 9)];
        let lens = |tokens| {
            let cut = cut_segments(&all, tokens);
            cut.iter().map(|segment| (segment.new_tokens, segment.len)).collect::<Vec<_>>()
        };
        assert_eq!(lens(0..7), [(2, 5), (4, 4), (1, 9)]);
        assert_eq!(lens(0..4), [(2, 5), (2, 2)]);
        assert_eq!(lens(4..7), [(2, 4), (1, 9)]);
        assert_eq!(lens(3..4), [(1, 2)]);
        let decoding = [segment(1, 5), segment(1, 4), segment(1, 9)];
        assert!(matches!(cut_segments(&decoding, 1..3), Cow::Borrowed([_, last]) if last.len == 9));
    }
}
