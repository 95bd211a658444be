#![allow(clippy::unwrap_used)]

use super::*;
use crate::files::{ModelFiles, ModelSource};
use crate::net::{Gradients, Model, Tape};

fn row(prompt: &[u32], completion: &[u32]) -> Row {
    let (prompt, completion) = (prompt.to_vec(), completion.to_vec());
    Row { prompt, completion, temperature: 0.7, ..Row::default() }
}

/// Returns a number below `end` from a sequence of numbers.
fn draw(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

/// Returns rows whose prompts are the beginning of another row, changed after some tokens, or new.
pub(crate) fn random_rows(seed: u64, count: usize) -> Vec<Row> {
    let mut state = seed;
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..count {
        let mut prompt = match rows.len() as u64 {
            0 => Vec::new(),
            count => {
                let from = &rows[draw(&mut state, count) as usize];
                let mut text = [&from.prompt[..], &from.completion].concat();
                text.truncate(1 + draw(&mut state, text.len() as u64) as usize);
                text
            }
        };
        let own = draw(&mut state, if prompt.is_empty() { 40 } else { 12 }) + 1;
        prompt.extend((0..own).map(|_| draw(&mut state, 90) as u32));
        let length = 1 + draw(&mut state, 9);
        let completion: Vec<u32> = (0..length).map(|_| draw(&mut state, 3) as u32).collect();
        rows.push(row(&prompt, &completion));
    }
    rows
}

fn tiny() -> Model {
    Model::load(&ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()))).unwrap()
}

/// Returns log-probs of rows, entropies, and gradients of a weighted sum of both.
fn scored(model: &Model, rows: &[&Row], share: bool) -> ([Vec<f32>; 2], Vec<f32>) {
    let packed = PackedRows::of_rows(rows, share);
    let (decoder, ops, mut pool) = (&model.decoder, model.decoder.ops(), Pool::default());
    let mut gradients = Gradients::new(model.trainable());
    let tape = Tape::record(decoder, packed.rows(), false, &mut pool).unwrap();
    let hidden = packed.predicting(ops, tape.hidden()).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    let loss = |some: std::ops::Range<usize>,
                values: [&[f32]; 2],
                [dlogp, dentropy]: [&mut [f32]; 2]| {
        found.iter_mut().zip(values).for_each(|(found, values)| found.extend_from_slice(values));
        dlogp.fill(0.3 - some.start as f32);
        dentropy.fill(0.01);
        Ok(())
    };
    let of = packed.predicted();
    let d = decoder.loss(&hidden, of, &packed.completions, &mut gradients, loss).unwrap();
    tape.backward(&packed.spread(ops, &d).unwrap(), &mut gradients, &mut pool).unwrap();
    (found, gradients.sums().unwrap().concat())
}

fn norm(x: impl Iterator<Item = f32>) -> f64 {
    x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

#[test]
fn a_common_beginning_is_there_once_and_entries_keep_their_tokens() {
    let rows = random_rows(3, 12);
    let rows: Vec<&Row> = rows.iter().collect();
    let [shared, apart] = [true, false].map(|share| PackedRows::of_rows(&rows, share));
    assert!(shared.tokens() < apart.tokens());
    assert_eq!((&shared.targets, &shared.completions), (&apart.targets, &apart.completions));
    let before = |packed: &PackedRows| -> Vec<(u32, u32)> {
        let Rows { ids, positions, .. } = packed.rows();
        packed.before.iter().map(|&at| (ids[at as usize], positions[at as usize])).collect()
    };
    assert_eq!(before(&shared), before(&apart));
}

#[test]
fn a_tree_has_the_log_probs_of_rows_alone_to_the_bit_and_their_gradient() {
    let model = tiny();
    for (seed, count) in [(1, 2), (2, 5), (7, 9), (4, 14)] {
        let rows = random_rows(seed, count);
        let rows: Vec<&Row> = rows.iter().collect();
        let [shared, apart] = [true, false].map(|share| scored(&model, &rows, share));
        assert_eq!(shared.0, apart.0, "seed {seed}");
        let pairs = shared.1.iter().zip(&apart.1);
        let far = norm(pairs.map(|(a, b)| a - b)) / norm(apart.1.iter().copied());
        assert!(far < 1e-6, "seed {seed}: {far:e}");
    }
}
