//! Evaluation: the share of held-out tasks that a team solves, with its confidence interval.
//!
//! ```text
//! avg@n   mean over tasks of c/n                          c of a task's n episodes solved it
//! pass@k  mean over tasks of 1 − C(n−c, k) / C(n, k)      unbiased; Chen et al., arXiv:2107.03374 eq. 1
//! ```
//!
//! The unit is the task; its episodes are independent samples of it. Intervals are Wilson's score interval at 95 % with
//! the effective number of independent samples `n_eff = p(1−p) / SE²`, where `SE` is the standard error of the mean
//! over tasks (Korn and Graubard, 1998). Its variance divides by `n - 1`; for one task it is unknown. `n_eff` is
//! clamped between the number of tasks and the number of episodes. With one episode per task this is Wilson's interval
//! itself. It never leaves `[0, 1]`, is never empty at 0 or 1, and needs no random numbers. pass@k is over the tasks with
//! at least `k` scored episodes, and its `n_eff` counts the episodes of these tasks alone.

mod compare;

pub use compare::{Comparison, Side, System, paired};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::IntoMap;
use crate::config::EvalConfig;
use crate::metrics::{Metrics, SeatSummary, by_seat, unscored};
use crate::table::{Table, paragraphs};
use crate::trajectory::{Episode, Outcome, Seat};

/// Maximum number of reasons in a message.
const CAUSES: usize = 3;
/// Quantile of the standard normal distribution for a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;
/// Difference of two shares or rewards that is rounding, times the first of them if that is above 1.
const ROUNDING: f64 = 1e-9;

/// A mean, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean over tasks.
    pub mean: f64,
    /// Lower end; NaN if unknown, which is `null` in JSON.
    #[serde(deserialize_with = "known_or_nan")]
    pub low: f64,
    /// Upper end; NaN if unknown.
    #[serde(deserialize_with = "known_or_nan")]
    pub high: f64,
}

impl Interval {
    /// Creates an interval with a known mean and unknown ends.
    pub(crate) fn unknown(mean: f64) -> Self {
        Self { mean, low: f64::NAN, high: f64::NAN }
    }

    /// Returns true if the ends are known.
    pub fn is_known(&self) -> bool {
        !self.low.is_nan() && !self.high.is_nan()
    }
}

/// Reads a number, or NaN for `null`.
fn known_or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Results of a team on some tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Solved {
    /// Number of tasks with a scored episode.
    pub tasks: u64,
    /// Number of scored episodes.
    pub episodes: u64,
    /// avg@n: share of solved episodes.
    pub avg: Interval,
    /// pass@k for 1, 2, 4, .. and the number of samples, over the tasks with at least k scored episodes.
    pub pass: BTreeMap<u32, Interval>,
    /// Number of tasks that pass@k leaves out because they have fewer than k scored episodes, for each k with such tasks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pass_left_out: BTreeMap<u32, u64>,
    /// Mean over tasks of the mean reward of the score.
    pub score_mean: f64,
}

/// Outcome of the episodes of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskScore {
    /// Source of the task.
    pub source: String,
    /// Id of the task.
    pub id: String,
    /// Number of scored episodes.
    pub episodes: u32,
    /// Number of episodes that solved the task.
    pub solved: u32,
    /// Mean reward of the score.
    pub score: f64,
}

/// Results of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EvalReport {
    /// Split of the tasks.
    pub split: String,
    /// Episodes per task: n of avg@n.
    pub samples: u32,
    /// Temperature, if it replaced that of the agents.
    pub temperature: Option<f32>,
    /// Number of episodes that could not be scored; they are excluded from all statistics.
    pub unscored: u64,
    /// First reasons for unscored episodes.
    #[serde(default)]
    pub causes: Vec<String>,
    /// Results on all tasks.
    pub overall: Solved,
    /// Results by data source.
    pub sources: BTreeMap<String, Solved>,
    /// Statistics by seat.
    pub agents: BTreeMap<Seat, SeatSummary>,
    /// Outcome of each task with a scored episode, by source and id.
    #[serde(default)]
    pub tasks: Vec<TaskScore>,
}

/// Specification of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalSpec {
    /// Split of the tasks.
    pub split: String,
    /// Episodes per task.
    pub samples: u32,
    /// Temperature of every agent; `None` keeps their own.
    pub temperature: Option<f32>,
    /// Instruction at the end of every prompt (`maverl collect --ask`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
}

impl EvalSpec {
    /// Returns the specification of a split by `[eval]`.
    pub fn new(eval: &EvalConfig, split: &str) -> Self {
        Self {
            split: split.to_owned(),
            samples: eval.samples.get(),
            temperature: eval.temperature,
            ask: None,
        }
    }
}

/// Tasks with `(scored, solved, sum of rewards)`, sorted, so that every sum has one order.
type Tally<'e> = BTreeMap<(&'e str, &'e str), (u32, u32, f64)>;

impl EvalReport {
    /// Computes the report on the episodes of an evaluation; `None` if none of them was scored.
    pub fn of(spec: &EvalSpec, episodes: &[Episode]) -> Option<Self> {
        let mut tally = Tally::new();
        for episode in episodes {
            let Some(score) = episode.score() else { continue };
            let key = (episode.task.source.as_str(), episode.task.id.as_str());
            let (n, c, reward) = tally.entry(key).or_default();
            *n += 1;
            *c += u32::from(score.solved);
            *reward += score.reward;
        }
        let mut sources: BTreeMap<String, Vec<(u32, u32, f64)>> = BTreeMap::new();
        for (&(source, _), &counts) in &tally {
            sources.entry(source.to_owned()).or_default().push(counts);
        }
        let outcome = |(&(source, id), &(episodes, solved, reward)): (&(&str, &str), &_)| {
            let (source, id) = (source.to_owned(), id.to_owned());
            TaskScore { source, id, episodes, solved, score: reward / f64::from(episodes) }
        };
        let tasks = tally.iter().map(outcome).collect();
        let all: Vec<(u32, u32, f64)> = tally.into_values().collect();
        let of = |counts: &[(u32, u32, f64)]| Solved::of(counts, spec.samples);
        Some(Self {
            split: spec.split.clone(),
            samples: spec.samples,
            temperature: spec.temperature,
            unscored: unscored(episodes).values().sum(),
            causes: causes(episodes),
            overall: of(&all)?,
            sources: sources
                .iter()
                .filter_map(|(name, counts)| Some((name.clone(), of(counts)?)))
                .into_map(),
            agents: by_seat(episodes)
                .iter()
                .map(|(seat, totals)| (seat.clone(), totals.summary()))
                .into_map(),
            tasks,
        })
    }

    /// Returns the share of solved episodes: the mean over tasks.
    pub fn exact_match(&self) -> f64 {
        self.overall.avg.mean
    }

    /// Returns the message about unscored episodes.
    pub fn left_out(&self) -> Option<String> {
        let all = self.overall.episodes + self.unscored;
        let said = || {
            let because = match self.causes.is_empty() {
                true => String::new(),
                false => format!(": {}", self.causes.join("; ")),
            };
            format!(
                "{} of {all} episodes on `{}` could not be scored and count nowhere{because}",
                self.unscored, self.split
            )
        };
        (self.unscored > 0).then(said)
    }

    /// Returns the metrics of the report, named `eval/<name>/..`.
    pub fn metrics(&self, name: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut solved = |prefix: &str, solved: &Solved| {
            metrics.set(format!("{prefix}/exact_match"), solved.avg.mean);
            metrics.set(format!("{prefix}/score_mean"), solved.score_mean);
            for (k, pass) in solved.pass.iter().filter(|(k, _)| **k > 1) {
                metrics.set(format!("{prefix}/pass@{k}"), pass.mean);
            }
        };
        solved(&format!("eval/{name}"), &self.overall);
        if self.sources.len() > 1 {
            for (source, on) in &self.sources {
                solved(&format!("eval/{name}/{source}"), on);
            }
        }
        metrics.set(format!("eval/{name}/unscored"), self.unscored as f64);
        for (seat, agent) in &self.agents {
            metrics.set(format!("eval/{name}/{seat}/reply_error_rate"), agent.reply_error_rate);
            metrics.set(format!("eval/{name}/{seat}/reward_mean"), agent.reward_mean);
        }
        metrics
    }

    /// Returns the messages about tasks that pass@k leaves out.
    fn short_tasks(&self) -> Vec<String> {
        let Solved { tasks, pass_left_out, .. } = &self.overall;
        let short = pass_left_out.iter().filter(|(k, _)| **k > 1).map(|(k, left_out)| {
            format!("pass@{k} leaves out {left_out} of {tasks} tasks with fewer than {k} scored episodes")
        });
        short.collect()
    }

    /// Formats the report as a table with a maximum width: a row for each source, and one for all. The numbers of
    /// excluded episodes and tasks follow below.
    pub fn table(&self, width: usize) -> String {
        let ks: Vec<u32> = self.overall.pass.keys().copied().filter(|&k| k > 1).collect();
        let pass = ks.iter().map(|k| format!("pass@{k} (95 %)"));
        let head = ["source", "tasks", "episodes"].into_iter().map(str::to_owned);
        let head = head.chain([format!("avg@{} (95 %)", self.samples)]).chain(pass);
        let mut table = Table::framed(head);
        let row = |name: &str, on: &Solved| {
            let pass =
                ks.iter().map(|k| on.pass.get(k).map_or("-".to_owned(), ToString::to_string));
            let head = [name.to_owned(), on.tasks.to_string(), on.episodes.to_string()];
            head.into_iter().chain([on.avg.to_string()]).chain(pass).collect::<Vec<_>>()
        };
        for (name, on) in &self.sources {
            table.row(row(name, on));
        }
        if self.sources.len() != 1 {
            table.row(row("all", &self.overall));
        }
        let notes = self.short_tasks().into_iter().chain(self.left_out());
        let notes = notes.map(|what| format!("\n{}", paragraphs(&what, width)));
        notes.fold(table.draw(width), |table, note| table + &note)
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_known() {
            true => write!(f, "{:.3} ({:.3} to {:.3})", self.mean, self.low, self.high),
            false => write!(f, "{:.3} (unknown)", self.mean),
        }
    }
}

impl Solved {
    fn of(counts: &[(u32, u32, f64)], samples: u32) -> Option<Self> {
        if counts.is_empty() {
            return None;
        }
        let avg: Vec<f64> = counts.iter().map(|&(n, c, _)| f64::from(c) / f64::from(n)).collect();
        let score = counts.iter().map(|&(n, _, reward)| reward / f64::from(n)).sum::<f64>();
        let episodes = counts.iter().map(|&(n, ..)| u64::from(n)).sum();
        let enough = |k: u32| counts.iter().filter(move |&&(n, ..)| n >= k);
        let pass = |k: u32| {
            let values: Vec<f64> = enough(k).map(|&(n, c, _)| pass_at_k(n, c, k)).collect();
            let drawn = enough(k).map(|&(n, ..)| u64::from(n)).sum();
            Some((k, share(&values, drawn)?))
        };
        let left_out = |k: u32| (k, (counts.len() - enough(k).count()) as u64);
        Some(Self {
            tasks: counts.len() as u64,
            episodes,
            avg: share(&avg, episodes)?,
            pass: powers_up_to(samples).filter_map(pass).into_map(),
            pass_left_out: powers_up_to(samples).map(left_out).filter(|(_, n)| *n > 0).into_map(),
            score_mean: score / counts.len() as f64,
        })
    }
}

/// Iterates over 1, 2, 4, .. below `k`, and `k`.
fn powers_up_to(k: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |k| k.checked_mul(2))
        .take_while(move |&power| power < k)
        .chain([k])
}

/// Returns the probability that at least one of `k` episodes, sampled without replacement from `n` of which `c` solved
/// the task, solved it: `1 − C(n−c, k) / C(n, k)`, as a product that never overflows. Requires `c ≤ n` and `k ≤ n`.
#[doc(hidden)]
pub fn pass_at_k(n: u32, c: u32, k: u32) -> f64 {
    assert!(c <= n && k <= n, "pass_at_k: {c} solved and {k} drawn of {n}");
    if n - c < k {
        return 1.0;
    }
    1.0 - (n - c + 1..=n).map(|i| 1.0 - f64::from(k) / f64::from(i)).product::<f64>()
}

/// Returns the mean of one value per run, with its 95 % interval by Student's t for a run from another seed. `None`
/// without a run. For one run, and for runs with equal values, the spread is unknown, and so is the interval.
#[doc(hidden)]
pub fn over_runs(values: &[f64]) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if are_equal(values) {
        return Some(Interval::unknown(mean));
    }
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let half = student(values.len() - 1) * (squares / (n - 1.0) / n).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half })
}

/// Returns true if no two values differ by more than rounding: 3/5 - 2/5 and 1/5 - 0/5 are not the same number.
fn are_equal(values: &[f64]) -> bool {
    let near = |pair: &[f64]| (pair[0] - pair[1]).abs() <= ROUNDING * pair[0].abs().max(1.0);
    values.windows(2).all(near)
}

/// Returns the quantile of Student's t distribution for a two-sided 95 % interval; NaN without degrees of freedom.
/// Above 30 degrees, Cornish and Fisher's expansion (Abramowitz and Stegun, 26.7.5).
#[doc(hidden)]
pub fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
        2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
        2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
        2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
    ];
    let Some(place) = freedom.checked_sub(1) else { return f64::NAN };
    if let Some(quantile) = TABLE.get(place) {
        return *quantile;
    }
    let v = freedom as f64;
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    Z + terms[0] / v + terms[1] / v.powi(2) + terms[2] / v.powi(3)
}

/// Returns the first reasons for unscored episodes, without repetition.
fn causes(episodes: &[Episode]) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for episode in episodes {
        if let Outcome::Unscored(fault) = &episode.outcome {
            let cause = fault.to_string();
            if causes.len() < CAUSES && !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
    causes
}

/// Returns the mean of one value in `[0, 1]` per task, with the interval of the module's documentation.
fn share(values: &[f64], episodes: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let variance = if values.len() > 1 { squares / (n - 1.0) } else { 0.0 };
    let draws = if variance > 0.0 {
        (mean * (1.0 - mean) * n / variance).clamp(n, (episodes as f64).max(n))
    } else {
        n
    };
    let scale = 1.0 + Z * Z / draws;
    let center = (mean + Z * Z / (2.0 * draws)) / scale;
    let half = Z / scale * (mean * (1.0 - mean) / draws + (Z / (2.0 * draws)).powi(2)).sqrt();
    Some(Interval { mean, low: (center - half).max(0.0), high: (center + half).min(1.0) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, FaultKind};

    /// Returns the share of all subsets of `k` of `n` episodes that contain one of the first `c`.
    fn brute_force(n: u32, c: u32, k: u32) -> f64 {
        let subsets: Vec<u32> = (0u32..1 << n).filter(|set| set.count_ones() == k).collect();
        let good = subsets.iter().filter(|&&set| set & ((1 << c) - 1) != 0).count();
        good as f64 / subsets.len() as f64
    }

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_solution() {
        for n in 1..=9 {
            for c in 0..=n {
                for k in 1..=n {
                    let (exact, counted) = (pass_at_k(n, c, k), brute_force(n, c, k));
                    assert!(
                        (exact - counted).abs() < 1e-12,
                        "n {n}, c {c}, k {k}: {exact}, {counted}"
                    );
                }
            }
        }
        assert!((pass_at_k(100_000, 1, 50_000) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn with_one_episode_a_task_the_interval_is_wilsons() {
        // 8 of 10: the textbook's 0.490 to 0.943.
        let values: Vec<f64> = (0..10).map(|i| f64::from(u8::from(i < 8))).collect();
        let estimate = share(&values, 10).unwrap();
        assert!((estimate.low - 0.490_162).abs() < 1e-5, "{estimate}");
        assert!((estimate.high - 0.943_318).abs() < 1e-5, "{estimate}");
        let none = share(&[0.0; 20], 20).unwrap();
        assert!(none.low == 0.0 && (none.high - 0.161_125).abs() < 1e-5, "{none}");
    }

    #[test]
    fn the_standard_error_divides_by_n_minus_1() {
        // Mean 1/2, s² = (1/4 + 1/4) / 3 = 1/6, SE² = 1/24, n_eff = 1/4 / (1/24) = 6; dividing by n it would be 8.
        let estimate = share(&[1.0, 0.5, 0.5, 0.0], 8).unwrap();
        let wilson = |n: f64| {
            let half = (0.25 / n + (Z / (2.0 * n)).powi(2)).sqrt() * Z / (1.0 + Z * Z / n);
            (0.5 - half, 0.5 + half)
        };
        let (low, high) = wilson(6.0);
        let off = (estimate.low - low).abs().max((estimate.high - high).abs());
        assert!(off < 1e-12, "{estimate}, not {low:.3} to {high:.3}");
        let one = share(&[0.5], 4).unwrap();
        assert!(one.low >= 0.0 && one.low < 0.5 && one.high > 0.5, "{one}");
    }

    #[test]
    fn runs_have_students_interval() {
        let Interval { mean, low, high } = over_runs(&[0.7, 0.8, 0.9]).unwrap();
        assert!((mean - 0.8).abs() < 1e-12);
        // s = 0.1; 4.302653 * 0.1 / sqrt(3)
        assert!(
            (high - mean - 0.248_413_8).abs() < 1e-6 && (mean - low - 0.248_413_8).abs() < 1e-6
        );
        assert!(over_runs(&[0.5]).unwrap().low.is_nan() && over_runs(&[]).is_none());
        for equal in [&[0.5; 2][..], &[1.0; 5], &[0.6 - 0.4, 0.2], &[1e9, 1e9 + 0.1]] {
            let interval = over_runs(equal).unwrap();
            assert!(
                !interval.is_known() && interval.mean == equal[0].midpoint(equal[1]),
                "{interval}"
            );
        }
        let falls = (1..200).all(|freedom| student(freedom) > student(freedom + 1));
        assert!(falls && student(0).is_nan() && student(1_000_000) - Z < 1e-5);
        for (freedom, quantile) in [(31, 2.039_513), (40, 2.021_075), (120, 1.979_930)] {
            assert!((student(freedom) - quantile).abs() < 1e-5, "{freedom}: {}", student(freedom));
        }
    }

    /// Returns the next of a fixed sequence of numbers in `[0, 1)` (SplitMix64).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn the_interval_covers_the_truth_95_times_in_100() {
        // Tasks differ in difficulty: each is solved with probability u² for u uniform, so the truth is 1/3.
        for (tasks, k) in [(60, 1u32), (60, 4), (300, 8)] {
            let mut state = 7;
            let trials = 2000;
            let covered = (0..trials).filter(|_| {
                let values: Vec<f64> = (0..tasks)
                    .map(|_| {
                        let chance = uniform(&mut state).powi(2);
                        let solved = (0..k).filter(|_| uniform(&mut state) < chance).count();
                        solved as f64 / f64::from(k)
                    })
                    .collect();
                let estimate = share(&values, tasks * u64::from(k)).unwrap();
                (estimate.low..=estimate.high).contains(&(1.0 / 3.0))
            });
            let coverage = covered.count() as f64 / f64::from(trials);
            assert!((0.93..=0.97).contains(&coverage), "{tasks} tasks of {k}: {coverage}");
        }
    }

    #[test]
    fn the_unit_is_the_task_and_sources_are_kept_apart() {
        let mut episodes = vec![
            episode("a", 0, true, 1),
            episode("a", 1, true, 1),
            episode("b", 0, false, 3),
            episode("b", 1, true, 3),
            episode("c", 0, false, 2),
            episode("c", 1, false, 2),
        ];
        episodes[4].task.source = "squad".into();
        episodes[5].task.source = "squad".into();
        episodes[5].outcome = Outcome::Unscored(Fault::new(FaultKind::Timeout, "600 s"));
        let spec = EvalSpec { split: "test".into(), samples: 2, temperature: None, ask: None };
        let report = EvalReport::of(&spec, &episodes).unwrap();
        assert_eq!(report.unscored, 1);
        let left_out =
            "1 of 6 episodes on `test` could not be scored and count nowhere: timeout: 600 s";
        assert!(report.table(80).ends_with(left_out), "{}", report.table(80));
        assert!((report.exact_match() - 0.5).abs() < 1e-12);
        assert!((report.sources["facts"].avg.mean - 0.75).abs() < 1e-12);
        assert_eq!(report.sources["squad"].episodes, 1);
        assert_eq!(report.sources["squad"].pass.keys().copied().collect::<Vec<_>>(), [1]);
        assert!((report.overall.pass[&2].mean - 1.0).abs() < 1e-12);
        assert_eq!(report.agents[&Seat::only("t/a")].calls, 10);
        assert!(report.table(80).contains("squad") && report.table(80).contains("all"));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<EvalReport>(&text).unwrap(), report);
    }

    #[test]
    fn pass_at_k_names_the_tasks_it_leaves_out_and_counts_the_episodes_of_the_others_alone() {
        // (scored, solved) of four tasks, two of which lost episodes.
        let of = |counts: &[(u32, u32)]| {
            let counts: Vec<_> = counts.iter().map(|&(n, c)| (n, c, f64::from(c))).collect();
            Solved::of(&counts, 4).unwrap()
        };
        let solved = of(&[(4, 1), (4, 2), (3, 3), (1, 0)]);
        assert_eq!(solved.pass_left_out, BTreeMap::from([(2, 1), (4, 2)]));
        let whole = of(&[(4, 1), (4, 2)]);
        assert_eq!(solved.pass[&4], whole.pass[&4], "two tasks of four episodes each");
        assert_eq!(solved.pass[&1], of(&[(4, 1), (4, 2), (3, 3), (1, 0)]).pass[&1]);
        assert_eq!(solved.pass[&2], of(&[(4, 1), (4, 2), (3, 3)]).pass[&2]);
        assert!(whole.pass_left_out.is_empty());
        let mut episodes: Vec<Episode> = (0..4).map(|i| episode("a", i, i < 2, 1)).collect();
        episodes.extend((0..2).map(|i| episode("b", i, i < 1, 1)));
        let spec = EvalSpec { split: "test".into(), samples: 4, temperature: None, ask: None };
        let report = EvalReport::of(&spec, &episodes).unwrap();
        let note = "pass@4 leaves out 1 of 2 tasks with fewer than 4 scored episodes";
        assert!(report.table(120).ends_with(note), "{}", report.table(120));
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains(r#""pass_left_out":{"4":1}"#), "{text}");
        assert_eq!(serde_json::from_str::<EvalReport>(&text).unwrap(), report);
    }

    #[test]
    fn nothing_scored_is_no_report() {
        let spec = EvalSpec { split: "test".into(), samples: 1, temperature: None, ask: None };
        assert_eq!(EvalReport::of(&spec, &[]), None);
    }
}
