//! Plans of commands: the plan of a configuration, or its problems as the error of the command.

use crate::check::{Purpose, check};
use crate::cli::failure::Failure;
use crate::cli::terminal::{self, tell};
use crate::config::Config;
use crate::config::source::{Diagnostic, Sources, read_settings, render_within};
use crate::plan::Plan;
use crate::registry::Registry;

/// Returns the plan, or every problem as one message. Prints the plan's warnings.
pub fn plan_with_warnings(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    let plan = plan_checked(sources, registry, purpose)?;
    for warning in &plan.warnings {
        tell(format_args!("warning: {warning}"));
    }
    Ok(plan)
}

/// Returns the plan, or every problem as one message.
pub fn plan_checked(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    check(sources, registry, purpose).map_err(|problems| problems_failure(&problems))
}

/// Returns the settings of a command that needs no team, or every problem as one message.
pub fn load_config(sources: &Sources) -> Result<Config, Failure> {
    read_settings(sources).map_err(|problems| problems_failure(&problems))
}

/// Returns the error of a configuration with problems.
pub(super) fn problems_failure(problems: &[Diagnostic]) -> Failure {
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    let text = render_within(problems, terminal::theme(), terminal::width());
    Failure(format!("{count} {noun} in the configuration\n\n{text}"))
}
