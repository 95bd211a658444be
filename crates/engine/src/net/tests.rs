#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use maverl_kernels::attention::{Packing, Segment};
use maverl_kernels::sample::{derive_seed, uniform_number};
use serde_json::{Value, json};

use super::*;
use crate::files::{HfConfig, ModelError, ModelFiles, ModelSource};
use crate::net::ops::{Cpu, Targets};

mod alike;
mod autograd;
#[cfg(feature = "candle")]
mod blocks;
#[cfg(feature = "candle")]
mod candle;
mod contract;
pub(crate) mod counting;
#[cfg(feature = "cuda")]
mod decoding;
mod expert_adapters;
mod expert_parameters;
mod experts;
mod families;
pub(crate) mod mutation;
mod recurrent;
mod reference;
mod replay;
mod slow;
mod variants;

/// Returns a reference fixture of the repository; `tests/fixtures/README.md` describes them.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// Returns the fixture of a larger model from `MAVERL_TEST_DATA`, for an additional check.
pub(crate) fn larger_fixture(name: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("MAVERL_TEST_DATA")?).join("fixtures").join(name);
    dir.is_dir().then_some(dir)
}

pub(super) struct Reference(safetensors::SafeTensors<'static>);

impl Reference {
    pub(super) fn open(dir: &Path) -> Self {
        let bytes = std::fs::read(dir.join("reference.safetensors")).unwrap().leak();
        Self(safetensors::SafeTensors::deserialize(bytes).unwrap())
    }

    pub(super) fn shape(&self, name: &str) -> Vec<usize> {
        self.0.tensor(name).unwrap().shape().to_vec()
    }

    pub(super) fn doubles(&self, name: &str) -> Vec<f64> {
        let view = self.0.tensor(name).unwrap();
        let (wide, narrow) = (view.data().as_chunks().0, view.data().as_chunks().0);
        match view.dtype() {
            safetensors::Dtype::F64 => {
                wide.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
            }
            safetensors::Dtype::F32 => {
                narrow.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the token ids whose logits are stored.
    pub(super) fn columns(&self, vocabulary: usize) -> Vec<usize> {
        if self.has("logits.columns") {
            self.ints("logits.columns").concat().iter().map(|&id| id as usize).collect()
        } else {
            (0..vocabulary).collect()
        }
    }

    /// Returns true if a tensor of that name exists.
    fn has(&self, name: &str) -> bool {
        self.0.tensor(name).is_ok()
    }

    pub(super) fn floats(&self, name: &str) -> Vec<f32> {
        self.doubles(name).iter().map(|x| *x as f32).collect()
    }

    /// Returns the rows of a matrix of integers; a vector is one row.
    pub(super) fn ints(&self, name: &str) -> Vec<Vec<i64>> {
        let view = self.0.tensor(name).unwrap();
        assert_eq!(view.dtype(), safetensors::Dtype::I64);
        let bytes = view.data().as_chunks().0.iter();
        let values: Vec<i64> = bytes.map(|bytes| i64::from_le_bytes(*bytes)).collect();
        values.chunks(*view.shape().last().unwrap()).map(<[i64]>::to_vec).collect()
    }
}

/// Returns the rows of `input_ids` without their padding.
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
    pub(super) ids: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) offsets: Vec<usize>,
}

pub(super) fn pack(rows: &[Vec<u32>]) -> PackedRows {
    let mut offsets = vec![0];
    rows.iter().for_each(|row| offsets.push(offsets.last().unwrap() + row.len()));
    PackedRows {
        ids: rows.concat(),
        positions: rows.iter().flat_map(|row| 0..row.len() as u32).collect(),
        offsets,
    }
}

/// Returns the reference fixtures in each of their layouts: a name, the path of the reference, and the model.
fn layouts() -> Vec<(String, PathBuf, Model)> {
    let families = ["llama", "qwen2", "qwen3"].into_iter();
    let layouts = families.flat_map(|family| [family.to_owned(), format!("{family}/legacy_4x")]);
    let mut found: Vec<_> =
        layouts.clone().map(|name| layout(&name, &fixture(&name), &name)).collect();
    for name in layouts.chain(["qwen3/sharded".to_owned()]) {
        found.extend(
            larger_fixture(&name).map(|dir| layout(&name, &dir, &format!("larger {name}"))),
        );
    }
    found
}

/// Returns the model of a directory whose files replace those of its family.
fn layout(name: &str, dir: &Path, called: &str) -> (String, PathBuf, Model) {
    let reference = if name.contains('/') { dir.parent().unwrap() } else { dir }.to_owned();
    let whole = tempfile::tempdir().unwrap();
    for from in [reference.as_path(), dir] {
        for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_file() && !entry.ends_with("reference.safetensors") {
                std::fs::copy(&entry, whole.path().join(entry.file_name().unwrap())).unwrap();
            }
        }
    }
    if name.ends_with("sharded") {
        std::fs::remove_file(whole.path().join("model.safetensors")).unwrap();
    }
    let source = ModelSource::Directory(whole.path().to_owned());
    (called.to_owned(), reference, Model::load(&ModelFiles::new(&source)).unwrap())
}

/// Number of kinds of models in the families.
pub(super) const KINDS: usize = 4;

/// Returns the `config.json` of a small model of each kind in the families: queries, keys and values with a bias and
/// tied embeddings; normalized heads of their own width; scaled rope; a bias everywhere.
pub(super) fn made_configs() -> [Value; KINDS] {
    let sizes = json!({
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 60,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu"
    });
    let llama3 = json!({
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32
    });
    let kinds = [
        json!({"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": true}),
        json!({"model_type": "qwen3", "rope_theta": 1e6, "head_dim": 10}),
        json!({"model_type": "llama", "rope_parameters": llama3, "tie_word_embeddings": true}),
        json!({"model_type": "llama", "attention_bias": true, "mlp_bias": true}),
    ];
    kinds.map(|kind| {
        let mut config = sizes.clone();
        config.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        config
    })
}

/// Returns a model of a configuration with random numbers everywhere: norms around 1, biases around 0.
pub(super) fn made(config: &Value) -> Model {
    let config = HfConfig::parse(config.to_string().as_bytes()).unwrap();
    let mut tensor = 0;
    let weights = Weights::init(&config, |name, shape| {
        tensor += 1;
        let (center, width) = match shape {
            [_] if name.ends_with("norm.weight") => (1.0, 0.3),
            [_] => (0.0, 0.5),
            shape => (0.0, 1.7 / (shape[1] as f64).sqrt()),
        };
        let n = shape.iter().product::<usize>() as u64;
        let draw = |i| center + width * (2.0 * uniform_number(derive_seed(7, tensor), i) - 1.0);
        (0..n).map(|i| draw(i) as f32).collect()
    });
    Model::new(config, weights.unwrap(), Vec::new()).unwrap()
}

/// Computes the logits of packed rows, `[N, V]`.
pub(super) fn logits_of(decoder: &Decoder, packed: &PackedRows) -> Vec<f32> {
    let (context, mut pool) =
        (Context::Packed(Packing::from_offsets(&packed.offsets)), Pool::default());
    let hidden = decoder.forward(&packed.ids, &packed.positions, context, &mut pool).unwrap();
    decoder.logits(&hidden, &mut pool)
}

/// Splits logits by token.
fn split(logits: &[f32], model: &Model) -> Vec<Vec<f32>> {
    logits.chunks_exact(model.config.vocab_size).map(<[f32]>::to_vec).collect()
}

/// Computes the gradients of all trained weights from those of log-probs of targets after each token.
pub(super) fn gradients_of<'m>(
    model: &'m Model,
    packed: &PackedRows,
    targets: &[u32],
    dlogp: &[f32],
) -> Gradients<'m> {
    gradients_packed(model, packed, Packing::from_offsets(&packed.offsets), targets, dlogp)
}

/// Computes [`gradients_of`] rows that may share prefixes.
pub(super) fn gradients_packed<'m>(
    model: &'m Model,
    packed: &PackedRows,
    packing: Packing<'_>,
    targets: &[u32],
    dlogp: &[f32],
) -> Gradients<'m> {
    let mut gradients = Gradients::new(model.trainable());
    let (mut pool, even) = (Pool::default(), vec![1.0; targets.len()]);
    let rows = Rows { ids: &packed.ids, positions: &packed.positions, packing };
    let tape = Tape::record(&model.decoder, rows, false, &mut pool).unwrap();
    let (decoder, offsets) = (&model.decoder, [0, targets.len()]);
    let loss = |_, _: [&[f32]; 2], [out, _]: [&mut [f32]; 2]| {
        out.copy_from_slice(dlogp);
        Ok(())
    };
    let of = Targets { ids: targets, inv_temperature: &even };
    let dhidden = decoder.loss(tape.hidden(), of, &offsets, &mut gradients, loss);
    let dhidden = dhidden.unwrap();
    tape.backward(&dhidden, &mut gradients, &mut pool).unwrap();
    gradients
}

/// Computes the logits of each row's tokens, in one pass over all rows.
fn packed_logits(model: &Model, rows: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let packed = pack(rows);
    let logits = split(&logits_of(&model.decoder, &packed), model);
    packed.offsets.windows(2).map(|row| logits[row[0]..row[1]].to_vec()).collect()
}

/// Sequences in one store.
struct Caches {
    store: KvStore,
    rows: Vec<CachedRow>,
}

/// Sequence of a store: its blocks, number of tokens, and slot of states.
#[derive(Default)]
struct CachedRow {
    blocks: Vec<u32>,
    len: usize,
    state: u32,
}

impl Caches {
    fn new(model: &Model, rows: usize) -> Self {
        let mut store = KvStore::new(&model.config);
        let rows = (0..rows).map(|_| CachedRow { state: store.add_slot(), ..CachedRow::default() });
        let rows = rows.collect();
        Self { store, rows }
    }

    /// Creates `rows` sequences that share the prefix of the only sequence: whole blocks are shared, the last block is
    /// copied.
    fn fan_out(&mut self, rows: usize) {
        let CachedRow { blocks, len, state: from } = self.rows.remove(0);
        let (whole, rest) = (len / KvStore::TOKENS, len % KvStore::TOKENS);
        for _ in 0..rows {
            let mut own = blocks[..whole].to_vec();
            if rest > 0 {
                own.push(self.store.add());
                self.store.copy(blocks[whole], own[whole], rest);
            }
            let state = self.store.add_slot();
            self.store.copy_slot(from, state);
            self.rows.push(CachedRow { blocks: own, len, state });
        }
    }
}

/// Feeds each sequence its next tokens on top of its cache, in one pass. Returns the logits of those tokens.
fn cached_logits(model: &Model, caches: &mut Caches, next: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let Caches { store, rows } = caches;
    let mut positions = Vec::new();
    for (CachedRow { blocks, len, .. }, next) in rows.iter_mut().zip(next) {
        positions.extend((*len as u32..).take(next.len()));
        *len += next.len();
        while blocks.len() * KvStore::TOKENS < *len {
            blocks.push(store.add());
        }
    }
    let segments = rows.iter().zip(next);
    let segments: Vec<Segment<'_>> = segments
        .map(|(row, next)| Segment {
            new_tokens: next.len(),
            len: row.len,
            blocks: &row.blocks,
            state: row.state,
        })
        .collect();
    let (context, mut pool) = (Context::Cached(store, &segments), Pool::default());
    let hidden = model.decoder.forward(&next.concat(), &positions, context, &mut pool).unwrap();
    let mut logits = split(&model.decoder.logits(&hidden, &mut pool), model).into_iter();
    next.iter().map(|next| logits.by_ref().take(next.len()).collect()).collect()
}

/// Returns the largest difference between numbers.
fn furthest<'a>(a: impl IntoIterator<Item = &'a f32>, b: impl IntoIterator<Item = &'a f32>) -> f32 {
    a.into_iter().zip(b).fold(0.0, |most, (a, b)| {
        assert!(a.is_finite() && b.is_finite(), "{a} and {b}");
        most.max((a - b).abs())
    })
}
