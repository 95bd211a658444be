//! AdamW with moments in 8 bits, block by block.

use std::sync::LazyLock;

use rayon::prelude::*;

use crate::adamw::{AdamW, adamw_step};

/// Numbers of a block.
pub const BLOCK: usize = 256;

/// Fewest blocks of one thread.
const GRAIN: usize = 64;

/// Decades of a dynamic map.
const DECADES: u32 = 7;

/// A map of codes to numbers from -1 to 1: the dynamic tree of [Dettmers et al., 2021], as bitsandbytes' `create_dynamic_map` makes
/// it.
///
/// ```text
/// signed     0, 1, and ±10^(i − 6) · m    m: the 2^i middles of [0.1, 1] in 2^i equal parts, i = 0 .. 6
/// unsigned   0, 1, and 10^(i − 6) · m     m: the 2^(i + 1) middles of [0.1, 1] in 2^(i + 1) equal parts
/// ```
///
/// [Dettmers et al., 2021]: https://arxiv.org/abs/2110.02861
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DynamicMap {
    /// Numbers of both signs: first moments.
    Signed,
    /// Numbers from 0: second moments.
    Unsigned,
}

/// Numbers of the codes of a map, and the middles between them.
struct Table {
    values: [f32; 256],
    middles: [f32; 255],
}

static SIGNED: LazyLock<Table> = LazyLock::new(|| table(DynamicMap::Signed));
static UNSIGNED: LazyLock<Table> = LazyLock::new(|| table(DynamicMap::Unsigned));

fn table(map: DynamicMap) -> Table {
    let mut all = vec![0.0, 1.0];
    for decade in 0..DECADES {
        let parts = match map {
            DynamicMap::Signed => 1 << decade,
            DynamicMap::Unsigned => 2 << decade,
        };
        let unit = libm::pow(10.0, f64::from(decade) - 6.0);
        for part in 0..parts {
            let middle = 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
            all.push(unit * middle);
            if map == DynamicMap::Signed {
                all.push(-unit * middle);
            }
        }
    }
    all.sort_unstable_by(f64::total_cmp);
    let values: [f32; 256] = std::array::from_fn(|code| all[code] as f32);
    let middles = std::array::from_fn(|code| f32::midpoint(values[code], values[code + 1]));
    Table { values, middles }
}

impl DynamicMap {
    fn table(self) -> &'static Table {
        match self {
            Self::Signed => &SIGNED,
            Self::Unsigned => &UNSIGNED,
        }
    }

    /// Returns the numbers of all codes, in ascending order.
    pub fn values(self) -> &'static [f32; 256] {
        &self.table().values
    }

    /// Returns the code of the number nearest to `x`, of two the lower one.
    pub fn code(self, x: f32) -> u8 {
        self.table().middles.partition_point(|middle| *middle < x) as u8
    }

    /// Returns the code of 0.
    fn zero(self) -> u8 {
        self.code(0.0)
    }
}

/// Moments of parameters in 8 bits: a code for each, and the largest magnitude of each block, which its numbers are divided by.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment8 {
    /// Map of the codes.
    pub map: DynamicMap,
    /// Codes. `[N]`
    pub codes: Vec<u8>,
    /// Largest magnitude of each block. `[⌈N / 256⌉]`
    pub scales: Vec<f32>,
}

impl Moment8 {
    /// Creates moments of zero.
    pub fn zeros(map: DynamicMap, elements: usize) -> Self {
        let blocks = elements.div_ceil(BLOCK);
        Self { map, codes: vec![map.zero(); elements], scales: vec![0.0; blocks] }
    }

    /// Returns the numbers.
    pub fn read(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.codes.len()];
        let blocks = self.codes.chunks(BLOCK).zip(&self.scales);
        for (to, (codes, scale)) in values.chunks_mut(BLOCK).zip(blocks) {
            decode(self.map, codes, *scale, to);
        }
        values
    }
}

/// Writes the numbers of a block.
fn decode(map: DynamicMap, codes: &[u8], scale: f32, to: &mut [f32]) {
    let values = map.values();
    for (to, code) in to.iter_mut().zip(codes) {
        *to = values[usize::from(*code)] * scale;
    }
}

/// Writes the codes of a block. Returns its largest magnitude.
///
/// A number above 0 has no code of 0 in a map without signs, so that no update is divided by ε alone.
fn encode(map: DynamicMap, values: &[f32], to: &mut [u8]) -> f32 {
    let scale = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    if scale == 0.0 {
        to.fill(map.zero());
        return scale;
    }
    for (to, value) in to.iter_mut().zip(values) {
        let above = u8::from(map == DynamicMap::Unsigned && *value > 0.0);
        *to = map.code(value / scale).max(above);
    }
    scale
}

/// A block of parameters with its gradients and moments.
type Block<'a> = ((&'a mut [f32], &'a [f32]), [(&'a mut [u8], &'a mut f32); 2]);

/// Updates one parameter and its moments `m` (signed) and `v` (unsigned) in place, as [`adamw_step`] does with the numbers that the
/// codes stand for; the new moments are rounded to codes.
///
/// [2110.02861](https://arxiv.org/abs/2110.02861), section 2. A block depends on itself alone, so the bits do not depend on the
/// number of threads.
///
/// # Panics
///
/// If the lengths differ, or `step` is 0.
pub fn adamw8_step(
    cfg: &AdamW,
    step: u64,
    grad_scale: f32,
    param: &mut [f32],
    grad: &[f32],
    [m, v]: [&mut Moment8; 2],
) {
    let n = param.len();
    for (name, len) in [("grad", grad.len()), ("m", m.codes.len()), ("v", v.codes.len())] {
        assert_eq!(len, n, "adamw8_step: {name} has {len} elements, param has {n}");
    }
    let maps = [m.map, v.map];
    let [m, v] = [m, v].map(|it| it.codes.par_chunks_mut(BLOCK).zip(&mut it.scales));
    let parts = param.par_chunks_mut(BLOCK).zip(grad.par_chunks(BLOCK));
    let blocks = parts.zip(m.zip(v)).with_min_len(GRAIN);
    blocks.for_each(|(part, (m, v))| block_step(cfg, (step, grad_scale), maps, (part, [m, v])));
}

fn block_step(
    cfg: &AdamW,
    (step, grad_scale): (u64, f32),
    maps: [DynamicMap; 2],
    ((param, grad), [m, v]): Block<'_>,
) {
    let mut buffers = [[0.0; BLOCK]; 2];
    let [first, second] = &mut buffers;
    let (first, second) = (&mut first[..param.len()], &mut second[..param.len()]);
    decode(maps[0], m.0, *m.1, first);
    decode(maps[1], v.0, *v.1, second);
    adamw_step(cfg, step, grad_scale, param, grad, first, second);
    *m.1 = encode(maps[0], first, m.0);
    *v.1 = encode(maps[1], second, v.0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CFG: AdamW = AdamW { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };

    /// Returns numbers whose size differs by block.
    fn gradients(seed: u32, n: usize) -> Vec<f32> {
        let random = |at: usize| {
            let bits = (at as u32 ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            let unit = (bits ^ (bits >> 13)) as f32 / u32::MAX as f32 - 0.5;
            unit * libm::powf(10.0, (at / BLOCK % 5) as f32 - 4.0)
        };
        (0..n).map(random).collect()
    }

    #[test]
    fn a_map_has_256_different_numbers_and_each_is_its_own_nearest() {
        for (map, zeros) in [(DynamicMap::Signed, 127), (DynamicMap::Unsigned, 0)] {
            let values = map.values();
            assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!((values[zeros], values[255]), (0.0, 1.0));
            for (code, value) in values.iter().enumerate() {
                assert_eq!(usize::from(map.code(*value)), code);
            }
        }
        assert_eq!(DynamicMap::Unsigned.code(2.0), 255);
        assert_eq!(DynamicMap::Signed.code(-2.0), 0);
    }

    #[test]
    fn moments_are_those_of_adamw_up_to_the_distance_of_codes() {
        let n = 3 * BLOCK + 17;
        let grad = gradients(1, n);
        let mut whole = (vec![0.5; n], vec![0.0; n], vec![0.0; n]);
        adamw_step(&CFG, 1, 0.5, &mut whole.0, &grad, &mut whole.1, &mut whole.2);
        let mut param = vec![0.5; n];
        let mut m = Moment8::zeros(DynamicMap::Signed, n);
        let mut v = Moment8::zeros(DynamicMap::Unsigned, n);
        adamw8_step(&CFG, 1, 0.5, &mut param, &grad, [&mut m, &mut v]);
        assert_eq!(param, whole.0, "the first step has moments before rounding");
        for (moment, exact) in [(&m, &whole.1), (&v, &whole.2)] {
            for (block, exact) in moment.read().chunks(BLOCK).zip(exact.chunks(BLOCK)) {
                let most = exact.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                for (found, exact) in block.iter().zip(exact) {
                    // Half of the largest distance of two numbers of the map with signs is 0.007.
                    assert!((found - exact).abs() <= 0.0071 * most, "{found} {exact}");
                }
            }
        }
    }

    #[test]
    fn an_update_does_not_depend_on_threads_and_stays_near_that_of_whole_moments() {
        let n = 400 * BLOCK;
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let run = || {
            let mut param = vec![0.0; n];
            let mut m = Moment8::zeros(DynamicMap::Signed, n);
            let mut v = Moment8::zeros(DynamicMap::Unsigned, n);
            let mut whole = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            for step in 1..=20 {
                let grad = gradients(step as u32, n);
                adamw8_step(&CFG, step, 1.0, &mut param, &grad, [&mut m, &mut v]);
                adamw_step(&CFG, step, 1.0, &mut whole.0, &grad, &mut whole.1, &mut whole.2);
            }
            (param, m, v, whole.0)
        };
        let (param, m, v, whole) = run();
        let again = one.install(run);
        assert_eq!((&param, &m, &v), (&again.0, &again.1, &again.2));
        let distance: f32 = param.iter().zip(&whole).map(|(a, b)| (a - b).powi(2)).sum();
        let length: f32 = whole.iter().map(|x| x.powi(2)).sum();
        assert!((distance / length).sqrt() < 0.1, "{}", (distance / length).sqrt());
    }

    #[test]
    fn a_small_second_moment_is_not_rounded_to_zero() {
        let mut codes = [0; 3];
        let scale = encode(DynamicMap::Unsigned, &[1.0, 1e-12, 0.0], &mut codes);
        assert_eq!((scale, codes), (1.0, [255, 1, 0]));
        assert_eq!(encode(DynamicMap::Signed, &[0.0; 3], &mut codes), 0.0);
        assert_eq!(codes, [127; 3]);
    }
}
