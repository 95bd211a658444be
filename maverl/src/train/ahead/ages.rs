//! Ages of the tokens of a step whose episodes went on with newer weights: the steps that their weights were behind those
//! that it trains.

use std::collections::BTreeMap;

use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::rollout::{TurnSchedule, updated_seats};
use crate::trajectory::Episode;

/// Number of sampled tokens by age in steps, of the seats whose policies are updated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ages(BTreeMap<u64, u64>);

impl Ages {
    /// Counts the tokens of the episodes of a step.
    pub(super) fn of(plan: &Plan, schedule: TurnSchedule, episodes: &[Episode]) -> Self {
        let seats = updated_seats(plan);
        let mut ages: BTreeMap<u64, u64> =
            (0..=schedule.last - schedule.first).map(|age| (age, 0)).collect();
        let turns = episodes.iter().flat_map(|episode| &episode.turns);
        for turn in turns.filter(|turn| seats.contains(&turn.seat)) {
            let sampled = turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
            let age = schedule.last - schedule.version(&turn.path);
            *ages.entry(age).or_default() += sampled as u64;
        }
        Self(ages)
    }

    /// Returns the mean age, and the share of the tokens of each age; nothing without tokens.
    pub(super) fn metrics(&self) -> Metrics {
        let tokens: u64 = self.0.values().sum();
        if tokens == 0 {
            return Metrics::default();
        }
        let share = |count: u64| count as f64 / tokens as f64;
        let total: u64 = self.0.iter().map(|(age, count)| age * count).sum();
        let shares =
            self.0.iter().map(|(age, &count)| (format!("async/behind/{age}"), share(count)));
        shares.chain([("async/staleness_mean".to_owned(), share(total))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::{episode, plan, turn};

    #[test]
    fn the_age_of_a_token_follows_from_the_place_of_its_turn_in_the_episode() {
        let mut turns: Vec<_> = (0..4).map(|place| turn("t/a", place)).collect();
        if let Some(tokens) = &mut turns[1].tokens {
            tokens.completion = vec![4; 10];
        }
        let played = [episode("a", 0, 1.0, turns)];
        let schedule = TurnSchedule { first: 5, last: 7, turns: 1 };
        let ages = Ages::of(&plan(&[("t/a", true)]), schedule, &played);
        assert_eq!(ages, Ages(BTreeMap::from([(0, 4), (1, 10), (2, 2)])));
        let metrics = ages.metrics();
        assert_eq!(metrics.get("async/staleness_mean"), Some(14.0 / 16.0));
        assert_eq!(metrics.get("async/behind/1"), Some(10.0 / 16.0));
        let frozen = Ages::of(&plan(&[("t/a", false)]), schedule, &played);
        assert_eq!(frozen.metrics(), Metrics::default(), "no weights are updated");
    }
}
