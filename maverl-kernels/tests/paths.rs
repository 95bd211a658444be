//! Every operation but products gives the same bits on every path of this processor, whatever the lengths.

use std::num::NonZeroU32;

use maverl_kernels::{
    adamw::{AdamW, adamw_step, sum_of_squares},
    attention::{
        BLOCK_TOKENS, CacheBlock, CacheBlocks, Heads, Packing, Scores, Segment, attention,
        attention_bwd, attention_cached, attention_sinks, attention_sinks_bwd,
    },
    embedding,
    experts::{ExpertRows, Router, RouterSoftmax, add_gated_rows, gated_rows_bwd},
    logprob::{LmHead, logprobs},
    matmul::Precision,
    mlp::{self, ClampedGate},
    norm,
    recurrent::{
        ConvWeights, DeltaGradients, DeltaHeads, DeltaRows, GateWeights, causal_conv,
        causal_conv_bwd, delta_gates, delta_rule, delta_rule_bwd, normalize_keys,
        normalize_keys_bwd,
    },
    rope::{RopeTable, apply_rope, rope_bwd},
    sample::{SamplingFilter, sample_fresh, sample_token, uniform_number},
    simd,
};
use proptest::prelude::*;

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (uniform_number(seed, i as u64) * 4.0 - 2.0) as f32).collect()
}

/// Asserts that `f` gives the same bits on every path, with one thread and with three.
#[track_caller]
fn same_bits(f: impl Fn() -> Vec<Vec<f32>> + Sync) {
    let bits = |path, threads| -> Vec<Vec<u32>> {
        let found = simd::run_on_path(path, threads, &f);
        found.iter().map(|x| x.iter().map(|x| x.to_bits()).collect()).collect()
    };
    let paths = simd::available_paths();
    let want = bits(paths[0], 1);
    for &path in &paths {
        for threads in [1, 3] {
            let found = bits(path, threads);
            for (array, (found, want)) in found.iter().zip(&want).enumerate() {
                let differs = found.iter().zip(want).position(|(a, b)| a != b);
                assert_eq!(differs, None, "array {array} of {path}, {threads} threads");
            }
        }
    }
}

fn heads() -> impl Strategy<Value = Heads> {
    let dims = prop_oneof![
        3 => prop::sample::select(vec![16, 32, 64, 80, 96, 128]),
        1 => 1_usize..70,
    ];
    let scores = (0_u32..40, prop::option::of(0.5_f32..4.0)).prop_map(|(window, softcap)| Scores {
        scale: softcap.map(|cap| 0.3 * cap),
        window: NonZeroU32::new(window),
        softcap,
    });
    let plain = prop_oneof![Just(Scores::PLAIN), scores];
    (1_usize..4, 1_usize..5, dims, plain)
        .prop_map(|(kv, group, dim, scores)| Heads::new(kv * group, kv, dim).with_scores(scores))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn norms_have_the_same_bits_on_every_path(rows in 1_usize..40, d in 1_usize..200, seed in 0_u64..99) {
        let (x, w, dy) = (random(seed, rows * d), random(seed + 1, d), random(seed + 2, rows * d));
        same_bits(|| {
            let (mut out, mut dx, mut dw) = (x.clone(), x.clone(), w.clone());
            norm::rms_norm(&x, &w, 1e-6, &mut out);
            norm::rms_norm_bwd(&x, &w, 1e-6, &dy, &mut dx, Some(&mut dw));
            let mut sum = dx.clone();
            norm::rms_norm_bwd_add(&x, &w, 1e-6, &dy, &mut sum, Some(&mut dw));
            vec![out, dx, dw, sum]
        });
    }

    #[test]
    fn gates_and_optimizer_steps_have_the_same_bits_on_every_path(n in 1_usize..300, many in any::<bool>(), seed in 0_u64..99) {
        let n = if many { n + 33_000 } else { n };
        let [a, b, c] = [0, 1, 2].map(|i| random(seed + i, n));
        let a: Vec<f32> = a.iter().map(|a| a * 30.0).collect();
        let cfg = AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
        same_bits(|| {
            let [mut out, mut dgate, mut dup] = [(); 3].map(|()| vec![0.0; n]);
            mlp::swiglu(&a, &b, &mut out);
            mlp::swiglu_bwd(&a, &b, &c, &mut dgate, &mut dup);
            let [mut geglu, mut dgate_of, mut dup_of] = [(); 3].map(|()| vec![0.0; n]);
            mlp::geglu(&a, &b, &mut geglu);
            mlp::geglu_bwd(&a, &b, &c, &mut dgate_of, &mut dup_of);
            let [mut clamped, mut dgate_in, mut dup_in] = [(); 3].map(|()| vec![0.0; n]);
            let bounds = ClampedGate { alpha: 1.702, limit: 7.0 };
            bounds.forward(&a, &b, &mut clamped);
            bounds.backward(&a, &b, &c, [&mut dgate_in, &mut dup_in]);
            let (mut p, mut m, mut v) = (a.clone(), vec![0.0; n], vec![0.0; n]);
            adamw_step(&cfg, 1, 0.5, &mut p, &b, &mut m, &mut v);
            adamw_step(&cfg, 2, 0.5, &mut p, &c, &mut m, &mut v);
            let squares = sum_of_squares(&b);
            let squares = [squares.to_bits() >> 32, squares.to_bits()].map(|x| f32::from_bits(x as u32));
            let gates = [out, dgate, dup, geglu, dgate_of, dup_of, clamped, dgate_in, dup_in];
            gates.into_iter().chain([p, m, v, squares.to_vec()]).collect()
        });
    }

    #[test]
    fn lookups_and_rotations_have_the_same_bits_on_every_path(
        n in 1_usize..60,
        half in 1_usize..70,
        heads in 1_usize..4,
        seed in 0_u64..99,
    ) {
        let d = heads * 2 * half;
        let (table, x) = (random(seed, 20 * d), random(seed + 1, n * d));
        let ids: Vec<u32> = (0..n as u32).map(|i| i * i % 20).collect();
        let angles = RopeTable::new(&random(seed + 2, half), 64);
        same_bits(|| {
            let (mut rows, mut sums) = (x.clone(), table.clone());
            embedding::gather_rows(&table, &ids, d, &mut rows);
            embedding::scatter_add(&x, &ids, d, &mut sums);
            let mut turned = x.clone();
            apply_rope(&mut turned, &ids, heads, &angles);
            let mut back = turned.clone();
            rope_bwd(&mut back, &ids, heads, &angles);
            vec![rows, sums, turned, back]
        });
    }

    #[test]
    fn attention_of_ragged_rows_has_the_same_bits_on_every_path(
        heads in heads(),
        lengths in prop::collection::vec(0_usize..50, 1..5),
        joined in any::<bool>(),
        seed in 0_u64..99,
    ) {
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        }));
        // A root, its child, and children of that one.
        let parents: Vec<Option<usize>> =
            (0..lengths.len()).map(|n| (joined && n > 0).then_some((n > 1).into())).collect();
        let packing = Packing { offsets: &offsets, parents: &parents };
        let n = offsets[lengths.len()];
        let [qw, kvw] = [heads.q, heads.kv].map(|count| n * count * heads.dim);
        let [q, k, v, dout] = [(0, qw), (1, kvw), (2, kvw), (3, qw)].map(|(i, n)| random(seed + i, n));
        same_bits(|| {
            let [mut out, mut dq] = [(); 2].map(|()| vec![0.0; qw]);
            let [mut dk, mut dv] = [(); 2].map(|()| vec![0.0; kvw]);
            attention(&q, &k, &v, packing, heads, &mut out);
            attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv);
            let sinks = random(seed + 4, heads.q);
            let [mut sunk, mut dq_of, mut dsinks] = [qw, qw, n * heads.q].map(|n| vec![0.0; n]);
            let [mut dk_of, mut dv_of] = [(); 2].map(|()| vec![0.0; kvw]);
            attention_sinks([&q, &k, &v], &sinks, packing, heads, &mut sunk);
            let grads = [&mut dq_of[..], &mut dk_of, &mut dv_of, &mut dsinks];
            attention_sinks_bwd([&q, &k, &v], [&sunk, &dout], &sinks, packing, heads, grads);
            vec![out, dq, dk, dv, sunk, dq_of, dk_of, dv_of, dsinks]
        });
    }

    #[test]
    fn experts_have_the_same_bits_on_every_path(n in 1_usize..80, d in 1_usize..100, seed in 0_u64..99) {
        let router = Router { experts: 7, chosen: 3, softmax: RouterSoftmax::All };
        let (scores, x) = (random(seed, 7 * n), random(seed + 1, n * d));
        same_bits(|| {
            let chosen = router.choose_experts(&scores);
            let weights = router.weigh_experts(&scores, &chosen);
            let rows = ExpertRows::sort_choices(&chosen, router);
            let (mut out, mut y) = (vec![0.0; rows.count() * d], vec![0.0; n * d]);
            rows.gather_tokens(&x, Some(&weights), d, &mut out);
            rows.sum_choices(&out, Some(&weights), d, &mut y);
            let products = rows.multiply_choices(&x, &out, d);
            add_gated_rows(&x, &scores[..n], d, &mut y);
            let mut dx = vec![0.0; n * d];
            let dgates = gated_rows_bwd(&x, &scores[..n], &y, d, &mut dx);
            vec![weights, out, y, products, dx, dgates]
        });
    }

    #[test]
    fn attention_with_a_cache_has_the_same_bits_on_every_path(
        heads in heads(),
        segments in prop::collection::vec((1_usize..20, 0_usize..60), 1..4),
        decoding in any::<bool>(),
        seed in 0_u64..99,
    ) {
        let (qw, part) = (heads.q * heads.dim, BLOCK_TOKENS * heads.kv * heads.dim);
        let storage: Vec<CacheBlock> =
            (0..12).map(|i| random(seed + i, 2 * part).into()).collect();
        let ids: Vec<u32> = (0..12).map(|i| i * 5 % 12).collect();
        let segments: Vec<Segment<'_>> = segments
            .iter()
            .map(|&(new, past)| {
                let new_tokens = if decoding { 1 } else { new };
                Segment { new_tokens, len: past + new_tokens, blocks: &ids, state: 0 }
            })
            .collect();
        let n: usize = segments.iter().map(|segment| segment.new_tokens).sum();
        let q = random(seed + 20, n * qw);
        same_bits(|| {
            let mut out = vec![0.0; n * qw];
            let blocks = CacheBlocks { storage: &storage, keys: 0, values: part };
            attention_cached(&q, blocks, &segments, heads, &mut out);
            vec![out]
        });
    }

    #[test]
    fn recurrent_layers_have_the_same_bits_on_every_path(
        lengths in prop::collection::vec(0_usize..80, 1..4),
        (keys, group) in (1_usize..3, 1_usize..3),
        (key_dim, value_dim, kernel) in (1_usize..40, 1_usize..40, 1_usize..5),
        seed in 0_u64..99,
    ) {
        let mut offsets = vec![0];
        lengths.iter().for_each(|length| offsets.push(offsets[offsets.len() - 1] + length));
        let parents: Vec<Option<usize>> = (0..lengths.len()).map(|n| (n > 0).then_some(0)).collect();
        let spans = Packing { offsets: &offsets, parents: &parents }.spans();
        let heads = DeltaHeads { keys, values: keys * group, key_dim, value_dim };
        let (n, width) = (offsets[lengths.len()], heads.mixed_width());
        let [x, dy] = [0, 1].map(|i| random(seed + i, n * width));
        let [a, b] = [2, 3].map(|i| random(seed + i, n * heads.values));
        let (weight, bias) = (random(seed + 4, width * kernel), random(seed + 5, width));
        let weights = ConvWeights { weight: &weight, bias: Some(&bias), kernel };
        let (a_log, dt_bias) = (random(seed + 6, heads.values), random(seed + 7, heads.values));
        let of = GateWeights { a_log: &a_log, dt_bias: &dt_bias };
        same_bits(|| {
            let mut mixed = x.clone();
            causal_conv(&x, weights, &spans, &mut mixed);
            normalize_keys(&mut mixed, heads);
            let (mut decay, mut beta) = (a.clone(), b.clone());
            delta_gates([&a, &b], of, [&mut decay, &mut beta]);
            let rows = DeltaRows { mixed: &mixed, decay: &decay, beta: &beta, heads };
            let mut states = vec![0.0; spans.len() * heads.state_len()];
            let mut out = vec![0.0; n * heads.values_width()];
            delta_rule(rows, &spans, &mut states, &mut out);
            let (mut dmixed, mut dg, mut db) = (x.clone(), a.clone(), b.clone());
            let to = DeltaGradients { mixed: &mut dmixed, log_decay: &mut dg, beta: &mut db };
            delta_rule_bwd(rows, &spans, &states, &out, to);
            normalize_keys_bwd(&x, heads, &mut dmixed);
            let (mut dx, mut dw) = (x.clone(), weight.clone());
            causal_conv_bwd(&x, weights, &spans, &dy, &mut dx, [Some(&mut dw), None]);
            vec![mixed, decay, beta, states, out, dmixed, dg, db, dx, dw]
        });
    }

    #[test]
    fn softmax_rows_have_the_same_bits_on_every_path(vocab in 1_usize..700, n in 1_usize..6, scale in 0.1_f32..99.0, seed in 0_u64..99) {
        let d = 5;
        let targets: Vec<u32> = (0..n).map(|i| (i * 37 % vocab) as u32).collect();
        let inverse: Vec<f32> = (0..n).map(|i| 0.5 + i as f32).collect();
        let logits: Vec<f32> = random(seed, n * vocab).iter().map(|z| z * scale).collect();
        let (h, w, grads) = (random(seed + 1, n * d), random(seed + 2, vocab * d), random(seed + 3, n));
        same_bits(|| {
            let [mut logp, mut entropy] = [(); 2].map(|()| vec![0.0; n]);
            logprobs(&logits, vocab, &targets, &inverse, &mut logp, &mut entropy);
            let (mut dh, mut dw) = (h.clone(), w.clone());
            let loss = |_, _: [&[f32]; 2], out: [&mut [f32]; 2]| {
                out.into_iter().for_each(|out| out.copy_from_slice(&grads));
                Ok::<_, ()>(())
            };
            let precision = Precision::F32;
            let head =
                LmHead { h: &h, w: &w, targets: &targets, inv_temperature: &inverse, softcap: None, precision };
            head.loss_gradients(&[0, n], loss, &mut dh, Some(&mut dw)).expect("a loss that returns no error");
            let (mut capped_dh, mut capped_dw) = (h.clone(), w.clone());
            let capped = LmHead { softcap: Some(0.7), ..head };
            capped.loss_gradients(&[0, n], loss, &mut capped_dh, Some(&mut capped_dw)).expect("a loss that returns no error");
            vec![logp, entropy, dh, dw, capped_dh, capped_dw]
        });
    }

    #[test]
    fn draws_are_the_same_on_every_path(
        vocab in 1_usize..3000,
        scale in 0.1_f32..20.0,
        u in 0.0..1.0,
        top_k in 0_usize..50,
        top_p in 0.0_f32..1.0,
        min_p in 0.0_f32..0.5,
        seed in 0_u64..99,
    ) {
        let logits: Vec<f32> = random(seed, vocab).iter().map(|z| z * scale).collect();
        let plain = SamplingFilter { temperature: 0.9, ..SamplingFilter::default() };
        let filters = [
            plain,
            SamplingFilter { temperature: 0.0, ..plain },
            SamplingFilter { top_k, ..plain },
            SamplingFilter { top_p, ..plain },
            SamplingFilter { min_p, ..plain },
            SamplingFilter { top_k, top_p, min_p, ..plain },
        ];
        same_bits(|| {
            let mut found = Vec::new();
            for filter in &filters {
                for sampled in [sample_token(&logits, filter, u), sample_fresh(&logits, &[0], 1.5, filter, u)] {
                    let sampled = sampled.expect("logits with a distribution");
                    found.push(vec![sampled.id as f32, sampled.logprob, sampled.entropy]);
                }
            }
            found
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    #[test]
    fn attention_of_long_rows_has_the_same_bits_on_every_path(
        heads in heads(),
        tokens in 513_usize..640,
        new_tokens in 1_usize..5,
        seed in 0_u64..99,
    ) {
        let [qw, kvw] = [heads.q, heads.kv].map(|count| tokens * count * heads.dim);
        let [q, k, v, dout] = [(0, qw), (1, kvw), (2, kvw), (3, qw)].map(|(i, n)| random(seed + i, n));
        let sinks = random(seed + 4, heads.q);
        let part = BLOCK_TOKENS * heads.kv * heads.dim;
        let storage: Vec<CacheBlock> =
            (0..tokens.div_ceil(BLOCK_TOKENS) as u64).map(|i| random(seed + i, 2 * part).into()).collect();
        let ids: Vec<u32> = (0..storage.len() as u32).collect();
        let offsets = [0, tokens];
        same_bits(|| {
            let packing = Packing::from_offsets(&offsets);
            let [mut out, mut dq, mut dsinks] = [qw, qw, tokens * heads.q].map(|n| vec![0.0; n]);
            let [mut dk, mut dv] = [(); 2].map(|()| vec![0.0; kvw]);
            attention_sinks([&q, &k, &v], &sinks, packing, heads, &mut out);
            let grads = [&mut dq[..], &mut dk, &mut dv, &mut dsinks];
            attention_sinks_bwd([&q, &k, &v], [&out, &dout], &sinks, packing, heads, grads);
            let blocks = CacheBlocks { storage: &storage, keys: 0, values: part };
            let segment = Segment { new_tokens, len: tokens, blocks: &ids, state: 0 };
            let queries = &q[..new_tokens * heads.q * heads.dim];
            let mut found = vec![0.0; queries.len()];
            attention_cached(queries, blocks, &[segment], heads, &mut found);
            vec![out, dq, dk, dv, dsinks, found]
        });
    }
}
