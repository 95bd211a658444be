//! Every family on candle's CPU, beside the native one: log-probs, gradients, caches, shared prefixes, adapters with dropout.

use std::sync::Arc;

use super::reference::unpadded;
use super::*;
use crate::net::lora::{Patterns, linear_names, with_dropout};
use crate::net::ops::candle::Candle;
use crate::net::ops::{Backend, TokenChoice};

/// Largest difference of a log-prob from transformers'; of those with Gated DeltaNet, whose own f32 is 1e-4 off.
const LOGPROB: [f32; 2] = [1e-4, 2e-4];
/// Largest difference of a gradient from the native one, relative to its norm; of those with Gated DeltaNet.
const GRADIENT: [f64; 2] = [1e-4, 2e-4];
/// Largest difference of a hidden state of a token in a cache from that in packed rows.
const ROW: f32 = 5e-5;

/// Returns every family with its reference.
fn families() -> impl Iterator<Item = (String, Model, Reference)> {
    let first = ["llama", "qwen2", "qwen3"].map(|name| (name.to_owned(), fixture(name)));
    let others = std::fs::read_dir(fixture("families")).unwrap().map(|entry| entry.unwrap().path());
    let mut others: Vec<PathBuf> = others.filter(|dir| dir.join("config.json").exists()).collect();
    others.sort();
    let name = |dir: &Path| dir.file_name().unwrap().to_string_lossy().into_owned();
    let others: Vec<_> = others.into_iter().map(|dir| (name(&dir), dir)).collect();
    assert_eq!(others.len(), 15);
    first.into_iter().chain(others).map(|(name, dir)| {
        let source = ModelSource::Directory(dir.clone());
        (name, Model::load(&ModelFiles::new(&source)).unwrap(), Reference::open(&dir))
    })
}

fn norm(of: impl Iterator<Item = f64>) -> f64 {
    of.map(|x| x * x).sum::<f64>().sqrt()
}

/// Returns the norm of the difference, relative to the norm of what is expected.
pub(super) fn apart(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let off = norm(found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let of = norm(expected.iter().map(|x| f64::from(*x)));
    if of == 0.0 { off } else { off / of }
}

/// Computes log-probs of targets and the gradients of all trained weights, from derivatives that fall and rise.
pub(super) fn trained<O: Backend>(
    model: &Model<O>,
    decoder: &Decoder<O>,
    packed: &PackedRows,
    packing: Packing<'_>,
) -> (Vec<f32>, Vec<f32>) {
    let (ops, n) = (decoder.ops(), packed.ids.len());
    let targets: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 3) % 60).collect();
    let (mut pool, even) = (Pool::default(), vec![1.0; n]);
    let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
    let mut gradients = Gradients::on(ops, model.trainable()).unwrap();
    let tape = Tape::record(decoder, rows, false, &mut pool).unwrap();
    let logp = decoder.logprobs(tape.hidden(), &targets, &even).unwrap().0;
    let loss = |_, _: [&[f32]; 2], [dlogp, dentropy]: [&mut [f32]; 2]| {
        dlogp.iter_mut().enumerate().for_each(|(i, d)| *d = 0.5 + (i % 3) as f32);
        dentropy.iter_mut().enumerate().for_each(|(i, d)| *d = 0.2 * (i % 2) as f32);
        Ok(())
    };
    let of = Targets { ids: &targets, inv_temperature: &even };
    let dhidden = decoder.loss(tape.hidden(), of, &[0, n], &mut gradients, loss).unwrap();
    tape.backward(&dhidden, &mut gradients, &mut pool).unwrap();
    let sums = ops.read_sums(gradients.all_sums().unwrap()).unwrap().into_owned();
    (logp, sums)
}

/// Asserts that log-probs and gradients on candle are the native ones. Returns the largest differences.
fn same_training<O: Backend>(
    what: &str,
    (native, found): (&Model, &Model<O>),
    decoders: (&Decoder, &Decoder<O>),
    packed: &PackedRows,
    packing: Packing<'_>,
) -> (f32, f64) {
    let (expected, gradients) = trained(native, decoders.0, packed, packing);
    let (logp, sums) = trained(found, decoders.1, packed, packing);
    let off = furthest(&logp, &expected);
    assert!(off <= LOGPROB[1], "{what}: {off:e}");
    let mut worst = 0.0_f64;
    for (name, var) in native.trainable().vars() {
        let of = apart(&sums[var.range()], &gradients[var.range()]);
        assert!(
            of <= GRADIENT[usize::from(what.starts_with("qwen3_5"))],
            "{what}, `{name}`: {of:e}"
        );
        worst = worst.max(of);
    }
    (off, worst)
}

#[test]
fn every_family_has_the_log_probs_of_transformers_and_the_native_gradients() {
    for (name, model, reference) in families() {
        let found = Candle::cpu().load(model.clone(), true).unwrap();
        let rows = rows(&reference, "right");
        let packed = pack(&rows);
        let targets: Vec<u32> =
            rows.iter().flat_map(|row| row.iter().copied().skip(1).chain([0])).collect();
        let (context, mut pool) =
            (Context::Packed(Packing::from_offsets(&packed.offsets)), Pool::default());
        let hidden =
            found.decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
        let (logp, _) =
            found.decoder.logprobs(&hidden, &targets, &vec![1.0; targets.len()]).unwrap();
        let spans = packed.offsets.windows(2);
        let logp: Vec<f32> = spans.flat_map(|row| logp[row[0]..row[1] - 1].to_vec()).collect();
        let off = furthest(&logp, &unpadded(&reference, "right.logprobs", 1));
        let bound = LOGPROB[usize::from(name.starts_with("qwen3_5"))];
        assert!(off <= bound, "{name}: {off:e}");
        let packing = Packing::from_offsets(&packed.offsets);
        let decoders = (&model.decoder, &found.decoder);
        let (_, worst) = same_training(&name, (&model, &found), decoders, &packed, packing);
        println!("{name}: log-probs differ by {off:.1e}, gradients by {worst:.1e}");
    }
}

#[test]
fn rows_with_a_shared_prefix_have_the_native_gradients() {
    for (name, model, reference) in families() {
        let found = Candle::cpu().load(model.clone(), true).unwrap();
        let row = rows(&reference, "right").remove(0);
        let parts = [row[..9].to_vec(), row[9..].to_vec(), row[1..8].to_vec(), row[..3].to_vec()];
        let mut packed = pack(&parts);
        let (end, own) = (row.len() as u32, packed.ids.len());
        let positions = (0..end).chain(9..16).chain(16..19);
        packed.positions = positions.collect();
        assert_eq!(packed.positions.len(), own);
        let parents = [None, Some(0), Some(0), Some(2)];
        let packing = Packing { offsets: &packed.offsets, parents: &parents };
        let decoders = (&model.decoder, &found.decoder);
        let (off, worst) = same_training(&name, (&model, &found), decoders, &packed, packing);
        println!("{name}: log-probs differ by {off:.1e}, gradients by {worst:.1e}");
    }
}

/// Choice that keeps the logits of a row.
struct Kept(usize, Vec<f32>);

impl TokenChoice for Kept {
    fn row(&self) -> Option<usize> {
        Some(self.0)
    }

    fn draw(&self) -> Option<maverl_kernels::sample::TokenDraw> {
        None
    }

    fn choose(&mut self, logits: &[f32]) -> Result<(), ModelError> {
        self.1 = logits.to_vec();
        Ok(())
    }

    fn take_drawn(
        &mut self,
        _: Result<maverl_kernels::sample::Sampled, maverl_kernels::sample::BadLogits>,
    ) -> Result<(), ModelError> {
        Err(ModelError::wrong_argument("no draw"))
    }
}

#[test]
fn a_cache_of_blocks_and_slots_gives_the_hidden_states_of_packed_rows() {
    for (name, model, reference) in families() {
        let ops = Candle::cpu();
        let found = ops.load(model.clone(), false).unwrap();
        let (row, width) = (rows(&reference, "right").remove(0), model.config.hidden_size);
        let (mut pool, positions) = (Pool::default(), (0..row.len() as u32).collect::<Vec<_>>());
        let offsets = [0, row.len()];
        let context = Context::Packed(Packing::from_offsets(&offsets));
        let whole = found.decoder.forward(&row, &positions, context, &mut pool).unwrap();
        let whole = ops.read(&whole).unwrap().into_owned();
        let blocks: Vec<u32> = (0..row.len().div_ceil(KvStore::TOKENS) as u32).rev().collect();
        let mut kv = ops.kv(&model.config, blocks.len());
        for _ in &blocks {
            ops.add_block(&mut kv).unwrap();
        }
        let [state, other] = [(); 2].map(|()| ops.add_slot(&mut kv).unwrap());
        let (mut done, mut off) = (0, 0.0_f32);
        for n in [5, 1, 1, 7, 1].into_iter().cycle() {
            let len = row.len().min(done + n);
            if len == done {
                break;
            }
            // The states move to another slot and back.
            ops.copy_slot(&mut kv, [state, other]).unwrap();
            ops.reset_slot(&mut kv, state).unwrap();
            ops.copy_slot(&mut kv, [other, state]).unwrap();
            let segment = [Segment { new_tokens: len - done, len, blocks: &blocks, state }];
            let context = Context::Cached(&mut kv, &segment);
            let (ids, at) = (&row[done..len], &positions[done..len]);
            let hidden = found.decoder.forward(ids, at, context, &mut pool).unwrap();
            let hidden = ops.read(&hidden).unwrap();
            off = off.max(furthest(&hidden[..], &whole[done * width..len * width]));
            done = len;
        }
        println!("{name}: hidden states differ by {off:.1e}");
        assert!(off <= ROW, "{name}: {off:e}");
        let hidden = ops.act(whole).unwrap();
        let mut choices = [Kept(1, Vec::new()), Kept(0, Vec::new())];
        found.decoder.choose(&hidden, &[3, 4], &mut choices, &mut pool).unwrap();
        let logits = found.decoder.read_logits(&hidden, &[4, 3], &mut pool).unwrap();
        let kept = [&choices[0].1[..], &choices[1].1].concat();
        assert!(furthest(&kept, &logits) <= ROW, "{name}: other logits");
    }
}

/// Returns an adapter of all linear maps, those of experts included where a family has adapters of them.
pub(super) fn corrected(name: &str, base: &HfConfig) -> LoraConfig {
    let of_experts =
        if name == "qwen3_moe" { &["gate_proj", "up_proj", "down_proj"][..] } else { &[] };
    let mut target_modules = linear_names(base);
    target_modules.extend(of_experts.iter().map(|&name| name.to_owned()));
    let (rslora, patterns) = (false, Patterns::default());
    LoraConfig { rank: 3, alpha: 4.0, dropout: 0.0, target_modules, rslora, patterns }
}

#[test]
fn adapters_with_dropout_have_the_native_gradients() {
    for (name, model, reference) in families() {
        let adapter = Adapter::new(&model.config, corrected(&name, &model.config), 5).unwrap();
        // B begins at zero, and would have no part in the gradients.
        adapter.params().update(|values| {
            let draw = |i: usize| uniform_number(derive_seed(3, 1), i as u64) as f32 - 0.5;
            values.iter_mut().enumerate().for_each(|(i, value)| *value = 0.2 * draw(i));
        });
        let model = model.with_adapter(adapter);
        let found = Candle::cpu().load(model.clone(), true).unwrap();
        let packed = pack(&rows(&reference, "right"));
        let keys: Arc<[u64]> = (0..packed.ids.len() as u64).map(|i| derive_seed(11, i)).collect();
        let native = with_dropout(&model.decoder, 0.3, &keys);
        let other = with_dropout(&found.decoder, 0.3, &keys);
        let packing = Packing::from_offsets(&packed.offsets);
        let (off, worst) =
            same_training(&name, (&model, &found), (&native, &other), &packed, packing);
        println!("{name}: log-probs differ by {off:.1e}, gradients by {worst:.1e}");
    }
}
