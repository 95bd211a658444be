use super::*;
use crate::adamw::{AdamW, adamw_step, sum_of_squares};
use crate::cuda::{HeadNorm, Master};
use crate::rope::RopeTable;
use crate::{embedding, mlp, norm, rope};

const WIDTHS: [usize; 7] = [1, 7, 17, 63, 65, 128, 2056];

/// Forward pass, and gradients of `Σ dy y`, of the norm in f64.
fn norm_in_f64(x: &[f64], w: &[f64], eps: f64, dy: &[f64]) -> [Vec<f64>; 3] {
    let d = w.len();
    let (mut y, mut dx, mut dw) = (Vec::new(), Vec::new(), vec![0.0; d]);
    for (x, dy) in x.chunks(d).zip(dy.chunks(d)) {
        let r = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / d as f64 + eps).sqrt();
        let dot = (0..d).map(|i| dy[i] * w[i] * x[i]).sum::<f64>() / d as f64;
        y.extend((0..d).map(|i| w[i] * x[i] * r));
        dx.extend((0..d).map(|i| r * (dy[i] * w[i] - x[i] * r * r * dot)));
        (0..d).for_each(|i| dw[i] += dy[i] * x[i] * r);
    }
    [y, dx, dw]
}

fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub(super) fn the_norm_and_its_gradients_agree_with_f64_and_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    let eps = 1e-6;
    for d in WIDTHS {
        for n in if d > 1000 { vec![2] } else { vec![1, 3, 70] } {
            let (x, w, dy) = (random(1, n * d), random_bf16(2, d), random_bf16(3, n * d));
            let before = random(4, n * d);
            let run = |kernels: &Kernels<M>| {
                let (x, w, dy) = (
                    kernels.array_of(&x).unwrap(),
                    kernels.array_of(&w).unwrap(),
                    kernels.array_of(&dy).unwrap(),
                );
                let mut y = kernels.new_array(n * d).unwrap();
                let (mut dx, mut added) =
                    (kernels.new_array(n * d).unwrap(), kernels.array_of(&before).unwrap());
                let (mut again, mut dw) =
                    (kernels.new_array(n * d).unwrap(), kernels.array_of(&vec![0.5; d]).unwrap());
                let (x, w, dy) = (x.as_slice(), w.as_slice(), dy.as_slice());
                kernels.rms_norm(x, w, eps, y.slice_mut()).unwrap();
                let out = dx.slice_mut();
                kernels.rms_norm_back(x, w, eps, dy, false, out, None, None).unwrap();
                let (out, again_out) = (added.slice_mut(), Some(again.slice_mut()));
                let dw_out = Some(dw.slice_mut());
                kernels.rms_norm_back(x, w, eps, dy, true, out, again_out, dw_out).unwrap();
                let f32s =
                    [&dx, &added, &dw].map(|array| bits(&kernels.read_array(array).unwrap()));
                let halves = [&y, &again].map(|array| kernels.read_array(array).unwrap());
                (f32s, halves)
            };
            let ([dx, added, dw], [y, again]) = in_every_order(kernels, run);
            let [dx, added, dw] =
                [dx, added, dw].map(|x| x.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
            let [want_y, want_dx, want_dw] =
                norm_in_f64(&to_f64(&x), &wide(&w), f64::from(eps), &wide(&dy));
            let name = format!("{n} rows of {d}");
            near_bf16(&name, &y, &want_y);
            // One number has a gradient of almost zero, the difference of two equal ones.
            if d > 1 {
                near(&name, &dx, &want_dx, 1e-6);
            }
            let sums: Vec<f64> = want_dw.iter().map(|dw| dw + 0.5).collect();
            near(&name, &dw, &sums, 1e-6);
            let on_top: Vec<f64> =
                before.iter().zip(&want_dx).map(|(&b, d)| f64::from(b) + d).collect();
            near(&name, &added, &on_top, 1e-6);
            if d <= 2048 {
                near_bf16(&name, &again, &want_y);
            }
            let (weights, mut cpu) = (from_bf16(&w), vec![0.0; n * d]);
            norm::rms_norm(&x, &weights, eps, &mut cpu);
            near_bf16(&name, &y, &to_f64(&cpu));
        }
    }
}

pub(super) fn a_row_has_the_same_norm_alone_and_in_a_batch<M: Tested>(kernels: &Kernels<M>) {
    for d in [64, 65, 2056] {
        let (x, w) = (random(1, 9 * d), kernels.array_of(&random_bf16(2, d)).unwrap());
        let of = |x: &[f32]| {
            let (x, mut y) = (kernels.array_of(x).unwrap(), kernels.new_array(x.len()).unwrap());
            kernels.rms_norm(x.as_slice(), w.as_slice(), 1e-6, y.slice_mut()).unwrap();
            kernels.read_array(&y).unwrap()
        };
        let all = of(&x);
        for (row, want) in x.chunks(d).zip(all.chunks(d)) {
            assert_eq!(of(row), want);
        }
    }
}

pub(super) fn rope_and_its_gradients_agree_with_f64_and_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for (heads, d, n) in [(1, 32, 1), (2, 64, 17), (3, 128, 63), (7, 32, 65)] {
        let frequencies: Vec<f32> =
            (0..d / 2).map(|i| 1e4_f32.powf(-2.0 * i as f32 / d as f32)).collect();
        let table = RopeTable::new(&frequencies, 300);
        let positions: Vec<u32> = (0..n).map(|i| (i * 37 % 250) as u32).collect();
        let (x, w, dx) =
            (random_bf16(1, n * heads * d), random_bf16(2, d), random_bf16(3, n * heads * d));
        for with_norm in [false, true] {
            let run = |kernels: &Kernels<M>| {
                let tables = kernels.rope_tables(&table, 300).unwrap();
                let at = kernels.upload_positions(&positions).unwrap();
                let mut y = kernels.array_of(&x).unwrap();
                let mut raw = kernels.new_array(x.len()).unwrap();
                let (mut g, w) = (kernels.array_of(&dx).unwrap(), kernels.array_of(&w).unwrap());
                let mut dw = kernels.array_of(&vec![0.0; d]).unwrap();
                let norm = with_norm.then(|| HeadNorm { w: w.as_slice(), eps: 1e-6 });
                let copy = Some(raw.slice_mut());
                kernels.apply_rope(y.slice_mut(), heads, &at, &tables, norm, copy).unwrap();
                let with = norm.map(|norm| (norm, raw.as_slice()));
                let out = Some(dw.slice_mut());
                kernels.rope_back(g.slice_mut(), heads, &at, &tables, with, out).unwrap();
                let halves = [&y, &raw, &g].map(|array| kernels.read_array(array).unwrap());
                (halves, bits(&kernels.read_array(&dw).unwrap()))
            };
            let ([y, raw, g], dw) = in_every_order(kernels, run);
            assert_eq!(raw, x);
            let mut cpu = from_bf16(&x);
            let (mut back, weights) = (from_bf16(&dx), from_bf16(&w));
            rope::rope_bwd(&mut back, &positions, heads, &table);
            let (mut want_dx, mut want_dw) = (back.clone(), vec![0.0; d]);
            if with_norm {
                let x = cpu.clone();
                norm::rms_norm(&x, &weights, 1e-6, &mut cpu);
                let [_, dx, dw] = norm_in_f64(&to_f64(&x), &wide(&w), 1e-6, &to_f64(&back));
                (want_dx, want_dw) = (dx.iter().map(|&x| x as f32).collect(), dw);
            }
            rope::apply_rope(&mut cpu, &positions, heads, &table);
            let name = format!("{n} tokens of {heads} heads of {d}, norm {with_norm}");
            near_bf16(&name, &y, &to_f64(&cpu));
            near_bf16(&name, &g, &to_f64(&want_dx));
            let dw: Vec<f32> = dw.into_iter().map(f32::from_bits).collect();
            near(&name, &dw, &want_dw, 2e-6);
        }
    }
}

pub(super) fn swiglu_and_its_gradients_agree_with_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for n in [1, 7, 17, 63, 65, 2100] {
        let [g, u, dact] = [1, 2, 3].map(|seed| random_bf16(seed, n));
        let run = |kernels: &Kernels<M>| {
            let [g, u, dact] = [&g, &u, &dact].map(|x| kernels.array_of(x).unwrap());
            let [mut act, mut again, mut dg, mut du] =
                [0; 4].map(|_| kernels.new_array::<u16>(n).unwrap());
            kernels.swiglu(g.as_slice(), u.as_slice(), act.slice_mut()).unwrap();
            let d = [dg.slice_mut(), du.slice_mut()];
            let given = [g.as_slice(), u.as_slice(), dact.as_slice()];
            kernels.swiglu_back(given, d, Some(again.slice_mut())).unwrap();
            [&act, &again, &dg, &du].map(|array| kernels.read_array(array).unwrap())
        };
        let [act, again, dg, du] = in_every_order(kernels, run);
        let [g, u, dact] = [&g, &u, &dact].map(|x| from_bf16(x));
        let [mut want, mut want_dg, mut want_du] = [0; 3].map(|_| vec![0.0; n]);
        mlp::swiglu(&g, &u, &mut want);
        mlp::swiglu_bwd(&g, &u, &dact, &mut want_dg, &mut want_du);
        assert_eq!(act, again);
        for (got, want) in [(&act, want), (&dg, want_dg), (&du, want_du)] {
            near_bf16(&format!("{n} elements"), got, &to_f64(&want));
        }
    }
}

pub(super) fn rows_of_a_table_are_copied_and_their_gradients_added_in_the_order_of_tokens<
    M: Tested,
>(
    kernels: &Kernels<M>,
) {
    // The last has an id of two pieces and one of three.
    for (n, vocab, d) in [(1, 1, 1), (7, 3, 17), (65, 9, 63), (63, 50, 128), (2400, 3, 8)] {
        let ids: Vec<u32> = (0..n)
            .map(|i| if n > 1000 { u32::from(i % 5 > 1) } else { (i * i % vocab) as u32 })
            .collect();
        let (table, dx, before) =
            (random_bf16(1, vocab * d), random(2, n * d), random(3, vocab * d));
        let run = |kernels: &Kernels<M>| {
            let layout = kernels.embedding_layout(&ids).unwrap();
            let (table, dx) = (kernels.array_of(&table).unwrap(), kernels.array_of(&dx).unwrap());
            let mut x = kernels.new_array(n * d).unwrap();
            let mut dtable = kernels.array_of(&before).unwrap();
            kernels.gather_rows(table.as_slice(), &layout, d, x.slice_mut()).unwrap();
            kernels.scatter_add(dx.as_slice(), &layout, d, dtable.slice_mut()).unwrap();
            [&x, &dtable].map(|array| bits(&kernels.read_array(array).unwrap()))
        };
        let [x, dtable] = in_every_order(kernels, run);
        let (table, mut want) = (from_bf16(&table), vec![0.0; n * d]);
        embedding::gather_rows(&table, &ids, d, &mut want);
        assert_eq!(x, bits(&want));
        let mut sums = to_f64(&before);
        for (&id, dx) in ids.iter().zip(dx.chunks(d)) {
            (0..d).for_each(|c| sums[id as usize * d + c] += f64::from(dx[c]));
        }
        let dtable: Vec<f32> = dtable.into_iter().map(f32::from_bits).collect();
        near(&format!("{n} tokens of {vocab}"), &dtable, &sums, 1e-6);
        let mut cpu = before.clone();
        embedding::scatter_add(&dx, &ids, d, &mut cpu);
        near("by the cpu", &dtable, &to_f64(&cpu), 1e-6);
    }
}

pub(super) fn adamw_on_a_master_in_two_halves_has_the_bits_of_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    let cfg = AdamW { lr: 3e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
    for n in [1, 7, 300] {
        let run = |kernels: &Kernels<M>| {
            let (mut p, mut m, mut v) = (random(1, n), vec![0.0; n], vec![0.0; n]);
            let halves = |p: &[f32], half: usize| -> Vec<u16> {
                p.iter().map(|&p| Master::split_weight(p)[half]).collect()
            };
            let mut high = kernels.array_of(&halves(&p, 0)).unwrap();
            let mut low = kernels.array_of(&halves(&p, 1)).unwrap();
            let mut on = [&m, &v].map(|x| kernels.array_of(x).unwrap());
            for step in 1..=3 {
                let grad = random(step + 10, n);
                let mut sums = kernels.array_of(&grad).unwrap();
                let master = Master { high: high.slice_mut(), low: low.slice_mut() };
                let [of_m, of_v] = &mut on;
                let moments = [of_m.slice_mut(), of_v.slice_mut()];
                kernels.adamw_step(&cfg, step, 0.7, master, sums.slice_mut(), moments).unwrap();
                adamw_step(&cfg, step, 0.7, &mut p, &grad, &mut m, &mut v);
                assert_eq!(bits(&kernels.read_array(&sums).unwrap()), vec![0; n]);
            }
            let [high, low] = [&high, &low].map(|half| kernels.read_array(half).unwrap());
            let joined: Vec<f32> = high
                .iter()
                .zip(&low)
                .map(|(&high, &low)| Master::join_weight([high, low]))
                .collect();
            assert_eq!(bits(&joined), bits(&p));
            for (on, want) in on.iter().zip([&m, &v]) {
                assert_eq!(bits(&kernels.read_array(on).unwrap()), bits(want));
            }
        };
        in_every_order(kernels, run);
    }
}

#[test]
fn a_split_weight_joins_to_the_same_bits_and_its_high_half_is_the_nearest() {
    for seed in 0..2000 {
        let bits = crate::sample::derive_seed(seed, 5) as u32;
        let x = f32::from_bits(bits);
        if !x.is_finite() || x.abs() > 3.38e38 {
            continue;
        }
        let [high, low] = Master::split_weight(x);
        assert_eq!(Master::join_weight([high, low]).to_bits(), bits);
        let rounded = f32::from_bits(u32::from(high) << 16);
        assert!((f64::from(rounded) - f64::from(x)).abs() <= f64::from(x).abs() / 256.0 + 1e-38);
    }
}

pub(super) fn sums_in_order_have_the_bits_of_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for (count, n) in [(2, 64), (3, 1028), (4, 8), (1, 4)] {
        let arrays: Vec<Vec<f32>> = (0..count).map(|i| random(i as u64 + 5, n)).collect();
        let mut want = arrays[0].clone();
        for array in &arrays[1..] {
            want.iter_mut().zip(array).for_each(|(sum, x)| *sum += x);
        }
        for own in 0..count {
            let others: Vec<f32> =
                (0..count).filter(|&at| at != own).flat_map(|at| arrays[at].clone()).collect();
            let sums = in_every_order(kernels, |kernels: &Kernels<M>| {
                let mut sum = kernels.array_of(&arrays[own]).unwrap();
                let mut others = kernels.array_of(&others).unwrap();
                kernels.sum_in_order(sum.slice_mut(), own, others.slice_mut()).unwrap();
                bits(&kernels.read_array(&sum).unwrap())
            });
            assert_eq!(sums, bits(&want), "{own} of {count}");
        }
    }
}

pub(super) fn sums_over_arrays_agree_with_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for n in [1, 63, 4097, 70_000] {
        let (x, y) = (random(1, n), random(2, n));
        let run = |kernels: &Kernels<M>| {
            let (x, mut y) = (kernels.array_of(&x).unwrap(), kernels.array_of(&y).unwrap());
            let sum = kernels.sum_of_squares(x.as_slice()).unwrap();
            kernels.axpy(0.3, x.as_slice(), y.slice_mut()).unwrap();
            let mut rounded = kernels.new_array(n).unwrap();
            kernels.round_to_bf16(x.as_slice(), rounded.slice_mut()).unwrap();
            (
                sum.to_bits(),
                bits(&kernels.read_array(&y).unwrap()),
                kernels.read_array(&rounded).unwrap(),
            )
        };
        let (sum, axpy, rounded) = match n {
            70_000 => run(kernels),
            _ => in_every_order(kernels, run),
        };
        let want = sum_of_squares(&x);
        assert!((f64::from_bits(sum) - want).abs() <= 1e-12 * want);
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| y + 0.3 * x).collect();
        assert_eq!(axpy, bits(&want));
        assert_eq!(rounded, to_bf16(&x));
    }
    for (n, d) in [(1, 7), (65, 17), (5000, 3)] {
        let x = random_bf16(3, n * d);
        let run = |kernels: &Kernels<M>| {
            let (on, mut sums) =
                (kernels.array_of(&x).unwrap(), kernels.array_of(&vec![1.0; d]).unwrap());
            kernels.sum_rows(on.as_slice(), sums.slice_mut()).unwrap();
            bits(&kernels.read_array(&sums).unwrap())
        };
        let sums = if n > 1000 { run(kernels) } else { in_every_order(kernels, run) };
        let x = wide(&x);
        let want: Vec<f64> =
            (0..d).map(|c| 1.0 + (0..n).map(|r| x[r * d + c]).sum::<f64>()).collect();
        let sums: Vec<f32> = sums.into_iter().map(f32::from_bits).collect();
        near(&format!("{n} rows of {d}"), &sums, &want, 1e-6);
    }
}
