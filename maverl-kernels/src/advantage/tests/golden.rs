//! Reference values of the papers and of TRL, for the one implementation.
#![allow(clippy::approx_constant)] // values of the reference, as it prints them

#[path = "../../../../tests/fixtures/rl_math.rs"]
mod rl_math;

use serde_json::Value;

use super::*;
use rl_math::{assert_close, matrix, rl_math};

const TRL: Relative = Relative { eps: 1e-4, singleton: Singleton::Zero, ..REFERENCE };

/// The golden batch of Dr. MAS, of which the tests above have GRPO and Dr. MAS themselves.
#[test]
fn leave_one_out_and_the_four_baselines_agree_with_the_reference() {
    let by_seat = Grouping::from_row_groups(&SEAT);
    let by_task = Grouping::from_units(&EPISODE, &[0; 8]);
    let plain = Relative { normalize_std: false, ..REFERENCE };
    let others = Relative { baseline: Baseline::LeaveOneOut, ..plain };
    let want = [0.5, 0.55, -0.75, -1.1, -0.75, 0.5, 0.55, 0.5];
    assert_close(
        "RLOO by seat",
        &relative_advantages(&VALUES, &by_seat, None, &others).0,
        &want,
        1e-6,
    );
    // Row 1 is the verifier's in a solved episode.
    let apart =
        |mean, deviation| relative_advantages(&VALUES, mean, Some(deviation), &REFERENCE).0[1];
    let got = [apart(&by_seat, &by_task), apart(&by_task, &by_seat)];
    assert_close("four baselines", &got, &[0.614598, 0.542358], 1e-6);
    let got = group_moments(&VALUES, &Segments::from_groups(&SEAT));
    assert_close("deviation", &[got[1].std()], &[0.635085], 1e-6);
}

#[test]
fn only_the_best_has_an_advantage_over_the_second_best() {
    let by = Grouping::from_units(&[0, 0, 1, 2, 3], &[0, 0, 0, 0, 1]);
    let options = Relative { baseline: Baseline::SecondBest, normalize_std: false, ..TRL };
    let of = |values: &[f64]| relative_advantages(values, &by, None, &options).0;
    assert_eq!(of(&[3.0, 3.0, 1.0, 2.0, 7.0]), [1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(of(&[2.0, 2.0, 1.0, 2.0, 7.0]), [0.0; 5]);
    assert_eq!(of(&[-1.0, -1.0, -2.0, -5.0, 7.0])[0], 1.0);
}

/// Steps of trajectory a are 1, 1, 2 with a reward at 2; of b 1, 2, 3 without any.
#[test]
fn returns_compared_among_equal_steps_agree_with_the_reference() {
    let discounted = |rewards: &[f64]| {
        discounted_returns(rewards, &RaggedRows::from_lengths(&[rewards.len()]), 0.95)
    };
    let [a, b] = [[0.0, 1.0].as_slice(), &[0.0; 3]].map(discounted);
    let gains = [a[0], a[0], a[1], b[0], b[1], b[2]];
    let step = Grouping::from_row_groups(&[0, 0, 1, 0, 1, 2]);
    let episode = Grouping::from_units(&[0, 0, 0, 1, 1, 1], &[0; 6]);
    let scores = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0];
    for (normalize_std, want) in [
        (false, [0.816667, 0.816667, 1.0, -1.133333, -1.0, -0.5]),
        (true, [1.284455, 1.284455, 1.414212, -1.861804, -1.414212, -0.707106]),
    ] {
        let options = Relative { normalize_std, eps: 1e-6, ..TRL };
        let whole = relative_advantages(&scores, &episode, None, &options).0;
        let parts = relative_advantages(&gains, &step, None, &options).0;
        let sums: Vec<f64> = whole.iter().zip(parts).map(|(whole, part)| whole + part).collect();
        assert_close("GiGPO", &sums, &want, 1e-6);
    }
}

#[test]
fn averages_of_seats_move_after_their_advantages() {
    let mut averages = [0.0, 0.0, 7.0];
    let got =
        subtract_average(&[1.0, 0.0, 2.0], &Segments::from_groups(&[0, 0, 1]), 0.9, &mut averages);
    assert_close("ema", &got, &[1.0, 0.0, 2.0], 1e-12);
    assert_close(
        "ema",
        &subtract_average(&[1.0], &Segments::from_groups(&[1]), 0.9, &mut averages),
        &[0.8],
        1e-12,
    );
    assert_close("ema", &averages, &[0.05, 0.28, 7.0], 1e-12);
}

#[test]
fn group_advantages_agree_with_trl() {
    for (name, grouped) in [("group", true), ("batch", false), ("none", true), ("binary", true)] {
        let name = format!("grpo_advantages/{name}");
        let case = rl_math(&name);
        let (params, rewards) = (&case["params"], matrix(&case["inputs"]["rewards_per_func"]));
        let weight = matrix(&params["reward_weights"])[0][0];
        let rewards: Vec<f64> = rewards.iter().map(|row| weight * row[0]).collect();
        let size = params["num_generations"].as_u64().unwrap() as usize;
        let mean =
            Grouping::from_row_groups(&(0..rewards.len()).map(|i| i / size).collect::<Vec<_>>());
        let whole = Grouping::from_row_groups(&vec![0; rewards.len()]);
        let options = Relative { normalize_std: params["scale_rewards"] != "none", ..TRL };
        let (got, _) = relative_advantages(&rewards, &mean, (!grouped).then_some(&whole), &options);
        assert_close(&name, &got, &matrix(&case["outputs"]["advantages"]).concat(), 1e-9);
    }
    let case = rl_math("rloo_advantages/plain");
    let rewards = matrix(&case["inputs"]["rewards_per_func"]).concat();
    let by = Grouping::from_row_groups(&(0..rewards.len()).map(|i| i / 4).collect::<Vec<_>>());
    let options = Relative { baseline: Baseline::LeaveOneOut, normalize_std: false, ..TRL };
    let want = matrix(&case["outputs"]["advantages"]).concat();
    assert_close(
        "rloo_advantages/plain",
        &relative_advantages(&rewards, &by, None, &options).0,
        &want,
        1e-9,
    );
}

#[test]
fn scans_agree_with_trl() {
    for (gamma, lambda) in [("0.99", "0.95"), ("1.0", "1.0"), ("0.95", "0.0")] {
        let name = format!("gae/gamma={gamma},lam={lambda}");
        let case = rl_math(&name);
        let mask = matrix(&case["inputs"]["mask"]);
        let kept = |values: &Value| -> Vec<f64> {
            let rows = matrix(values).concat().into_iter().zip(mask.concat());
            rows.filter(|(_, mask)| *mask > 0.0).map(|(x, _)| x).collect()
        };
        let of = |key: &str| kept(&case["inputs"][key]);
        let lengths: Vec<usize> = mask.iter().map(|row| row.iter().sum::<f64>() as usize).collect();
        let steps = GaeSteps::all(GaeParams {
            gamma: gamma.parse().unwrap(),
            lambda: lambda.parse().unwrap(),
        });
        let (places, after) = (RaggedRows::from_lengths(&lengths), vec![0.0; lengths.len()]);
        let got = gae_advantages(&of("rewards"), &of("values"), &after, &places, steps);
        assert_close(&name, &got.0, &kept(&case["outputs"]["advantages"]), 1e-9);
        assert_close(&name, &got.1, &kept(&case["outputs"]["returns"]), 1e-9);
    }
}

#[test]
fn chained_advantages_agree_with_the_reference() {
    let (rewards, values) = ([0.0, 0.0, 0.0, 1.0], [0.1, 0.2, 0.3, 0.4]);
    let of = |chain: &[usize], gamma, lambda| {
        let steps = GaeSteps::all(GaeParams { gamma, lambda });
        gae_advantages(&rewards, &values, &[0.0], &RaggedRows::from_chains(&[chain]), steps)
    };
    let want = [0.77329, 0.718012, 0.6603, 0.6];
    assert_close("actions", &of(&[1; 4], 0.99, 0.95).0, &want, 1e-6);
    assert_close("tokens", &of(&[2, 2], 0.99, 0.95).0, &want, 1e-6);
    let (tokens, gains) = of(&[2, 2], 1.0, 1.0);
    assert_close("undiscounted", &tokens, &[0.9, 0.8, 0.7, 0.6], 1e-12);
    // Without discount, an advantage and its value are what is still to be earned.
    assert_close("sum of a chain", &gains, &[1.0; 4], 1e-12);
}

#[test]
fn a_chain_of_one_reply_is_plain_gae() {
    let (rewards, values) = ([0.1, -0.2, 1.0], [0.3, 0.1, -0.4]);
    let within = GaeParams { gamma: 0.9, lambda: 0.8 };
    let steps = GaeSteps { within, between: GaeParams { gamma: 0.5, lambda: 0.5 } };
    let of = |places: &RaggedRows| gae_advantages(&rewards, &values, &[0.0], places, steps).0;
    assert_eq!(of(&RaggedRows::from_chains(&[[3]])), of(&RaggedRows::from_lengths(&[3])));
    let row = RaggedRows::from_lengths(&[2]);
    let steps = GaeSteps::all(GaeParams { gamma: 1.0, lambda: 0.95 });
    let (_, gains) = gae_advantages(&[0.0, 1.0], &[0.1, 0.2], &[0.0], &row, steps);
    assert_close("a row of Dr. MAS", &gains, &[0.96, 1.0], 1e-12);
}

#[test]
fn whitening_agrees_with_trl() {
    let name = "masked_whiten/shift_mean=true";
    let case = rl_math(name);
    let mask = matrix(&case["inputs"]["mask"]).concat();
    // What is masked may hold anything.
    let values = matrix(&case["inputs"]["values"]).concat().into_iter().zip(&mask);
    let values: Vec<f64> = values.map(|(x, &m)| if m > 0.0 { x } else { f64::NAN }).collect();
    let tokens: Vec<u32> = mask.iter().map(|&m| m as u32).collect();
    let kept = |all: Vec<f64>| -> Vec<f64> {
        all.into_iter().zip(&mask).filter(|(_, m)| **m > 0.0).map(|(x, _)| x).collect()
    };
    let got = kept(whiten_groups(&values, &tokens, &Segments::single_group(values.len())));
    assert_close(name, &got, &kept(matrix(&case["outputs"]["whitened"]).concat()), 1e-9);
}

#[test]
fn a_row_of_many_tokens_is_whitened_like_as_many_rows() {
    let rows = whiten_groups(&[1.0, -2.0, 0.5], &[2, 1, 3], &Segments::single_group(3));
    let tokens =
        whiten_groups(&[1.0, 1.0, -2.0, 0.5, 0.5, 0.5], &[1; 6], &Segments::single_group(6));
    assert_close("whiten", &rows, &[tokens[0], tokens[2], tokens[3]], 1e-12);
}
