//! Writing of GGUF files, version 3: a header, whose places of tensors follow from their shapes, then one tensor after the other.

use std::io::{self, Write};

use super::kinds::NumberKind;
use crate::files::save::HostTensor;

/// Multiple of bytes at which tensors begin.
const ALIGNMENT: usize = 32;

/// A value of metadata.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meta {
    Text(String),
    Whole(u32),
    Float(f32),
    Flag(bool),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Wholes(Vec<i32>),
}

/// Change of a tensor's numbers on their way into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Rows of so many heads, whose halves rotate together, become pairs.
    Pairs(usize),
    /// One is added.
    PlusOne,
}

/// WrittenNumbers of a tensor, one part after the other.
pub(crate) enum WrittenNumbers<'a> {
    /// Tensors of a model; several of them for all experts of a layer.
    Tensors(Vec<&'a dyn HostTensor>),
    /// WrittenNumbers that are there.
    Own(Vec<f32>),
}

/// A tensor to be written.
pub(crate) struct WrittenTensor<'a> {
    pub(crate) name: String,
    /// Dimensions, the longest distance in memory first.
    pub(crate) dims: Vec<usize>,
    pub(crate) kind: NumberKind,
    pub(crate) change: Change,
    pub(crate) numbers: WrittenNumbers<'a>,
}

impl WrittenTensor<'_> {
    /// Returns the bytes of the tensor.
    pub(crate) fn bytes(&self) -> usize {
        self.kind.bytes_of(self.dims.iter().product()).unwrap_or(usize::MAX)
    }

    /// Returns the bytes of a part.
    fn encode(&self, values: &[f32]) -> io::Result<Vec<u8>> {
        let changed = match self.change {
            Change::None => None,
            Change::PlusOne => Some(values.iter().map(|value| 1.0 + value).collect()),
            Change::Pairs(heads) => Some(to_pairs(values, heads, columns(&self.dims))),
        };
        let values = changed.as_deref().unwrap_or(values);
        self.kind
            .write(values)
            .map_err(|what| io::Error::other(format!("tensor `{}`: {what}", self.name)))
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.numbers {
            WrittenNumbers::Own(values) => out.write_all(&self.encode(values)?)?,
            WrittenNumbers::Tensors(parts) => {
                for part in parts {
                    let mut written = Ok(());
                    part.read(&mut |values| {
                        written = self.encode(values).and_then(|bytes| out.write_all(&bytes));
                    });
                    written?;
                }
            }
        }
        out.write_all(&[0; ALIGNMENT][..padding(self.bytes())])
    }
}

/// Returns the numbers of a row of a tensor; a tensor of one dimension has rows of one.
fn columns(dims: &[usize]) -> usize {
    if dims.len() < 2 { 1 } else { dims[dims.len() - 1] }
}

/// Returns the rows of heads `[H, 2, d/2, D]` as `[H, d/2, 2, D]`.
fn to_pairs(values: &[f32], heads: usize, columns: usize) -> Vec<f32> {
    let half = values.len() / columns / heads / 2;
    let rows: Vec<&[f32]> = values.chunks_exact(columns).collect();
    let places = (0..heads).flat_map(|head| (0..half).map(move |i| head * 2 * half + i));
    places.flat_map(|first| [rows[first], rows[first + half]].concat()).collect()
}

/// Writes the rows of heads `[H, d/2, 2, D]` as `[H, 2, d/2, D]`. Values of another number, which no model has, stay as they are.
pub(crate) fn to_halves<T: Copy>(values: &mut [T], heads: usize, columns: usize) {
    let all = 2 * heads * columns;
    if all == 0 || !values.len().is_multiple_of(all) {
        return;
    }
    let half = values.len() / all;
    for head in values.chunks_mut((2 * half * columns).max(1)) {
        let pairs = head.to_vec();
        for (index, row) in pairs.chunks(columns).enumerate() {
            let to = (index % 2 * half + index / 2) * columns;
            head[to..to + columns].copy_from_slice(row);
        }
    }
}

fn padding(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT) - bytes
}

/// Writes a file. At most one part of a tensor is in memory at a time.
///
/// # Errors
///
/// If `out` fails, or a number cannot be written.
pub(crate) fn write_file(
    out: &mut dyn Write,
    metadata: &[(String, Meta)],
    tensors: &[WrittenTensor<'_>],
) -> io::Result<()> {
    let mut header = b"GGUF".to_vec();
    header.extend(3_u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        add_text(&mut header, key);
        add_value(&mut header, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        add_text(&mut header, &tensor.name);
        header.extend((tensor.dims.len() as u32).to_le_bytes());
        tensor.dims.iter().rev().for_each(|dim| header.extend((*dim as u64).to_le_bytes()));
        header.extend(tensor.kind.id().to_le_bytes());
        header.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes() + padding(tensor.bytes());
    }
    header.resize(header.len() + padding(header.len()), 0);
    out.write_all(&header)?;
    tensors.iter().try_for_each(|tensor| tensor.write(out))
}

fn add_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Adds the number of a type.
fn add_type(to: &mut Vec<u8>, kind: u32) {
    to.extend(kind.to_le_bytes());
}

/// Adds what comes before the elements of a list: its type, theirs, and how many there are.
fn add_list(to: &mut Vec<u8>, element: u32, count: usize) {
    add_type(to, 9);
    add_type(to, element);
    to.extend((count as u64).to_le_bytes());
}

/// Adds a value with the number of its type.
fn add_value(to: &mut Vec<u8>, value: &Meta) {
    match value {
        Meta::Whole(n) => {
            add_type(to, 4);
            to.extend(n.to_le_bytes());
        }
        Meta::Float(x) => {
            add_type(to, 6);
            to.extend(x.to_le_bytes());
        }
        Meta::Flag(flag) => {
            add_type(to, 7);
            to.push(u8::from(*flag));
        }
        Meta::Text(text) => {
            add_type(to, 8);
            add_text(to, text);
        }
        Meta::Texts(texts) => {
            add_list(to, 8, texts.len());
            texts.iter().for_each(|text| add_text(to, text));
        }
        Meta::Floats(numbers) => {
            add_list(to, 6, numbers.len());
            numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
        }
        Meta::Wholes(numbers) => {
            add_list(to, 5, numbers.len());
            numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_halves_of_heads_are_each_other_s_inverse() {
        // Two heads of four rows of three numbers: halves 0 1 | 2 3 become pairs 0 2 | 1 3.
        let values: Vec<f32> = (0..24).map(|n| n as f32).collect();
        let mut pairs = to_pairs(&values, 2, 3);
        let firsts: Vec<f32> = pairs.iter().step_by(3).copied().collect();
        assert_eq!(firsts, [0.0, 6.0, 3.0, 9.0, 12.0, 18.0, 15.0, 21.0]);
        to_halves(&mut pairs, 2, 3);
        assert_eq!(pairs, values);
    }
}
