//! A part of the reward that a function in a Python file gives.

use std::path::Path;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use maverl_kernels::sample::derive_seed;
use serde_json::{Map, Value, json};

use super::{ScoredItem, ScoredRewards, Scorer, Units};
use crate::config::{OnRewardError, PythonStyle, RewardPythonConfig};
use crate::python::{PoolLimits, PythonFile, PythonPool, REWARDS};
use crate::reward::Rewards;
use crate::trajectory::{Episode, RewardOf};

/// Number of units that are scored twice, to see that their values depend on nothing else.
const PROBED: usize = 8;

/// A part of the reward by a Python function.
pub(crate) struct PythonReward {
    name: String,
    units: Units,
    on_error: OnRewardError,
    pool: PythonPool,
}

/// Values of an episode, with what the function said about them.
#[derive(Default)]
struct PythonValues {
    rewards: Rewards,
    skipped: u64,
    /// Number of units for which the function returned `None`.
    none: u64,
    /// Sum and number of each named part.
    parts: Map<String, Value>,
    counts: Vec<(String, f64, f64)>,
    feedback: Vec<String>,
}

impl PythonReward {
    /// Starts the processes of a configuration, whose paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the file cannot be loaded, or its function cannot be called.
    pub(crate) fn new(
        name: &str,
        config: &RewardPythonConfig,
        base: &Path,
    ) -> Result<Self, String> {
        let RewardPythonConfig { of, seats, send, on_error, .. } = config.clone();
        let function = config.function.as_deref().unwrap_or(name).to_owned();
        let arguments =
            vec![function, style_name(config.style).to_owned(), json!(send).to_string()];
        let pool = PythonPool::start(file_of(config, base), REWARDS, arguments, limits_of(config))?;
        Ok(Self { name: name.to_owned(), units: Units { of, seats, send }, on_error, pool })
    }

    async fn values(&self, episode: &Episode) -> Result<ScoredRewards, String> {
        let items = self.units.items(episode);
        let asked = items.iter().map(|(of, item)| self.pool.score(self.item(episode, of, item)));
        let answers = join_all(asked).await;
        let mut values = PythonValues::default();
        for ((of, _), answer) in items.into_iter().zip(answers) {
            match (answer, self.on_error) {
                (Ok(answer), _) => values.add(of, &answer),
                (Err(_), OnRewardError::Skip) if !self.pool.is_broken() => values.skipped += 1,
                (Err(error), _) => return Err(with_remedy(&error, self.on_error)),
            }
        }
        Ok(values.scored(&self.name, self.on_error))
    }

    /// Returns the item of a unit as the process reads it.
    fn item(&self, episode: &Episode, of: &RewardOf, item: &ScoredItem) -> Value {
        let turn = item.turn.unwrap_or(episode.turns.len());
        let mut value = json!({
            "seed": derive_seed(episode.seed, turn as u64),
            "task": episode.task.id,
            "source": episode.task.source,
            "question": episode.task.question,
            "fields": item.data,
            "seat": item.seat,
            "turn": item.turn,
            "prompt": item.messages,
            "reply": item.completion,
            "answer": episode.answer,
        });
        if self.pool.greeting["ids"] == true
            && let RewardOf::Turn(turn) = of
            && let Some(tokens) = &episode.turns[*turn].tokens
        {
            value["completion_ids"] = json!(tokens.completion);
        }
        value
    }
}

impl PythonValues {
    fn add(&mut self, of: RewardOf, answer: &Value) {
        match answer["reward"].as_f64() {
            Some(value) => self.rewards = std::mem::take(&mut self.rewards).of(of, value),
            None => self.none += 1,
        }
        for (name, value) in answer["parts"].as_object().into_iter().flatten() {
            let value = value.as_f64().unwrap_or(0.0);
            match self.counts.iter_mut().find(|(known, ..)| known == name) {
                Some((_, sum, n)) => (*sum, *n) = (*sum + value, *n + 1.0),
                None => self.counts.push((name.clone(), value, 1.0)),
            }
        }
        self.feedback.extend(answer["feedback"].as_str().map(str::to_owned));
    }

    /// Returns the values with their metrics: means of parts, and counts of units without a value.
    fn scored(mut self, name: &str, on_error: OnRewardError) -> ScoredRewards {
        self.parts.insert(format!("none/{name}"), self.none.into());
        for (part, sum, n) in &self.counts {
            self.parts.insert(format!("{name}/{part}"), json!(sum / n));
        }
        if !self.feedback.is_empty() {
            self.parts.insert(format!("feedback/{name}"), self.feedback.join("\n").into());
        }
        let skipped = (on_error == OnRewardError::Skip).then_some(self.skipped);
        ScoredRewards { rewards: self.rewards, skipped, metrics: self.parts }
    }
}

impl Scorer for PythonReward {
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        self.values(episode).boxed()
    }

    fn sources(&self) -> Vec<String> {
        self.pool.sources()
    }

    fn open_in(&self, dir: &Path) -> Result<(), String> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs)
            .and_then(|()| self.pool.write_logs(&logs, &format!("rewards.{}", self.name)))
            .map_err(|error| format!("cannot write logs into `{}`: {error}", logs.display()))
    }

    fn take_usage(&self) -> Vec<(&'static str, f64)> {
        let usage = self.pool.take_usage();
        let mean = if usage.requests == 0 { 0.0 } else { usage.seconds / usage.requests as f64 };
        vec![
            ("requests", usage.requests as f64),
            ("latency_s", mean),
            ("restarts", usage.restarts as f64),
            ("timeouts", usage.timeouts as f64),
            ("failed", usage.failed as f64),
        ]
    }
}

/// Returns the file of a configuration.
fn file_of(config: &RewardPythonConfig, base: &Path) -> PythonFile {
    let RewardPythonConfig { file, watch, python, env, .. } = config.clone();
    PythonFile { base: base.to_owned(), file, watch, python, env }
}

fn limits_of(config: &RewardPythonConfig) -> PoolLimits {
    let seconds = |value| Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
    PoolLimits {
        workers: config.workers.get(),
        batch: config.batch.get(),
        timeout: seconds(config.timeout_s),
        start_timeout: seconds(config.start_timeout_s),
        retries: config.retries,
        give_up_after: config.give_up_after.get(),
        probed: PROBED,
    }
}

fn style_name(style: PythonStyle) -> &'static str {
    match style {
        PythonStyle::Auto => "auto",
        PythonStyle::Maverl => "maverl",
        PythonStyle::Trl => "trl",
        PythonStyle::TrlChat => "trl_chat",
        PythonStyle::Verl => "verl",
    }
}

/// Adds what the user can write instead, unless the message says it.
fn with_remedy(error: &str, on_error: OnRewardError) -> String {
    let told = ["; return ", "; if ", "; use ", "; that was ", "; values of two"];
    if on_error == OnRewardError::Skip || told.iter().any(|part| error.contains(part)) {
        return error.to_owned();
    }
    format!("{error}; correct the function, return None for no value, or set `on_error = \"skip\"`")
}

#[cfg(test)]
mod tests;
