use super::super::FROM_HOST;
use super::*;
use crate::logprob;
use crate::sample::{
    BadLogits, SamplingFilter, TokenDraw, derive_seed, sample_token, uniform_number,
};

fn logits(seed: u64, n: usize) -> Vec<f32> {
    random(seed, n).into_iter().map(|x| 8.0 * x).collect()
}

const SHAPES: [[usize; 2]; 6] = [[1, 1], [3, 7], [17, 63], [2, 65], [9, 300], [1, 5000]];

pub(super) fn log_probabilities_and_their_derivatives_agree_with_f64_and_the_cpu<M: Tested>(
    kernels: &Kernels<M>,
) {
    for [n, vocab] in SHAPES {
        let z = logits(1, n * vocab);
        let targets: Vec<u32> = (0..n).map(|i| (i * 31 % vocab) as u32).collect();
        let inverses: Vec<f32> = (0..n).map(|i| 1.0 / (0.5 + 0.25 * i as f32)).collect();
        let d = [2, 3].map(|seed| random(seed, n));
        let run = |kernels: &Kernels<M>| {
            let on = kernels.array_of(&z).unwrap();
            let rows = kernels.softmax_rows(&targets, &inverses).unwrap();
            let found = kernels.log_probabilities(on.as_slice(), &rows).unwrap();
            let mut dlogits = kernels.new_array(n * vocab).unwrap();
            let by = [&d[0][..], &d[1]];
            kernels.logit_gradients(on.as_slice(), &rows, &found, by, dlogits.slice_mut()).unwrap();
            ([bits(&found.logp), bits(&found.entropy)], kernels.read_array(&dlogits).unwrap())
        };
        let ([logp, entropy], dlogits) = in_every_order(kernels, run);
        let [logp, entropy] =
            [logp, entropy].map(|x| x.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
        let [mut cpu_logp, mut cpu_entropy] = [0; 2].map(|_| vec![0.0; n]);
        logprob::logprobs(&z, vocab, &targets, &inverses, &mut cpu_logp, &mut cpu_entropy);
        let mut want = Vec::new();
        for row in 0..n {
            let inverse = f64::from(inverses[row]);
            let z: Vec<f64> =
                z[row * vocab..][..vocab].iter().map(|&z| f64::from(z) * inverse).collect();
            let most = z.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = z.iter().map(|z| (z - most).exp()).sum();
            let log_p: Vec<f64> = z.iter().map(|z| z - most - sum.ln()).collect();
            let h: f64 = -log_p.iter().map(|l| l.exp() * l).sum::<f64>();
            let target = targets[row] as usize;
            let close = |x: f32, y: f64| (f64::from(x) - y).abs() < 2e-6 * y.abs().max(1.0);
            assert!(close(logp[row], log_p[target]), "{} {}", logp[row], log_p[target]);
            assert!(close(entropy[row], h), "{} {h}", entropy[row]);
            assert!(close(logp[row], f64::from(cpu_logp[row])));
            assert!(close(entropy[row], f64::from(cpu_entropy[row])));
            let (by_logp, by_entropy) = (f64::from(d[0][row]), f64::from(d[1][row]));
            want.extend(log_p.iter().enumerate().map(|(c, l)| {
                let own = by_logp * f64::from(c == target);
                (own - by_logp * l.exp() - by_entropy * l.exp() * (l + h)) * inverse
            }));
        }
        if vocab > 1 {
            near_bf16(&format!("{n} rows of {vocab}"), &dlogits, &want);
        }
    }
}

pub(super) fn a_row_has_the_same_bits_in_training_and_sampling_alone_and_in_a_batch<M: Tested>(
    kernels: &Kernels<M>,
) {
    let [n, vocab] = [9, 300];
    let z = logits(4, n * vocab);
    let on = kernels.array_of(&z).unwrap();
    let draws: Vec<TokenDraw> =
        (0..n as u64).map(|seed| TokenDraw { temperature: 0.8, seed, counter: 5 }).collect();
    let sampled = kernels.choose_tokens(on.as_slice(), &draws).unwrap();
    for (row, sampled) in sampled.into_iter().enumerate() {
        let sampled = sampled.unwrap();
        let alone = kernels.array_of(&z[row * vocab..][..vocab]).unwrap();
        let again = kernels.choose_tokens(alone.as_slice(), &draws[row..=row]).unwrap();
        assert_eq!(again, [Ok(sampled)]);
        let rows = kernels.softmax_rows(&[sampled.id], &[1.0 / 0.8]).unwrap();
        let found = kernels.log_probabilities(alone.as_slice(), &rows).unwrap();
        assert_eq!(bits(&found.logp), [sampled.logprob.to_bits()]);
        assert_eq!(bits(&found.entropy), [sampled.entropy.to_bits()]);
    }
}

pub(super) fn draws_equal_those_of_the_cpu<M: Tested>(kernels: &Kernels<M>) {
    for [n, vocab] in [[40, 1], [40, 7], [60, 65], [60, 300], [20, 5000]] {
        let mut z = logits(7, n * vocab);
        // A few impossible tokens.
        for (i, z) in z.iter_mut().enumerate() {
            if derive_seed(i as u64, 9).is_multiple_of(5) && !i.is_multiple_of(vocab) {
                *z = f32::NEG_INFINITY;
            }
        }
        let draws: Vec<TokenDraw> = (0..n as u64)
            .map(|i| TokenDraw {
                temperature: [0.0, 0.3, 1.0, 2.0][i as usize % 4],
                seed: derive_seed(i, 1),
                counter: i * i,
            })
            .collect();
        let run = |kernels: &Kernels<M>| {
            let on = kernels.array_of(&z).unwrap();
            kernels.choose_tokens(on.as_slice(), &draws).unwrap()
        };
        let drawn = in_every_order(kernels, run);
        for ((draw, drawn), z) in draws.iter().zip(drawn).zip(z.chunks(vocab)) {
            let filter =
                SamplingFilter { temperature: draw.temperature, ..SamplingFilter::default() };
            let want = sample_token(z, &filter, uniform_number(draw.seed, draw.counter)).unwrap();
            let got = drawn.unwrap();
            assert_eq!(got.id, want.id, "{draw:?} of {vocab}");
            assert!((got.logprob - want.logprob).abs() < 2e-5, "{got:?}, not {want:?}");
            assert!((got.entropy - want.entropy).abs() < 2e-5, "{got:?}, not {want:?}");
        }
    }
}

pub(super) fn the_lowest_of_equal_logits_is_the_greedy_one<M: Tested>(kernels: &Kernels<M>) {
    let mut z = logits(3, 400);
    for at in [390, 70, 71, 130] {
        z[at] = 9.0;
    }
    let on = kernels.array_of(&z).unwrap();
    let draw = TokenDraw { temperature: 0.0, seed: 1, counter: 1 };
    assert_eq!(kernels.choose_tokens(on.as_slice(), &[draw]).unwrap()[0].unwrap().id, 70);
}

pub(super) fn logits_that_describe_no_distribution_are_errors_of_their_row<M: Tested>(
    kernels: &Kernels<M>,
) {
    let vocab = 130;
    let mut rows: Vec<Vec<f32>> = (0..5).map(|seed| logits(seed, vocab)).collect();
    rows[1][100] = f32::NAN;
    rows[1][70] = f32::NAN;
    rows[1][3] = f32::INFINITY;
    rows[2][129] = f32::INFINITY;
    rows[2][66] = f32::INFINITY;
    rows[3].fill(f32::NEG_INFINITY);
    let z = rows.concat();
    let draws = [TokenDraw { temperature: 1.0, seed: 2, counter: 0 }; 5];
    let run = |kernels: &Kernels<M>| {
        let on = kernels.array_of(&z).unwrap();
        kernels.choose_tokens(on.as_slice(), &draws).unwrap()
    };
    let drawn = in_every_order(kernels, run);
    assert!(drawn[0].is_ok() && drawn[4].is_ok(), "{drawn:?}");
    let errors = [BadLogits::Nan(70), BadLogits::Infinite(66), BadLogits::NoMass].map(Err);
    assert_eq!(drawn[1..4], errors);
    for (z, drawn) in rows.iter().zip(&drawn[..]).skip(1).take(3) {
        let filter = SamplingFilter::default();
        assert_eq!(sample_token(z, &filter, 0.5).unwrap_err(), drawn.unwrap_err());
    }
    assert_eq!(
        kernels.choose_tokens(kernels.array_of(&[]).unwrap().as_slice(), &draws[..1]).unwrap(),
        [Err(BadLogits::Empty)]
    );
}

pub(super) fn sampled_ids_take_their_places_before_the_host_reads_them<M: Tested>(
    kernels: &Kernels<M>,
) {
    let (n, vocab) = (300, 70);
    let mut z = logits(8, n * vocab);
    z[..vocab].fill(f32::NEG_INFINITY);
    let draws: Vec<TokenDraw> =
        (0..n as u64).map(|seed| TokenDraw { temperature: 0.9, seed, counter: 2 }).collect();
    let from: Vec<u32> = (0..n as u32)
        .map(|i| if i.is_multiple_of(3) { FROM_HOST } else { (i * 7) % n as u32 })
        .collect();
    let given: Vec<u32> = (0..n as u32).map(|i| 100 + i).collect();
    let run = |kernels: &Kernels<M>| {
        let on = kernels.array_of(&z).unwrap();
        let tokens = kernels.launch_sampling(on.as_slice(), &draws).unwrap();
        let (rows, ids) = (kernels.array_of(&from).unwrap(), kernels.array_of(&given).unwrap());
        let at = [rows.as_slice().bits(), ids.as_slice().bits()];
        kernels.replace_ids(&tokens, at, n - 1, vocab).unwrap();
        (kernels.read_array(&ids).unwrap(), kernels.read_sampled(&tokens).unwrap())
    };
    let (ids, tokens) = in_every_order(kernels, run);
    assert_eq!(
        tokens,
        kernels.choose_tokens(kernels.array_of(&z).unwrap().as_slice(), &draws).unwrap()
    );
    assert_eq!(tokens[0], Err(BadLogits::NoMass));
    for (i, id) in ids.iter().enumerate() {
        let want = match from[i] {
            FROM_HOST => given[i],
            _ if i + 1 == n => given[i],
            // A row without a token has any id of the vocabulary.
            row => tokens[row as usize].map_or(0, |token| token.id),
        };
        assert_eq!(*id, want, "id {i}");
    }
}
