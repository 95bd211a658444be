//! Judges of replies: environments, exact matches, and reward models.

use std::path::Path;
use std::sync::Arc;

use futures::future::join_all;
use maverl_answers::without_tokens;

use super::request::Graded;
use maverl::env::DynEnvironment;
use maverl::env::search::exact_match;
use maverl::rollout::rewards::Verifier;
use maverl::task::{Score, Task};

/// Score of each item, or the reason for none.
pub(super) type ItemScores = Vec<Result<Score, String>>;

/// A judge of replies.
pub struct Grader(GraderKind);

enum GraderKind {
    /// An environment, which compares the answer with the references of the task.
    Environment(Arc<dyn DynEnvironment>),
    /// Equality with a reference, after normalization.
    ExactMatch,
    /// A reward model.
    Verifier(Verifier),
}

impl Grader {
    /// Creates a judge from an environment.
    pub fn environment(environment: Arc<dyn DynEnvironment>) -> Self {
        Self(GraderKind::Environment(environment))
    }

    /// Creates a judge that compares normalized texts, as SQuAD's script does.
    pub fn exact_match() -> Self {
        Self(GraderKind::ExactMatch)
    }

    /// Loads a reward model; its reward is the probability that a reply is right.
    ///
    /// # Errors
    ///
    /// If it cannot be loaded.
    pub fn verifier(dir: &Path) -> Result<Self, String> {
        Ok(Self(GraderKind::Verifier(Verifier::load(dir)?)))
    }

    /// Scores items. One that cannot be scored fails no other.
    pub(super) async fn score(&self, items: Vec<Graded>) -> ItemScores {
        match &self.0 {
            GraderKind::Environment(environment) => {
                join_all(items.into_iter().map(|item| judge_item(environment, item))).await
            }
            GraderKind::ExactMatch => items.into_iter().map(match_item).collect(),
            GraderKind::Verifier(verifier) => {
                let inputs = items.into_iter().map(|item| item.input).collect();
                let scores = verifier.score(inputs).await.into_iter();
                scores.map(|p| p.map(|p| Score { reward: p, ..Score::binary(p >= 0.5) })).collect()
            }
        }
    }
}

/// Returns the task of an item with a reference.
fn task(item: &Graded) -> Result<Task, String> {
    if item.data.is_empty() {
        let message = "there is no reference to compare with: send `data` of the task (`send = [\"answers\"]` in maverl), or \
                       `label`";
        return Err(message.to_owned());
    }
    Ok(Task {
        id: item.task.id.clone(),
        source: item.task.source.clone(),
        question: item.task.question.clone(),
        data: item.data.clone(),
    })
}

/// Scores an item in a session of its own, in a task of its own: a panic fails this item alone.
async fn judge_item(environment: &Arc<dyn DynEnvironment>, item: Graded) -> Result<Score, String> {
    let environment = Arc::clone(environment);
    let scored = tokio::spawn(async move {
        let task = task(&item)?;
        let session = environment.open(&task, 0).await.map_err(|error| error.to_string())?;
        let score = environment.score(&session, item.answer.as_deref()).await;
        environment.close(session).await.map_err(|error| error.to_string())?;
        let score = score.map_err(|error| error.to_string())?;
        if score.reward.abs() <= Score::LIMIT {
            Ok(score)
        } else {
            Err(format!("the score is {:?}; rewards are from -1e9 to 1e9", score.reward))
        }
    });
    scored.await.unwrap_or_else(|_| Err("the judge failed on this item".to_owned()))
}

fn match_item(item: Graded) -> Result<Score, String> {
    let task = task(&item)?;
    let answer = item.answer.unwrap_or_default();
    let answer = without_tokens(&answer);
    let right = task.texts("answers").iter().any(|reference| exact_match(answer, reference));
    Ok(Score::binary(right))
}
