//! Purpose of a plan.

use crate::config::Config;

/// Purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Training: a policy must be trained, with settings that allow it.
    Train,
    /// Training at another time or on another machine: as `Train`, but models may lack their weights. A plan with such
    /// a model may need more memory than this machine has.
    Plan,
    /// Evaluation on held-out tasks.
    Eval,
    /// The environment with its tasks, without a team. The plan has no seats, policies and rewards.
    Environment,
}

/// Returns true if replies are generated: not in supervised training without evaluation.
pub(crate) fn samples_replies(config: &Config, purpose: Purpose) -> bool {
    let (preset, eval) = (config.algorithm.name, config.eval.used(config.algorithm.name));
    purpose == Purpose::Eval || preset.generates() || eval.before_and_after || eval.every > 0
}
