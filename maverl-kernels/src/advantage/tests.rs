#![allow(clippy::unwrap_used)]

mod golden;

use proptest::prelude::*;

use super::*;

const REFERENCE: Relative = Relative {
    baseline: Baseline::Mean,
    normalize_std: true,
    eps: 1e-6,
    singleton: Singleton::Raw,
};

fn group_relative(
    values: &[f64],
    unit: &[usize],
    group: &[usize],
    options: &Relative,
) -> (Vec<f64>, Vec<Moments>) {
    relative_advantages(values, &Grouping::from_units(unit, group), None, options)
}

/// Advantage of the better of two rows, 1 and 0, by the reference implementation.
#[expect(clippy::approx_constant, reason = "printed by the reference: 1/√2 less its epsilon")]
const PAIR: f64 = 0.707106;

#[track_caller]
fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 1e-6, "{got}, not {want}");
    }
}

/// The golden batch of spec/drmas.md §4, computed by the reference implementation: three episodes of a solver S and a
/// verifier V on one prompt. t0: S 1, V 1; t1: S 0, V −0.1, S 0; t2: S 1, V 1, S 1.
const VALUES: [f64; 8] = [1.0, 1.0, 0.0, -0.1, 0.0, 1.0, 1.0, 1.0];
const EPISODE: [usize; 8] = [0, 0, 1, 1, 1, 2, 2, 2];
const SEAT: [usize; 8] = [0, 1, 0, 1, 0, 0, 1, 0];
const ROW: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn grpo_is_unit_episode_and_group_task() {
    let (got, stats) = group_relative(&VALUES, &EPISODE, &[0; 8], &REFERENCE);
    let (up, down) = (0.577349, -1.154699);
    close(&got, &[up, up, down, down, down, up, up, up]);
    assert_eq!(stats[0].n, 3.0);
}

#[test]
fn dr_mas_is_unit_row_and_group_task_and_seat() {
    let (got, stats) = group_relative(&VALUES, &ROW, &SEAT, &REFERENCE);
    close(
        &got,
        &[0.730295, 0.577349, -1.095443, -1.154699, -1.095443, 0.730295, 0.577349, 0.730295],
    );
    assert_eq!((stats[0].n, stats[1].n), (5.0, 3.0));
}

#[test]
fn without_std_only_the_mean_goes() {
    let opt = Relative { normalize_std: false, ..REFERENCE };
    let (got, _) = group_relative(&VALUES, &ROW, &SEAT, &opt);
    let (third, low) = (1.1 / 3.0, -2.2 / 3.0);
    close(&got, &[0.4, third, -0.6, low, -0.6, 0.4, third, 0.4]);
}

#[test]
fn a_singleton_is_raw_or_zero() {
    let (got, stats) = group_relative(&[1.0], &[0], &[0], &REFERENCE);
    close(&got, &[0.999999]);
    assert_eq!(stats, [Moments { n: 1.0, mean: 1.0, m2: 0.0 }]);
    let zero = Relative { singleton: Singleton::Zero, ..REFERENCE };
    close(&group_relative(&[1.0], &[0], &[0], &zero).0, &[0.0]);
}

#[test]
fn a_duplicated_row_is_another_unit() {
    close(&group_relative(&[1.0, 1.0], &[0, 1], &[0, 0], &REFERENCE).0, &[0.0, 0.0]);
    close(&group_relative(&[1.0, 0.0], &[0, 1], &[0, 0], &REFERENCE).0, &[PAIR, -PAIR]);
    let padded = group_relative(&[1.0, 0.0, 0.0], &[0, 1, 2], &[0; 3], &REFERENCE).0;
    close(&padded, &[1.154698, -0.577349, -0.577349]);
}

#[test]
fn ids_may_have_gaps() {
    let (got, stats) = group_relative(&[1.0, 0.0], &[7, 3], &[2, 2], &REFERENCE);
    close(&got, &[PAIR, -PAIR]);
    assert_eq!(stats[0], Moments::default());
    assert_eq!(group_relative(&[], &[], &[], &REFERENCE), (vec![], vec![]));
}

#[test]
#[should_panic(expected = "unit 0 lies in groups 0 and 1")]
fn a_unit_in_two_groups_is_refused() {
    group_relative(&[1.0, 0.0], &[0, 0], &[0, 1], &REFERENCE);
}

proptest! {
    #[test]
    fn permuting_rows_permutes_advantages(
        rows in prop::collection::vec((0u8..5, 0usize..12), 1..40),
        turn in 0usize..40,
    ) {
        // Unit u lies in group u mod 3; values are small integers, so sums are exact in every order.
        let split = |rows: &[(u8, usize)]| {
            let values: Vec<f64> = rows.iter().map(|r| f64::from(r.0)).collect();
            let unit: Vec<usize> = rows.iter().map(|r| r.1).collect();
            let group: Vec<usize> = unit.iter().map(|u| u % 3).collect();
            group_relative(&values, &unit, &group, &REFERENCE).0
        };
        let mut permuted = rows.clone();
        permuted.rotate_left(turn % rows.len());
        permuted.reverse();
        let mut want = split(&rows);
        want.rotate_left(turn % rows.len());
        want.reverse();
        prop_assert_eq!(split(&permuted), want);
    }

    #[test]
    fn adding_a_constant_changes_nothing(
        values in prop::collection::vec(-5.0f64..5.0, 2..30),
        constant in -10.0f64..10.0,
    ) {
        let unit: Vec<usize> = (0..values.len()).collect();
        let group: Vec<usize> = unit.iter().map(|u| u % 2).collect();
        let opt = Relative { singleton: Singleton::Zero, ..REFERENCE };
        let shifted: Vec<f64> = values.iter().map(|v| v + constant).collect();
        let (a, _) = group_relative(&values, &unit, &group, &opt);
        let (b, _) = group_relative(&shifted, &unit, &group, &opt);
        for (a, b) in a.iter().zip(&b) {
            prop_assert!((a - b).abs() < 1e-6);
        }
    }

    #[test]
    fn a_group_is_centered(values in prop::collection::vec(-5.0f64..5.0, 2..30)) {
        let unit: Vec<usize> = (0..values.len()).collect();
        let (a, _) = group_relative(&values, &unit, &vec![0; values.len()], &REFERENCE);
        prop_assert!(a.iter().sum::<f64>().abs() < 1e-6);
    }
}
