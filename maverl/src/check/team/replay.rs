//! Rules of groups that are trained on again (`[algorithm.replay]`).

use crate::config::source::{Problems, path};
use crate::config::{AdvantagePlan, UpdateOrder};
use crate::plan::{AlgorithmPlan, SeatPlan};

/// Reason against the replay of groups, and its remedy.
type Reason = (String, &'static str);

/// Reports what excludes the replay of groups.
pub(super) fn check_replay(
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
    problems: &mut Problems<'_>,
) {
    let groups = algorithm.replay.groups;
    if groups == 0 {
        return;
    }
    let preset = algorithm.preset;
    let reasons = if preset.is_supervised() || preset.compares_pairs() {
        let found = format!("`algorithm.name` is {:?}, which has no advantages", preset.name());
        vec![(found, "take a preset that compares the episodes of a task, or remove it")]
    } else {
        let of_step = of_algorithm(algorithm).into_iter();
        of_step.chain(of_estimator(&algorithm.advantage)).chain(of_seats(seats)).collect()
    };
    for (found, help) in reasons {
        let message = format!("`algorithm.replay.groups` is {groups}, and {found}");
        problems.conflict(&path(["algorithm", "replay", "groups"]), message, help.to_owned());
    }
}

/// Returns the keys of the algorithm by which a step is more than its groups.
fn of_algorithm(algorithm: &AlgorithmPlan) -> Vec<Reason> {
    let AlgorithmPlan { whiten, resample, swap_every, update_order, .. } = algorithm;
    let reasons = [
        (
            *whiten,
            "`algorithm.whiten` compares the tokens of the whole step, so no group is without an advantage".to_owned(),
            "write `whiten = false`, or remove it",
        ),
        (
            *resample > 0,
            format!("`algorithm.resample` is {resample}: both replace the tasks that have no signal"),
            "remove one of the two",
        ),
        (
            *swap_every > 0,
            format!("`algorithm.swap_every` is {swap_every}: another policy may have sampled a group"),
            "remove one of the two",
        ),
        (
            *update_order != UpdateOrder::Together,
            "`algorithm.update_order` multiplies advantages by what other policies learned of an episode of the step".to_owned(),
            "set `update_order = \"together\"`, or remove it",
        ),
    ];
    reasons.into_iter().filter(|(is, ..)| *is).map(|(_, found, help)| (found, help)).collect()
}

/// Returns a reason if an estimator compares more than the episodes of a task.
fn of_estimator(advantage: &AdvantagePlan) -> Option<Reason> {
    let compares = match advantage {
        AdvantagePlan::Group(_) | AdvantagePlan::Opo(_) if advantage.branches().is_some() => {
            "branches, of which a group is a part"
        }
        AdvantagePlan::Group(group) if group.compensate_flat => {
            let found = "`algorithm.advantage.compensate_flat` makes up for groups without signal, whose places others take";
            return Some((found.to_owned(), "write `compensate_flat = false`, or remove it"));
        }
        AdvantagePlan::Group(_) | AdvantagePlan::Opo(_) => return None,
        AdvantagePlan::Critic(_) | AdvantagePlan::Mixer(_) => {
            "rewards with values, which have changed since a group was sampled"
        }
        AdvantagePlan::TokenBaseline(_) => "the places of replies under the current weights",
        AdvantagePlan::Declared(_) => "what only its crate knows",
        _ => "an episode with more than the other episodes of its task",
    };
    let found =
        format!("`algorithm.advantage.kind` is {:?}, which compares {compares}", advantage.name());
    Some((found, "set `advantage.kind` to \"group\" or \"opo\", or remove it"))
}

/// Returns the first trained seat without a correction, and the first one with a teacher.
fn of_seats(seats: &[SeatPlan]) -> Vec<Reason> {
    let trained = || seats.iter().filter(|seat| seat.trained);
    let uncorrected = trained().find(|seat| seat.loss.correction.is_empty()).map(|seat| {
        let found = format!(
            "the loss of `{}` has no correction for the older weights that sampled a group",
            seat.seat
        );
        (found, "write `algorithm.loss.correction = { kind = \"truncate\" }`")
    });
    let taught = trained().find(|seat| seat.teachers.is_some()).map(|seat| {
        let found = format!("`{}` has a teacher, which scores the replies of a step", seat.seat);
        (found, "remove one of the two")
    });
    uncorrected.into_iter().chain(taught).collect()
}
