//! The bits of every operation, on every path of this processor, against recorded ones: what a run writes to `metrics.jsonl`
//! depends on no path and on no version of this crate.

use maverl_kernels::{
    adamw::{AdamW, adamw_step, sum_of_squares},
    attention::{
        BLOCK_TOKENS, CacheBlock, CacheBlocks, Heads, Packing, Segment, attention, attention_bwd,
        attention_cached,
    },
    embedding,
    logprob::{self, LmHead},
    matmul::Precision,
    mlp, norm,
    rope::{RopeTable, apply_rope, rope_bwd},
    sample::{SamplingFilter, sample_fresh, sample_token, uniform_number},
    simd,
};

/// FNV-1a of each operation's results.
const RECORDED: [(&str, u64); 9] = [
    ("norm", 0xe4b9_c3a6_7d55_8a69),
    ("swiglu", 0x7de9_fb25_f749_ca78),
    ("rope", 0xba51_fa2c_2a3a_4983),
    ("embedding", 0x229c_acf4_7988_9bc1),
    ("adamw", 0xe5c9_ca8c_e2bb_a645),
    ("attention", 0xfb16_0ea9_d4ef_549d),
    ("attention_cached", 0xb22b_14a1_33fd_7f4b),
    ("logprob", 0x8ee9_208c_12eb_0eb1),
    ("sample", 0xfe57_7b17_0b75_89a0),
];

const LENGTHS: [usize; 10] = [1, 2, 7, 15, 16, 17, 33, 128, 500, 33_000];

#[derive(Default)]
struct Digest(u64);

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn add(&mut self, x: &[f32]) {
        x.iter().for_each(|x| self.bytes(&x.to_bits().to_le_bytes()));
    }
}

/// Numbers between −2 and 2, some of them small and a few zero.
fn random(seed: u64, n: usize) -> Vec<f32> {
    let number = |i: usize| {
        let x = (uniform_number(seed, i as u64) * 4.0 - 2.0) as f32;
        match i % 31 {
            3 => x * 1e-20,
            9 => 0.0,
            _ => x,
        }
    };
    (0..n).map(number).collect()
}

fn scaled(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    random(seed, n).iter().map(|x| x * scale).collect()
}

fn norms(digest: &mut Digest) {
    for d in LENGTHS {
        let n = (2000 / d).clamp(2, 300);
        let (x, w, dy) = (random(1, n * d), random(2, d), random(3, n * d));
        let (mut out, mut dw) = (vec![0.0; n * d], random(4, d));
        norm::rms_norm(&x, &w, 1e-6, &mut out);
        digest.add(&out);
        norm::rms_norm_bwd(&x, &w, 1e-6, &dy, &mut out, Some(&mut dw));
        digest.add(&out);
        norm::rms_norm_bwd_add(&x, &w, 1e-6, &dy, &mut out, None);
        digest.add(&out);
        digest.add(&dw);
    }
}

fn gates(digest: &mut Digest) {
    for n in LENGTHS {
        for scale in [1.0, 60.0] {
            let (gate, up, dout) = (scaled(1, n, scale), random(2, n), random(3, n));
            let [mut a, mut b] = [vec![0.0; n], vec![0.0; n]];
            mlp::swiglu(&gate, &up, &mut a);
            digest.add(&a);
            mlp::swiglu_bwd(&gate, &up, &dout, &mut a, &mut b);
            digest.add(&a);
            digest.add(&b);
        }
    }
}

fn rotations(digest: &mut Digest) {
    for half in [1, 3, 16, 20, 32, 40, 64] {
        for (n, heads) in [(3, 1), (700, 3)] {
            let table = RopeTable::new(&scaled(4, half, 0.5), 256);
            let positions: Vec<u32> = (0..n as u32).map(|i| i * 7 % 256).collect();
            let mut x = random(1, n * heads * 2 * half);
            apply_rope(&mut x, &positions, heads, &table);
            digest.add(&x);
            rope_bwd(&mut x, &positions, heads, &table);
            digest.add(&x);
        }
    }
}

fn lookups(digest: &mut Digest) {
    for d in [1, 7, 16, 40, 300] {
        let ids: Vec<u32> = (0..200).map(|i| i * i % 37).collect();
        let (mut table, dy, mut out) = (random(1, 37 * d), random(2, 200 * d), vec![0.0; 200 * d]);
        embedding::gather_rows(&table, &ids, d, &mut out);
        digest.add(&out);
        embedding::scatter_add(&dy, &ids, d, &mut table);
        digest.add(&table);
    }
}

fn optimizer(digest: &mut Digest) {
    let cfg = AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
    for n in LENGTHS.into_iter().chain([70_000]) {
        let (mut p, mut m, mut v) = (random(1, n), vec![0.0; n], vec![0.0; n]);
        for step in 1..4 {
            adamw_step(&cfg, step, 0.37, &mut p, &random(step, n), &mut m, &mut v);
        }
        [p, m, v].iter().for_each(|x| digest.add(x));
        digest.bytes(&sum_of_squares(&random(9, n)).to_bits().to_le_bytes());
    }
}

const HEADS: [Heads; 8] = [
    Heads::new(4, 2, 32),
    Heads::new(8, 2, 64),
    Heads::new(2, 1, 128),
    Heads::new(5, 5, 16),
    Heads::new(3, 1, 7),
    Heads::new(1, 1, 1),
    Heads::new(6, 3, 40),
    Heads::new(7, 1, 96),
];

fn attentions(digest: &mut Digest) {
    for heads in HEADS {
        let offsets = [0, 1, 1, 18, 19, 60, 76, 225, 240];
        let parents = [None, None, None, Some(2), Some(2), None, Some(5), None];
        let n = 240;
        let (qw, kvw) = (heads.q * heads.dim, heads.kv * heads.dim);
        let (q, k, v) = (scaled(1, n * qw, 2.0), random(2, n * kvw), random(3, n * kvw));
        for packing in
            [Packing::from_offsets(&offsets), Packing { offsets: &offsets, parents: &parents }]
        {
            let (mut out, dout) = (vec![0.0; n * qw], random(4, n * qw));
            attention(&q, &k, &v, packing, heads, &mut out);
            digest.add(&out);
            let [mut dq, mut dk, mut dv] = [n * qw, n * kvw, n * kvw].map(|n| vec![0.0; n]);
            attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv);
            [dq, dk, dv].iter().for_each(|x| digest.add(x));
        }
    }
}

fn cached(digest: &mut Digest) {
    for heads in HEADS {
        let (qw, kvw) = (heads.q * heads.dim, heads.kv * heads.dim);
        let part = BLOCK_TOKENS * kvw;
        let storage: Vec<CacheBlock> = (0..24).map(|i| random(i, 3 * part).into()).collect();
        let ids: Vec<u32> = (0..24).map(|i| i * 5 % 24).collect();
        let blocks = CacheBlocks { storage: &storage, keys: part, values: 2 * part };
        let segment = |new_tokens, len, first: usize| {
            let blocks = &ids[first..first + usize::div_ceil(len, BLOCK_TOKENS)];
            Segment { new_tokens, len, blocks, state: 0 }
        };
        let decoding = [segment(1, 1, 0), segment(1, 37, 3), segment(1, 300, 4), segment(1, 16, 9)];
        let mixed = [segment(3, 3, 0), segment(1, 37, 3), segment(130, 300, 4), segment(20, 48, 9)];
        for segments in [decoding, mixed] {
            let n: usize = segments.iter().map(|segment| segment.new_tokens).sum();
            let (q, mut out) = (scaled(1, n * qw, 2.0), vec![0.0; n * qw]);
            attention_cached(&q, blocks, &segments, heads, &mut out);
            digest.add(&out);
        }
    }
}

fn rows(digest: &mut Digest) {
    for (vocab, scale) in [(1, 1.0), (7, 3.0), (16, 30.0), (33, 200.0), (1000, 5.0), (5003, 9.0)] {
        let n = 9;
        let logits = scaled(1, n * vocab, scale);
        let targets: Vec<u32> = (0..n).map(|i| (i * 37 % vocab) as u32).collect();
        let inverse: Vec<f32> = (0..n).map(|i| 0.5 + i as f32 * 0.3).collect();
        let [mut logp, mut entropy] = [vec![0.0; n], vec![0.0; n]];
        logprob::logprobs(&logits, vocab, &targets, &inverse, &mut logp, &mut entropy);
        digest.add(&logp);
        digest.add(&entropy);
        let d = 24;
        let (h, w) = (scaled(2, n * d, scale.sqrt()), random(3, vocab * d));
        let head = LmHead {
            h: &h,
            w: &w,
            targets: &targets,
            inv_temperature: &inverse,
            softcap: None,
            precision: Precision::F32,
        };
        head.logprobs(&mut logp, &mut entropy);
        digest.add(&logp);
        digest.add(&entropy);
        let (mut dh, mut dw) = (vec![0.0; n * d], random(5, vocab * d));
        let grads = random(6, n);
        let loss = |_, _: [&[f32]; 2], out: [&mut [f32]; 2]| {
            out.into_iter().for_each(|out| out.copy_from_slice(&grads));
            Ok::<_, ()>(())
        };
        head.loss_gradients(&[0, n], loss, &mut dh, Some(&mut dw))
            .expect("a loss that returns no error");
        digest.add(&dh);
        digest.add(&dw);
    }
}

fn samples(digest: &mut Digest) {
    let plain = SamplingFilter { temperature: 0.8, ..SamplingFilter::default() };
    let filters = [
        plain,
        SamplingFilter { temperature: 0.0, ..plain },
        SamplingFilter { top_k: 5, ..plain },
        SamplingFilter { top_p: 0.9, ..plain },
        SamplingFilter { top_p: 0.0, ..plain },
        SamplingFilter { min_p: 0.1, ..plain },
        SamplingFilter { top_k: 300, top_p: 0.6, min_p: 0.01, ..plain },
    ];
    for (vocab, scale) in [(1, 1.0), (7, 1.0), (16, 2.0), (33, 9.0), (1000, 1.0), (5003, 4.0)] {
        for seed in 0..20 {
            let mut logits = scaled(seed, vocab, scale);
            if seed % 3 == 0 {
                logits.iter_mut().skip(1).step_by(3).for_each(|z| *z = f32::NEG_INFINITY);
            }
            for (i, filter) in filters.iter().enumerate() {
                let u = uniform_number(seed, i as u64);
                let seen = [0, (vocab / 2) as u32];
                for sampled in
                    [sample_token(&logits, filter, u), sample_fresh(&logits, &seen, 1.3, filter, u)]
                {
                    let sampled = sampled.expect("logits with a distribution");
                    digest.bytes(&sampled.id.to_le_bytes());
                    digest.add(&[sampled.logprob, sampled.entropy]);
                }
            }
        }
    }
}

#[test]
fn every_path_has_the_recorded_bits() {
    let operations: [fn(&mut Digest); 9] =
        [norms, gates, rotations, lookups, optimizer, attentions, cached, rows, samples];
    for path in simd::available_paths() {
        let found: Vec<(&str, u64)> = simd::run_on_path(path, 2, || {
            let named = RECORDED.iter().zip(operations);
            let digest = |((name, _), operation): (&(&'static str, u64), fn(&mut Digest))| {
                let mut digest = Digest::default();
                operation(&mut digest);
                (*name, digest.0)
            };
            named.map(digest).collect()
        });
        assert_eq!(found, RECORDED, "{path}: {found:#x?}");
    }
}
