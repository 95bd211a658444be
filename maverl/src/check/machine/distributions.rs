//! Comparison of the distributions of teachers with the memory of the machine.

use crate::check::purpose::Purpose;
use crate::config::DistillKind;
use crate::plan::{Plan, bytes};

/// Bytes of a token of a distribution: its id, and its log-prob.
const TOKEN_BYTES: u64 = 8;

/// Returns the bytes of the distributions that a step keeps until its update, where each taught agent replies once an episode at
/// its full length: `episodes · Σ max_tokens · min(top_k, V)` tokens.
fn distribution_bytes(plan: &Plan) -> u64 {
    let taught = plan.seats.iter().filter(|seat| seat.teachers.is_some());
    let tokens = taught.map(|seat| {
        let vocab = plan.workers[plan.policies[seat.policy].worker].units.vocab;
        let compared = plan.algorithm.distill.top_k.get().min(vocab) as u64;
        (seat.sampling.max_tokens as u64).saturating_mul(compared)
    });
    let episode = tokens.fold(0, u64::saturating_add).saturating_mul(TOKEN_BYTES);
    let tasks = plan.config.task.tasks_per_step.get() as u64;
    let episodes = tasks.saturating_mul(u64::from(plan.config.task.group_size.get()));
    episodes.saturating_mul(episode)
}

/// Returns a warning if the distributions of a step may take more memory than this machine has. Replies are seldom that long, so
/// it is no error.
pub(crate) fn check_distribution_memory(
    plan: &Plan,
    purpose: Purpose,
    machine: Option<u64>,
) -> Option<String> {
    let distill = &plan.algorithm.distill;
    let trains = !matches!(purpose, Purpose::Eval);
    if !trains || distill.kind != DistillKind::Divergence {
        return None;
    }
    let (most, machine) = (distribution_bytes(plan), machine?);
    (most > machine).then(|| {
        format!(
            "the distributions of teachers may take {} in a step (`algorithm.distill.top_k` is {}, {TOKEN_BYTES} bytes for each of \
             them in each token of a reply), and this machine has {}: lower it",
            bytes(most),
            distill.top_k,
            bytes(machine)
        )
    })
}
