//! Rules of episodes that are played with earlier weights (`rollout.staleness`).

use std::collections::BTreeSet;

use super::branches::{is_program, served_environments};
use crate::config::source::{Problems, path};
use crate::config::{Config, SurrogatePlan};
use crate::plan::{AlgorithmPlan, PolicyPlan, SeatPlan, WorkerPlan};
use crate::registry::Registry;

/// Staleness from which a loss that bounds no ratio is reported.
const UNSTABLE: u64 = 2;

/// Reports what excludes episodes of earlier weights, or episodes that go on with newer ones.
pub(crate) fn check_staleness(
    config: &Config,
    registry: &Registry,
    algorithm: &AlgorithmPlan,
    (policies, workers): (&[PolicyPlan], &[WorkerPlan]),
    problems: &mut Problems<'_>,
) {
    check_advance(config, registry, (policies, workers), problems);
    let staleness = config.rollout.staleness;
    if staleness == 0 {
        return;
    }
    let mut reasons = Vec::new();
    if algorithm.preset.is_supervised() {
        let found = format!("`algorithm.name` is {:?}", algorithm.preset.name());
        reasons.push((found, "rows of a file are not played by the team: remove it"));
    }
    if algorithm.swap_every > 0 {
        let found = format!(
            "`algorithm.swap_every` is {}: agents exchange their policies while episodes are played",
            algorithm.swap_every
        );
        reasons.push((found, "write `staleness = 0`, or `algorithm.swap_every = 0`"));
    }
    // Servers keep several versions of an adapter.
    let trained = policies.iter().filter(|policy| policy.trained && policy.adapter.is_none());
    let models = trained.map(|policy| workers[policy.worker].model.as_str());
    let servers = models.filter_map(|model| config.models.get(model)?.rollout_servers.as_deref());
    for name in servers.collect::<BTreeSet<_>>().into_iter().filter(|_| staleness > 1) {
        let found =
            format!("the rollout servers `{name}` hold one version of full weights at a time");
        reasons.push((found, "write `staleness = 1`, or train an adapter (`lora`)"));
    }
    for (found, help) in reasons {
        let message = format!("`rollout.staleness` is {staleness}, and {found}");
        problems.conflict(&path(["rollout", "staleness"]), message, help.to_owned());
    }
}

/// Reports what excludes episodes that go on with newer weights (`rollout.advance_turns`).
fn check_advance(
    config: &Config,
    registry: &Registry,
    (policies, workers): (&[PolicyPlan], &[WorkerPlan]),
    problems: &mut Problems<'_>,
) {
    let turns = config.rollout.advance_turns;
    if turns == 0 {
        return;
    }
    let off = "or write `advance_turns = 0`";
    let mut reasons = Vec::new();
    if config.rollout.staleness == 0 {
        let found = "`rollout.staleness` is 0: an episode ends before there are newer weights";
        reasons.push((found.to_owned(), format!("write `staleness = 1` or more, {off}")));
    }
    if is_program(config) {
        let found = "a program plays the episodes, whose calls have no fixed order";
        reasons.push((found.to_owned(), format!("declare the team as an orchestra, {off}")));
    }
    for (_, found) in served_environments(config, registry) {
        let found = format!(
            "{found} of a server, which would have to wait while an episode waits for weights"
        );
        reasons.push((found, format!("use another environment, {off}")));
    }
    let trained = policies.iter().filter(|policy| policy.trained);
    let models = trained.map(|policy| workers[policy.worker].model.as_str());
    let servers = models.filter_map(|model| config.models.get(model)?.rollout_servers.as_deref());
    for name in servers.collect::<BTreeSet<_>>() {
        let found =
            format!("the rollout servers `{name}` sample with the weights of whole batches");
        reasons.push((found, format!("remove `rollout_servers` of the model, {off}")));
    }
    for (found, help) in reasons {
        let message = format!("`rollout.advance_turns` is {turns}, and {found}");
        problems.conflict(&path(["rollout", "advance_turns"]), message, help);
    }
}

/// Returns warnings about a staleness that is probably not intended.
pub(super) fn staleness_doubts(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
) -> Vec<String> {
    let staleness = config.rollout.staleness;
    let mut doubts = Vec::new();
    if staleness > 0 && config.steps > 1 && staleness >= config.steps {
        doubts.push(format!(
            "`rollout.staleness` is {staleness}, and `steps` is {}: the weights before training play every episode",
            config.steps
        ));
    }
    let pairs = algorithm.preset.compares_pairs();
    if let Some(seat) =
        seats.iter().find(|seat| bounds_nothing(seat)).filter(|_| staleness >= UNSTABLE && !pairs)
    {
        doubts.push(format!(
            "`rollout.staleness` is {staleness}, and the loss of `{}` has neither a ratio nor a correction: others \
             found such losses unstable from a staleness of 3; write `algorithm.loss.correction = {{ kind = \"truncate\" }}`",
            seat.seat
        ));
    }
    let mut trained = seats.iter().filter(|seat| seat.trained);
    let stops = algorithm.early_stop_kl > 0.0 && algorithm.epochs > 1 && !pairs;
    let from_sampler = trained.find(|seat| seat.loss.correction.is_empty());
    if let Some(seat) = from_sampler.filter(|_| staleness > 0 && stops) {
        doubts.push(format!(
            "`rollout.staleness` is {staleness}, and `algorithm.early_stop_kl` measures the distance of `{}` from the older weights \
             that sampled: it skips epochs for what earlier steps learned; write `algorithm.loss.correction = {{ kind = \
             \"truncate\" }}`, under which it measures this update alone",
            seat.seat
        ));
    }
    doubts
}

/// Returns true if the loss of a trained seat has neither a ratio nor a correction.
fn bounds_nothing(seat: &SeatPlan) -> bool {
    let without_ratio = matches!(seat.loss.surrogate, SurrogatePlan::Reinforce(_));
    seat.trained && without_ratio && seat.loss.correction.is_empty()
}
