//! Every kernel at the shape it is tuned for and at a larger one: `cargo bench -p maverl-kernels [-- filter]`.
//!
//! Elements per second are multiply-adds for products, attention and log-probs, and elements of the main input elsewhere.
//! With the feature `candle`, `-- candle` filters what fused operations replace.

#[cfg(feature = "candle")]
mod candle;

use std::{hint::black_box, ops::Range, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use maverl_kernels::{
    adamw::{AdamW, adamw_step, sum_of_squares},
    attention::{
        BLOCK_TOKENS, CacheBlock, CacheBlocks, Heads, Packing, Segment, attention, attention_bwd,
        attention_cached,
    },
    embedding,
    logprob::LmHead,
    matmul::{PackedWeight, Precision},
    mlp, norm,
    rope::{RopeTable, apply_rope},
    sample::{self, SamplingFilter},
};

struct Shape {
    name: &'static str,
    n: usize,
    d: usize,
    heads: Heads,
    ff: usize,
    vocab: usize,
    /// Tokens of a row.
    row: usize,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "small",
        n: 8192,
        d: 128,
        heads: Heads::new(4, 2, 32),
        ff: 512,
        vocab: 1024,
        row: 128,
    },
    Shape {
        name: "medium",
        n: 2048,
        d: 512,
        heads: Heads::new(8, 2, 64),
        ff: 1408,
        vocab: 8192,
        row: 128,
    },
];

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (sample::uniform_number(seed, i as u64) * 2.0 - 1.0) as f32).collect()
}

fn time(c: &mut Criterion, shape: &Shape, name: &str, work: usize, mut f: impl FnMut()) {
    let mut group = c.benchmark_group(shape.name);
    group.sample_size(10).warm_up_time(Duration::from_millis(200));
    group
        .measurement_time(Duration::from_millis(700))
        .throughput(Throughput::Elements(work as u64));
    group.bench_function(name, |b| b.iter(&mut f));
}

fn products(c: &mut Criterion) {
    for shape in &SHAPES {
        Precision::ALL.into_iter().for_each(|precision| products_of(c, shape, precision));
    }
}

/// The three products of a linear layer, and its forward for the few rows of decoding.
fn products_of(c: &mut Criterion, shape: &Shape, precision: Precision) {
    let name = precision.name();
    let Shape { n, d, ff, .. } = *shape;
    let (x, w, dy) = (random(1, n * d), random(2, ff * d), random(3, n * ff));
    let (mut y, mut dx, mut dw) = (vec![0.0; n * ff], vec![0.0; n * d], vec![0.0; ff * d]);
    let mut packed = PackedWeight::pack(precision, &w, ff, d);
    let work = n * d * ff;
    let mut time = |what: &str, work, f: &mut dyn FnMut()| {
        time(c, shape, &format!("{what}_{name}"), work, f);
    };
    time("matmul_nt", work, &mut || precision.set().nt(&x, &w, &mut y, n, ff, d));
    time("matmul_nn", work, &mut || precision.set().nn(&dy, &w, &mut dx, n, d, ff));
    time("matmul_tn", work, &mut || precision.add().tn(&dy, &x, &mut dw, ff, d, n));
    time("pack", d * ff, &mut || packed.update(&w));
    for m in [1, 8, 64, n] {
        let (x, y) = (&x[..m * d], &mut y[..m * ff]);
        time(&format!("matmul_nt_{m}_rows"), m * d * ff, &mut || {
            precision.set().nt(x, &w, y, m, ff, d);
        });
        time(&format!("matmul_nt_packed_{m}_rows"), m * d * ff, &mut || {
            precision.set().nt_packed(x, &packed, y, m);
        });
    }
}

fn elementwise(c: &mut Criterion) {
    for shape in &SHAPES {
        let Shape { n, d, ff, heads, vocab, .. } = *shape;
        let (x, w, dy) = (random(1, n * d), random(2, d), random(3, n * d));
        let (mut y, mut dw) = (vec![0.0; n * d], vec![0.0; d]);
        time(c, shape, "rms_norm", n * d, || norm::rms_norm(&x, &w, 1e-6, &mut y));
        time(c, shape, "rms_norm_bwd", n * d, || {
            norm::rms_norm_bwd(&x, &w, 1e-6, &dy, &mut y, Some(&mut dw))
        });
        let table = RopeTable::new(&random(4, heads.dim / 2), shape.row);
        let positions: Vec<u32> = (0..n).map(|i| (i % shape.row) as u32).collect();
        time(c, shape, "rope", n * d, || apply_rope(&mut y, &positions, heads.q, &table));
        let ids: Vec<u32> = (0..n).map(|i| (i * i % vocab) as u32).collect();
        let mut embeddings = random(5, vocab * d);
        time(c, shape, "gather", n * d, || embedding::gather_rows(&embeddings, &ids, d, &mut y));
        time(c, shape, "scatter_add", n * d, || {
            embedding::scatter_add(&dy, &ids, d, &mut embeddings)
        });
        let (gate, up, dout) = (random(6, n * ff), random(7, n * ff), random(8, n * ff));
        let (mut a, mut b) = (vec![0.0; n * ff], vec![0.0; n * ff]);
        time(c, shape, "swiglu", n * ff, || mlp::swiglu(&gate, &up, &mut a));
        time(c, shape, "swiglu_bwd", n * ff, || mlp::swiglu_bwd(&gate, &up, &dout, &mut a, &mut b));
        let cfg = AdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
        let (mut m, mut v) = (vec![0.0; n * d], vec![0.0; n * d]);
        time(c, shape, "adamw_step", n * d, || {
            adamw_step(&cfg, 5, 1.0, &mut y, &dy, &mut m, &mut v)
        });
        time(c, shape, "sum_of_squares", n * d, || {
            black_box(sum_of_squares(&dy));
        });
    }
}

fn attentions(c: &mut Criterion) {
    for shape in &SHAPES {
        let Shape { n, d, heads, row, .. } = *shape;
        let kv = heads.kv * heads.dim;
        let (q, k, v, dout) =
            (random(1, n * d), random(2, n * kv), random(3, n * kv), random(4, n * d));
        let mut offsets: Vec<usize> = (0..n).step_by(row).collect();
        offsets.push(n);
        let packing = Packing::from_offsets(&offsets);
        let mut out = vec![0.0; n * d];
        let work = n * d * row;
        time(c, shape, "attention", work, || attention(&q, &k, &v, packing, heads, &mut out));
        let (mut dq, mut dk, mut dv) = (vec![0.0; n * d], vec![0.0; n * kv], vec![0.0; n * kv]);
        time(c, shape, "attention_bwd", work * 5 / 2, || {
            attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv);
        });
        decode(c, shape, &k);
    }
}

/// A new token for each row on top of a full cache; a layer after the other, as keys and values come out of memory in use.
fn decode(c: &mut Criterion, shape: &Shape, k: &[f32]) {
    let Shape { n, d, heads, row, .. } = *shape;
    let (layers, kv, per_row) = (4, heads.kv * heads.dim, row.div_ceil(BLOCK_TOKENS));
    let part = BLOCK_TOKENS * kv;
    let storage: Vec<CacheBlock> =
        k.chunks_exact(part).map(|keys| keys.repeat(2 * layers).into()).collect();
    let ids: Vec<u32> = (0..storage.len() as u32).collect();
    let segments: Vec<Segment<'_>> = ids
        .chunks_exact(per_row)
        .map(|blocks| Segment { new_tokens: 1, len: row, blocks, state: 0 })
        .collect();
    let m = segments.len() * d;
    let (q, mut out) = (random(1, m), vec![0.0; m]);
    assert_eq!(segments.len(), n / row);
    let mut layer = 0;
    time(c, shape, "attention_decode", 2 * m * row, || {
        let blocks = CacheBlocks {
            storage: &storage,
            keys: layer * 2 * part,
            values: (layer * 2 + 1) * part,
        };
        attention_cached(&q, blocks, &segments, heads, &mut out);
        layer = (layer + 1) % layers;
    });
}

fn heads(c: &mut Criterion) {
    for shape in &SHAPES {
        let Shape { n, d, vocab, .. } = *shape;
        let (h, w) = (random(1, n * d), random(2, vocab * d));
        let targets: Vec<u32> = (0..n).map(|i| (i % vocab) as u32).collect();
        let (inverse, grads) = (vec![1.0; n], random(3, n));
        let (mut logp, mut entropy) = (vec![0.0; n], vec![0.0; n]);
        let head = LmHead {
            h: &h,
            w: &w,
            targets: &targets,
            inv_temperature: &inverse,
            softcap: None,
            precision: Precision::F32,
        };
        time(c, shape, "head_logprobs", n * d * vocab, || {
            head.logprobs(&mut logp, &mut entropy);
        });
        let (mut dh, mut dw) = (vec![0.0; n * d], vec![0.0; vocab * d]);
        let offsets: Vec<usize> = (0..=n).step_by(64).collect();
        time(c, shape, "head_loss", 3 * n * d * vocab, || {
            let copied = head.loss_gradients(
                &offsets,
                |rows: Range<usize>, _: [&[f32]; 2], out: [&mut [f32]; 2]| {
                    let at = offsets[rows.start]..offsets[rows.end];
                    out.into_iter().for_each(|out| out.copy_from_slice(&grads[at.clone()]));
                    Ok::<_, ()>(())
                },
                &mut dh,
                Some(&mut dw),
            );
            copied.ok();
        });
        let logits = random(4, vocab);
        let plain = SamplingFilter { temperature: 0.8, ..SamplingFilter::default() };
        let filtered = SamplingFilter { top_k: 50, top_p: 0.9, ..plain };
        time(c, shape, "sample", vocab, || {
            black_box(sample::sample_token(&logits, &plain, 0.7)).ok();
        });
        time(c, shape, "sample_filtered", vocab, || {
            black_box(sample::sample_token(&logits, &filtered, 0.7)).ok();
        });
    }
}

/// Plain operations that fused ones replace, if candle is there.
fn compositions(c: &mut Criterion) {
    #[cfg(feature = "candle")]
    candle::compositions(c);
    #[cfg(not(feature = "candle"))]
    let _ = c;
}

criterion_group!(benches, products, elementwise, attentions, heads, compositions);
criterion_main!(benches);
