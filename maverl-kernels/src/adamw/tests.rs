use super::*;
use crate::testing::{close, random, same_bits, threads, wide};

const CFG: AdamW = AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1 };

#[test]
fn ten_steps_agree_with_torch_in_f64() {
    let n = 101;
    let mut p = random(1, n);
    let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
    let (mut p64, mut m64, mut v64) = (wide(&p), vec![0.0; n], vec![0.0; n]);
    for step in 1..=10 {
        let grad = random(step + 1, n);
        adamw_step(&CFG, step, 0.5, &mut p, &grad, &mut m, &mut v);
        for i in 0..n {
            let g = 0.5 * f64::from(grad[i]);
            p64[i] *= 1.0 - CFG.lr * CFG.weight_decay;
            m64[i] = CFG.beta1 * m64[i] + (1.0 - CFG.beta1) * g;
            v64[i] = CFG.beta2 * v64[i] + (1.0 - CFG.beta2) * g * g;
            let (bc1, bc2) = (1.0 - CFG.beta1.powi(step as i32), 1.0 - CFG.beta2.powi(step as i32));
            p64[i] -= CFG.lr / bc1 * m64[i] / (f64::sqrt(v64[i]) / bc2.sqrt() + CFG.eps);
        }
    }
    close(&p, &p64, 2e-6);
    close(&m, &m64, 2e-6);
    close(&v, &v64, 2e-6);
}

#[test]
fn the_first_step_moves_by_the_learning_rate() {
    let cfg = AdamW { weight_decay: 0.0, ..CFG };
    let mut p = [1.0, 1.0];
    adamw_step(&cfg, 1, 1.0, &mut p, &[3.0, -0.02], &mut [0.0; 2], &mut [0.0; 2]);
    close(&p, &[0.99, 1.01], 1e-6);
}

#[test]
fn threads_do_not_change_bits() {
    let n = 100_003;
    let grad = random(2, n);
    let run = |count| {
        threads(count, || {
            let (mut p, mut m, mut v) = (random(3, n), vec![0.0; n], vec![0.0; n]);
            adamw_step(&CFG, 1, 1.0, &mut p, &grad, &mut m, &mut v);
            (p, sum_of_squares(&grad))
        })
    };
    let (one, four) = (run(1), run(4));
    same_bits(&one.0, &four.0);
    assert_eq!(one.1.to_bits(), four.1.to_bits());
    let want: f64 = wide(&grad).iter().map(|g| g * g).sum();
    assert!((one.1 / want - 1.0).abs() < 1e-12);
}
