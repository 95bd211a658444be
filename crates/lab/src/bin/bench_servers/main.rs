//! Measures the servers of this machine, and episodes of a team, with models of two sizes.
//!
//! `cargo run --release -p maverl-lab --bin bench_servers -- serve gateway` measures two parts; without names it measures all.
//! `maverl bench` measures what a server does not need: rollout, updates, products.

mod gateway;
mod grammar;
mod grpc;
mod host;
mod pace;
mod retriever;
mod reward;
mod serve;
mod server;
mod team;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use maverl::cli::{Failure, exit, usage};
use maverl_cli::bench::harness::{Benchmark, bench};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;

/// Measures servers on this machine, each beside its clients.
#[derive(Parser, Debug)]
struct BenchArguments {
    /// Parts to measure. [default: all]
    #[arg(value_name = "PART")]
    parts: Vec<ServerBenchPart>,
    #[command(flatten)]
    setup: Setup,
    /// Corpus that `retriever` serves, with its questions: `builtin:facts`, or a SQuAD or HotpotQA file.
    #[arg(long, value_name = "FILE", default_value = "builtin:facts")]
    corpus: String,
}

/// Parts of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServerBenchPart {
    /// Episodes of three agents with a slow tool, each at its own pace and in lock-step; and what a shared prompt saves.
    Team,
    /// The server of `serve retriever`, asked by 64 clients at once.
    Retriever,
    /// The server of `serve model`, asked by 64 clients at once, beside its engine.
    Serve,
    /// Calls of programs through the gateway, beside a model that replies at once.
    Gateway,
    /// The server of `serve reward`: 32 replies in one request, and one after another.
    Reward,
    /// Steps over gRPC, in an environment that answers at once.
    Grpc,
    /// Replies of twenty forms of `serve model`, beside as long ones without a form.
    Grammar,
}

fn main() -> ExitCode {
    let arguments: BenchArguments = usage::parse();
    exit(|| bench(&arguments, &[], &arguments.parts))
}

impl Benchmark for BenchArguments {
    type Part = ServerBenchPart;

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn options(&self) -> Vec<String> {
        vec!["--corpus".to_owned(), self.corpus.clone()]
    }

    fn has_model(&self, part: ServerBenchPart) -> bool {
        !matches!(
            part,
            ServerBenchPart::Retriever | ServerBenchPart::Gateway | ServerBenchPart::Grpc
        )
    }

    async fn figures(&self, part: ServerBenchPart) -> Result<Vec<Figure>, Failure> {
        let setup = &self.setup;
        match part {
            ServerBenchPart::Team => team::measure_team(setup).await,
            ServerBenchPart::Retriever => retriever::measure_retriever(setup, &self.corpus).await,
            ServerBenchPart::Serve => serve::measure_serving(setup).await,
            ServerBenchPart::Gateway => gateway::measure_gateway(setup).await,
            ServerBenchPart::Reward => reward::measure_reward(setup).await,
            ServerBenchPart::Grpc => grpc::measure_grpc(setup).await,
            ServerBenchPart::Grammar => grammar::measure_grammar(setup).await,
        }
    }
}

/// Returns the settings of one measurement of each figure.
#[cfg(test)]
fn once() -> Setup {
    BenchArguments::parse_from(["bench_servers", "--repeats", "1"]).setup
}
