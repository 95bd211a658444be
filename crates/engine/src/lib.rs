//! Language models as maverl runs and trains them: everything between a directory of weights and a batch of rows.
//!
//! The crate knows no agent, no configuration file and no reward. A program gives it a model and rows of token ids with
//! advantages, and gets completions, log-probs and updated weights. The framework [`maverl`] is built on it.
//!
//! ```
//! use std::sync::Arc;
//! use maverl_engine::net::Model;
//! use maverl_engine::files::{ModelFiles, ModelSource};
//! use maverl_engine::text::Tokenizer;
//! use maverl_engine::runtime::{Request, Sampling, complete, score};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = ModelFiles::new(&ModelSource::parse("builtin:tiny")?);
//! let (model, tokenizer) = (Model::load(&files)?, Arc::new(Tokenizer::load(&files)?));
//! let prompt = tokenizer.encode_plain("who wrote")?;
//! let sampling = Arc::new(Sampling { max_tokens: 8, ..Sampling::default() });
//! let request = Request::new(prompt.clone(), sampling, 7);
//! let done = complete(&model, &tokenizer, request, |_| ())?;
//! // Log-probs of the whole row agree with those at sampling to the bit.
//! let row = [prompt.clone(), done.ids].concat();
//! assert_eq!(score(&model, &[row])?[0].logprobs[prompt.len() - 1..], done.logprobs);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules, in reading order
//!
//! | | |
//! |---|---|
//! | [`message`] | messages of a conversation |
//! | [`files`] | files of models: Hugging Face directories, the hub, configurations and weights |
//! | [`text`] | tokenizers and chat templates |
//! | [`net`] | the decoder of every family, adapters and heads, forward and backward |
//! | [`loss`] | losses as pure functions, each with its derivative |
//! | [`runtime`] | worker groups: the threads that own models, generate and update |
//!
//! [`maverl`]: https://docs.rs/maverl
#![cfg_attr(test, allow(clippy::disallowed_methods))] // tests compare with the functions of the C library
#![warn(missing_docs)]

pub mod files;
pub mod loss;
pub mod message;
pub mod net;
pub mod runtime;
pub mod text;

// The path of generated code of `#[derive(Settings)]`.
use maverl_settings as settings;
