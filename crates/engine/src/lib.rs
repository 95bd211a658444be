//! Language models as maverl runs and trains them: everything between a directory of weights and a batch of rows.
//!
//! The crate knows no agent, no configuration file and no reward. A program gives it a model and rows of token ids with
//! advantages, and gets completions, log-probs and updated weights. The framework [`maverl`] is built on it.
//!
//! ```
//! use std::sync::Arc;
//! use maverl_engine::model::{Model, ModelFiles, ModelSource, Tokenizer};
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
//! | [`model`] | Hugging Face directories, tokenizer and chat template, the decoder of every family, adapters, heads |
//! | [`loss`] | losses as pure functions, each with its derivative |
//! | [`runtime`] | worker groups: the threads that own models, generate and update |
//!
//! [`maverl`]: https://docs.rs/maverl
#![warn(missing_docs)]

/// Message about a feature that this program lacks, and how to build it with the feature, which a crate names at a
/// dependency (`maverl` if none is given).
// Defined before the modules, which use it without a path.
#[doc(hidden)]
#[macro_export]
macro_rules! lacks_feature {
    ($feature:literal) => {
        $crate::lacks_feature!($feature, "maverl")
    };
    ($feature:literal, $dependency:literal) => {
        concat!(
            "this program lacks the feature `",
            $feature,
            "`: build it with `--features ",
            $feature,
            "` in a clone of maverl, or in your crate with `features = [\"",
            $feature,
            "\"]` of the dependency `",
            $dependency,
            "`"
        )
    };
}

#[doc(hidden)]
pub mod dist;
pub mod loss;
pub mod message;
pub mod model;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod retry;
pub mod runtime;

// The path of generated code of `#[derive(Settings)]`.
use maverl_settings as settings;
