//! The operations at the shapes of the two models of `maverl bench`.

use std::hint::black_box;

use maverl_kernels::{
    adamw::{AdamW, adamw_step, sum_of_squares},
    attention::{
        BLOCK_TOKENS, CacheBlock, CacheBlocks, Heads, Packing, Segment, attention, attention_bwd,
        attention_cached,
    },
    embedding,
    logprob::logprobs,
    mlp, norm,
    rope::{RopeTable, apply_rope},
    sample::{self, SamplingFilter},
};

use super::{Operation, limits::Traffic};

/// Arithmetic instructions of an exponential.
const EXP: f64 = 18.0;

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
        name: "S",
        n: 4096,
        d: 128,
        heads: Heads::new(4, 2, 32),
        ff: 512,
        vocab: 1024,
        row: 128,
    },
    Shape {
        name: "M",
        n: 2048,
        d: 512,
        heads: Heads::new(8, 2, 64),
        ff: 1408,
        vocab: 8192,
        row: 128,
    },
];

type Each<'e> = &'e mut dyn FnMut(Operation<'_>);

/// Calls `f` for each operation.
pub(super) fn each(f: Each<'_>) {
    for shape in &SHAPES {
        norms(shape, f);
        rotations(shape, f);
        gates(shape, f);
        lookups(shape, f);
        optimizer(shape, f);
        attentions(shape, f);
        decoding(shape, f);
        rows(shape, f);
        samples(shape, f);
    }
}

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (sample::uniform_number(seed, i as u64) * 2.0 - 1.0) as f32).collect()
}

fn traffic(read: usize, written: usize, updated: usize, len: usize) -> Option<Traffic> {
    Some(Traffic { read, written, updated, len })
}

impl Shape {
    /// An operation on `len` elements, with instructions for each.
    fn operation<'a>(
        &self,
        name: &str,
        len: usize,
        arithmetic: f64,
        traffic: Option<Traffic>,
        run: impl FnMut() + 'a,
    ) -> Operation<'a> {
        let name = format!("{name} {}", self.name);
        let arithmetic = arithmetic * len as f64;
        Operation { name, arithmetic, divisions: 0.0, roots: 0.0, traffic, run: Box::new(run) }
    }
}

fn norms(shape: &Shape, f: Each<'_>) {
    let &Shape { n, d, .. } = shape;
    let len = n * d;
    let (x, w, dy) = (random(1, len), random(2, d), random(3, len));
    let (mut y, mut dw) = (vec![0.0; len], vec![0.0; d]);
    f(shape.operation("rms_norm", len, 3.0, traffic(1, 1, 0, len), || {
        norm::rms_norm(&x, &w, 1e-6, &mut y);
    }));
    let few = 16 * d;
    f(shape.operation("rms_norm of 16 rows", few, 3.0, traffic(1, 1, 0, few), || {
        norm::rms_norm(&x[..few], &w, 1e-6, &mut y[..few]);
    }));
    f(shape.operation("rms_norm_bwd", len, 10.0, traffic(2, 1, 0, len), || {
        norm::rms_norm_bwd(&x, &w, 1e-6, &dy, &mut y, Some(&mut dw));
    }));
}

fn rotations(shape: &Shape, f: Each<'_>) {
    let &Shape { n, d, heads, row, .. } = shape;
    let len = n * d;
    let table = RopeTable::new(&random(4, heads.dim / 2), row);
    let positions: Vec<u32> = (0..n).map(|i| (i % row) as u32).collect();
    let mut x = random(1, len);
    f(shape.operation("rope", len, 3.5, traffic(0, 0, 1, len), || {
        apply_rope(&mut x, &positions, heads.q, &table);
    }));
}

fn gates(shape: &Shape, f: Each<'_>) {
    let &Shape { n, ff, .. } = shape;
    let len = n * ff;
    let (gate, up, dout) = (random(6, len), random(7, len), random(8, len));
    let (mut out, mut a, mut b) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
    let swiglu = shape.operation("swiglu", len, EXP + 4.0, traffic(2, 1, 0, len), || {
        mlp::swiglu(&gate, &up, &mut out);
    });
    f(Operation { divisions: len as f64, ..swiglu });
    let backward = shape.operation("swiglu_bwd", len, EXP + 10.0, traffic(3, 2, 0, len), || {
        mlp::swiglu_bwd(&gate, &up, &dout, &mut a, &mut b);
    });
    f(Operation { divisions: len as f64, ..backward });
}

fn lookups(shape: &Shape, f: Each<'_>) {
    let &Shape { n, d, vocab, .. } = shape;
    let len = n * d;
    let (mut table, dy, mut y) = (random(1, vocab * d), random(2, len), vec![0.0; len]);
    let ids: Vec<u32> = (0..n).map(|i| (i * i % vocab) as u32).collect();
    f(shape.operation("gather", len, 0.0, traffic(1, 1, 0, len), || {
        embedding::gather_rows(&table, &ids, d, &mut y);
    }));
    f(shape.operation("scatter_add", len, 1.0, traffic(1, 0, 1, len), || {
        embedding::scatter_add(&dy, &ids, d, &mut table);
    }));
}

fn optimizer(shape: &Shape, f: Each<'_>) {
    let &Shape { n, d, .. } = shape;
    let len = n * d;
    let cfg = AdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let (mut p, g) = (random(1, len), random(2, len));
    let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
    let step = shape.operation("adamw_step", len, 11.0, traffic(1, 0, 3, len), || {
        adamw_step(&cfg, 5, 1.0, &mut p, &g, &mut m, &mut v);
    });
    f(Operation { divisions: 2.0 * len as f64, roots: len as f64, ..step });
    f(shape.operation("sum_of_squares", len, 4.0, traffic(1, 0, 0, len), || {
        black_box(sum_of_squares(&g));
    }));
}

fn attentions(shape: &Shape, f: Each<'_>) {
    let &Shape { n, d, heads, row, .. } = shape;
    let (n, kv) = (n / 4, heads.kv * heads.dim);
    let (q, k, v, dout) =
        (random(1, n * d), random(2, n * kv), random(3, n * kv), random(4, n * d));
    let offsets: Vec<usize> = (0..=n).step_by(row).collect();
    let packing = Packing::from_offsets(&offsets);
    let mut out = vec![0.0; n * d];
    // Pairs of a query and a key.
    let pairs = n * heads.q * (row + 1) / 2;
    let softmax = EXP + 4.0;
    let dim = heads.dim as f64;
    f(shape.operation("attention", pairs, 2.0 * dim + softmax, None, || {
        attention(&q, &k, &v, packing, heads, &mut out);
    }));
    let (mut dq, mut dk, mut dv) = (vec![0.0; n * d], vec![0.0; n * kv], vec![0.0; n * kv]);
    f(shape.operation("attention_bwd", pairs, 5.0 * dim + softmax + 3.0, None, || {
        attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv);
    }));
}

/// A new token for each row on top of a full cache; a layer after the other, as keys and values come out of memory in use.
fn decoding(shape: &Shape, f: Each<'_>) {
    let &Shape { d, heads, row, .. } = shape;
    let (layers, sequences, kv) = (4, 32, heads.kv * heads.dim);
    let (part, per_row) = (BLOCK_TOKENS * kv, row.div_ceil(BLOCK_TOKENS));
    let storage: Vec<CacheBlock> = (0..sequences * per_row)
        .map(|block| random(block as u64, 2 * layers * part).into())
        .collect();
    let ids: Vec<u32> = (0..storage.len() as u32).collect();
    let segments: Vec<Segment<'_>> = ids
        .chunks_exact(per_row)
        .map(|blocks| Segment { new_tokens: 1, len: row, blocks, state: 0 })
        .collect();
    let (q, mut out) = (random(1, sequences * d), vec![0.0; sequences * d]);
    let pairs = sequences * heads.q * row;
    let arithmetic = 2.0 * heads.dim as f64 + EXP + 4.0;
    let memory = traffic(1, 0, 0, layers * 2 * sequences * row * kv);
    f(shape.operation("attention_cached", layers * pairs, arithmetic, memory, || {
        for layer in 0..layers {
            let (keys, values) = (layer * 2 * part, (layer * 2 + 1) * part);
            let blocks = CacheBlocks { storage: &storage, keys, values };
            attention_cached(&q, blocks, &segments, heads, &mut out);
        }
    }));
}

fn rows(shape: &Shape, f: Each<'_>) {
    let &Shape { vocab, .. } = shape;
    let n = 128;
    let len = n * vocab;
    let logits = random(1, len);
    let targets: Vec<u32> = (0..n).map(|i| (i % vocab) as u32).collect();
    let (inverse, mut logp, mut entropy) = (vec![1.0; n], vec![0.0; n], vec![0.0; n]);
    f(shape.operation("logprobs", len, EXP + 6.0, traffic(1, 0, 0, len), || {
        logprobs(&logits, vocab, &targets, &inverse, &mut logp, &mut entropy);
    }));
}

fn samples(shape: &Shape, f: Each<'_>) {
    let &Shape { vocab, .. } = shape;
    let logits = random(4, vocab);
    let plain = SamplingFilter { temperature: 0.8, ..SamplingFilter::default() };
    let filters = [
        ("sample", plain),
        ("sample greedy", SamplingFilter { temperature: 0.0, ..plain }),
        ("sample top_k", SamplingFilter { top_k: 50, ..plain }),
        ("sample top_p", SamplingFilter { top_p: 0.9, ..plain }),
        ("sample min_p", SamplingFilter { min_p: 0.05, ..plain }),
    ];
    for (name, filter) in filters {
        f(shape.operation(name, vocab, EXP + 9.0, None, || {
            black_box(sample::sample_token(&logits, &filter, 0.7)).ok();
        }));
    }
}
