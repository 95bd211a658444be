//! Warnings about valid settings of training that are probably mistakes.

use super::doubts::number_doubts;
use crate::config::Config;
use crate::plan::{AlgorithmPlan, PolicyPlan, SeatPlan};

/// Returns warnings about settings of training; see also [`number_doubts`].
pub(crate) fn training_warnings(
    config: &Config,
    algorithm: &AlgorithmPlan,
    (policies, seats, rows): (&[PolicyPlan], &[SeatPlan], usize),
) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.steps == 0 {
        warnings.push("`steps` is 0: nothing is trained, the team is only evaluated".to_owned());
    }
    // Turns with a teacher and without advantages of rewards are compared with nothing.
    let mut learners = seats.iter().filter(|seat| seat.trained);
    let pure = algorithm.distill.task_coef == 0.0 && learners.all(|seat| seat.teachers.is_some());
    // Replies at a branch are compared with each other.
    let compares = algorithm.advantage.compares_group() && algorithm.advantage.branches().is_none();
    let alone = config.task.group_size.get() == 1 && compares && !pure;
    if !config.algorithm.name.is_supervised() && alone {
        warnings.push(
            "`task.group_size` is 1: an episode has no other to be compared with, so most advantages are 0".to_owned(),
        );
    }
    for (name, model) in &config.models {
        if let Some(warmup) = model.optim.warmup_steps.filter(|&warmup| warmup > config.steps) {
            warnings.push(format!(
                "`models.{name}.optim.warmup_steps` is {warmup}, more than `steps`, which is {}",
                config.steps
            ));
        }
    }
    for policy in policies.iter().filter(|policy| policy.trained) {
        let drops = policy.adapter.as_ref().is_some_and(|a| a.lora.dropout > 0.0);
        if drops && !config.algorithm.name.is_supervised() {
            warnings.push(format!(
                "`lora.dropout` of policy `{}` is above 0: rollout drops nothing, so the ratio of an update does not begin \
                 at 1, and rows that begin alike share nothing in an update",
                policy.name
            ));
        }
    }
    for (name, agent) in &config.agents {
        let frozen = agent.frozen == Some(true);
        let keys = [("optim", agent.optim.is_some()), ("loss", agent.loss.is_some())];
        for (part, _) in keys.iter().filter(|(_, given)| frozen && *given) {
            warnings.push(format!("`agents.{name:?}.{part}` has no effect: the agent is frozen"));
        }
    }
    warnings.extend(number_doubts(config, algorithm, policies, seats, rows));
    warnings
}
