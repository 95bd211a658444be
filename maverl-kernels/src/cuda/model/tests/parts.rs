//! Operations of parts that only some families have.

use super::*;
use crate::cuda::{Gains, TurnedHeads};
use crate::rope::RopeTable;
use crate::{mlp, rope};

fn to_f64(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn f32s(bits: &[u32]) -> Vec<f32> {
    bits.iter().map(|&x| f32::from_bits(x)).collect()
}

/// Forward pass, and gradients of `Σ dy y`, of a norm in f64.
fn norm_in_f64(x: &[f64], gains: &[f64], eps: f64, dy: &[f64]) -> [Vec<f64>; 3] {
    let d = gains.len();
    let (mut y, mut dx, mut dw) = (Vec::new(), Vec::new(), vec![0.0; d]);
    for (x, dy) in x.chunks(d).zip(dy.chunks(d)) {
        let r = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / d as f64 + eps).sqrt();
        let dot = (0..d).map(|i| dy[i] * gains[i] * x[i]).sum::<f64>() / d as f64;
        y.extend((0..d).map(|i| gains[i] * x[i] * r));
        dx.extend((0..d).map(|i| r * (dy[i] * gains[i] - x[i] * r * r * dot)));
        (0..d).for_each(|i| dw[i] += dy[i] * x[i] * r);
    }
    [y, dx, dw]
}

pub(super) fn norms_of_other_gains_and_rows_agree_with_f64<M: Tested>(kernels: &Kernels<M>) {
    let eps = 1e-6;
    for (n, d, one_plus) in [(3, 17, true), (70, 64, false), (67, 65, true), (2, 2056, true)] {
        let (x, dy) = (random(1, n * d), random_bf16(2, n * d));
        let (w, narrow, before) = (random_bf16(3, d), random_bf16(4, n * d), random(5, n * d));
        let run = |kernels: &Kernels<M>| {
            let [on_x, on_before] = [&x, &before].map(|x| kernels.array_of(x).unwrap());
            let [w, dy, act] = [&w, &dy, &narrow].map(|x| kernels.array_of(x).unwrap());
            let of = Gains { w: w.as_slice(), one_plus, eps };
            let (x, onto, dy, act) =
                (on_x.as_slice(), on_before.as_slice(), dy.as_slice(), act.as_slice());
            let [mut a, mut b, mut c, mut e] =
                [(); 4].map(|()| kernels.new_array::<u16>(n * d).unwrap());
            let [mut wide, mut added] = [&before; 2].map(|x| kernels.array_of(x).unwrap());
            let [mut dw, mut dw_act, mut dw_onto] =
                [(); 3].map(|()| kernels.array_of(&vec![0.5_f32; d]).unwrap());
            kernels.norm_stream(x, of, a.slice_mut()).unwrap();
            kernels.norm_act(act, of, b.slice_mut()).unwrap();
            kernels.norm_onto(onto, act, of, wide.slice_mut()).unwrap();
            let to = (true, added.slice_mut());
            kernels.norm_stream_back(x, of, dy, to, Some(dw.slice_mut())).unwrap();
            let to = c.slice_mut();
            kernels.norm_act_back(act, of, dy, to, Some(dw_act.slice_mut())).unwrap();
            let (to, dw) = (e.slice_mut(), Some(dw_onto.slice_mut()));
            kernels.norm_onto_back(act, of, x, to, dw).unwrap();
            let halves = [&a, &b, &c, &e].map(|array| kernels.read_array(array).unwrap());
            let sums = [&wide, &added, &dw_act, &dw_onto];
            (halves, sums.map(|array| bits(&kernels.read_array(array).unwrap())))
        };
        let ([a, b, c, e], [wide_sum, added, dw_act, dw_onto]) = in_every_order(kernels, run);
        let one = if one_plus { 1.0 } else { 0.0 };
        let gains: Vec<f64> = wide(&w).iter().map(|w| w + one).collect();
        let name = format!("{n} rows of {d}");
        let of_stream = norm_in_f64(&to_f64(&x), &gains, f64::from(eps), &wide(&dy));
        let of_act = norm_in_f64(&wide(&narrow), &gains, f64::from(eps), &wide(&dy));
        let of_sum = norm_in_f64(&wide(&narrow), &gains, f64::from(eps), &to_f64(&x));
        let on_top = |with: &[f64]| -> Vec<f64> {
            before.iter().zip(with).map(|(&b, x)| f64::from(b) + x).collect()
        };
        near_bf16(&name, &a, &of_stream[0]);
        near_bf16(&name, &b, &of_act[0]);
        near_bf16(&name, &c, &of_act[1]);
        near_bf16(&name, &e, &of_sum[1]);
        near(&name, &f32s(&wide_sum), &on_top(&of_sum[0]), 1e-6);
        near(&name, &f32s(&added), &on_top(&of_stream[1]), 1e-6);
        for (got, want) in [(dw_act, &of_act[2]), (dw_onto, &of_sum[2])] {
            let want: Vec<f64> = want.iter().map(|dw| dw + 0.5).collect();
            near(&name, &f32s(&got), &want, 2e-6);
        }
    }
}

pub(super) fn heads_turned_in_part_agree_with_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    // Heads, width, rotated elements, tokens; with a norm of `1 + w` or `w`, or without one.
    let cases = [
        (2, 32, 0, 9, Some(false)),
        (3, 64, 16, 17, Some(true)),
        (2, 96, 72, 5, None),
        (1, 128, 128, 33, Some(true)),
        (2, 256, 64, 19, Some(true)),
        (1, 256, 256, 35, None),
    ];
    for (heads, d, rotated, n, norm) in cases {
        let frequencies: Vec<f32> =
            (0..rotated / 2).map(|i| 1e4_f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
        let table = RopeTable::new(&frequencies, 300).with_head_dim(d);
        let positions: Vec<u32> = (0..n).map(|i| (i * 37 % 250) as u32).collect();
        let (x, w, dx) =
            (random_bf16(1, n * heads * d), random_bf16(2, d), random_bf16(3, n * heads * d));
        let run = |kernels: &Kernels<M>| {
            let tables = kernels.rope_tables(&table, 300).unwrap();
            let at = kernels.upload_positions(&positions).unwrap();
            let (mut y, mut g) = (kernels.array_of(&x).unwrap(), kernels.array_of(&dx).unwrap());
            let (mut raw, w) = (kernels.new_array(x.len()).unwrap(), kernels.array_of(&w).unwrap());
            let mut dw = kernels.array_of(&vec![0.0; d]).unwrap();
            let turned = || TurnedHeads {
                heads,
                dim: d,
                norm: norm.map(|one_plus| Gains { w: w.as_slice(), one_plus, eps: 1e-6 }),
                tables: (rotated > 0).then_some(&tables),
            };
            kernels.turn_heads(y.slice_mut(), turned(), &at, Some(raw.slice_mut())).unwrap();
            let (to, given, sums) = (g.slice_mut(), Some(raw.as_slice()), Some(dw.slice_mut()));
            kernels.turn_heads_back(to, turned(), &at, given, sums).unwrap();
            let halves = [&y, &raw, &g].map(|array| kernels.read_array(array).unwrap());
            (halves, bits(&kernels.read_array(&dw).unwrap()))
        };
        let ([y, raw, g], dw) = in_every_order(kernels, run);
        assert_eq!(raw, x);
        let (mut want_y, mut want_dx) = (from_bf16(&x), from_bf16(&dx));
        if rotated > 0 {
            rope::rope_bwd(&mut want_dx, &positions, heads, &table);
        }
        let mut want_dw = vec![0.0; d];
        if let Some(one_plus) = norm {
            let one = if one_plus { 1.0 } else { 0.0 };
            let gains: Vec<f64> = wide(&w).iter().map(|w| w + one).collect();
            let [y, dx, dw] = norm_in_f64(&wide(&x), &gains, 1e-6, &to_f64(&want_dx));
            let narrow = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect();
            (want_y, want_dx, want_dw) = (narrow(y), narrow(dx), dw);
        }
        if rotated > 0 {
            rope::apply_rope(&mut want_y, &positions, heads, &table);
        }
        let name = format!("{n} tokens of {heads} heads of {d}, {rotated} rotated, norm {norm:?}");
        near_bf16(&name, &y, &to_f64(&want_y));
        near_bf16(&name, &g, &to_f64(&want_dx));
        near(&name, &f32s(&dw), &want_dw, 2e-6);
    }
}

pub(super) fn gates_and_columns_agree_with_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for n in [1, 7, 65, 2100] {
        let [a, b, d] = [1, 2, 3].map(|seed| random_bf16(seed, n));
        let run = |kernels: &Kernels<M>| {
            let [a, b, d] = [&a, &b, &d].map(|x| kernels.array_of(x).unwrap());
            let [ga, gb, gd] = [a.as_slice(), b.as_slice(), d.as_slice()];
            let mut to = [(); 8].map(|()| kernels.new_array::<u16>(n).unwrap());
            let [act, dgate, dup, gated, dx, dsigmoid, product, silu] = &mut to;
            kernels.geglu([ga, gb], act.slice_mut()).unwrap();
            kernels.geglu_back([ga, gb, gd], [dgate.slice_mut(), dup.slice_mut()]).unwrap();
            kernels.apply_gate([ga, gb], gated.slice_mut()).unwrap();
            let both = [dx.slice_mut(), dsigmoid.slice_mut()];
            kernels.apply_gate_back([ga, gb, gd], both).unwrap();
            kernels.multiply([ga, gb], product.slice_mut()).unwrap();
            kernels.silu(ga, silu.slice_mut()).unwrap();
            let mut back = kernels.array_of(&kernels.read_array(&d).unwrap()).unwrap();
            kernels.silu_back(ga, back.slice_mut()).unwrap();
            let mut all = to.map(|x| kernels.read_array(&x).unwrap()).to_vec();
            all.push(kernels.read_array(&back).unwrap());
            all
        };
        let got = in_every_order(kernels, run);
        let (x, y, z) = (from_bf16(&a), from_bf16(&b), from_bf16(&d));
        let [mut act, mut dgate, mut dup] = [(); 3].map(|()| vec![0.0; n]);
        mlp::geglu(&x, &y, &mut act);
        mlp::geglu_bwd(&x, &y, &z, &mut dgate, &mut dup);
        let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        let of = |f: &dyn Fn(f64, f64, f64, f64, f64) -> f64| -> Vec<f64> {
            let all = (0..n).map(|i| {
                let (sa, sb) = (sigmoid(x[i]), sigmoid(y[i]));
                f(f64::from(x[i]), f64::from(y[i]), f64::from(z[i]), sa, sb)
            });
            all.collect()
        };
        let want = [
            to_f64(&act),
            to_f64(&dgate),
            to_f64(&dup),
            of(&|a, _, _, _, sb| a * sb),
            of(&|_, _, d, _, sb| d * sb),
            of(&|a, _, d, _, sb| d * a * sb * (1.0 - sb)),
            of(&|a, b, _, _, _| a * b),
            of(&|a, _, _, sa, _| a * sa),
            of(&|a, _, d, sa, _| d * sa * (1.0 + a * (1.0 - sa))),
        ];
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            near_bf16(&format!("{at} of {n}"), got, want);
        }
    }
    let x = random_bf16(1, 5 * 24);
    let on = kernels.array_of(&x).unwrap();
    let mut part = kernels.new_array::<u16>(5 * 7).unwrap();
    kernels.copy_columns(7, (on.as_slice(), 24, 9), (part.slice_mut(), 7, 0)).unwrap();
    let want: Vec<u16> = x.chunks(24).flat_map(|row| row[9..16].to_vec()).collect();
    assert_eq!(kernels.read_array(&part).unwrap(), want);
    let mut whole = kernels.array_of(&x).unwrap();
    kernels.copy_columns(7, (part.as_slice(), 7, 0), (whole.slice_mut(), 24, 9)).unwrap();
    assert_eq!(kernels.read_array(&whole).unwrap(), x);
}
