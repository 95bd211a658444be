//! GGUF, the format of llama.cpp: configuration, tokenizer and weights of a model in one file. A file is read as if it were a model
//! directory of transformers, and a model of one is written as a file.
//!
//! | | of a file | of a directory |
//! |---|---|---|
//! | `header.rs` | metadata, names and places of tensors | |
//! | `kinds.rs`, `blocks.rs` | kinds of numbers, and their values by candle | f32, f16, bf16 |
//! | `matrix.rs` | matrices that stay in blocks | |
//! | `names.rs` | architectures and names of tensors | families and names of transformers |
//! | `config.rs`, `keys.rs` | keys of the architecture | `config.json` |
//! | `tokenizer.rs`, `vocabulary.rs` | `tokenizer.ggml.*` | `tokenizer.json`, `tokenizer_config.json` |
//! | `splits.rs` | `tokenizer.ggml.pre` | expressions that split a text into words |
//! | `file.rs`, `directory.rs` | the file | the files of the directory |
//! | `write.rs` | the bytes of a file | |

mod blocks;
mod config;
mod directory;
mod file;
mod header;
mod keys;
mod kinds;
mod matrix;
mod names;
mod splits;
mod tokenizer;
mod vocabulary;
pub(crate) mod write;

pub(crate) use config::{LONG_ROPE, ROPE_FREQS, read_config};
pub(crate) use directory::content;
pub(crate) use file::GgufFile;
pub(crate) use header::TensorPlace;
pub(crate) use keys::{ArchitectureKeys, architecture_keys};
pub use kinds::NumberKind;
pub(crate) use matrix::BlockMatrix;
pub(crate) use names::name_beside_layers;
pub(crate) use vocabulary::{TokenizerFiles, tokenizer_keys};

#[cfg(test)]
mod tests;
