//! Metrics of a step, and the statistics of episodes they are computed from.
//!
//! Names are `stage/subject/quantity`. No metric depends on a clock, so two equal runs write equal rows. A value that
//! is not finite is an error, never `null`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::IntoMap;
use crate::trajectory::{Episode, FaultKind, Outcome, Seat, Turn};

/// All kinds of faults. Each has a column, so that all rows of a run have the same columns.
const KINDS: [FaultKind; 9] = [
    FaultKind::Environment,
    FaultKind::Worker,
    FaultKind::Endpoint,
    FaultKind::Overflow,
    FaultKind::Timeout,
    FaultKind::Panic,
    FaultKind::Orchestra,
    FaultKind::Program,
    FaultKind::Crash,
];

/// Metrics, sorted by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(BTreeMap<String, f64>);

/// A metric is NaN or infinite.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("metric `{name}` is {value} in step {step}; the run stops rather than going on with it")]
pub struct NotFinite {
    /// Name of the metric.
    pub name: String,
    /// Value of the metric.
    pub value: f64,
    /// Step of the metric.
    pub step: u64,
}

impl Metrics {
    /// Sets a metric.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Returns the value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Adds all metrics of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Iterates over names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns a line of JSON: the step, then every metric by name.
    ///
    /// # Errors
    ///
    /// The first value that is not finite.
    pub fn row(&self, step: u64) -> Result<String, NotFinite> {
        let mut row = Map::from_iter([("step".to_owned(), Value::from(step))]);
        for (name, &value) in &self.0 {
            let finite = serde_json::Number::from_f64(value).ok_or_else(|| NotFinite {
                name: name.clone(),
                value,
                step,
            })?;
            row.insert(name.clone(), finite.into());
        }
        Ok(format!("{}\n", Value::Object(row)))
    }
}

impl<N: Into<String>> FromIterator<(N, f64)> for Metrics {
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(values: I) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into(), value)).into_map())
    }
}

/// Sums over the turns of one seat in scored episodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeatTotals {
    /// Number of turns.
    pub calls: u64,
    /// Number of turns with a malformed reply.
    pub reply_errors: u64,
    /// Number of turns with a truncated reply.
    pub truncated: u64,
    /// Number of characters cut from observations.
    pub shortened: u64,
    /// Number of conversations that were rendered again.
    pub forked: u64,
    /// Number of prompt tokens.
    pub prompt_tokens: u64,
    /// Number of sampled tokens.
    pub completion_tokens: u64,
    /// Sum of the turns' rewards.
    pub reward: f64,
}

/// Statistics of a seat in the summary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeatSummary {
    /// Number of turns in scored episodes.
    pub calls: u64,
    /// Share of turns with a malformed reply.
    pub reply_error_rate: f64,
    /// Share of turns with a truncated reply.
    pub truncated_rate: f64,
    /// Mean reward of a turn.
    pub reward_mean: f64,
}

impl SeatTotals {
    fn add_turn(&mut self, turn: &Turn, reward: f64) {
        self.calls += 1;
        self.reply_errors += u64::from(turn.error.is_some());
        self.truncated += u64::from(turn.truncated);
        self.shortened += turn.shortened as u64;
        self.forked += u64::from(turn.forked);
        if let Some(tokens) = &turn.tokens {
            self.prompt_tokens += tokens.prompt.len() as u64;
            self.completion_tokens += tokens.completion.len() as u64;
        }
        self.reward += reward;
    }

    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.reply_errors += other.reply_errors;
        self.truncated += other.truncated;
        self.shortened += other.shortened;
        self.forked += other.forked;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.reward += other.reward;
    }

    /// Returns the rates and means; all 0 for a seat that was never called.
    pub fn summary(&self) -> SeatSummary {
        SeatSummary {
            calls: self.calls,
            reply_error_rate: self.per_call(self.reply_errors as f64),
            truncated_rate: self.per_call(self.truncated as f64),
            reward_mean: self.per_call(self.reward),
        }
    }

    fn per_call(&self, sum: f64) -> f64 {
        sum / self.calls.max(1) as f64
    }
}

/// Returns sums by seat over the scored episodes. Turns that a branch has from another episode count there alone.
pub fn by_seat(episodes: &[Episode]) -> BTreeMap<Seat, SeatTotals> {
    let mut seats: BTreeMap<Seat, SeatTotals> = BTreeMap::new();
    for episode in episodes {
        let sampled = episode.turns.iter().enumerate();
        for (i, turn) in sampled.filter(|(_, turn)| !episode.recalls(&turn.path)) {
            if let Some(reward) = episode.turn_reward(i) {
                seats.entry(turn.seat.clone()).or_default().add_turn(turn, reward);
            }
        }
    }
    seats
}

/// Share of malformed replies from which the user is warned.
const NEARLY_ALL: f64 = 0.9;
/// Minimum number of replies for a warning.
const ENOUGH: usize = 8;
/// Maximum number of characters of a reply that is shown as an example.
const EXAMPLE: usize = 120;

/// Seats whose replies were nearly all malformed and for which the user was warned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Malformed(BTreeSet<Seat>);

impl Malformed {
    /// Returns warnings about seats whose replies are nearly all malformed: the most frequent reason, with an example.
    /// Each seat is reported once a run. Replies that a branch has from another episode count there alone.
    pub fn warning(&mut self, episodes: &[Episode]) -> Vec<String> {
        let mut replies: BTreeMap<&Seat, Vec<&Turn>> = BTreeMap::new();
        for episode in episodes {
            for turn in episode.turns.iter().filter(|turn| !episode.recalls(&turn.path)) {
                replies.entry(&turn.seat).or_default().push(turn);
            }
        }
        let mut warnings = Vec::new();
        for (seat, turns) in replies {
            let mut reasons: BTreeMap<&str, Vec<&Turn>> = BTreeMap::new();
            for turn in &turns {
                if let Some(error) = &turn.error {
                    reasons.entry(error).or_default().push(turn);
                }
            }
            let malformed: usize = reasons.values().map(Vec::len).sum();
            let few = turns.len() < ENOUGH || (malformed as f64) < NEARLY_ALL * turns.len() as f64;
            // Equally frequent reasons are ordered by name, so that equal runs print the same warning.
            let most = reasons.iter().rev().max_by_key(|(_, turns)| turns.len());
            if let Some((reason, examples)) = most
                && !few
                && self.0.insert(seat.clone())
            {
                let (n, all, most) = (malformed, turns.len(), examples.len());
                let example = shorten_text(&examples[0].reply);
                warnings.push(format!(
                    "{n} of {all} replies of `{seat}` could not be read, {most} of them because: {reason}; the first such \
                     reply is {example:?}. This is said once"
                ));
            }
        }
        warnings
    }
}

/// Metric of episodes whose program ended while it played. The gateway gives each scored episode 0 or 1.
const CRASHES: &str = "gateway/crashes";
/// Number of steps whose crashes are compared with those of as many steps before them.
const SPAN: usize = 10;
/// Growth of the number of crashes from which the user is warned.
const GROWTH: u64 = 3;

/// Number of episodes whose program crashed, of each of the last steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Crashes(VecDeque<u64>);

impl Crashes {
    /// Adds the episodes of a step. Returns a warning if the last ten steps have three times the crashes of the ten steps
    /// before them.
    pub fn warning(&mut self, episodes: &[Episode]) -> Option<String> {
        self.0.push_back(crashes(episodes)?);
        if self.0.len() > 2 * SPAN {
            self.0.pop_front();
        }
        let before: u64 = self.0.iter().take(SPAN).sum();
        let last: u64 = self.0.iter().skip(SPAN).sum();
        let many = self.0.len() == 2 * SPAN && last >= ENOUGH as u64 && last >= GROWTH * before;
        many.then(|| {
            format!(
                "programs crashed in {last} episodes of the last {SPAN} steps, and in {before} of the {SPAN} steps before \
                 them: a policy can avoid a bad score by a reply that breaks its program. Let the program exit with 65 if it \
                 cannot read a reply, or set `orchestra.on_crash = \"score\"`. This is said once"
            )
        })
    }
}

/// Metric of episodes whose program ended with exit code 0 and without a report. The gateway gives each scored episode 0 or
/// 1.
pub(crate) const UNREPORTED: &str = "gateway/unreported";

/// Returns a warning if no program of the scored episodes reported an answer or a reward.
pub fn unreported_warning(episodes: &[Episode]) -> Option<String> {
    let marks = episodes.iter().filter_map(|episode| episode.score()?.metrics.get(UNREPORTED));
    let marks: Vec<bool> = marks.map(|mark| mark.as_f64() != Some(0.0)).collect();
    (!marks.is_empty() && marks.iter().all(|mark| *mark)).then(|| {
        format!(
            "all {} programs ended with exit code 0 and without a report, so no answer was judged: print one line of JSON with \
             `answer` or `reward`, such as {{\"answer\": \"4\"}}, or call `finish`. This is said once",
            marks.len()
        )
    })
}

/// Returns the number of episodes whose program ended while it played; `None` if no program played.
fn crashes(episodes: &[Episode]) -> Option<u64> {
    let crashed = episodes.iter().filter_map(|episode| match &episode.outcome {
        Outcome::Scored(score) => Some(score.metrics.get(CRASHES)?.as_f64()? > 0.0),
        Outcome::Unscored(fault) => (fault.kind == FaultKind::Crash).then_some(true),
    });
    crashed.map(u64::from).reduce(|sum, one| sum + one)
}

/// Returns the start of a text.
fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(EXAMPLE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the number of unscored episodes by kind, with every kind listed.
pub fn unscored_counts(episodes: &[Episode]) -> BTreeMap<FaultKind, u64> {
    let mut kinds: BTreeMap<FaultKind, u64> = KINDS.into_iter().map(|kind| (kind, 0)).into_map();
    for episode in episodes {
        if let Outcome::Unscored(fault) = &episode.outcome {
            *kinds.entry(fault.kind).or_default() += 1;
        }
    }
    kinds
}

/// Computes the metrics of a step's episodes: `rollout/..` for the team, `rollout/<seat>/..` for each seat. Means are
/// over scored episodes and their turns; a mean over no value is left out.
pub fn rollout(episodes: &[Episode]) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.set("rollout/episodes", episodes.len() as f64);
    let faults = unscored_counts(episodes);
    metrics.set("rollout/unscored", faults.values().sum::<u64>() as f64);
    for (kind, n) in faults {
        metrics.set(format!("rollout/unscored/{}", kind.name()), n as f64);
    }
    metrics.extend(means(episodes));
    if let Some(n) = crashes(episodes) {
        metrics.set(CRASHES, n as f64);
    }
    for (seat, totals) in by_seat(episodes) {
        let values = [
            ("turns", totals.calls as f64),
            ("reward_mean", totals.per_call(totals.reward)),
            ("reply_error_rate", totals.per_call(totals.reply_errors as f64)),
            ("truncated_rate", totals.per_call(totals.truncated as f64)),
            ("prompt_tokens_mean", totals.per_call(totals.prompt_tokens as f64)),
            ("completion_tokens_mean", totals.per_call(totals.completion_tokens as f64)),
            ("shortened_chars", totals.shortened as f64),
            ("forked", totals.forked as f64),
        ];
        for (quantity, value) in values {
            metrics.set(format!("rollout/{seat}/{quantity}"), value);
        }
    }
    metrics
}

/// Computes means over the scored episodes: score, its named quantities, and reward parts by name; if a mixture has
/// several components, also of each component.
fn means(episodes: &[Episode]) -> Metrics {
    let mut sums: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    let several =
        episodes.windows(2).any(|pair| pair[0].task.component() != pair[1].task.component());
    for (name, value) in episodes.iter().flat_map(|episode| scored_values(episode, several)) {
        let (sum, n) = sums.entry(name).or_default();
        *sum += value;
        *n += 1;
    }
    let scored = sums.get("rollout/solved").map_or(0, |(_, n)| *n);
    sums.into_iter()
        .map(|(name, (sum, n))| {
            // An episode without this reward part counts as 0.
            let n = if name.starts_with("rollout/reward/") { scored } else { n };
            (name, sum / n as f64)
        })
        .collect()
}

/// Returns the values of a scored episode whose means are metrics, by name; those of its component too if there are
/// `several`.
fn scored_values(episode: &Episode, several: bool) -> Vec<(String, f64)> {
    let Some(score) = episode.score() else { return Vec::new() };
    let solved = f64::from(score.solved);
    let mut values = vec![
        ("rollout/solved".to_owned(), solved),
        ("rollout/score_mean".to_owned(), score.reward),
        ("rollout/turns_mean".to_owned(), episode.turns.len() as f64),
    ];
    if several {
        let component = episode.task.component();
        values.push((format!("rollout/mixture/{component}/solved"), solved));
        values.push((format!("rollout/mixture/{component}/score_mean"), score.reward));
    }
    for (name, value) in &score.metrics {
        if let Some(value) = value.as_f64() {
            // Those of the gateway are about calls, not about the answer.
            let stage = if name.starts_with("gateway/") { "" } else { "rollout/score/" };
            values.push((format!("{stage}{name}"), value));
        }
    }
    let parts = episode.rewards.iter();
    values.extend(parts.map(|part| (format!("rollout/reward/{}", part.name), part.value)));
    values
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::{Fault, RewardOf, RewardPart};

    #[test]
    fn a_row_is_the_step_and_then_the_metrics_by_name() {
        let metrics: Metrics =
            [("rollout/solved", 0.5), ("eval/test/avg", 0.1)].into_iter().collect();
        let row = metrics.row(12).unwrap();
        assert_eq!(row, "{\"step\":12,\"eval/test/avg\":0.1,\"rollout/solved\":0.5}\n");
    }

    #[test]
    fn a_metric_that_is_not_finite_is_an_error_with_its_name() {
        let metrics: Metrics = [("policy/small/loss", f64::NAN)].into_iter().collect();
        let error = metrics.row(3).unwrap_err().to_string();
        assert!(error.contains("`policy/small/loss` is NaN in step 3"), "{error}");
    }

    #[test]
    fn nearly_all_replies_malformed_are_told_of_once_with_the_commonest_reason_and_an_example() {
        let mut episodes: Vec<Episode> = (0..10).map(|i| episode("a", i, true, 1)).collect();
        let mut malformed = Malformed::default();
        for (i, episode) in episodes.iter_mut().take(9).enumerate() {
            let turn = &mut episode.turns[0];
            turn.error = Some(if i < 3 { "it was cut off" } else { "no <answer> tag" }.into());
            turn.reply = format!("reply {i} {}", "and so on ".repeat(20));
        }
        assert_eq!(malformed.warning(&episodes[1..8]), [""; 0], "7 replies are too few");
        let told = malformed.warning(&episodes).remove(0);
        let start = "9 of 10 replies of `t/a` could not be read, 6 of them because: no <answer> tag; the first such \
                     reply is \"reply 3 and so on ";
        assert!(told.starts_with(start) && told.contains("...\""), "{told}");
        assert_eq!(malformed.warning(&episodes), [""; 0], "it is said once");
        episodes[0].turns[0].error = None;
        assert_eq!(Malformed::default().warning(&episodes), [""; 0], "8 of 10 are not nearly all");
    }

    #[test]
    fn recalled_replies_of_branches_are_no_further_malformed_replies() {
        let mut played = episode("a", 0, true, 1);
        played.turns.iter_mut().for_each(|turn| turn.error = Some("no <answer> tag".into()));
        let mut branch = played.clone();
        let at = branch.turns[0].path.clone();
        branch.branch = Some(crate::algo::testing::branch_point(0, at, (0, 1)));
        let episodes = [vec![played.clone()], vec![branch; ENOUGH]].concat();
        assert_eq!(Malformed::default().warning(&episodes), [""; 0], "one reply is too few");
        let told = Malformed::default().warning(&vec![played; ENOUGH]);
        assert!(told[0].starts_with(&format!("{ENOUGH} of {ENOUGH} replies")), "{told:?}");
    }

    #[test]
    fn crashes_are_counted_scored_or_not_and_their_growth_is_told_of() {
        let played = |crashed: bool| {
            let mut played = episode("a", 0, true, 1);
            if let Outcome::Scored(score) = &mut played.outcome {
                score.metrics.insert(CRASHES.to_owned(), u8::from(crashed).into());
            }
            played
        };
        let mut unscored = episode("a", 1, true, 1);
        unscored.outcome = Outcome::Unscored(Fault::new(FaultKind::Crash, "signal 9"));
        let count = |episodes: &[Episode]| rollout(episodes).get(CRASHES);
        assert_eq!(count(&[played(false), played(true), unscored.clone()]), Some(2.0));
        assert_eq!(count(&[played(false), played(false)]), Some(0.0));
        assert_eq!(count(&[episode("a", 0, true, 1)]), None, "no program played");
        let told = |first: usize, then: usize| {
            let mut crashes = Crashes::default();
            let of = |n: usize| [vec![unscored.clone(); n], vec![played(false)]].concat();
            let steps = [vec![of(first); SPAN], vec![of(then); SPAN]].concat();
            let mut warnings = steps.iter().map(|episodes| crashes.warning(episodes));
            assert!(warnings.by_ref().take(2 * SPAN - 1).all(|warning| warning.is_none()));
            warnings.next().unwrap()
        };
        let warning = told(1, 3).unwrap();
        assert!(
            warning.starts_with("programs crashed in 30 episodes of the last 10 steps, and in 10 "),
            "{warning}"
        );
        assert_eq!((told(1, 2), told(0, 0)), (None, None));
        assert!(told(0, 1).is_some());
    }

    #[test]
    fn programs_that_all_report_nothing_are_told_of() {
        let played = |unreported: u8| {
            let mut played = episode("a", 0, false, 1);
            if let Outcome::Scored(score) = &mut played.outcome {
                score.metrics.insert(UNREPORTED.to_owned(), unreported.into());
            }
            played
        };
        let told = unreported_warning(&[played(1), played(1)]).unwrap();
        assert!(told.starts_with("all 2 programs ended with exit code 0"), "{told}");
        assert_eq!(unreported_warning(&[played(1), played(0)]), None);
        assert_eq!(unreported_warning(&[episode("a", 0, true, 1)]), None, "no program played");
        assert_eq!(rollout(&[played(1), played(0)]).get(UNREPORTED), Some(0.5));
    }

    #[test]
    fn unscored_episodes_are_counted_and_leave_every_mean() {
        let mut bad = episode("b", 0, true, 5);
        bad.outcome = Outcome::Unscored(Fault::new(FaultKind::Environment, "down"));
        let mut wrong = episode("a", 1, false, 1);
        wrong.turns[0].error = Some("no tag".into());
        wrong.rewards.push(RewardPart {
            name: "invalid_reply".into(),
            value: -0.1,
            of: RewardOf::Turn(0),
        });
        let metrics = rollout(&[episode("a", 0, true, 3), wrong, bad]);
        let expected = [
            ("rollout/episodes", 3.0),
            ("rollout/unscored", 1.0),
            ("rollout/unscored/environment", 1.0),
            ("rollout/unscored/timeout", 0.0),
            ("rollout/solved", 0.5),
            ("rollout/turns_mean", 2.0),
            ("rollout/reward/invalid_reply", -0.05),
            ("rollout/t/a/turns", 4.0),
            ("rollout/t/a/reply_error_rate", 0.25),
            ("rollout/t/a/reward_mean", 2.9 / 4.0),
            ("rollout/t/a/completion_tokens_mean", 2.0),
        ];
        for (name, value) in expected {
            let found = metrics.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!((found - value).abs() < 1e-12, "{name}: {found} and not {value}");
        }
    }
}
