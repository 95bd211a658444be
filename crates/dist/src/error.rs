//! Errors of ranks.

/// Error of a launch, of a connection between ranks, or of another rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// Variables of the launcher are invalid.
    #[error("the variables of {launcher} are not valid: {reason}")]
    Launch {
        /// Name of the launcher.
        launcher: &'static str,
        /// Problem that was found, and the setting that solves it.
        reason: String,
    },
    /// No variable has the address of rank 0.
    #[error(
        "{launcher} does not give the address of rank 0; set `dist.address = \"host:port\"`, or `MASTER_ADDR` and \
         `MASTER_PORT`"
    )]
    NoAddress {
        /// Name of the launcher.
        launcher: &'static str,
    },
    /// The ranks could not be connected.
    #[error("rank {rank} of {size} could not join the others at `{address}`: {reason}")]
    Join {
        /// Rank of this process.
        rank: usize,
        /// Number of ranks.
        size: usize,
        /// Address of rank 0.
        address: String,
        /// Reason.
        reason: String,
    },
    /// A rank was killed, hangs or cannot be reached.
    #[error("rank {rank} ({place}) is lost: {reason}")]
    Lost {
        /// The rank.
        rank: usize,
        /// Its host and process.
        place: String,
        /// Observation that shows the loss.
        reason: String,
    },
    /// A rank ended the run.
    #[error("rank {rank} ({place}) ended the run: {reason}")]
    Ended {
        /// The rank.
        rank: usize,
        /// Its host and process.
        place: String,
        /// Its error.
        reason: String,
    },
    /// The connection of the GPUs of all ranks failed.
    #[error("the connection of GPUs failed: {reason}")]
    Devices {
        /// Reason.
        reason: String,
    },
    /// A rank is at another exchange of a schedule than this one.
    #[error(
        "rank {rank} is at exchange {position} ({exchange}), rank {own_rank} at {own_position} ({own_exchange}): a fault of \
         maverl"
    )]
    Exchange {
        /// The rank.
        rank: usize,
        /// Position of its exchange in the schedule.
        position: usize,
        /// Name of its exchange.
        exchange: String,
        /// Rank of this process.
        own_rank: usize,
        /// Position of the exchange of this process.
        own_position: usize,
        /// Name of the exchange of this process.
        own_exchange: String,
    },
    /// A rank has another state than rank 0, where both must be equal.
    #[error("rank {rank} differs from rank 0: {what}")]
    Differs {
        /// The rank.
        rank: usize,
        /// Difference, with a remedy.
        what: String,
    },
}
