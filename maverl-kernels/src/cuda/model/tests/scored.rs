//! Attention with scores of other kinds, sinks, and heads of 96 and 256.

use std::num::NonZeroU32;

use super::attention::{Case, agrees, by_calls};
use super::*;
use crate::attention::{Heads, Scores};

fn scores(scale: Option<f32>, window: Option<u32>, softcap: Option<f32>) -> Scores {
    Scores { scale, window: window.and_then(NonZeroU32::new), softcap }
}

/// Heads of each width with scores of a kind, and whether there are sinks.
fn kinds() -> Vec<(Heads, bool)> {
    let of = |q, kv, dim, scores| Heads::new(q, kv, dim).with_scores(scores);
    vec![
        (of(2, 1, 32, scores(Some(0.3), Some(20), Some(4.0))), true),
        (of(2, 1, 64, scores(None, Some(7), None)), false),
        (of(2, 2, 96, Scores::PLAIN), false),
        (of(3, 1, 96, scores(None, Some(33), None)), false),
        (of(2, 1, 64, Scores::PLAIN), true),
        (of(1, 1, 128, scores(Some(0.1), None, Some(2.0))), false),
        (of(2, 1, 256, Scores::PLAIN), false),
        (of(2, 1, 256, scores(Some(0.07), Some(65), Some(3.0))), true),
    ]
}

fn with(sinks: bool, case: Case) -> Case {
    if sinks { case.with_sinks() } else { case }
}

pub(super) fn scores_of_every_kind_and_width_agree_with_f64_and_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    for (at, (heads, sinks)) in kinds().into_iter().enumerate() {
        let case = Case::new(heads, &[17, 70, 30, 9], &[None, Some(0), Some(1), Some(0)]);
        agrees(kernels, &with(sinks, case), at == 0);
    }
}

pub(super) fn a_token_has_the_same_bits_in_chunks_and_decoded_by_scores_of_every_kind<M: Tested>(
    kernels: &Kernels<M>,
) {
    for (heads, sinks) in kinds() {
        let len = 140;
        let case = with(sinks, Case::new(heads, &[len], &[None]));
        let (want, _) = case.attend(kernels);
        let single: Vec<usize> = [100].into_iter().chain(101..=len).collect();
        for ends in [&[len][..], &[7, 70, 71, 72, 130, len], &single] {
            assert!(by_calls(kernels, &case, ends) == want, "{heads:?}, {} calls", ends.len());
        }
    }
    // Over several spans, of which a window leaves out the first.
    let heads = Heads::new(1, 1, 32).with_scores(scores(None, Some(40), None));
    let case = Case::new(heads, &[2150], &[None]);
    let (want, _) = case.attend(kernels);
    assert!(by_calls(kernels, &case, &[2047, 2048, 2049, 2149, 2150]) == want);
    near("a window of a long row", &from_bf16(&want), &case.by_cpu(), 3e-3);
}

pub(super) fn a_window_of_all_keys_has_the_bits_of_none<M: Tested>(kernels: &Kernels<M>) {
    for dim in [32, 64, 128] {
        let plain = Case::new(Heads::new(2, 1, dim), &[100, 3], &[None; 2]);
        let window = scores(None, Some(100), None);
        let wide = Case::new(Heads::new(2, 1, dim).with_scores(window), &[100, 3], &[None; 2]);
        let dout = random_bf16(5, plain.q.len());
        assert!(plain.attend(kernels) == wide.attend(kernels), "{dim}");
        assert!(plain.attend_back(kernels, &dout) == wide.attend_back(kernels, &dout), "{dim}");
    }
}
