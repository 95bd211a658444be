//! A verifier in this process: a reward model on a thread of its own, which scores whatever waits in one packed batch.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::{ScoredRewards, Scorer, Units};
use crate::config::RewardVerifierConfig;
use crate::files::{ModelFiles, ModelSource};
use crate::net::RewardModel;
use crate::reward::Rewards;
use crate::text::Tokenizer;
use crate::trajectory::{Episode, Message};

/// Tokens of a packed batch.
const TOKENS: usize = 4096;

/// A handle to the thread of a reward model. Cheap to clone; the thread ends with the last one.
#[derive(Clone)]
pub struct Verifier(Arc<Mutex<mpsc::Sender<VerifierJob>>>);

/// Inputs to score, and the channel of their caller.
struct VerifierJob {
    inputs: Vec<VerifierInput>,
    answer: oneshot::Sender<InputScores>,
}

/// Text that a reward model reads.
#[derive(Debug, Clone, PartialEq)]
pub enum VerifierInput {
    /// Messages, of which the last is the reply that is scored.
    Conversation(Vec<Message>),
    /// A rendered conversation, up to the token that is scored.
    Text(String),
}

/// Token ids, and the number of the last of them that are scored.
type Row = (Vec<u32>, usize);

impl VerifierInput {
    fn scored_row(&self, model: &RewardModel, tokenizer: &Tokenizer) -> Result<Row, String> {
        let row = match self {
            Self::Conversation(messages) => model.conversation(tokenizer, messages),
            Self::Text(text) => model.encode_rendered(tokenizer, text),
        };
        match row {
            Ok((ids, _)) if ids.is_empty() => Err("there is no text to score".to_owned()),
            row => row.map_err(|error| error.to_string()),
        }
    }
}

/// Probability of each input, or the reason for none.
pub(crate) type InputScores = Vec<Result<f64, String>>;

impl Verifier {
    /// Loads the reward model in a directory, and starts its thread.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded.
    pub fn load(dir: &Path) -> Result<Self, String> {
        let model = RewardModel::load(dir).map_err(|error| error.to_string())?;
        let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
        let tokenizer = Tokenizer::load(&files).map_err(|error| error.to_string())?;
        tokenizer.require_template().map_err(|error| error.to_string())?;
        let (jobs, waiting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("verifier".to_owned());
        let spawned = thread.spawn(move || run(&model, &tokenizer, &waiting));
        spawned.map_err(|error| format!("no thread for the verifier: {error}"))?;
        Ok(Self(Arc::new(Mutex::new(jobs))))
    }

    /// Returns the probability that each reply is right. An input that cannot be scored is an error of its own.
    pub async fn score(&self, inputs: Vec<VerifierInput>) -> InputScores {
        let n = inputs.len();
        let (answer, answered) = oneshot::channel();
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A thread that is gone drops the channel of the answer.
        let _ = jobs.send(VerifierJob { inputs, answer });
        answered.await.unwrap_or_else(|_| vec![Err("the verifier broke down".to_owned()); n])
    }
}

/// Scores jobs until every handle is dropped.
fn run(model: &RewardModel, tokenizer: &Tokenizer, jobs: &mpsc::Receiver<VerifierJob>) {
    while let Ok(first) = jobs.recv() {
        let jobs: Vec<VerifierJob> = std::iter::once(first).chain(jobs.try_iter()).collect();
        let inputs = jobs.iter().flat_map(|job| &job.inputs);
        let mut scores = score(model, tokenizer, inputs).into_iter();
        for VerifierJob { inputs, answer } in jobs {
            // The caller may have left.
            let _ = answer.send(scores.by_ref().take(inputs.len()).collect());
        }
    }
}

fn score<'m>(
    model: &RewardModel,
    tokenizer: &Tokenizer,
    inputs: impl Iterator<Item = &'m VerifierInput>,
) -> InputScores {
    let ids: Vec<_> = inputs.map(|input| input.scored_row(model, tokenizer)).collect();
    let rows: Vec<Row> = ids.iter().filter_map(|ids| ids.as_ref().ok()).cloned().collect();
    match model.logits(&rows, TOKENS) {
        Ok(logits) => {
            let mut logits = logits.into_iter();
            let logits = ids.into_iter().map(|ids| {
                ids.map(|_| logits.next())?.ok_or_else(|| "a row has no logit".to_owned())
            });
            logits.map(|logit| Ok(model.settings.probability(logit?))).collect()
        }
        Err(error) => vec![Err(error.to_string()); ids.len()],
    }
}

/// A part of the reward that a verifier gives.
pub struct VerifierReward {
    units: Units,
    verifier: Verifier,
}

impl VerifierReward {
    /// Loads the verifier of a configuration; its path is relative to `base`.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded.
    pub fn new(config: &RewardVerifierConfig, base: &Path) -> Result<Self, String> {
        let RewardVerifierConfig { path, of, seats, .. } = config.clone();
        let units = Units { of, seats, send: Vec::new() };
        Ok(Self { units, verifier: Verifier::load(&base.join(path))? })
    }

    async fn values(&self, episode: &Episode) -> Result<ScoredRewards, String> {
        let (recipients, items): (Vec<_>, Vec<_>) = self.units.items(episode).into_iter().unzip();
        let inputs =
            items.iter().map(|item| VerifierInput::Conversation(item.conversation())).collect();
        let scores = self.verifier.score(inputs).await;
        let mut rewards = Rewards::none();
        for (of, score) in recipients.into_iter().zip(scores) {
            rewards = rewards.of(of, score?);
        }
        Ok(ScoredRewards { rewards, ..ScoredRewards::default() })
    }
}

impl Scorer for VerifierReward {
    fn score<'a>(&'a self, episode: &'a Episode) -> BoxFuture<'a, Result<ScoredRewards, String>> {
        self.values(episode).boxed()
    }
}
