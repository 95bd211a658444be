use proptest::prelude::*;

use super::*;
use crate::testing::random;

/// Generates weights of which many are zero and the largest is 1.
fn weights(seed: u64, n: usize, steepness: f32) -> Vec<f32> {
    let weight = |x: &f32| if *x < -0.9 { 0.0 } else { ((x - 1.0) * steepness).exp() };
    let mut weights: Vec<f32> = random(seed, n).iter().map(weight).collect();
    weights[seed as usize % n] = 1.0;
    weights
}

proptest! {
    #[test]
    fn a_guess_is_the_id_of_the_sums_in_order(
        n in 1_usize..6000,
        steepness in 0.0_f32..40.0,
        u in 0.0..1.0,
        seed in 0_u64..999,
    ) {
        let weights = weights(seed, n, steepness);
        for path in crate::simd::available_paths() {
            let found = crate::simd::run_on_path(path, 1, || lanes::run_kernel(Guess { weights: &weights, u }));
            prop_assert_eq!(found, Some(invert_in_order(&weights, u)), "{}", path);
        }
    }

    #[test]
    fn a_draw_on_the_edge_of_two_ids_takes_the_one_of_the_sums_in_order(
        n in 1_usize..3000,
        at in 0_usize..3000,
        seed in 0_u64..999,
    ) {
        // The sum of these is exact in any order, and so is the target.
        let weights: Vec<f32> = weights(seed, n, 1.0).iter().map(|x| (x * 64.0).round() / 64.0).collect();
        let sum = weights[..at % n].iter().map(|&x| f64::from(x)).sum::<f64>();
        let u = sum / total_weight(&weights);
        prop_assume!(sum > 0.0 && u < 1.0 && u * total_weight(&weights) == sum);
        prop_assert_eq!(lanes::run_kernel(Guess { weights: &weights, u }), None);
        let after = weights[at % n..].iter().position(|&weight| weight > 0.0).expect("below one");
        prop_assert_eq!(invert_sum(&weights, u), at % n + after);
    }

    #[test]
    fn top_p_keeps_what_a_sort_of_all_keeps(
        n in 1_usize..3000,
        steepness in 0.0_f32..40.0,
        rounded in any::<bool>(),
        p in 0.0_f32..1.0,
        seed in 0_u64..999,
    ) {
        let mut weights = weights(seed, n, steepness);
        if rounded {
            // Many weights are equal.
            weights.iter_mut().for_each(|x| *x = (*x * 8.0).round() / 8.0);
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        let (total, mut before, mut want) = (total_weight(&weights), 0.0, vec![0.0; n]);
        for (rank, &id) in order.iter().enumerate() {
            if rank > 0 && before >= f64::from(p) * total {
                break;
            }
            before += f64::from(weights[id]);
            want[id] = weights[id];
        }
        top_p(&mut weights, p);
        prop_assert_eq!(weights, want);
    }
}
