//! Kinds of scores of attention, which choose its kernels.

use std::f32::consts::LOG2_E;

use crate::attention::{Heads, Scores};
use crate::cuda::Slice;
use crate::cuda::array::args;

/// Widths of heads of plain scores, and of all.
const PLAIN_DIMS: [usize; 3] = [32, 64, 128];
/// Widths of heads that there are kernels for.
pub const HEAD_DIMS: [usize; 5] = [32, 64, 96, 128, 256];

/// Kernels by the width of heads, for plain scores and for others.
pub(super) struct KernelNames {
    plain: [&'static str; 3],
    scored: [&'static str; 5],
}

pub(super) const ATTEND: KernelNames = KernelNames {
    plain: ["attend_32", "attend_64", "attend_128"],
    scored: [
        "attend_scored_32",
        "attend_scored_64",
        "attend_scored_96",
        "attend_scored_128",
        "attend_scored_256",
    ],
};
pub(super) const ATTEND_CACHED: KernelNames = KernelNames {
    plain: ["attend_cached_32", "attend_cached_64", "attend_cached_128"],
    scored: [
        "attend_cached_scored_32",
        "attend_cached_scored_64",
        "attend_cached_scored_96",
        "attend_cached_scored_128",
        "attend_cached_scored_256",
    ],
};
pub(super) const ATTEND_ONE: KernelNames = KernelNames {
    plain: ["attend_one_32", "attend_one_64", "attend_one_128"],
    scored: [
        "attend_one_scored_32",
        "attend_one_scored_64",
        "attend_one_scored_96",
        "attend_one_scored_128",
        "attend_one_scored_256",
    ],
};
pub(super) const ATTEND_DQ: KernelNames = KernelNames {
    plain: ["attend_dq_32", "attend_dq_64", "attend_dq_128"],
    scored: [
        "attend_dq_scored_32",
        "attend_dq_scored_64",
        "attend_dq_scored_96",
        "attend_dq_scored_128",
        "attend_dq_scored_256",
    ],
};
pub(super) const ATTEND_DKV: KernelNames = KernelNames {
    plain: ["attend_dkv_32", "attend_dkv_64", "attend_dkv_128"],
    scored: [
        "attend_dkv_scored_32",
        "attend_dkv_scored_64",
        "attend_dkv_scored_96",
        "attend_dkv_scored_128",
        "attend_dkv_scored_256",
    ],
};

/// Computation of the scores of an attention, in units of log2.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreKind {
    dim: usize,
    scale: f32,
    cap: f32,
    window: usize,
    plain: bool,
}

impl ScoreKind {
    /// Returns the kind of these heads.
    #[track_caller]
    pub(super) fn of(kernel: &str, heads: Heads, sinks: Option<Slice<'_, u16>>) -> Self {
        let Heads { q, kv, dim, scores: Scores { scale, window, softcap } } = heads;
        assert!(kv > 0 && q > 0 && q.is_multiple_of(kv), "{kernel}: {q} query heads over {kv}");
        assert!(HEAD_DIMS.contains(&dim), "{kernel}: heads of {dim}; there are {HEAD_DIMS:?}");
        let length = sinks.map_or(q, |sinks| sinks.len());
        assert!(length == q, "{kernel}: {length} sinks of {q} heads");
        let plain = heads.scores == Scores::PLAIN && sinks.is_none() && PLAIN_DIMS.contains(&dim);
        let own = scale.map(|scale| scale * LOG2_E);
        let most = i32::MAX as usize;
        Self {
            dim,
            scale: own.unwrap_or_else(|| LOG2_E / (dim as f32).sqrt()),
            cap: softcap.map_or(0.0, |cap| cap * LOG2_E),
            window: window.map_or(most, |keys| most.min(keys.get() as usize)),
            plain,
        }
    }

    /// Returns the kernel of this width of heads.
    pub(super) fn kernel(self, names: KernelNames) -> &'static str {
        let at = |dims: &[usize]| dims.iter().position(|&dim| dim == self.dim).unwrap_or(0);
        if self.plain { names.plain[at(&PLAIN_DIMS)] } else { names.scored[at(&HEAD_DIMS)] }
    }

    /// Returns the arguments of the kernel: scale, and if scores are others bound and window.
    pub(super) fn arguments(self) -> Vec<u64> {
        let Self { scale, cap, window, plain, .. } = self;
        if plain { args![scale].to_vec() } else { args![scale, cap, window].to_vec() }
    }

    /// Returns the argument of sinks, which kernels of plain scores do not have.
    pub(super) fn sinks(self, sinks: Option<Slice<'_, u16>>) -> Vec<u64> {
        if self.plain { Vec::new() } else { args![sinks].to_vec() }
    }
}

/// Returns the parts of the columns of values that blocks have.
pub(super) fn halves(dim: usize) -> usize {
    if dim > 128 { 2 } else { 1 }
}

/// Returns the numbers that a row of keys has room for in shared memory.
pub(super) fn room(dim: usize) -> usize {
    dim.next_power_of_two()
}
