//! Parts of the reward in an evaluation.

use std::collections::BTreeMap;

use crate::trajectory::{Episode, RewardPart};

/// Parts that no table `[rewards.NAME]` declares.
const UNDECLARED: [&str; 4] =
    [RewardPart::INVALID_REPLY, RewardPart::OVERLONG_REPLY, RewardPart::OWN, RewardPart::KL];

/// Returns the mean of each declared part of the reward over scored episodes. Values of the turns of an episode are added; an episode
/// without the part counts as 0.
pub(super) fn part_means(episodes: &[Episode]) -> BTreeMap<String, f64> {
    let scored: Vec<&Episode> = episodes.iter().filter(|of| of.score().is_some()).collect();
    let parts = scored.iter().flat_map(|episode| &episode.rewards);
    let mut means: BTreeMap<String, f64> = BTreeMap::new();
    for part in parts.filter(|part| !UNDECLARED.contains(&part.name.as_str())) {
        *means.entry(part.name.clone()).or_default() += part.value / scored.len() as f64;
    }
    means
}

/// Formats the means of parts in a line; `None` without parts.
pub(super) fn parts_line(means: &BTreeMap<String, f64>) -> Option<String> {
    let parts: Vec<String> = means.iter().map(|(name, mean)| format!("{name} {mean:.3}")).collect();
    (!parts.is_empty()).then(|| format!("mean of `rewards` over episodes: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::run_dir::tests::episode;
    use crate::trajectory::RewardOf;

    #[test]
    fn declared_parts_are_averaged_over_scored_episodes_and_penalties_are_left_out() {
        let part = |name: &str, value: f64| RewardPart {
            name: name.to_owned(),
            value,
            of: RewardOf::Turn(0),
        };
        let mut one = episode("a", 0, true, 1);
        one.rewards = vec![part("sums", 0.5), part("sums", 0.25), part("invalid_reply", -0.1)];
        let other = Episode { rewards: Vec::new(), ..one.clone() };
        let means = part_means(&[one, other]);
        assert_eq!(means, BTreeMap::from([("sums".to_owned(), 0.375)]));
        assert_eq!(parts_line(&means).unwrap(), "mean of `rewards` over episodes: sums 0.375");
        assert_eq!(parts_line(&part_means(&[])), None);
    }
}
