//! Batches of every form, by another implementation and by the CPU.

use super::*;

#[track_caller]
fn agree(name: &str, got: &[f64], want: &[f64]) {
    let size = want.iter().fold(1.0_f64, |size, x| size.max(x.abs()));
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs() / size;
        assert!(error <= 1e-6, "{name}, row {i}: {got}, not {want}");
    }
}

/// Batches of every form, against the reference.
pub fn agrees_with_the_cpu(of: &dyn Arithmetic) {
    // One row; many small groups in order and not; groups of one piece and of several, with gaps between ids.
    for (seed, n, most) in [(1, 1, 1), (2, 300, 60), (3, 300, 1), (4, 1800, 3), (5, 1537, 1)] {
        for sorted in [true, false] {
            groups(of, seed, n, most, sorted);
        }
    }
    scans(of);
    edges(of);
    // More pieces than a block has threads.
    let n = 300_000;
    moments(of, "600 pieces", &numbers(6, n), &Segments::single_group(n));
}

fn groups(of: &dyn Arithmetic, seed: u64, n: usize, most: usize, sorted: bool) {
    let name = format!("{n} rows, {most} groups, sorted {sorted}");
    let (values, mut group) = (numbers(seed, n), ids(seed + 10, n, most));
    if sorted {
        group.sort_unstable();
    }
    let by = Grouping::from_row_groups(&group);
    // Two rows a unit, about; a unit lies in one group.
    let unit: Vec<usize> = (0..n).map(|row| group[row] * n + row / 5).collect();
    let by_units = Grouping::from_units(&unit, &group);
    let all = Grouping::from_row_groups(&vec![0; n]);
    for baseline in [Baseline::None, Baseline::Mean, Baseline::LeaveOneOut, Baseline::SecondBest] {
        for options in [
            Relative { baseline, ..DR_MAS },
            Relative { baseline, ..TRL },
            Relative { baseline, normalize_std: false, ..TRL },
        ] {
            let name = format!("{name}, {options:?}");
            for by in [&by, &by_units] {
                relative(of, &name, (&values, by, None), &options);
            }
            for (mean, deviation) in [(&by, &all), (&by_units, &by), (&all, &by_units)] {
                relative(of, &name, (&values, mean, Some(deviation)), &options);
            }
        }
    }
    for by in [&by, &by_units, &all] {
        let (got, want) =
            (of.unit_values(&values, by).unwrap(), CpuArithmetic.unit_values(&values, by).unwrap());
        agree(&name, &got.0, &want.0);
        same_moments(&name, &got.1, &want.1);
    }
    let by = Segments::from_groups(&group);
    let tokens: Vec<u32> = ids(seed + 20, n, 4).iter().map(|&t| t as u32).collect();
    let got = of.whiten_groups(&values, &tokens, &by).unwrap();
    agree(&name, &got, &CpuArithmetic.whiten_groups(&values, &tokens, &by).unwrap());
    let [mut a, mut b] = [vec![0.5; most + 1], vec![0.5; most + 1]];
    let got = of.subtract_average(&values, &by, 0.9, &mut a).unwrap();
    agree(&name, &got, &CpuArithmetic.subtract_average(&values, &by, 0.9, &mut b).unwrap());
    agree(&name, &a, &b);
    moments(of, &name, &values, &by);
}

/// Compares advantages, and the moments of the groups.
fn relative(
    of: &dyn Arithmetic,
    name: &str,
    (values, by, deviation): (&[f64], &Grouping, Option<&Grouping>),
    options: &Relative,
) {
    let got = of.relative_advantages(values, by, deviation, options).unwrap();
    let want = CpuArithmetic.relative_advantages(values, by, deviation, options).unwrap();
    agree(name, &got.0, &want.0);
    same_moments(name, &got.1, &want.1);
}

fn moments(of: &dyn Arithmetic, name: &str, values: &[f64], by: &Segments) {
    same_moments(
        name,
        &of.group_moments(values, by).unwrap(),
        &CpuArithmetic.group_moments(values, by).unwrap(),
    );
}

fn same_moments(name: &str, got: &[Moments], want: &[Moments]) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.n, want.n, "{name}");
        assert!((got.mean - want.mean).abs() < 1e-12, "{name}: {got:?}, not {want:?}");
        assert!((got.std() - want.std()).abs() < 1e-9, "{name}: {got:?}, not {want:?}");
    }
}

fn scans(of: &dyn Arithmetic) {
    // Rows of every length around a tile of 128, none included.
    let lengths = [0, 1, 3, 4, 127, 128, 129, 0, 300, 513, 31, 256];
    let n = lengths.iter().sum();
    let (rewards, values, after) = (numbers(31, n), numbers(32, n), numbers(33, lengths.len()));
    let chains = lengths.map(|n| vec![n / 3, 0, n - n / 3]);
    let hops =
        [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0)].map(|(gamma, lambda)| GaeParams { gamma, lambda });
    for (within, between) in [(hops[0], hops[1]), (hops[1], hops[2]), (hops[2], hops[0])] {
        for places in [RaggedRows::from_lengths(&lengths), RaggedRows::from_chains(&chains)] {
            let hops = GaeSteps { within, between };
            let got = of.gae_advantages(&rewards, &values, &after, &places, hops).unwrap();
            let want =
                CpuArithmetic.gae_advantages(&rewards, &values, &after, &places, hops).unwrap();
            agree("advantages", &got.0, &want.0);
            agree("returns", &got.1, &want.1);
        }
        let places = RaggedRows::from_lengths(&lengths);
        let got = of.discounted_returns(&rewards, &places, within.gamma).unwrap();
        agree(
            "returns",
            &got,
            &CpuArithmetic.discounted_returns(&rewards, &places, within.gamma).unwrap(),
        );
        let anchors = Segments::from_groups(&ids(34, n, 40));
        let steps = GigpoSteps { episodes: &places, gamma: 0.95, anchors: &anchors, weight: 0.5 };
        let got = of.step_groups(&values, &rewards, &steps, &TRL).unwrap();
        agree(
            "step groups",
            &got,
            &CpuArithmetic.step_groups(&values, &rewards, &steps, &TRL).unwrap(),
        );
    }
}

/// Groups without spread, of one row and of none; weights of 0; seats without a row.
fn edges(of: &dyn Arithmetic) {
    let [seven, one, none] = [7, 1, 0].map(|n| Grouping::from_row_groups(&vec![0; n]));
    let second = Relative { baseline: Baseline::SecondBest, ..TRL };
    for options in [DR_MAS, TRL, second, Relative { eps: 0.0, ..DR_MAS }] {
        for deviation in [None, Some(&seven)] {
            let (equal, _) =
                of.relative_advantages(&[0.1; 7], &seven, deviation, &options).unwrap();
            assert_eq!(equal, [0.0; 7], "{options:?}");
        }
        relative(of, "one", (&[1.0], &one, None), &options);
        assert_eq!(of.relative_advantages(&[], &none, None, &options).unwrap().0, [0.0; 0]);
    }
    let by = Segments::single_group(5);
    let (values, tokens) = ([0.5, f64::NAN, -1.0, 2.0, f64::NAN], [2, 0, 1, 3, 0]);
    let kept = |all: Vec<f64>| [all[0], all[2], all[3]];
    let got = kept(of.whiten_groups(&values, &tokens, &by).unwrap());
    agree("masked", &got, &kept(CpuArithmetic.whiten_groups(&values, &tokens, &by).unwrap()));
    let mut averages = [0.0, 0.0, 7.0];
    let got = of
        .subtract_average(&[1.0, 0.0, 2.0], &Segments::from_groups(&[0, 0, 1]), 0.9, &mut averages)
        .unwrap();
    agree("average", &got, &[1.0, 0.0, 2.0]);
    agree("average", &averages, &[0.05, 0.2, 7.0]);
}
