//! Tables of claims, in Markdown.

use std::fmt::Write;

use maverl::eval::Interval;
use maverl_lab::statistics::mean;

use crate::catalog::all_claims;
use crate::claims::{Arm, Claim, ClaimTest, RunBudget, SettingLists};
use crate::comparison::{ArmComparison, Outcomes, TestVerdict, compare_claim};
use crate::quantity::{ArmOutcome, Measure};

/// Largest number of seeds that is written as a number.
const MANY: f64 = 1000.0;

/// Number of steps at either end of a run whose mean reward is shown.
const ENDS: usize = 3;

/// Formats the tables of a claim: its tests, its arms, and their settings.
pub(crate) fn format_tables(claim: &'static Claim, outcomes: &Outcomes) -> String {
    let mut text = String::new();
    let comparisons = compare_claim(claim, outcomes);
    if comparisons.is_empty() {
        text += "Not measured.\n";
    } else {
        text += "| quantity | expected better | other | means | difference (95 % together) | seeds | verdict | seeds to decide |\n\
                 |---|---|---|---|---|---|---|---|\n";
    }
    for (test, comparison) in &comparisons {
        text += &format_row(test, comparison);
    }
    text += "\n| arm | solved | reward | first, last steps | drops | spikes | peak | KL | steps | tokens |\n\
             |---|---|---|---|---|---|---|---|---|---|\n";
    for arm in claim.arms {
        let runs = outcomes.get(arm.name).into_iter().flat_map(|runs| runs.values());
        text += &arm_row(arm, &runs.collect::<Vec<_>>());
    }
    text += "\n| arm | settings |\n|---|---|\n";
    for arm in claim.arms {
        let _ = writeln!(text, "| {} | {} |", arm.name, format_settings(arm)); // a `String` takes everything
    }
    text
}

/// Formats one line per claim, with the verdicts of its tests. The outcomes are those of [`all_claims`], in their order. A claim
/// without runs keeps its line in `page`.
pub(crate) fn format_summary(outcomes: &[Outcomes], page: &str) -> String {
    let mut text =
        "| claim | budget of a run | shown | not shown | opposite |\n|---|---|---|---|---|\n"
            .to_owned();
    for (claim, outcomes) in all_claims().zip(outcomes) {
        let comparisons = compare_claim(claim, outcomes);
        let budget = match claim.budget {
            RunBudget::Steps(steps) => format!("{steps} steps of equally many episodes"),
            RunBudget::Tokens(tokens) => format!("{tokens} sampled tokens"),
        };
        let start = format!("| {} | {budget} | ", claim.title);
        let kept = page.lines().find(|line| comparisons.is_empty() && line.starts_with(&start));
        if let Some(line) = kept {
            text += &format!("{line}\n");
            continue;
        }
        let verdicts = [TestVerdict::Shown, TestVerdict::NotShown, TestVerdict::Opposite];
        let names = verdicts.map(|verdict| names_with_verdict(claim, &comparisons, verdict));
        text += &format!("{start}{} |\n", names.join(" | "));
    }
    text
}

/// Names the tests of a claim that have a verdict.
fn names_with_verdict(
    claim: &Claim,
    comparisons: &[(&'static ClaimTest, ArmComparison)],
    verdict: TestVerdict,
) -> String {
    let of = comparisons.iter().filter(|(_, found)| found.verdict == verdict);
    let names: Vec<String> = of.map(|(test, _)| name_test(claim, test)).collect();
    match (comparisons.is_empty(), names.is_empty()) {
        (true, _) => "not measured".to_owned(),
        (_, true) => "–".to_owned(),
        _ => names.join("; "),
    }
}

/// Names a test among those of its claim: its quantity, and the arms where they differ.
fn name_test(claim: &Claim, test: &ClaimTest) -> String {
    let mut name = test.measure.name().to_owned();
    let mut others = claim.tests.iter();
    if others.any(|other| (other.better, other.other) != (test.better, test.other)) {
        let _ = write!(name, " ({} against {})", test.better, test.other); // a `String` takes everything
    }
    name
}

/// Formats a test with its result.
fn format_row(test: &ClaimTest, comparison: &ArmComparison) -> String {
    let ArmComparison { means, difference, seeds, verdict, needed } = comparison;
    let Interval { mean, low, high } = *difference;
    let digits = decimal_places(test.measure);
    let ends = if difference.is_known() {
        format!("{low:+.digits$} to {high:+.digits$}")
    } else {
        "unknown".to_owned()
    };
    format!(
        "| {} | {} | {} | {:.digits$}, {:.digits$} | {mean:+.digits$} ({ends}) | {seeds} | {} | {} |\n",
        test.measure.name(),
        test.better,
        test.other,
        means[0],
        means[1],
        verdict.name(),
        match needed {
            _ if *verdict != TestVerdict::NotShown => "–".to_owned(),
            None => "no direction".to_owned(),
            Some(seeds) if *seeds > MANY => format!("over {MANY}"),
            Some(seeds) => format!("{seeds}"),
        },
    )
}

/// Returns the number of digits of a quantity.
const fn decimal_places(measure: Measure) -> usize {
    match measure {
        Measure::Solved
        | Measure::Reward
        | Measure::RewardAtKl
        | Measure::Credit
        | Measure::Bias => 3,
        Measure::Drops | Measure::Spikes | Measure::Peak => 2,
    }
}

/// Formats the means of an arm over its runs.
fn arm_row(arm: &Arm, runs: &[&ArmOutcome]) -> String {
    let rewards: Vec<Vec<f64>> = runs.iter().map(|run| run.step_rewards()).collect();
    let first = rewards.iter().map(|all| &all[..all.len().min(ENDS)]);
    let last = rewards.iter().map(|all| &all[all.len().saturating_sub(ENDS)..]);
    let first = mean(first.filter_map(|part| mean(part.iter().copied())));
    let last = mean(last.filter_map(|part| mean(part.iter().copied())));
    let kl = mean(runs.iter().filter_map(|run| run.by_kl().last().map(|end| end.0)));
    let steps = mean(runs.iter().map(|run| run.steps.len() as f64));
    let tokens = mean(runs.iter().filter_map(|run| run.steps.last().map(|step| step.tokens)));
    format!(
        "| {} | {} | {} | {}, {} | {} | {} | {} | {} | {} | {} |\n",
        arm.name,
        mean_text(own_mean(runs, Measure::Solved), 3),
        mean_text(own_mean(runs, Measure::Reward), 3),
        mean_text(first, 2),
        mean_text(last, 2),
        mean_text(own_mean(runs, Measure::Drops), 2),
        mean_text(own_mean(runs, Measure::Spikes), 2),
        mean_text(own_mean(runs, Measure::Peak), 2),
        mean_text(kl.filter(|kl| *kl > 0.0), 4),
        mean_text(steps, 0),
        mean_text(tokens, 0),
    )
}

fn own_mean(runs: &[&ArmOutcome], measure: Measure) -> Option<f64> {
    mean(runs.iter().filter_map(|run| Some(measure.paired_values([run, run])?[0])))
}

fn mean_text(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Formats the settings of an arm, and those of its evaluation.
fn format_settings(arm: &Arm) -> String {
    match arm.played {
        [] => list_settings(arm.set),
        played => format!("{}; evaluated with {}", list_settings(arm.set), list_settings(played)),
    }
}

/// Lists settings in code style.
fn list_settings(set: SettingLists) -> String {
    let set: Vec<String> = set.iter().copied().flatten().map(|set| format!("`{set}`")).collect();
    set.join(", ")
}

fn split_at_mark<'p>(page: &'p str, mark: &str) -> Result<(&'p str, &'p str), String> {
    page.split_once(mark).ok_or_else(|| format!("the page has no line `{}`", mark.trim()))
}

/// Replaces the text between the marks of a name.
///
/// # Errors
///
/// The name, if a mark is missing.
pub(crate) fn replace_marked(page: &str, name: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let (before, rest) = split_at_mark(page, &begin)?;
    let (_, after) = split_at_mark(rest, &end)?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::claims::CLAIMS;

    #[test]
    fn claims_without_runs_keep_their_lines_of_the_summary() {
        let claims = all_claims().count();
        let none = vec![Outcomes::new(); claims];
        let first = format_summary(&none, "");
        assert_eq!(first.matches("not measured").count(), 3 * claims, "{first}");
        let page = first.replacen("| not measured | not measured |", "| reward | – |", 1);
        assert_eq!(format_summary(&none, &page), page);
        assert_eq!(page.lines().count(), claims + 2);
    }

    #[test]
    fn text_between_marks_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let once = replace_marked(page, "x", "new").unwrap();
        assert_eq!(once, "a\n<!-- begin x -->\n\nnew\n<!-- end x -->\nb\n");
        assert_eq!(replace_marked(&once, "x", "new").unwrap(), once);
        let error = replace_marked(page, "y", "new").unwrap_err();
        assert_eq!(error, "the page has no line `<!-- begin y -->`");
    }

    #[test]
    fn a_row_has_the_difference_and_its_verdict() {
        let test = &CLAIMS[0].tests[0];
        let arm = |solved: [f64; 2]| {
            let outcome = |solved| ArmOutcome { solved, ..ArmOutcome::default() };
            (0..).zip(solved.map(outcome)).collect()
        };
        let outcomes =
            Outcomes::from([(test.better, arm([0.9, 0.8])), (test.other, arm([0.5, 0.39]))]);
        let found = compare_claim(&CLAIMS[0], &outcomes);
        // Five tests: the half width is 63.656741 · 0.005.
        let expected = "| solved after training | Dr. MAS | GRPO | 0.850, 0.445 | +0.405 (+0.087 to +0.723) | 2 | shown | – |\n";
        assert_eq!(format_row(test, &found[0].1), expected);
    }
}
