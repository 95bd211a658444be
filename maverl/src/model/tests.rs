#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::plan::ModelSource;

/// The reference fixtures, if this machine has them.
pub(super) fn fixture(name: &str) -> Option<PathBuf> {
    let Ok(data) = std::env::var("MAVERL_TEST_DATA") else {
        println!("skipped: MAVERL_TEST_DATA is not set, so there is no reference to compare with");
        return None;
    };
    Some(PathBuf::from(data).join("fixtures").join(name))
}

pub(super) struct Reference(safetensors::SafeTensors<'static>);

impl Reference {
    pub(super) fn open(dir: &Path) -> Self {
        let bytes = std::fs::read(dir.join("reference.safetensors")).unwrap().leak();
        Self(safetensors::SafeTensors::deserialize(bytes).unwrap())
    }

    pub(super) fn tensor(&self, name: &str) -> Tensor {
        let view = self.0.tensor(name).unwrap();
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F64 => DType::F64,
            safetensors::Dtype::I64 => DType::I64,
            other => panic!("{other:?}"),
        };
        Tensor::from_raw_buffer(view.data(), dtype, view.shape(), &Device::Cpu).unwrap()
    }

    pub(super) fn floats(&self, name: &str) -> Vec<f32> {
        self.tensor(name).to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    pub(super) fn ints(&self, name: &str) -> Vec<Vec<i64>> {
        self.tensor(name).to_vec2().unwrap()
    }
}

/// The rows of `input_ids` without their padding.
pub(super) fn rows(reference: &Reference, side: &str) -> Vec<Vec<u32>> {
    let (ids, mask) = (
        reference.ints(&format!("{side}.input_ids")),
        reference.ints(&format!("{side}.attention_mask")),
    );
    let row = |(ids, mask): (&Vec<i64>, &Vec<i64>)| -> Vec<u32> {
        ids.iter().zip(mask).filter(|(_, m)| **m == 1).map(|(id, _)| *id as u32).collect()
    };
    ids.iter().zip(&mask).map(row).collect()
}

pub(super) struct PackedRows {
    pub(super) ids: Arc<[u32]>,
    pub(super) positions: Arc<[u32]>,
    pub(super) offsets: Arc<[usize]>,
}

pub(super) fn pack(rows: &[Vec<u32>]) -> PackedRows {
    let mut offsets = vec![0];
    rows.iter().for_each(|row| offsets.push(offsets.last().unwrap() + row.len()));
    PackedRows {
        ids: rows.concat().into(),
        positions: rows.iter().flat_map(|row| 0..row.len() as u32).collect(),
        offsets: offsets.into(),
    }
}

#[test]
fn packed_logits_equal_the_reference() {
    let Some(dir) = fixture("qwen2") else { return };
    let reference = Reference::open(&dir);
    for dir in [dir.clone()] {
        let model = Model::load(&ModelFiles::new(&ModelSource::Directory(dir))).unwrap();
        let rows = rows(&reference, "right");
        let packed = pack(&rows);
        let hidden = model
            .frozen
            .forward(&packed.ids, &packed.positions, Context::Packed(&packed.offsets))
            .unwrap();
        let logits = model.frozen.logits(&hidden).unwrap().to_vec2::<f32>().unwrap();
        let expected: Vec<Vec<Vec<f32>>> = reference.tensor("right.logits").to_vec3().unwrap();
        let mut at = 0;
        let mut worst = 0.0_f32;
        for (row, expected) in rows.iter().zip(&expected) {
            for expected in &expected[..row.len()] {
                worst =
                    logits[at].iter().zip(expected).fold(worst, |w, (a, b)| w.max((a - b).abs()));
                at += 1;
            }
        }
        println!("max |logit difference| {worst:e}");
        assert!(worst < 2e-4, "{worst}");
    }
}

#[test]
fn every_gradient_equals_the_reference() {
    let Some(dir) = fixture("qwen2") else { return };
    let reference = Reference::open(&dir);
    let model = Model::load(&ModelFiles::new(&ModelSource::Directory(dir))).unwrap();
    let rows = rows(&reference, "right");
    let packed = pack(&rows);
    let (mask, width) = (reference.floats("loss_mask"), 31);
    let (mut before, mut targets, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    for (r, row) in rows.iter().enumerate() {
        for t in 0..row.len() - 1 {
            before.push((start + t) as u32);
            targets.push(row[t + 1]);
            weights.push(mask[r * width + t]);
        }
        start += row.len();
    }
    let total: f32 = mask.iter().sum();
    let hidden = model
        .tracked
        .forward(&packed.ids, &packed.positions, Context::Packed(&packed.offsets))
        .unwrap();
    let hidden = nn::pick(&hidden, &before.into()).unwrap();
    let inv_temperature = vec![1.0; targets.len()].into();
    let out =
        nn::token_logprobs(&hidden, model.tracked.head(), targets.into(), inv_temperature).unwrap();
    let n = weights.len();
    let weights = nn::tensor(weights, n).unwrap();
    let loss =
        ((out.get(0).unwrap() * weights).unwrap().sum_all().unwrap() / -f64::from(total)).unwrap();
    let expected = reference.floats("loss")[0];
    assert!((loss.to_scalar::<f32>().unwrap() - expected).abs() < 1e-4);
    let grads = loss.backward().unwrap();
    for (name, var) in model.weights.vars() {
        let grad: Vec<f32> = grads.get(var).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let norm = grad.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let expected: f64 = reference
            .tensor(&format!("grad_l2.{name}"))
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap()[0];
        assert!(
            (norm - expected).abs() <= 1e-3 * expected,
            "{name}: |g| {norm}, reference {expected}"
        );
        let dot: f64 = grad.iter().enumerate().map(|(i, g)| f64::from(*g) * (i as f64).cos()).sum();
        let expected_dot = reference
            .tensor(&format!("grad_dot.{name}"))
            .flatten_all()
            .unwrap()
            .to_vec1::<f64>()
            .unwrap()[0];
        assert!(
            (dot - expected_dot).abs() <= 1e-3 * expected.max(1e-6),
            "{name}: dot {dot}, reference {expected_dot}"
        );
    }
}
