//! Warnings about valid numbers that are probably mistakes.

use super::idle::idle_keys;
use super::staleness::staleness_doubts;
use crate::config::{AdvantagePlan, Config, Granularity, GroupPlan, KlIn, Preset, Selection};
use crate::plan::{AlgorithmPlan, LossPlan, OptimOptions, PolicyPlan, SeatPlan};
use crate::settings::Tagged;

/// Learning rate from which no known recipe works: AdamW moves every weight by about this much in every step.
const STEEP: f64 = 0.1;
/// Temperature from which replies are almost random.
const HOT: f32 = 4.0;

/// Returns warnings about settings without effect, learning rates and temperatures, and steps that use more than the
/// existing `tasks`.
pub(crate) fn number_doubts(
    config: &Config,
    algorithm: &AlgorithmPlan,
    policies: &[PolicyPlan],
    seats: &[SeatPlan],
    tasks: usize,
) -> Vec<String> {
    let mut doubts = idle_keys(config, algorithm, (policies, seats));
    doubts.extend(repetition_doubt(config, tasks));
    doubts.extend(average_doubt(algorithm, seats));
    doubts.extend(negative_doubt(config, algorithm, seats));
    doubts.extend(selection_doubts(config, algorithm, seats));
    doubts.extend(staleness_doubts(config, algorithm, seats));
    doubts.extend(observation_doubt(algorithm, seats));
    for policy in policies.iter().filter(|policy| policy.trained) {
        let name = &policy.name;
        doubts.extend(steep(&format!("`lr` of policy `{name}`"), &policy.optim));
    }
    if let Some(critic) = &algorithm.critic {
        let key = match algorithm.preset {
            Preset::Verifier => "`algorithm.verifier.lr`",
            _ => "`algorithm.advantage.optim.lr`",
        };
        doubts.extend(steep(key, &critic.optim()));
    }
    let mut hot: Vec<f32> =
        seats.iter().map(|seat| seat.sampling.temperature).filter(|t| *t >= HOT).collect();
    hot.sort_by(f32::total_cmp);
    hot.dedup();
    doubts.extend(hot.into_iter().map(|temperature| {
        format!("`sampling.temperature` is {temperature}: replies are little more than chance above {HOT}")
    }));
    doubts
}

/// Returns a warning if observations are to be learned by a preset without conversations with an environment.
fn observation_doubt(algorithm: &AlgorithmPlan, seats: &[SeatPlan]) -> Option<String> {
    let preset = algorithm.preset;
    // The key of the algorithm is named with those that the loss of pairs does not have.
    let is_told = preset == Preset::OnlineDpo && algorithm.loss.observation_coef > 0.0;
    let doubtful = learns_observations(seats) && !has_conversations(preset) && !is_told;
    doubtful.then(|| {
        let name = preset.name();
        format!("`loss.observation_coef` has no effect: `algorithm.name = {name:?}` does not train on sampled conversations")
    })
}

/// Returns a warning if observations are to be learned, and the orchestra acts in no environment that could write any.
pub(crate) fn unobserved(
    acts: bool,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
) -> Option<String> {
    let doubtful = !acts && learns_observations(seats) && has_conversations(algorithm.preset);
    doubtful.then(|| {
        "`loss.observation_coef` has no effect: the orchestra declares no actions (`needs`), so no environment writes into a \
         conversation"
            .to_owned()
    })
}

/// Returns true if a trained seat learns observations.
fn learns_observations(seats: &[SeatPlan]) -> bool {
    seats.iter().any(|seat| seat.trained && seat.loss.observation_coef > 0.0)
}

/// Returns true if a preset trains on sampled conversations.
fn has_conversations(preset: Preset) -> bool {
    !(preset.is_supervised() || preset.compares_pairs() || preset == Preset::Verifier)
}

/// Returns a warning if a surrogate averages advantages that a critic gives to single tokens.
fn average_doubt(algorithm: &AlgorithmPlan, seats: &[SeatPlan]) -> Option<String> {
    let AdvantagePlan::Critic(critic) = &algorithm.advantage else { return None };
    if critic.granularity != Granularity::Token {
        return None;
    }
    let mut trained = seats.iter().filter(|seat| seat.trained);
    let averages = |seat: &&SeatPlan| seat.loss.surrogate.surrogate().averages_advantages();
    let surrogate = &trained.find(averages)?.loss.surrogate;
    Some(format!(
        "the surrogate {:?} takes the mean advantage of a reply, and `algorithm.advantage` has one for each token",
        surrogate.kind()
    ))
}

/// Returns warnings about a selection of tokens that chooses less than a token, or a penalty that is 0.
fn selection_doubts(config: &Config, algorithm: &AlgorithmPlan, seats: &[SeatPlan]) -> Vec<String> {
    let Some(share) = algorithm.select.share() else { return Vec::new() };
    let kind = algorithm.select.kind();
    let mut doubts = Vec::new();
    let episodes = config.task.tasks_per_step.get() * config.task.group_size.get() as usize;
    let longest: usize =
        seats.iter().filter(|seat| seat.trained).map(|seat| seat.sampling.max_tokens).sum();
    let tokens = (episodes * longest) as f64 / algorithm.minibatches as f64;
    if share * tokens < 1.0 {
        doubts.push(format!(
            "`algorithm.select.share` is {share}, less than a token of a minibatch, in which one turn of each agent has at most \
             {tokens:.0} tokens: `{kind}` then chooses one"
        ));
    }
    let updates = algorithm.minibatches * algorithm.epochs;
    // Replies of earlier weights have a distance, unless a correction takes it out.
    let mut trained = seats.iter().filter(|seat| seat.trained);
    let stale = config.rollout.staleness > 0 && trained.any(|seat| seat.loss.correction.is_empty());
    if matches!(algorithm.select, Selection::KlCov(_)) && updates == 1 && !stale {
        doubts.push(
            "`algorithm.select` has a penalty on the distance from the weights before the update, which is 0 in the first optimizer \
             step of a batch: set `algorithm.minibatches` or `algorithm.epochs` above 1"
                .to_owned(),
        );
    }
    doubts
}

/// Returns a warning if rewards may be negative, and advantages are divided by their mean.
fn negative_doubt(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
) -> Option<String> {
    let AdvantagePlan::Group(GroupPlan { normalize_mean: true, .. }) = &algorithm.advantage else {
        return None;
    };
    let any = |is: fn(&LossPlan) -> bool| seats.iter().any(|seat| seat.trained && is(&seat.loss));
    let influence = &algorithm.influence;
    let coefs = [influence.follow, influence.resist, influence.provoke, influence.persuade];
    let parts = [
        ("algorithm.loss.invalid_reply_penalty", any(|loss| loss.invalid_reply_penalty > 0.0)),
        (
            "algorithm.loss.overlong_penalty",
            any(|loss| loss.overlong_buffer > 0.0 && loss.overlong_penalty > 0.0),
        ),
        (
            "algorithm.loss.kl_in = \"reward\"",
            any(|loss| loss.kl_coef > 0.0 && loss.kl_in == KlIn::Reward),
        ),
        ("algorithm.influence", coefs.iter().any(|coef| *coef > 0.0)),
    ];
    let parts = parts.iter().filter(|(_, is)| *is).map(|(key, _)| format!("`{key}`"));
    let weights = config.rewards.iter().filter(|(_, reward)| reward.weight < 0.0);
    let parts: Vec<String> =
        parts.chain(weights.map(|(name, _)| format!("`rewards.{name}.weight`"))).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "`algorithm.advantage.normalize_mean` is for rewards of 0 and 1 (MaxRL), and {} can make rewards negative: a mean near 0 \
             makes advantages as large as the number of episodes, and a mean below 0 leaves none; remove it, or take another algorithm",
            parts.join(", ")
        )
    })
}

fn steep(what: &str, optim: &OptimOptions) -> Option<String> {
    let OptimOptions { lr, weight_decay, .. } = *optim;
    if lr >= STEEP {
        return Some(format!(
            "{what} is {lr}: AdamW moves every weight by about so much in a step, and weights are about 0.02"
        ));
    }
    (lr * weight_decay >= 1.0).then(|| {
        format!(
            "{what} times `weight_decay` is {}: every step turns all weights around",
            lr * weight_decay
        )
    })
}

fn repetition_doubt(config: &Config, tasks: usize) -> Option<String> {
    let each = config.task.tasks_per_step.get();
    let split = &config.task.split;
    (tasks > 0 && each > tasks).then(|| {
        format!(
            "`task.tasks_per_step` is {each}, and there are {tasks} tasks in split {split:?}: every step uses some of them \
             more than once"
        )
    })
}
