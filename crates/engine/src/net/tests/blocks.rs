//! Bases in the blocks of GGUF files on candle, beside the same numbers in f32.

use std::sync::Arc;

use super::candle::{apart, corrected, trained};
use super::*;
use crate::files::blank::{SHAPES, blank_model};
use crate::files::create::Size;
use crate::files::gguf::NumberKind;
use crate::files::{SaveOptions, Shards, StoredDtype};
use crate::net::gguf::tests::{FAMILIES, copied, options};
use crate::net::lora::with_dropout;
use crate::net::ops::Backend;
use crate::net::ops::candle::Candle;

/// Largest difference of a log-prob from that of the same numbers in f32, on candle and on the CPU.
const LOGPROB: f32 = 1e-5;
/// Largest difference of the gradient of an adapter from the native one, relative to its norm.
const GRADIENT: f64 = 1e-5;
/// Largest share of the bytes of f32 that blocks of at most 8 bits take.
const SHARE: f64 = 0.4;

/// A model of a GGUF file: in f32, and in the blocks of the file.
struct Bases {
    dense: Model,
    blocks: Model,
    files: ModelFiles,
    _home: tempfile::TempDir,
}

impl Bases {
    /// Writes a model of a directory as a file of a kind, and loads it in both ways.
    fn of(files: &ModelFiles, kind: NumberKind) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.gguf");
        Model::load(files).unwrap().save_gguf(&path, files, &options(kind)).unwrap();
        let files = ModelFiles::new(&ModelSource::at(path));
        let (dense, blocks) = (Model::load(&files).unwrap(), Model::load_blocks(&files).unwrap());
        Self { dense, blocks, files, _home: home }
    }

    /// Returns the bytes of the weights in memory, in blocks as a share of those in f32.
    fn share(&self) -> f64 {
        let bytes = |model: &Model| {
            let blocks = model.weights.vars().iter().filter_map(|(_, var)| var.blocks());
            let blocks: usize = blocks.map(|blocks| blocks.bytes().len()).sum();
            blocks + 4 * model.weights.params().elements()
        };
        let planned = Shards::open(&self.files).unwrap().bytes_in_blocks(&self.blocks.config);
        // Places of tensors in an array are multiples of 64 numbers.
        let most = planned + 4 * 64 * self.blocks.weights.vars().len() as u64;
        let found = bytes(&self.blocks);
        assert!((planned..=most).contains(&(found as u64)), "{found} of {planned} bytes");
        found as f64 / bytes(&self.dense) as f64
    }
}

/// Writes a blank model of a published shape whose rows are whole blocks of every kind, but for those of `down_proj` of experts.
fn wide(name: &str, dir: &Path) -> ModelFiles {
    let published = SHAPES.iter().find(|shape| shape.name == name).unwrap();
    let size = Size {
        vocab_size: 1024,
        hidden_size: 256,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        intermediate_size: 512,
        ..published.size
    };
    blank_model(dir, published.resized(size), StoredDtype::F32, 3).unwrap();
    ModelFiles::new(&ModelSource::Directory(dir.to_owned()))
}

/// Asserts that a base in blocks has the log-probs of its numbers in f32, and an adapter on it their gradients, with dropout.
fn same(what: &str, bases: &Bases, rows: &[Vec<u32>]) {
    let adapter = Adapter::new(&bases.dense.config, corrected("", &bases.dense.config), 5).unwrap();
    // B begins at zero, and would have no part in the gradients.
    adapter.params().update(|values| {
        let draw = |i: usize| uniform_number(derive_seed(3, 1), i as u64) as f32 - 0.5;
        values.iter_mut().enumerate().for_each(|(i, value)| *value = 0.1 * draw(i));
    });
    let [dense, blocks] =
        [&bases.dense, &bases.blocks].map(|base| base.with_adapter(adapter.clone()));
    let [found, in_f32] =
        [&blocks, &dense].map(|model| Candle::cpu().load(model.clone(), true).unwrap());
    let packed = pack(rows);
    let packing = Packing::from_offsets(&packed.offsets);
    let keys: Arc<[u64]> = (0..packed.ids.len() as u64).map(|i| derive_seed(11, i)).collect();
    let (native, native_gradients) =
        trained(&dense, &with_dropout(&dense.decoder, 0.3, &keys), &packed, packing);
    let (other, _) = trained(&in_f32, &with_dropout(&in_f32.decoder, 0.3, &keys), &packed, packing);
    let (logp, gradients) =
        trained(&found, &with_dropout(&found.decoder, 0.3, &keys), &packed, packing);
    let off = [&other, &native].map(|expected| furthest(&logp, expected));
    let worst = apart(&gradients, &native_gradients);
    println!(
        "{what}: log-probs differ by {:.1e} from candle's in f32, by {:.1e} from native ones; gradients by {worst:.1e}",
        off[0], off[1]
    );
    assert!(
        off.iter().all(|off| *off <= LOGPROB) && worst <= GRADIENT,
        "{what}: {off:?}, {worst:e}"
    );
}

#[test]
fn a_base_in_blocks_has_the_log_probs_and_adapters_the_gradients_of_its_numbers_in_f32() {
    for (name, change) in FAMILIES {
        let home = tempfile::tempdir().unwrap();
        let bases = Bases::of(&copied(name, home.path(), change), NumberKind::Q8_0);
        let share = bases.share();
        same(
            &format!("{name}, {share:.2} of the bytes"),
            &bases,
            &rows(&Reference::open(&fixture(name)), "right"),
        );
    }
}

#[test]
fn blocks_of_every_kind_are_multiplied_in_less_than_half_of_the_memory() {
    let row = |n: u32| (0..n).map(|i| (i * 31 + n) % 500).collect::<Vec<u32>>();
    let rows = [13, 5, 21].map(row);
    let kinds = [
        (
            "llama3.2-1b",
            &[NumberKind::Q4_0, NumberKind::Q4K, NumberKind::Q6K, NumberKind::Q8_0][..],
        ),
        ("qwen2.5-0.5b", &[NumberKind::Q4_1, NumberKind::Q5K, NumberKind::Q2K]),
        ("mistral-7b", &[NumberKind::Q5_0, NumberKind::Q3K]),
        ("qwen3-0.6b", &[NumberKind::Q5_1, NumberKind::Bf16]),
        ("qwen3-30b-a3b", &[NumberKind::Q4K]),
    ];
    for (name, kinds) in kinds {
        let home = tempfile::tempdir().unwrap();
        let files = wide(name, home.path());
        for &kind in kinds {
            let bases = Bases::of(&files, kind);
            let share = bases.share();
            let most = if kind == NumberKind::Bf16 { 0.51 } else { SHARE };
            assert!(share <= most, "{name}, {kind:?}: {share}");
            same(&format!("{name}, {}, {share:.3} of the bytes", kind.name()), &bases, &rows);
        }
    }
}

#[test]
fn a_base_in_blocks_is_saved_as_its_numbers_and_compared_with_them() {
    let (home, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = wide("llama3.2-1b", home.path());
    let (bases, other) = (Bases::of(&files, NumberKind::Q4K), Bases::of(&files, NumberKind::Q5K));
    bases.blocks.save_full(out.path(), &SaveOptions::default()).unwrap();
    let saved = Model::load(&ModelFiles::new(&ModelSource::Directory(out.path().to_owned())));
    assert_eq!(saved.unwrap().fingerprint(), bases.dense.fingerprint());
    let fingerprints = [&bases.blocks, &bases.dense, &other.blocks].map(Model::fingerprint);
    assert!(fingerprints[0] != fingerprints[1] && fingerprints[0] != fingerprints[2]);
    // A file without blocks is read as a directory is.
    let plain = Bases::of(&files, NumberKind::F32);
    assert_eq!(plain.blocks.fingerprint(), plain.dense.fingerprint());
    plain.blocks.duplicate().map(drop).unwrap();
    let ops = Candle::cpu();
    let found = ops.load(bases.blocks.clone(), false).unwrap();
    let host = ops.host(&found).unwrap();
    assert_eq!(host.fingerprint(), fingerprints[0]);
    host.restore(out.path()).unwrap();
    let told = other.blocks.restore(out.path()).unwrap_err().to_string();
    assert!(told.contains("has other numbers in the checkpoint"), "{told}");
}

#[test]
fn what_changes_or_copies_the_weights_of_a_base_in_blocks_is_refused_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let files = wide("qwen3-0.6b", home.path());
    let Bases { blocks, files: of_gguf, .. } = &Bases::of(&files, NumberKind::Q8_0);
    let adapter = Adapter::new(&blocks.config, corrected("", &blocks.config), 5).unwrap();
    let path = home.path().join("again.gguf");
    let errors = [
        Candle::cpu().load(blocks.clone(), true).err().unwrap(),
        Cpu::default().load(blocks.clone(), false).err().unwrap(),
        blocks.with_adapter(adapter).merge().err().unwrap(),
        blocks.duplicate().err().unwrap(),
        blocks.copy(true).err().unwrap(),
        blocks.save_gguf(&path, of_gguf, &options(NumberKind::F16)).unwrap_err(),
    ];
    for error in errors {
        let told = error.to_string();
        assert!(told.contains("blocks of a GGUF file are frozen"), "{told}");
        assert!(told.ends_with("or write `dtype = \"f32\"`"), "{told}");
    }
    assert!(!path.exists());
    let told = Model::load_blocks(&files).err().unwrap().to_string();
    assert!(
        told.ends_with("keeps: write `dtype = \"f32\"`") && told.contains("is no GGUF file"),
        "{told}"
    );
}
