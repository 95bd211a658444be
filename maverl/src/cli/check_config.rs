//! A configuration checked: its plan, or what is wrong with it.

use std::process::ExitCode;

use serde_json::json;

use super::{Failure, print, terminal};
use crate::check::{Diagnostic, Purpose, Sources, check, render_within};
use crate::plan::{self, Plan};
use crate::registry::Registry;

/// `maverl check`: prints the plan, which has the warnings. As JSON, problems are printed too.
pub(super) fn command(
    sources: &Sources,
    registry: &Registry,
    json: bool,
) -> Result<ExitCode, Failure> {
    match check(sources, registry, Purpose::Train) {
        Ok(plan) if json => print(&plan::json(&plan)),
        Ok(plan) => print(&plan::table(&plan, terminal::width())),
        Err(problems) if json => {
            print(&serde_json::to_string_pretty(&json!({ "problems": problems }))?)?;
            Ok(ExitCode::FAILURE)
        }
        Err(problems) => Err(failure(&problems)),
    }
}

/// The plan, or every problem as one message. Its warnings are printed.
pub(super) fn planned(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    let plan = checked(sources, registry, purpose)?;
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(plan)
}

/// The plan, or every problem as one message.
pub(super) fn checked(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    check(sources, registry, purpose).map_err(|problems| failure(&problems))
}

fn failure(problems: &[Diagnostic]) -> Failure {
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    let text = render_within(problems, miette::GraphicalTheme::default(), terminal::width());
    Failure(format!("{count} {noun} in the configuration\n\n{text}"))
}
