//! A part of the reward that a language model gives, behind an endpoint: a score of a reply, or comparisons within a group.
//!
//! ```text
//! score   mean over samples of (verdict - low) / (high - low)
//! pairs   x_ij = 1, 0 or 1/2 if i is better, worse or equal;  reward_i = sum over j of x_ij / (m - 1)
//! ```
//!
//! With both orders, a pair whose verdicts contradict each other counts 1/2 (Zheng et al., arXiv:2306.05685, section 3.4).

mod cache;
mod number;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, try_join_all};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{ScoredItem, ScoredRewards, Scorer, Units};
use crate::config::{EndpointConfig, JudgeMode, JudgeOrders, OnRewardError, RewardJudgeConfig};
use crate::plan::Sampling;
use crate::reward::Rewards;
use crate::rollout::endpoint::Endpoint;
use crate::trajectory::{Episode, Message, RewardOf, Role};
use cache::VerdictCache;
use verdict::{Better, fenced, read_pair, read_score, render};

/// A part of the reward by a language model.
pub(crate) struct JudgeReward {
    name: String,
    config: RewardJudgeConfig,
    units: Units,
    rubric: String,
    /// Name of the model, part of the keys of verdicts.
    model: String,
    sampling: Sampling,
    endpoint: Arc<Endpoint>,
    cache: Arc<VerdictCache>,
    /// Path of the file of verdicts, if it is not in the run directory.
    shared: Option<PathBuf>,
    asked: AtomicU64,
    cached: AtomicU64,
}

impl JudgeReward {
    /// Creates the judge of a configuration. Paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// If the rubric cannot be read, or the shared file of verdicts.
    pub(crate) fn new(
        name: &str,
        config: &RewardJudgeConfig,
        (endpoint, settings): (Arc<Endpoint>, &EndpointConfig),
        base: &Path,
    ) -> Result<Self, String> {
        let path = base.join(&config.rubric);
        let rubric = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        let RewardJudgeConfig { of, seats, send, .. } = config.clone();
        let temperature = if config.samples.get() > 1 { 1.0 } else { 0.0 };
        let max_tokens = config.max_tokens.get();
        let model = settings.model.clone().or_else(|| settings.script.clone()).unwrap_or_default();
        let cache = Arc::new(VerdictCache::default());
        let shared = config.cache.as_ref().map(|path| base.join(path));
        if let Some(path) = &shared {
            cache.open(path)?;
        }
        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            units: Units { of, seats, send },
            rubric,
            model,
            sampling: Sampling { temperature, max_tokens, ..Sampling::default() },
            endpoint,
            cache,
            shared,
            asked: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        })
    }

    /// Scores the units of an episode.
    async fn scores(&self, episode: &Episode) -> Result<ScoredRewards, String> {
        if self.config.mode == JudgeMode::Pairs {
            return Ok(ScoredRewards::default());
        }
        let items = self.units.items(episode);
        let scores = join_all(items.iter().map(|(_, item)| self.score_of(item))).await;
        let mut echoes = 0_u64;
        let (mut rewards, mut skipped) = (Rewards::none(), 0);
        for ((of, item), score) in items.into_iter().zip(scores) {
            echoes += u64::from(self.echoes(&item));
            match (score, self.config.on_error) {
                (Ok(score), _) => rewards = rewards.of(of, score),
                (Err(_), OnRewardError::Skip) => skipped += 1,
                (Err(error), OnRewardError::Unscored) => return Err(error),
            }
        }
        let mut metrics = Map::new();
        metrics.insert(format!("echo/{}", self.name), echoes.into());
        let skipped = (self.config.on_error == OnRewardError::Skip).then_some(skipped);
        Ok(ScoredRewards { rewards, skipped, metrics })
    }

    /// Returns the mean verdict on an item, scaled to 0 to 1.
    async fn score_of(&self, item: &ScoredItem) -> Result<f64, String> {
        let mut values = self.item_values(item);
        values.insert("reply".to_owned(), fenced(item.completion.as_deref().unwrap_or_default()));
        let [low, high] = self.config.scale;
        let asked = (0..self.config.samples.get())
            .map(|sample| self.verdict(&values, sample, |text| read_score(&self.config, text)));
        let verdicts = try_join_all(asked).await?;
        let mean = verdicts.iter().sum::<f64>() / verdicts.len() as f64;
        Ok((mean - low) / (high - low))
    }

    /// Returns true if a reply has the form of a verdict.
    fn echoes(&self, item: &ScoredItem) -> bool {
        let reply = item.completion.as_deref().unwrap_or_default();
        verdict::is_verdict(&self.config, reply)
    }

    /// Returns the values of the rubric that are those of the task and the prompt.
    fn item_values(&self, item: &ScoredItem) -> BTreeMap<String, String> {
        let prompt: Vec<&str> = item.messages.iter().map(|message| &*message.content).collect();
        let question = item.task.as_ref().map(|task| task.question.clone());
        let mut values = BTreeMap::from([
            ("prompt".to_owned(), prompt.join("\n\n")),
            ("question".to_owned(), question.unwrap_or_default()),
        ]);
        for (key, value) in &item.data {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            values.insert(format!("task.{key}"), text);
        }
        values
    }

    /// Asks for a verdict. A malformed one is asked for once more.
    async fn verdict<T>(
        &self,
        values: &BTreeMap<String, String>,
        sample: usize,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let text = render(&self.rubric, values) + "\n\n" + &verdict::instruction(&self.config);
        let messages = vec![Message { role: Role::User, content: text }];
        let mut last = String::new();
        for attempt in 0..2 {
            let reply = self.reply(&messages, sample, attempt).await?;
            if let Some(verdict) = read(&reply) {
                return Ok(verdict);
            }
            last = reply;
        }
        let wanted = verdict::instruction(&self.config);
        let found: String = last.chars().take(80).collect();
        Err(format!(
            "the judge answered {found:?} twice, which is no verdict; it was told: {wanted}"
        ))
    }

    /// Returns a reply of the judge, which is asked once for each request.
    async fn reply(
        &self,
        messages: &[Message],
        sample: usize,
        attempt: u64,
    ) -> Result<String, String> {
        let request = json!([
            self.model,
            self.sampling.temperature,
            self.sampling.max_tokens,
            messages,
            sample,
            attempt,
        ]);
        let digest = Sha256::digest(request.to_string().as_bytes());
        let key: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let seed = digest.iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte));
        let seat = format!("judge/{}", self.name);
        self.asked.fetch_add(1, Ordering::Relaxed);
        let asking = self.endpoint.complete(&seat, messages, &self.sampling, seed);
        let (reply, known) = self.cache.reply(&key, asking).await?;
        self.cached.fetch_add(u64::from(known), Ordering::Relaxed);
        Ok(reply)
    }

    /// Compares the answers of a group, each with each.
    async fn pairs(&self, group: &[&Episode]) -> Vec<Result<ScoredRewards, String>> {
        let items: Vec<Option<ScoredItem>> = group
            .iter()
            .map(|episode| self.units.items(episode).pop().map(|(_, item)| item))
            .collect();
        let places: Vec<usize> = (0..group.len()).filter(|at| items[*at].is_some()).collect();
        let pairs: Vec<(usize, usize)> = places
            .iter()
            .flat_map(|&one| {
                places.iter().filter(move |&&other| one < other).map(move |&other| (one, other))
            })
            .collect();
        let compared = pairs.iter().map(|&(one, other)| self.pair(&items, one, other));
        let compared = join_all(compared).await;
        let mut tallies = vec![PairTally::default(); group.len()];
        for ((one, other), result) in pairs.into_iter().zip(compared) {
            tallies[one].add(&result, false);
            tallies[other].add(&result, true);
        }
        for (tally, item) in tallies.iter_mut().zip(&items) {
            tally.echoes = item.iter().filter(|item| self.echoes(item)).count() as u64;
        }
        let alone = places.len() < 2;
        tallies.into_iter().map(|tally| tally.rewards(self, alone)).collect()
    }

    /// Compares two answers, in one order or in both.
    async fn pair(
        &self,
        items: &[Option<ScoredItem>],
        one: usize,
        other: usize,
    ) -> Result<PairOutcome, String> {
        let (Some(first), Some(second)) = (&items[one], &items[other]) else {
            return Err("an answer is missing".to_owned());
        };
        if first.completion == second.completion {
            return Ok(PairOutcome { value: 0.5, tie: true, contradiction: false });
        }
        if self.config.orders == JudgeOrders::One {
            let swapped = first_order(first, second);
            let verdict = if swapped {
                self.better(second, first).await?
            } else {
                self.better(first, second).await?
            };
            let value = verdict.value(swapped);
            return Ok(PairOutcome { value, tie: verdict == Better::Tie, contradiction: false });
        }
        let (forward, backward) =
            futures::try_join!(self.better(first, second), self.better(second, first))?;
        let [there, back] = [forward.value(false), backward.value(true)];
        let agree = there.total_cmp(&back).is_eq();
        let value = if agree { there } else { 0.5 };
        Ok(PairOutcome { value, tie: agree && forward == Better::Tie, contradiction: !agree })
    }

    /// Asks which of two answers is better.
    async fn better(&self, a: &ScoredItem, b: &ScoredItem) -> Result<Better, String> {
        let mut values = self.item_values(a);
        for (name, item) in [("a", a), ("b", b)] {
            let reply = item.completion.as_deref().unwrap_or_default();
            values.insert(name.to_owned(), fenced(reply));
        }
        self.verdict(&values, 0, |text| read_pair(&self.config, text)).await
    }
}

/// Returns true if the second of two answers is shown first, by a hash of both.
fn first_order(first: &ScoredItem, second: &ScoredItem) -> bool {
    let text = |item: &ScoredItem| item.completion.clone().unwrap_or_default();
    Sha256::digest(format!("{}\u{0}{}", text(first), text(second)).as_bytes())[0] % 2 == 1
}

/// Result of a pair: 1 if the first answer is better, 0 if the second is, 1/2 otherwise.
struct PairOutcome {
    value: f64,
    tie: bool,
    contradiction: bool,
}

/// Sum of the comparisons of one answer.
#[derive(Clone, Default)]
struct PairTally {
    sum: f64,
    compared: u64,
    ties: u64,
    contradictions: u64,
    failed: u64,
    /// 1 if the answer has the form of a verdict.
    echoes: u64,
    error: Option<String>,
}

impl PairTally {
    fn add(&mut self, result: &Result<PairOutcome, String>, second: bool) {
        match result {
            Ok(PairOutcome { value, tie, contradiction }) => {
                self.sum += if second { 1.0 - value } else { *value };
                self.compared += 1;
                self.ties += u64::from(*tie);
                self.contradictions += u64::from(*contradiction);
            }
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Returns the mean of the comparisons as the reward of the episode.
    fn rewards(self, judge: &JudgeReward, alone: bool) -> Result<ScoredRewards, String> {
        let skip = judge.config.on_error == OnRewardError::Skip;
        if let Some(error) = self.error.filter(|_| !skip) {
            return Err(error);
        }
        let mut metrics = Map::new();
        metrics.insert(format!("echo/{}", judge.name), self.echoes.into());
        let counts = [("ties", self.ties), ("contradictions", self.contradictions)];
        for (what, n) in counts.into_iter().filter(|_| !alone) {
            metrics.insert(format!("{what}/{}", judge.name), Value::from(n));
        }
        let rewards = match self.compared {
            0 => Rewards::none(),
            n => Rewards::none().of(RewardOf::Episode, self.sum / n as f64),
        };
        Ok(ScoredRewards { rewards, skipped: skip.then_some(self.failed), metrics })
    }
}

impl Scorer for JudgeReward {
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        self.scores(episode).boxed()
    }

    fn compare<'a>(
        &'a self,
        group: &'a [&'a Episode],
    ) -> Option<BoxFuture<'a, Vec<Result<ScoredRewards, String>>>> {
        (self.config.mode == JudgeMode::Pairs).then(|| self.pairs(group).boxed())
    }

    fn sources(&self) -> Vec<String> {
        vec![self.config.rubric.clone()]
    }

    fn open_in(&self, dir: &Path) -> Result<(), String> {
        match &self.shared {
            Some(_) => Ok(()),
            None => self.cache.open(&dir.join(format!("judge.{}.jsonl", self.name))),
        }
    }

    fn takes_one_process(&self) -> bool {
        true
    }

    fn take_usage(&self) -> Vec<(&'static str, f64)> {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed) as f64;
        vec![("verdicts", take(&self.asked)), ("cached", take(&self.cached))]
    }
}
