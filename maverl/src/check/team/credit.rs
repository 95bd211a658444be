//! Estimators and surrogates where they have no effect, and parts of the reward that they name.

use crate::check::choice::is_own;
use crate::config::source::{Problems, did_you_mean, key, list, path, path_within};
use crate::config::{AdvantagePlan, Config, KlIn, LossConfig, SurrogatePlan};
use crate::plan::{AlgorithmPlan, Chosen, RewardPlan, SeatPlan};
use crate::settings::{Settings, Tagged};
use crate::trajectory::RewardPart;

/// Reports estimators where nothing is estimated, and agents with another surrogate than a declared one, which holds for the
/// run.
///
/// Returns warnings about parts of the reward that settings of the estimator name.
pub(crate) fn check_estimator(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (rewards, seats): (&[RewardPlan], &[SeatPlan]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let unset = config.algorithm.name.parts().advantage;
    let unset = AdvantagePlan::resolve(&unset, AdvantagePlan::default());
    let preset = algorithm.preset;
    let (without, replies) = if preset.compares_pairs() && !preset.is_supervised() {
        (true, "pairs of replies")
    } else {
        (preset.is_supervised(), "given replies")
    };
    let tables = [
        ("algorithm.advantage", algorithm.advantage != unset),
        (
            "algorithm.loss.surrogate",
            matches!(algorithm.loss.surrogate, SurrogatePlan::Declared(_)),
        ),
    ];
    for (table, _) in tables.into_iter().filter(|(_, given)| *given && without) {
        let at: Vec<String> = table.split('.').map(str::to_owned).collect();
        let message = format!("`{table}` has no effect: {replies} have no advantages");
        problems.conflict(&at, message, "remove it".to_owned());
    }
    let run = config.algorithm.loss.surrogate.kind.as_deref();
    for (name, agent) in &config.agents {
        let table = path(["agents", name]);
        check_surrogate(run, agent.loss.as_ref(), &table, problems);
        for (number, seat) in &agent.seats {
            let table = path_within(&path_within(&table, "seats"), &number.to_string());
            check_surrogate(run, seat.loss.as_ref(), &table, problems);
        }
    }
    parts(algorithm, (rewards, seats), problems)
}

/// Reports a surrogate in the table of an agent or a seat that is not the declared one of the run.
fn check_surrogate(
    run: Option<&str>,
    loss: Option<&LossConfig>,
    table: &[String],
    problems: &mut Problems<'_>,
) {
    let own = loss.and_then(|loss| loss.surrogate.kind.as_deref());
    let declared = [own, run].iter().any(|kind| !is_own(SurrogatePlan::KINDS, *kind));
    if let Some(name) = own.filter(|_| declared && own != run) {
        let at = path_within(&path_within(table, "loss"), "surrogate");
        let message =
            format!("`{}` is {name:?}, and a declared surrogate holds for the run", key(&at));
        let help = "set `algorithm.loss.surrogate`, and remove those of agents".to_owned();
        problems.conflict(&at, message, help);
    }
}

/// Reports parts of the reward that settings of the declared estimator name, and that are a misspelt part of the
/// configuration. Returns a warning about other unknown ones, which the orchestra may add.
fn parts(
    algorithm: &AlgorithmPlan,
    (rewards, seats): (&[RewardPlan], &[SeatPlan]),
    problems: &mut Problems<'_>,
) -> Vec<String> {
    let AdvantagePlan::Declared(declared) = &algorithm.advantage else { return Vec::new() };
    let configured = configured_parts(rewards, seats);
    let there = configured.iter().copied();
    let mut warnings = Vec::new();
    for name in declared.value.named_parts() {
        if name == RewardPart::OTHER || configured.contains(&name.as_str()) {
            continue;
        }
        let at = place(&declared.chosen, &name);
        if let Some(close) = did_you_mean(&name, there.clone()) {
            let message = format!("`{}`: no part of the reward is called `{name}`", key(&at));
            let help = format!(
                "did you mean `{close}`? the parts of the reward are {}",
                list(there.clone())
            );
            problems.key(&at, message, help);
        } else {
            warnings.push(format!(
                "`{}` names no part of the reward that the configuration has ({}); it has an effect only if the orchestra \
                 adds a part of this name",
                key(&at),
                list(there.clone())
            ));
        }
    }
    warnings
}

/// Returns the parts of the reward that a configuration has: the score, the tables in `[rewards]`, and penalties.
fn configured_parts<'r>(rewards: &'r [RewardPlan], seats: &[SeatPlan]) -> Vec<&'r str> {
    /// Name of a penalty, and whether a seat has it.
    type Penalty = (&'static str, fn(&SeatPlan) -> bool);
    let penalties: [Penalty; 3] = [
        (RewardPart::INVALID_REPLY, |seat| seat.loss.invalid_reply_penalty > 0.0),
        (RewardPart::OVERLONG_REPLY, |seat| seat.overlong().is_some()),
        (RewardPart::KL, |seat| seat.loss.kl_in == KlIn::Reward && seat.loss.kl_coef > 0.0),
    ];
    let penalties = penalties.into_iter().filter(|(_, has)| seats.iter().any(has));
    let penalties = penalties.map(|(name, _)| name);
    let rewards = rewards.iter().map(|reward| reward.name.as_str());
    [RewardPart::SCORE].into_iter().chain(rewards).chain(penalties).collect()
}

/// Returns the key under which a setting of an estimator names a part.
fn place(chosen: &Chosen, part: &str) -> Vec<String> {
    let table = path(["algorithm", "advantage"]);
    let settings = chosen.options.as_object().into_iter().flatten();
    let mut tables = settings.filter(|(_, value)| value.get(part).is_some());
    match tables.next() {
        Some((setting, _)) => path_within(&path_within(&table, setting), part),
        None => table,
    }
}
