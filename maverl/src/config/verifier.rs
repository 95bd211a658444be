//! Training of a verifier.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::critic::CriticPlan;
use crate::net::HeadKind;
use crate::runtime::{LoraConfig, LoraSpec, OptimConfig, OptimOptions, Schedule, Trunk};
use crate::settings::Settings;

/// Training of a verifier: a head of rewards on a trunk (verifier).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Settings)]
#[settings(partial = "VerifierConfig", level = "team")]
pub struct VerifierPlan {
    /// Input of the head, a linear layer: the hidden states of the trunk (`linear`), or its log-probs of the reply's tokens
    /// (`likelihood`).
    #[setting(default = HeadKind::Reward)]
    pub head: HeadKind,
    /// Unit of the loss: the last token of a row, which has the score (`last`), every token of the reply (`span`), a pair
    /// of a right and a wrong reply (`pairs`), or each reply of an episode (`steps`).
    pub loss: VerifierLoss,
    /// Targets: right or wrong (`hard`), or the recorded score as a probability (`soft`).
    pub labels: VerifierLabels,
    /// Trunk under the head: an adapter on the model (`lora`), or a copy of the model (`own`).
    pub trunk: VerifierTrunk,
    /// Rank of the adapter; only with `trunk = "lora"`.
    #[setting(default = 16, written = NonZeroUsize, range = 1..=65536, idle_unless = "trunk = 'lora'")]
    pub rank: usize,
    /// Numerator of the adapter's scale `alpha / rank`; only with `trunk = "lora"`.
    #[setting(default = 32.0, range = above(0.0).., idle_unless = "trunk = 'lora'")]
    pub alpha: f64,
    /// Learning rate of trunk and head.
    #[setting(default = 1e-4, range = 0.0..)]
    pub lr: f64,
    /// Learning rate of the head, as a multiple of `lr`.
    #[setting(default = 1.0, range = 0.0..)]
    pub head_rate: f64,
    /// Schedule of the learning rate.
    pub schedule: Schedule,
    /// Steps over which the learning rate rises to `lr`.
    #[setting(default = 0)]
    pub warmup_steps: u64,
    /// Decoupled weight decay.
    #[setting(default = 0.01, range = 0.0..)]
    pub weight_decay: f64,
    /// Share of the tasks that are held out of training; the temperature of the logits is fitted on them.
    #[setting(default = 0.1, range = 0.0..1.0)]
    pub validation: f64,
    /// Train even if held-out questions share 13 consecutive words with training questions.
    pub allow_near: bool,
}

/// Loss of a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifierLoss {
    /// Cross-entropy at the scored token.
    #[default]
    Last,
    /// Cross-entropy at every token from the first of the reply to the scored one, each with the same weight (MAPoRL).
    Span,
    /// Bradley-Terry: cross-entropy of the difference between a right and a wrong reply to one prompt.
    Pairs,
    /// Cross-entropy after each step of a row of `maverl collect --as steps`, each with the same weight.
    Steps,
}

/// Targets of a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifierLabels {
    /// The column `label`: 1 or 0.
    #[default]
    Hard,
    /// The column `score`, a number from 0 to 1.
    Soft,
}

/// Trunk of a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifierTrunk {
    /// An adapter on the model, which stays as it is.
    #[default]
    Lora,
    /// A copy of the model, every weight of it trained.
    Own,
}

impl VerifierPlan {
    /// The trunk with its optimizer, in the form of a critic's.
    pub fn critic(&self) -> CriticPlan {
        let lora = LoraSpec { rank: self.rank, alpha: self.alpha, ..LoraSpec::default() };
        let (trunk, lora) = match self.trunk {
            VerifierTrunk::Lora => (Trunk::Lora, Some(LoraConfig::from(&lora))),
            VerifierTrunk::Own => (Trunk::Own, None),
        };
        CriticPlan { trunk, lora, optim: OptimConfig::from(&self.optim()), ..CriticPlan::default() }
    }

    /// The optimizer, with every value.
    pub fn optim(&self) -> OptimOptions {
        OptimOptions {
            lr: self.lr,
            schedule: self.schedule,
            warmup_steps: self.warmup_steps,
            weight_decay: self.weight_decay,
            ..OptimOptions::default()
        }
    }
}
