//! `maverl check`: the plan of a configuration, or its problems.

use std::process::ExitCode;

use serde_json::json;

use crate::check::check;
use crate::cli::arguments::ConfigArgs;
use crate::cli::failure::Failure;
use crate::cli::planning::problems_failure;
use crate::cli::simulated::Simulated;
use crate::cli::stages::Stages;
use crate::cli::terminal::print;
use crate::output;
use crate::registry::Registry;
use crate::train::own_name;

/// `maverl check`: prints the plan with its warnings. With JSON, problems are printed too.
pub fn command(
    given: &ConfigArgs,
    registry: &Registry,
    simulated: &Simulated,
    json: bool,
) -> Result<ExitCode, Failure> {
    if let Some(stages) = Stages::read(given)? {
        return stages.check(given, registry, simulated, json);
    }
    match check(&given.sources(None), registry, simulated.purpose()) {
        Ok(plan) => print(&own_name(&simulated.answer(&plan, json)?)),
        Err(problems) if json => {
            let text = output::json(&json!({ "problems": problems }))?;
            print(&own_name(&text))?;
            Ok(ExitCode::FAILURE)
        }
        Err(problems) => Err(problems_failure(&problems)),
    }
}
