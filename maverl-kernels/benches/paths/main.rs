//! Every operation but products on one thread: its speed, and the share of what the path could do at best.
//!
//! `cargo bench -p maverl-kernels --bench paths [-- NAME]`, on the path of `MAVERL_SIMD` or on each that there is. The limit of an operation is the longest of: its
//! multiply-adds, divisions and square roots at the speed that they have on registers, and its reading and writing at the
//! speed of a loop that does nothing else with arrays of the same size.

mod limits;
mod operations;

use std::time::{Duration, Instant};

use limits::{Registers, Traffic};
use maverl_kernels::simd::{self, Path};
use pulp::{Arch, WithSimd};

/// At least so long are calls timed together.
const ROUND: Duration = Duration::from_micros(200);
/// So long are rounds repeated.
const ROUNDS: Duration = Duration::from_millis(40);

/// The instructions of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instructions(Arch);

impl Instructions {
    fn of(path: Path) -> Self {
        Self(match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => Arch::V3(pulp::x86::V3::try_new().expect("the path is available")),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 | Path::Amx => {
                Arch::V4(pulp::x86::V4::try_new().expect("the path is available"))
            }
            Path::Scalar => Arch::Scalar,
            _ => Arch::new(),
        })
    }

    pub(crate) fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        self.0.dispatch(op)
    }
}

/// Seconds of one call: the least of many short rounds, most of which nobody else interrupts.
pub(crate) fn seconds(f: &mut dyn FnMut()) -> f64 {
    f();
    let start = Instant::now();
    f();
    let calls = (ROUND.as_secs_f64() / start.elapsed().as_secs_f64()).ceil();
    let calls = calls.clamp(1.0, 1e6) as u32;
    let mut least = f64::INFINITY;
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 5 || start.elapsed() < ROUNDS {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        least = least.min(start.elapsed().as_secs_f64() / f64::from(calls));
        rounds += 1;
    }
    least
}

/// An operation and what it needs at least.
pub(crate) struct Operation<'a> {
    pub(crate) name: String,
    /// Arithmetic instructions but divisions and square roots, in elements.
    pub(crate) arithmetic: f64,
    pub(crate) divisions: f64,
    pub(crate) roots: f64,
    /// Bytes read and written, where they matter.
    pub(crate) traffic: Option<Traffic>,
    pub(crate) run: Box<dyn FnMut() + 'a>,
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let paths = match std::env::var_os(simd::VARIABLE) {
        Some(_) => vec![simd::select_path().unwrap_or_else(|refused| panic!("{refused}"))],
        None => simd::available_paths(),
    };
    for path in paths {
        simd::run_on_path(path, threads, || print(path, &filter));
    }
}

fn print(path: Path, filter: &str) {
    let instructions = Instructions::of(path);
    let registers = Registers::measure(instructions);
    let giga = |x: f64| x / 1e9;
    println!(
        "{path}: {:.1} G multiply-adds/s, {:.1} G divisions/s, {:.1} G square roots/s on registers",
        giga(registers.multiply_adds),
        giga(registers.divisions),
        giga(registers.roots),
    );
    println!("{:<28} {:>10} {:>8} {:>8} {:>6}  of", "operation", "us", "Gop/s", "GB/s", "share");
    let threads = rayon::current_num_threads() as f64;
    operations::each(&mut |operation| {
        let Operation { name, arithmetic, divisions, roots, traffic, mut run } = operation;
        if !name.contains(filter) {
            return;
        }
        let limits = [
            ("registers", arithmetic / registers.multiply_adds / threads),
            // One unit does both.
            ("division", (divisions / registers.divisions + roots / registers.roots) / threads),
            ("memory", traffic.map_or(0.0, |traffic| traffic.seconds(instructions))),
        ];
        let (what, limit) =
            limits.into_iter().fold(("", 0.0), |a, b| if b.1 > a.1 { b } else { a });
        let seconds = seconds(&mut run);
        println!(
            "{name:<28} {:>10.2} {:>8.2} {:>8.2} {:>5.0}%  {what}",
            seconds * 1e6,
            giga(arithmetic / seconds),
            giga(traffic.map_or(0.0, Traffic::bytes) / seconds),
            100.0 * limit / seconds,
        );
    });
}
