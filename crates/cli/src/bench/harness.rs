//! Parts of a benchmark: each is measured in a process of its own, and a table shows all of them.

use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use maverl::output;

use super::kernels;
use super::measure::{self, ProcessorUse};
use super::report::{self, BenchReport, Figure};
use super::setup::{Setup, written_option};
use crate::{Failure, block_on, print, terminal};

/// A benchmark, with the arguments of its command line.
pub trait Benchmark {
    /// Names of its parts.
    type Part: ValueEnum + Copy;

    /// Returns the settings of all parts.
    fn setup(&self) -> &Setup;

    /// Returns the other arguments of the command line, but the names of parts.
    fn options(&self) -> Vec<String>;

    /// Returns true if a part computes with a model, so that its figures are shares of the speed of products.
    fn has_model(&self, part: Self::Part) -> bool;

    /// Measures a part.
    fn figures(&self, part: Self::Part) -> impl Future<Output = Result<Vec<Figure>, Failure>>;
}

/// Measures parts of a benchmark, all if none is named, and prints their figures. `command` are the arguments of this program
/// that lead to the benchmark.
///
/// # Errors
///
/// If a part fails.
pub fn bench<B: Benchmark>(
    bench: &B,
    command: &[&str],
    parts: &[B::Part],
) -> Result<ExitCode, Failure> {
    let parts = if parts.is_empty() { B::Part::value_variants() } else { parts };
    let mut reports = Vec::new();
    for part in parts {
        let report = match parts.len() {
            1 => measure_here(bench, *part)?,
            _ => measure_apart(bench, command, *part)?,
        };
        if bench.setup().json {
            print(&output::json_line(&report)?)?;
        } else {
            reports.push(report);
        }
    }
    if bench.setup().json {
        Ok(ExitCode::SUCCESS)
    } else {
        print(&report::table(&reports, terminal::width()))
    }
}

/// Measures a part in this process.
fn measure_here<B: Benchmark>(bench: &B, part: B::Part) -> Result<BenchReport, Failure> {
    let setup = bench.setup();
    // This process measures nothing else, so the pool does not exist yet. Models are generated with it.
    drop(rayon::ThreadPoolBuilder::new().num_threads(setup.threads).build_global());
    block_on(async {
        let watch = ProcessorUse::start();
        let figures = bench.figures(part).await?;
        // Recorded before the limit is measured, which allocates memory too.
        let (peak_bytes, other_cores) = (measure::peak(), watch.other_processors());
        let limit = bench.has_model(part).then(|| kernels::limit(setup.dtype));
        let mut report = BenchReport::new(written_option(&part), setup, figures, limit);
        (report.peak_bytes, report.other_cores) = (peak_bytes, other_cores);
        Ok(report)
    })
}

/// Measures a part in a separate process: the peak memory of a process cannot be reset.
fn measure_apart<B: Benchmark>(
    bench: &B,
    command: &[&str],
    part: B::Part,
) -> Result<BenchReport, Failure> {
    let (name, setup) = (written_option(&part), bench.setup());
    let output = Command::new(std::env::current_exe()?)
        .args(command)
        .args([&name, "--json"])
        .args(["--size", &written_option(&setup.size), "--dtype", &written_option(&setup.dtype)])
        .args(["--threads", &setup.threads.to_string()])
        .args(["--repeats", &setup.repeats.to_string()])
        .args(bench.options())
        .args(setup.set.iter().flat_map(|set| ["--set", set]))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(Failure(format!("the part `{name}` ended with {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
