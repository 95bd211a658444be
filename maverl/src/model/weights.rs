//! Weights of a model: read from safetensors (one file or shards), held as f32 variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use memmap2::Mmap;
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

use crate::model::ModelError;
use crate::model::files::ModelFiles;
use crate::model::hf_config::HfConfig;
use crate::model::nn::with_values;

/// Every weight of a model by its checkpoint name, in a fixed order, as f32 variables on the CPU.
///
/// Rollout and training read the same storage: there is nothing to synchronize. Cloning shares it too.
#[derive(Clone)]
pub struct Weights {
    vars: Vec<(String, Var)>,
}

impl Weights {
    /// Reads the checkpoint of a model.
    ///
    /// # Errors
    ///
    /// Every missing, extra or misshapen tensor at once; a file that is not safetensors.
    pub fn load(files: &ModelFiles, config: &HfConfig) -> Result<Self, ModelError> {
        let shards = Shards::open(files)?;
        let wanted = config.tensors();
        shards.check(&wanted, config, &files.describe())?;
        let mut vars = Vec::with_capacity(wanted.len());
        for (name, _) in wanted {
            let tensor = shards.tensor(&name)?;
            let var =
                Var::from_tensor(&tensor).map_err(|e| ModelError(format!("`{name}`: {e}")))?;
            vars.push((name, var));
        }
        Ok(Self { vars })
    }

    /// Weights made by `init(name, shape)`, in checkpoint order.
    ///
    /// # Errors
    ///
    /// If `init` returns a buffer of another length.
    pub fn init(
        config: &HfConfig,
        mut init: impl FnMut(&str, &[usize]) -> Vec<f32>,
    ) -> Result<Self, ModelError> {
        let vars = config.tensors().into_iter().map(|(name, shape)| {
            let values = init(&name, &shape);
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
            Ok((name, Var::from_tensor(&tensor)?))
        });
        let vars =
            vars.collect::<candle_core::Result<_>>().map_err(|e| ModelError(e.to_string()))?;
        Ok(Self { vars })
    }

    /// Names and variables, in checkpoint order.
    pub fn vars(&self) -> &[(String, Var)] {
        &self.vars
    }

    /// Parameters in all.
    pub fn parameters(&self) -> usize {
        self.vars.iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// A copy that shares nothing with these weights.
    ///
    /// # Errors
    ///
    /// If memory cannot be had.
    pub fn duplicate(&self) -> candle_core::Result<Self> {
        let vars = self
            .vars
            .iter()
            .map(|(name, var)| Ok((name.clone(), Var::from_tensor(&var.as_tensor().copy()?)?)));
        Ok(Self { vars: vars.collect::<candle_core::Result<_>>()? })
    }

    /// The tensors by name, tracked by autograd if `tracked`.
    pub fn by_name(&self, tracked: bool) -> BTreeMap<&str, Tensor> {
        let view =
            |var: &Var| if tracked { var.as_tensor().clone() } else { var.as_detached_tensor() };
        self.vars.iter().map(|(name, var)| (name.as_str(), view(var))).collect()
    }

    /// Copies values from named buffers; names and lengths must be those of these weights.
    ///
    /// # Errors
    ///
    /// If a tensor is missing or misshapen.
    pub fn assign(&self, shards: &Shards) -> Result<(), ModelError> {
        for (name, var) in &self.vars {
            let tensor = shards.tensor(name)?;
            var.set(&tensor).map_err(|e| ModelError(format!("`{name}`: {e}")))?;
        }
        Ok(())
    }
}

/// SHA-256 over names, shapes and values, in the order given.
///
/// # Errors
///
/// If a weight is not on the CPU.
pub fn fingerprint<'v>(
    vars: impl IntoIterator<Item = &'v (String, Var)>,
) -> candle_core::Result<String> {
    let mut hash = Sha256::new();
    for (name, var) in vars {
        hash.update(name.as_bytes());
        hash.update(format!("{:?}", var.dims()).as_bytes());
        with_values(var.as_tensor(), |values| {
            values.iter().for_each(|v| hash.update(v.to_le_bytes()))
        })?;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The safetensors files of a checkpoint, memory-mapped.
pub struct Shards {
    files: Vec<(String, Bytes)>,
    /// Tensor name to index of its file.
    at: BTreeMap<String, usize>,
}

enum Bytes {
    Static(&'static [u8]),
    Mapped(Arc<Mmap>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl Shards {
    /// Opens the checkpoint of a model: `model.safetensors`, or the files of `model.safetensors.index.json`.
    ///
    /// # Errors
    ///
    /// If a file is missing or is not safetensors; it is named.
    pub fn open(files: &ModelFiles) -> Result<Self, ModelError> {
        let names = match files.read("model.safetensors.index.json")? {
            Some(index) => index_files(&index).map_err(|e| {
                ModelError(format!("{}: model.safetensors.index.json: {e}", files.describe()))
            })?,
            None => vec!["model.safetensors".to_owned()],
        };
        let mut opened = Vec::new();
        for name in names {
            let bytes = match files.directory() {
                None => Bytes::Static(match files.require(&name)? {
                    std::borrow::Cow::Borrowed(bytes) => bytes,
                    std::borrow::Cow::Owned(_) => {
                        return Err(ModelError(format!("{name} is not embedded")));
                    }
                }),
                Some(dir) if !dir.is_dir() => {
                    return Err(files.require(&name).err().unwrap_or(ModelError(name)));
                }
                Some(dir) => Bytes::Mapped(Arc::new(map(&dir.join(&name))?)),
            };
            opened.push((format!("{}/{name}", files.describe()), bytes));
        }
        Self::index(opened)
    }

    /// Opens one file.
    ///
    /// # Errors
    ///
    /// If it is missing or is not safetensors.
    pub fn open_file(path: &Path) -> Result<Self, ModelError> {
        Self::index(vec![(path.display().to_string(), Bytes::Mapped(Arc::new(map(path)?)))])
    }

    fn index(files: Vec<(String, Bytes)>) -> Result<Self, ModelError> {
        let mut at = BTreeMap::new();
        for (index, (name, bytes)) in files.iter().enumerate() {
            let tensors = SafeTensors::deserialize(bytes.as_slice())
                .map_err(|e| ModelError(format!("{name} is damaged or not safetensors: {e}")))?;
            at.extend(tensors.names().into_iter().map(|tensor| (tensor.to_owned(), index)));
        }
        Ok(Self { files, at })
    }

    /// A tensor as f32.
    ///
    /// # Errors
    ///
    /// If it is not there, or its type is not f32, f16 or bf16.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ModelError> {
        let failed = |e: &dyn std::fmt::Display| ModelError(format!("tensor `{name}`: {e}"));
        let index = *self.at.get(name).ok_or_else(|| failed(&"missing"))?;
        let tensors =
            SafeTensors::deserialize(self.files[index].1.as_slice()).map_err(|e| failed(&e))?;
        let view = tensors.tensor(name).map_err(|e| failed(&e))?;
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            other => {
                return Err(failed(&format!("{other:?} is not supported; f32, f16 or bf16 are")));
            }
        };
        Tensor::from_raw_buffer(view.data(), dtype, view.shape(), &Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32))
            .map_err(|e| failed(&e))
    }

    /// Names in all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.at.keys().map(String::as_str)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let tensors =
            SafeTensors::deserialize(self.files[*self.at.get(name)?].1.as_slice()).ok()?;
        Some(tensors.tensor(name).ok()?.shape().to_vec())
    }

    fn check(
        &self,
        wanted: &[(String, Vec<usize>)],
        config: &HfConfig,
        place: &str,
    ) -> Result<(), ModelError> {
        let mut problems = Vec::new();
        for (name, shape) in wanted {
            match self.shape(name) {
                None => problems.push(format!("`{name}` {shape:?} is missing")),
                Some(found) if found != *shape => {
                    problems.push(format!("`{name}` is {found:?}; config.json asks for {shape:?}"))
                }
                Some(_) => {}
            }
        }
        let known: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        for name in self.names().filter(|name| !known.contains(name)) {
            // Checkpoints with a tied head may store it all the same.
            if !(config.tie_word_embeddings && name == "lm_head.weight") {
                problems.push(format!("`{name}` is not part of this architecture"));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ModelError(format!("{place}: {}", problems.join("; "))))
        }
    }
}

/// The files that an index names, sorted.
pub(crate) fn index_files(index: &[u8]) -> Result<Vec<String>, String> {
    let index: serde_json::Value =
        serde_json::from_slice(index).map_err(|e| format!("not JSON: {e}"))?;
    let map = index.get("weight_map").and_then(|map| map.as_object()).ok_or("no `weight_map`")?;
    let mut files = BTreeSet::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| format!("`{tensor}` names no file"))?;
        if Path::new(file).components().count() != 1 || file.contains("..") {
            return Err(format!("`{tensor}` is in {file:?}; a file beside the index is needed"));
        }
        files.insert(file.to_owned());
    }
    Ok(files.into_iter().collect())
}

#[allow(unsafe_code)] // weights are mapped, not copied
fn map(path: &Path) -> Result<Mmap, ModelError> {
    let failed = |e: std::io::Error| ModelError(format!("{}: {e}", path.display()));
    let file = std::fs::File::open(path).map_err(failed)?;
    // SAFETY: the map is read-only and lives no longer than this process needs it; a checkpoint that another process
    // cuts short while it is read can end this one (SIGBUS), as for every reader that maps its weights.
    unsafe { Mmap::map(&file) }.map_err(failed)
}
