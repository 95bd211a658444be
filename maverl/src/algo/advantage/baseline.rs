//! Baselines from outside of the group: the reward of a greedy episode, or the average of the seat so far.

use std::collections::BTreeMap;

use super::EmaBaseline;
use super::branched::credit_baselines;
use super::shaping::shaped_turns;
use crate::algo::{Sample, TaskKey};
use crate::credit::{Estimators, KnownBaseline};
use crate::plan::Plan;
use crate::trajectory::Episode;

/// True if an episode was played greedily, to compare others with: its index is that after those of the group.
pub(crate) fn is_greedy(plan: &Plan, episode: &Episode) -> bool {
    plan.algorithm.advantage.baseline() == KnownBaseline::Greedy
        && episode.index >= plan.config.task.group_size.get()
}

/// Gives samples what their rewards are compared with, where the algorithm has it before the step, and lets the averages
/// of the seats move.
///
/// ```text
/// greedy           A = r − r_greedy                        ReMax, 2310.10505 alg. 2
/// moving_average   A = r − b_seat                          see [`EmaBaseline`]
/// counterfactual, continuations                            see `branched.rs`
/// ```
///
/// - The greedy episode of a task says what its seat earned there, in the mean over its turns; a seat that did not speak
///   in it is compared with the mean over all of its turns. Its rewards are shaped as those of samples are.
/// - Samples of a task whose greedy episode could not be scored are left out.
pub(crate) fn baselines(
    plan: &Plan,
    episodes: &[Episode],
    samples: &mut Vec<Sample>,
    averages: &mut EmaBaseline,
    estimators: &Estimators,
) {
    match plan.algorithm.advantage.baseline() {
        KnownBaseline::Greedy => {
            let greedy = greedy(plan, episodes);
            samples.retain_mut(|sample| {
                let Some(earned) = greedy.get(&sample.task) else { return false };
                let of_seat = earned.get(&Some(sample.seat)).or_else(|| earned.get(&None));
                let Some((sum, turns)) = of_seat else { return false };
                sample.baseline = sum / *turns as f64;
                true
            });
        }
        KnownBaseline::MovingAverage { momentum } => {
            let (rewards, seats): (Vec<f64>, Vec<usize>) =
                samples.iter().map(|sample| (sample.reward, sample.seat)).unzip();
            for sample in &mut *samples {
                sample.baseline = averages.of(sample.seat);
            }
            averages.momentum = momentum;
            averages.step(&rewards, &seats, estimators);
        }
        known @ (KnownBaseline::Counterfactual(_) | KnownBaseline::Continuations(_)) => {
            credit_baselines(known, episodes, samples);
        }
        KnownBaseline::None => {}
    }
}

/// Sums of rewards and numbers of turns, by seat and (under `None`) over all of them.
type Earned = BTreeMap<Option<usize>, (f64, usize)>;

/// Reward of each task's greedy episode.
fn greedy(plan: &Plan, episodes: &[Episode]) -> BTreeMap<TaskKey, Earned> {
    let mut tasks: BTreeMap<TaskKey, Earned> = BTreeMap::new();
    for episode in episodes.iter().filter(|episode| is_greedy(plan, episode)) {
        let key = TaskKey::of(episode);
        let rewards = shaped_turns(episode, plan.algorithm.shaping);
        for (turn, reward) in episode.turns.iter().zip(rewards) {
            let seat = plan.seats.iter().position(|seat| seat.seat == turn.seat);
            let (Some(seat), Some(reward)) =
                (seat.filter(|&seat| plan.seats[seat].trained), reward)
            else {
                continue;
            };
            let earned = tasks.entry(key.clone()).or_default();
            for of in [Some(seat), None] {
                let (sum, turns) = earned.entry(of).or_default();
                (*sum, *turns) = (*sum + reward, *turns + 1);
            }
        }
    }
    tasks
}
