//! Corrections and surrogates of replies against recorded values, and their derivatives.

use super::*;
use crate::loss::testing::{central, learning};

fn f32s(row: &[f64]) -> Vec<f32> {
    row.iter().map(|&x| x as f32).collect()
}

fn rows_of(case: &Value) -> Rows {
    let inputs = &case["inputs"];
    Rows {
        logp: matrix(&inputs["logp"]),
        old: matrix(&inputs["logp_old"]),
        advantages: numbers(&inputs["advantages"]),
        ..Rows::default()
    }
}

/// Returns the loss of each token and the slopes of each reply, with weights of 1.
fn of_replies(rows: &Rows, surrogate: BuiltinSurrogate, ratio: Ratio) -> [Vec<Vec<f64>>; 2] {
    let [mut values, mut slopes] = [Vec::new(), Vec::new()];
    for ((logp, old), &advantage) in rows.logp.iter().zip(&rows.old).zip(&rows.advantages) {
        let n = logp.len();
        let log_ratio: Vec<f64> = logp.iter().zip(old).map(|(now, old)| now - old).collect();
        let advantages = vec![advantage; n];
        let unit = vec![0.0; n];
        let reply = PolicyReply::new(logp, &log_ratio, &advantages, &unit);
        let reply = PolicyReply { ratio, ..reply };
        let of_tokens = (0..n).map(|t| {
            let mut weights = unit.clone();
            weights[t] = 1.0;
            value_and_slopes(surrogate, PolicyReply { weights: &weights, ..reply }).0
        });
        values.push(of_tokens.collect());
        slopes.push(value_and_slopes(surrogate, PolicyReply { weights: &vec![1.0; n], ..reply }).1);
    }
    [values, slopes]
}

/// Returns the loss of a reply and its slope in each log-prob.
fn value_and_slopes(surrogate: BuiltinSurrogate, reply: PolicyReply<'_>) -> (f64, Vec<f64>) {
    let mut slopes = vec![0.0; reply.weights.len()];
    (surrogate.reply(&reply, &mut slopes).value, slopes)
}

#[test]
fn corrections_agree_with_recorded_weights() {
    for name in [
        "truncate",
        "truncate_two_sided",
        "truncate_product",
        "icepop",
        "mask_one",
        "sequence_mean",
        "sequence_product",
        "sequence_max",
        "k2",
        "k3_mean",
        "k3_max",
    ] {
        let case = learning(&format!("correction/{name}"));
        let correction = correction_of(&case["params"]);
        let [trainer, sampler] = ["trainer", "sampler"].map(|key| matrix(&case["inputs"][key]));
        let want = matrix(&case["outputs"]["weights"]);
        for ((trainer, sampler), want) in trainer.iter().zip(&sampler).zip(&want) {
            let got = correction_weights(&[correction], &f32s(trainer), &f32s(sampler));
            assert_close(name, &got, want, 2e-6);
        }
    }
}

/// Returns the correction that the settings of a case describe.
fn correction_of(params: &Value) -> Correction {
    let mut settings = params.clone();
    let keys = settings.as_object_mut().unwrap();
    let kind = keys.remove("kind").unwrap();
    if kind == "mask" {
        return Correction::Mask(serde_json::from_value(settings).unwrap());
    }
    assert!(keys.remove("measure").unwrap() == "ratio" && keys.remove("keep").unwrap() == "ratio");
    Correction::Truncate(serde_json::from_value(settings).unwrap())
}

#[test]
fn weights_of_several_corrections_are_multiplied() {
    let (trainer, rollout) = ([-1.0, -1.0, -3.0], [-1.0, -2.0, -1.0]);
    let truncate = Correction::Truncate(TruncateOptions::default());
    let mask = Correction::Mask(MaskOptions { keep: KeptWeight::One, ..MaskOptions::default() });
    let got = correction_weights(&[truncate, mask], &trainer, &rollout);
    assert_close("truncated and masked", &got, &[1.0, 2.0, 0.0], 1e-12);
    assert_eq!(correction_weights(&[], &trainer, &rollout), [1.0; 3]);
    let capped = TruncateOptions { cap: Some(1.5), ..TruncateOptions::default() };
    let got = correction_weights(&[Correction::Truncate(capped)], &trainer, &rollout);
    assert_close("cap", &got, &[1.0, 1.5, (-2.0_f64).exp()], 1e-12);
}

#[test]
fn a_short_name_is_the_mask_that_it_stands_for() {
    let (trainer, rollout) = ([-1.0, -1.3, -3.0, -0.4], [-1.0, -2.0, -1.0, -0.2]);
    for (of, short) in [
        (CorrectionUnit::Token, Correction::MaskTokens as fn(CapOptions) -> Correction),
        (CorrectionUnit::Mean, Correction::MaskSequences),
    ] {
        for cap in [1.1, 1.5, 2.5] {
            let (low, high, keep) = (1.0 / cap, cap, KeptWeight::One);
            let mask = MaskOptions { of, low, high, keep, ..MaskOptions::default() };
            let of = |correction| correction_weights(&[correction], &trainer, &rollout);
            assert_eq!(of(short(CapOptions { cap })), of(Correction::Mask(mask)), "{cap}");
        }
    }
}

#[test]
fn surrogates_agree_with_recorded_values_and_slopes() {
    let clip = clip(0.003, 0.004, 1e30);
    let [tv, kl] = [Divergence::Tv, Divergence::Kl].map(dppo_by);
    for (name, surrogate, ratio) in [
        ("gspo_token", clip, Ratio::SequenceToken),
        ("dppo_tv", tv, Ratio::Token),
        ("dppo_kl", kl, Ratio::Token),
        ("vespo", BuiltinSurrogate::Vespo(VespoOptions::default()), Ratio::Token),
        ("dro", BuiltinSurrogate::Dro(DroOptions::default()), Ratio::Token),
    ] {
        let case = learning(&format!("loss/{name}"));
        let [values, slopes] = of_replies(&rows_of(&case), surrogate, ratio);
        for (key, got) in [("value", values), ("grad", slopes)] {
            let want = matrix(&case["outputs"][key]);
            assert_close(&format!("{name} {key}"), &got.concat(), &want.concat(), 1e-9);
        }
    }
}

#[test]
fn gmpo_agrees_with_recorded_values_and_counts_replies() {
    let case = learning("loss/gmpo");
    let (rows, options) = (rows_of(&case), GmpoOptions::default());
    let want = numbers(&case["outputs"]["value"]);
    let [_, slopes] = of_replies(&rows, BuiltinSurrogate::Gmpo(options), Ratio::Token);
    let lengths = rows.lengths().into_iter().map(|n| n as f64);
    let slopes = slopes.iter().zip(lengths).map(|(row, n)| row.iter().map(|d| d / n).collect());
    let slopes: Vec<Vec<f64>> = slopes.collect();
    assert_close("slopes", &slopes.concat(), &matrix(&case["outputs"]["grad"]).concat(), 1e-9);
    let loss = LossOptions { surrogate: BuiltinSurrogate::Gmpo(options), ..LossOptions::default() };
    let found = rows.loss(&loss, Aggregation::SequenceMean, 0);
    let mean = want.iter().sum::<f64>() / want.len() as f64;
    assert_close("mean", &[found.sums.loss], &[mean], 1e-6);
    assert_eq!(found.sums.clipped, [0, 1, 0]);
    assert_eq!(loss.surrogate.unit(), LossUnit::Reply);
}

#[test]
fn a_reply_far_from_the_sampler_has_no_surrogate_where_its_advantage_is_negative() {
    let case = learning("loss/off_policy_mask");
    let rows = rows_of(&case);
    let mask = case["params"]["delta"].as_f64().unwrap();
    let surrogate = clip(1.0, 1e30, 1e30);
    let loss = LossOptions { surrogate, off_policy_mask: mask, ..LossOptions::default() };
    let found = rows.loss(&loss, Aggregation::SequenceSum, 0);
    let want: Vec<f64> = matrix(&case["outputs"]["grad"]).concat();
    let want: Vec<f64> = want.iter().map(|d| d / rows.logp.len() as f64).collect();
    assert_close("slopes", &found.d_logp, &want, 1e-6);
    assert_eq!(found.sums.masked, 5);
    let gaps = numbers(&learning("correction/off_policy_mask")["outputs"]["keep"]);
    assert_eq!(gaps, [1.0, 0.0, 0.0]);
}

#[test]
fn the_mask_of_off_policy_replies_compares_with_the_sampler_of_corrected_rows() {
    let (logp, trainer, sampler) = ([-1.0_f32, -2.0], [-1.0_f32, -2.0], [-0.5_f32, -1.0]);
    let slopes = |sampler, off_policy_mask| {
        let row = RowTokens {
            logp: &logp,
            entropy: &[0.0; 2],
            old: &trainer,
            sampler,
            reference: None,
            weights: &[1.0; 2],
            penalties: None,
            share: 0.5,
        };
        let loss = LossOptions { off_policy_mask, ..LossOptions::default() };
        let (mut d_logp, mut d_entropy) = ([0.0; 2], [0.0; 2]);
        let surrogate: (&LossOptions, &dyn Surrogate) = (&loss, &loss.surrogate);
        policy_gradient(&row, &[-1.0, 1.0], surrogate, [&mut d_logp, &mut d_entropy]);
        d_logp
    };
    assert_eq!(slopes(Some(&sampler), 0.7), [0.0, -1.0], "the mean gap is 0.75");
    assert_eq!(slopes(Some(&sampler), 0.8), [1.0, -1.0]);
    assert_eq!(slopes(None, 0.7), [1.0, -1.0], "the trainer is the sampler");
}

#[test]
fn slopes_of_replies_agree_with_central_differences() {
    let logp = [-0.8, -1.4, -0.3];
    let old = [-0.9, -1.2, -0.5];
    let weights = [0.5, 0.25, 1.0];
    for advantages in [[0.7; 3], [-0.4; 3], [0.9, -0.2, 0.1]] {
        for (surrogate, ratio) in [
            (SURROGATES[0], Ratio::Sequence),
            (SURROGATES[0], Ratio::Product),
            (BuiltinSurrogate::Gmpo(GmpoOptions::default()), Ratio::Token),
            (BuiltinSurrogate::Dro(DroOptions::default()), Ratio::Token),
            (BuiltinSurrogate::Reinforce(ReinforceOptions {}), Ratio::Token),
        ] {
            let name = format!("{surrogate:?} {ratio:?}");
            for (t, &own) in logp.iter().enumerate() {
                let moved_by = |x: f64| {
                    let mut now = logp;
                    now[t] = x;
                    now
                };
                let of = |now: [f64; 3]| {
                    let moved: Vec<f64> =
                        now.iter().zip(&old).map(|(now, old)| now - old).collect();
                    let reply = PolicyReply::new(&now, &moved, &advantages, &weights);
                    value_and_slopes(surrogate, PolicyReply { ratio, ..reply })
                };
                let want = central(|x| of(moved_by(x)).0, own);
                assert_close(&name, &[of(logp).1[t]], &[want], 1e-7);
            }
        }
    }
}

#[test]
fn a_weight_without_a_gradient_is_held_in_vespo_and_dppo() {
    let (old, advantages, weights) = ([-0.9, -1.2, -0.5], [0.7; 3], [1.0; 3]);
    let logp = [-0.8, -1.4, -0.3];
    let moved: Vec<f64> = logp.iter().zip(&old).map(|(now, old)| now - old).collect();
    let sum: f64 = moved.iter().sum();
    let gate = (3.0 + 2.0 * sum - 3.0 * sum.exp()).exp();
    let reply = PolicyReply::new(&logp, &moved, &advantages, &weights);
    let mut slopes = [0.0; 3];
    VespoOptions::default().reply(&reply, &mut slopes);
    assert_close("vespo", &slopes, &[-gate * 0.7; 3], 1e-12);
    DppoOptions::default().reply(&reply, &mut slopes);
    let want: Vec<f64> = moved.iter().map(|moved| -moved.exp() * 0.7).collect();
    assert_close("dppo", &slopes, &want, 1e-12);
}

#[test]
fn a_certain_token_has_a_divergence() {
    for (logp, log_ratio) in [(0.0, 0.5), (-0.5, -0.5), (0.0, 0.0)] {
        let token = PolicyToken { logp, log_ratio, advantage: 1.0 };
        let found = dppo(&token, Divergence::Kl, [0.05, 0.05]);
        assert!(found.term.value.is_finite() && found.term.grad.is_finite(), "{token:?}");
    }
}

#[test]
fn losses_of_mean_log_probs_agree_with_recorded_values_and_their_differences() {
    for (name, loss, beta, margin) in
        [("orpo", PairLoss::Orpo, "coef", "none"), ("simpo", PairLoss::Simpo, "beta", "margin")]
    {
        let case = learning(&format!("preference/{name}"));
        let number = |key: &str| case["params"][key].as_f64();
        let options = PreferenceOptions {
            loss,
            beta: number(beta).unwrap(),
            margin: number(margin).unwrap_or(0.0),
            ..PreferenceOptions::default()
        };
        assert!(!options.needs_reference());
        let [chosen, rejected] = ["chosen", "rejected"]
            .map(|side| numbers(&case["inputs"][format!("mean_logp_{side}")]));
        let pair = |chosen: f64, rejected: f64| {
            preference(&options, &Pair { chosen: (3.0 * chosen, 3), rejected: (5.0 * rejected, 5) })
        };
        let losses: Vec<PreferenceLoss> =
            chosen.iter().zip(&rejected).map(|(&a, &b)| pair(a, b)).collect();
        let all = |of: fn(&PreferenceLoss) -> f64| losses.iter().map(of).collect::<Vec<_>>();
        assert_close(name, &all(|loss| loss.value), &numbers(&case["outputs"]["loss"]), 1e-9);
        // The slope of a token is that of the mean, divided by the number of tokens.
        let slopes = [all(|loss| 3.0 * loss.chosen), all(|loss| 5.0 * loss.rejected)];
        for (slopes, side) in slopes.iter().zip(["chosen", "rejected"]) {
            let wanted = numbers(&case["outputs"][format!("grad_{side}")]);
            assert_close(name, slopes, &wanted, 1e-9);
        }
        for ((&a, &b), loss) in chosen.iter().zip(&rejected).zip(&losses) {
            let by_chosen = central(|x| pair(x, b).value, a);
            let by_rejected = central(|x| pair(a, x).value, b);
            let found = [3.0 * loss.chosen, 5.0 * loss.rejected];
            assert_close(name, &found, &[by_chosen, by_rejected], 1e-5);
        }
    }
}

/// Returns the numbers of the tokens with a use.
fn tokens_with(uses: &[TokenUse], wanted: TokenUse) -> Vec<f64> {
    (0..uses.len()).filter(|&token| uses[token] == wanted).map(|token| token as f64).collect()
}

#[test]
fn tokens_are_selected_by_their_covariance_as_recorded() {
    let case = learning("loss/covariance");
    let [logp, old, advantages] =
        ["logp", "logp_old", "advantages"].map(|key| numbers(&case["inputs"][key]));
    let [share, low, high] =
        ["share", "low", "high"].map(|key| case["params"][key].as_f64().unwrap());
    let tokens = MinibatchTokens { logp: &logp, advantages: &advantages, entropies: &[] };
    let outputs = &case["outputs"];
    let wanted = numbers(&outputs["covariances"]);
    assert_close("covariances", &covariances(&tokens), &wanted, 1e-12);
    let penalized = Selection::KlCov(KlCovOptions { share, coef: 1.0 }).uses(&tokens, |_| 0);
    assert_eq!(tokens_with(&penalized, TokenUse::Penalty), numbers(&outputs["kl_cov"]));
    assert_eq!(outputs["count"], 3);
    // All tokens within the bounds may be dropped. The recorded ones are those whose ratio is not clipped: the surrogate drops the
    // gradient of the others.
    let every = ClipCovOptions { share: 0.99, low, high };
    let dropped = Selection::ClipCov(every).uses(&tokens, |token| token as u64);
    let is_clipped = |token: usize| {
        let log_ratio = logp[token] - old[token];
        clipped_surrogate(log_ratio, advantages[token], (0.2, 0.2, 3.0)).clip.is_some()
    };
    let free = tokens_with(&dropped, TokenUse::Drop);
    let free: Vec<f64> = free.into_iter().filter(|token| !is_clipped(*token as usize)).collect();
    assert_eq!(free, numbers(&outputs["clip_cov_eligible"]));
    // The order chooses among them, and is asked for no other token.
    let some = ClipCovOptions { share, low, high };
    let order = |last: usize| move |token: usize| u64::from(token != last);
    for last in [3, 4, 5, 10] {
        let dropped = Selection::ClipCov(some).uses(&tokens, order(last));
        let dropped = tokens_with(&dropped, TokenUse::Drop);
        assert_eq!(dropped.len(), 3);
        assert!(dropped.contains(&(last as f64)), "{last}: {dropped:?}");
    }
}

#[test]
fn tokens_are_selected_by_their_entropy_as_recorded() {
    let case = learning("loss/top_entropy");
    let entropies = numbers(&case["inputs"]["entropies"]);
    let zeros = vec![0.0; entropies.len()];
    let tokens = MinibatchTokens { logp: &zeros, advantages: &zeros, entropies: &entropies };
    let share = case["params"]["share"].as_f64().unwrap();
    let kept = |share| {
        let uses = Selection::Entropy(TopEntropyOptions { share }).uses(&tokens, |_| 0);
        tokens_with(&uses, TokenUse::Keep)
    };
    assert_eq!(kept(share), numbers(&case["outputs"]["keep"]));
    assert_eq!(kept(1.0).len(), entropies.len());
    assert_eq!(kept(1e-9).len(), 1);
}

#[test]
fn slopes_of_a_penalty_agree_with_central_differences() {
    let (logp, old) = ([-0.8_f32, -1.4, -0.3], [-0.9_f32, -1.2, -0.3]);
    let row = RowTokens {
        logp: &logp,
        entropy: &[0.0; 3],
        old: &old,
        sampler: None,
        reference: None,
        weights: &[0.5, 0.25, 1.0],
        penalties: Some(&[0.7, 0.7, 0.7]),
        share: 1.0,
    };
    let loss = LossOptions { surrogate: SURROGATES[9], ..LossOptions::default() };
    let advantages = [0.3, -0.4, 0.2];
    let slopes_and_loss = |logp: &[f32]| {
        let (mut d_logp, mut d_entropy) = ([0.0; 3], [0.0; 3]);
        let row = RowTokens { logp, ..row };
        let surrogate: (&LossOptions, &dyn Surrogate) = (&loss, &loss.surrogate);
        let found = policy_gradient(&row, &advantages, surrogate, [&mut d_logp, &mut d_entropy]);
        (d_logp.map(f64::from), found.loss)
    };
    let (slopes, _) = slopes_and_loss(&logp);
    for t in 0..2 {
        let moved = |by: f32| {
            let mut now = logp;
            now[t] += by;
            (slopes_and_loss(&now).1, f64::from(now[t]))
        };
        let [(high, above), (low, below)] = [0.01, -0.01].map(moved);
        assert_close("slope", &[slopes[t]], &[(high - low) / (above - below)], 1e-5);
    }
    // At the sampler's log-prob the penalty has no slope.
    assert_close("at 0", &slopes[2..], &[-0.2], 1e-6);
}

#[test]
fn losses_of_labeled_replies_agree_with_recorded_values_and_their_differences() {
    let case = learning("preference/kto");
    let number = |key: &str| case["params"][key].as_f64().unwrap();
    let options = PreferenceOptions {
        loss: PairLoss::Kto,
        beta: number("beta"),
        good_weight: number("good_weight"),
        bad_weight: number("bad_weight"),
        ..PreferenceOptions::default()
    };
    assert!(options.needs_reference());
    let shift = kto_shift(&numbers(&case["inputs"]["mismatched_log_ratios"]));
    assert_close("z0", &[shift], &[case["outputs"]["z0"].as_f64().unwrap()], 1e-12);
    assert_eq!((kto_shift(&[-1.0, 0.5]), kto_shift(&[])), (0.0, 0.0));
    let ratios = numbers(&case["inputs"]["log_ratios"]);
    let good = numbers(&case["inputs"]["good"]);
    let reply = |log_ratio: f64, good: f64| KtoReply { log_ratio, good: good == 1.0 };
    let terms: Vec<Term> = ratios
        .iter()
        .zip(&good)
        .map(|(&ratio, &good)| kto(&options, reply(ratio, good), shift))
        .collect();
    let of = |part: fn(&Term) -> f64| terms.iter().map(part).collect::<Vec<f64>>();
    assert_close("loss", &of(|term| term.value), &numbers(&case["outputs"]["loss"]), 1e-12);
    assert_close("slope", &of(|term| term.grad), &numbers(&case["outputs"]["grad"]), 1e-12);
    let weighted = PreferenceOptions { good_weight: 0.3, bad_weight: 1.7, ..options };
    for (&ratio, &good) in ratios.iter().zip(&good) {
        let found = kto(&weighted, reply(ratio, good), shift).grad;
        let wanted = central(|x| kto(&weighted, reply(x, good), shift).value, ratio);
        assert_close("difference", &[found], &[wanted], 1e-8);
    }
}

/// Returns the log-softmax of logits.
fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = logits.iter().map(|z| (z - most).exp()).sum();
    logits.iter().map(|z| z - most - sum.ln()).collect()
}

/// Returns the numbers of the `k` largest values, the largest first.
fn top(values: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order.truncate(k);
    order
}

/// Returns the divergence at logits, and its derivatives by the log-probs of the support.
fn diverges(
    options: &DistillOptions,
    logits: &[f64],
    teacher: &[f64],
    support: &[usize],
) -> (DistillLoss, Vec<f64>) {
    let [own, other] = [logits, teacher].map(|z| {
        let logp = log_softmax(z);
        support.iter().map(|&id| logp[id] as f32).collect::<Vec<f32>>()
    });
    let mut slopes = vec![0.0; support.len()];
    (teacher_divergence(options, &own, &other, &mut slopes), slopes)
}

/// Returns the options of a recorded case, and the support of one of its tokens.
fn distill_case(case: &Value, logits: &[f64], teacher: &[f64]) -> (DistillOptions, Vec<usize>) {
    let params = &case["params"];
    let divergence = match case["name"].as_str().unwrap().split('/').nth(1).unwrap() {
        "reverse" => TeacherDivergence::Reverse,
        "forward" => TeacherDivergence::Forward,
        _ => TeacherDivergence::Jsd,
    };
    let beta = params["beta"].as_f64().unwrap_or(0.5);
    let options = DistillOptions { divergence, beta, tail: params["tail"] == 1 };
    let k = params["top_k"].as_u64().map_or(logits.len(), |k| k as usize);
    (options, top(if params["support"] == "student" { logits } else { teacher }, k))
}

#[test]
fn divergences_from_a_teacher_agree_with_recorded_values_and_derivatives_of_all_logits() {
    let kinds = ["reverse", "forward", "jsd_0.5", "jsd_0.9"];
    let supports =
        ["all", "teacher_tail", "teacher_renormalised", "student_tail", "student_renormalised"];
    for name in kinds.iter().flat_map(|kind| supports.map(|of| format!("distill/{kind}/{of}"))) {
        let case = learning(&name);
        let [logits, teacher] =
            ["logits", "teacher_logits"].map(|key| matrix(&case["inputs"][key]));
        let wanted = numbers(&case["outputs"]["loss"]);
        for (row, logits) in logits.iter().enumerate() {
            let (options, support) = distill_case(&case, logits, &teacher[row]);
            let (loss, slopes) = diverges(&options, logits, &teacher[row], &support);
            assert_close(&name, &[loss.value], &[wanted[row]], 1e-6);
            // Through the softmax: the slope of a token's own logit, less its share of all slopes.
            let (q, sum) = (log_softmax(logits), slopes.iter().sum::<f64>());
            let mut by_logit: Vec<f64> = q.iter().map(|logp| -logp.exp() * sum).collect();
            support.iter().zip(&slopes).for_each(|(&id, slope)| by_logit[id] += slope);
            assert_close(&name, &by_logit, &matrix(&case["outputs"]["dlogits"])[row], 2e-6);
        }
    }
}

#[test]
fn a_teacher_equal_to_the_policy_has_no_divergence_and_no_derivative_to_the_bit() {
    let logp = [-0.3_f32, -2.0, -3.5];
    for divergence in
        [TeacherDivergence::Reverse, TeacherDivergence::Forward, TeacherDivergence::Jsd]
    {
        for tail in [true, false] {
            let options = DistillOptions { divergence, beta: 0.5, tail };
            let mut slopes = [f64::NAN; 3];
            let loss = teacher_divergence(&options, &logp, &logp, &mut slopes);
            assert!(loss.value.abs() < 1e-15, "{options:?} {loss:?}");
            assert!(slopes.iter().all(|slope| slope.abs() < 1e-15), "{options:?} {slopes:?}");
            if divergence == TeacherDivergence::Reverse {
                assert_eq!((loss.value, slopes), (0.0, [0.0; 3]));
            }
        }
    }
}

#[test]
fn a_divergence_over_part_of_the_vocabulary_is_never_negative_and_keeps_its_derivative() {
    // The policy has less mass on the support than the teacher: terms of the support alone add up to less than 0.
    let (own, other) = ([-2.0_f32, -3.0], [-0.5_f32, -1.5]);
    for divergence in
        [TeacherDivergence::Reverse, TeacherDivergence::Forward, TeacherDivergence::Jsd]
    {
        let options = DistillOptions { divergence, ..DistillOptions::default() };
        let mut slopes = [0.0; 2];
        let loss = teacher_divergence(&options, &own, &other, &mut slopes);
        assert!(loss.value > 0.1 && slopes.iter().all(|slope| *slope < 0.0), "{loss:?} {slopes:?}");
    }
    // A support of almost all mass: the rest is not determined, and nothing is infinite.
    let certain = [-1e-9_f32];
    let mut slopes = [0.0];
    let loss = teacher_divergence(&DistillOptions::default(), &certain, &[-5.0], &mut slopes);
    assert!(loss.value.is_finite() && slopes[0].is_finite(), "{loss:?} {slopes:?}");
}

#[test]
fn observations_have_a_denominator_of_their_own_as_recorded() {
    let case = learning("loss/echo");
    let coef = case["params"]["coef"].as_f64().unwrap();
    let [policy, nll] =
        ["policy_losses", "observation_nll"].map(|key| numbers(&case["inputs"][key]));
    let logp: Vec<f32> = nll.iter().map(|nll| -*nll as f32).collect();
    let weights = vec![(coef / nll.len() as f64) as f32; nll.len()];
    let zeros = vec![0.0; nll.len()];
    let row = RowTokens {
        logp: &logp,
        entropy: &zeros,
        old: &[],
        sampler: None,
        reference: None,
        weights: &weights,
        penalties: None,
        share: 1.0,
    };
    let mut slopes = vec![0.0; nll.len()];
    let found = observation(&row, &mut slopes);
    let of_policy = token_weights(&[policy.len()], Aggregation::TokenMean, 1);
    let of_policy: f64 = of_policy.iter().zip(&policy).map(|(w, l)| f64::from(*w) * l).sum();
    let wanted = case["outputs"]["loss"].as_f64().unwrap();
    assert_close("loss", &[of_policy + found.loss], &[wanted], 1e-6);
    assert_eq!((found.observed, found.tokens, found.surrogate), (nll.len() as u64, 0, 0.0));
    assert!(slopes.iter().zip(&weights).all(|(slope, weight)| *slope == -weight));
}
