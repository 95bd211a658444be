//! What every implementation of `Estimate` is held to: reference values, and the CPU.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "cuda")]
pub(crate) mod parity;

use std::fmt::Debug;

use serde_json::Value;

use super::*;
use crate::advantage::{Baseline, GaeParams, GroupRelative, Singleton, group_relative};
use crate::sample::uniform;
use crate::testing::{random, threads};

const DR_MAS: Relative = Relative {
    baseline: Baseline::Mean,
    normalize_std: true,
    eps: 1e-6,
    singleton: Singleton::Raw,
};

const TRL: Relative = Relative { eps: 1e-4, singleton: Singleton::Zero, ..DR_MAS };

#[track_caller]
fn close(name: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= 1e-5 * want.abs().max(1.0), "{name}, row {i}: {got}, not {want}");
    }
}

/// A case of `tests/fixtures/rl_math.json`.
fn rl_math(name: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/rl_math.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let all: Value = serde_json::from_str(&text).unwrap();
    let case = all["cases"].as_array().unwrap().iter().find(|case| case["name"] == name).cloned();
    case.unwrap_or_else(|| panic!("no case {name}"))
}

/// The rows of a matrix; a row that has one is a list.
fn matrix(value: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| match row.as_array() {
        Some(row) => row.iter().map(|x| x.as_f64().unwrap_or(f64::NAN)).collect(),
        None => vec![row.as_f64().unwrap_or(f64::NAN)],
    };
    value.as_array().unwrap().iter().map(row).collect()
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

/// Every reference value.
pub(crate) fn golden<E: Estimate<Error: Debug>>(of: &E) {
    groups_agree_with_the_reference(of);
    step_groups_agree_with_the_reference(of);
    averages_agree_with_the_reference(of);
    groups_agree_with_trl(of);
    scans_agree_with_the_references(of);
    whitening_agrees_with_trl(of);
}

/// The golden batch of Dr. MAS: a solver (0) and a verifier (1) in three episodes on one prompt.
fn groups_agree_with_the_reference<E: Estimate<Error: Debug>>(of: &E) {
    let rewards = [1.0, 1.0, 0.0, -0.1, 0.0, 1.0, 1.0, 1.0];
    let (episode, seat) = ([0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 0, 1, 0, 0, 1, 0]);
    let by_seat = Grouping::rows(&seat);
    let by_task = Grouping::units(&episode, &[0; 8]);
    let (up, down) = (0.577349, -1.154699);
    let want = [up, up, down, down, down, up, up, up];
    close("GRPO", &of.relative(&rewards, &by_task, &DR_MAS).unwrap(), &want);
    let want = [0.730295, 0.577349, -1.095443, -1.154699, -1.095443, 0.730295, 0.577349, 0.730295];
    close("Dr. MAS", &of.relative(&rewards, &by_seat, &DR_MAS).unwrap(), &want);
    let plain = Relative { normalize_std: false, ..DR_MAS };
    let want = [0.4, 0.366667, -0.6, -0.733333, -0.6, 0.4, 0.366667, 0.4];
    close("Dr. MAS, mean", &of.relative(&rewards, &by_seat, &plain).unwrap(), &want);
    let others = Relative { baseline: Baseline::LeaveOneOut, ..plain };
    let want = [0.5, 0.55, -0.75, -1.1, -0.75, 0.5, 0.55, 0.5];
    close("RLOO by seat", &of.relative(&rewards, &by_seat, &others).unwrap(), &want);

    // Row 1 is the verifier's in a solved episode.
    let apart = |mean, deviation| of.relative_apart(&rewards, mean, deviation, &DR_MAS).unwrap()[1];
    let got = [apart(&by_seat, &by_task), apart(&by_task, &by_seat)];
    close("four baselines", &got, &[0.614598, 0.542358]);
    let got = of.moments(&rewards, &Segments::of(&seat)).unwrap();
    assert_eq!((got[0].n, got[1].n), (5.0, 3.0));
    assert!((got[1].std() - 0.635085).abs() < 1e-5);

    let alone = Grouping::rows(&[0]);
    close("one, raw", &of.relative(&[1.0], &alone, &DR_MAS).unwrap(), &[0.999999]);
    close("one", &of.relative(&[1.0], &alone, &TRL).unwrap(), &[0.0]);
    let equal = of.relative(&[0.1; 7], &Grouping::rows(&[0; 7]), &DR_MAS).unwrap();
    assert_eq!(equal, [0.0; 7], "all equal");
    let no_scale =
        of.relative_apart(&[0.1; 7], &Grouping::rows(&[0; 7]), &Grouping::rows(&[0; 7]), &TRL);
    assert_eq!(no_scale.unwrap(), [0.0; 7], "all equal, apart");
    assert_eq!(of.relative(&[], &Grouping::rows(&[]), &TRL).unwrap(), [0.0; 0]);
}

/// Steps of a are 1, 1, 2 with a reward at 2; of b 1, 2, 3 without any. The reference counts the first step once.
fn step_groups_agree_with_the_reference<E: Estimate<Error: Debug>>(of: &E) {
    let rewards = [0.0, 1.0, 0.0, 0.0, 0.0];
    let (episodes, anchors) = (RaggedRows::rows(&[2, 3]), Segments::of(&[0, 1, 0, 1, 2]));
    let steps = Steps { episodes: &episodes, gamma: 0.95, anchors: &anchors, weight: 2.0 };
    let plain = Relative { normalize_std: false, ..TRL };
    let got = of.step_groups(&[0.5, 0.5, -0.5, -0.5, -0.5], &rewards, &steps, &plain).unwrap();
    close("GiGPO", &got, &[0.5 + 0.95, 0.5 + 1.0, -0.5 - 0.95, -0.5 - 1.0, -0.5]);
}

fn averages_agree_with_the_reference<E: Estimate<Error: Debug>>(of: &E) {
    let mut averages = [0.0, 0.0, 7.0];
    let got = of.ema(&[1.0, 0.0, 2.0], &Segments::of(&[0, 0, 1]), 0.9, &mut averages).unwrap();
    close("EMA", &got, &[1.0, 0.0, 2.0]);
    close("EMA", &of.ema(&[1.0], &Segments::of(&[1]), 0.9, &mut averages).unwrap(), &[0.8]);
    close("EMA", &narrow(&averages), &[0.05, 0.28, 7.0]);
}

fn groups_agree_with_trl<E: Estimate<Error: Debug>>(of: &E) {
    for (name, grouped) in [("group", true), ("batch", false), ("none", true), ("binary", true)] {
        let name = format!("grpo_advantages/{name}");
        let case = rl_math(&name);
        let (params, rewards) = (&case["params"], matrix(&case["inputs"]["rewards_per_func"]));
        let weight = matrix(&params["reward_weights"])[0][0];
        let rewards: Vec<f32> = rewards.iter().map(|row| (weight * row[0]) as f32).collect();
        let size = params["num_generations"].as_u64().unwrap() as usize;
        let mean = Grouping::rows(&(0..rewards.len()).map(|i| i / size).collect::<Vec<_>>());
        let options = Relative { normalize_std: params["scale_rewards"] != "none", ..TRL };
        let got = if grouped {
            of.relative(&rewards, &mean, &options)
        } else {
            of.relative_apart(&rewards, &mean, &Grouping::rows(&vec![0; rewards.len()]), &options)
        };
        close(&name, &got.unwrap(), &matrix(&case["outputs"]["advantages"]).concat());
    }
    let case = rl_math("rloo_advantages/plain");
    let rewards = narrow(&matrix(&case["inputs"]["rewards_per_func"]).concat());
    let by = Grouping::rows(&(0..rewards.len()).map(|i| i / 4).collect::<Vec<_>>());
    let options = Relative { baseline: Baseline::LeaveOneOut, normalize_std: false, ..TRL };
    let want = matrix(&case["outputs"]["advantages"]).concat();
    close("rloo_advantages/plain", &of.relative(&rewards, &by, &options).unwrap(), &want);
}

fn scans_agree_with_the_references<E: Estimate<Error: Debug>>(of: &E) {
    let hop = GaeParams { gamma: 0.99, lambda: 0.95 };
    let values = [0.1, 0.2, 0.3, 0.4];
    let want = [0.77329, 0.718012, 0.6603, 0.6];
    for chain in [vec![1; 4], vec![2, 2]] {
        let places = RaggedRows::chains(&[chain]);
        let got =
            of.gae(&[0.0, 0.0, 0.0, 1.0], &values, &[0.0], &places, GaeSteps::all(hop)).unwrap();
        close("marl.md 8.3", &got.0, &want);
    }
    for (gamma, lambda) in [("0.99", "0.95"), ("1.0", "1.0"), ("0.95", "0.0")] {
        let name = format!("gae/gamma={gamma},lam={lambda}");
        let case = rl_math(&name);
        let mask = matrix(&case["inputs"]["mask"]);
        let kept = |values: &Value| -> Vec<f64> {
            let rows = matrix(values).concat().into_iter().zip(mask.concat());
            rows.filter(|(_, mask)| *mask > 0.0).map(|(x, _)| x).collect()
        };
        let of_input = |key: &str| narrow(&kept(&case["inputs"][key]));
        let lengths: Vec<usize> = mask.iter().map(|row| row.iter().sum::<f64>() as usize).collect();
        let hop = GaeParams { gamma: gamma.parse().unwrap(), lambda: lambda.parse().unwrap() };
        let (rewards, values) = (of_input("rewards"), of_input("values"));
        let (places, after) = (RaggedRows::rows(&lengths), vec![0.0; lengths.len()]);
        let got = of.gae(&rewards, &values, &after, &places, GaeSteps::all(hop)).unwrap();
        close(&name, &got.0, &kept(&case["outputs"]["advantages"]));
        close(&name, &got.1, &kept(&case["outputs"]["returns"]));
    }
}

fn whitening_agrees_with_trl<E: Estimate<Error: Debug>>(of: &E) {
    let name = "masked_whiten/shift_mean=true";
    let case = rl_math(name);
    let mask = matrix(&case["inputs"]["mask"]).concat();
    // What is masked may hold anything.
    let values = matrix(&case["inputs"]["values"]).concat();
    let values: Vec<f32> = values
        .iter()
        .zip(&mask)
        .map(|(&x, &m)| if m > 0.0 { x as f32 } else { f32::NAN })
        .collect();
    let tokens: Vec<u32> = mask.iter().map(|&m| m as u32).collect();
    let kept = |all: Vec<f64>| -> Vec<f64> {
        all.into_iter().zip(&mask).filter(|(_, m)| **m > 0.0).map(|(x, _)| x).collect()
    };
    let got = of.whiten(&values, &tokens, &Segments::one(values.len())).unwrap();
    let got = kept(got.into_iter().map(f64::from).collect());
    close(name, &narrow(&got), &kept(matrix(&case["outputs"]["whitened"]).concat()));
}

/// Numbers below `most`.
fn ids(seed: u64, n: usize, most: usize) -> Vec<usize> {
    (0..n as u64).map(|i| (uniform(seed, i) * most as f64) as usize).collect()
}

#[test]
fn the_cpu_agrees_with_the_references() {
    golden(&Cpu);
}

#[test]
fn arrays_of_f32_give_what_ids_as_they_come_give() {
    let (values, group) = (random(7, 2000), ids(8, 2000, 300));
    let unit: Vec<usize> = (0..2000).map(|row| group[row] * 2000 + row / 7).collect();
    let wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    let options = GroupRelative::default();
    let (want, stats) = group_relative(&wide, &unit, &group, &options);
    let got = Cpu.relative(&values, &Grouping::units(&unit, &group), &DR_MAS).unwrap();
    close("units", &got, &want);
    let got = Cpu.relative(
        &wide.iter().map(|&x| x as f32).collect::<Vec<_>>(),
        &Grouping::rows(&group),
        &DR_MAS,
    );
    let rows: Vec<usize> = (0..2000).collect();
    close("rows", &got.unwrap(), &group_relative(&wide, &rows, &group, &options).0);
    assert_eq!(stats.len(), 300);
}

#[test]
fn a_large_offset_costs_nothing() {
    // The deviation is a millionth of the mean; equal values have none, wherever pieces end.
    let values: Vec<f32> = (0..3000).map(|i| 1024.0 + f32::from(i % 2 == 0) / 1024.0).collect();
    let got = Cpu.moments(&values, &Segments::one(3000)).unwrap()[0];
    let want = 0.5 / 1024.0 * (3000.0_f64 / 2999.0).sqrt();
    assert!((got.std() / want - 1.0).abs() < 1e-9, "{} and {want}", got.std());
    assert_eq!(Cpu.moments(&[0.1; 3000], &Segments::one(3000)).unwrap()[0].m2, 0.0);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let n = 100_000;
    let (values, group) = (random(9, n), ids(10, n, 20));
    let places = RaggedRows::rows(&vec![100; n / 100]);
    let all = |of: usize| {
        threads(of, || {
            let by = Grouping::rows(&group);
            let hops = GaeSteps::all(GaeParams { gamma: 0.99, lambda: 0.95 });
            let relative = Cpu.relative(&values, &by, &TRL).unwrap();
            let whitened = Cpu.whiten(&values, &vec![3; n], &Segments::one(n)).unwrap();
            let scan = Cpu.gae(&values, &values, &vec![0.0; n / 100], &places, hops).unwrap();
            [relative, whitened, scan.0, scan.1]
                .map(|x| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        })
    };
    let one = all(1);
    assert!([2, 3, 7].into_iter().all(|threads| all(threads) == one));
}

#[test]
fn a_group_does_not_know_of_the_others() {
    let (values, group) = (random(11, 3000), ids(12, 3000, 4));
    let options = Relative { normalize_std: true, ..TRL };
    let together = Cpu.relative(&values, &Grouping::rows(&group), &options).unwrap();
    let rows: Vec<usize> = (0..3000).filter(|&row| group[row] == 2).collect();
    let own: Vec<f32> = rows.iter().map(|&row| values[row]).collect();
    let alone = Cpu.relative(&own, &Grouping::rows(&vec![0; own.len()]), &options).unwrap();
    let of_together: Vec<f32> = rows.iter().map(|&row| together[row]).collect();
    crate::testing::same_bits(&alone, &of_together);
}

#[test]
#[should_panic(expected = "unit 0 lies in groups 0 and 1")]
fn a_unit_of_two_groups_is_refused() {
    Grouping::units(&[0, 0], &[0, 1]);
}

#[test]
#[should_panic(expected = "ema: one average per seat")]
fn a_seat_without_an_average_is_refused() {
    let Ok(_) = Cpu.ema(&[1.0], &Segments::of(&[1]), 0.9, &mut [0.0]);
}
