//! Linear maps on the CPU, with the correction of an adapter.

use std::borrow::Cow;

use maverl_kernels::bias;
use maverl_kernels::matmul::{Matmul, Precision};
use maverl_kernels::sample::{derive_seed, uniform_number};
use rayon::prelude::*;

use crate::net::gradients::Gradients;
use crate::net::linear::{Dropout, Linear, Lora};
use crate::net::ops::{Cpu, Done, LinearOps};
use crate::net::pool::Pool;

impl LinearOps for Cpu {
    fn linear(&self, x: &Vec<f32>, map: &Linear<Self>, pool: &mut Pool) -> Done<Vec<f32>> {
        Ok(project(map, x, self.precision, pool))
    }

    fn linears<const N: usize>(
        &self,
        x: &Vec<f32>,
        maps: [&Linear<Self>; N],
        pool: &mut Pool,
    ) -> Done<[Vec<f32>; N]> {
        Ok(project_each(maps, x, self.precision, pool))
    }

    fn linear_onto(
        &self,
        onto: &Vec<f32>,
        x: &Vec<f32>,
        map: &Linear<Self>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut y = pool.copy(onto);
        forward(map, x, &mut y, self.precision.add(), pool);
        Ok(y)
    }

    fn linear_back(
        &self,
        x: &Vec<f32>,
        maps: &[(&Linear<Self>, &Vec<f32>)],
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        let mut dx = pool.take(x.len());
        for (index, (map, dy)) in maps.iter().enumerate() {
            let products = if index == 0 { self.precision.set() } else { self.precision.add() };
            backward(map, [x, dy], &mut dx, products, sums, pool);
        }
        Ok(dx)
    }

    fn linear_onto_back(
        &self,
        x: &Vec<f32>,
        map: &Linear<Self>,
        dy: &Vec<f32>,
        sums: &mut Gradients<'_>,
        pool: &mut Pool,
    ) -> Done<Vec<f32>> {
        self.linear_back(x, &[(map, dy)], sums, pool)
    }
}

/// Computes `y [N, O]` in a buffer of the pool, for `x [N, I]`.
pub(crate) fn project(
    map: &Linear<Cpu>,
    x: &[f32],
    precision: Precision,
    pool: &mut Pool,
) -> Vec<f32> {
    let (o, i) = map.dims();
    let mut y = pool.take(x.len() / i * o);
    forward(map, x, &mut y, precision.set(), pool);
    y
}

/// Computes [`project`] of several maps of one input.
pub(super) fn project_each<const N: usize>(
    maps: [&Linear<Cpu>; N],
    x: &[f32],
    precision: Precision,
    pool: &mut Pool,
) -> [Vec<f32>; N] {
    let mut ys = maps.map(|map| pool.take(x.len() / map.dims().1 * map.dims().0));
    forward_each(maps, x, ys.each_mut().map(Vec::as_mut_slice), precision.set(), pool);
    ys
}

/// Computes `y [N, O]`, overwritten or added to.
pub(super) fn forward(
    map: &Linear<Cpu>,
    x: &[f32],
    y: &mut [f32],
    products: Matmul,
    pool: &mut Pool,
) {
    forward_each([map], x, [y], products, pool);
}

/// Computes [`forward`] of several maps of one input. If all weights are packed, threads start once for all of them.
pub(super) fn forward_each<const N: usize>(
    maps: [&Linear<Cpu>; N],
    x: &[f32],
    mut ys: [&mut [f32]; N],
    products: Matmul,
    pool: &mut Pool,
) {
    let n = maps.first().map_or(0, |map| x.len() / map.dims().1);
    let packed = maps.map(Linear::packed);
    if packed.iter().all(|packed| packed.is_some()) {
        let mut weights = packed.iter().filter_map(|packed| packed.as_ref());
        let pairs =
            ys.each_mut().map(|y| (weights.next().expect("every weight is packed"), &mut y[..]));
        products.nt_packed_each(x, pairs, n);
    } else {
        for (map, y) in maps.iter().zip(&mut ys) {
            let (o, i) = map.dims();
            products.nt(x, &map.weight.values(), y, n, o, i);
        }
    }
    for (map, y) in maps.iter().zip(ys) {
        if let Some(of) = &map.bias {
            bias::add_bias(&of.values(), y);
        }
        if let Some(lora) = &map.lora {
            correct(lora, x, y, n, pool);
        }
    }
}

/// Computes the gradients from `x [N, I]` and `dy [N, O]`: those of the weights are added, `dx [N, I]` is overwritten
/// or added to.
///
/// ```text
/// dweight += dyᵀ x,   dbias += Σ_rows dy,   dx = dy weight
/// ```
pub(super) fn backward(
    map: &Linear<Cpu>,
    [x, dy]: [&[f32]; 2],
    dx: &mut [f32],
    products: Matmul,
    gradients: &mut Gradients<'_>,
    pool: &mut Pool,
) {
    let (o, i) = map.dims();
    let n = x.len() / i;
    if let Some(dweight) = gradients.of(map.weight.slot()) {
        products.precision().add().tn(dy, x, dweight, o, i, n);
    }
    if let Some(dbias) = map.bias.as_ref().and_then(|bias| gradients.of(bias.slot())) {
        bias::add_bwd(dy, dbias);
    }
    products.nn(dy, &map.weight.values(), dx, n, i, o);
    if let Some(lora) = &map.lora {
        correct_back(lora, [x, dy], dx, gradients, pool);
    }
}

/// Adds the correction of an adapter to `y`.
fn correct(lora: &Lora<Cpu>, x: &[f32], y: &mut [f32], n: usize, pool: &mut Pool) {
    let (r, _, o) = lora.dims();
    let kept = input_of_a(lora, x, pool);
    let low = low(lora, &kept, n, pool);
    Precision::F32.add().nt(&low, &lora.b.values(), y, n, o, r);
    pool.give([low]);
    give_kept(kept, pool);
}

/// Computes `dB += dyᵀ low`, `dA += dlowᵀ kept`, `dx += dropout(dlow A)`, with `dlow = scale · dy B`.
fn correct_back(
    lora: &Lora<Cpu>,
    [x, dy]: [&[f32]; 2],
    dx: &mut [f32],
    gradients: &mut Gradients<'_>,
    pool: &mut Pool,
) {
    let (r, i, o) = lora.dims();
    let n = x.len() / i;
    let (set, add) = (Precision::F32.set(), Precision::F32.add());
    let kept = input_of_a(lora, x, pool);
    let mut low = low(lora, &kept, n, pool);
    if let Some(db) = gradients.of(lora.b.slot()) {
        add.tn(dy, &low, db, o, r, n);
    }
    set.nn(dy, &lora.b.values(), &mut low, n, r, o);
    low.iter_mut().for_each(|dlow| *dlow *= lora.scale);
    if let Some(da) = gradients.of(lora.a.slot()) {
        add.tn(&low, &kept, da, r, i, n);
    }
    match &lora.dropout {
        None => add.nn(&low, &lora.a.values(), dx, n, i, r),
        Some(dropout) => {
            let mut through = pool.take(n * i);
            set.nn(&low, &lora.a.values(), &mut through, n, i, r);
            drop_out(dropout, &mut through, i);
            dx.iter_mut().zip(&through).for_each(|(dx, through)| *dx += through);
            pool.give([through]);
        }
    }
    pool.give([low]);
    give_kept(kept, pool);
}

/// Returns the input of `A`.
fn input_of_a<'x>(lora: &Lora<Cpu>, x: &'x [f32], pool: &mut Pool) -> Cow<'x, [f32]> {
    let Some(dropout) = &lora.dropout else { return Cow::Borrowed(x) };
    let mut x = pool.copy(x);
    drop_out(dropout, &mut x, lora.dims().1);
    Cow::Owned(x)
}

/// Computes `scale · kept Aᵀ`, `[N, r]`.
fn low(lora: &Lora<Cpu>, kept: &[f32], n: usize, pool: &mut Pool) -> Vec<f32> {
    let (r, i, _) = lora.dims();
    let mut low = pool.take(n * r);
    Precision::F32.set().nt(kept, &lora.a.values(), &mut low, n, r, i);
    low.iter_mut().for_each(|low| *low *= lora.scale);
    low
}

fn give_kept(kept: Cow<'_, [f32]>, pool: &mut Pool) {
    if let Cow::Owned(kept) = kept {
        pool.give([kept]);
    }
}

/// Sets dropped numbers of `x [N, width]` to 0 and scales the others.
fn drop_out(dropout: &Dropout, x: &mut [f32], width: usize) {
    let Dropout { p, place, keys } = dropout;
    assert_eq!(x.len(), keys.len() * width, "dropout: a key for each token");
    let (share, keep) = (f64::from(*p), 1.0 / (1.0 - p));
    x.par_chunks_mut(width).zip(&keys[..]).for_each(|(row, key)| {
        let seed = derive_seed(*key, *place);
        for (column, x) in row.iter_mut().enumerate() {
            *x = if uniform_number(seed, column as u64) < share { 0.0 } else { *x * keep };
        }
    });
}

#[cfg(test)]
mod tests;
