//! Properties of the CPU, and batches on which other implementations of `Arithmetic` are compared with it.
#![allow(clippy::unwrap_used)]
#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "tests have more than the checks")
)]

#[cfg(feature = "cuda")]
pub mod parity;

use super::*;
use crate::advantage::{Baseline, GaeParams, Singleton};
use crate::sample::uniform_number;
use crate::testing::random;
#[cfg(test)]
use crate::testing::threads;

const DR_MAS: Relative = Relative {
    baseline: Baseline::Mean,
    normalize_std: true,
    eps: 1e-6,
    singleton: Singleton::Raw,
};

const TRL: Relative = Relative { eps: 1e-4, singleton: Singleton::Zero, ..DR_MAS };

/// Numbers that f32 holds.
fn numbers(seed: u64, n: usize) -> Vec<f64> {
    random(seed, n).into_iter().map(f64::from).collect()
}

/// Numbers below `most`.
fn ids(seed: u64, n: usize, most: usize) -> Vec<usize> {
    (0..n as u64).map(|i| (uniform_number(seed, i) * most as f64) as usize).collect()
}

#[test]
fn a_large_offset_costs_nothing() {
    // The deviation is a millionth of the mean; equal values have none, wherever pieces end.
    let values: Vec<f64> = (0..3000).map(|i| 1024.0 + f64::from(i % 2 == 0) / 1024.0).collect();
    let got = CpuArithmetic.group_moments(&values, &Segments::single_group(3000)).unwrap()[0];
    let want = 0.5 / 1024.0 * (3000.0_f64 / 2999.0).sqrt();
    assert!((got.std() / want - 1.0).abs() < 1e-9, "{} and {want}", got.std());
    let equal = [f64::from(0.1_f32); 3000];
    assert_eq!(
        CpuArithmetic.group_moments(&equal, &Segments::single_group(3000)).unwrap()[0].m2,
        0.0
    );
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let n = 100_000;
    let (values, group) = (numbers(9, n), ids(10, n, 20));
    let places = RaggedRows::from_lengths(&vec![100; n / 100]);
    let all = |of: usize| {
        threads(of, || {
            let by = Grouping::from_row_groups(&group);
            let hops = GaeSteps::all(GaeParams { gamma: 0.99, lambda: 0.95 });
            let (relative, _) =
                CpuArithmetic.relative_advantages(&values, &by, None, &TRL).unwrap();
            let whitened = CpuArithmetic
                .whiten_groups(&values, &vec![3; n], &Segments::single_group(n))
                .unwrap();
            let scan = CpuArithmetic
                .gae_advantages(&values, &values, &vec![0.0; n / 100], &places, hops)
                .unwrap();
            [relative, whitened, scan.0, scan.1]
                .map(|x| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        })
    };
    let one = all(1);
    assert!([2, 3, 7].into_iter().all(|threads| all(threads) == one));
}

#[test]
fn a_group_does_not_know_of_the_others() {
    let (values, group) = (numbers(11, 3000), ids(12, 3000, 4));
    let options = Relative { normalize_std: true, ..TRL };
    let (together, _) = CpuArithmetic
        .relative_advantages(&values, &Grouping::from_row_groups(&group), None, &options)
        .unwrap();
    let rows: Vec<usize> = (0..3000).filter(|&row| group[row] == 2).collect();
    let own: Vec<f64> = rows.iter().map(|&row| values[row]).collect();
    let all = Grouping::from_row_groups(&vec![0; own.len()]);
    let (alone, _) = CpuArithmetic.relative_advantages(&own, &all, None, &options).unwrap();
    let bits = |x: &f64| x.to_bits();
    assert!(alone.iter().map(bits).eq(rows.iter().map(|&row| bits(&together[row]))));
}

#[test]
#[should_panic(expected = "unit 0 lies in groups 0 and 1")]
fn a_unit_of_two_groups_is_refused() {
    Grouping::from_units(&[0, 0], &[0, 1]);
}

#[test]
#[should_panic(expected = "ema: one average per seat")]
fn a_seat_without_an_average_is_refused() {
    CpuArithmetic.subtract_average(&[1.0], &Segments::from_groups(&[1]), 0.9, &mut [0.0]).unwrap();
}
