//! Norms of the gradients of sampled tokens, for a token baseline.

use crate::algo::{self, Row, Sample, row};
use crate::plan::Plan;
use crate::runtime::{Policy, RuntimeError};
use crate::train::learner::teachers::logprobs_under;
use crate::trajectory::Episode;

/// Computes the squared norm of the gradient in the logits of each token of each sample, `[N][T]`, in a pass at half of the
/// temperature. Log-probs at the temperature itself are those of sampling, or the trainer's if servers sampled.
pub(super) async fn gradient_norms(
    plan: &Plan,
    policies: &[Policy],
    episodes: &[Episode],
    samples: &[Sample],
) -> Result<Vec<Vec<f64>>, RuntimeError> {
    let rows: Vec<Row> = samples.iter().map(|sample| row(plan, episodes, sample, &[])).collect();
    let sharper: Vec<Row> =
        rows.iter().map(|row| Row { temperature: row.temperature / 2.0, ..row.clone() }).collect();
    let sharper = current_logprobs(policies, samples, &sharper).await?;
    let served = samples.iter().any(|sample| plan.rollout_servers(sample.policy).is_some());
    let own = if served {
        current_logprobs(policies, samples, &rows).await?
    } else {
        rows.into_iter().map(|row| row.logprobs).collect()
    };
    let both = own.iter().zip(&sharper);
    Ok(both.map(|(own, sharper)| algo::advantage::gradient_norms(own, sharper)).collect())
}

/// Computes the log-probs of the rows of samples under their policies. `[N][T]`
async fn current_logprobs(
    policies: &[Policy],
    samples: &[Sample],
    rows: &[Row],
) -> Result<Vec<Vec<f32>>, RuntimeError> {
    let rows = samples.iter().zip(rows).map(|(sample, row)| ((sample.policy, false), row));
    logprobs_under(policies, &rows.collect::<Vec<_>>()).await
}
