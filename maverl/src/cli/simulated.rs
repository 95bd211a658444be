//! A plan as text or JSON, on the ranks of the command line if there are some.

use std::num::NonZeroUsize;

use clap::Args;

use crate::check::{Purpose, survey};
use crate::cli::failure::Failure;
use crate::cli::{number, terminal};
use crate::output;
use crate::plan::{self, DEVICES, DeviceModel, Placement, Plan, RanksSummary};
use crate::table::paragraphs;

/// Ranks that a plan is computed for.
#[derive(Args, Debug, Clone, Default)]
pub struct Simulated {
    /// Print memory, tokens and communication of the plan on so many ranks.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    ranks: Option<NonZeroUsize>,
    /// Device of each rank, such as `h100-80gb`; the CPU unless given.
    #[arg(long, value_name = "NAME", value_parser = device)]
    device: Option<&'static DeviceModel>,
    /// Ranks of a machine; 8 with a device, and 1 without, unless given.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    local_ranks: Option<NonZeroUsize>,
    /// Gigabytes that a rank sends to other machines in a second; those of the device's machine, or 1.25, unless given.
    #[arg(long, value_name = "GB_PER_S", value_parser = bandwidth)]
    bandwidth: Option<f64>,
}

impl Simulated {
    fn is_asked(&self) -> bool {
        self.ranks.is_some()
            || self.device.is_some()
            || self.local_ranks.is_some()
            || self.bandwidth.is_some()
    }

    /// Returns the purpose of the plan.
    pub fn purpose(&self) -> Purpose {
        if self.is_asked() { Purpose::Ranks } else { Purpose::Plan }
    }

    /// Formats a plan, on the ranks if some are given, for readers or as JSON.
    pub fn answer(&self, plan: &Plan, json: bool) -> Result<String, Failure> {
        if self.is_asked() { self.describe_plan(plan, json) } else { describe_data(plan, json) }
    }

    /// Formats a plan on the ranks, for readers or as JSON.
    fn describe_plan(&self, plan: &Plan, json: bool) -> Result<String, Failure> {
        let ranks = self.ranks.map_or(1, |ranks| ranks.get() as u64);
        let mut at = Placement::new(ranks, self.device);
        if let Some(local) = self.local_ranks {
            at = at.with_local(local.get() as u64);
        }
        if let Some(gigabytes) = self.bandwidth {
            at = at.with_bandwidth(gigabytes * 1e9);
        }
        let found = RanksSummary::new(plan, &at);
        if json { Ok(output::json(&found)?) } else { Ok(found.text(terminal::width())) }
    }
}

fn device(name: &str) -> Result<&'static DeviceModel, String> {
    let known = DEVICES.map(|device| device.name).join(", ");
    DeviceModel::find(name).ok_or_else(|| format!("no such device; known are {known}"))
}

fn bandwidth(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|&number: &f64| number.is_finite() && number > 0.0);
    found.ok_or_else(|| "a positive number of gigabytes per second, such as 12.5".to_owned())
}

/// Formats a plan and its data, for readers or as JSON.
fn describe_data(plan: &Plan, json: bool) -> Result<String, Failure> {
    let survey = survey(plan);
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
    Ok(output::json(&all)?)
}
