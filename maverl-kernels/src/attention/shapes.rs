//! Shapes of an attention: heads, and sequences of a cache.

/// Shape of a grouped-query attention. Scores are scaled by `1 / √dim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Number of query heads; a multiple of `kv`.
    pub q: usize,
    /// Number of key and value heads.
    pub kv: usize,
    /// Elements of a head.
    pub dim: usize,
}

impl Heads {
    /// Returns the shape of `q` query heads and `kv` key and value heads of `dim` elements.
    pub const fn new(q: usize, kv: usize, dim: usize) -> Self {
        Self { q, kv, dim }
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
        1.0 / (self.dim as f32).sqrt()
    }

    #[track_caller]
    pub(super) fn assert_valid(self, name: &str) {
        let Self { q, kv, dim } = self;
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
}
