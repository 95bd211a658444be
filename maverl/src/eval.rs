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
mod interval;
mod parts;

pub use compare::{ComparedSystem, Comparison, Side, paired_interval};
pub use interval::Interval;
#[doc(hidden)]
pub use interval::{over_runs, student};

use interval::share;
use parts::{part_means, parts_line};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::IntoMap;
use crate::config::EvalConfig;
use crate::metrics::{Metrics, SeatSummary, by_seat, unscored_counts};
use crate::table::{Table, paragraphs};
use crate::trajectory::{Episode, Outcome, Seat};

/// Maximum number of reasons in a message.
const CAUSES: usize = 3;

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
    /// Mean of each part of the reward that `[rewards]` declares, over scored episodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
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
        let mut tasks = Vec::with_capacity(tally.len());
        for (&(source, id), &counts) in &tally {
            sources.entry(source.to_owned()).or_default().push(counts);
            let ((episodes, solved, reward), id) = (counts, id.to_owned());
            let (source, score) = (source.to_owned(), reward / f64::from(episodes));
            tasks.push(TaskScore { source, id, episodes, solved, score });
        }
        let all: Vec<(u32, u32, f64)> = tally.into_values().collect();
        Some(Self {
            split: spec.split.clone(),
            samples: spec.samples,
            temperature: spec.temperature,
            unscored: unscored_counts(episodes).values().sum(),
            causes: causes(episodes),
            overall: Solved::of(&all, spec.samples)?,
            sources: sources
                .into_iter()
                .filter_map(|(name, counts)| Some((name, Solved::of(&counts, spec.samples)?)))
                .into_map(),
            agents: by_seat(episodes)
                .iter()
                .map(|(seat, totals)| (seat.clone(), totals.summary()))
                .into_map(),
            rewards: part_means(episodes),
            tasks,
        })
    }

    /// Returns the report with the means of these parts of the reward alone; one that no episode has is 0.
    #[must_use]
    pub(crate) fn with_declared_parts<'n>(
        mut self,
        declared: impl IntoIterator<Item = &'n String>,
    ) -> Self {
        let mean = |name: &String| self.rewards.get(name).copied().unwrap_or_default();
        self.rewards = declared.into_iter().map(|name| (name.clone(), mean(name))).into_map();
        self
    }

    /// Returns the share of solved episodes: the mean over tasks.
    pub fn exact_match(&self) -> f64 {
        self.overall.avg.mean
    }

    /// Returns the message about unscored episodes.
    pub fn left_out(&self) -> Option<String> {
        let Self { unscored, split, .. } = self;
        if *unscored == 0 {
            return None;
        }
        let all = self.overall.episodes + unscored;
        let causes = self.causes.join("; ");
        let because = if causes.is_empty() { causes } else { format!(": {causes}") };
        Some(format!(
            "{unscored} of {all} episodes on `{split}` could not be scored and count nowhere{because}"
        ))
    }

    /// Returns the metrics of the report, named `eval/<name>/..`.
    pub fn metrics(&self, name: &str) -> Metrics {
        let mut metrics = Metrics::default();
        self.overall.set_metrics(&mut metrics, &format!("eval/{name}"));
        if self.sources.len() > 1 {
            for (source, on) in &self.sources {
                on.set_metrics(&mut metrics, &format!("eval/{name}/{source}"));
            }
        }
        metrics.set(format!("eval/{name}/unscored"), self.unscored as f64);
        for (part, mean) in &self.rewards {
            metrics.set(format!("eval/{name}/reward/{part}"), *mean);
        }
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
        let mut table = Table::with_frame(head);
        for (name, on) in &self.sources {
            table.row(on.table_row(name, &ks));
        }
        if self.sources.len() != 1 {
            table.row(self.overall.table_row("all", &ks));
        }
        let parts = parts_line(&self.rewards);
        let notes = self.short_tasks().into_iter().chain(self.left_out()).chain(parts);
        let notes = notes.map(|what| format!("\n{}", paragraphs(&what, width)));
        notes.fold(table.draw(width), |table, note| table + &note)
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
        let (mut pass, mut pass_left_out) = (BTreeMap::new(), BTreeMap::new());
        for k in powers_up_to(samples) {
            let enough = counts.iter().filter(|&&(n, ..)| n >= k);
            let values: Vec<f64> = enough.clone().map(|&(n, c, _)| pass_at_k(n, c, k)).collect();
            if let Some(share) = share(&values, enough.map(|&(n, ..)| u64::from(n)).sum()) {
                pass.insert(k, share);
            }
            if values.len() < counts.len() {
                pass_left_out.insert(k, (counts.len() - values.len()) as u64);
            }
        }
        Some(Self {
            tasks: counts.len() as u64,
            episodes,
            avg: share(&avg, episodes)?,
            pass,
            pass_left_out,
            score_mean: score / counts.len() as f64,
        })
    }

    /// Sets the metrics of the tasks, named `<prefix>/..`.
    fn set_metrics(&self, metrics: &mut Metrics, prefix: &str) {
        metrics.set(format!("{prefix}/exact_match"), self.avg.mean);
        metrics.set(format!("{prefix}/score_mean"), self.score_mean);
        for (k, pass) in self.pass.iter().filter(|(k, _)| **k > 1) {
            metrics.set(format!("{prefix}/pass@{k}"), pass.mean);
        }
    }

    /// Returns the row of a table with pass@k for each of `ks`.
    fn table_row(&self, name: &str, ks: &[u32]) -> Vec<String> {
        let (tasks, episodes) = (self.tasks.to_string(), self.episodes.to_string());
        let mut row = vec![name.to_owned(), tasks, episodes, self.avg.to_string()];
        row.extend(ks.iter().map(|k| self.pass.get(k).map_or("-".to_owned(), ToString::to_string)));
        row
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, FaultKind, RewardOf, RewardPart};

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
    fn a_report_of_a_run_has_the_declared_parts_of_the_reward_and_no_others() {
        let part = |name: &str| RewardPart { name: name.into(), value: 0.5, of: RewardOf::Episode };
        let mut one = episode("a", 0, true, 1);
        one.rewards = vec![part("style"), part("verdict"), part("overlong_reply")];
        let spec = EvalSpec { split: "test".into(), samples: 1, temperature: None, ask: None };
        let declared = ["style", "units"].map(str::to_owned);
        let report = EvalReport::of(&spec, &[one]).unwrap().with_declared_parts(&declared);
        let expected = [("style".to_owned(), 0.5), ("units".to_owned(), 0.0)];
        assert_eq!(report.rewards, expected.into());
    }

    #[test]
    fn nothing_scored_is_no_report() {
        let spec = EvalSpec { split: "test".into(), samples: 1, temperature: None, ask: None };
        assert_eq!(EvalReport::of(&spec, &[]), None);
    }
}
