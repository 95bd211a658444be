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

fn turned(x: &[f32], positions: &[u32], heads: usize, table: &RopeTable, out: &mut [f32]) {
    out.copy_from_slice(x);
    apply_rope(out, positions, heads, table);
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
        turned(&x, &positions, heads, &table, &mut out);
        let forward = |x: &[f64]| reference(x, &positions, heads, &inv_freq);
        close(&out, &forward(&wide(&x)), 1e-6);
        let mut dx = dy.clone();
        rope_bwd(&mut dx, &positions, heads, &table);
        close(&dx, &numeric(&wide(&x), |x| weigh(&forward(x), &dy)), 1e-5);
    }
}

#[test]
fn a_part_of_each_head_is_rotated_with_a_factor_and_the_rest_stays() {
    let (inv_freq, heads, head_dim, positions) = (frequencies(3), 2, 10, [0, 7, 63]);
    let table = RopeTable::new(&inv_freq, 64).with_head_dim(head_dim).with_factor(1.25);
    let (x, dy) = (random(1, 3 * heads * head_dim), random(2, 3 * heads * head_dim));
    let forward = |x: &[f64]| {
        let part = |x: &[f64]| x.chunks(head_dim).flat_map(|head| head[..6].to_vec()).collect();
        let part: Vec<f64> = part(x);
        let turned = reference(&part, &positions, heads, &inv_freq);
        let mut out = x.to_vec();
        for (head, turned) in out.chunks_mut(head_dim).zip(turned.chunks(6)) {
            head.iter_mut().zip(turned).for_each(|(x, turned)| *x = 1.25 * turned);
        }
        out
    };
    let mut out = vec![f32::NAN; x.len()];
    turned(&x, &positions, heads, &table, &mut out);
    close(&out, &forward(&wide(&x)), 1e-6);
    let mut dx = dy.clone();
    rope_bwd(&mut dx, &positions, heads, &table);
    close(&dx, &numeric(&wide(&x), |x| weigh(&forward(x), &dy)), 1e-5);
}

#[test]
fn a_token_alone_has_the_same_bits() {
    let table = RopeTable::new(&frequencies(16), 2048);
    let positions: Vec<u32> = (0..2000).collect();
    let x = random(3, 2000 * 64);
    let mut whole = vec![0.0; x.len()];
    turned(&x, &positions, 2, &table, &mut whole);
    for t in [0, 1, 777, 1999] {
        let mut alone = vec![0.0; 64];
        turned(&x[t * 64..][..64], &positions[t..=t], 2, &table, &mut alone);
        same_bits(&alone, &whole[t * 64..][..64]);
    }
}

#[test]
fn positions_cost_memory_when_they_are_used() {
    let table = RopeTable::new(&frequencies(32), 1 << 30);
    let (x, mut short, mut again) = (random(4, 64), vec![0.0; 64], vec![0.0; 64]);
    turned(&x, &[5], 1, &table, &mut short);
    assert_eq!(table.table_rows(0).cos.len(), 8 * 32);
    turned(&x, &[1000], 1, &table, &mut again);
    assert_eq!(table.table_rows(0).cos.len(), 1024 * 32);
    turned(&x, &[5], 1, &table, &mut again);
    same_bits(&short, &again);
}

#[test]
#[should_panic(expected = "position 4 of a table of 4")]
fn a_position_beyond_the_table_is_refused() {
    apply_rope(&mut [0.0; 2], &[4], 1, &RopeTable::new(&[1.0], 4));
}
