//! Parts of the reward in an evaluation.

use std::collections::BTreeMap;

use crate::trajectory::Episode;

/// Returns the mean of each part of the reward over scored episodes. Values of the turns of an episode are added; an episode without
/// the part counts as 0.
pub(super) fn part_means(episodes: &[Episode]) -> BTreeMap<String, f64> {
    let scored: Vec<&Episode> = episodes.iter().filter(|of| of.score().is_some()).collect();
    let parts = scored.iter().flat_map(|episode| &episode.rewards);
    let mut means: BTreeMap<String, f64> = BTreeMap::new();
    for part in parts {
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
    use crate::trajectory::{RewardOf, RewardPart};

    #[test]
    fn parts_are_averaged_over_scored_episodes() {
        let part = |name: &str, value: f64| RewardPart {
            name: name.to_owned(),
            value,
            of: RewardOf::Turn(0),
        };
        let mut one = episode("a", 0, true, 1);
        one.rewards = vec![part("sums", 0.5), part("sums", 0.25), part("invalid_reply", -0.1)];
        let other = Episode { rewards: Vec::new(), ..one.clone() };
        let means = part_means(&[one, other]);
        assert_eq!((means["sums"], means["invalid_reply"], means.len()), (0.375, -0.05, 2));
        let line = "mean of `rewards` over episodes: invalid_reply -0.050, sums 0.375";
        assert_eq!(parts_line(&means).unwrap(), line);
        assert_eq!(parts_line(&part_means(&[])), None);
    }
}
