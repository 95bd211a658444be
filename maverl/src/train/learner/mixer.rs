//! Mixing of the agents' values into one team value: advantages of the agents, and training of mixer and critics.
//!
//! Mixer and critics are trained while the advantages are computed, not in the update. The reward of a reply is
//! compared with values from before the reply alone, since later prompts may contain it.

mod saved;

use std::collections::{BTreeMap, BTreeSet};

use maverl_kernels::adamw::adamw_step;
use maverl_kernels::advantage::{GaeSteps, RaggedRows, gae_advantages};
use maverl_kernels::sample::derive_seed;

use crate::algo::loss::{ValueLoss, value_loss};
use crate::algo::{
    MixedTurn, Mixing, Monotone, Sample, SeatValues, ValueBatch, ValueTarget, ValueText,
    explained_variance, mixed_turns, value_batches,
};
use crate::config::{Credit, CriticPasses, MixerNetwork, MixerPlan};
use crate::metrics::Metrics;
use crate::plan::{CriticPlan, Plan};
use crate::runtime::{OptimOptions, Policy};
use crate::train::error::TrainError;
use crate::train::learner::batches::StepPlan;
use crate::train::learner::critic::{ValuePredictions, narrow_values, predict_values};
use crate::train::record::measure::{critic_norm, mean_of};

/// Salt of the seed of a mixer.
const MIXER: u64 = 0x006d_6978_6572;

/// The mixer of a team, and its optimizer state.
#[derive(Debug)]
pub(crate) struct TeamMixer {
    mixing: Mixing,
    moments: [Vec<f32>; 2],
    step: u64,
}

/// The turns of a step, as a mixer sees them.
struct MixerTurns<'a> {
    samples: &'a [Sample],
    /// Number of trained seats.
    seats: usize,
    /// Seat of each sample among the trained ones. `[N]`
    places: &'a [usize],
    /// State by index of the episode; empty for a sum, which has no state.
    states: BTreeMap<usize, Vec<f64>>,
}

impl TeamMixer {
    /// Returns the initial mixer of a plan, over a state of `state` numbers.
    fn new(plan: &Plan, mixer: &MixerPlan, state: usize) -> Self {
        let seats = plan.seats.iter().filter(|seat| seat.trained).count();
        let mixing = match mixer.network {
            MixerNetwork::Monotone => {
                let seed = derive_seed(plan.config.seed, MIXER);
                Mixing::Monotone(Monotone::new(seats, state, mixer.width.get(), seed))
            }
            MixerNetwork::Sum => Mixing::Sum,
        };
        let zeros = vec![0.0; mixing.params().len()];
        Self { mixing, moments: [zeros.clone(), zeros], step: 0 }
    }

    /// Applies one AdamW step.
    fn apply(&mut self, optim: &OptimOptions, lr: f64, gradient: &[f64]) {
        if gradient.is_empty() {
            return;
        }
        self.step += 1;
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let (adamw, scale) = optim.step(lr, norm);
        let gradient = narrow_values(gradient);
        let [m, v] = &mut self.moments;
        adamw_step(&adamw, self.step, scale, self.mixing.params_mut(), &gradient, m, v);
    }
}

/// Computes the advantages of samples `[N][T]` from the critics' predictions, before whitening. Then mixer and critics
/// are updated together. Also returns the metrics. `mixer` is none before its first use.
pub(crate) async fn learn(
    at: &StepPlan<'_>,
    policies: &[Policy],
    mixer: &mut Option<TeamMixer>,
    (mixed, samples): (&MixerPlan, &[Sample]),
    predicted: &ValuePredictions,
) -> Result<(Vec<Vec<f64>>, Metrics), TrainError> {
    let (plan, critic) = (at.plan, &mixed.critic());
    let turns = MixerTurns::of(plan, policies, samples, predicted).await?;
    let first = turns.mixed_turns(&predicted.values);
    let size = first.first().map_or(0, |turn| turn.state.len());
    let mixer = mixer.get_or_insert_with(|| TeamMixer::new(plan, mixed, size));
    let advantages = turns.advantages(&mixer.mixing, mixed, &first, &predicted.values);
    let old = totals(&mixer.mixing, &first);
    let mut metrics = credit_metrics(&old, &first, mixed.credit);
    let lr = at.rates.and_then(|rates| rates.get("mixer/lr"));
    let lr = lr.unwrap_or_else(|| critic.optim().rate(at.step, plan.config.steps));
    let steps = turns.steps(plan.algorithm.critic_passes());
    let (mut values, mut loss) = (predicted.values.clone(), 0.0);
    for (step, rows) in steps.iter().enumerate() {
        if step > 0 {
            predict_again(policies, predicted, rows, &mut values).await?;
        }
        let now = (&*turns.mixed_turns(&values), &*values);
        let (sums, slopes, gradient) =
            turns.backward(&mixer.mixing, mixed, rows, now, (&old, &*predicted.values));
        loss += sums.loss;
        let mut skipped = 0;
        for (host, batch) in batches(plan, samples, predicted, rows, &slopes) {
            let batch = ValueBatch { minibatches: 1, epochs: 1, lr, ..batch };
            let stats = policies[host].update_critic(batch).await?;
            skipped += stats.skipped_steps;
            metrics.extend(critic_norm(&format!("critic/{}", policies[host].name()), &stats));
        }
        // In f16, a critic may skip a step. The mixer goes with it, because they minimize one loss.
        if skipped == 0 {
            mixer.apply(&critic.optim(), lr, &gradient);
        }
    }
    metrics.set("mixer/lr", lr);
    metrics.set("mixer/loss", loss / steps.len().max(1) as f64);
    Ok((advantages, metrics))
}

/// Predicts the values of some samples with the current critics.
async fn predict_again(
    policies: &[Policy],
    predicted: &ValuePredictions,
    rows: &[usize],
    values: &mut [Vec<f64>],
) -> Result<(), TrainError> {
    let hosts: Vec<usize> = rows.iter().map(|&row| predicted.hosts[row]).collect();
    let texts: Vec<ValueText> = rows.iter().map(|&row| predicted.texts[row].clone()).collect();
    for (&row, found) in rows.iter().zip(predict_values(policies, &hosts, &texts).await?) {
        values[row] = found;
    }
    Ok(())
}

/// Returns the batch of each critic from the derivatives of the loss by the values of some samples.
fn batches(
    plan: &Plan,
    samples: &[Sample],
    predicted: &ValuePredictions,
    rows: &[usize],
    slopes: &[Vec<f32>],
) -> Vec<(usize, ValueBatch)> {
    let of: Vec<Sample> = rows.iter().map(|&row| samples[row].clone()).collect();
    let texts: Vec<ValueText> = rows.iter().map(|&row| predicted.texts[row].clone()).collect();
    let aims: Vec<ValueTarget> =
        rows.iter().map(|&row| ValueTarget::Slopes(slopes[row].clone())).collect();
    value_batches(plan, &of, &texts, &aims, 0)
}

/// Computes advantages and returns of the tokens of a reply. The reward at its end is the agent's last value. `values`
/// is `[tokens + 1]`.
fn reply_gae(values: &[f64], critic: &CriticPlan) -> (Vec<f64>, Vec<f64>) {
    // A reply without tokens has no value, and no advantage.
    let Some((&earned, values)) = values.split_last() else { return (Vec::new(), Vec::new()) };
    let mut rewards = vec![0.0; values.len()];
    if let Some(last) = rewards.last_mut() {
        *last += earned;
    }
    let lengths = RaggedRows::from_lengths(&[values.len()]);
    gae_advantages(&rewards, values, &[0.0], &lengths, GaeSteps::all(critic.into()))
}

/// Loss of the team's values, and its derivatives by the mixer's parameters.
struct TeamLoss<'t> {
    mixing: &'t Mixing,
    critic: &'t CriticPlan,
    loss: ValueLoss,
    gradient: Vec<f64>,
}

impl TeamLoss<'_> {
    /// Adds the loss of the value before (0) or after (1) the reply of a turn against the reward, and returns its derivatives by
    /// the seats' values. `old` are the team's values before the update.
    fn add(&mut self, turn: &MixedTurn, old: [f64; 2], when: usize, weight: f64) -> Vec<f32> {
        let seats = [&turn.before, &turn.after][when];
        let total = self.mixing.total(seats, &turn.state) as f32;
        let mut by = [0.0];
        let row = [&[total][..], &[old[when] as f32], &[turn.reward as f32]];
        self.loss += value_loss(row, weight, self.critic.limits(), &mut by);
        let by = f64::from(by[0]);
        let d_values = self.mixing.backward(seats, &turn.state, by, &mut self.gradient);
        d_values.into_iter().map(|d_value| (by * d_value) as f32).collect()
    }
}

/// Computes the loss of the first value of a reply against its last one, and adds its derivative to `grads`.
fn expected_value_loss(
    values: &[f64],
    said: &[f64],
    critic: &CriticPlan,
    weight: f64,
    grads: &mut [f32],
) -> ValueLoss {
    let [value, after, old] = [values[0], values[values.len() - 1], said[0]].map(|of| of as f32);
    value_loss([&[value], &[old], &[after]], weight, critic.limits(), &mut grads[..1])
}

/// Computes the loss of the values between the first and the last of a reply, and adds its derivatives to `grads`. The
/// targets are the returns of [`reply_gae`] from the values `said` before the update.
fn token_value_loss(
    values: &[f64],
    said: &[f64],
    critic: &CriticPlan,
    weight: f64,
    grads: &mut [f32],
) -> ValueLoss {
    let (_, returns) = reply_gae(said, critic);
    let inner = returns.len().min(1)..returns.len();
    let weight = weight / inner.len().max(1) as f64;
    let [values, old, returns] =
        [values, said, &returns].map(|of| narrow_values(&of[inner.clone()]));
    value_loss([&values, &old, &returns], weight, critic.limits(), &mut grads[inner])
}

/// Returns the team's values at turns, before and after the replies.
fn totals(mixing: &Mixing, turns: &[MixedTurn]) -> Vec<[f64; 2]> {
    turns
        .iter()
        .map(|turn| [&turn.before, &turn.after].map(|values| mixing.total(values, &turn.state)))
        .collect()
}

fn credit_metrics(totals: &[[f64; 2]], turns: &[MixedTurn], credit: Credit) -> Metrics {
    let [before, after] =
        [0, 1].map(|when| totals.iter().map(|total| total[when]).collect::<Vec<f64>>());
    let returns: Vec<f64> = turns.iter().map(|turn| turn.reward).collect();
    let mut metrics = Metrics::default();
    metrics.set("mixer/value_mean", mean_of(before.iter().copied()));
    metrics.set("mixer/return_mean", mean_of(returns.iter().copied()));
    metrics.set("mixer/explained_variance", explained_variance(&before, &returns));
    if credit.knows_replies() {
        let last: BTreeMap<usize, (f64, f64)> = turns
            .iter()
            .zip(&after)
            .map(|(turn, after)| (turn.episode, (*after, turn.reward)))
            .collect();
        let (values, returns): (Vec<f64>, Vec<f64>) = last.into_values().unzip();
        metrics.set("mixer/explained_variance_after", explained_variance(&values, &returns));
    }
    metrics
}

impl<'a> MixerTurns<'a> {
    /// Computes the state of each episode, which is the critic's hidden state of its first prompt.
    async fn of(
        plan: &Plan,
        policies: &[Policy],
        samples: &'a [Sample],
        predicted: &'a ValuePredictions,
    ) -> Result<Self, TrainError> {
        let seats = plan.seats.iter().filter(|seat| seat.trained).count();
        let mut turns = Self { samples, seats, places: &predicted.places, states: BTreeMap::new() };
        if plan.mixer_plan().is_none_or(|mixed| mixed.network == MixerNetwork::Sum) {
            return Ok(turns);
        }
        let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, sample) in samples.iter().enumerate() {
            firsts.entry(sample.episode).or_insert(i);
        }
        let hosts: BTreeSet<usize> = firsts.values().map(|&i| predicted.hosts[i]).collect();
        for policy in hosts {
            let its = firsts.iter().filter(|&(_, &i)| predicted.hosts[i] == policy);
            let (episodes, texts): (Vec<usize>, Vec<_>) =
                its.map(|(&episode, &i)| (episode, predicted.texts[i].clone())).unzip();
            let seen = policies[policy].states(texts).await?;
            for (episode, state) in episodes.into_iter().zip(seen) {
                // Scaled to length 1 on average, whatever the width.
                let unit = (state.len() as f64).sqrt();
                let state = state.into_iter().map(|value| f64::from(value) / unit);
                turns.states.insert(episode, state.collect());
            }
        }
        Ok(turns)
    }

    /// Returns the inputs of the mixer at each sample.
    fn mixed_turns(&self, values: &[Vec<f64>]) -> Vec<MixedTurn> {
        let turns = self.samples.iter().zip(self.places).zip(values);
        let turns = turns.map(|((sample, &seat), values)| SeatValues {
            episode: sample.episode,
            seat,
            reward: sample.reward,
            before: values.first().copied().unwrap_or(0.0),
            after: values.last().copied().unwrap_or(0.0),
        });
        mixed_turns(&turns.collect::<Vec<_>>(), self.seats, &self.states)
    }

    /// Returns the samples of each optimizer step. Episodes are dealt to the minibatches of an epoch in turn.
    fn steps(&self, CriticPasses { epochs, minibatches }: CriticPasses) -> Vec<Vec<usize>> {
        let mut parts = vec![Vec::new(); minibatches];
        let episodes: BTreeSet<usize> = self.samples.iter().map(|sample| sample.episode).collect();
        let ranks: BTreeMap<usize, usize> = episodes.into_iter().zip(0..).collect();
        for (row, sample) in self.samples.iter().enumerate() {
            parts[ranks[&sample.episode] % minibatches].push(row);
        }
        parts.retain(|rows| !rows.is_empty());
        (0..epochs).flat_map(|_| parts.clone()).collect()
    }

    /// Computes the advantage of each token of each sample, `[N][T]`, from `values` before the update.
    fn advantages(
        &self,
        mixing: &Mixing,
        mixed: &MixerPlan,
        turns: &[MixedTurn],
        values: &[Vec<f64>],
    ) -> Vec<Vec<f64>> {
        let critic = mixed.critic();
        let advantages = turns.iter().enumerate().map(|(i, turn)| match mixed.credit {
            Credit::Tokens => reply_gae(&values[i], &critic).0,
            credit => vec![turn.advantage(mixing, credit); self.samples[i].tokens],
        });
        advantages.collect()
    }

    /// Computes the loss at the turns of `rows`, and its derivatives by the values of all samples and by the mixer's
    /// parameters. `now` are current values, `old` those before the update.
    ///
    /// ```text
    /// L = ½ (f(C) − R)²     at the last turn of an episode, for credits that use values after replies       VDN
    ///   + ½ (f(B) − R)²     at each turn, by the value of its seat, for credits with the reward
    ///   + ½ (Bᵢ − Cᵢ)²      at each turn, for credits without: a value before a reply is the mean of those after it
    /// ```
    fn backward(
        &self,
        mixing: &Mixing,
        mixed: &MixerPlan,
        rows: &[usize],
        now: (&[MixedTurn], &[Vec<f64>]),
        old: (&[[f64; 2]], &[Vec<f64>]),
    ) -> (ValueLoss, Vec<Vec<f32>>, Vec<f64>) {
        let (critic, credit) = (&mixed.critic(), mixed.credit);
        let gradient = vec![0.0; mixing.params().len()];
        let mut team = TeamLoss { mixing, critic, loss: ValueLoss::default(), gradient };
        let mut slopes: Vec<Vec<f32>> = now.1.iter().map(|of| vec![0.0; of.len()]).collect();
        let last: BTreeMap<usize, usize> = rows.iter().map(|&i| (now.0[i].episode, i)).collect();
        let (of_turn, of_episode) = (1.0 / rows.len() as f64, 1.0 / last.len() as f64);
        for &i in rows.iter().filter(|_| credit.has_reward()) {
            let seat = now.0[i].seat;
            let by_seat = team.add(&now.0[i], old.0[i], 0, of_turn);
            slopes[i][0] += by_seat[seat] / now.0[i].sources[seat].len() as f32;
        }
        for &i in last.values().filter(|_| credit.knows_replies()) {
            let by_seat = team.add(&now.0[i], old.0[i], 1, of_episode);
            for (sources, slope) in now.0[i].sources.iter().zip(by_seat) {
                for &source in sources {
                    let after = slopes[source].last_mut();
                    after.into_iter().for_each(|after| *after += slope / sources.len() as f32);
                }
            }
        }
        for &i in rows.iter().filter(|_| !credit.has_reward()) {
            team.loss += expected_value_loss(&now.1[i], &old.1[i], critic, of_turn, &mut slopes[i]);
        }
        for &i in rows.iter().filter(|_| credit == Credit::Tokens) {
            team.loss += token_value_loss(&now.1[i], &old.1[i], critic, of_turn, &mut slopes[i]);
        }
        (team.loss, slopes, team.gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_after_the_last_reply_is_measured_where_the_credit_uses_it() {
        let turn = |episode, reward| MixedTurn { episode, reward, ..MixedTurn::default() };
        // Two turns of three episodes that earn 0, 1 and 2. Before replies the values are 1 too high in the second episode;
        // after the first replies they are far off, which nobody asks; after the last ones they have half of the deviation.
        let turns = [(0, 0.0), (0, 0.0), (1, 1.0), (1, 1.0), (2, 2.0), (2, 2.0)];
        let turns = turns.map(|(episode, reward)| turn(episode, reward));
        let totals = [[0.0, 9.0], [0.0, 0.5], [2.0, -9.0], [2.0, 1.0], [2.0, 9.0], [2.0, 1.5]];
        for credit in
            [Credit::Shared, Credit::Weight, Credit::Difference, Credit::Without, Credit::Tokens]
        {
            let metrics = credit_metrics(&totals, &turns, credit);
            let of = |name: &str| metrics.get(&format!("mixer/{name}"));
            assert_eq!((of("value_mean"), of("return_mean")), (Some(4.0 / 3.0), Some(1.0)));
            // Errors 0, 1, 0 have a variance of 2/9, and the returns one of 2/3.
            let before = of("explained_variance").unwrap_or(f64::NAN);
            assert!((before - 2.0 / 3.0).abs() < 1e-12, "{credit:?}: {before}");
            // Errors -1/2, 0, 1/2 have a variance of 1/6.
            let after = of("explained_variance_after");
            let is_used = matches!(credit, Credit::Difference | Credit::Without | Credit::Tokens);
            assert_eq!(after.is_some(), is_used, "{credit:?}");
            assert!(
                after.is_none_or(|after| (after - 0.75).abs() < 1e-12),
                "{credit:?}: {after:?}"
            );
        }
    }
}
