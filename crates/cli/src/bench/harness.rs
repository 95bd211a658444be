//! Parts of a benchmark: each is measured in a process of its own, and a table shows all of them.

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use maverl::output;
use serde::{Deserialize, Serialize};

use super::kernels;
use super::measure::{self, Watch};
use super::report::{self, Figure, Report};
use crate::{Failure, block_on, number, print, terminal};

/// Settings with which every part is measured.
#[derive(Args, Debug, Clone)]
pub struct Setup {
    /// Shape of the model: S has 1.1 M parameters, M 26.8 M.
    #[arg(long, value_name = "SIZE", default_value = "S", ignore_case = true)]
    pub size: Size,
    /// Precision of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub dtype: Dtype,
    /// Threads of the numeric kernels; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    pub threads: usize,
    /// Number of measurements of each figure.
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::from_1)]
    pub repeats: NonZeroUsize,
    /// Override a key of `[runtime]`, as `--set runtime.micro_batch_tokens=2048`, or `gradient_checkpointing` of the model;
    /// can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print one line of JSON per part, with every measurement.
    #[arg(long)]
    pub json: bool,
}

/// Measured shapes of `new-model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Size {
    /// 1.1 million parameters.
    #[value(name = "S")]
    S,
    /// 26.8 million parameters.
    #[value(name = "M")]
    M,
}

/// Number type of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// Single precision.
    F32,
    /// Factors in bf16, sums in single precision.
    Bf16,
}

/// A benchmark, with the arguments of its command line.
pub trait Bench {
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
pub fn bench<B: Bench>(
    bench: &B,
    command: &[&str],
    parts: &[B::Part],
) -> Result<ExitCode, Failure> {
    let parts = if parts.is_empty() { B::Part::value_variants() } else { parts };
    let mut reports = Vec::new();
    for part in parts {
        let report = match parts.len() {
            1 => measured(bench, *part)?,
            _ => apart(bench, command, *part)?,
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
fn measured<B: Bench>(bench: &B, part: B::Part) -> Result<Report, Failure> {
    let setup = bench.setup();
    // This process measures nothing else, so the pool does not exist yet. Models are generated with it.
    drop(rayon::ThreadPoolBuilder::new().num_threads(setup.threads).build_global());
    block_on(async {
        let watch = Watch::start();
        let figures = bench.figures(part).await?;
        // Recorded before the limit is measured, which allocates memory too.
        let (peak_bytes, other_cores) = (measure::peak(), watch.others());
        let limit = bench.has_model(part).then(|| kernels::limit(setup.dtype));
        let mut report = Report::new(written(&part), setup, figures, limit);
        (report.peak_bytes, report.other_cores) = (peak_bytes, other_cores);
        Ok(report)
    })
}

/// Measures a part in a separate process: the peak memory of a process cannot be reset.
fn apart<B: Bench>(bench: &B, command: &[&str], part: B::Part) -> Result<Report, Failure> {
    let (name, setup) = (written(&part), bench.setup());
    let output = Command::new(std::env::current_exe()?)
        .args(command)
        .args([&name, "--json"])
        .args(["--size", &written(&setup.size), "--dtype", &written(&setup.dtype)])
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

/// Formats a value as on the command line.
pub fn written(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
