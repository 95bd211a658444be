//! Weights that PyTorch pickled: `torch.save` of a state dict, since version 1.6 a zip file without compression
//! (reference: pytorch `torch/serialization.py`, `torch/_utils.py`, `_rebuild_tensor_v2`).
//!
//! ```text
//! NAME/data.pkl     a program of the pickle machine, whose result is the dict of tensors    machine.rs
//! NAME/data/KEY     the numbers of a storage, to which tensors refer                         archive.rs
//! ```
//!
//! The program is interpreted, and calls nothing. A file is untrusted: there is no recursion, objects are shared and not copied, and
//! their number is limited.

mod archive;
mod machine;

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::Dtype;

use archive::Archive;
use machine::{ObjectId, PickleMachine, PickleObject};

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PickledTensor {
    /// Bytes in the file.
    pub(crate) span: Range<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// True if the columns of a matrix follow each other, and not its rows.
    pub(crate) by_columns: bool,
}

/// Way to make safetensors of a file that is not read.
const REMEDY: &str = "write safetensors: `python -c \"import torch, safetensors.torch as s; s.save_file({k: \
                      v.contiguous().clone() for k, v in torch.load('pytorch_model.bin', weights_only=True).items()}, \
                      'model.safetensors', {'format': 'pt'})\"`";

/// Most dimensions of a tensor.
const MOST_DIMS: usize = 8;
/// Most problems of tensors that are told.
const MOST_PROBLEMS: usize = 8;

/// Reads the places of the tensors of a file, by name.
///
/// # Errors
///
/// The damage, or each tensor that is not read, with a remedy.
pub(crate) fn pickled_tensors(bytes: &[u8]) -> Result<BTreeMap<String, PickledTensor>, String> {
    if bytes.first() == Some(&0x80) {
        return Err(format!("it is of PyTorch before 1.6; {REMEDY}"));
    }
    let archive = Archive::read(bytes)?;
    let (folder, program) = archive.program()?;
    if archive.content(&format!("{folder}byteorder")).is_some_and(|order| bytes[order] == *b"big") {
        return Err("its numbers are big-endian; little-endian ones are read".to_owned());
    }
    let mut machine = PickleMachine::new(bytes, program);
    let result = machine.run()?;
    let PickleObject::Dict(entries) = machine.object(result) else {
        return Err(format!("it is no dict of tensors; {REMEDY}"));
    };
    let reader = TensorReader { bytes, archive: &archive, machine: &machine, folder };
    let (mut tensors, mut problems) = (BTreeMap::new(), Vec::new());
    for (key, value) in entries {
        match reader.named_tensor(*key, *value) {
            Ok((name, tensor)) => {
                if tensors.insert(name.to_owned(), tensor).is_some() {
                    return Err(format!("it has two tensors `{name}`; {REMEDY}"));
                }
            }
            Err(_) if problems.len() == MOST_PROBLEMS => {
                problems.push("and more".to_owned());
                break;
            }
            Err(what) => problems.push(what),
        }
    }
    if problems.is_empty() {
        Ok(tensors)
    } else {
        Err(format!("{}; {REMEDY}", problems.join("; ")))
    }
}

/// Reads tensors from the result of a program.
struct TensorReader<'a> {
    bytes: &'a [u8],
    archive: &'a Archive<'a>,
    machine: &'a PickleMachine<'a>,
    /// Start of the names of all files.
    folder: &'a str,
}

impl TensorReader<'_> {
    /// Returns what was called with which arguments, if an object is the result of a call.
    fn call(&self, object: ObjectId) -> Option<([&str; 2], &[ObjectId])> {
        let PickleObject::Call { callable, arguments } = self.machine.object(object) else {
            return None;
        };
        Some((self.machine.class(*callable)?, self.machine.tuple(*arguments)?))
    }

    /// Returns the name of an entry, and its tensor.
    fn named_tensor(
        &self,
        key: ObjectId,
        value: ObjectId,
    ) -> Result<(&str, PickledTensor), String> {
        let name = self.machine.text(key).ok_or("a key is no text, or a long one")?;
        let tensor = self.tensor(value).map_err(|what| format!("`{name}` {what}"))?;
        Ok((name, tensor))
    }

    fn tensor(&self, object: ObjectId) -> Result<PickledTensor, String> {
        let mut call = self.call(object);
        if let Some((["torch._utils", "_rebuild_parameter"], [tensor, ..])) = call {
            call = self.call(*tensor);
        }
        let Some((
            ["torch._utils", "_rebuild_tensor_v2"],
            [storage, offset, shape, strides, others @ ..],
        )) = call
        else {
            return Err("is no tensor of numbers".to_owned());
        };
        // A flag of gradients, hooks, and what a view does with the numbers before they are used, as `neg`.
        if let Some(PickleObject::Dict(views)) = others.get(2).map(|it| self.machine.object(*it))
            && !views.is_empty()
        {
            return Err("is a view that changes its numbers".to_owned());
        }
        let (dtype, width, storage) = self.storage(*storage)?;
        let sizes = self.sizes(*shape).zip(self.sizes(*strides));
        let (shape, strides) = sizes.ok_or("has no shape")?;
        let by_columns = order(&shape, &strides)
            .ok_or_else(|| format!("has the strides {strides:?} for the shape {shape:?}"))?;
        let numbers = shape.iter().try_fold(1_usize, |n, size| n.checked_mul(*size));
        let start = self.machine.size(*offset).and_then(|offset| offset.checked_mul(width));
        let span = numbers
            .and_then(|numbers| numbers.checked_mul(width))
            .zip(start.and_then(|start| storage.start.checked_add(start)))
            .and_then(|(length, start)| Some(start..start.checked_add(length)?))
            .filter(|span| span.end <= storage.end && span.end <= self.bytes.len());
        let span = span.ok_or("ends after its storage")?;
        Ok(PickledTensor { span, dtype, shape, by_columns })
    }

    /// Returns the elements of a tuple of sizes.
    fn sizes(&self, of: ObjectId) -> Option<Vec<usize>> {
        let sizes = self.machine.tuple(of)?.iter().map(|size| self.machine.size(*size));
        sizes.collect::<Option<Vec<usize>>>().filter(|sizes| sizes.len() <= MOST_DIMS)
    }

    /// Returns the type, its bytes, and the place of a storage.
    fn storage(&self, object: ObjectId) -> Result<(Dtype, usize, Range<usize>), String> {
        let PickleObject::Persistent(id) = self.machine.object(object) else {
            return Err("has no storage".to_owned());
        };
        let Some([_, class, key, ..]) = self.machine.tuple(*id) else {
            return Err("has no storage".to_owned());
        };
        let class = self.machine.class(*class).map(|[_, class]| class).unwrap_or_default();
        let (dtype, width) = match class {
            "FloatStorage" => (Dtype::F32, 4),
            "HalfStorage" => (Dtype::F16, 2),
            "BFloat16Storage" => (Dtype::BF16, 2),
            "DoubleStorage" => (Dtype::F64, 8),
            "LongStorage" => (Dtype::I64, 8),
            "IntStorage" => (Dtype::I32, 4),
            "ShortStorage" => (Dtype::I16, 2),
            "CharStorage" => (Dtype::I8, 1),
            "ByteStorage" => (Dtype::U8, 1),
            "BoolStorage" => (Dtype::BOOL, 1),
            other => return Err(format!("has numbers of {other:?}")),
        };
        let key = self.machine.text(*key).ok_or("has a storage without a name")?;
        let name = format!("{}data/{key}", self.folder);
        let place = self
            .archive
            .content(&name)
            .ok_or_else(|| format!("is in `{name}`, which is missing"))?;
        Ok((dtype, width, place))
    }
}

/// Returns true if the columns of a matrix follow each other, false if the rows of a tensor do; `None` for other strides.
fn order(shape: &[usize], strides: &[usize]) -> Option<bool> {
    if shape.len() != strides.len() {
        return None;
    }
    let mut next = 1_usize;
    let mut rows = true;
    for (size, stride) in shape.iter().zip(strides).rev() {
        rows &= *size == 1 || *stride == next;
        next = next.checked_mul(*size)?;
    }
    match (rows || next == 0, shape, strides) {
        (true, ..) => Some(false),
        (_, [rows, _], [1, stride]) if stride == rows => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
