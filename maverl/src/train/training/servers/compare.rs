//! Comparison of the log-probs of servers with those of the trainer.

use serde::{Deserialize, Serialize};

use crate::rollout::Probe;

/// Share of the change of log-probs by perturbed weights that a server's may miss.
const MISSED: f64 = 0.25;
/// Number of times that the precision of a server may be worse under perturbed weights than under the policy's.
const WORSE: f64 = 30.0;
/// Mean difference that is precision under any weights.
const PRECISION: f64 = 1e-4;

/// Completions of a fixed prompt by a server, on their way to other ranks.
#[derive(Serialize, Deserialize)]
pub(super) struct SentReply {
    pub(super) url: String,
    pub(super) prompt: Vec<u32>,
    pub(super) completion: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) temperature: f32,
}

impl SentReply {
    pub(super) fn new(url: &str, probe: Probe) -> Self {
        let Probe { prompt, completion, logprobs, temperature } = probe;
        Self { url: url.to_owned(), prompt, completion, logprobs, temperature }
    }
}

/// Difference between the log-probs of a server and of the trainer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogprobDifference {
    pub(super) url: String,
    pub(super) mean: f64,
    pub(super) most: f64,
}

/// Log-probs of a server under perturbed weights.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Perturbed {
    /// Difference to those of the trainer under these weights.
    pub(super) difference: LogprobDifference,
    /// Mean change of the trainer's log-probs by the perturbation.
    pub(super) change: f64,
}

/// Returns the difference between the log-probs that each server gave and those that were computed.
pub(super) fn differences(sent: &[SentReply], scored: &[Vec<f32>]) -> Vec<LogprobDifference> {
    let mut found: Vec<(LogprobDifference, usize)> = Vec::new();
    for (sent, scored) in sent.iter().zip(scored) {
        if found.last().is_none_or(|(difference, _)| difference.url != sent.url) {
            found.push((LogprobDifference { url: sent.url.clone(), mean: 0.0, most: 0.0 }, 0));
        }
        let Some((difference, tokens)) = found.last_mut() else { continue };
        for (theirs, ours) in sent.logprobs.iter().zip(scored) {
            let apart = f64::from((theirs - ours).abs());
            difference.mean += apart;
            difference.most = difference.most.max(apart);
            *tokens += 1;
        }
    }
    for (difference, tokens) in &mut found {
        difference.mean /= (*tokens).max(1) as f64;
    }
    found.into_iter().map(|(difference, _)| difference).collect()
}

/// Returns the reasons why servers cannot sample for the trainer.
pub(super) fn problems(
    found: &[LogprobDifference],
    perturbed: &[Perturbed],
    allowed: f64,
) -> Vec<String> {
    let mut problems = Vec::new();
    for LogprobDifference { url, mean, .. } in found {
        // A mean that is no number is none that agrees.
        let agrees = *mean <= allowed;
        if !agrees {
            problems.push(format!(
                "{url}: its log-probs differ from the trainer's by {mean:.3} on average, and `max_mismatch` is {allowed}; it has \
                 another model, or gives log-probs before the temperature (vLLM: `--logprobs-mode processed_logprobs`)"
            ));
        }
    }
    for Perturbed { difference: LogprobDifference { url, mean, .. }, change } in perturbed {
        let own = found.iter().find(|its| its.url == *url).map_or(f64::INFINITY, |its| its.mean);
        let limit = f64::min(MISSED * change, WORSE * own.max(PRECISION));
        let uses = *mean <= limit;
        if !uses {
            problems.push(format!(
                "{url}: under weights that change log-probs by {change:.3} on average, its log-probs differ from those of these \
                 weights by {mean:.4}, more than {limit:.4}: it does not use the weights that it is given, or not all of them \
                 (vLLM on a CPU: the head of a model with `tie_word_embeddings`)"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(mean: f64) -> Vec<LogprobDifference> {
        vec![LogprobDifference { url: "http://a".to_owned(), mean, most: mean }]
    }

    fn perturbed(mean: f64, change: f64) -> Vec<Perturbed> {
        apart(mean).into_iter().map(|difference| Perturbed { difference, change }).collect()
    }

    #[test]
    fn servers_must_agree_with_the_trainer_and_use_all_of_the_weights_they_are_given() {
        assert!(problems(&apart(0.01), &perturbed(0.02, 3.0), 0.1).is_empty());
        assert!(problems(&apart(0.01), &[], 0.1).is_empty());
        // A server that uses none of weights that change little, however imprecise it is.
        assert_eq!(problems(&apart(0.01), &perturbed(0.1, 0.1), 0.1).len(), 1);
        // Half precision differs more under such weights.
        assert!(problems(&apart(0.03), &perturbed(0.5, 3.0), 0.1).is_empty());
        // A server that is as precise as the trainer and misses a part of the weights.
        let part = problems(&apart(5e-7), &perturbed(0.4, 3.0), 0.1);
        assert!(part[0].contains("by 0.4000, more than 0.0030"), "{part:?}");
        let wrong = problems(&apart(0.7), &perturbed(0.02, 3.0), 0.1);
        assert!(wrong[0].starts_with("http://a: its log-probs differ from the trainer's by 0.700"));
        assert_eq!(wrong.len(), 1);
        // All weights are those before, or those of the head alone.
        for mean in [3.0, 1.2] {
            let stale = problems(&apart(0.0), &perturbed(mean, 3.0), 0.1);
            assert!(stale[0].contains("it does not use the weights that it is given, or not all"));
            assert_eq!(stale.len(), 1);
        }
        assert_eq!(problems(&apart(f64::NAN), &perturbed(f64::NAN, 3.0), 0.1).len(), 2);
    }
}
