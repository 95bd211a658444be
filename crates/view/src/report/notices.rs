//! Rules that point at what needs attention in a run.

use maverl::eval::Interval;
use serde::Serialize;
use serde_json::Value;

use crate::report::analyses::fall::{Fall, median};
use crate::report::analyses::hacking::HackedReward;
use crate::report::rows::series::Series;

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Notice {
    /// `problem`, or `fine` for a check that found nothing.
    level: &'static str,
    /// Sentence with its number.
    pub(crate) text: String,
    /// First step that it is about.
    step: Option<u64>,
    /// Page and filters to look at, as `episodes?flag=malformed`.
    link: Option<String>,
}

impl Notice {
    pub(crate) fn is_problem(&self) -> bool {
        self.level == "problem"
    }

    /// True for a check that found nothing.
    pub(crate) fn is_fine(&self) -> bool {
        self.level == "fine"
    }

    fn problem(text: String, step: Option<u64>, link: Option<String>) -> Self {
        Self { level: "problem", text, step, link }
    }

    fn fine(text: String) -> Self {
        Self { level: "fine", text, step: None, link: None }
    }
}

/// Evidence on a run that is not in its metrics.
#[derive(Debug, Default)]
pub(crate) struct Evidence<'f> {
    pub(crate) warnings: &'f [Value],
    pub(crate) gain: Option<Interval>,
    pub(crate) fall: Option<Fall>,
    pub(crate) hacked: &'f [HackedReward],
}

/// Returns the notice on a gain over training that is 0, or may be.
fn no_gain(gain: &Interval) -> Option<Notice> {
    let Interval { mean, low, high } = *gain;
    let text = if !gain.is_known() && mean == 0.0 {
        "no held-out task has another result after training".to_owned()
    } else if low <= 0.0 && high >= 0.0 {
        format!(
            "the gain over training is not distinguishable from 0 (95 % interval {low:+.3} to {high:+.3})"
        )
    } else {
        return None;
    };
    Some(Notice::problem(text, None, None))
}

/// Returns every notice on a run.
pub(crate) fn find_notices(series: &Series, evidence: &Evidence<'_>) -> Vec<Notice> {
    let mut found = Vec::new();
    found.extend(unscored_notice(series));
    found.extend(seat_notices(series));
    found.extend(fall_notice(evidence.fall.as_ref()));
    found.extend(evidence.hacked.iter().map(hacked_notice));
    found.extend(unearned_notices(series));
    found.extend(verifier_notices(series));
    found.extend(group_notices(series));
    found.extend(slow_notice(series));
    found.extend(policy_notices(series));
    found.extend(evidence.gain.as_ref().and_then(no_gain));
    found.extend(preemption_notices(series));
    found.extend(evidence.warnings.iter().filter_map(|row: &Value| {
        let text = row["text"].as_str()?.to_owned();
        Some(Notice { level: "warning", text, step: row["step"].as_u64(), link: None })
    }));
    found.extend(fine_notices(series));
    found
}

fn unscored_notice(series: &Series) -> Option<Notice> {
    let values = series.values_of("rollout/unscored");
    let sum: f64 = values.iter().map(|(_, value)| value).sum();
    let (first, _) = values.iter().find(|(_, value)| *value > 0.0)?;
    let episodes = if sum == 1.0 { "episode" } else { "episodes" };
    let text = format!("{sum} training {episodes} could not be scored, first in step {first}");
    Some(Notice::problem(text, Some(*first), Some("episodes?flag=unscored".to_owned())))
}

/// Returns the longest tail of values above a threshold, if it has at least `n` steps.
fn lasting_tail(values: &[(u64, f64)], n: usize, above: f64) -> Option<(u64, u64, f64)> {
    let start = values.iter().rposition(|(_, value)| *value <= above).map_or(0, |at| at + 1);
    let tail = &values[start..];
    let (first, last) = (tail.first()?, tail.last()?);
    let mean = tail.iter().map(|(_, value)| value).sum::<f64>() / tail.len() as f64;
    (tail.len() >= n).then_some((first.0, last.0, mean))
}

/// Returns notices on malformed and truncated replies of each seat.
fn seat_notices(series: &Series) -> Vec<Notice> {
    let rules = [
        ("/reply_error_rate", 0.2, "of the replies are malformed", "malformed"),
        ("/truncated_rate", 0.1, "of the replies are truncated", "truncated"),
    ];
    let mut found = Vec::new();
    for (end, above, what, flag) in rules {
        for name in series.column_names() {
            let seat = name.strip_prefix("rollout/").and_then(|name| name.strip_suffix(end));
            let tail = seat.and_then(|_| lasting_tail(&series.values_of(name), 5, above));
            let (Some(seat), Some((first, last, mean))) = (seat, tail) else { continue };
            let percent = 100.0 * mean;
            let text = format!("{seat}: {percent:.0} % {what} in steps {first} to {last}");
            let link = format!("episodes?step={first}..{last}&flag={flag}&seat={seat}");
            found.push(Notice::problem(text, Some(first), Some(link)));
        }
    }
    found
}

/// Returns a notice on the largest fall of the score, if it needs attention.
fn fall_notice(fall: Option<&Fall>) -> Option<Notice> {
    let Fall { step, before, scores: [old, new], .. } = *fall.filter(|fall| fall.is_problem())?;
    let text = format!("the score fell from {old:.3} in step {before} to {new:.3} in step {step}");
    Some(Notice::problem(text, Some(step.into()), Some(format!("step?step={step}"))))
}

/// Returns a notice on a seat whose reward is hacked in the last steps.
fn hacked_notice(HackedReward { seat, steps: [first, last] }: &HackedReward) -> Notice {
    let text = format!(
        "the reward of {seat} is hacked: in steps {first} to {last} it replies the same whatever is right, and reward parts \
         pay it"
    );
    let link = format!("episodes?step={first}..{last}&solved=0&sort=-reward&seat={seat}");
    Notice::problem(text, Some((*first).into()), Some(link))
}

/// Returns notices on seats whose reward rises from the first to the last third of the run while solved tasks do not.
fn unearned_notices(series: &Series) -> Vec<Notice> {
    let Some(solved) = outer_thirds(series, "rollout/solved") else { return Vec::new() };
    series.column_names().filter_map(|name| unearned_notice(series, name, &solved)).collect()
}

/// Means and steps of the first and the last third of some values.
struct OuterThirds {
    means: [f64; 2],
    /// First and last step of each.
    steps: [[u64; 2]; 2],
}

/// Returns the first and the last third of a column; `None` if they have fewer than three steps.
fn outer_thirds(series: &Series, name: &str) -> Option<OuterThirds> {
    let values = series.values_of(name);
    let third = values.len() / 3;
    if third < 3 {
        return None;
    }
    let parts = [&values[..third], &values[values.len() - third..]];
    Some(OuterThirds {
        means: parts.map(|part| part.iter().map(|v| v.1).sum::<f64>() / third as f64),
        steps: parts.map(|part| [part[0].0, part[third - 1].0]),
    })
}

/// Returns a notice on a column, if it is the reward of a seat that rises while solved tasks do not.
fn unearned_notice(series: &Series, name: &str, solved: &OuterThirds) -> Option<Notice> {
    let seat = name.strip_prefix("rollout/")?.strip_suffix("/reward_mean")?;
    let OuterThirds { means, steps: [[start, end], [first, last]] } = outer_thirds(series, name)?;
    let ([reward, reward_last], [solved, solved_last]) = (means, solved.means);
    let rises = reward_last - reward > 0.1 && solved_last - solved < 0.02;
    let text = format!(
        "{seat}: from steps {start} to {end} to steps {first} to {last}, its reward rose from {reward:.3} to \
         {reward_last:.3}, and solved tasks went from {:.1} to {:.1} %: it is rewarded for something else",
        100.0 * solved,
        100.0 * solved_last
    );
    let link = format!("episodes?step={first}..{last}&solved=0&sort=-reward&seat={seat}");
    rises.then(|| Notice::problem(text, Some(first), Some(link)))
}

/// Returns notices on verifiers whose values do not separate right from wrong answers of this run.
fn verifier_notices(series: &Series) -> Vec<Notice> {
    let names = series.column_names().filter(|name| name.starts_with("verifier/live_auc/"));
    names.filter_map(|name: &str| {
        let values = series.values_of(name);
        let (first, last) = (values.first()?, values.last()?);
        let part = name.strip_prefix("verifier/live_auc/")?;
        let text = format!(
            "the verifier of the reward part “{part}” tells right from wrong answers with an AUC of {:.2} in step {} \
             (chance is 0.5; {:.2} in step {}): its values are no measure of correct answers",
            last.1, last.0, first.1, first.0
        );
        (last.1 < 0.6).then(|| Notice::problem(text, Some(last.0), None))
    }).collect()
}

fn group_notices(series: &Series) -> Vec<Notice> {
    let flat = lasting_tail(&series.values_of("group/zero_std_frac"), 10, 0.8).map(|(first, last, mean)| {
        let text = format!(
            "{:.0} % of the groups have equal rewards in steps {first} to {last}: they teach nothing",
            100.0 * mean
        );
        Notice::problem(text, Some(last), Some(format!("groups?step={last}")))
    });
    let singletons = series.values_of("group/singletons");
    let single = singletons.iter().find(|(_, value)| *value > 0.0).map(|(step, value)| {
        let text = match *value {
            1.0 => format!("step {step} has a group of one, which is compared with nothing"),
            n => format!("step {step} has {n} groups of one, which are compared with nothing"),
        };
        Notice::problem(text, Some(*step), Some(format!("groups?step={step}")))
    });
    flat.into_iter().chain(single).collect()
}

/// Returns notices on updates: entropy, clipping, gradient norm, mismatch.
fn policy_notices(series: &Series) -> Vec<Notice> {
    let mut found = Vec::new();
    for name in series.column_names().filter(|name| name.starts_with("policy/")) {
        let values = series.values_of(name);
        let Some((policy, quantity)) = name["policy/".len()..].rsplit_once('/') else { continue };
        match quantity {
            "entropy" => {
                let start = values.first().map_or(0.0, |(_, value)| *value);
                let low = values.iter().find(|(_, value)| *value < start / 10.0);
                found.extend(low.map(|(step, value)| {
                    let text = format!(
                        "policy {policy}: entropy {value:.3} in step {step}, under a tenth of its start ({start:.3})"
                    );
                    Notice::problem(text, Some(*step), None)
                }));
            }
            "clip_frac_low" | "clip_frac_high" | "clip_frac_dual" => {
                let high = values.iter().find(|(_, value)| *value > 0.3);
                found.extend(high.map(|(step, value)| {
                    let percent = 100.0 * value;
                    let text = format!("policy {policy}: {percent:.0} % of tokens clipped in step {step}");
                    Notice::problem(text, Some(*step), None)
                }));
            }
            "grad_norm" => found.extend(first_spike(&values).map(|Spike { step, value, median, n }| {
                let text = format!(
                    "policy {policy}: gradient norm {value:.3} in step {step}, more than 10 times the median of the {n} steps \
                     before ({median:.3})"
                );
                Notice::problem(text, Some(step), None)
            })),
            _ => {}
        }
    }
    found
}

/// Value far above the median of those of `n` steps before.
struct Spike {
    step: u64,
    value: f64,
    median: f64,
    n: usize,
}

/// Returns the first value above 10 times the median of 5 to 101 values before it.
fn first_spike(values: &[(u64, f64)]) -> Option<Spike> {
    (5..values.len().min(10_000)).find_map(|at| {
        let before = &values[at.saturating_sub(101)..at];
        let (median, n) = (median(before.iter().map(|v| v.1).collect()), before.len());
        let (step, value) = values[at];
        (median > 0.0 && value > 10.0 * median).then_some(Spike { step, value, median, n })
    })
}

/// Returns a notice on the slowest of the steps that take more than 3 times, and a second more than, the median of the up to
/// 101 steps around them, with the part of the step that grew most.
fn slow_notice(series: &Series) -> Option<Notice> {
    let values = series.values_of("time/step_s");
    let slow = values.iter().take(10_000).filter_map(|&(step, seconds)| {
        let usual = usual_around(&values, step)?;
        (seconds > 3.0 * usual && seconds > usual + 1.0).then_some((step, seconds, usual))
    });
    let all: Vec<_> = slow.collect();
    let (step, seconds, median) = *all.iter().max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
    let parts = [("rollout", "time/rollout_s"), ("update", "time/update_s")];
    let grown = parts.into_iter().filter_map(|(part, name)| {
        let values = series.values_of(name);
        let (_, seconds) = *values.iter().find(|(other, _)| *other == step)?;
        Some((part, seconds - usual_around(&values, step)?))
    });
    let most = grown.max_by(|a, b| a.1.total_cmp(&b.1));
    let part =
        most.map_or_else(String::new, |(part, by)| format!(", {by:.1} s of it in the {part}"));
    let others = match all.len() {
        1 => String::new(),
        n => format!("; {n} steps took more than 3 times as long as those around them"),
    };
    let by = seconds - median;
    let text = format!(
        "step {step} took {seconds:.1} s, {by:.1} s more than the median of the steps around it ({median:.1} s){part}{others}"
    );
    Some(Notice::problem(text, Some(step), Some(format!("timeline?step={step}"))))
}

/// Returns the median of the up to 101 values around a step; `None` with fewer than six.
fn usual_around(values: &[(u64, f64)], step: u64) -> Option<f64> {
    let at = values.partition_point(|(other, _)| *other < step);
    let around = &values[at.saturating_sub(50)..values.len().min(at + 51)];
    (around.len() > 5).then(|| median(around.iter().map(|v| v.1).collect()))
}

fn preemption_notices(series: &Series) -> Vec<Notice> {
    let names = series.column_names().filter(|name| name.ends_with("/preemptions"));
    names.filter_map(|name: &str| {
        let values = series.values_of(name);
        let half = values.len() / 2;
        let [first, second] = [&values[..half], &values[half..]]
            .map(|part| part.iter().map(|(_, value)| value).sum::<f64>());
        let policy = name.strip_prefix("engine/")?.strip_suffix("/preemptions")?;
        (second > 2.0 * first && second > 0.0).then(|| {
            let text = format!(
                "policy {policy}: {second} preemptions from step {} on, {first} before: `runtime.kv_mib` is too small",
                values[half].0
            );
            Notice::problem(text, values.last().map(|(step, _)| *step), None)
        })
    }).collect()
}

/// Returns checks that found nothing.
fn fine_notices(series: &Series) -> Vec<Notice> {
    let mut found = Vec::new();
    let unscored = series.values_of("rollout/unscored");
    if !unscored.is_empty() && unscored.iter().all(|(_, value)| *value == 0.0) {
        found.push(Notice::fine("every training episode was scored".to_owned()));
    }
    let names = series
        .column_names()
        .filter(|name| name.ends_with("/logp_abs_max") && is_measured(series, name));
    let largest = names.flat_map(|name| series.values_of(name)).map(|(_, value)| value);
    if let Some(largest) = largest.max_by(f64::total_cmp) {
        let text = match largest {
            0.0 => "log-probs of rollout and trainer are equal".to_owned(),
            _ => format!("log-probs of rollout and trainer differ by at most {largest:.1e}"),
        };
        let level = if largest > 1e-3 { "problem" } else { "fine" };
        found.push(Notice { level, text, step: None, link: None });
    }
    found
}

/// Returns true if a mismatch of a policy was measured: not on given replies, nor on pairs of replies, which have no ratio to
/// the sampler and whose mismatch is recorded as 0. That of replies of earlier weights is no mismatch of rollout and trainer.
fn is_measured(series: &Series, name: &str) -> bool {
    let policy = name.strip_prefix("mismatch/").and_then(|name| name.strip_suffix("/logp_abs_max"));
    let pairs = policy.map(|policy| format!("policy/{policy}/pair_accuracy"));
    !series.values_of("rollout/episodes").is_empty()
        && series.values_of("async/staleness_max").is_empty()
        && pairs.is_none_or(|pairs| series.values_of(&pairs).is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn series(name: &str, value: impl Fn(u64) -> f64) -> Series {
        let mut series = Series::default();
        for step in 1..=30 {
            let row = serde_json::json!({ "step": step, name: value(step) });
            series.add_line(row.to_string().as_bytes());
        }
        series
    }

    fn problems(series: &Series) -> Vec<String> {
        sentences(series, &Evidence::default())
    }

    fn sentences(series: &Series, evidence: &Evidence<'_>) -> Vec<String> {
        let all = find_notices(series, evidence).into_iter();
        all.filter(Notice::is_problem).map(|notice| notice.text).collect()
    }

    #[test]
    fn each_rule_fires_on_its_sign_with_its_number_and_not_without() {
        type Sign<'s> = (&'s str, &'s dyn Fn(u64) -> f64, &'s str);
        let signs: [Sign<'_>; 11] = [
            ("rollout/unscored", &|s| f64::from(s == 4), "1 training episode could"),
            ("rollout/a/b/reply_error_rate", &|s| if s > 20 { 0.4 } else { 0.0 }, "a/b: 40 %"),
            ("rollout/a/b#2/truncated_rate", &|_| 0.2, "a/b#2: 20 %"),
            ("group/zero_std_frac", &|s| if s > 20 { 0.9 } else { 0.1 }, "90 % of the groups"),
            ("verifier/live_auc/v", &|s| 1.0 - 0.015 * s as f64, "AUC of 0.55 in step 30"),
            ("group/singletons", &|s| if s == 3 { 2.0 } else { 0.0 }, "step 3 has 2 groups"),
            ("group/singletons", &|s| if s == 3 { 1.0 } else { 0.0 }, "step 3 has a group of one,"),
            ("policy/p/entropy", &|s| 1.0 / s as f64, "entropy 0.091 in step 11"),
            ("policy/p/clip_frac_high", &|s| s as f64 / 60.0, "32 % of tokens clipped in step 19"),
            (
                "time/step_s",
                &|s| if [2, 20].contains(&s) { 10.0 + s as f64 } else { 2.0 },
                "step 20 took 30.0 s, 28.0 s more than the median of the steps around it (2.0 s); 2 steps took more",
            ),
            (
                "policy/p/grad_norm",
                &|s| if s == 9 { 50.0 } else { 1.0 },
                "norm 50.000 in step 9, more than 10 times the median of the 8 steps before (1.000)",
            ),
        ];
        for (name, value, expected) in signs {
            let found = problems(&series(name, value));
            assert!(found.len() == 1 && found[0].contains(expected), "{name}: {found:?}");
            assert_eq!(
                problems(&series(name, |_| 0.01)).len(),
                usize::from(["gleton", "unscored", "auc"].iter().any(|part| name.contains(part))),
                "{name}"
            );
        }
        let with = |names: &[&str], mismatch: f64| {
            let mut series = series("mismatch/p/logp_abs_max", |_| mismatch);
            for (name, step) in names.iter().flat_map(|name| (1..=30).map(move |step| (name, step)))
            {
                series.add_line(
                    serde_json::json!({ "step": step, *name: 1.0 }).to_string().as_bytes(),
                );
            }
            series
        };
        let played = "rollout/episodes";
        assert_eq!(problems(&with(&[played], 0.01)).len(), 1);
        let praised = |names: &[&str]| {
            let all = find_notices(&with(names, 0.0), &Evidence::default());
            all.iter().any(|notice| notice.text.contains("log-probs of rollout and trainer"))
        };
        assert!(praised(&[played]) && praised(&[played, "policy/other/pair_accuracy"]));
        assert!(problems(&with(&[played, "async/staleness_max"], 0.01)).is_empty());
        // Given replies, pairs of replies, and replies of earlier weights.
        for names in [
            &[][..],
            &["policy/p/pair_accuracy"],
            &[played, "policy/p/pair_accuracy"],
            &[played, "async/staleness_max"],
        ] {
            assert!(!praised(names), "{names:?}");
        }
        let short = |s| if s == 9 { 1.0 } else { 0.1 };
        assert!(problems(&series("time/step_s", short)).is_empty(), "less than a second more");
        let mut parts = series("time/step_s", |s| if s == 2 { 9.0 } else { 2.0 });
        for step in 1..=30 {
            let (rollout, update) = if step == 2 { (3.0, 6.0) } else { (1.5, 0.5) };
            let row = serde_json::json!({
                "step": step, "time/rollout_s": rollout, "time/update_s": update,
            });
            parts.add_line(row.to_string().as_bytes());
        }
        let found = problems(&parts);
        assert!(
            found.len() == 1 && found[0].ends_with("(2.0 s), 5.5 s of it in the update"),
            "{found:?}"
        );
        assert_eq!(problems(&series("engine/p/preemptions", |s| s as f64)).len(), 1);
    }

    #[test]
    fn a_reward_that_rises_without_solved_tasks_is_told() {
        let run = |solved: fn(u64) -> f64| {
            let mut series = Series::default();
            for step in 1..=30 {
                let reward = 0.2 + 0.02 * step as f64;
                let row = serde_json::json!({
                    "step": step, "rollout/solved": solved(step), "rollout/a/b/reward_mean": reward,
                });
                series.add_line(row.to_string().as_bytes());
            }
            problems(&series)
        };
        let found = run(|_| 0.25);
        assert!(
            found.len() == 1
                && found[0].contains(
                    "a/b: from steps 1 to 10 to steps 21 to 30, its reward rose from 0.310"
                ),
            "{found:?}"
        );
        assert!(run(|step| 0.02 * step as f64).is_empty(), "tasks are solved");
    }

    #[test]
    fn a_gain_around_zero_and_warnings_are_told() {
        let none = Interval { mean: 0.01, low: -0.02, high: 0.04 };
        let warnings = [serde_json::json!({ "step": 3, "text": "slow" })];
        let evidence = Evidence { warnings: &warnings, gain: Some(none), ..Evidence::default() };
        let found = find_notices(&Series::default(), &evidence);
        assert!(found[0].text.contains("-0.020 to +0.040"), "{found:?}");
        assert_eq!((found[1].text.as_str(), found[1].step), ("slow", Some(3)));
        let good = Interval { mean: 0.1, low: 0.02, high: 0.14 };
        let of = |gain| {
            sentences(&Series::default(), &Evidence { gain: Some(gain), ..Evidence::default() })
        };
        assert!(of(good).is_empty());
        // Equal differences have no known interval.
        let equal = |mean| Interval { mean, low: f64::NAN, high: f64::NAN };
        assert_eq!(of(equal(0.0)), ["no held-out task has another result after training"]);
        assert!(of(equal(1.0)).is_empty());
    }

    #[test]
    fn a_fall_within_chance_is_no_notice_and_a_hacked_reward_is_one() {
        let fall =
            Fall { step: 17, before: 16, scores: [0.8, 0.5], beyond_chance: true, unusual: true };
        let of = |fall| {
            sentences(&Series::default(), &Evidence { fall: Some(fall), ..Evidence::default() })
        };
        assert_eq!(of(fall), ["the score fell from 0.800 in step 16 to 0.500 in step 17"]);
        assert!(of(Fall { beyond_chance: false, ..fall }).is_empty());
        assert!(of(Fall { unusual: false, ..fall }).is_empty());
        let hacked = [HackedReward { seat: "m/verifier".to_owned(), steps: [36, 40] }];
        let found =
            sentences(&Series::default(), &Evidence { hacked: &hacked, ..Evidence::default() });
        let start = "the reward of m/verifier is hacked: in steps 36 to 40 it replies the same";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    }
}
