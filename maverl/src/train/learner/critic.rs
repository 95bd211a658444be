//! Inputs of critics, and their predictions.

use crate::algo::{Sample, ValueTarget, ValueText};
use crate::config::{CriticInput, Granularity};
use crate::plan::{CriticPlan, Plan};
use crate::runtime::{Policy, RuntimeError};
use crate::train::error::TrainError;
use crate::train::ranks::join_all;
use crate::trajectory::Episode;

/// Values that critics predicted for samples before any update; empty without critics.
#[derive(Debug, Default)]
pub(crate) struct ValuePredictions {
    /// Policy that hosts the critic of each sample. `[N]`
    pub(crate) hosts: Vec<usize>,
    /// Position of each sample's seat among the trained seats of the plan. `[N]`
    pub(crate) places: Vec<usize>,
    /// Inputs of the critics. `[N]`
    pub(crate) texts: Vec<ValueText>,
    /// Predicted values. `[N][positions]`
    pub(crate) values: Vec<Vec<f64>>,
    /// Squared norms of the gradients of tokens, for a token baseline. `[N][T]`
    pub(crate) norms: Vec<Vec<f64>>,
}

impl ValuePredictions {
    /// Returns the training targets of the values.
    pub(crate) fn targets(&self, returns: &[Vec<f64>]) -> Vec<ValueTarget> {
        let values = self.values.iter().zip(returns);
        let values = values.map(|both| [both.0, both.1].map(|values| narrow_values(values)));
        values.map(|[old, returns]| ValueTarget::Returns { old, returns }).collect()
    }
}

pub(crate) fn narrow_values(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// Predicts the values of samples; critics of different workers run concurrently.
pub(crate) async fn predict(
    plan: &Plan,
    policies: &[Policy],
    episodes: &[Episode],
    samples: &[Sample],
) -> Result<ValuePredictions, TrainError> {
    let Some(critic) = &plan.algorithm.critic else { return Ok(ValuePredictions::default()) };
    let after_replies = plan.mixer_plan().is_some_and(|mixer| mixer.credit.knows_replies());
    let mut hosts = Vec::new();
    for sample in samples {
        let host = plan.critic_of(sample.policy);
        hosts.push(host.ok_or_else(|| untrainable(episodes, sample, "its policy has no critic"))?);
    }
    let trained: Vec<usize> =
        (0..plan.seats.len()).filter(|&seat| plan.seats[seat].trained).collect();
    let mut places = Vec::new();
    for sample in samples {
        let place = trained.iter().position(|&seat| seat == sample.seat);
        places.push(place.ok_or_else(|| untrainable(episodes, sample, "its seat is not trained"))?);
    }
    let texts = samples.iter().zip(&hosts);
    let critic = (critic, after_replies);
    let texts = texts.map(|(sample, &host)| text(&policies[host], critic, episodes, sample));
    let texts: Vec<ValueText> = texts.collect::<Result<_, _>>()?;
    let values = predict_values(policies, &hosts, &texts).await?;
    Ok(ValuePredictions { hosts, places, texts, values, norms: Vec::new() })
}

/// Predicts values of given texts with the current critics, `[N][positions]`.
pub(crate) async fn predict_values(
    policies: &[Policy],
    hosts: &[usize],
    texts: &[ValueText],
) -> Result<Vec<Vec<f64>>, TrainError> {
    let asked = (0..policies.len()).map(async |policy: usize| {
        let its: Vec<usize> = (0..hosts.len()).filter(|&i| hosts[i] == policy).collect();
        if its.is_empty() {
            return Ok(Vec::new());
        }
        let texts = its.iter().map(|&i| texts[i].clone()).collect();
        let values = policies[policy].values(texts).await?;
        Ok::<_, RuntimeError>(its.into_iter().zip(values).collect())
    });
    let mut values = vec![Vec::new(); hosts.len()];
    for (i, predicted) in join_all(policies, asked).await?.into_iter().flatten() {
        values[i] = predicted.into_iter().map(f64::from).collect();
    }
    Ok(values)
}

/// Returns the critic's input for a turn: its prompt, possibly after the transcript, and the reply up to its last
/// value, which is that after the reply if `after_replies`. A text that exceeds the context is truncated at its start.
fn text(
    policy: &Policy,
    (critic, after_replies): (&CriticPlan, bool),
    episodes: &[Episode],
    sample: &Sample,
) -> Result<ValueText, TrainError> {
    let episode = &episodes[sample.episode];
    let Some(tokens) = &episode.turns[sample.turn].tokens else {
        return Err(untrainable(episodes, sample, "it has no tokens"));
    };
    let mut ids = match critic.input {
        CriticInput::Prompt => Vec::new(),
        CriticInput::Transcript => transcript(policy, episode, sample.turn)?,
    };
    ids.extend_from_slice(&tokens.prompt);
    let reply = &tokens.completion;
    let places = match critic.granularity {
        // Values before and after the reply.
        _ if after_replies => {
            ids.extend_from_slice(reply);
            reply.len() + 1
        }
        Granularity::Turn => 1,
        Granularity::Token => {
            ids.extend_from_slice(&reply[..reply.len().saturating_sub(1)]);
            reply.len()
        }
    };
    let cut = ids.len().saturating_sub(policy.context());
    Ok(ValueText { ids: ids.split_off(cut), places })
}

/// Returns the error about a sample that cannot be trained on.
fn untrainable(episodes: &[Episode], sample: &Sample, reason: &'static str) -> TrainError {
    let episode = &episodes[sample.episode];
    let (task, turn) = (&episode.task.id, &episode.turns[sample.turn]);
    let (path, seat) = (&turn.path, &turn.seat);
    let turn = format!("turn {path} of `{seat}` (task `{task}`, episode {})", episode.index);
    TrainError::Untrainable { turn, reason }
}

/// Returns the transcript before a turn, with the names of the speakers.
fn transcript(policy: &Policy, episode: &Episode, turn: usize) -> Result<Vec<u32>, TrainError> {
    let said: String = episode.turns[..turn]
        .iter()
        .map(|turn| format!("{}: {}\n", turn.seat, turn.reply))
        .collect();
    let ids = policy.tokenizer().encode_plain(&said);
    ids.map_err(|source| TrainError::Transcript { policy: policy.name().to_owned(), source })
}
