use super::*;
use crate::testing::{close, numeric, random, same_bits, wide};

fn router(softmax: RouterSoftmax) -> Router {
    Router { experts: 5, chosen: 2, softmax }
}

/// Weights of given choices in f64.
fn weights(scores: &[f64], chosen: &[u32], router: Router) -> Vec<f64> {
    let rows = scores.chunks(router.experts).zip(chosen.chunks(router.chosen));
    let of_token = |(scores, chosen): (&[f64], &[u32])| {
        let e: Vec<f64> = chosen.iter().map(|&c| scores[c as usize].exp()).collect();
        let sum: f64 = match router.softmax {
            RouterSoftmax::All => scores.iter().map(|s| s.exp()).sum(),
            RouterSoftmax::Chosen => e.iter().sum(),
        };
        e.into_iter().map(|e| e / sum).collect::<Vec<f64>>()
    };
    rows.flat_map(of_token).collect()
}

#[test]
fn the_largest_scores_are_chosen_and_of_equal_ones_the_lower_numbers() {
    let scores = [0.1, 3.0, 0.2, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, -3.0, -2.0, -1.0, -9.0, -1.5];
    let chosen = router(RouterSoftmax::All).choose_experts(&scores);
    assert_eq!(chosen, [1, 3, 0, 1, 2, 4]);
    let nan = [f32::NAN; 5];
    assert_eq!(router(RouterSoftmax::All).choose_experts(&nan), [0, 1]);
}

#[test]
fn weights_and_their_gradients_agree_with_f64() {
    let (scores, dweights) = (random(1, 15), random(2, 6));
    for softmax in [RouterSoftmax::All, RouterSoftmax::Chosen] {
        let router = router(softmax);
        let chosen = router.choose_experts(&scores);
        let found = router.weigh_experts(&scores, &chosen);
        close(&found, &weights(&wide(&scores), &chosen, router), 1e-6);
        let mut dscores = vec![f32::NAN; 15];
        router.weigh_experts_back(&scores, &chosen, [&found, &dweights], &mut dscores);
        let loss = |scores: &[f64]| {
            let weights = weights(scores, &chosen, router);
            weights.iter().zip(&dweights).map(|(w, dw)| w * f64::from(*dw)).sum()
        };
        close(&dscores, &numeric(&wide(&scores), loss), 1e-5);
    }
}

#[test]
fn a_softmax_of_the_chosen_scores_gives_other_experts_no_gradient() {
    let router = router(RouterSoftmax::Chosen);
    let (scores, dweights) = (random(1, 5), random(2, 2));
    let chosen = router.choose_experts(&scores);
    let weights = router.weigh_experts(&scores, &chosen);
    let mut dscores = vec![f32::NAN; 5];
    router.weigh_experts_back(&scores, &chosen, [&weights, &dweights], &mut dscores);
    for (expert, ds) in dscores.iter().enumerate() {
        assert_eq!(*ds != 0.0, chosen.contains(&(expert as u32)));
    }
}

#[test]
fn the_gradient_of_mean_probabilities_agrees_with_f64() {
    let (scores, slopes, counts) = (random(1, 15), random(2, 5), [1.0, 3.0, 0.0]);
    let mut dscores = vec![0.5; 15];
    router(RouterSoftmax::All).add_mean_back(&scores, &slopes, &counts, &mut dscores);
    dscores.iter_mut().for_each(|ds| *ds -= 0.5);
    let loss = |scores: &[f64]| {
        let tokens = scores.chunks(5).zip(counts);
        let of_token = |(scores, count): (&[f64], f32)| {
            let sum: f64 = scores.iter().map(|s| s.exp()).sum();
            let weighted = scores.iter().zip(&slopes).map(|(s, g)| s.exp() / sum * f64::from(*g));
            f64::from(count) * weighted.sum::<f64>()
        };
        tokens.map(of_token).sum()
    };
    close(&dscores, &numeric(&wide(&scores), loss), 1e-5);
}

#[test]
fn rows_are_sorted_by_expert_and_token_and_summed_back_by_rising_expert() {
    let router = router(RouterSoftmax::All);
    let chosen = [1, 3, 0, 3, 1, 4];
    let rows = ExpertRows::sort_choices(&chosen, router);
    assert_eq!(rows.offsets, [0, 1, 3, 3, 5, 6]);
    assert_eq!(rows.choices, [2, 0, 4, 1, 3, 5]);
    let (x, weights) = ([1.0, 2.0, 3.0], [0.5, 2.0, 1.0, 3.0, 1.0, 4.0]);
    let (mut gathered, mut weighted) = ([f32::NAN; 6], [f32::NAN; 6]);
    rows.gather_tokens(&x, None, 1, &mut gathered);
    assert_eq!(gathered, [2.0, 1.0, 3.0, 1.0, 2.0, 3.0]);
    rows.gather_tokens(&x, Some(&weights), 1, &mut weighted);
    assert_eq!(weighted, [2.0, 0.5, 3.0, 2.0, 6.0, 12.0]);
    let mut y = [f32::NAN; 3];
    rows.sum_choices(&gathered, None, 1, &mut y);
    assert_eq!(y, [2.0, 4.0, 6.0]);
    rows.sum_choices(&gathered, Some(&weights), 1, &mut y);
    assert_eq!(y, [2.5, 8.0, 15.0]);
    let products = rows.multiply_choices(&x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1);
    assert_eq!(products, [2.0, 4.0, 2.0, 10.0, 9.0, 18.0]);
}

#[test]
fn a_token_has_the_same_bits_alone_and_among_many() {
    let router = Router { experts: 16, chosen: 4, softmax: RouterSoftmax::All };
    let (n, d) = (512, 24);
    let (scores, x) = (random(3, n * 16), random(4, n * d));
    let of = |scores: &[f32], x: &[f32]| {
        let chosen = router.choose_experts(scores);
        let weights = router.weigh_experts(scores, &chosen);
        let rows = ExpertRows::sort_choices(&chosen, router);
        let (mut gathered, mut y) = (vec![0.0; rows.count() * d], vec![0.0; x.len()]);
        rows.gather_tokens(x, None, d, &mut gathered);
        rows.sum_choices(&gathered, Some(&weights), d, &mut y);
        (y, rows.multiply_choices(x, &gathered, d))
    };
    let (all, products) = of(&scores, &x);
    for token in [0, 17, 300, n - 1] {
        let (y, product) = of(&scores[token * 16..][..16], &x[token * d..][..d]);
        same_bits(&y, &all[token * d..][..d]);
        same_bits(&product, &products[token * 4..][..4]);
    }
    assert_eq!(of(&[], &[]).0, [] as [f32; 0]);
}

#[test]
fn gated_rows_and_their_gradients_agree_with_f64_and_rows_do_not_depend_on_others() {
    let (n, d) = (5, 21);
    let (x, gates, dy, onto) = (random(1, n * d), random(2, n), random(3, n * d), random(4, n * d));
    let of = |x: &[f64], gates: &[f64]| -> Vec<f64> {
        let rows = x.chunks(d).zip(gates);
        rows.flat_map(|(x, g)| x.iter().map(|x| x / (1.0 + (-g).exp())).collect::<Vec<_>>())
            .collect()
    };
    let mut y = onto.clone();
    add_gated_rows(&x, &gates, d, &mut y);
    let added: Vec<f64> =
        of(&wide(&x), &wide(&gates)).iter().zip(wide(&onto)).map(|(y, onto)| y + onto).collect();
    close(&y, &added, 1e-6);
    let mut dx = vec![f32::NAN; n * d];
    let dgates = gated_rows_bwd(&x, &gates, &dy, d, &mut dx);
    let loss = |y: Vec<f64>| y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>();
    close(&dx, &numeric(&wide(&x), |x| loss(of(x, &wide(&gates)))), 1e-5);
    close(&dgates, &numeric(&wide(&gates), |gates| loss(of(&wide(&x), gates))), 1e-5);
    let (mut alone, mut dalone) = (onto[d..2 * d].to_vec(), vec![0.0; d]);
    add_gated_rows(&x[d..2 * d], &gates[1..2], d, &mut alone);
    same_bits(&alone, &y[d..2 * d]);
    let dgate = gated_rows_bwd(&x[d..2 * d], &gates[1..2], &dy[d..2 * d], d, &mut dalone);
    same_bits(&dgate, &dgates[1..2]);
    same_bits(&dalone, &dx[d..2 * d]);
}
