//! Quantities of credit in the word games: recorded advantages, compared with the contributions of the players.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use maverl::run_dir::{SampleRecord, read_rollouts, read_samples};
use maverl::trajectory::Episode;
use maverl_lab::statistics::{correlation, mean};
use serde::{Deserialize, Serialize};

/// Quantities of credit of a run, as means over its steps and players.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct CreditQuantities {
    /// Correlation of a player's advantages with its contributions in a step; `None` if one of them never varies.
    pub(crate) correlation: Option<f64>,
    /// Absolute mean of a player's advantages in a step; `None` without a sample.
    pub(crate) bias: Option<f64>,
}

/// Advantage of a turn, and the contribution of its player to the success of the episode.
pub(crate) type TurnCredit = [f64; 2];

/// Reads the quantities of some steps of a run in a word game.
///
/// # Errors
///
/// If the episodes or samples of a step cannot be read, or an episode has no contributions.
pub(crate) fn read_credit(dir: &Path, steps: &[usize]) -> Result<CreditQuantities> {
    let turns = steps.iter().map(|step| read_step(dir, *step));
    Ok(credit_quantities(&turns.collect::<Result<Vec<_>>>()?))
}

/// Returns the quantities of steps, each with the turns of its players.
///
/// ```text
/// correlation = mean over steps t and players i of  r(Aₜᵢ, cₜᵢ)        where both vary
/// bias        = mean over steps t and players i of  |mean Aₜᵢ|
/// ```
fn credit_quantities(steps: &[BTreeMap<u32, Vec<TurnCredit>>]) -> CreditQuantities {
    let players = || steps.iter().flat_map(BTreeMap::values);
    let biases = players().filter_map(|turns| mean(turns.iter().map(|turn| turn[0])));
    CreditQuantities {
        correlation: mean(players().filter_map(|turns| correlation(turns))),
        bias: mean(biases.map(f64::abs)),
    }
}

/// Reads the turns of a step that were trained on, by player.
fn read_step(dir: &Path, step: usize) -> Result<BTreeMap<u32, Vec<TurnCredit>>> {
    let file = |folder: &str| dir.join(format!("{folder}/step-{step:06}.jsonl.zst"));
    let episodes = read_rollouts(&file("rollouts"))?;
    let mut players: BTreeMap<u32, Vec<TurnCredit>> = BTreeMap::new();
    for sample in read_samples(&file("samples"))?.samples {
        let (player, credit) = turn_credit(&episodes, &sample)
            .with_context(|| format!("step {step}: an episode has no contributions"))?;
        players.entry(player).or_default().push(credit);
    }
    Ok(players)
}

/// Returns the player of a sample, with its advantage and its contribution.
fn turn_credit(episodes: &[Episode], sample: &SampleRecord) -> Option<(u32, TurnCredit)> {
    let episode = episodes.get(sample.episode)?;
    let player = episode.turns.get(sample.turn)?.seat.index?;
    let credit = episode.score()?.metrics.get(&format!("credit_{player}"))?.as_f64()?;
    Some((player, [sample.loss_advantage(), credit]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn quantities_are_means_over_steps_and_players() {
        // Player 0: r = 1, then no spread of contributions. Player 1: r = -1, then r = 0.5.
        let first = BTreeMap::from([
            (0, vec![[1.0, 1.0], [-1.0, 0.0]]),
            (1, vec![[3.0, 0.0], [1.0, 1.0]]),
        ]);
        let second = BTreeMap::from([
            (0, vec![[1.0, 1.0], [-2.0, 1.0]]),
            (1, vec![[-1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),
        ]);
        let CreditQuantities { correlation, bias } = credit_quantities(&[first, second]);
        assert!((correlation.unwrap() - 0.5 / 3.0).abs() < 1e-12, "{correlation:?}");
        // |mean|: 0, 2, 0.5 and 0.
        assert!((bias.unwrap() - 2.5 / 4.0).abs() < 1e-12, "{bias:?}");
        assert_eq!(credit_quantities(&[]), CreditQuantities::default());
    }
}
