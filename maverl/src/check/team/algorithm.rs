//! Parts of an algorithm that do not go together.

use std::collections::BTreeSet;

use super::curriculum::check_curriculum;
use super::losses::check_losses;
use super::replay::check_replay;
use crate::config::source::{Problems, path, path_within};
use crate::config::{
    AdaptiveEntropy, AdvantagePlan, AlgorithmConfig, Config, GroupBaseline, JudgeMode, PairLoss,
    Preset, TruncatedReply, Trunk, UpdateOrder,
};
use crate::plan::{AlgorithmPlan, SeatPlan};

/// Reports combinations that cannot work.
pub(crate) fn check_algorithm(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
    problems: &mut Problems<'_>,
) {
    swap(algorithm, seats, problems);
    cycle(algorithm, seats, problems);
    check_curriculum(config, algorithm.preset, problems);
    check_replay(algorithm, seats, problems);
    if algorithm.preset.is_supervised() {
        return preference(algorithm, problems);
    }
    if algorithm.preset.compares_pairs() {
        preference(algorithm, problems);
        pairs(config, algorithm, problems);
    }
    sequence(algorithm, seats, problems);
    entropy(algorithm, seats, problems);
    check_losses(config, algorithm, seats, problems);
    skipped_replies(algorithm, seats, problems);
    compared_greedily(config, algorithm, problems);
    if algorithm.adaptive_kl.target > 0.0
        && !seats.iter().any(|s| s.trained && s.loss.kl_coef > 0.0)
    {
        let message =
            "`algorithm.adaptive_kl.target` is set, and `algorithm.loss.kl_coef` is 0".to_owned();
        let help = "it is the coefficient that seeks the target: give it a value to begin with";
        problems.conflict(&path(["algorithm", "adaptive_kl", "target"]), message, help.to_owned());
    }
    if config.task.group_size.get() == 1 {
        if algorithm.resample > 0 {
            let message = format!(
                "`algorithm.resample` is {}, and `task.group_size` is 1",
                algorithm.resample
            );
            let help = "one episode never differs from itself, so every task would be replaced: set `resample = 0`, or \
                        play more episodes on each task";
            problems.conflict(&path(["task", "group_size"]), message, help.to_owned());
        }
        let mean = GroupBaseline::Mean;
        let alone = algorithm.advantage.branches().is_none();
        if matches!(&algorithm.advantage, AdvantagePlan::Group(group) if alone && group.baseline != mean)
        {
            let message = "`algorithm.advantage.baseline` compares with other episodes, and `task.group_size` is 1";
            let help = "play more episodes on each task";
            problems.conflict(&path(["task", "group_size"]), message.to_owned(), help.to_owned());
        }
    }
}

/// A greedy episode is not in the group whose answers a judge compares, so its reward would lack a part.
fn compared_greedily(config: &Config, algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    if !matches!(algorithm.advantage, AdvantagePlan::Greedy(_)) {
        return;
    }
    let judges =
        config.rewards.iter().filter_map(|(name, part)| Some((name, part.judge.as_ref()?)));
    for (name, _) in judges.filter(|(_, judge)| judge.mode == JudgeMode::Pairs) {
        let message = format!(
            "the judge of `rewards.{name}` compares the answers of a group, and the baseline is a greedy episode outside of it"
        );
        let help =
            "write `mode = \"score\"`, or an algorithm that compares the episodes of a group"
                .to_owned();
        problems.conflict(&path(["rewards", name, "judge", "mode"]), message, help);
    }
}

/// Two agents of one kind of policy exchange what they have learned.
fn swap(algorithm: &AlgorithmPlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    if algorithm.swap_every == 0 {
        return;
    }
    if algorithm.critic.is_some() {
        let message = "`algorithm.swap_every` is set, and advantages come from a critic".to_owned();
        let help = "a critic stays with its policy while agents exchange theirs: set `advantage.kind = \"group\"`";
        let estimator = path(["algorithm", "advantage", "kind"]);
        let written = problems.layers().has(&estimator);
        let at = if written { estimator } else { path(["algorithm", "swap_every"]) };
        problems.conflict(&at, message, help.to_owned());
    }
    let trained: Vec<&SeatPlan> = seats.iter().filter(|seat| seat.trained).collect();
    let apart = matches!(&trained[..], [one, other] if one.policy != other.policy);
    if !apart {
        let message = format!(
            "`algorithm.swap_every` is {}, and {} trained agents speak through {} policies",
            algorithm.swap_every,
            trained.len(),
            policies(seats)
        );
        let help = "two trained agents exchange policies: give each an `adapter` (or `worker_group`) of its own";
        problems.conflict(&path(["algorithm", "swap_every"]), message, help.to_owned());
    }
}

/// Policies learn one after the other, each for some steps.
fn cycle(algorithm: &AlgorithmPlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    let cycle = algorithm.train_cycle;
    if cycle == 0 {
        return;
    }
    let shared = algorithm.critic.as_ref().is_some_and(|critic| critic.trunk == Trunk::Shared);
    let wrong = [
        (
            policies(seats) < 2,
            "there is one policy to train, which learns in every step",
            "give agents policies of their own with `worker_group` or `adapter`, or remove `train_cycle`",
        ),
        (
            algorithm.update_order != UpdateOrder::Together,
            "`algorithm.update_order` says in what order all policies learn in each step",
            "set `update_order = \"together\"`, or remove `train_cycle`",
        ),
        (
            algorithm.swap_every > 0,
            "`algorithm.swap_every` exchanges policies, so an agent's turn would come at random",
            "remove one of the two",
        ),
        (
            shared,
            "a critic on the policy's trunk is updated with it, and others are to wait",
            "set `algorithm.advantage.trunk = \"own\"` or `\"lora\"`",
        ),
    ];
    for (_, why, help) in wrong.into_iter().filter(|(wrong, ..)| *wrong) {
        let message = format!("`algorithm.train_cycle` is {cycle}, and {why}");
        problems.conflict(&path(["algorithm", "train_cycle"]), message, help.to_owned());
    }
}

/// Critics on the trunks of their policies are updated with them, in every minibatch.
fn skipped_replies(algorithm: &AlgorithmPlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    let shared = algorithm.critic.as_ref().is_some_and(|critic| critic.trunk == Trunk::Shared);
    let skips = |seat: &&SeatPlan| seat.trained && seat.loss.truncated == TruncatedReply::Skip;
    let Some(seat) = seats.iter().find(skips).filter(|_| shared) else { return };
    let message = format!(
        "truncated replies of `{}` are not trained on, and a critic on the policy's trunk is updated with every row",
        seat.seat
    );
    let help =
        "set `algorithm.advantage.trunk = \"own\"` or `\"lora\"`, or `truncated = \"train\"`";
    problems.conflict(&path(["algorithm", "loss", "truncated"]), message, help.to_owned());
}

/// Policies learn in a sequence within each step.
fn sequence(algorithm: &AlgorithmPlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    if algorithm.update_order == UpdateOrder::Together || policies(seats) > 1 {
        return;
    }
    let order = path(["algorithm", "update_order"]);
    let at = if problems.layers().has(&order) { order } else { path(["algorithm", "name"]) };
    let message = "`algorithm.update_order` is a sequence of policies, and there is one to train";
    let help = "give agents policies of their own with `worker_group` or `adapter`, or set `update_order = \"together\"`";
    problems.conflict(&at, message.to_owned(), help.to_owned());
}

/// A controller has one coefficient for a policy, within its bounds.
fn entropy(algorithm: &AlgorithmPlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    let AdaptiveEntropy { target, low, high, .. } = algorithm.adaptive_entropy;
    if target == 0.0 {
        return;
    }
    let table = path(["algorithm", "adaptive_entropy"]);
    if low > high {
        let message = format!("`algorithm.adaptive_entropy.low` is {low}, and `high` is {high}");
        problems.conflict(&path_within(&table, "low"), message, "exchange them".to_owned());
    }
    let trained = || seats.iter().filter(|seat| seat.trained);
    let mut pairs = trained().flat_map(|seat| trained().map(move |other| (seat, other)));
    let several = pairs.find(|(seat, other)| {
        other.policy == seat.policy && other.loss.entropy_coef != seat.loss.entropy_coef
    });
    if let Some((seat, _)) = several {
        let message = format!(
            "`algorithm.adaptive_entropy` has one coefficient for a policy, and agents of that of `{}` have several",
            seat.seat
        );
        let help = "set `entropy_coef` in `[algorithm.loss]` alone, or give the agents policies of their own";
        problems.conflict(&path_within(&table, "target"), message, help.to_owned());
    }
}

/// Returns the number of trained policies.
fn policies(seats: &[SeatPlan]) -> usize {
    let trained = seats.iter().filter(|seat| seat.trained).map(|seat| seat.policy);
    trained.collect::<BTreeSet<_>>().len()
}

/// Pairs are made of several replies to a task, and have no advantages that an update could change.
fn pairs(config: &Config, algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    let name = algorithm.preset.name();
    if config.task.group_size.get() == 1 && !algorithm.preference.loss.labels_replies() {
        let message = format!("`algorithm.name` is {name:?}, and `task.group_size` is 1");
        let help =
            "a pair has a better and a worse reply to one task: play 2 episodes or more on each";
        problems.conflict(&path(["task", "group_size"]), message, help.to_owned());
    }
    if algorithm.update_order != UpdateOrder::Together {
        let message = format!(
            "`algorithm.update_order` is a sequence of policies, and `algorithm.name` is {name:?}"
        );
        let help = "a sequence multiplies advantages, which pairs of replies do not have: set \
                    `update_order = \"together\"`";
        problems.conflict(&path(["algorithm", "update_order"]), message, help.to_owned());
    }
}

/// A loss without a reference has no use for one, and self-play has an opponent that is one.
fn without_reference(algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    let name = serde_json::json!(algorithm.preference.loss);
    if algorithm.preset == Preset::Spin {
        let message =
            format!("`algorithm.preference.loss` is {name}, and `algorithm.name` is \"spin\"");
        let help = "self-play compares with the opponent, which is the reference: use another loss";
        let at = path(["algorithm", "preference", "loss"]);
        return problems.conflict(&at, message, help.to_owned());
    }
    // A run writes out the defaults of its preset.
    let unset = AlgorithmConfig { name: algorithm.preset, ..AlgorithmConfig::default() };
    let (given, unset) = (algorithm.reference, AlgorithmPlan::from(&unset).reference);
    let values = [
        ("every", given.every != unset.every, given.every.to_string()),
        ("mix", given.mix != unset.mix, given.mix.to_string()),
    ];
    for (key, _, value) in values.into_iter().filter(|(_, is_set, _)| *is_set) {
        let message =
            format!("`algorithm.reference.{key}` is {value}, and the loss {name} has no reference");
        problems.conflict(&path(["algorithm", "reference", key]), message, "remove it".to_owned());
    }
}

/// A pair says which reply is better: only two losses can doubt it.
fn preference(algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    let pair = &algorithm.preference;
    if algorithm.preset == Preset::Spin && algorithm.reference.every == 0 {
        let message =
            "`algorithm.reference.every` is 0, and `algorithm.name` is \"spin\"".to_owned();
        let help = "an iteration of self-play has a number of steps, after which the policy is its own opponent again: \
                    write 1 or more";
        problems.conflict(&path(["algorithm", "reference", "every"]), message, help.to_owned());
    }
    if algorithm.preset == Preset::Spin && pair.reference_free {
        let message =
            "`algorithm.preference.reference_free` is true, and `algorithm.name` is \"spin\"";
        let help = "self-play compares with the opponent, which is the reference: remove it";
        let at = path(["algorithm", "preference", "reference_free"]);
        problems.conflict(&at, message.to_owned(), help.to_owned());
    }
    if algorithm.preset == Preset::Spin && algorithm.reference.mix < 1.0 {
        let message = format!(
            "`algorithm.reference.mix` is {}, and `algorithm.name` is \"spin\"",
            algorithm.reference.mix
        );
        let help = "the opponent of an iteration is the policy itself: remove it";
        problems.conflict(&path(["algorithm", "reference", "mix"]), message, help.to_owned());
    }
    if pair.loss.is_reference_free() {
        without_reference(algorithm, problems);
    }
    if pair.loss.labels_replies() && pair.good_weight == 0.0 && pair.bad_weight == 0.0 {
        let message = "`algorithm.preference.good_weight` and `bad_weight` are 0".to_owned();
        let help = "no reply has a loss: give one of them a weight";
        let at = path(["algorithm", "preference", "good_weight"]);
        problems.conflict(&at, message, help.to_owned());
    }
    if pair.label_smoothing > 0.0 && !matches!(pair.loss, PairLoss::Sigmoid | PairLoss::Robust) {
        let message = format!(
            "`algorithm.preference.label_smoothing` is {}, which this loss does not have",
            pair.label_smoothing
        );
        let help = "remove it, or set `loss = \"sigmoid\"` or `loss = \"robust\"`";
        problems.conflict(
            &path(["algorithm", "preference", "label_smoothing"]),
            message,
            help.to_owned(),
        );
    }
}
