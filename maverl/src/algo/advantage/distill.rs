//! On-policy distillation in the form of an advantage: the teacher's log-prob of a sampled token less the policy's.
//!
//! ```text
//! Δ_t = clip(logp_T(y_t) − logp_S(y_t))
//! Δ_t ← Σ_{i ≥ t} Δ_i                      horizon = "reply"
//! A_t ← task_coef · A_t + coef · Δ_t
//! ```
//!
//! With horizon `token`, the expected gradient is that of `Σ_t KL(π_S ‖ π_T)` at prefixes that are held fixed; with `reply`, that
//! of the KL of whole replies. GKD, [2306.13649](https://arxiv.org/abs/2306.13649); MiniLLM,
//! [2306.08543](https://arxiv.org/abs/2306.08543).

use crate::config::{DistillHorizon, DistillPlan};

/// Returns the difference of each token of a reply, `[T]`, from the log-probs of the teacher and of the policy. Equal ones give
/// 0 to the bit.
pub fn teacher_differences(plan: &DistillPlan, teacher: &[f32], policy: &[f32]) -> Vec<f64> {
    let bound = if plan.clip > 0.0 { plan.clip } else { f64::INFINITY };
    let both = teacher.iter().zip(policy);
    let mut differences: Vec<f64> =
        both.map(|(&t, &s)| (f64::from(t) - f64::from(s)).clamp(-bound, bound)).collect();
    if plan.horizon == DistillHorizon::Reply {
        let mut rest = 0.0;
        for difference in differences.iter_mut().rev() {
            rest += *difference;
            *difference = rest;
        }
    }
    differences
}

/// Adds the differences of a teacher to the advantages of a reply.
pub fn add_teacher(task_coef: f64, coef: f64, differences: &[f64], advantages: &mut [f64]) {
    for (advantage, difference) in advantages.iter_mut().zip(differences) {
        *advantage = task_coef * *advantage + coef * difference;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::{assert_close, learning, matrix, numbers};

    fn narrow(values: &[f64]) -> Vec<f32> {
        values.iter().map(|&value| value as f32).collect()
    }

    #[test]
    fn advantages_with_a_teacher_are_the_recorded_ones() {
        for name in ["token", "token_clip", "reply", "reply_clip"] {
            let case = learning(&format!("distill/advantage/{name}"));
            let number = |key: &str| case["params"][key].as_f64();
            let plan = DistillPlan {
                clip: number("clip").unwrap_or(0.0),
                horizon: serde_json::from_value(case["params"]["horizon"].clone()).unwrap(),
                ..DistillPlan::default()
            };
            let [task_coef, coef] = ["task_coef", "coef"].map(|key| number(key).unwrap());
            let [teacher, sampler] = ["teacher", "sampler"].map(|key| matrix(&case["inputs"][key]));
            let expected = matrix(&case["outputs"]["advantages"]);
            let rewards = numbers(&case["inputs"]["advantages"]);
            for (row, expected) in expected.iter().enumerate() {
                let [teacher, policy] = [&teacher[row], &sampler[row]].map(|row| narrow(row));
                let differences = teacher_differences(&plan, &teacher, &policy);
                let mut found = vec![rewards[row]; expected.len()];
                add_teacher(task_coef, coef, &differences, &mut found);
                assert_close(name, &found, expected, 1e-6);
            }
        }
    }

    #[test]
    fn a_teacher_equal_to_the_policy_adds_nothing_to_the_bit() {
        let logprobs = [-0.1f32, -3.5, -1e-7, -80.0];
        for horizon in [DistillHorizon::Token, DistillHorizon::Reply] {
            let plan = DistillPlan { horizon, clip: 0.5, ..DistillPlan::default() };
            let differences = teacher_differences(&plan, &logprobs, &logprobs);
            assert!(differences.iter().all(|value| value.to_bits() == 0), "{differences:?}");
            let mut advantages = [0.1, -0.7, 1e-300, 3.0];
            add_teacher(1.0, 2.0, &differences, &mut advantages);
            assert_eq!(advantages, [0.1, -0.7, 1e-300, 3.0]);
        }
    }
}
