//! `maverl doctor`: what this machine lacks or limits, with remedies.
//!
//! `facts` reads the machine, `step` computes, and `findings` judges what they return, as a pure function.

mod facts;
mod findings;
mod step;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{Failure, print, terminal};
use facts::Facts;
use findings::{Finding, FindingLevel, judge_machine};
use maverl::output;
use maverl::table::{Table, paragraphs};
use maverl::train::own_name;

#[derive(Args)]
pub(super) struct DoctorArgs {
    /// Print the facts and the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Facts and findings, for programs.
#[derive(Serialize)]
struct DoctorReport<'a> {
    can_train: bool,
    findings: &'a [Finding],
    facts: &'a Facts,
}

/// Examines the machine. The exit code is 1 if training is not possible on it.
pub(super) fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let facts = Facts::find();
    let findings = judge_machine(&facts);
    let can_train = findings.iter().all(|finding| finding.level != FindingLevel::Error);
    let text = if args.json {
        output::json(&DoctorReport { can_train, findings: &findings, facts: &facts })?
    } else {
        format_findings(&findings, terminal::width())
    };
    print(&own_name(&text))?;
    Ok(if can_train { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Formats the findings as a table, and below it the numbered remedies.
fn format_findings(findings: &[Finding], width: usize) -> String {
    let mut table = Table::without_frame(["", "part", "finding"]).prose(&[2]).title(2);
    for Finding { level, part, text, .. } in findings {
        table.row([level.name(), part, text]);
    }
    let remedies: Vec<String> = findings
        .iter()
        .filter_map(|finding| Some((finding.part, finding.remedy.as_ref()?)))
        .enumerate()
        .map(|(i, (part, remedy))| paragraphs(&format!("{}. {part}: {remedy}", i + 1), width))
        .collect();
    let end = if remedies.is_empty() { "all good".to_owned() } else { remedies.join("\n") };
    format!("{}\n\n{end}", table.draw(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_numbered_and_a_machine_without_any_is_all_good() {
        let good = Finding::good("memory", "8.0 GiB");
        let bad = |part| Finding::new(FindingLevel::Warning, part, "too little", "buy more");
        let text = format_findings(&[good.clone(), bad("disk"), bad("processor")], 80);
        assert!(text.ends_with("1. disk: buy more\n2. processor: buy more"), "{text}");
        assert!(format_findings(&[good], 80).ends_with("\n\nall good"));
    }

    #[test]
    fn a_report_fits_the_terminal() {
        let remedy =
            "a long remedy, in many words, that no terminal of sixty columns has in one line";
        let text =
            format_findings(&[Finding::new(FindingLevel::Note, "sandbox", remedy, remedy)], 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
