//! Ways in which checkpoints are written.

use super::*;
use crate::check::machine::plan_checkpoints;
use crate::plan::{CheckpointWriting, table};

const GIB: u64 = 1 << 30;

/// Returns a plan with so many parameters.
fn plan_with(parameters: u64, toml: &str) -> Plan {
    let mut plan = plan_of(&text(toml));
    plan.workers[0].parameters = parameters;
    plan
}

/// Returns the way in which checkpoints are written on a machine with so much memory.
fn way(plan: &Plan, purpose: Purpose, machine: Option<u64>) -> Option<CheckpointWriting> {
    plan_checkpoints((plan, &[]), purpose, machine)
}

#[test]
fn a_checkpoint_is_copied_in_memory_where_the_copy_fits_beside_the_plan() {
    let copied = Some(CheckpointWriting::Copied);
    let mut plan = plan_with(500_000_000, "");
    // Weights and moments take 5.6 GiB, keys and values up to 4, and the copy 5.6.
    assert_eq!(way(&plan, Purpose::Train, Some(24 * GIB)), copied);
    let Some(CheckpointWriting::BetweenSteps { reason }) =
        way(&plan, Purpose::Train, Some(14 * GIB))
    else {
        panic!("it does not fit")
    };
    let parts = ["a copy takes 5.59 GiB", "11.20 GiB of the 14.00 GiB"];
    assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    plan.checkpoints = Some(CheckpointWriting::BetweenSteps { reason });
    let shown = table(&plan, 500);
    let parts = ["checkpoints: written between two steps", "a copy takes 5.59 GiB"];
    assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    // Moments in bf16 are half of those bytes.
    let fewer = plan_with(500_000_000, "[checkpoint]\nmoments = \"none\"");
    assert_eq!(way(&fewer, Purpose::Train, Some(15 * GIB)), copied);
    let line = fewer.checkpoint_line().unwrap();
    assert!(
        line.starts_with("checkpoints: 1.86 GiB, copied in memory between two steps"),
        "{line}"
    );
}

#[test]
fn a_copy_of_a_hundredth_of_the_memory_is_made_in_any_case() {
    let plan = plan_with(1_000_000, "");
    assert_eq!(way(&plan, Purpose::Train, Some(2 * GIB)), Some(CheckpointWriting::Copied));
    let little = way(&plan, Purpose::Train, Some(GIB));
    assert!(matches!(little, Some(CheckpointWriting::BetweenSteps { .. })), "{little:?}");
}

#[test]
fn an_evaluation_writes_no_checkpoint_and_a_machine_of_unknown_memory_makes_no_copy() {
    let plan = plan_with(1_000_000, "");
    assert_eq!(way(&plan, Purpose::Eval, Some(GIB)), None);
    let reason = "the memory of this machine is not known".to_owned();
    let between = Some(CheckpointWriting::BetweenSteps { reason });
    assert_eq!(way(&plan, Purpose::Train, None), between);
}
