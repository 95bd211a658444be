//! Losses as pure functions, each with its derivative, and the weights that aggregate them.
//!
//! ```text
//! L = Σₙ wₙ · (surrogate + β · kl + δ · drift + κ · |log ρ| − η · entropy)ₙ        κ: of tokens with a penalty
//! ```
//!
//! Tokens that the environment wrote may add their negative log-likelihood, [`observation`], with weights of their own.
//! A token with a teacher adds the divergence from it, [`teacher_divergence`], with a weight of its own.
//!
//! The loss of a token and its weight are separate. [`token_weights`] are computed once from the true lengths of a
//! whole batch, so micro-batches of any size add up to the same gradient. The losses of a row do not depend on other
//! rows: [`policy_gradient`] takes the log-probs of one row `[T]` and returns `∂L/∂logp [T]` and `∂L/∂entropy [T]`, the
//! inputs of the backward pass.
//!
//! - **AL-1** Nothing here does I/O or reads a clock or a random number.
//!
//! A new surrogate is a function and a struct of its settings, in `surrogate.rs`, in `weighted.rs` or, of a whole reply, in
//! `reply.rs`; a variant of `BuiltinSurrogate` in `surrogate.rs`; and an export here. A new unit of the ratio is a variant of `Ratio` in
//! `reply.rs`.

mod classify;
mod correction;
mod divergence;
mod kto;
mod options;
mod policy;
mod preference;
mod reply;
mod selection;
mod surrogate;
mod teacher;
mod token;
mod value;
mod weighted;

pub use classify::cross_entropy;
pub use correction::{
    CapOptions, Correction, CorrectionMeasure, CorrectionUnit, KeptWeight, MaskOptions,
    TruncateOptions, correction_weights,
};
#[doc(hidden)]
pub use divergence::AdaptiveKlConfig;
pub use divergence::{AdaptiveKl, Kl, importance_corrected, kl, kl_reward, policy_drift};
pub use kto::{KtoReply, kto, kto_shift};
pub use options::LossOptions;
pub use policy::{
    Aggregation, PolicyLoss, RowTokens, linear, log_likelihood, observation, policy_gradient,
    token_weights,
};
#[doc(hidden)]
pub use preference::PreferenceConfig;
pub use preference::{Pair, PairLoss, PreferenceLoss, PreferenceOptions, preference};
pub use reply::{GmpoOptions, PolicyReply, Ratio, ReplyLoss, VespoOptions, gmpo, vespo};
pub use selection::{
    ClipCovOptions, KlCovOptions, MinibatchTokens, Selection, TokenUse, TopEntropyOptions,
    covariances,
};
pub use surrogate::{
    BuiltinSurrogate, CispoOptions, ClipOptions, CpgdOptions, SapoOptions, cispo,
    clipped_surrogate, cpgd, sapo,
};
pub use teacher::{DistillLoss, DistillOptions, TeacherDivergence, teacher_divergence};
pub use token::{Clip, Clipped, LossUnit, PolicyToken, Surrogate, Term};
pub use value::{ValueLimits, ValueLoss, clipped_value, huber, value_loss};
pub use weighted::{Divergence, DppoOptions, DroOptions, ReinforceOptions, dppo, dro, reinforce};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
