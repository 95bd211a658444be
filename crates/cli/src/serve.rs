//! `maverl serve`: models, teams and parts of environments for other programs.

mod engine;
#[cfg(any(feature = "grpc", feature = "openenv"))]
mod environment;
mod listen;
mod model;
mod policies;
mod queue;
mod retriever;
mod reward;
mod team;
#[cfg(feature = "tinker")]
mod train;

use std::process::ExitCode;

use clap::Subcommand;
use maverl::cli::stop_with_starter;

use super::Failure;

#[derive(Subcommand)]
pub(super) enum ServeCommand {
    /// Serve models, adapters, or the policies of a run in OpenAI's protocol (chat and text completions) and in Anthropic's (messages).
    ///
    /// The first line of standard output is `{"listening": "http://HOST:PORT"}`; `/health` answers 200 once everything is
    /// loaded. Ctrl-C finishes the current requests and stops the server; a second one stops it at once.
    Model(Box<model::ServeModelArgs>),
    /// Serve a team as a model in OpenAI's protocol and in Anthropic's: a request is one episode, without a judge.
    ///
    /// The question is the message of the user, or the transcript of a longer conversation. `maverl.turns` in a request lists
    /// the replies of the team in the answer.
    Team(Box<team::TeamArgs>),
    /// Serve the environment of a configuration with its tasks, for clients of OpenEnv and of gRPC.
    ///
    /// A session of OpenEnv is a WebSocket at `/ws`. A reset begins the next task, or that of its `task_id`, `index` or `seed`;
    /// the last observation has the score of the answer. The service of gRPC is `maverl.environment.v1.Environment`, at the same
    /// address. References of tasks stay in the server.
    #[cfg(any(feature = "grpc", feature = "openenv"))]
    Environment(Box<environment::EnvironmentArgs>),
    /// Answer queries over a corpus in the protocol of Search-R1: `POST /retrieve`.
    ///
    /// Ctrl-C finishes the current requests and stops the server; a second one stops it at once.
    Retriever(Box<retriever::RetrieverArgs>),
    /// Score replies, by a judge or a reward model: `POST /v1/score`, and the routes of MAPoRL, OpenRLHF and slime.
    ///
    /// `/predict` takes MAPoRL's `{"query_responses": [[message, ..], ..]}`, `/get_reward` OpenRLHF's `{"query": [..]}`, and `/rm`
    /// slime's `{"prompt", "response", "label"}`. Ctrl-C finishes the current requests and stops the server.
    Reward(Box<reward::RewardArgs>),
    /// Train adapters for clients of the Tinker API: `forward_backward`, `optim_step`, samples and checkpoints of several clients
    /// on one base.
    ///
    /// Clients set `TINKER_BASE_URL` to the address, and `TINKER_API_KEY` to a key that begins with `tml-`. Checkpoints are
    /// adapters below `--out`, which `maverl serve model --adapter` and `maverl export --merge` read. Ctrl-C stops the server.
    #[cfg(feature = "tinker")]
    Train(Box<train::ServeTrainArgs>),
}

/// Serves until a signal, or until the process that started this one ends.
pub(super) fn serve(command: &ServeCommand) -> Result<ExitCode, Failure> {
    stop_with_starter();
    match command {
        ServeCommand::Model(args) => model::serve(args),
        ServeCommand::Team(args) => team::serve(args),
        #[cfg(any(feature = "grpc", feature = "openenv"))]
        ServeCommand::Environment(args) => environment::serve(args),
        ServeCommand::Retriever(args) => retriever::serve(args),
        ServeCommand::Reward(args) => reward::serve(args),
        #[cfg(feature = "tinker")]
        ServeCommand::Train(args) => train::serve(args),
    }
}
