//! Writing weights: safetensors, one file or shards over a size, in the type that is asked for.

mod writer;

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;

use half::{bf16, f16};
use maverl_kernels::elementwise::{copy_to_bytes, round_to_bf16_bytes};
use maverl_kernels::large_zero_bytes;
use safetensors::SafeTensorError;
use safetensors::tensor::View;
use serde_json::Value;

use crate::files::{HfConfig, ModelError, ModelErrorKind};
pub use writer::{CopiedFile, SpareMemory, TensorWriter, shards, weights};

/// Largest shard, as `save_pretrained` has it.
pub const SHARD_BYTES: u64 = 5_000_000_000;

/// The type in which numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoredDtype {
    /// Kind of the trained weights.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl StoredDtype {
    /// Name in a `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// The type that a `config.json` names (`dtype`, before transformers 5 `torch_dtype`).
    pub fn of_config(config: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(config).ok()?;
        let name = json.get("dtype").or_else(|| json.get("torch_dtype"))?.as_str()?;
        [Self::F32, Self::F16, Self::Bf16].into_iter().find(|dtype| dtype.name() == name)
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Writes values as little-endian bytes, rounded to nearest, ties to even. Returns the first finite value that rounds to
    /// an infinity.
    fn encode_into(self, values: &[f32], bytes: &mut [u8]) -> Option<f32> {
        let may_overflow = match self {
            Self::F32 => {
                copy_to_bytes(values, bytes);
                false
            }
            Self::F16 => {
                for (bytes, value) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                    *bytes = f16::from_f32(*value).to_le_bytes();
                }
                true
            }
            Self::Bf16 => round_to_bf16_bytes(values, bytes),
        };
        if may_overflow { self.find_overflow(values) } else { None }
    }

    /// Returns the first finite value that rounds to an infinity.
    fn find_overflow(self, values: &[f32]) -> Option<f32> {
        values.iter().copied().find(|value| value.is_finite() && !self.holds(*value))
    }

    /// Returns true if a value is within the range of the type.
    fn holds(self, value: f32) -> bool {
        match self {
            Self::F32 => true,
            Self::F16 => f16::from_f32(value).is_finite(),
            Self::Bf16 => bf16::from_f32(value).is_finite(),
        }
    }
}

impl From<StoredDtype> for safetensors::Dtype {
    fn from(dtype: StoredDtype) -> Self {
        match dtype {
            StoredDtype::F32 => Self::F32,
            StoredDtype::F16 => Self::F16,
            StoredDtype::Bf16 => Self::BF16,
        }
    }
}

/// Options of writing a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveOptions {
    /// The type of every weight.
    pub dtype: StoredDtype,
    /// Weights of more bytes are written in shards of at most so many; a tensor is never cut.
    pub shard_bytes: u64,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self { dtype: StoredDtype::F32, shard_bytes: SHARD_BYTES }
    }
}

/// Numbers in the memory of this process that can be written to a file.
pub trait HostTensor {
    /// Returns the sizes of the dimensions.
    fn shape(&self) -> &[usize];

    /// Calls `take` with the current numbers.
    fn read(&self, take: &mut dyn FnMut(&[f32]));
}

/// Something to be written under a name.
pub struct SavedTensor<'a> {
    name: String,
    shape: Vec<usize>,
    values: EntryValues<'a>,
    dtype: StoredDtype,
    /// Value that was written last, and that the type cannot hold.
    overflow: Cell<Option<f32>>,
}

enum EntryValues<'a> {
    Tensor(&'a dyn HostTensor),
    Slice(&'a [f32]),
    Computed(Box<dyn Fn() -> Vec<f32> + 'a>),
}

impl<'a> SavedTensor<'a> {
    /// A tensor.
    pub fn tensor(name: impl Into<String>, tensor: &'a impl HostTensor) -> Self {
        Self::new(name, tensor.shape(), EntryValues::Tensor(tensor))
    }

    /// Numbers of a shape.
    pub fn slice(name: impl Into<String>, shape: &[usize], values: &'a [f32]) -> Self {
        Self::new(name, shape, EntryValues::Slice(values))
    }

    /// Numbers of a shape that are computed when they are written.
    pub fn computed(
        name: impl Into<String>,
        shape: &[usize],
        compute: impl Fn() -> Vec<f32> + 'a,
    ) -> Self {
        Self::new(name, shape, EntryValues::Computed(Box::new(compute)))
    }

    fn new(name: impl Into<String>, shape: &[usize], values: EntryValues<'a>) -> Self {
        let (name, shape) = (name.into(), shape.to_vec());
        Self { name, shape, values, dtype: StoredDtype::F32, overflow: Cell::new(None) }
    }

    /// The same, rounded to another type (to nearest, ties to even).
    #[must_use]
    pub fn stored_as(self, dtype: StoredDtype) -> Self {
        Self { dtype, ..self }
    }

    /// Returns the number of bytes in a file.
    fn byte_count(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    /// Writes the bytes that a file has of the current numbers.
    fn encode_into(&self, bytes: &mut [u8]) {
        let mut encode = |values: &[f32]| self.overflow.set(self.dtype.encode_into(values, bytes));
        match &self.values {
            EntryValues::Slice(values) => encode(values),
            EntryValues::Tensor(tensor) => tensor.read(&mut encode),
            EntryValues::Computed(compute) => encode(&compute()),
        }
    }
}

/// View that the safetensors writer reads: the bytes of one tensor at a time.
impl View for &SavedTensor<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        self.dtype.into()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = large_zero_bytes(self.byte_count());
        self.encode_into(&mut bytes);
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.byte_count()
    }
}

/// Writes one safetensors file.
///
/// # Errors
///
/// If the file cannot be written, or a number is beyond the range of its type: the file is of no use then.
pub fn one_file(file: &Path, entries: &[SavedTensor<'_>]) -> Result<(), ModelError> {
    safetensors_file(file, entries.iter().map(|entry| (entry.name.as_str(), entry)))?;
    refuse_overflow(entries)
}

/// Returns an error if a number that was written is beyond the range of its type.
fn refuse_overflow(entries: &[SavedTensor<'_>]) -> Result<(), ModelError> {
    let lost = entries.iter().find_map(|entry| Some((entry, entry.overflow.get()?)));
    let Some((SavedTensor { name, dtype, .. }, value)) = lost else { return Ok(()) };
    let wider = if *dtype == StoredDtype::F16 { "bf16 or f32" } else { "f32" };
    let dtype = dtype.name();
    let message = format!("tensor `{name}` has {value}, which {dtype} cannot hold; write {wider}");
    Err(ModelError::new(ModelErrorKind::Invalid, message))
}

/// Writes a safetensors file, as PyTorch's readers want it. Whoever may read the files beside it may read this one, too:
/// the library by itself makes it private.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn safetensors_file<S: AsRef<str> + Ord + std::fmt::Display, V: View>(
    file: &Path,
    views: impl IntoIterator<Item = (S, V)>,
) -> Result<(), ModelError> {
    let metadata = [("format".to_owned(), "pt".to_owned())].into_iter().collect();
    let made = std::fs::File::create(file).and_then(|file| file.metadata());
    let permissions = made.map_err(|e| ModelError::cannot_do("write", file, e))?.permissions();
    safetensors::serialize_to_file(views, Some(metadata), file).map_err(|e| unwritten(file, e))?;
    std::fs::set_permissions(file, permissions).map_err(|e| ModelError::cannot_do("write", file, e))
}

/// Returns the error of a file that could not be written.
fn unwritten(file: &Path, source: SafeTensorError) -> ModelError {
    let message = format!("cannot write {}: {source}", file.display());
    ModelError::new(ModelErrorKind::Io, message).with_source(source)
}

/// A `config.json` that names the type in which the weights beside it are stored, and says whether their head is tied, and
/// no quantization; as it was, if it did already. A key that is missing says what it means for its family.
pub(crate) fn configuration(config: &[u8], dtype: StoredDtype, tied: bool) -> Vec<u8> {
    const TIED: &str = "tie_word_embeddings";
    // The key of LFM2 that counts before it.
    const TIED_LFM2: &str = "tie_embedding";
    const QUANTIZED: &str = "quantization_config";
    let Ok(mut json) = serde_json::from_slice::<Value>(config) else { return config.to_vec() };
    let mut changed = false;
    for key in ["dtype", "torch_dtype"] {
        if let Some(value) = json.get_mut(key).filter(|value| **value != dtype.name()) {
            *value = dtype.name().into();
            changed = true;
        }
    }
    let said = HfConfig::parse(config)
        .map_or_else(|_| json[TIED] == true, |config| config.tie_word_embeddings);
    if said != tied || json.get(TIED).is_some_and(|value| *value != tied) {
        json[TIED] = tied.into();
        if let Some(value) = json.get_mut(TIED_LFM2) {
            *value = tied.into();
        }
        changed = true;
    }
    let quantized = json.as_object_mut().and_then(|json| json.shift_remove(QUANTIZED));
    changed |= quantized.is_some();
    if changed { format!("{json:#}\n").into_bytes() } else { config.to_vec() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::files::{ModelFiles, ModelSource};
    use crate::net::Model;
    use crate::net::tests::fixture;

    fn load(source: &ModelSource) -> Model {
        Model::load(&ModelFiles::new(source)).unwrap()
    }

    /// Writes a model, reads it back, and compares everything; returns how many shards there were.
    fn round_trip(model: &Model, shard_bytes: u64) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions { dtype: model.stored_dtype(), shard_bytes };
        model.save_full(dir.path(), &options).unwrap();
        let read = load(&ModelSource::Directory(dir.path().to_owned()));
        assert_eq!(read.fingerprint(), model.fingerprint());
        assert_eq!(read.companions, model.companions);
        assert_eq!(read.stored_dtype(), model.stored_dtype());
        let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
        let files: Vec<_> =
            files.filter(|file| file.extension().is_some_and(|e| e == "safetensors")).collect();
        assert_eq!(dir.path().join("model.safetensors.index.json").exists(), files.len() > 1);
        files.len()
    }

    #[test]
    fn a_model_written_and_read_back_is_the_same_whole_or_in_shards() {
        let tiny = load(&ModelSource::Builtin("tiny".to_owned()));
        assert_eq!(round_trip(&tiny, SHARD_BYTES), 1);
        let shards = round_trip(&tiny, 1 << 20);
        assert!(shards > 1, "{shards}");
        for name in FIXTURES {
            let model = load(&ModelSource::Directory(fixture(name)));
            let shards = round_trip(&model, 20_000);
            println!("{name}: {:?} in {shards} shards", model.stored_dtype());
            assert!(shards > 1, "{name}: {shards}");
        }
    }

    #[test]
    fn further_templates_are_written_back() {
        let tiny = load(&ModelSource::Builtin("tiny".to_owned()));
        let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tiny.save(dir.path()).unwrap();
        let further = "additional_chat_templates";
        fs::create_dir(dir.path().join(further)).unwrap();
        fs::write(dir.path().join(further).join("rag.jinja"), "{{ documents }}").unwrap();
        let model = load(&ModelSource::Directory(dir.path().to_owned()));
        model.save_full(out.path(), &SaveOptions::default()).unwrap();
        let written = fs::read_to_string(out.path().join(further).join("rag.jinja")).unwrap();
        assert_eq!(written, "{{ documents }}");
        round_trip(&model, SHARD_BYTES);
    }

    const FIXTURES: &[&str] = &["qwen2", "qwen3", "llama"];

    #[test]
    fn a_number_that_the_type_cannot_hold_is_an_error_with_the_name_of_its_tensor() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.safetensors");
        for (dtype, value, remedy) in [
            (StoredDtype::F16, 1e5, "has 100000, which float16 cannot hold; write bf16 or f32"),
            (StoredDtype::Bf16, f32::MAX, "which bfloat16 cannot hold; write f32"),
        ] {
            let written = |values: &[f32]| {
                let tensor = SavedTensor::slice("norm.weight", &[2], values).stored_as(dtype);
                one_file(&file, &[tensor])
            };
            let error = written(&[1.0, value]).unwrap_err().to_string();
            assert!(
                error.starts_with("tensor `norm.weight`") && error.ends_with(remedy),
                "{error}"
            );
            // Infinities are what they were.
            written(&[f32::INFINITY, 65_504.0]).unwrap();
        }
    }

    #[test]
    fn weights_may_be_read_by_whoever_may_read_the_configuration() {
        let tiny = load(&ModelSource::Builtin("tiny".to_owned()));
        let dir = tempfile::tempdir().unwrap();
        tiny.save(dir.path()).unwrap();
        let permissions = |name| std::fs::metadata(dir.path().join(name)).unwrap().permissions();
        assert_eq!(permissions("model.safetensors"), permissions("config.json"));
    }

    #[test]
    fn an_index_names_the_file_of_every_tensor_and_their_size() {
        let tiny = load(&ModelSource::Builtin("tiny".to_owned()));
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions { dtype: StoredDtype::Bf16, shard_bytes: 1 << 20 };
        tiny.save_full(dir.path(), &options).unwrap();
        let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
        let index: Value = serde_json::from_slice(&read("model.safetensors.index.json")).unwrap();
        let map = index["weight_map"].as_object().unwrap();
        assert_eq!(map.len(), tiny.weights.vars().len());
        assert_eq!(index["metadata"]["total_size"], 2 * tiny.weights.parameters());
        assert_eq!(index["metadata"]["total_parameters"], tiny.weights.parameters());
        assert_eq!(StoredDtype::of_config(&read("config.json")), Some(StoredDtype::Bf16));
        let mut files: Vec<&str> = map.values().map(|file| file.as_str().unwrap()).collect();
        files.sort();
        files.dedup();
        let n = files.len();
        for (i, file) in files.iter().enumerate() {
            assert_eq!(*file, format!("model-{:05}-of-{n:05}.safetensors", i + 1));
        }
        // What was rounded once is not rounded again.
        let once = load(&ModelSource::Directory(dir.path().to_owned()));
        assert_ne!(once.fingerprint(), tiny.fingerprint());
        assert_eq!(once.stored_dtype(), StoredDtype::Bf16);
        round_trip(&once, SHARD_BYTES);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let tiny = load(&ModelSource::Builtin("tiny".to_owned()));
        let nowhere = Path::new("/nowhere/at/all");
        let error = tiny.save_full(nowhere, &SaveOptions::default()).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all/config.json"), "{error}");
        let own = tiny.config.saved_tensors(tiny.weights.vars());
        let mut writer = TensorWriter::Direct;
        let error = weights(nowhere, own, Vec::new(), (&SaveOptions::default(), &mut writer));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all/model.safetensors"), "{error}");
    }

    #[test]
    fn a_head_of_its_own_is_said_where_the_family_ties_one_without_a_key() {
        for (family, by_default) in [("gemma3_text", true), ("lfm2", true), ("mistral", false)] {
            let path = fixture("families").join(family).join("config.json");
            let mut config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            for key in ["tie_word_embeddings", "tie_embedding", "dtype", "torch_dtype"] {
                config.as_object_mut().unwrap().shift_remove(key);
            }
            let text = config.to_string().into_bytes();
            for tied in [true, false] {
                let saved = configuration(&text, StoredDtype::F32, tied);
                assert_eq!(saved == text, tied == by_default, "{family} {tied}");
                let parsed = HfConfig::parse(&saved).unwrap();
                assert_eq!(parsed.tie_word_embeddings, tied, "{family} {tied}");
            }
        }
        let path = fixture("families").join("lfm2/config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        config["tie_embedding"] = true.into();
        let saved = configuration(config.to_string().as_bytes(), StoredDtype::F32, false);
        let saved: Value = serde_json::from_slice(&saved).unwrap();
        assert_eq!(
            (&saved["tie_embedding"], &saved["tie_word_embeddings"]),
            (&json!(false), &json!(false))
        );
    }

    #[test]
    fn a_configuration_changes_only_in_its_dtype() {
        let config = br#"{"b": 1e-06, "dtype": "bfloat16", "a": 2}"#;
        assert_eq!(configuration(config, StoredDtype::Bf16, false), config);
        let f32 = configuration(config, StoredDtype::F32, false);
        let text = String::from_utf8_lossy(&f32).split_whitespace().collect::<String>();
        assert_eq!(text, r#"{"b":1e-6,"dtype":"float32","a":2}"#);
        assert_eq!(StoredDtype::of_config(&f32), Some(StoredDtype::F32));
    }
}
