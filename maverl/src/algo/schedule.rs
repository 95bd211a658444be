//! Learning rate schedule.

use std::f64::consts::PI;

use crate::config::Schedule;
use crate::plan::OptimPlan;

/// Returns the learning rate of step `step` (from 0) of `steps`.
///
/// ```text
/// warm-up    lr · (step + 1) / w                    step < w
/// constant   lr
/// linear     lr · (1 − p)                           p = (step − w) / (steps − w)
/// cosine     lr · (1 + cos πp) / 2
/// ```
///
/// - Warm-up begins with one part in `w`, not with 0: a step with learning rate 0 would change nothing.
/// - Linear and cosine reach 0 when the run ends, one step after its last, as in `transformers`.
pub fn lr(step: u64, steps: u64, optim: &OptimPlan) -> f64 {
    let warmup = optim.warmup_steps;
    if step < warmup {
        return optim.lr * (step + 1) as f64 / warmup as f64;
    }
    let decay = steps.saturating_sub(warmup).max(1);
    let progress = ((step - warmup) as f64 / decay as f64).min(1.0);
    optim.lr
        * match optim.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => 1.0 - progress,
            Schedule::Cosine => f64::midpoint(1.0, (PI * progress).cos()),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::OPTIM;

    fn rates(schedule: Schedule, warmup_steps: u64, steps: u64) -> Vec<f64> {
        let optim = OptimPlan { lr: 1.0, schedule, warmup_steps, ..OPTIM };
        (0..steps).map(|step| lr(step, steps, &optim)).collect()
    }

    #[test]
    fn warmup_rises_from_one_part_to_the_whole() {
        assert_eq!(rates(Schedule::Constant, 4, 6), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn decay_agrees_with_transformers_after_warmup() {
        let linear = rates(Schedule::Linear, 4, 20);
        assert_eq!(linear[4..8], [1.0, 0.9375, 0.875, 0.8125]);
        assert_eq!(linear[19], 0.0625);
        let cosine = rates(Schedule::Cosine, 4, 20);
        let want = [
            (4, 1.0),
            (5, 0.9903926402016152),
            (11, 0.5975451610080642),
            (19, 0.009607359798384785),
        ];
        for (step, want) in want {
            assert!((cosine[step] - want).abs() < 1e-12, "step {step}: {}", cosine[step]);
        }
    }

    #[test]
    fn a_run_of_one_step_or_shorter_than_its_warmup_has_a_step_size() {
        assert_eq!(rates(Schedule::Linear, 0, 1), [1.0]);
        assert_eq!(rates(Schedule::Cosine, 8, 2), [0.125, 0.25]);
    }

    #[test]
    fn past_its_end_a_decayed_step_size_stays_zero() {
        let optim = OptimPlan { schedule: Schedule::Linear, ..OPTIM };
        assert_eq!(lr(30, 20, &optim), 0.0);
    }
}
