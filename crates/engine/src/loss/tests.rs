#![allow(clippy::unwrap_used)]
#![allow(clippy::approx_constant)] // values of the reference, as it prints them

use serde_json::Value;

use super::testing::{assert_close, central, matrix, numbers, rl_math};
use super::*;

mod learning;

/// Rows of the golden vectors of Dr. MAS: A = +1 for three tokens, −1 for two.
const OLD: [f64; 5] = [-1.0, -2.0, -0.5, -1.0, -1.0];
const NEW: [f64; 5] = [-0.7, -2.5, -0.5, -3.0, 0.3];
/// Returns the loss of the golden vectors of Dr. MAS.
fn golden_loss() -> LossOptions {
    LossOptions { surrogate: clip(0.2, 0.28, 3.0), ..LossOptions::default() }
}

/// Returns the clipped surrogate alone.
fn plain_loss() -> LossOptions {
    LossOptions { surrogate: clip(0.2, 0.2, 3.0), ..LossOptions::default() }
}
const SURROGATES: [BuiltinSurrogate; 10] = [
    clip(0.2, 0.2, 3.0),
    BuiltinSurrogate::Cispo(CispoOptions { clip_high: 0.2 }),
    BuiltinSurrogate::Sapo(SapoOptions { gate: (1.0, 1.05) }),
    BuiltinSurrogate::Cpgd(CpgdOptions { clip_low: 0.2, clip_high: 0.2 }),
    BuiltinSurrogate::Gmpo(GmpoOptions { clip_low: 0.4, clip_high: 0.4 }),
    BuiltinSurrogate::Vespo(VespoOptions { k: (2.0, 3.0), lambda: (3.0, 2.0) }),
    dppo_by(Divergence::Tv),
    dppo_by(Divergence::Kl),
    BuiltinSurrogate::Dro(DroOptions { pull_coef: 0.1 }),
    BuiltinSurrogate::Reinforce(ReinforceOptions {}),
];

const fn dppo_by(by: Divergence) -> BuiltinSurrogate {
    BuiltinSurrogate::Dppo(DppoOptions { by, low: None, high: None })
}

const fn clip(clip_low: f64, clip_high: f64, clip_dual: f64) -> BuiltinSurrogate {
    BuiltinSurrogate::Clip(ClipOptions { clip_low, clip_high, clip_dual })
}

/// Rows of any length, with the inputs of their losses.
#[derive(Default)]
struct Rows {
    logp: Vec<Vec<f64>>,
    old: Vec<Vec<f64>>,
    reference: Option<Vec<Vec<f64>>>,
    entropy: Option<Vec<Vec<f64>>>,
    advantages: Vec<f64>,
}

/// Loss of rows, and its derivatives by every log-prob and every entropy, packed.
struct Found {
    sums: PolicyLoss,
    d_logp: Vec<f64>,
    d_entropy: Vec<f64>,
}

impl Rows {
    fn golden() -> Self {
        let rows = |values: [f64; 5]| vec![values[..3].to_vec(), values[3..].to_vec()];
        Self { logp: rows(NEW), old: rows(OLD), advantages: vec![1.0, -1.0], ..Self::default() }
    }

    /// Returns a TRL case. Rows are cut to the lengths of their masks.
    fn trl(case: &Value) -> Self {
        let inputs = &case["inputs"];
        let lengths: Vec<usize> = matrix(&inputs["completion_mask"])
            .iter()
            .map(|row| row.iter().sum::<f64>() as usize)
            .collect();
        let cut = |name: &str| -> Option<Vec<Vec<f64>>> {
            let rows = inputs.get(name).filter(|rows| rows[0].is_array())?;
            Some(matrix(rows).iter().zip(&lengths).map(|(row, &n)| row[..n].to_vec()).collect())
        };
        let logp = cut("logps").unwrap();
        Self {
            old: cut("old_logps").unwrap_or_else(|| logp.clone()),
            logp,
            reference: cut("ref_logps"),
            entropy: cut("entropies"),
            advantages: numbers(&inputs["advantages"]),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.logp.iter().map(Vec::len).collect()
    }

    fn loss(&self, options: &LossOptions, aggregation: Aggregation, longest: usize) -> Found {
        let f32s = |row: &[f64]| row.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        let weights = token_weights(&self.lengths(), aggregation, longest);
        let mut found = Found { sums: PolicyLoss::default(), d_logp: vec![], d_entropy: vec![] };
        let mut at = 0;
        for (i, row) in self.logp.iter().enumerate() {
            let n = row.len();
            let (logp, old) = (f32s(row), f32s(&self.old[i]));
            let reference = self.reference.as_ref().map(|rows| f32s(&rows[i]));
            let entropy = self.entropy.as_ref().map_or(vec![0.0; n], |rows| f32s(&rows[i]));
            let tokens = RowTokens {
                logp: &logp,
                entropy: &entropy,
                old: &old,
                sampler: None,
                reference: reference.as_deref(),
                weights: &weights[at..at + n],
                penalties: None,
                share: 1.0 / weights.len() as f64,
            };
            at += n;
            let (mut d_logp, mut d_entropy) = (vec![0.0; n], vec![0.0; n]);
            let advantage = self.advantages[i] as f32;
            found.sums += policy_gradient(
                &tokens,
                &vec![advantage; n],
                (options, &options.surrogate),
                [&mut d_logp, &mut d_entropy],
            );
            found.d_logp.extend(d_logp.into_iter().map(f64::from));
            found.d_entropy.extend(d_entropy.into_iter().map(f64::from));
        }
        found
    }
}

fn packed(matrix: &[Vec<f64>], lengths: &[usize]) -> Vec<f64> {
    matrix.iter().zip(lengths).flat_map(|(row, &n)| row[..n].to_vec()).collect()
}

#[test]
fn the_surrogate_agrees_with_the_reference_in_every_aggregation() {
    let rows = Rows::golden();
    for (aggregation, want) in [
        (Aggregation::TokenMean, 0.182694),
        (Aggregation::SequenceSum, 0.456735),
        (Aggregation::SequenceMean, 0.468912),
    ] {
        let found = rows.loss(&golden_loss(), aggregation, 0);
        assert_close(&format!("{aggregation:?}"), &[found.sums.loss], &[want], 1e-6);
    }
    // Dr. MAS divides the sum of rows by the padded width; here that is the mean of rows over the longest.
    let constant = rows.loss(&golden_loss(), Aggregation::Constant, 3).sums.loss;
    assert_close("sum-norm", &[2.0 * constant], &[0.30449], 1e-5);
}

#[test]
fn clip_statistics_agree_with_the_reference() {
    let sums = Rows::golden().loss(&golden_loss(), Aggregation::TokenMean, 0).sums;
    assert_eq!((sums.tokens, sums.clipped), (5, [1, 1, 1])); // clipfrac 0.4, lower 0.2
    assert_close("ppo_kl", &[sums.ppo_kl / 5.0], &[0.18], 1e-6);
    let mut twice = sums;
    twice += sums;
    assert_eq!((twice.tokens, twice.clipped), (10, [2, 2, 2]));
    assert_eq!(twice.loss, 2.0 * sums.loss);
}

#[test]
fn no_gradient_beyond_a_clip() {
    let found = Rows::golden().loss(&golden_loss(), Aggregation::SequenceSum, 0);
    let want = [0.0, -(-0.5_f64).exp() / 2.0, -0.5, 0.0, 0.0];
    assert_close("d_logp", &found.d_logp, &want, 1e-7);
}

#[test]
fn on_policy_every_surrogate_has_the_gradient_of_reinforce() {
    let rows = Rows {
        logp: vec![vec![-1.0; 2], vec![-2.0], vec![-0.5]],
        old: vec![vec![-1.0; 2], vec![-2.0], vec![-0.5]],
        advantages: vec![1.5, -0.5, 0.0],
        ..Rows::default()
    };
    for surrogate in SURROGATES {
        let options = LossOptions { surrogate, ..plain_loss() };
        let found = rows.loss(&options, Aggregation::SequenceSum, 0);
        let want = [-0.5, -0.5, 0.5 / 3.0, 0.0];
        assert_close(&format!("{surrogate:?}"), &found.d_logp, &want, 1e-7);
    }
}

#[test]
fn a_ratio_that_overflows_has_no_nan() {
    for surrogate in SURROGATES {
        for (ratio, corrected) in
            [(Ratio::Token, true), (Ratio::Sequence, false), (Ratio::Product, true)]
        {
            let options = LossOptions {
                surrogate,
                ratio,
                kl_coef: 0.1,
                kl_corrected: corrected,
                drift_coef: 0.1,
                ..plain_loss()
            };
            let rows = Rows {
                logp: vec![vec![0.0; 2], vec![0.0; 2]],
                old: vec![vec![-1e4; 2], vec![-1e4; 2]],
                reference: Some(vec![vec![0.0; 2], vec![-1.0; 2]]),
                advantages: vec![1.0, -1.0],
                ..Rows::default()
            };
            let found = rows.loss(&options, Aggregation::TokenMean, 0);
            assert!(found.sums.loss.is_finite(), "{surrogate:?} {ratio:?}");
            assert!(found.d_logp.iter().all(|d| d.is_finite()), "{surrogate:?} {ratio:?}");
        }
    }
    let rows = Rows { reference: None, ..Rows::golden() };
    let far = Rows {
        logp: vec![vec![0.0; 3], vec![0.0; 2]],
        old: vec![vec![-1e4; 3], vec![-1e4; 2]],
        ..rows
    };
    let found = far.loss(&plain_loss(), Aggregation::SequenceMean, 0);
    assert_eq!(found.d_logp, [0.0; 5]);
    assert_close("clipped", &[found.sums.loss], &[(-1.2 + 3.0) / 2.0], 1e-6);
}

#[test]
fn a_log_prob_that_is_no_number_makes_the_loss_none() {
    for surrogate in SURROGATES {
        for ratio in [Ratio::Token, Ratio::Sequence, Ratio::Product, Ratio::SequenceToken] {
            for advantage in [1.0, -1.0] {
                let rows = Rows {
                    logp: vec![vec![-1.0, f64::NAN]],
                    old: vec![vec![-1.0, -1.0]],
                    advantages: vec![advantage],
                    ..Rows::default()
                };
                let options = LossOptions { surrogate, ratio, ..plain_loss() };
                let found = rows.loss(&options, Aggregation::TokenMean, 0);
                assert!(found.sums.loss.is_nan(), "{surrogate:?} {ratio:?}");
            }
        }
    }
}

/// Returns the components of a TRL loss type.
fn parts(params: &Value) -> (LossOptions, Aggregation) {
    let number = |key: &str, default: f64| params[key].as_f64().unwrap_or(default);
    let high = number("epsilon_high", 0.2);
    let mut options = LossOptions {
        surrogate: clip(number("epsilon_low", 0.2), high, number("delta", 1e30)),
        kl_coef: number("beta", 0.0) as f32,
        kl_corrected: params["use_bias_correction_kl"].as_bool().unwrap_or(false),
        ..plain_loss()
    };
    if params["importance_sampling_level"] == "sequence" {
        options.ratio = Ratio::Sequence;
    }
    let aggregation = match params["loss_type"].as_str() {
        Some("bnpo" | "dapo") => Aggregation::TokenMean,
        Some("cispo") => {
            // TRL's is the bound itself.
            options.surrogate = BuiltinSurrogate::Cispo(CispoOptions { clip_high: high - 1.0 });
            Aggregation::TokenMean
        }
        Some("dr_grpo") => Aggregation::Constant,
        Some("luspo") => Aggregation::SequenceSum,
        Some("sapo") => {
            options.surrogate = BuiltinSurrogate::Sapo(SapoOptions { gate: (1.0, 1.05) });
            Aggregation::SequenceMean
        }
        _ => Aggregation::SequenceMean,
    };
    (options, aggregation)
}

#[test]
fn losses_and_gradients_agree_with_trl() {
    for name in [
        "grpo_loss/plain",
        "grpo_loss/on_policy",
        "grpo_loss/kl",
        "grpo_loss/kl_bias_corrected",
        "grpo_loss/two_sided_delta",
        "gspo_loss (sequence level, grpo)",
        "bnpo_loss",
        "dapo_loss/token_level,clip_higher",
        "dapo_loss/kl",
        "dr_grpo_loss/plain",
        "dr_grpo_loss/kl",
        "cispo_loss",
        "sapo_loss",
        "luspo_loss (sequence level)",
    ] {
        let case = rl_math(name);
        let (rows, (options, aggregation)) = (Rows::trl(&case), parts(&case["params"]));
        let longest = case["params"]["max_completion_length"].as_u64().unwrap() as usize;
        let found = rows.loss(&options, aggregation, longest);
        let outputs = &case["outputs"];
        assert_close(name, &[found.sums.loss], &[outputs["loss"].as_f64().unwrap()], 1e-6);
        let want = packed(&matrix(&outputs["d_loss/d_logps"]), &rows.lengths());
        assert_close(name, &found.d_logp, &want, 1e-6);
        let share = |clipped: u64| clipped as f64 / found.sums.tokens as f64;
        if options.ratio == Ratio::Token && outputs.get("clip_ratio_low").is_some() {
            let got = [share(found.sums.clipped[0]), share(found.sums.clipped[1])];
            let want = ["clip_ratio_low", "clip_ratio_high"].map(|k| outputs[k].as_f64().unwrap());
            assert_close(name, &got, &want, 1e-6);
        }
        if options.kl_coef > 0.0 && outputs.get("mean_kl").is_some() {
            assert_close(name, &[found.sums.kl], &[outputs["mean_kl"].as_f64().unwrap()], 1e-6);
        }
    }
}

#[test]
fn the_entropy_bonus_agrees_with_trl_which_averages_it_over_tokens() {
    let name = "grpo_loss/entropy_bonus";
    let case = rl_math(name);
    let rows = Rows::trl(&case);
    let surrogate = rows.loss(&parts(&case["params"]).0, Aggregation::SequenceMean, 0);
    let entropy_coef = case["params"]["entropy_coef"].as_f64().unwrap() as f32;
    let idle = Rows { advantages: vec![0.0; rows.logp.len()], ..rows };
    let bonus = idle.loss(&LossOptions { entropy_coef, ..plain_loss() }, Aggregation::TokenMean, 0);
    let want = case["outputs"]["loss"].as_f64().unwrap();
    assert_close(name, &[surrogate.sums.loss + bonus.sums.loss], &[want], 1e-6);
    let want = packed(&matrix(&case["outputs"]["d_loss/d_entropies"]), &idle.lengths());
    assert_close(name, &bonus.d_entropy, &want, 1e-6);
}

#[test]
fn the_loss_of_rloo_agrees_with_trl() {
    let name = "rloo_loss";
    let case = rl_math(name);
    let mut rows = Rows::trl(&case);
    // TRL has sums over rows. Only the sum counts, so it may be on the first token.
    rows.old = numbers(&case["inputs"]["old_logps"])
        .into_iter()
        .zip(rows.lengths())
        .map(|(sum, n)| (0..n).map(|t| if t == 0 { sum } else { 0.0 }).collect())
        .collect();
    let surrogate = clip(0.2, 0.2, 1e30);
    let options = LossOptions { ratio: Ratio::Product, surrogate, ..plain_loss() };
    let found = rows.loss(&options, Aggregation::SequenceMean, 0);
    assert_close(name, &[found.sums.loss], &[case["outputs"]["loss"].as_f64().unwrap()], 1e-6);
    let want = packed(&matrix(&case["outputs"]["d_loss/d_logps"]), &rows.lengths());
    assert_close(name, &found.d_logp, &want, 1e-6);
}

#[test]
fn the_losses_of_ppo_agree_with_trl() {
    let name = "ppo_loss";
    let case = rl_math(name);
    let of = |key: &str| -> Vec<f64> { matrix(&case["inputs"][key]).concat() };
    let (mask, mask_value) = (of("mask"), of("mask_value"));
    let (new, old, advantages) = (of("new_logprobs"), of("old_logprobs"), of("advantages"));
    let (values, returns, predicted) = (of("values"), of("returns"), of("vpred"));
    let sum = |terms: &[Term], mask: &[f64]| {
        let n = mask.iter().sum::<f64>();
        let value = terms.iter().zip(mask).map(|(term, m)| term.value * m).sum::<f64>() / n;
        let grads = terms.iter().zip(mask).map(|(term, m)| term.grad * m / n);
        (value, grads.collect::<Vec<f64>>())
    };
    let policy: Vec<Term> = (0..new.len())
        .map(|t| clipped_surrogate(new[t] - old[t], advantages[t], (0.2, 0.2, 1e30)).term)
        .collect();
    let value: Vec<Term> = (0..new.len())
        .map(|t| clipped_value(predicted[t], values[t], returns[t], 0.2, f64::INFINITY))
        .collect();
    let ((pg, d_logp), (vf, d_value)) = (sum(&policy, &mask), sum(&value, &mask_value));
    let out = |key: &str| case["outputs"][key].as_f64().unwrap();
    assert_close(
        name,
        &[pg, vf, pg + 0.1 * vf],
        &[out("pg_loss"), out("vf_loss"), out("loss")],
        1e-12,
    );
    assert_close(name, &d_logp, &matrix(&case["outputs"]["d_loss/d_new_logprobs"]).concat(), 1e-12);
    let d_value: Vec<f64> = d_value.iter().map(|d| 0.1 * d).collect();
    assert_close(name, &d_value, &matrix(&case["outputs"]["d_loss/d_vpred"]).concat(), 1e-12);
}

#[test]
fn losses_of_pairs_agree_with_trl() {
    for name in [
        "dpo_loss/sigmoid,beta=0.1",
        "dpo_loss/sigmoid,beta=0.5",
        "dpo_loss/hinge",
        "dpo_loss/ipo",
        "dpo_loss/robust",
    ] {
        let case = rl_math(name);
        let params = &case["params"];
        let loss = match params["loss_type"].as_str().unwrap() {
            "sigmoid" => PairLoss::Sigmoid,
            "hinge" => PairLoss::Hinge,
            "ipo" => PairLoss::Ipo,
            _ => PairLoss::Robust,
        };
        let options = PreferenceOptions {
            loss,
            beta: params["beta"].as_f64().unwrap(),
            label_smoothing: params["label_smoothing"].as_f64().unwrap(),
            ..PreferenceOptions::default()
        };
        let of = |key: &str| matrix(&case["inputs"][key]);
        let (logp, reference, mask) = (of("logps"), of("ref_logps"), of("completion_mask"));
        let half = logp.len() / 2;
        let excess = |row: usize| {
            let sum = logp[row].iter().zip(&reference[row]).map(|(a, b)| a - b).sum::<f64>();
            (sum, mask[row].iter().sum::<f64>() as usize)
        };
        let losses: Vec<PreferenceLoss> = (0..half)
            .map(|row| {
                let pair = Pair { chosen: excess(row), rejected: excess(row + half) };
                preference(&options, &pair)
            })
            .collect();
        let mean =
            |of: &dyn Fn(&PreferenceLoss) -> f64| losses.iter().map(of).sum::<f64>() / half as f64;
        let out = |key: &str| case["outputs"][key].as_f64().unwrap();
        let got = [mean(&|l| l.value), mean(&|l| l.reward_chosen), mean(&|l| l.reward_rejected)];
        let want = [out("loss"), out("reward_chosen"), out("reward_rejected")];
        assert_close(name, &got, &want, 1e-12);
        let accuracy = mean(&|l| f64::from(l.reward_chosen > l.reward_rejected));
        assert_close(name, &[accuracy], &[out("accuracy")], 1e-12);
        let want = matrix(&case["outputs"]["d_loss/d_logps"]);
        for (row, loss) in losses.iter().enumerate() {
            let got = [loss.chosen / half as f64, loss.rejected / half as f64];
            assert_close(name, &got, &[want[row][0], want[row + half][0]], 1e-12);
        }
    }
}

#[test]
fn label_smoothing_mixes_a_pair_with_its_reverse() {
    let pair = Pair { chosen: (0.4, 2), rejected: (-0.3, 3) };
    let reverse = Pair { chosen: pair.rejected, rejected: pair.chosen };
    let of = |label_smoothing, pair| {
        let options =
            PreferenceOptions { beta: 0.5, label_smoothing, ..PreferenceOptions::default() };
        preference(&options, pair)
    };
    let want = 0.8 * of(0.0, &pair).value + 0.2 * of(0.0, &reverse).value;
    assert_close("smoothing", &[of(0.2, &pair).value], &[want], 1e-12);
}

#[test]
fn self_play_is_the_logistic_loss_of_its_paper() {
    // 2401.01335 eq. 4.7 with ℓ(t) = log(1 + exp(−t)) and λ = 0.1: t = λ (log p/p_opponent of the given reply, minus that
    // of the opponent's). By hand: ℓ(0) = ln 2, ℓ(0.08), ℓ(−0.5), and −λ / (1 + exp(t)).
    let numbers = [
        ((0.0, 0.0), 0.693_147_180_559_945_3, -0.05),
        ((0.5, -0.3), 0.653_946_967_317_589_9, -0.048_001_065_984_441_83),
        ((-4.0, 1.0), 0.974_076_984_180_106_7, -0.062_245_933_120_185_46),
    ];
    let options = PreferenceOptions::default();
    for ((given, opponent), value, slope) in numbers {
        let pair = Pair { chosen: (given, 3), rejected: (opponent, 2) };
        let loss = preference(&options, &pair);
        assert_close("value", &[loss.value], &[value], 1e-15);
        assert_close("slopes", &[loss.chosen, loss.rejected], &[slope, -slope], 1e-15);
    }
}

#[test]
fn kl_estimators_agree_with_trl() {
    let case = rl_math("kl_estimators");
    let logp = numbers(&case["inputs"]["logps"]);
    let reference = numbers(&case["inputs"]["ref_logps"]);
    for (estimator, name) in [(Kl::K1, "k1"), (Kl::K2, "k2"), (Kl::K3, "k3")] {
        let got: Vec<f64> =
            logp.iter().zip(&reference).map(|(a, b)| kl(estimator, *a, *b).value).collect();
        assert_close(name, &got, &numbers(&case["outputs"][name]), 1e-12);
    }
}

#[test]
fn k3_agrees_with_the_reference() {
    let got: Vec<f64> = (0..5).map(|t| kl(Kl::K3, NEW[t], OLD[t]).value).collect();
    assert_close("k3", &got, &[0.0408182, 0.1487212, 0.0, 4.389056, 0.5725317], 1e-6);
}

#[test]
fn the_clip_of_cpgd_agrees_with_the_reference() {
    for (ratio, advantage, want) in [
        (1.5_f64, 1.0, 0.182322),
        (1.5, -1.0, 0.405465),
        (0.5, 1.0, -0.693147),
        (0.5, -1.0, -0.223144),
    ] {
        let found = cpgd(ratio.ln(), advantage, (0.2, 0.2)).term.value;
        assert_close("cpgd", &[-advantage * found], &[want], 1e-6);
    }
}

#[test]
fn hubers_loss_is_linear_on_both_sides() {
    assert_eq!((huber(-12.0, 10.0).value, huber(12.0, 10.0).value), (70.0, 70.0));
    assert_eq!((huber(-12.0, 10.0).grad, huber(3.0, 10.0).grad), (-10.0, 3.0));
}

#[test]
fn an_adaptive_coefficient_agrees_with_the_reference() {
    let adaptive = AdaptiveKl { target: 0.1, horizon: 1e4 };
    assert_close("adaptive", &[adaptive.next(0.001, 0.5, 640)], &[0.0010128], 1e-12);
}

#[test]
fn gradients_agree_with_central_differences() {
    let agrees = |name: &str, f: &dyn Fn(f64) -> Term, x: f64| {
        let grad = central(|x| f(x).value, x);
        assert_close(&format!("{name} at {x}"), &[f(x).grad], &[grad], 1e-7);
    };
    for x in [-2.0, -0.31, -0.1, 0.05, 0.4, 1.7] {
        for a in [1.3, -0.8] {
            let clip = move |x| clipped_surrogate(x, a, (0.25, 0.3, 3.0)).term;
            agrees("clip", &clip, x);
            agrees("sapo", &move |x| sapo(x, a, (1.0, 1.05)).term, x);
            agrees("cpgd", &move |x| cpgd(x, a, (0.25, 0.3)).term, x);
        }
        for estimator in [Kl::K1, Kl::K2, Kl::K3] {
            agrees("kl", &move |x| kl(estimator, x, -1.0), x);
            let corrected = move |x| importance_corrected(kl(estimator, x, -1.0), x + 0.7);
            agrees("corrected kl", &corrected, x);
        }
        agrees("value", &|x| clipped_value(x, 0.2, 0.7, 0.3, 0.4), x);
        agrees("huber", &|x| huber(x, 1.0), x);
        for (loss, label_smoothing) in [
            (PairLoss::Sigmoid, 0.1),
            (PairLoss::Hinge, 0.0),
            (PairLoss::Ipo, 0.0),
            (PairLoss::Robust, 0.2),
        ] {
            let options = PreferenceOptions {
                loss,
                beta: 0.7,
                label_smoothing,
                ..PreferenceOptions::default()
            };
            let pair = |x, y| Pair { chosen: (x, 3), rejected: (y, 2) };
            let chosen = |x| {
                let loss = preference(&options, &pair(x, 0.4));
                Term { value: loss.value, grad: loss.chosen }
            };
            let rejected = |x| {
                let loss = preference(&options, &pair(0.4, x));
                Term { value: loss.value, grad: loss.rejected }
            };
            agrees(&format!("{loss:?} chosen"), &chosen, x);
            agrees(&format!("{loss:?} rejected"), &rejected, x);
        }
    }
}

#[test]
fn a_weight_without_gradient_has_none() {
    let (logp, old, advantage) = (-0.4, -0.9_f64, -1.1);
    let weight = (logp - old).exp().min(1.2);
    let term = cispo(logp, logp - old, advantage, 0.2).term;
    let held = central(|logp| -weight * advantage * logp, logp);
    assert_close("cispo", &[term.grad], &[held], 1e-8);
    let pull = 0.5_f64.exp_m1();
    assert_close("drift", &[policy_drift(0.5).grad], &[central(|x| pull * x, 0.5)], 1e-8);
    assert_eq!(policy_drift(9.0).grad, 2.0);
}

#[test]
fn off_policy_tokens_count_less_or_not_at_all() {
    let (trainer, rollout) = ([-1.0, -1.0, -3.0], [-1.0, -2.0, -1.0]);
    let of = |correction| correction_weights(&[correction], &trainer, &rollout);
    let truncate = Correction::Truncate(TruncateOptions::default());
    assert_close("truncate", &of(truncate), &[1.0, 2.0, (-2.0_f64).exp()], 1e-12);
    let mask = |cap| CapOptions { cap };
    assert_eq!(of(Correction::MaskTokens(mask(2.0))), [1.0, 0.0, 0.0]);
    assert_eq!(of(Correction::MaskSequences(mask(2.0))), [1.0; 3]);
    assert_eq!(of(Correction::MaskSequences(mask(1.1))), [0.0; 3]);
}

#[test]
fn the_loss_of_supervised_rows_is_the_weighted_log_likelihood() {
    let (logp, weights) = ([-1.0, -0.5, -2.0], [0.5, 0.25, 0.25]);
    let entropy = [1.0, 2.0, 4.5];
    let row = RowTokens {
        logp: &logp,
        entropy: &entropy,
        old: &[],
        sampler: None,
        reference: None,
        weights: &weights,
        penalties: None,
        share: 0.5,
    };
    let mut d_logp = [0.0; 3];
    let sums = log_likelihood(&row, &mut d_logp);
    assert_eq!((sums.loss, sums.surrogate, sums.entropy), (1.125, 1.125, 3.75));
    assert_eq!(d_logp, weights.map(|weight| -weight));
    let masked = RowTokens { weights: &[0.5, 0.5, 0.0], ..row };
    assert_eq!(log_likelihood(&masked, &mut d_logp).entropy, 1.5);
}

#[test]
fn micro_batches_add_up_to_the_whole_batch() {
    let lengths = [3, 1, 4, 2];
    let losses: Vec<f64> = (0..10).map(f64::from).collect();
    let aggregate = |aggregation, longest| -> f64 {
        let weights = token_weights(&lengths, aggregation, longest);
        losses.iter().zip(weights).map(|(loss, weight)| loss * f64::from(weight)).sum()
    };
    for aggregation in [
        Aggregation::TokenMean,
        Aggregation::SequenceMean,
        Aggregation::SequenceSum,
        Aggregation::Constant,
    ] {
        let weights = token_weights(&lengths, aggregation, 8);
        let sum = |tokens: std::ops::Range<usize>| -> f64 {
            tokens.map(|t| losses[t] * f64::from(weights[t])).sum()
        };
        for cut in [3, 4, 8] {
            assert!((sum(0..cut) + sum(cut..10) - sum(0..10)).abs() < 1e-12);
        }
    }
    let means = [1.0, 3.0, 5.5, 8.5];
    let want = [4.5, means.iter().sum::<f64>() / 4.0, 45.0 / 4.0, 45.0 / 32.0];
    let got = [
        aggregate(Aggregation::TokenMean, 0),
        aggregate(Aggregation::SequenceMean, 0),
        aggregate(Aggregation::SequenceSum, 0),
        aggregate(Aggregation::Constant, 8),
    ];
    assert_close("aggregates", &got, &want, 1e-6);
}

#[test]
fn what_is_not_a_number_never_becomes_one() {
    let nan = f64::NAN;
    for advantage in [1.0, -1.0] {
        assert!(clipped_surrogate(nan, advantage, (0.2, 0.2, 10.0)).term.value.is_nan());
        assert!(cispo(-1.0, nan, advantage, 0.2).term.value.is_nan());
        assert!(sapo(nan, advantage, (1.0, 1.05)).term.value.is_nan());
        assert!(cpgd(nan, advantage, (0.2, 0.2)).term.value.is_nan());
    }
    for estimator in [Kl::K1, Kl::K2, Kl::K3] {
        assert!(kl(estimator, nan, 0.0).value.is_nan());
        assert!(importance_corrected(kl(estimator, -1.0, -2.0), nan).value.is_nan());
    }
    assert!(policy_drift(nan).value.is_nan());
    let truncate = Correction::Truncate(TruncateOptions::default());
    assert!(correction_weights(&[truncate], &[f32::NAN], &[0.0])[0].is_nan());
}

#[test]
fn a_reward_loses_what_the_reply_went_from_the_reference() {
    let got = kl_reward(Kl::K1, 0.5, &[-1.0, -2.0], &[-1.5, -1.0]);
    assert_close("sum of k1", &[got], &[-0.5 * (0.5 - 1.0)], 1e-12);
}
