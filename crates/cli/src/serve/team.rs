//! `maverl serve team`: a team as a model.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::listen::ListenArgs;
use super::queue::QueueArgs;
use crate::export::which;
use crate::{ConfigArgs, Failure, block_on, number, of_run, paths, plan_with_warnings};
use maverl::check::Purpose;
use maverl::checkpoint::{Checkpoint, Checkpoints, Which};
use maverl::output;
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::rollout::Rollout;
use maverl::runtime::Runtime;
use maverl::train::Interrupt;
use maverl_serve::Limits;
use maverl_serve::team::{ConversationReading, ServedTeam, TeamServer, TeamSettings};

#[derive(Args)]
pub(crate) struct TeamArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Serve the team of the run in this directory, with its configuration.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["file", "named"])]
    run: Option<PathBuf>,
    /// Checkpoint: `last`, `best` (by validation), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "last", requires = "run", conflicts_with_all = ["file", "named"], value_parser = which)]
    checkpoint: Which,
    /// Name of the team in requests. [default: the name of its orchestra]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Every answer has the replies of the team as `reasoning_content`, which clients show apart from the answer.
    #[arg(long)]
    show_turns: bool,
    /// The question of a conversation of several messages.
    #[arg(long, value_name = "HOW", default_value = "transcript")]
    history: HistoryArg,
    /// Most episodes at once.
    #[arg(long, value_name = "N", default_value = "16", value_parser = number::from_1)]
    max_requests: NonZeroUsize,
    #[command(flatten)]
    queue: QueueArgs,
    /// Largest body of a request in MiB.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number::from_0)]
    max_body_mib: usize,
    /// Refuse fields of requests that are unknown, instead of logging their names once.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Reading of a conversation of several messages.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum HistoryArg {
    /// The whole conversation, a line each.
    Transcript,
    /// The last message of the user.
    Last,
}

/// A team before its weights are loaded, which happens after the server listens, so that `/health` answers meanwhile.
struct DescribedTeam {
    registry: Registry,
    plan: Plan,
    checkpoint: Option<Checkpoint>,
}

impl TeamArgs {
    fn settings(&self) -> TeamSettings {
        TeamSettings {
            strict: self.strict,
            max_body: self.max_body_mib.max(1) << 20,
            show_turns: self.show_turns,
            history: match self.history {
                HistoryArg::Transcript => ConversationReading::Transcript,
                HistoryArg::Last => ConversationReading::Last,
            },
            queue: self.queue.limits(self.max_requests),
        }
    }

    /// Reads the configuration, and opens the checkpoint.
    fn describe_team(&self) -> Result<DescribedTeam, Failure> {
        let registry = Registry::collect()?;
        let sources = match &self.run {
            Some(run) => self.config.over(of_run(run)?.0),
            None => self.config.sources(None),
        };
        let mut plan = plan_with_warnings(&sources, &registry, Purpose::Eval)?;
        // No policy is trained, so no critic is needed.
        plan.algorithm.critic = None;
        let checkpoint = match &self.run {
            Some(run) => Some(Checkpoints::of(paths::run(run)?.path()).open(self.checkpoint)?),
            None => None,
        };
        Ok(DescribedTeam { registry, plan, checkpoint })
    }

    /// Loads the team, with the weights of the checkpoint.
    async fn load(&self, described: DescribedTeam) -> Result<ServedTeam, Failure> {
        let DescribedTeam { registry, plan, checkpoint } = described;
        let runtime = {
            let (workers, options) = (plan.worker_specs(), plan.runtime_options());
            tokio::task::spawn_blocking(move || Runtime::start(&workers, &options)).await??
        };
        let policies = runtime.policies().to_vec();
        let mut version = 0;
        if let Some(checkpoint) = &checkpoint {
            version = checkpoint.state.step;
            for policy in &policies {
                policy.load(&checkpoint.policy(policy.name())?).await?;
            }
        }
        let rollout = Rollout::start(&plan, &registry, &policies)?;
        let name = self.name.clone().unwrap_or_else(|| plan.orchestra.name.clone());
        Ok(ServedTeam { name, plan, policies, rollout, version })
    }
}

/// Serves until a signal.
pub(super) fn serve(args: &TeamArgs) -> Result<ExitCode, Failure> {
    let described = args.describe_team()?;
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let listening = args.listen.open(Limits::default()).await?;
        let url = listening.url.clone();
        let server = TeamServer::new(args.settings(), listening.health.clone());
        let metrics = server.metrics().clone();
        let serving = listening.run(server.router(), "team", metrics, &interrupt);
        let loading = async {
            let team = args.load(described).await?;
            output::tell(format_args!("serving `{}` at {url}/v1", team.name));
            server.open(team);
            std::future::pending::<Result<(), Failure>>().await
        };
        tokio::select! {
            () = serving => Ok(ExitCode::SUCCESS),
            failed = loading => failed.map(|()| ExitCode::SUCCESS),
        }
    })
}
