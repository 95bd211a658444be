//! `maverl bench`: measures this machine on models of two sizes. Shapes and counts are those of the comparison with
//! other programs on the performance page of the book.

mod code;
pub mod fixture;
pub mod harness;
mod kernels;
pub mod measure;
mod one;
mod policy;
pub mod report;
pub mod setup;
mod tree;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Error, ValueEnum};

use super::{Failure, number};
use harness::Benchmark;
use report::Figure;
use setup::Setup;

#[derive(Args, Debug, Clone)]
pub(super) struct BenchArgs {
    /// Parts to measure. [default: all]
    #[arg(value_name = "PART", value_parser = PartParser)]
    parts: Vec<BenchPart>,
    #[command(flatten)]
    setup: Setup,
    /// Measure `rollout`, `train` and `sft` also with N and N * N times the work, to show how costs grow.
    #[arg(long, value_name = "N", default_value = "1", value_parser = number::from_1)]
    times: NonZeroUsize,
}

/// Parts of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BenchPart {
    /// 64 prompts of 64 tokens, 64 new tokens each.
    Rollout,
    /// An update with 64 rows of 128 tokens: forward, log-probs, backward, AdamW.
    Train,
    /// A step: 8 replies of 64 tokens to each of 8 prompts, and the update with them.
    Grpo,
    /// An update on 64 texts of 128 tokens.
    Sft,
    /// Updates with the turns of 8 episodes: chains of 3 and of 15 agents, and conversations of 20 turns.
    Tree,
    /// 64 programs in the sandbox of the code environment: with an input, and functions with their tests.
    Code,
    /// One prompt of 64 tokens, 64 new tokens, and its share of the memory's speed.
    One,
    /// Matrix products, and the memory's bandwidth.
    Kernels,
}

/// Parts that the crate `maverl-lab` measures.
const OF_SERVERS: [&str; 7] =
    ["team", "retriever", "serve", "gateway", "reward", "grpc", "grammar"];

/// Parser of [`BenchPart`], whose error about a part of `maverl-lab` says which command measures it.
#[derive(Clone)]
struct PartParser;

impl TypedValueParser for PartParser {
    type Value = BenchPart;

    fn parse_ref(
        &self,
        cmd: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<BenchPart, Error> {
        if let Some(name) = OF_SERVERS.iter().find(|name| value.eq_ignore_ascii_case(name)) {
            let message = format!(
                "`{name}` is measured by another program; in a clone of maverl:\n\n  \
                 cargo run --release -p maverl-lab --bin bench_servers -- {name}\n"
            );
            return Err(Error::raw(ErrorKind::InvalidValue, message).with_cmd(cmd));
        }
        EnumValueParser::new().parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(BenchPart::value_variants().iter().filter_map(BenchPart::to_possible_value)))
    }
}

/// Measures the requested parts.
pub(super) fn bench(args: &BenchArgs) -> Result<ExitCode, Failure> {
    harness::bench(args, &["bench"], &args.parts)
}

impl Benchmark for BenchArgs {
    type Part = BenchPart;

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn options(&self) -> Vec<String> {
        vec!["--times".to_owned(), self.times.to_string()]
    }

    fn has_model(&self, part: BenchPart) -> bool {
        !matches!(part, BenchPart::Code | BenchPart::One | BenchPart::Kernels)
    }

    async fn figures(&self, part: BenchPart) -> Result<Vec<Figure>, Failure> {
        match part {
            BenchPart::Rollout => policy::rollout(&self.setup, self.times).await,
            BenchPart::Train => policy::train(&self.setup, self.times).await,
            BenchPart::Grpo => policy::grpo(&self.setup).await,
            BenchPart::Sft => policy::sft(&self.setup, self.times).await,
            BenchPart::Tree => tree::tree(&self.setup).await,
            BenchPart::Code => code::code(&self.setup),
            BenchPart::One => one::one(&self.setup).await,
            BenchPart::Kernels => Ok(kernels::kernels(&self.setup)),
        }
    }
}
