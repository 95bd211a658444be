//! Reasons that a rollout could not start.

use crate::env::EnvError;

/// Reason that a rollout could not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// The environment did not start.
    #[error("environment `{name}` did not start: {error}")]
    Environment {
        /// Its registered name.
        name: String,
        /// Failure of the environment.
        #[source]
        error: EnvError,
    },
    /// The orchestra did not start.
    #[error("orchestra `{name}` did not start: {problem}")]
    Orchestra {
        /// Its registered name.
        name: String,
        /// Description of the problem.
        problem: String,
    },
    /// The plan names something that this registry lacks, or gives it options that it does not accept.
    #[error("{kind} `{name}` {problem}; the plan was made with another registry")]
    Declaration {
        /// Agent, orchestra, environment or reward.
        kind: &'static str,
        /// The registered name.
        name: String,
        /// Description of the problem.
        problem: String,
    },
    /// A server of rewards or a verifier cannot be used.
    #[error("reward `{name}`: {problem}")]
    Reward {
        /// Its name in the configuration.
        name: String,
        /// Description of the problem.
        problem: String,
    },
    /// Inference servers cannot be used, or do not sample as the trainer scores.
    #[error("rollout servers `{name}`: {problem}")]
    Servers {
        /// Their name in the configuration.
        name: String,
        /// Description of the problem.
        problem: String,
    },
    /// An endpoint cannot be used.
    #[error("endpoint `{name}`: {problem}")]
    Endpoint {
        /// Its name in the configuration.
        name: String,
        /// Description of the problem.
        problem: String,
    },
}
