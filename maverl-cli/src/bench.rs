//! `maverl bench`: measures this machine on models of two sizes. Shapes and counts are those of the comparison with
//! other programs on the performance page of the book.

mod fixture;
#[cfg(feature = "serve")]
mod gateway;
#[cfg(feature = "grammar")]
mod grammar;
#[cfg(feature = "grpc")]
mod grpc;
mod kernels;
mod measure;
mod policy;
mod report;
#[cfg(feature = "serve")]
mod retriever;
#[cfg(feature = "serve")]
mod reward;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod server;
mod team;

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{Failure, block_on, number, print, terminal};
#[cfg(feature = "cuda")]
pub(crate) use fixture::without_stop_ids;
use maverl::output;
use measure::Watch;
use report::Report;

#[derive(Args, Debug, Clone)]
pub(super) struct BenchArgs {
    /// Parts to measure. [default: all]
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Shape of the model: S has 1.1 M parameters, M 26.8 M.
    #[arg(long, value_name = "SIZE", default_value = "S", ignore_case = true)]
    size: Size,
    /// Precision of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Dtype,
    /// Threads of the numeric kernels; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    threads: usize,
    /// Number of measurements of each figure.
    #[arg(long, value_name = "N", default_value = "5", value_parser = number::from_1)]
    repeats: NonZeroUsize,
    /// Measure `rollout`, `train` and `sft` also with N and N * N times the work, to show how costs grow.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::from_1)]
    times: NonZeroUsize,
    /// Override a key of `[runtime]`, as `--set runtime.micro_batch_tokens=2048`, or `gradient_checkpointing` of the model;
    /// can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Corpus that `retriever` serves, with its questions: `builtin:facts`, or a SQuAD or HotpotQA file.
    #[arg(long, value_name = "FILE", default_value = "builtin:facts")]
    corpus: String,
    /// Print one line of JSON per part, with every measurement.
    #[arg(long)]
    json: bool,
}

/// Parts of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// 64 prompts of 64 tokens, 64 new tokens each.
    Rollout,
    /// An update with 64 rows of 128 tokens: forward, log-probs, backward, AdamW.
    Train,
    /// A step: 8 replies of 64 tokens to each of 8 prompts, and the update with them.
    Grpo,
    /// An update on 64 texts of 128 tokens.
    Sft,
    /// Episodes of three agents with a slow tool, each at its own pace and in lock-step; and what a shared prompt saves.
    Team,
    /// Matrix products, and the memory's bandwidth.
    Kernels,
    /// The server of `serve retriever`, asked by 64 clients at once.
    #[cfg(feature = "serve")]
    Retriever,
    /// The server of `serve model`, asked by 64 clients at once, beside its engine.
    #[cfg(feature = "serve")]
    Serve,
    /// Calls of programs through the gateway, beside a model that replies at once.
    #[cfg(feature = "serve")]
    Gateway,
    /// The server of `serve reward`: 32 replies in one request, and one after another.
    #[cfg(feature = "serve")]
    Reward,
    /// Steps over gRPC, in an environment that answers at once.
    #[cfg(feature = "grpc")]
    Grpc,
    /// Replies of twenty forms of `serve model`, beside as long ones without a form.
    #[cfg(feature = "grammar")]
    Grammar,
}

/// Measured shapes of `new-model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Size {
    #[value(name = "S")]
    S,
    #[value(name = "M")]
    M,
}

/// Number type of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Dtype {
    F32,
    Bf16,
}

/// Formats a value as on the command line.
pub(super) fn written(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Measures the requested parts.
pub(super) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let parts = if args.parts.is_empty() { Part::value_variants() } else { &args.parts };
    let mut reports = Vec::new();
    for part in parts {
        let report = match parts.len() {
            1 => args.measure(*part)?,
            _ => args.apart(*part)?,
        };
        if args.json {
            print(&output::json_line(&report)?)?;
        } else {
            reports.push(report);
        }
    }
    if args.json {
        Ok(ExitCode::SUCCESS)
    } else {
        print(&report::table(&reports, terminal::width()))
    }
}

impl BenchArgs {
    /// Measures a part in this process.
    fn measure(&self, part: Part) -> Result<Report, Failure> {
        // This process measures nothing else, so the pool does not exist yet. Models are generated with it.
        drop(rayon::ThreadPoolBuilder::new().num_threads(self.threads).build_global());
        block_on(async {
            let watch = Watch::start();
            let figures = match part {
                Part::Rollout => policy::rollout(self).await?,
                Part::Train => policy::train(self).await?,
                Part::Grpo => policy::grpo(self).await?,
                Part::Sft => policy::sft(self).await?,
                Part::Team => team::team(self).await?,
                Part::Kernels => kernels::kernels(self),
                #[cfg(feature = "serve")]
                Part::Retriever => retriever::retriever(self).await?,
                #[cfg(feature = "serve")]
                Part::Serve => serve::serve(self).await?,
                #[cfg(feature = "serve")]
                Part::Gateway => gateway::gateway(self).await?,
                #[cfg(feature = "serve")]
                Part::Reward => reward::reward(self).await?,
                #[cfg(feature = "grpc")]
                Part::Grpc => grpc::grpc(self).await?,
                #[cfg(feature = "grammar")]
                Part::Grammar => grammar::grammar(self).await?,
            };
            // Recorded before the limit is measured, which allocates memory too.
            let (peak_bytes, other_cores) = (measure::peak(), watch.others());
            let of_model = match part {
                #[cfg(feature = "serve")]
                Part::Retriever | Part::Gateway => false,
                #[cfg(feature = "grpc")]
                Part::Grpc => false,
                Part::Kernels => false,
                _ => true,
            };
            let limit = of_model.then(|| kernels::limit(self.dtype));
            let mut report = Report::new(part, self, figures, limit);
            (report.peak_bytes, report.other_cores) = (peak_bytes, other_cores);
            Ok(report)
        })
    }

    /// Measures a part in a separate process: the peak memory of a process cannot be reset.
    fn apart(&self, part: Part) -> Result<Report, Failure> {
        let name = written(&part);
        let output = Command::new(std::env::current_exe()?)
            .args(["bench", &name, "--json"])
            .args(["--size", &written(&self.size), "--dtype", &written(&self.dtype)])
            .args(["--threads", &self.threads.to_string()])
            .args(["--repeats", &self.repeats.to_string(), "--times", &self.times.to_string()])
            .args(["--corpus", &self.corpus])
            .args(self.set.iter().flat_map(|set| ["--set", set]))
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(Failure(format!("the part `{name}` ended with {}", output.status)));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use super::*;

    /// Returns the arguments of one measurement of each figure.
    pub(super) fn once() -> BenchArgs {
        BenchArgs {
            parts: Vec::new(),
            size: Size::S,
            dtype: Dtype::F32,
            threads: 0,
            repeats: NonZeroUsize::MIN,
            times: NonZeroUsize::MIN,
            set: Vec::new(),
            corpus: "builtin:facts".to_owned(),
            json: false,
        }
    }
}
