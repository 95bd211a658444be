use super::*;
use crate::testing::{random, same_bits, threads, wide};

/// Returns the product of a matrix `[m, k]` and the transpose of one `[n, k]`.
fn product(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
    let dot = |i: usize, j: usize| (0..k).map(|t| a[i * k + t] * b[j * k + t]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| dot(i, j))).collect()
}

fn transposed(x: &[f64], (rows, columns): (usize, usize)) -> Vec<f64> {
    (0..columns).flat_map(|j| (0..rows).map(move |i| x[i * columns + j])).collect()
}

/// Computes the iteration in f64.
fn reference(x: &[f64], (rows, columns): (usize, usize)) -> Vec<f64> {
    if rows > columns {
        let found = reference(&transposed(x, (rows, columns)), (columns, rows));
        return transposed(&found, (columns, rows));
    }
    let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + EPS;
    let mut x: Vec<f64> = x.iter().map(|x| x / norm).collect();
    let [a, b, c] = COEFFICIENTS.map(f64::from);
    for _ in 0..STEPS {
        let gram = product(&x, &x, (rows, rows, columns));
        let squared = product(&gram, &gram, (rows, rows, rows));
        let mixed: Vec<f64> = gram.iter().zip(&squared).map(|(g, s)| b * g + c * s).collect();
        let by = product(&mixed, &transposed(&x, (rows, columns)), (rows, columns, rows));
        x.iter_mut().zip(by).for_each(|(x, by)| *x = a * *x + by);
    }
    x
}

fn close_to(found: &[f32], wanted: &[f64], tolerance: f64) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((f64::from(*found) - wanted).abs() < tolerance, "{found} is not {wanted}");
    }
}

#[test]
fn a_step_agrees_with_recorded_values() {
    let weight = [
        -0.640804, 0.188293, 1.852888, 0.981316, 0.689246, -0.962568, -0.722707, 0.592388,
        -0.128306, 1.163307, -0.744676, -0.544624,
    ];
    let grad = [
        0.974879, -1.110121, 0.97746, 0.819542, -0.135925, -0.216023, -1.46997, 1.483827,
        -0.908088, -0.282902, 0.13712, -2.022753,
    ];
    let momentum = [
        1.086505, 0.315676, 1.484819, 0.949031, -0.639148, -0.644868, 0.886594, -0.595394,
        -0.407496, 0.513292, 1.499823, 0.707096,
    ];
    let wanted_momentum = [
        2.00705875, -0.8102288, 2.38803805, 1.72112145, -0.7431156, -0.8286476, -0.6277057,
        0.9182027, -1.2952092, 0.2047254, 1.56195185, -1.3510118,
    ];
    let wanted = [
        -0.6430325228452766,
        0.19122703384677728,
        1.844719918757536,
        0.9754207856202632,
        0.6906231128751525,
        -0.9573687440606536,
        -0.7191998934533781,
        0.5875816365165758,
        -0.1234919675733404,
        1.162547992518071,
        -0.7454749312076214,
        -0.5393692137676016,
    ];
    let cfg = Muon { lr: 0.02, momentum: 0.95, weight_decay: 0.1 };
    // A gradient of twice the size, halved by its factor.
    let double: Vec<f32> = grad.iter().map(|grad| 2.0 * *grad as f32).collect();
    let [mut weight, mut m] = [weight, momentum].map(|x| x.map(|x| x as f32));
    let squares = muon_step(&cfg, 0.5, &mut weight, &double, &mut m, (3, 4));
    close_to(&m, &wanted_momentum, 1e-6);
    close_to(&weight, &wanted, 1e-6);
    let direction = orthogonalized(vec![1.0; 12], (3, 4));
    assert!(squares > 0.0 && direction.iter().all(|x| x.is_finite()));
}

#[test]
fn directions_agree_with_f64_in_both_orientations_and_have_even_singular_values() {
    for (seed, shape) in [(1, (5, 12)), (2, (12, 5)), (3, (40, 40)), (4, (1, 7)), (5, (33, 130))] {
        let (rows, columns) = shape;
        let x = random(seed, rows * columns);
        let found = orthogonalized(x.clone(), shape);
        close_to(&found, &reference(&wide(&x), shape), 2e-4);
        let squares: f64 = wide(&found).iter().map(|x| x * x).sum();
        let mean = squares / rows.min(columns) as f64;
        assert!((0.4..1.3).contains(&mean), "{shape:?}: the mean square is {mean}");
    }
    assert_eq!(orthogonalized(vec![0.0; 6], (2, 3)), [0.0; 6]);
}

#[test]
fn threads_do_not_change_bits() {
    let (rows, columns) = (96, 130);
    let run = |count| {
        threads(count, || {
            let cfg = Muon { lr: 0.1, momentum: 0.9, weight_decay: 0.0 };
            let mut param = random(3, rows * columns);
            let mut m = random(4, rows * columns);
            let grad = random(5, rows * columns);
            let squares = muon_step(&cfg, 1.0, &mut param, &grad, &mut m, (rows, columns));
            (param, m, squares)
        })
    };
    let (one, four) = (run(1), run(4));
    same_bits(&one.0, &four.0);
    same_bits(&one.1, &four.1);
    assert_eq!(one.2.to_bits(), four.2.to_bits());
}
