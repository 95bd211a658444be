//! `maverl serve reward`: judges and reward models as a server.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};

use super::listen::ListenArgs;
use super::queue::QueueArgs;
use crate::{Failure, block_on, number, paths};
use maverl::output;
use maverl::registry::Registry;
use maverl::train::Interrupt;
use maverl_serve::Limits;
use maverl_serve::reward::{Grader, RewardServer, RewardSettings};

#[derive(Args)]
#[command(group = ArgGroup::new("grader").required(true).args(["judge", "model"]))]
pub(crate) struct RewardArgs {
    /// Judge by references: `em` (equal after normalization), or the judge of an environment: `math`, `nli`, `code`, or any
    /// other that `maverl list` names.
    #[arg(long, value_name = "NAME")]
    judge: Option<String>,
    /// Reward model: a directory that `maverl export --verifier` wrote. The reward is the probability that a reply is right.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Most requests that are scored at once.
    #[arg(long, value_name = "N", default_value = "16", value_parser = number::from_1)]
    max_requests: NonZeroUsize,
    #[command(flatten)]
    queue: QueueArgs,
    /// Seconds after which a request that is scored is answered 503.
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = number::seed)]
    timeout_s: u64,
    /// Largest body of a request in MiB.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number::from_0)]
    max_body_mib: usize,
    #[command(flatten)]
    listen: ListenArgs,
}

impl RewardArgs {
    fn settings(&self) -> RewardSettings {
        RewardSettings {
            max_body: self.max_body_mib.max(1) << 20,
            timeout: Duration::from_secs(self.timeout_s),
            queue: self.queue.limits(self.max_requests),
        }
    }

    /// Loads the grader, and returns it with its name.
    fn load(&self) -> Result<(Grader, String), Failure> {
        if let Some(dir) = &self.model {
            paths::directory(dir)?;
            return Ok((Grader::verifier(dir).map_err(Failure)?, dir.display().to_string()));
        }
        let name = self.judge.clone().unwrap_or_default();
        if name == "em" {
            return Ok((Grader::exact_match(), name));
        }
        let registry = Registry::collect()?;
        let Some(entry) = registry.environments.get(name.as_str()) else {
            let known: Vec<&str> = registry.environments.keys().copied().collect();
            let known = known.join("`, `");
            return Err(Failure(format!(
                "`--judge {name}` is not known; it is `em`, or one of `{known}`"
            )));
        };
        let options = (entry.declaration.defaults)();
        let environment = (entry.start)(&options, Path::new(""))
            .map_err(|error| Failure(format!("the judge `{name}` does not start: {error}")))?;
        Ok((Grader::environment(environment), name))
    }
}

/// Serves until a signal.
pub(super) fn serve(args: &RewardArgs) -> Result<ExitCode, Failure> {
    let (grader, name) = args.load()?;
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let listening = args.listen.open(Limits::default()).await?;
        let server = RewardServer::new(args.settings(), listening.health.clone());
        output::tell(format_args!("serving rewards of `{name}` at {}/v1/score", listening.url));
        server.open(grader);
        let metrics = server.metrics().clone();
        listening.run(server.router(), "reward", metrics, &interrupt).await;
        Ok(ExitCode::SUCCESS)
    })
}
