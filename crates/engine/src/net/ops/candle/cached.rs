//! Attention of new tokens to keys and values in blocks. Shapes: `B` sequences, `S` keys of the longest.

use std::ops::Range;

use candle_core::{Result, Tensor};
use maverl_kernels::attention::{BLOCK_TOKENS, Heads, Segment};

use super::attention::{QueryTile, attend_tile, weigh, window};
use super::join_rows;

/// Most tokens of padded sequences whose keys and values are copied at once.
const PADDED: usize = 1 << 16;

/// Places of the tokens of a sequence at some positions among those of all blocks.
fn places(segment: &Segment<'_>, positions: Range<usize>) -> impl Iterator<Item = u32> {
    positions.map(|position| {
        let block = segment.blocks[position / BLOCK_TOKENS] as usize;
        (block * BLOCK_TOKENS + position % BLOCK_TOKENS) as u32
    })
}

/// Writes keys and values of new tokens, `[N, K d]` each, to the end of each sequence in `to [places, K d]`.
pub(super) fn append(new: [&Tensor; 2], to: &[Tensor; 2], segments: &[Segment<'_>]) -> Result<()> {
    let mut done = 0;
    for segment in segments {
        let mut position = segment.len - segment.new_tokens;
        while position < segment.len {
            let rows = (BLOCK_TOKENS - position % BLOCK_TOKENS).min(segment.len - position);
            let place = places(segment, position..position + 1).next().unwrap_or_default();
            for (new, to) in new.iter().zip(to) {
                to.slice_set(&new.narrow(0, done, rows)?, 0, place as usize)?;
            }
            (done, position) = (done + rows, position + rows);
        }
    }
    Ok(())
}

/// Computes attention of new tokens, `q [N, H d]`, to keys and values `[places, K d]`, with sinks `[H]`.
pub(super) fn attend(
    q: &Tensor,
    kv: &[Tensor; 2],
    segments: &[Segment<'_>],
    of: (Heads, Option<&Tensor>),
) -> Result<Tensor> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let alone = |segment: &Segment<'_>| segment.new_tokens != 1;
    let groups = segments.chunk_by(|a, b| !alone(a) && !alone(b));
    for group in groups {
        let tokens = group.iter().map(|segment| segment.new_tokens).sum();
        let q = q.narrow(0, start, tokens)?;
        start += tokens;
        match group {
            [segment] => attend_one(&q, kv, segment, of, &mut parts)?,
            group => attend_next(&q, kv, group, of, &mut parts)?,
        }
    }
    join_rows(&parts, of.0.q * of.0.dim, q.device())
}

/// Computes attention of the new tokens of one sequence.
fn attend_one(
    q: &Tensor,
    kv: &[Tensor; 2],
    segment: &Segment<'_>,
    (heads, sinks): (Heads, Option<&Tensor>),
    parts: &mut Vec<Tensor>,
) -> Result<()> {
    let past = segment.len - segment.new_tokens;
    for tile in QueryTile::of(past, segment.new_tokens, heads) {
        let at: Vec<u32> = places(segment, tile.keys.clone()).collect();
        let at = Tensor::from_slice(&at, at.len(), q.device())?;
        let [k, v] = [kv[0].index_select(&at, 0)?, kv[1].index_select(&at, 0)?];
        let q = q.narrow(0, tile.queries.start, tile.queries.len())?;
        parts.push(attend_tile(&q, [&k, &v], &tile.mask(q.device())?, (heads, sinks))?);
    }
    Ok(())
}

/// Computes attention of one new token of each sequence, with padding to the longest.
fn attend_next(
    q: &Tensor,
    kv: &[Tensor; 2],
    segments: &[Segment<'_>],
    of: (Heads, Option<&Tensor>),
    parts: &mut Vec<Tensor>,
) -> Result<()> {
    let most = window(of.0).unwrap_or(usize::MAX);
    let longest = segments.iter().map(|segment| segment.len.min(most)).max().unwrap_or(1);
    let mut start = 0;
    for some in segments.chunks((PADDED / longest).max(1)) {
        parts.push(attend_padded(&q.narrow(0, start, some.len())?, kv, some, of)?);
        start += some.len();
    }
    Ok(())
}

/// Computes [`attend_next`] of so few sequences that all their keys are copied: `q [B, H d]` -> `[B, H d]`.
fn attend_padded(
    q: &Tensor,
    kv: &[Tensor; 2],
    segments: &[Segment<'_>],
    (heads, sinks): (Heads, Option<&Tensor>),
) -> Result<Tensor> {
    let (n, group, most) =
        (segments.len(), heads.q / heads.kv, window(heads).unwrap_or(usize::MAX));
    let longest = segments.iter().map(|segment| segment.len.min(most)).max().unwrap_or(0);
    let (mut at, mut mask) = (vec![0; n * longest], vec![f32::NEG_INFINITY; n * longest]);
    let rows = at.chunks_exact_mut(longest).zip(mask.chunks_exact_mut(longest));
    for ((at, mask), segment) in rows.zip(segments) {
        let seen = segment.len.min(most);
        at.iter_mut()
            .zip(places(segment, segment.len - seen..segment.len))
            .for_each(|(to, from)| *to = from);
        mask[..seen].fill(0.0);
    }
    let at = Tensor::from_vec(at, n * longest, q.device())?;
    let mask = Tensor::from_vec(mask, (n, 1, 1, longest), q.device())?;
    let [k, v] = [&kv[0], &kv[1]].map(|x| by_sequence(x, &at, (n, heads)));
    let q = q.reshape((n, heads.kv, group, heads.dim))?;
    let products = q.matmul(&k?.t()?)?;
    let sinks = sinks.map(|sinks| sinks.reshape((heads.kv, group, 1))).transpose()?;
    let weights = weigh(&products, heads, &mask, sinks.as_ref())?.weights;
    weights.matmul(&v?)?.reshape((n, heads.q * heads.dim))
}

/// Copies the keys or values of `n` sequences at places `[n S]`: `[places, K d]` -> `[n, K, S, d]`.
fn by_sequence(x: &Tensor, at: &Tensor, (n, heads): (usize, Heads)) -> Result<Tensor> {
    let dims = (n, at.dim(0)? / n, heads.kv, heads.dim);
    x.index_select(at, 0)?.reshape(dims)?.transpose(1, 2)?.contiguous()
}
