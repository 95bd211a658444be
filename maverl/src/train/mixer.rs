//! Mixing of the agents' values into one team value: advantages of the agents, and training of mixer and critics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use maverl_kernels::adamw::adamw_step;
use maverl_kernels::advantage::{GaeSteps, RaggedRows, gae};
use maverl_kernels::sample::derive_seed;

use crate::algo::loss::{ValueLoss, value_loss};
use crate::algo::{
    Mixing, Monotone, Round, Sample, ValueTarget, explained_variance, lr, value_batches,
};
use crate::config::{Credit, MixerNetwork, MixerPlan};
use crate::metrics::Metrics;
use crate::model::save::{Entry, one_file};
use crate::model::weights::Shards;
use crate::model::{ModelError, ModelErrorKind};
use crate::plan::{CriticPlan, OptimPlan, Plan};
use crate::runtime::{OptimOptions, Policy};
use crate::train::batches::StepPlan;
use crate::train::critic::{ValuePredictions, predict_values};
use crate::train::error::TrainError;

/// Salt of the seed of a mixer.
const MIXER: u64 = 0x006d_6978_6572;

/// The mixer of a team, and its optimizer state.
#[derive(Debug)]
pub(super) struct Mixer {
    mixing: Mixing,
    moments: [Vec<f32>; 2],
    step: u64,
}

/// The episodes of a step, and the position of each trained seat in them.
struct Rounds {
    seats: Vec<usize>,
    /// Position of each sample's seat among the trained ones. `[N]`
    places: Vec<usize>,
    /// State by index of the episode.
    states: BTreeMap<usize, Vec<f64>>,
}

impl Mixer {
    /// Returns the initial mixer of a plan, over a state of `state` numbers.
    fn new(plan: &Plan, mixer: &MixerPlan, state: usize) -> Self {
        let seats = plan.seats.iter().filter(|seat| seat.trained).count();
        let mixing = match mixer.network {
            MixerNetwork::Monotone => {
                let seed = derive_seed(plan.seed, MIXER);
                Mixing::Monotone(Monotone::new(seats, state, mixer.width.get(), seed))
            }
            MixerNetwork::Sum => Mixing::Sum,
        };
        let zeros = vec![0.0; mixing.params().len()];
        Self { mixing, moments: [zeros.clone(), zeros], step: 0 }
    }

    /// Applies one AdamW step.
    fn apply(&mut self, plan: &OptimPlan, lr: f64, gradient: &[f64]) {
        if gradient.is_empty() {
            return;
        }
        self.step += 1;
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let (adamw, scale) = OptimOptions::from(plan).step(lr, norm);
        let gradient: Vec<f32> = gradient.iter().map(|&g| g as f32).collect();
        let [m, v] = &mut self.moments;
        adamw_step(&adamw, self.step, scale, self.mixing.params_mut(), &gradient, m, v);
    }

    /// Writes parameters and moments into a file; a sum has none.
    pub(super) fn save(&self, file: &Path) -> Result<(), ModelError> {
        let Mixing::Monotone(network) = &self.mixing else { return Ok(()) };
        let params = self.mixing.params();
        let counters = [network.state() as f32, self.step as f32];
        let n = [params.len()];
        let entries = [
            Entry::slice("counters", &[2], &counters),
            Entry::slice("params", &n, params),
            Entry::slice("m", &n, &self.moments[0]),
            Entry::slice("v", &n, &self.moments[1]),
        ];
        one_file(file, &entries)
    }

    /// Reads a mixer from a file that [`Mixer::save`] wrote; `None` if there is no file.
    pub(super) fn load(plan: &Plan, file: &Path) -> Result<Option<Self>, ModelError> {
        let Some(mixed) = plan.mixed().filter(|_| file.is_file()) else {
            return Ok(None);
        };
        let saved = Shards::open_file(file)?;
        let values = |name: &str| saved.values(name);
        let counters = values("counters")?;
        let counter = |i: usize| counters.get(i).map_or(0, |&counter| counter as u64);
        let mut mixer = Self::new(plan, mixed, counter(0) as usize);
        let parts = [("params", values("params")?), ("m", values("m")?), ("v", values("v")?)];
        let n = mixer.mixing.params().len();
        if let Some((name, part)) = parts.iter().find(|(_, part)| part.len() != n) {
            let (file, found) = (file.display(), part.len());
            let message = format!("{file}: `{name}` has {found} numbers, the mixer {n}");
            return Err(ModelError::new(ModelErrorKind::Mismatch, message));
        }
        let [(_, params), (_, m), (_, v)] = parts;
        mixer.mixing.params_mut().copy_from_slice(&params);
        (mixer.moments, mixer.step) = ([m, v], counter(1));
        Ok(Some(mixer))
    }
}

/// Computes the advantages of samples `[N][T]` from the critics' predictions, before whitening. Then mixer and critics
/// are updated together. Also returns the metrics.
/// `mixer` is none before its first use.
pub(super) async fn learn(
    at: &StepPlan<'_>,
    policies: &[Policy],
    mixer: &mut Option<Mixer>,
    (mixed, samples): (&MixerPlan, &[Sample]),
    predicted: &ValuePredictions,
) -> Result<(Vec<Vec<f64>>, Metrics), TrainError> {
    let (plan, mut metrics) = (at.plan, Metrics::default());
    let (critic, credit) = (&mixed.critic(), mixed.credit);
    let rounds = Rounds::of(plan, policies, mixed, samples, predicted).await?;
    let size = rounds.states.values().next().map_or(0, Vec::len);
    let mixer = mixer.get_or_insert_with(|| Mixer::new(plan, mixed, size));
    let first = rounds.all(samples, &predicted.values);
    let tokens = rounds.advantages(&mixer.mixing, (critic, credit), &first, samples, predicted);
    let old = totals(&mixer.mixing, &first);
    metrics.extend(measured(&old, &first));
    let lr = at.rates.and_then(|rates| rates.get("mixer/lr"));
    let lr = lr.unwrap_or_else(|| lr_of(plan, critic, at.step));
    let mut loss = 0.0;
    for epoch in 0..plan.algorithm.epochs {
        let values = match epoch {
            0 => predicted.values.clone(),
            _ => predict_values(policies, &predicted.hosts, &predicted.texts).await?,
        };
        let now = rounds.all(samples, &values);
        let mut gradient = vec![0.0; mixer.mixing.params().len()];
        let mut grads: Vec<Vec<f32>> =
            values.iter().map(|values| vec![0.0; values.len()]).collect();
        let sums = rounds.backward(
            (&mixer.mixing, critic, credit),
            (&now, &old),
            (samples, &values, &predicted.values),
            &mut grads,
            &mut gradient,
        );
        loss += sums.loss;
        mixer.apply(&critic.optim(), lr, &gradient);
        let targets: Vec<ValueTarget> = grads.into_iter().map(ValueTarget::Slopes).collect();
        let batches = value_batches(plan, samples, &predicted.texts, &targets, at.step);
        for (host, mut batch) in batches {
            (batch.minibatches, batch.epochs, batch.lr) = (1, 1, lr);
            let stats = policies[host].update_critic(batch).await?;
            metrics.set(format!("critic/{}/grad_norm", policies[host].name()), stats.grad_norm);
        }
    }
    metrics.set("mixer/lr", lr);
    metrics.set("mixer/loss", loss / plan.algorithm.epochs as f64);
    Ok((tokens, metrics))
}

fn lr_of(plan: &Plan, critic: &CriticPlan, step: u64) -> f64 {
    lr(step, plan.steps, &critic.optim())
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
    gae(&rewards, values, &[0.0], &RaggedRows::rows(&[values.len()]), GaeSteps::all(critic.into()))
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
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
    let (_, returns) = reply_gae(said, critic);
    let inner = returns.len().min(1)..returns.len();
    let weight = weight / inner.len().max(1) as f64;
    let [values, old, returns] = [values, said, &returns].map(|of| narrow(&of[inner.clone()]));
    value_loss([&values, &old, &returns], weight, critic.into(), &mut grads[inner])
}

/// Returns the team's values of rounds before and after the replies.
fn totals(mixing: &Mixing, rounds: &[(usize, Round)]) -> Vec<[f64; 2]> {
    let total = |(_, round): &(usize, Round)| {
        [&round.before, &round.after].map(|values| mixing.total(values, &round.state))
    };
    rounds.iter().map(total).collect()
}

fn measured(totals: &[[f64; 2]], rounds: &[(usize, Round)]) -> Metrics {
    let values: Vec<f64> = totals.iter().map(|[before, _]| *before).collect();
    let returns: Vec<f64> = rounds.iter().map(|(_, round)| round.reward).collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
    let numbers = [
        ("mixer/value_mean", mean(&values)),
        ("mixer/return_mean", mean(&returns)),
        ("mixer/explained_variance", explained_variance(&values, &returns)),
    ];
    numbers.into_iter().collect()
}

impl Rounds {
    /// Computes the state of each episode, which is the critic's hidden state of its first prompt, and the speaking
    /// seats.
    async fn of(
        plan: &Plan,
        policies: &[Policy],
        mixed: &MixerPlan,
        samples: &[Sample],
        predicted: &ValuePredictions,
    ) -> Result<Self, TrainError> {
        let seats = plan.seats.iter().enumerate();
        let seats: Vec<usize> = seats.filter(|(_, seat)| seat.trained).map(|(i, _)| i).collect();
        let places = predicted.places.clone();
        let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
        for (i, sample) in samples.iter().enumerate() {
            firsts.entry(sample.episode).or_insert(i);
        }
        let mut states: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        if mixed.network == MixerNetwork::Sum {
            states.extend(firsts.keys().map(|&episode| (episode, Vec::new())));
            return Ok(Self { seats, places, states });
        }
        let hosts: BTreeSet<usize> = firsts.values().map(|&i| predicted.hosts[i]).collect();
        for policy in hosts {
            let its = firsts.iter().filter(|&(_, &i)| predicted.hosts[i] == policy);
            let (episodes, texts): (Vec<usize>, Vec<_>) =
                its.map(|(&episode, &i)| (episode, predicted.texts[i].clone())).unzip();
            let seen = policies[policy].states(texts).await?;
            for (episode, state) in episodes.into_iter().zip(seen) {
                let spoke =
                    |seat: &usize| samples.iter().any(|s| s.episode == episode && s.seat == *seat);
                let mask = seats.iter().map(|seat| f64::from(u8::from(spoke(seat))));
                // Scaled to length 1 on average, whatever the width.
                let unit = (state.len() as f64).sqrt();
                let state = state.into_iter().map(|value| f64::from(value) / unit);
                states.insert(episode, state.chain(mask).collect());
            }
        }
        Ok(Self { seats, places, states })
    }

    /// Computes the advantage of each token of each sample, `[N][T]`, from values `first` before the update.
    fn advantages(
        &self,
        mixing: &Mixing,
        (critic, credit): (&CriticPlan, Credit),
        first: &[(usize, Round)],
        samples: &[Sample],
        predicted: &ValuePredictions,
    ) -> Vec<Vec<f64>> {
        let mut advantages = vec![Vec::new(); samples.len()];
        for (episode, round) in first {
            let credits = mixing.credits(round, credit);
            for (i, sample) in samples.iter().enumerate().filter(|(_, s)| s.episode == *episode) {
                advantages[i] = match credit {
                    Credit::Tokens => reply_gae(&predicted.values[i], critic).0,
                    _ => vec![credits[self.places[i]]; sample.tokens],
                };
            }
        }
        advantages
    }

    /// Returns every episode with its values; the value of a seat that speaks several times is the mean.
    fn all(&self, samples: &[Sample], values: &[Vec<f64>]) -> Vec<(usize, Round)> {
        let of = |(&episode, state): (&usize, &Vec<f64>)| {
            let its = || samples.iter().zip(values).filter(|(s, _)| s.episode == episode);
            let mean = |at: &dyn Fn(&[f64]) -> Option<f64>| -> Vec<f64> {
                let of = |&seat: &usize| {
                    let said: Vec<f64> = its()
                        .filter(|(sample, _)| sample.seat == seat)
                        .filter_map(|(_, values)| at(values))
                        .collect();
                    said.iter().sum::<f64>() / said.len().max(1) as f64
                };
                self.seats.iter().map(of).collect()
            };
            let reward = its().map(|(s, _)| s.reward).sum::<f64>() / its().count().max(1) as f64;
            let (before, after) =
                (mean(&|values| values.first().copied()), mean(&|values| values.last().copied()));
            (episode, Round { reward, before, after, state: state.clone() })
        };
        self.states.iter().map(of).collect()
    }

    /// Computes the loss of the team's values, and its derivatives by the samples' values and by the mixer's
    /// parameters.
    fn backward(
        &self,
        (mixing, critic, credit): (&Mixing, &CriticPlan, Credit),
        (now, old): (&[(usize, Round)], &[[f64; 2]]),
        (samples, values, said): (&[Sample], &[Vec<f64>], &[Vec<f64>]),
        grads: &mut [Vec<f32>],
        gradient: &mut [f64],
    ) -> ValueLoss {
        let mut sums = ValueLoss::default();
        let weight = 1.0 / now.len().max(1) as f64;
        let both: &[usize] = if credit.knows_replies() { &[0, 1] } else { &[0] };
        for ((episode, round), old) in now.iter().zip(old) {
            let its: Vec<usize> =
                (0..samples.len()).filter(|&i| samples[i].episode == *episode).collect();
            for &when in both {
                let seats = [&round.before, &round.after][when];
                let total = mixing.total(seats, &round.state) as f32;
                let row = [&[total][..], &[old[when] as f32], &[round.reward as f32]];
                let mut d_total = [0.0];
                sums += value_loss(row, weight, critic.into(), &mut d_total);
                let by = f64::from(d_total[0]);
                let d_values = mixing.backward(seats, &round.state, by, gradient);
                for &i in &its {
                    let turns = its.iter().filter(|&&j| samples[j].seat == samples[i].seat).count();
                    let grad = by * d_values[self.places[i]] / turns as f64;
                    let at = if when == 0 { 0 } else { grads[i].len() - 1 };
                    grads[i][at] += grad as f32;
                }
            }
            if credit == Credit::Tokens {
                let rows = its.iter().map(|&i| (i, weight / its.len() as f64));
                for (i, weight) in rows {
                    sums += token_value_loss(&values[i], &said[i], critic, weight, &mut grads[i]);
                }
            }
        }
        sums
    }
}
