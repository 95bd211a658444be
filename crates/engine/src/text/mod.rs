//! Text and token ids: tokenizers and chat templates.
//!
//! Types are exported here; the paths of the files that contain them may change.

mod error;
#[doc(hidden)]
pub mod tokenizer;

pub use error::TokenizerError;
pub(crate) use tokenizer::FURTHER_TEMPLATES;
pub use tokenizer::{
    ChatInput, ChatMessage, Continuation, Detokenizer, Piece, Rendered, Tokenizer,
};
