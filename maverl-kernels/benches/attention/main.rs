//! Attention of one row on one thread, at short and long rows: `cargo bench -p maverl-kernels --bench attention [-- NAME]`, on
//! the path of `MAVERL_SIMD` or on the best one.
//!
//! Operations are multiplications and additions of the products with keys that a query attends to: two products forward, five
//! backward. New tokens of a cached row read its keys and values at least once, which takes as long as adding them up.

use std::hint::black_box;
use std::time::Instant;

use maverl_kernels::attention::{
    BLOCK_TOKENS, CacheBlock, CacheBlocks, Heads, Packing, Segment, attention, attention_bwd,
    attention_cached,
};
use maverl_kernels::{sample, simd};

/// Seconds over which a measurement is repeated.
const SECONDS: f64 = 0.6;
/// New tokens of a row in a cache.
const NEW_TOKENS: [usize; 3] = [1, 4, 16];

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (sample::uniform_number(seed, i as u64) * 2.0 - 1.0) as f32).collect()
}

/// Returns the seconds of the fastest call.
fn seconds(mut f: impl FnMut()) -> f64 {
    let (start, mut least) = (Instant::now(), f64::INFINITY);
    while least.is_infinite() || start.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        f();
        least = least.min(start.elapsed().as_secs_f64());
    }
    least
}

/// Measures rows of so many tokens, about 2,048 tokens at least.
fn measure_rows(heads: Heads, tokens: usize) {
    let rows = (2048 / tokens).max(1);
    let n = rows * tokens;
    let (qw, kvw) = (heads.q * heads.dim, heads.kv * heads.dim);
    let [q, dout] = [1, 2].map(|seed| random(seed, n * qw));
    let [k, v] = [3, 4].map(|seed| random(seed, n * kvw));
    let offsets: Vec<usize> = (0..=rows).map(|row| row * tokens).collect();
    let packing = Packing::from_offsets(&offsets);
    let pairs = (rows * heads.q * tokens * (tokens + 1) / 2 * heads.dim) as f64;
    let mut out = vec![0.0; n * qw];
    let forward = seconds(|| attention(&q, &k, &v, packing, heads, &mut out));
    let (mut dq, mut dk, mut dv) = (vec![0.0; n * qw], vec![0.0; n * kvw], vec![0.0; n * kvw]);
    let backward = seconds(|| {
        attention_bwd(&q, &k, &v, &out, &dout, packing, heads, &mut dq, &mut dk, &mut dv)
    });
    let speed = |products: f64, seconds: f64| 2.0 * products * pairs / seconds / 1e9;
    print!(
        "{tokens:>6} tokens: forward {:6.1}, backward {:6.1} GFLOP/s; cached:",
        speed(2.0, forward),
        speed(5.0, backward),
    );
    measure_cache(heads, tokens, &q);
}

/// Measures new tokens of a row in a cache, and the sum of its keys and values.
fn measure_cache(heads: Heads, tokens: usize, q: &[f32]) {
    let part = BLOCK_TOKENS * heads.kv * heads.dim;
    let count = tokens.div_ceil(BLOCK_TOKENS);
    let storage: Vec<CacheBlock> =
        (0..count).map(|block| random(block as u64, 2 * part).into()).collect();
    let blocks = CacheBlocks { storage: &storage, keys: 0, values: part };
    let ids: Vec<u32> = (0..count as u32).collect();
    for new_tokens in NEW_TOKENS {
        let segments = [Segment { new_tokens, len: tokens, blocks: &ids, state: 0 }];
        let len = new_tokens * heads.q * heads.dim;
        let (q, mut out) = (&q[..len], vec![0.0; len]);
        let new = seconds(|| attention_cached(q, blocks, &segments, heads, &mut out));
        print!(" {new_tokens} new {:8.1} us,", new * 1e6);
    }
    let read = seconds(|| {
        black_box(sum_blocks(&storage));
    });
    println!(" read {:8.1} us", read * 1e6);
}

/// Returns the sums of every 32nd number of the blocks.
fn sum_blocks(storage: &[CacheBlock]) -> [f32; 32] {
    let mut sums = [0.0; 32];
    for numbers in storage.iter().flat_map(|block| block.read().as_chunks::<32>().0) {
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    sums
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let path = simd::select_path().unwrap_or_else(|refused| panic!("{refused}"));
    for (name, heads) in [("S", Heads::new(4, 2, 32)), ("M", Heads::new(8, 2, 64))] {
        if !name.contains(&filter) {
            continue;
        }
        println!("{name}, {path}");
        for tokens in [128, 512, 2048, 16384] {
            simd::run_on_path(path, 1, || measure_rows(heads, tokens));
        }
    }
}
