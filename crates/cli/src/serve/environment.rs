//! `maverl serve environment`: the environment of a configuration, for clients of OpenEnv and of gRPC.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::listen::ListenArgs;
use crate::{ConfigArgs, Failure, block_on, number, plan_with_warnings};
use maverl::check::Purpose;
use maverl::data::{self, DataError};
use maverl::output;
use maverl::plan::Plan;
use maverl::registry::{Registry, includes};
use maverl::rollout;
use maverl::train::Interrupt;
use maverl_serve::Limits;
use maverl_serve::environments::{
    EnvironmentServer, EnvironmentSettings, ServedEnvironment, TaskSet,
};

/// Splits whose tasks are served, beside that of the configuration.
const SPLITS: [&str; 3] = ["train", "validation", "test"];

#[derive(Args)]
pub(crate) struct EnvironmentArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Name of the environment in requests. [default: `environment.name`]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Most sessions at once; further ones are refused with `CAPACITY_REACHED` or `RESOURCE_EXHAUSTED`.
    #[arg(long, value_name = "N", default_value = "256", value_parser = number::from_1)]
    max_sessions: NonZeroUsize,
    /// Seconds without a message after which a session is closed.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = number::seed)]
    session_timeout_s: u64,
    #[command(flatten)]
    listen: ListenArgs,
}

impl EnvironmentArgs {
    /// Starts the environment, and loads its tasks.
    fn load(&self) -> Result<ServedEnvironment, Failure> {
        let registry = Registry::collect()?;
        let plan = plan_with_warnings(&self.config.sources(None), &registry, Purpose::Environment)?;
        let environment = rollout::start_environment(&plan, &registry)?;
        let components = plan.mixture.values().chain([&plan.environment]);
        let entries =
            components.filter_map(|chosen| registry.environments.get(chosen.name.as_str()));
        let offers: Vec<&[&str]> = entries.map(|entry| entry.offers).collect();
        let acts = offers.iter().any(|offers| !offers.is_empty());
        // A team must be understood on every task.
        let first = offers.first().copied().unwrap_or_default().iter();
        let common = first.filter(|action| offers.iter().all(|offers| includes(offers, action)));
        let actions = common.map(|action| (*action).to_owned()).collect();
        let name = self.name.clone().unwrap_or_else(|| plan.environment.name.clone());
        Ok(ServedEnvironment { name, environment, acts, actions, tasks: tasks(&plan)? })
    }
}

/// Loads the tasks of every split that has some, that of the configuration first.
fn tasks(plan: &Plan) -> Result<TaskSet, Failure> {
    let own = plan.config.task.split.as_str();
    let splits = [own].into_iter().chain(SPLITS.into_iter().filter(|split| *split != own));
    let mut tasks = Vec::new();
    for split in splits {
        match data::load(&plan.config.task, split, &plan.base) {
            Ok(of_split) => tasks.push((split.to_owned(), of_split)),
            Err(DataError::NoTasks { .. }) if split != own => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(TaskSet(tasks))
}

/// Serves until a signal.
pub(super) fn serve(args: &EnvironmentArgs) -> Result<ExitCode, Failure> {
    let served = args.load()?;
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let listening = args.listen.open(Limits::default()).await?;
        let settings = EnvironmentSettings {
            sessions: args.max_sessions,
            timeout: Duration::from_secs(args.session_timeout_s),
        };
        let server = EnvironmentServer::new(settings, listening.health.clone());
        output::tell(format_args!(
            "serving the environment `{}` at {}",
            served.name, listening.url
        ));
        server.open(served);
        listening.run_as_is(server.router()?, &interrupt).await;
        Ok(ExitCode::SUCCESS)
    })
}
