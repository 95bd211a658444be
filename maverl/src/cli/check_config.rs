//! Checks of a configuration: its plan, or its problems.

use std::process::ExitCode;

use serde_json::json;

use super::{Failure, print, terminal};
use crate::check::{Diagnostic, Purpose, Sources, check, render_within, settings, survey};
use crate::config::Config;
use crate::plan::{self, Plan};
use crate::registry::Registry;
use crate::table::paragraphs;
use crate::train::tell;

/// `maverl check`: prints the plan with its warnings. With JSON, problems are printed too.
pub(super) fn command(
    sources: &Sources,
    registry: &Registry,
    json: bool,
) -> Result<ExitCode, Failure> {
    match check(sources, registry, Purpose::Plan) {
        Ok(plan) => print(&described(&plan, json)?),
        Err(problems) if json => {
            print(&serde_json::to_string_pretty(&json!({ "problems": problems }))?)?;
            Ok(ExitCode::FAILURE)
        }
        Err(problems) => Err(failure(&problems)),
    }
}

/// Formats a plan and its data, for readers or as JSON.
fn described(plan: &Plan, json: bool) -> Result<String, Failure> {
    let survey = survey(plan)?;
    if !json {
        let width = terminal::width();
        let warnings: String =
            survey.warnings().iter().map(|warning| format!("warning: {warning}\n")).collect();
        let data = paragraphs(&format!("{warnings}\n{}", survey.text()), width);
        return Ok(plan::table(plan, width) + &data);
    }
    let mut all: serde_json::Value = serde_json::from_str(&plan::json(plan))?;
    all["data"] = serde_json::to_value(&survey)?;
    all["data"]["warnings"] = survey.warnings().into();
    Ok(serde_json::to_string_pretty(&all)?)
}

/// Returns the plan, or every problem as one message. Prints the plan's warnings.
pub(super) fn planned(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    let plan = checked(sources, registry, purpose)?;
    for warning in &plan.warnings {
        tell(format_args!("warning: {warning}"));
    }
    Ok(plan)
}

/// Returns the plan, or every problem as one message.
pub(super) fn checked(
    sources: &Sources,
    registry: &Registry,
    purpose: Purpose,
) -> Result<Plan, Failure> {
    check(sources, registry, purpose).map_err(|problems| failure(&problems))
}

/// Returns the settings of a command that needs no team, or every problem as one message.
pub(super) fn configured(sources: &Sources) -> Result<Config, Failure> {
    settings(sources).map_err(|problems| failure(&problems))
}

fn failure(problems: &[Diagnostic]) -> Failure {
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    let text = render_within(problems, miette::GraphicalTheme::default(), terminal::width());
    Failure(format!("{count} {noun} in the configuration\n\n{text}"))
}
