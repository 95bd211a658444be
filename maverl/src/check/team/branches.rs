//! Branches of episodes, and what excludes them.

use serde_json::Value;

use crate::check::team::drawn::check_drawn;
use crate::config::source::{Problems, did_you_mean, list, path};
use crate::config::{
    AdvantagePlan, BranchUse, Config, FutureRewards, GroupBy, JudgeMode, KlIn, Named, Shaping,
    UpdateOrder,
};
use crate::plan::{
    AlgorithmPlan, InfluencePlan, RewardPlan, RewardSource, SeatPlan, TeacherPlan, TeacherSource,
};
use crate::registry::Registry;
use crate::trajectory::Seat;

/// Prefix of orchestras that are programs, which have the control flow.
const PROGRAM: &str = "program/";

/// A reason against branches: true if it holds, its key, what was found, and what to write instead.
type Reason = (bool, &'static [&'static str], &'static str, &'static str);

/// Reports branches that nothing compares, or that cannot be played or compared.
pub(crate) fn check_branches(
    config: &Config,
    registry: &Registry,
    algorithm: &AlgorithmPlan,
    (seats, rewards, teachers): (&[SeatPlan], &[RewardPlan], &[TeacherPlan]),
    problems: &mut Problems<'_>,
) {
    grouping(&algorithm.advantage, problems);
    grouped_seats(&algorithm.advantage, seats, problems);
    let Some(purpose) = algorithm.advantage.branches() else {
        if config.rollout.branch.is_some() {
            let message =
                "`rollout.branch` has no effect: `algorithm.advantage` compares no branches";
            let help = "set `kind = \"counterfactual\"`, `kind = \"continuations\"`, `kind = \"shapley\"` or `by = \"branch\"` \
                        there, or remove it";
            problems.conflict(&path(["rollout", "branch"]), message.to_owned(), help.to_owned());
        }
        return;
    };
    named_seats(config, seats, problems);
    check_drawn(config, purpose, seats, problems);
    team(config, registry, problems);
    for reasons in [rewards_differ(algorithm, seats), parts_differ(rewards, teachers)] {
        for (_, at, found, help) in reasons.into_iter().filter(|(holds, ..)| *holds) {
            let message = format!("`algorithm.advantage` compares branches; {found}");
            let at: Vec<String> = at.iter().map(|&part| part.to_owned()).collect();
            problems.conflict(&at, message, help.to_owned());
        }
    }
    if purpose == BranchUse::Rows && algorithm.update_order != UpdateOrder::Together {
        let message = "`algorithm.advantage.by` is \"branch\"; a sequence of updates multiplies the advantages of an episode, and a \
                       reply at a branch has none before it";
        let at = path(["algorithm", "update_order"]);
        let help = "set `update_order = \"together\"`";
        problems.conflict(&at, message.to_owned(), help.to_owned());
    }
}

/// Returns settings of the algorithm that change rewards of played turns by something that branches do not have.
fn rewards_differ(algorithm: &AlgorithmPlan, seats: &[SeatPlan]) -> Vec<Reason> {
    let in_reward = |seat: &SeatPlan| {
        seat.trained && seat.loss.kl_in == KlIn::Reward && seat.loss.kl_coef > 0.0
    };
    vec![
        (
            algorithm.resample > 0,
            &["algorithm", "resample"],
            "tasks whose episodes have the same score are replaced, and their branches may differ",
            "set `resample = 0`",
        ),
        (
            algorithm.shaping != Shaping::None,
            &["algorithm", "shaping"],
            "rewards are shaped by earlier rounds, and those of branches are not",
            "set `shaping = \"none\"`",
        ),
        (
            algorithm.future_rewards != FutureRewards::None,
            &["algorithm", "future_rewards"],
            "rewards of later rounds are added, and branches are played to the end already",
            "set `future_rewards = \"none\"`",
        ),
        (
            algorithm.influence != InfluencePlan::default(),
            &["algorithm", "influence"],
            "played turns are rewarded for their influence on other agents, and those of branches are not",
            "remove `influence`",
        ),
        (
            seats.iter().any(in_reward),
            &["algorithm", "loss", "kl_in"],
            "the KL penalty is in the rewards of trained turns, and not in those of branches",
            "set `kl_in = \"loss\"`",
        ),
    ]
}

/// Returns parts of the reward, and teachers, that compare or score played turns alone.
fn parts_differ(rewards: &[RewardPlan], teachers: &[TeacherPlan]) -> Vec<Reason> {
    let pairs = |reward: &RewardPlan| matches!(&reward.source, RewardSource::Judge(judge) if judge.mode == JudgeMode::Pairs);
    let asked = |teacher: &TeacherPlan| matches!(teacher.source, TeacherSource::Endpoint { .. });
    vec![
        (
            rewards.iter().any(pairs),
            &["rewards"],
            "a judge compares the played episodes of a task, and no branches",
            "set `mode = \"score\"` in its table",
        ),
        (
            teachers.iter().any(asked),
            &["teachers"],
            "a teacher behind an endpoint scores every turn, and those of branches are not trained on",
            "use a model of this process as the teacher",
        ),
    ]
}

/// Key, message and remedy of a problem.
type KeyProblem = (&'static str, String, &'static str);

/// Returns the problem of `by = "branch"` with a kind of advantage that compares no groups.
fn ungrouped(by: GroupBy, advantage: &str) -> Option<KeyProblem> {
    let message = format!("`algorithm.advantage.by` is \"branch\", and `kind` is {advantage:?}");
    let remedy = "set `kind = \"group\"` or `kind = \"opo\"`";
    (by == GroupBy::Branch).then_some(("by", message, remedy))
}

/// Reports `by = "branch"` of an estimator that compares no groups, and as groups of the deviation alone.
fn grouping(advantage: &AdvantagePlan, problems: &mut Problems<'_>) {
    let found = match advantage {
        AdvantagePlan::Reward(plan) => ungrouped(plan.by, "reward"),
        AdvantagePlan::Greedy(plan) => ungrouped(plan.by, "greedy"),
        AdvantagePlan::MovingAverage(plan) => ungrouped(plan.by, "moving_average"),
        AdvantagePlan::TokenBaseline(plan) => ungrouped(plan.by, "token_baseline"),
        AdvantagePlan::Group(plan) if plan.by == GroupBy::Branch && !plan.by_seat.is_empty() => {
            let message = "`algorithm.advantage.by` is \"branch\", and `by_seat` is set";
            Some(("by_seat", message.to_owned(), "remove `by_seat`, or set another `by`"))
        }
        AdvantagePlan::Group(plan) if plan.by_seat.values().any(|by| *by == GroupBy::Branch) => {
            let message = "`algorithm.advantage.by_seat` has \"branch\", which is for all seats";
            Some(("by_seat", message.to_owned(), "set `by = \"branch\"` instead of `by_seat`"))
        }
        AdvantagePlan::Group(plan)
            if plan.deviation_by == Some(GroupBy::Branch) && plan.by != GroupBy::Branch =>
        {
            let message = "`algorithm.advantage.deviation_by` is \"branch\", and `by` is not";
            Some(("deviation_by", message.to_owned(), "set `by = \"branch\"` too"))
        }
        _ => None,
    };
    if let Some((at, message, help)) = found {
        problems.conflict(&path(["algorithm", "advantage", at]), message, help.to_owned());
    }
}

/// Reports seats of branches that do not exist, or are not trained.
fn named_seats(config: &Config, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    let at = path(["rollout", "branch", "seats"]);
    for name in config.rollout.branch.iter().flat_map(|branch| &branch.seats) {
        if let Some((message, help)) = untrained(name, seats) {
            problems.value(&at, message, help);
        }
    }
}

/// Reports seats with groups of their own that do not exist, or are not trained.
fn grouped_seats(advantage: &AdvantagePlan, seats: &[SeatPlan], problems: &mut Problems<'_>) {
    let AdvantagePlan::Group(group) = advantage else { return };
    for name in group.by_seat.keys() {
        if let Some((message, help)) = untrained(name, seats) {
            problems.value(&path(["algorithm", "advantage", "by_seat", name]), message, help);
        }
    }
}

/// Returns the message about a name that means no trained seat, and a similar name.
fn untrained(name: &str, seats: &[SeatPlan]) -> Option<(String, Option<String>)> {
    let named = Seat::try_from(name.to_owned());
    let is_trained =
        |named: &Seat| seats.iter().any(|seat| seat.trained && named.covers(&seat.seat));
    if named.as_ref().is_ok_and(is_trained) {
        return None;
    }
    let trained: Vec<String> =
        seats.iter().filter(|seat| seat.trained).map(|seat| seat.seat.to_string()).collect();
    let known = trained.iter().map(String::as_str);
    let message = format!(
        "no trained seat is called `{name}`; the trained seats are {}",
        list(known.clone())
    );
    let help = did_you_mean(name, known).map(|close| format!("did you mean `{close}`?"));
    Some((message, help))
}

/// Returns true if a program plays the episodes.
pub(super) fn is_program(config: &Config) -> bool {
    config.orchestra.name.as_deref().is_some_and(|name| name.starts_with(PROGRAM))
}

/// Returns the keys of the environments that a server answers, with the part of each that it answers.
pub(super) fn served_environments(
    config: &Config,
    registry: &Registry,
) -> Vec<(Vec<String>, &'static str)> {
    let own = [(path(["environment"]), &config.environment)];
    let others = config.environments.iter().map(|(name, it)| (path(["environments", name]), it));
    let mixed = config.task.mixture.iter();
    let mixed =
        mixed.map(|(name, it)| (path(["task", "mixture", name, "environment"]), &it.environment));
    let all = own.into_iter().chain(others).chain(mixed);
    all.filter_map(|(at, environment)| Some((at, served(environment, registry)?))).collect()
}

/// Reports a team or an environment that cannot play recorded turns again.
fn team(config: &Config, registry: &Registry, problems: &mut Problems<'_>) {
    if is_program(config) {
        let message = "`algorithm.advantage` compares branches, and a program plays the episodes";
        let help = "a program has the control flow, so it cannot begin with recorded turns: declare the team as an orchestra, or \
                    use another estimator";
        problems.conflict(&path(["orchestra", "name"]), message.to_owned(), help.to_owned());
    }
    for (at, found) in served_environments(config, registry) {
        let message = format!("`algorithm.advantage` compares branches, and {found} of a server");
        let help = "recorded actions are executed again, and a server need not answer them as before: use another environment \
                    or estimator";
        problems.conflict(&at, message, help.to_owned());
    }
}

/// Returns the part of an environment that a server answers.
fn served(environment: &Named, registry: &Registry) -> Option<&'static str> {
    let entry = registry.environments.get(environment.name.as_deref()?)?;
    (entry.served)(&Value::Object(environment.options.clone()))
}
