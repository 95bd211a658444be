//! Named choices of parts, each with the paper that made it.
//!
//! A new preset is a variant with its entries in `ALL`, `name`, `paper` and `summary`, and its keys in `advantage`,
//! `aggregation`, `loss` and `parts`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A choice of parts with a paper behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Group-relative per (task, seat), a turn at a time.
    #[default]
    Drmas,
    /// Group-relative per task, an episode at a time.
    Grpo,
    /// GRPO without its two divisions: by the deviation, and by the length of a reply.
    Drgrpo,
    /// GRPO with a higher upper clip, groups without spread replaced, and long replies discouraged.
    Dapo,
    /// Each episode against the mean of the others, with the probability of the whole reply.
    Rloo,
    /// GRPO, and beside it turns that were given the same prompt, against each other.
    Gigpo,
    /// No group: rewards, whitened over the tokens of the step.
    #[serde(rename = "reinforce++")]
    ReinforcePlusPlus,
    /// Rewards less the mean of their task, whitened over the tokens of the step.
    #[serde(rename = "reinforce++_baseline")]
    ReinforcePlusPlusBaseline,
    /// GRPO with the ratio of the whole reply.
    Gspo,
    /// GRPO that cuts weights and no gradient.
    Cispo,
    /// GRPO with a soft gate in the place of the clip.
    Sapo,
    /// GRPO on clipped log-probabilities, with a pull towards the policy that sampled.
    Cpgd,
    /// Only the best of a group learns, by what it has over the second best.
    Passk,
    /// Each episode against one more on its task, played greedily.
    Remax,
    /// GSPO where a reply counts with its length.
    Luspo,
    /// GSPO where each token has its own advantage.
    GspoToken,
    /// GRPO with the geometric mean of the clipped ratios of a reply.
    Gmpo,
    /// GRPO on log-probabilities, weighted by a smooth function of the ratio of the reply.
    Vespo,
    /// GRPO on weighted log-probabilities, within a distance of the probability of a token.
    Dppo,
    /// GRPO on log-probabilities, with a quadratic pull towards the policy that sampled.
    Dro,
    /// Rewards less the mean of their task, over this mean.
    Maxrl,
    /// Rewards less the mean of their task, on log-probabilities; tasks without spread are made up for.
    Gpg,
    /// Rewards less the mean of their task in which a reply counts with its length.
    Opo,
    /// Rewards less a baseline for each place in a reply, which makes the variance of the gradient least.
    Otb,
    /// Two agents, the second of which sees what the first said; they exchange policies as they go.
    Cory,
    /// Advantages from the values of one critic, which reads what each agent is given.
    Ppo,
    /// PPO, a critic for each policy.
    Ippo,
    /// PPO, one critic that reads everything that was said.
    Mappo,
    /// MAPPO, policies one after the other, each knowing what the updates before it did.
    Happo,
    /// MAPPO, advantages along the chain of agents.
    Marft,
    /// The values of agents add up to that of the team.
    Vdn,
    /// The values of agents are mixed into that of the team by a network that none of them can lower.
    Qmix,
    /// IPPO, a turn worth what the team earns after it too, with pay for influence.
    Maporl,
    /// Supervised: raise the log-probability of given replies; no rollout.
    Sft,
    /// Supervised: raise the log-probability of the better of two given replies against the other's; no rollout.
    Dpo,
    /// Self-play: given replies against those that the policy of an iteration before generates to the same prompts.
    Spin,
    /// Pairs of the policy's own replies to a task, ordered by their rewards; the loss of DPO.
    OnlineDpo,
    /// Supervised: a head on a model learns to tell right replies from wrong ones; no rollout.
    Verifier,
}

impl Preset {
    /// Every preset, in the order of the documentation.
    pub const ALL: [Self; 38] = [
        Self::Drmas,
        Self::Grpo,
        Self::Drgrpo,
        Self::Dapo,
        Self::Rloo,
        Self::Gigpo,
        Self::ReinforcePlusPlus,
        Self::ReinforcePlusPlusBaseline,
        Self::Gspo,
        Self::Cispo,
        Self::Sapo,
        Self::Cpgd,
        Self::Passk,
        Self::Remax,
        Self::Luspo,
        Self::GspoToken,
        Self::Gmpo,
        Self::Vespo,
        Self::Dppo,
        Self::Dro,
        Self::Maxrl,
        Self::Gpg,
        Self::Opo,
        Self::Otb,
        Self::Cory,
        Self::Ppo,
        Self::Ippo,
        Self::Mappo,
        Self::Happo,
        Self::Marft,
        Self::Vdn,
        Self::Qmix,
        Self::Maporl,
        Self::Sft,
        Self::Dpo,
        Self::Spin,
        Self::OnlineDpo,
        Self::Verifier,
    ];

    /// It learns from what is given, and plays no episode.
    pub const fn is_supervised(self) -> bool {
        matches!(self, Self::Sft | Self::Dpo | Self::Spin | Self::Verifier)
    }

    /// It has a loss of pairs of replies.
    pub const fn compares_pairs(self) -> bool {
        matches!(self, Self::Dpo | Self::Spin | Self::OnlineDpo)
    }

    /// It generates replies in training.
    pub const fn generates(self) -> bool {
        !matches!(self, Self::Sft | Self::Dpo | Self::Verifier)
    }

    /// The name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drmas => "drmas",
            Self::Grpo => "grpo",
            Self::Drgrpo => "drgrpo",
            Self::Dapo => "dapo",
            Self::Rloo => "rloo",
            Self::Gigpo => "gigpo",
            Self::ReinforcePlusPlus => "reinforce++",
            Self::ReinforcePlusPlusBaseline => "reinforce++_baseline",
            Self::Gspo => "gspo",
            Self::Cispo => "cispo",
            Self::Sapo => "sapo",
            Self::Cpgd => "cpgd",
            Self::Passk => "passk",
            Self::Remax => "remax",
            Self::Luspo => "luspo",
            Self::GspoToken => "gspo_token",
            Self::Gmpo => "gmpo",
            Self::Vespo => "vespo",
            Self::Dppo => "dppo",
            Self::Dro => "dro",
            Self::Maxrl => "maxrl",
            Self::Gpg => "gpg",
            Self::Opo => "opo",
            Self::Otb => "otb",
            Self::Cory => "cory",
            Self::Ppo => "ppo",
            Self::Ippo => "ippo",
            Self::Mappo => "mappo",
            Self::Happo => "happo",
            Self::Marft => "marft",
            Self::Vdn => "vdn",
            Self::Qmix => "qmix",
            Self::Maporl => "maporl",
            Self::Sft => "sft",
            Self::Dpo => "dpo",
            Self::Spin => "spin",
            Self::OnlineDpo => "online_dpo",
            Self::Verifier => "verifier",
        }
    }

    /// The arXiv number of its paper, where it has one.
    pub const fn paper(self) -> Option<&'static str> {
        match self {
            Self::Drmas => Some("2602.08847"),
            Self::Grpo => Some("2402.03300"),
            Self::Drgrpo => Some("2503.20783"),
            Self::Dapo => Some("2503.14476"),
            Self::Rloo => Some("2402.14740"),
            Self::Gigpo => Some("2505.10978"),
            Self::ReinforcePlusPlus | Self::ReinforcePlusPlusBaseline => Some("2501.03262"),
            Self::Gspo | Self::GspoToken => Some("2507.18071"),
            Self::Cispo => Some("2506.13585"),
            Self::Sapo => Some("2511.20347"),
            Self::Cpgd => Some("2505.12504"),
            Self::Passk => Some("2503.19595"),
            Self::Remax => Some("2310.10505"),
            Self::Luspo => Some("2602.05261"),
            Self::Gmpo => Some("2507.20673"),
            Self::Vespo => Some("2602.10693"),
            Self::Dppo => Some("2602.04879"),
            Self::Dro => Some("2405.19107"),
            Self::Maxrl => Some("2602.02710"),
            Self::Gpg => Some("2504.02546"),
            Self::Opo => Some("2505.23585"),
            Self::Otb => Some("2602.07078"),
            Self::Cory => Some("2410.06101"),
            Self::Dpo => Some("2305.18290"),
            Self::Spin => Some("2401.01335"),
            Self::OnlineDpo => Some("2402.04792"),
            Self::Verifier => Some("2110.14168"),
            Self::Ppo => Some("1707.06347"),
            Self::Ippo => Some("2011.09533"),
            Self::Mappo => Some("2103.01955"),
            Self::Happo => Some("2109.11251"),
            Self::Marft => Some("2504.16129"),
            Self::Vdn => Some("1706.05296"),
            Self::Qmix => Some("1803.11485"),
            Self::Maporl => Some("2502.18439"),
            Self::Sft => None,
        }
    }

    /// Summary in one sentence.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Drmas => "group-relative per task and seat, a turn at a time",
            Self::Grpo => "group-relative per task, an episode at a time",
            Self::Drgrpo => "GRPO without its divisions by the deviation and by the length",
            Self::Dapo => {
                "GRPO with a higher upper clip, groups without spread replaced, long replies discouraged"
            }
            Self::Rloo => "each episode against the mean of the others, ratios of whole replies",
            Self::Gigpo => "GRPO, and turns that were given the same prompt against each other",
            Self::ReinforcePlusPlus => "no group: rewards, whitened over the tokens of the step",
            Self::ReinforcePlusPlusBaseline => {
                "rewards less the mean of their task, whitened over the tokens of the step"
            }
            Self::Gspo => "GRPO with the ratio of the whole reply",
            Self::Cispo => "GRPO that cuts the weight of a token, not its gradient",
            Self::Sapo => "GRPO with a soft gate in the place of the clip",
            Self::Cpgd => {
                "GRPO on clipped log-probabilities, with a pull towards the policy that sampled"
            }
            Self::Passk => "only the best of a group learns, by what it has over the second best",
            Self::Remax => "each episode against one more on its task, played greedily",
            Self::Luspo => "GSPO where a reply counts with its length",
            Self::GspoToken => "GSPO where each token has its own advantage",
            Self::Gmpo => "GRPO with the geometric mean of the clipped ratios of a reply",
            Self::Vespo => "GRPO on log-probabilities, weighted smoothly by the ratio of the reply",
            Self::Dppo => "GRPO within a distance of the probability that a token was sampled with",
            Self::Dro => "GRPO on log-probabilities, with a quadratic pull towards the sampler",
            Self::Maxrl => "rewards less the mean of their task, over this mean",
            Self::Gpg => {
                "rewards less the mean of their task, on log-probabilities; makes up for tasks without spread"
            }
            Self::Opo => "rewards less the mean of their task, weighted by the length of replies",
            Self::Otb => "rewards less a baseline for each place in a reply, of least variance",
            Self::Cory => "a pioneer and an observer who sees its answer, and exchange of policies",
            Self::Dpo => "supervised: raises the better of two given replies against the other",
            Self::Spin => "self-play: given replies against those of the iteration before",
            Self::OnlineDpo => {
                "pairs of the policy's own replies to a task, ordered by their rewards; the loss of DPO"
            }
            Self::Verifier => "supervised: a head that tells right replies from wrong ones",
            Self::Ppo => "advantages from one critic, which reads what each agent is given",
            Self::Ippo => "PPO, a critic for each policy",
            Self::Mappo => "PPO, one critic that reads everything that was said",
            Self::Happo => {
                "MAPPO, policies one after the other, each knowing what the updates before it did"
            }
            Self::Marft => "MAPPO, advantages along the chain of agents",
            Self::Vdn => {
                "values of agents that add up to that of the team, learned from its reward"
            }
            Self::Qmix => "values of agents mixed into that of the team by a monotone network",
            Self::Maporl => {
                "IPPO, a turn worth what the team earns after it too, with pay for influence"
            }
            Self::Sft => {
                "supervised: raises the log-probability of given replies, plays no episode"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdvantagePlan, AlgorithmConfig};
    use crate::settings::Settings;

    #[test]
    fn every_preset_is_in_the_documentation_with_its_paper() {
        let index = include_str!("../../../docs/src/algorithms/index.md");
        let papers = include_str!("../../../docs/src/papers.md");
        for preset in Preset::ALL {
            let name = preset.name();
            assert!(index.contains(&format!("\n| `{name}` |")), "{name} is not in the index");
            if let Some(paper) = preset.paper() {
                assert!(papers.contains(&format!("[{paper}]")), "{name}: {paper} is not in papers");
            }
        }
    }

    #[test]
    fn names_are_what_a_configuration_reads() {
        for preset in Preset::ALL {
            let read: AlgorithmConfig =
                toml::from_str(&format!("name = {:?}", preset.name())).expect("a name is read");
            assert_eq!(read.name, preset);
            assert_eq!(preset.parts().name, preset);
        }
    }

    #[test]
    fn estimators_of_presets_have_the_keys_that_they_set() {
        for preset in Preset::ALL {
            let written = preset.parts().advantage;
            let resolved = AdvantagePlan::resolve(&written, AdvantagePlan::default()).written();
            for (key, value) in &written.settings {
                assert_eq!(
                    resolved.settings[key].as_object().map(|table| table["weight"].clone()),
                    value.as_object().map(|table| table["weight"].clone()),
                );
                assert!(value.is_object() || resolved.settings[key] == *value, "{preset:?}: {key}");
            }
            assert_eq!(resolved.kind, Some(written.kind_or("group")), "{preset:?}");
        }
    }
}
