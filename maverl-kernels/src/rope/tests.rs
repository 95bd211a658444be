use super::*;
use crate::testing::{close, numeric, random, same_bits, weigh, wide};

fn frequencies(half: usize) -> Vec<f32> {
    (0..half).map(|i| 10_000f32.powf(-(i as f32) / half as f32)).collect()
}

fn reference(x: &[f64], positions: &[u32], heads: usize, inv_freq: &[f32]) -> Vec<f64> {
    let half = inv_freq.len();
    let mut out = x.to_vec();
    for (t, &position) in positions.iter().enumerate() {
        for head in 0..heads {
            for (i, &frequency) in inv_freq.iter().enumerate() {
                let angle = f64::from(position as f32 * frequency);
                let a = (t * heads + head) * 2 * half + i;
                out[a] = x[a] * angle.cos() - x[a + half] * angle.sin();
                out[a + half] = x[a + half] * angle.cos() + x[a] * angle.sin();
            }
        }
    }
    out
}

#[test]
fn forward_agrees_with_f64_and_backward_with_central_differences() {
    for half in [1, 3, 16] {
        let (inv_freq, heads, positions) = (frequencies(half), 2, [0, 1, 5, 63, 5]);
        let table = RopeTable::new(&inv_freq, 64);
        assert_eq!((table.head_dim(), table.max_positions()), (2 * half, 64));
        let n = positions.len() * heads * 2 * half;
        let (x, dy) = (random(1, n), random(2, n));
        let mut out = vec![f32::NAN; n];
        rope(&x, &positions, heads, &table, &mut out);
        let forward = |x: &[f64]| reference(x, &positions, heads, &inv_freq);
        close(&out, &forward(&wide(&x)), 1e-6);
        let mut dx = vec![f32::NAN; n];
        rope_bwd(&dy, &positions, heads, &table, &mut dx);
        close(&dx, &numeric(&wide(&x), |x| weigh(&forward(x), &dy)), 1e-5);
    }
}

#[test]
fn a_token_alone_has_the_same_bits() {
    let table = RopeTable::new(&frequencies(16), 2048);
    let positions: Vec<u32> = (0..2000).collect();
    let x = random(3, 2000 * 64);
    let mut whole = vec![0.0; x.len()];
    rope(&x, &positions, 2, &table, &mut whole);
    for t in [0, 1, 777, 1999] {
        let mut alone = vec![0.0; 64];
        rope(&x[t * 64..][..64], &positions[t..=t], 2, &table, &mut alone);
        same_bits(&alone, &whole[t * 64..][..64]);
    }
}

#[test]
fn positions_cost_memory_when_they_are_used() {
    let table = RopeTable::new(&frequencies(32), 1 << 30);
    let (x, mut short, mut again) = (random(4, 64), vec![0.0; 64], vec![0.0; 64]);
    rope(&x, &[5], 1, &table, &mut short);
    assert_eq!(table.rows(0).cos.len(), 8 * 32);
    rope(&x, &[1000], 1, &table, &mut again);
    assert_eq!(table.rows(0).cos.len(), 1024 * 32);
    rope(&x, &[5], 1, &table, &mut again);
    same_bits(&short, &again);
}

#[test]
#[should_panic(expected = "position 4 of a table of 4")]
fn a_position_beyond_the_table_is_refused() {
    rope(&[0.0; 2], &[4], 1, &RopeTable::new(&[1.0], 4), &mut [0.0; 2]);
}

#[test]
fn the_front_of_a_row_is_rotated_in_place() {
    let table = RopeTable::new(&frequencies(8), 1000);
    let (heads, width) = (3, 80);
    let positions: Vec<u32> = (0..900).collect();
    let x = random(4, 900 * width);
    let front =
        |x: &[f32]| -> Vec<f32> { x.chunks(width).flat_map(|x| x[..48].to_vec()).collect() };
    let back = |x: &[f32]| -> Vec<f32> { x.chunks(width).flat_map(|x| x[48..].to_vec()).collect() };
    for (in_place, to) in [
        (rope_in_place as fn(&mut [f32], usize, &[u32], usize, &RopeTable), rope as Rope),
        (rope_in_place_bwd, rope_bwd),
    ] {
        let (mut got, mut want) = (x.clone(), vec![0.0; 900 * 48]);
        in_place(&mut got, width, &positions, heads, &table);
        to(&front(&x), &positions, heads, &table, &mut want);
        same_bits(&front(&got), &want);
        same_bits(&back(&got), &back(&x));
    }
}

type Rope = fn(&[f32], &[u32], usize, &RopeTable, &mut [f32]);
