//! Keys that presets set.

use std::num::NonZeroUsize;

use serde_json::json;

use super::algorithm::{AlgorithmConfig, InfluenceConfig};
use super::loss::{LossConfig, ReferenceConfig};
use super::preset::Preset;
use crate::loss::{Aggregation, Kl, Ratio};
use crate::settings::TaggedConfig;

impl Preset {
    /// The estimator of advantages, where the preset sets it.
    fn advantage(self) -> TaggedConfig {
        let (kind, settings) = match self {
            Self::Drmas
            | Self::Cory
            | Self::Sft
            | Self::Dpo
            | Self::Spin
            | Self::OnlineDpo
            | Self::Verifier => return TaggedConfig::default(),
            Self::Grpo
            | Self::Dapo
            | Self::Gspo
            | Self::Luspo
            | Self::Cispo
            | Self::Sapo
            | Self::Cpgd
            | Self::GspoToken
            | Self::Gmpo
            | Self::Vespo
            | Self::Dppo
            | Self::Dro => ("group", json!({ "by": "task" })),
            Self::Maxrl => {
                ("group", json!({ "by": "task", "normalize_std": false, "normalize_mean": true }))
            }
            Self::Gpg => {
                ("group", json!({ "by": "task", "normalize_std": false, "compensate_flat": true }))
            }
            Self::Opo => ("opo", json!({ "by": "task" })),
            Self::Otb => ("token_baseline", json!({ "by": "task" })),
            Self::Drgrpo | Self::ReinforcePlusPlusBaseline => {
                ("group", json!({ "by": "task", "normalize_std": false }))
            }
            Self::Rloo => (
                "group",
                json!({ "by": "task", "baseline": "leave_one_out", "normalize_std": false }),
            ),
            Self::Passk => ("group", json!({ "by": "task", "baseline": "second_best" })),
            Self::Gigpo => {
                let anchor = json!({ "weight": 1.0, "discount": 0.95 });
                ("group", json!({ "by": "task", "normalize_std": false, "anchor": anchor }))
            }
            Self::ReinforcePlusPlus => ("reward", json!({ "by": "task" })),
            Self::Remax => ("greedy", json!({ "by": "task" })),
            Self::Ppo => ("critic", json!({ "scope": "team" })),
            Self::Ippo | Self::Maporl => ("critic", json!({ "scope": "policy" })),
            Self::Mappo | Self::Happo => (
                "critic",
                json!({ "scope": "team", "input": "transcript", "normalize": "running" }),
            ),
            Self::Marft => (
                "critic",
                json!({
                    "scope": "team", "input": "transcript", "bootstrap": "team", "gamma": 0.99, "lambda": 0.95,
                }),
            ),
            Self::Vdn => ("mixer", json!({ "network": "sum", "credit": "shared" })),
            Self::Qmix => ("mixer", json!({ "network": "monotone", "credit": "shared" })),
        };
        TaggedConfig::new(kind, &settings)
    }

    /// The parts it sets; what it leaves out has the default of its key.
    pub fn parts(self) -> AlgorithmConfig {
        let none = AlgorithmConfig {
            name: self,
            advantage: self.advantage(),
            aggregation: self.aggregation(),
            loss: self.loss(),
            ..AlgorithmConfig::default()
        };
        let whitened = AlgorithmConfig { whiten: Some(true), ..none.clone() };
        match self {
            Self::Spin | Self::OnlineDpo => AlgorithmConfig {
                reference: ReferenceConfig { every: Some(20), ..ReferenceConfig::default() },
                ..none
            },
            Self::Dapo => AlgorithmConfig { resample: Some(10), ..none },
            Self::Cory => AlgorithmConfig { swap_every: Some(5), ..none },
            Self::ReinforcePlusPlus
            | Self::ReinforcePlusPlusBaseline
            | Self::Ppo
            | Self::Ippo
            | Self::Mappo
            | Self::Marft
            | Self::Vdn
            | Self::Qmix => whitened,
            Self::Happo => {
                let update_order = TaggedConfig::new("random", &json!({}));
                AlgorithmConfig { update_order, ..whitened }
            }
            Self::Maporl => AlgorithmConfig {
                future_rewards: TaggedConfig::new("team", &json!({ "discount": 0.3 })),
                influence: InfluenceConfig {
                    follow: Some(0.0),
                    resist: Some(0.0),
                    provoke: Some(0.0),
                    persuade: Some(0.0),
                },
                epochs: NonZeroUsize::new(4),
                ..whitened
            },
            _ => none,
        }
    }

    /// Aggregation of token losses, where the preset sets it.
    const fn aggregation(self) -> Option<Aggregation> {
        match self {
            Self::Drgrpo => Some(Aggregation::Constant),
            Self::Dapo | Self::Cispo | Self::Vespo | Self::Dppo => Some(Aggregation::TokenMean),
            Self::Rloo | Self::Gspo | Self::GspoToken | Self::Gmpo | Self::Sapo => {
                Some(Aggregation::SequenceMean)
            }
            Self::Remax | Self::Luspo => Some(Aggregation::SequenceSum),
            _ => None,
        }
    }

    /// The surrogate of the loss, where the preset sets it.
    fn surrogate(self) -> TaggedConfig {
        let (kind, settings) = match self {
            Self::Dapo => ("clip", json!({ "clip_high": 0.28 })),
            Self::Gspo | Self::GspoToken | Self::Luspo => {
                ("clip", json!({ "clip_low": 3e-4, "clip_high": 4e-4 }))
            }
            Self::Cispo => ("cispo", json!({ "clip_high": 4.0 })),
            Self::Sapo => ("sapo", json!({ "gate": [1.0, 1.05] })),
            Self::Cpgd => ("cpgd", json!({})),
            Self::Gmpo => ("gmpo", json!({ "clip_low": 0.4, "clip_high": 0.4 })),
            Self::Vespo => ("vespo", json!({ "k": [2.0, 3.0], "lambda": [3.0, 2.0] })),
            Self::Dppo => ("dppo", json!({ "by": "tv" })),
            Self::Dro => ("dro", json!({ "pull_coef": 0.1 })),
            Self::Gpg => ("reinforce", json!({})),
            _ => return TaggedConfig::default(),
        };
        TaggedConfig::new(kind, &settings)
    }

    /// The coefficients of the loss among its parts.
    fn loss(self) -> LossConfig {
        let none = LossConfig { surrogate: self.surrogate(), ..LossConfig::default() };
        match self {
            Self::Dapo => {
                LossConfig { overlong_buffer: Some(0.2), overlong_penalty: Some(1.0), ..none }
            }
            Self::Maporl => LossConfig { kl_coef: Some(0.002), kl: Some(Kl::K3), ..none },
            // Its rewards are 0 or 1.
            Self::Maxrl => LossConfig { invalid_reply_penalty: Some(0.0), ..none },
            Self::Rloo => LossConfig { ratio: Some(Ratio::Product), ..none },
            Self::GspoToken => LossConfig { ratio: Some(Ratio::SequenceToken), ..none },
            Self::Gspo | Self::Luspo => LossConfig { ratio: Some(Ratio::Sequence), ..none },
            Self::Cpgd => LossConfig { drift_coef: Some(0.001), ..none },
            _ => none,
        }
    }
}
