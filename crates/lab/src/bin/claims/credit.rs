//! Quantities of credit, from recorded samples: the bias of advantages, and their correlation with contributions in word games.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use maverl::run_dir::{SampleRecord, read_rollouts, read_samples};
use maverl::trajectory::{Episode, Seat};
use maverl_lab::statistics::{correlation, mean};
use serde::{Deserialize, Serialize};

/// Quantities of credit of a run, as means over its steps and seats.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct CreditQuantities {
    /// Correlation of a seat's advantages with its contributions in a step; `None` without contributions, and if one of both never
    /// varies.
    pub(crate) correlation: Option<f64>,
    /// Absolute mean of a seat's advantages in a step; `None` without a sample.
    pub(crate) bias: Option<f64>,
}

/// Trained turn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TurnCredit {
    /// Advantage in the loss.
    advantage: f64,
    /// Contribution of its seat to the success of the episode; `None` outside of word games.
    contribution: Option<f64>,
}

/// Turns of a step, by seat.
type StepCredit = BTreeMap<Seat, Vec<TurnCredit>>;

/// Reads the quantities of some steps of a run. Their numbers begin at 1.
///
/// # Errors
///
/// If the episodes or samples of a step cannot be read, or a sample has no turn.
pub(crate) fn read_credit(dir: &Path, steps: &[usize]) -> Result<CreditQuantities> {
    let turns = steps.iter().map(|step| read_step(dir, *step));
    Ok(credit_quantities(&turns.collect::<Result<Vec<_>>>()?))
}

/// Returns the quantities of steps.
///
/// ```text
/// correlation = mean over steps t and seats i of  r(Aₜᵢ, cₜᵢ)        where both vary
/// bias        = mean over steps t and seats i of  |mean Aₜᵢ|
/// ```
fn credit_quantities(steps: &[StepCredit]) -> CreditQuantities {
    let seats: Vec<&Vec<TurnCredit>> = steps.iter().flat_map(BTreeMap::values).collect();
    let biases = seats.iter().filter_map(|turns| mean(turns.iter().map(|turn| turn.advantage)));
    CreditQuantities {
        correlation: mean(seats.iter().filter_map(|turns| seat_correlation(turns))),
        bias: mean(biases.map(f64::abs)),
    }
}

/// Returns the correlation of the turns of a seat in a step.
fn seat_correlation(turns: &[TurnCredit]) -> Option<f64> {
    let pairs = turns.iter().filter_map(|turn| Some([turn.advantage, turn.contribution?]));
    correlation(&pairs.collect::<Vec<_>>())
}

/// Reads the turns of a step that were trained on.
fn read_step(dir: &Path, step: usize) -> Result<StepCredit> {
    let file = |folder: &str| dir.join(format!("{folder}/step-{step:06}.jsonl.zst"));
    let episodes = read_rollouts(&file("rollouts"))?;
    let mut seats = StepCredit::new();
    for sample in read_samples(&file("samples"))?.samples {
        let Some((seat, credit)) = turn_credit(&episodes, &sample) else {
            bail!("step {step} has no turn {} of episode {}", sample.turn, sample.episode);
        };
        seats.entry(seat).or_default().push(credit);
    }
    Ok(seats)
}

/// Returns the seat of a sample, with its advantage and its contribution.
fn turn_credit(episodes: &[Episode], sample: &SampleRecord) -> Option<(Seat, TurnCredit)> {
    let episode = episodes.get(sample.episode)?;
    let seat = episode.turns.get(sample.turn)?.seat.clone();
    let contribution = contribution_of(episode, &seat);
    Some((seat, TurnCredit { advantage: sample.loss_advantage(), contribution }))
}

/// Returns the contribution of a seat that the environment `games/words` records; `None` of another environment.
fn contribution_of(episode: &Episode, seat: &Seat) -> Option<f64> {
    let name = format!("credit_{}", seat.index?);
    episode.score()?.metrics.get(&name)?.as_f64()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn turns(pairs: &[[f64; 2]]) -> Vec<TurnCredit> {
        let turn = |&[advantage, c]: &[f64; 2]| TurnCredit { advantage, contribution: Some(c) };
        pairs.iter().map(turn).collect()
    }

    #[test]
    fn quantities_are_means_over_steps_and_seats() {
        let [a, b] = [0, 1].map(|index| Seat::at("games/player", index));
        // The first: r = 1, then no spread of contributions. The second: r = -1, then r = 1/2.
        let first = StepCredit::from([
            (a.clone(), turns(&[[1.0, 1.0], [-1.0, 0.0]])),
            (b.clone(), turns(&[[3.0, 0.0], [1.0, 1.0]])),
        ]);
        let second = StepCredit::from([
            (a, turns(&[[1.0, 1.0], [-2.0, 1.0]])),
            (b, turns(&[[-1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])),
        ]);
        let CreditQuantities { correlation, bias } = credit_quantities(&[first, second]);
        assert!((correlation.unwrap() - 0.5 / 3.0).abs() < 1e-12, "{correlation:?}");
        // Absolute means: 0, 2, 1/2 and 0.
        assert!((bias.unwrap() - 2.5 / 4.0).abs() < 1e-12, "{bias:?}");
        assert_eq!(credit_quantities(&[]), CreditQuantities::default());
    }

    #[test]
    fn a_seat_without_contributions_has_a_bias_alone() {
        let turn = TurnCredit { advantage: -0.5, contribution: None };
        let step = StepCredit::from([(Seat::only("search/answerer"), vec![turn; 2])]);
        let expected = CreditQuantities { correlation: None, bias: Some(0.5) };
        assert_eq!(credit_quantities(&[step]), expected);
    }
}
