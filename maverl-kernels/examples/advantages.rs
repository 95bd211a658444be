//! Advantages on a GPU against copying the same bytes there, and against the CPU.
//!
//! Build with `cargo build --release -p maverl-kernels --features cuda --example advantages` and carry the file
//! `target/release/examples/advantages` to a machine with a GPU. It needs the driver and NVRTC (`maverl_kernels::cuda`
//! says where that is looked for), nothing else. Arguments: the device's number, 0 if not given.
//!
//! A ratio of 1 is the speed of memory: the kernel takes as long as a device-to-device copy that reads and writes as many
//! bytes as the kernel must. Each measurement goes through as many sets of arrays as do not fit into the cache.

use std::error::Error;
use std::process::ExitCode;

use cudarc::driver::{CudaSlice, sys};
use maverl_kernels::advantage::{
    Arithmetic, Baseline, CpuArithmetic, GaeParams, GaeSteps, Grouping, RaggedRows, Relative,
    Segments, Singleton,
};
use maverl_kernels::cuda::{CudaError, Gpu};
use maverl_kernels::sample::uniform_number;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROWS: usize = 1_000_000;
const GROUPS: usize = 100_000;
const TEXTS: usize = 4096;
const TOKENS: usize = 4096;
/// Bytes that do not fit into a cache.
const CACHE: usize = 512 << 20;
/// Times that every set is used.
const REPEATS: usize = 20;
/// Tolerance between GPU and CPU, relative to the largest number.
const PARITY: f64 = 1e-5;

const GRPO: Relative = Relative {
    baseline: Baseline::Mean,
    normalize_std: true,
    eps: 1e-6,
    singleton: Singleton::Zero,
};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// True if everything agrees with the CPU.
fn run() -> Fallible<bool> {
    let device = std::env::args().nth(1).map_or(Ok(0), |number| number.parse())?;
    let gpu = Gpu::open(device)?;
    println!("{}", gpu.stream().context().name()?);
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>8} {:>10}",
        "", "time, us", "copy, us", "GB/s", "ratio", "parity"
    );
    let lying: Vec<usize> = (0..ROWS).map(|row| row * GROUPS / ROWS).collect();
    let apart: Vec<usize> =
        (0..ROWS as u64).map(|i| (uniform_number(1, i) * GROUPS as f64) as usize).collect();
    let mut good =
        groups(&gpu, "relative, 10^6 rows in 10^5 groups", &Grouping::from_row_groups(&lying), 8)?;
    good &=
        groups(&gpu, "relative, groups apart and ragged", &Grouping::from_row_groups(&apart), 12)?;
    good &= whiten(&gpu)?;
    good &= gae(&gpu, "GAE, 4096 x 4096", &RaggedRows::from_lengths(&[TOKENS; TEXTS]), 16)?;
    let chains = vec![vec![TOKENS / 8; 8]; TEXTS];
    good &=
        gae(&gpu, "GAE, 4096 chains of 8 replies of 512", &RaggedRows::from_chains(&chains), 17)?;
    Ok(good)
}

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| (uniform_number(seed, i) * 2.0 - 1.0) as f32).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Sets of arrays of `bytes` that together do not fit into the cache.
fn sets<T>(
    bytes: usize,
    mut set: impl FnMut() -> Result<T, CudaError>,
) -> Result<Vec<T>, CudaError> {
    (0..CACHE.div_ceil(bytes).max(2)).map(|_| set()).collect()
}

/// Seconds that `f` takes on a set, after one round to warm up.
fn time<T>(
    gpu: &Gpu,
    sets: &mut [T],
    mut f: impl FnMut(&mut T) -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    sets.iter_mut().try_for_each(&mut f)?;
    let mark = || gpu.stream().record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
    let start = mark()?;
    for _ in 0..REPEATS {
        sets.iter_mut().try_for_each(&mut f)?;
    }
    let end = mark()?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / (REPEATS * sets.len()) as f64)
}

/// Seconds of a copy that reads and writes `bytes` together.
fn copy(gpu: &Gpu, bytes: usize) -> Result<f64, CudaError> {
    let (stream, n) = (gpu.stream(), bytes / 8);
    let mut sets = sets(bytes, || Ok([stream.alloc_zeros::<f32>(n)?, stream.alloc_zeros(n)?]))?;
    time(gpu, &mut sets, |[from, to]| Ok(stream.memcpy_dtod(from, to)?))
}

fn report(gpu: &Gpu, name: &str, seconds: f64, bytes: usize, parity: f64) -> Fallible<bool> {
    let copy = copy(gpu, bytes)?;
    let (time, rate, ratio) = (seconds * 1e6, bytes as f64 / seconds / 1e9, seconds / copy);
    println!(
        "{name:<44} {time:>10.1} {:>10.1} {rate:>10.0} {ratio:>8.2} {parity:>10.1e}",
        copy * 1e6
    );
    Ok(parity <= PARITY)
}

/// The largest distance to the CPU's numbers, relative to the largest of them.
fn parity(gpu: &Gpu, got: &CudaSlice<f32>, want: &[f64]) -> Result<f64, CudaError> {
    let got = gpu.stream().clone_dtoh(got)?;
    gpu.stream().synchronize()?;
    let size = want.iter().fold(1.0_f64, |size, x| size.max(x.abs()));
    let error = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() / size;
    // What is no number is as far as can be.
    let far = |far: f64| if far.is_nan() { f64::INFINITY } else { far };
    Ok(got.iter().zip(want).map(error).map(far).fold(0.0, f64::max))
}

fn groups(gpu: &Gpu, name: &str, by: &Grouping, bytes_per_row: usize) -> Fallible<bool> {
    let (stream, values) = (gpu.stream(), random(2, ROWS));
    let on = gpu.upload_grouping(by)?;
    let bytes = ROWS * bytes_per_row + GROUPS * 4;
    let set = || Ok((stream.clone_htod(&values)?, stream.alloc_zeros::<f32>(ROWS)?));
    let mut sets = sets(bytes, set)?;
    let seconds = time(gpu, &mut sets, |(values, out)| gpu.relative_into(values, &on, &GRPO, out))?;
    let (want, _) = CpuArithmetic.relative_advantages(&wide(&values), by, None, &GRPO)?;
    report(gpu, name, seconds, bytes, parity(gpu, &sets[0].1, &want)?)
}

fn whiten(gpu: &Gpu) -> Fallible<bool> {
    let (stream, values, by) = (gpu.stream(), random(3, ROWS), Segments::single_group(ROWS));
    let tokens: Vec<u32> = (0..ROWS as u32).map(|row| row % 7).collect();
    let (on, of) = (gpu.upload_segments(&by)?, stream.clone_htod(&tokens)?);
    let set = || Ok((stream.clone_htod(&values)?, stream.alloc_zeros::<f32>(ROWS)?));
    let mut sets = sets(20 * ROWS, set)?;
    let seconds = time(gpu, &mut sets, |(values, out)| gpu.whiten_into(values, &of, &on, out))?;
    let want = CpuArithmetic.whiten_groups(&wide(&values), &tokens, &by)?;
    report(gpu, "whiten, 10^6 rows of tokens", seconds, 20 * ROWS, parity(gpu, &sets[0].1, &want)?)
}

fn gae(gpu: &Gpu, name: &str, places: &RaggedRows, bytes_per_place: usize) -> Fallible<bool> {
    let (stream, n) = (gpu.stream(), places.len());
    let (rewards, values, after) = (random(4, n), random(5, n), random(6, places.row_count()));
    let hops = GaeSteps {
        within: GaeParams { gamma: 1.0, lambda: 0.95 },
        between: GaeParams { gamma: 0.99, lambda: 0.9 },
    };
    let (on, end) = (gpu.upload_rows(places)?, stream.clone_htod(&after)?);
    let mut sets = sets(n * bytes_per_place, || {
        let from = [stream.clone_htod(&rewards)?, stream.clone_htod(&values)?];
        Ok((from, [stream.alloc_zeros::<f32>(n)?, stream.alloc_zeros(n)?]))
    })?;
    let seconds = time(gpu, &mut sets, |([rewards, values], [advantages, returns])| {
        gpu.gae_into([rewards, values, &end], &on, hops, [advantages, returns])
    })?;
    let want = CpuArithmetic.gae_advantages(
        &wide(&rewards),
        &wide(&values),
        &wide(&after),
        places,
        hops,
    )?;
    let [advantages, returns] = &sets[0].1;
    let far = parity(gpu, advantages, &want.0)?.max(parity(gpu, returns, &want.1)?);
    report(gpu, name, seconds, n * bytes_per_place, far)
}
