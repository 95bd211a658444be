#![allow(clippy::unwrap_used)]

use maverl_kernels::attention::Packing;
use maverl_kernels::sample::uniform;

use super::*;
use crate::files::{ModelFiles, ModelSource};

fn random(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| uniform(seed, i) as f32 - 0.5).collect()
}

fn tiny() -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

fn head(kind: HeadKind, width: usize) -> ValueHead {
    let head = ValueHead::of_width(kind, width);
    head.vars()[0].1.set(&random(1, width)).unwrap();
    if let Some((_, bias)) = head.vars().get(1) {
        bias.set(&random(2, 1)).unwrap();
    }
    head
}

/// Computes `Σ c (h · w + b)` in f64.
fn reference(h: &[f64], w: &[f64], b: f64, c: &[f64]) -> f64 {
    let value = |row: &[f64]| row.iter().zip(w).map(|(h, w)| h * w).sum::<f64>() + b;
    h.chunks_exact(w.len()).zip(c).map(|(row, c)| c * value(row)).sum()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

fn close(ours: &[f32], at: &[f64], f: impl Fn(&[f64]) -> f64) {
    assert_eq!(ours.len(), at.len());
    for (i, ours) in wide(ours).iter().enumerate() {
        let moved = |h: f64| {
            let mut at = at.to_vec();
            at[i] += h;
            f(&at)
        };
        let expected = (moved(1e-4) - moved(-1e-4)) / 2e-4;
        assert!((ours - expected).abs() < 1e-5, "{ours} is not {expected}");
    }
}

#[test]
fn gradients_agree_with_central_differences() {
    let head = head(HeadKind::Value, 12);
    let (hidden, c) = (random(3, 5 * 12), random(4, 5));
    let (weight, bias) = head.parts();
    let [h, w, b, wc] = [&hidden, &weight, &bias, &c].map(|v| wide(v));
    let values = head.values(&hidden);
    let loss: f64 = values.iter().zip(&wc).map(|(v, c)| f64::from(*v) * c).sum();
    assert!((loss - reference(&h, &w, b[0], &wc)).abs() < 1e-5);
    let mut gradients = Gradients::new(head.params());
    let dh = head.backward(&hidden, &c, &mut gradients);
    let sums = gradients.sums().unwrap();
    close(sums[0], &w, |w| reference(&h, w, b[0], &wc));
    close(sums[1], &b, |b| reference(&h, &w, b[0], &wc));
    close(&dh, &h, |h| reference(h, &w, b[0], &wc));
}

#[test]
fn a_token_has_the_value_alone_that_it_has_in_a_batch() {
    let head = head(HeadKind::Reward, 12);
    let hidden = random(3, 20 * 12);
    let values = head.values(&hidden);
    for (value, hidden) in values.iter().zip(hidden.chunks_exact(12)) {
        assert_eq!(head.values(hidden), [*value]);
    }
}

#[test]
fn a_head_written_and_read_back_is_the_same_to_the_bit() {
    let model = tiny();
    let dir = tempfile::tempdir().unwrap();
    let load = |kind| ValueHead::load(kind, dir.path(), &model.config);
    assert!(load(HeadKind::Value).unwrap().is_none());
    for kind in [HeadKind::Value, HeadKind::Reward, HeadKind::Likelihood] {
        let width = if kind == HeadKind::Likelihood { 1 } else { model.config.hidden_size };
        let head = head(kind, width);
        head.save(dir.path()).unwrap();
        assert_eq!(load(kind).unwrap().unwrap().parts(), head.parts());
    }
    head(HeadKind::Value, model.config.hidden_size + 1).save(dir.path()).unwrap();
    let error = load(HeadKind::Value).unwrap_err().to_string();
    assert!(error.contains("value_head.safetensors: weight is [1, "), "{error}");
}

#[test]
fn every_weight_of_a_critic_gets_a_gradient_and_it_is_saved_whole() {
    let model = tiny();
    let head = head(HeadKind::Value, model.config.hidden_size);
    let critic = ValueModel { model, head };
    let (ids, positions): (Vec<u32>, Vec<u32>) = ((1..20).collect(), (0..19).collect());
    let rows = Rows { ids: &ids, positions: &positions, packing: Packing::of(&[0, 19]) };
    let mut pool = Pool::default();
    let (tape, values) = critic.values(rows, &mut pool).unwrap();
    let mut trunk = Gradients::new(critic.model.trainable());
    let mut head = Gradients::new(critic.head.params());
    critic.backward(tape, &[1.0; 19], &mut trunk, &mut head, &mut pool).unwrap();
    assert!(
        trunk.sums().is_ok()
            && head.sums().is_ok()
            && trunk.norm(critic.model.decoder.ops()).unwrap() > 0.0
    );
    let dir = tempfile::tempdir().unwrap();
    critic.save(dir.path()).unwrap();
    let files = ModelFiles::new(&ModelSource::Directory(dir.path().to_owned()));
    let model = Model::load(&files).unwrap();
    let head = ValueHead::load(HeadKind::Value, dir.path(), &model.config).unwrap().unwrap();
    assert_eq!(ValueModel { model, head }.values(rows, &mut pool).unwrap().1, values);
}

#[test]
fn a_new_head_says_zero() {
    let model = tiny();
    let head = ValueHead::new(HeadKind::Value, &model.config);
    assert_eq!(head.values(&random(1, 3 * model.config.hidden_size)), [0.0; 3]);
}

#[test]
fn a_new_head_of_log_probs_says_them() {
    let head = ValueHead::new(HeadKind::Likelihood, &tiny().config);
    assert_eq!(head.values(&[-0.5, 0.0, -7.25]), [-0.5, 0.0, -7.25]);
    head.rescale(2.0, 1.0);
    assert_eq!(head.values(&[-0.5]), [0.0]);
}

#[test]
fn a_head_of_rewards_has_no_bias_and_its_weight_gets_a_gradient() {
    let head = head(HeadKind::Reward, 12);
    assert_eq!((head.vars().len(), head.parts().1), (1, vec![0.0]));
    let mut gradients = Gradients::new(head.params());
    let hidden = random(3, 5 * 12);
    let dh = head.backward(&hidden, &random(4, 5), &mut gradients);
    assert_eq!((dh.len(), gradients.sums().unwrap().len()), (60, 1));
    head.rescale(2.0, 1.0);
    assert_eq!(head.values(&[0.0; 12]), [0.0]);
}
