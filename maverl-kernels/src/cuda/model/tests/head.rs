use std::convert::Infallible;
use std::ops::Range;

use super::*;
use crate::cuda::HeadInput;
use crate::logprob::LmHead;
use crate::matmul::Precision;

const OFFSETS: [usize; 6] = [0, 5, 5, 12, 30, 37];

/// A loss whose derivatives depend on its arguments.
fn loss(
    _: Range<usize>,
    [logp, entropy]: [&[f32]; 2],
    [dlogp, dentropy]: [&mut [f32]; 2],
) -> Result<(), Infallible> {
    dlogp.iter_mut().zip(logp).for_each(|(by, logp)| *by = logp * 0.1 - 0.5);
    dentropy.iter_mut().zip(entropy).for_each(|(by, entropy)| *by = entropy * 0.05);
    Ok(())
}

pub(super) fn a_loss_of_the_head_agrees_with_the_cpu_and_does_not_depend_on_chunks<M: Tested>(
    kernels: &Kernels<M>,
) {
    let (n, vocab, d) = (37, 133, 24);
    let (h, w) = (random_bf16(1, n * d), random_bf16(2, vocab * d));
    // Rows with one target, then with three.
    for k in [1, 3] {
        loss_of_the_head(kernels, [n, vocab, d], (&h, &w), k);
    }
}

/// Compares log-probabilities, entropies and gradients of rows with `k` targets with those of the CPU.
fn loss_of_the_head<M: Tested>(
    kernels: &Kernels<M>,
    [n, vocab, d]: [usize; 3],
    (h, w): (&[u16], &[u16]),
    k: usize,
) {
    let targets: Vec<u32> = (0..n * k).map(|i| (i * 29 % vocab) as u32).collect();
    let inverses: Vec<f32> = (0..n).map(|i| 1.0 + 0.05 * i as f32).collect();
    let of = |rows_at_once: usize| {
        let (h, w) = (kernels.array_of(h).unwrap(), kernels.array_of(w).unwrap());
        let head = HeadInput {
            h: h.as_slice(),
            w: w.as_slice(),
            targets: &targets,
            inverse_temperatures: &inverses,
            rows_at_once,
        };
        let results = kernels.head_log_probabilities(&head).unwrap();
        let mut dh = kernels.new_array(n * d).unwrap();
        let mut dw = kernels.array_of(&vec![0.25; vocab * d]).unwrap();
        let (to, sums) = (dh.slice_mut(), Some(dw.slice_mut()));
        let Ok(()) = kernels.head_loss(&head, &OFFSETS, loss, to, sums).unwrap();
        (results, kernels.read_array(&dh).unwrap(), kernels.read_array(&dw).unwrap())
    };
    let ([logp, entropy], dh, dw) = of(100);
    for rows in [1, 8, 20] {
        let ([again, entropies], same, sums) = of(rows);
        assert_eq!((bits(&again), bits(&entropies)), (bits(&logp), bits(&entropy)));
        assert_eq!(same, dh);
        let sums: Vec<f64> = sums.into_iter().map(f64::from).collect();
        near("weights in other chunks", &dw, &sums, 1e-6);
    }
    let (h, w) = (from_bf16(h), from_bf16(w));
    let (inv_temperature, precision) = (&inverses[..], Precision::F32);
    let cpu = LmHead { h: &h, w: &w, targets: &targets, inv_temperature, softcap: None, precision };
    let (mut want_logp, mut want_entropy) = (vec![0.0; n * k], vec![0.0; n]);
    cpu.logprobs(&mut want_logp, &mut want_entropy);
    let (mut want_dh, mut want_dw) = (vec![0.0; n * d], vec![0.25; vocab * d]);
    let Ok(()) = cpu.loss_gradients(&OFFSETS, loss, &mut want_dh, Some(&mut want_dw));
    for (name, got, want, tolerance) in [
        ("log-probabilities", &logp, &want_logp, 1e-6),
        ("entropies", &entropy, &want_entropy, 1e-6),
        ("gradients of h", &from_bf16(&dh), &want_dh, 4e-3),
        ("gradients of w", &dw, &want_dw, 4e-3),
    ] {
        let want: Vec<f64> = want.iter().map(|&x| f64::from(x)).collect();
        near(name, got, &want, tolerance);
    }
}
