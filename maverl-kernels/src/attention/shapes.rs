//! Shapes of an attention: heads, and sequences of a cache.

use std::num::NonZeroU32;

use crate::lanes::LANES;

/// Number of keys up to which a query's scores are held at once. Queries of more keys are computed in blocks of keys.
pub(super) const FEW_KEYS: usize = 512;
/// Elements of the largest head whose products are sums in one piece.
const MOST_DIM: usize = 512;

/// Shape of a grouped-query attention, and how its scores are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Number of query heads; a multiple of `kv`.
    pub q: usize,
    /// Number of key and value heads.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Computation of scores.
    pub scores: Scores,
}

/// Computation of the scores of attention. `i` is the position of a query and `j` that of a key:
///
/// ```text
/// s = scale qᵢ · kⱼ,   s ← cap tanh(s / cap),   i − window < j ≤ i
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// Factor of products; `1 / √dim` if there is none.
    pub scale: Option<f32>,
    /// Number of keys that a query attends to, its own included; all if there is none.
    pub window: Option<NonZeroU32>,
    /// Bound of scores (Gemma 2, arXiv:2408.00118, section 2).
    pub softcap: Option<f32>,
}

impl Scores {
    /// Scores of all earlier keys, scaled by `1 / √dim`, without a bound.
    pub const PLAIN: Self = Self { scale: None, window: None, softcap: None };
}

impl Heads {
    /// Returns the shape of `q` query heads and `kv` key and value heads of `dim` elements, with plain scores.
    pub const fn new(q: usize, kv: usize, dim: usize) -> Self {
        Self { q, kv, dim, scores: Scores::PLAIN }
    }

    /// Returns the shape with other scores.
    #[must_use]
    pub const fn with_scores(self, scores: Scores) -> Self {
        Self { scores, ..self }
    }

    /// Returns the first key that the query at position `i` attends to.
    pub(super) fn first_key(self, i: usize) -> usize {
        self.scores.window.map_or(0, |window| (i + 1).saturating_sub(window.get() as usize))
    }

    /// Returns the first key that is read for the query at position `i` and later ones: a multiple of [`LANES`], so that
    /// sums have the order of those over all keys.
    pub(super) fn first_group(self, i: usize) -> usize {
        self.first_key(i) / LANES * LANES
    }

    /// Returns the first position whose query attends to more than [`FEW_KEYS`] keys. Because this depends on nothing but the
    /// position, a query has the same bits in every pass (K-1).
    pub(super) fn first_long(self) -> usize {
        let narrow = self.scores.window.is_some_and(|window| window.get() as usize <= FEW_KEYS);
        if narrow || self.dim > MOST_DIM { usize::MAX } else { FEW_KEYS }
    }

    /// Returns the number of elements of a token's queries.
    pub(super) fn q_width(self) -> usize {
        self.q * self.dim
    }

    /// Returns the number of elements of a token's keys, or values.
    pub(super) fn kv_width(self) -> usize {
        self.kv * self.dim
    }

    /// Returns the number of query heads that share a key head.
    pub(super) fn group_size(self) -> usize {
        self.q / self.kv
    }

    pub(super) fn score_scale(self) -> f32 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.dim as f32).sqrt())
    }

    #[track_caller]
    pub(super) fn assert_valid(self, name: &str) {
        let Self { q, kv, dim, .. } = self;
        assert!(
            dim > 0 && kv > 0 && q > 0 && q.is_multiple_of(kv),
            "{name}: {q} query heads over {kv} of {dim}"
        );
    }
}

/// One sequence of [`attention_cached`](super::attention_cached).
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Number of queries: the last tokens of the sequence.
    pub new_tokens: usize,
    /// Number of tokens of the sequence, new tokens included.
    pub len: usize,
    /// Blocks of the sequence, in order.
    pub blocks: &'a [u32],
    /// Slot of its states in recurrent layers; any number without such layers.
    pub state: u32,
}
