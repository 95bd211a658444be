//! Text and token ids: tokenizers and chat templates.
//!
//! Types are exported here; the paths of the files that contain them may change.

mod error;
mod text_template;
#[doc(hidden)]
pub mod tokenizer;

pub use error::TokenizerError;
#[doc(hidden)]
pub use text_template::TextTemplate;
pub(crate) use tokenizer::FURTHER_TEMPLATES;
#[cfg(feature = "candle")]
pub(crate) use tokenizer::template_sources;
pub use tokenizer::{
    ChatInput, ChatMessage, Continuation, Detokenizer, Piece, Rendered, Tokenizer,
};
