//! Grammars: forms that completions must have.

use std::fmt::Debug;

/// A form that a completion must have. It restricts each token to those that may follow the tokens before it.
///
/// The completion depends on the grammar and on its own tokens alone (K-1). Its log-probs are those of the model without
/// the restriction.
pub trait Grammar: Debug + Send + Sync {
    /// Begins a completion.
    fn begin(&self) -> Box<dyn GrammarState>;
}

/// Place of a completion in its grammar.
pub trait GrammarState: Send {
    /// Sets the logits of the tokens that may not come next to negative infinity. Where the completion may end, the ids
    /// that end it are left as they are.
    ///
    /// # Errors
    ///
    /// If no token is possible, or the grammar takes too long; the request then ends with this message.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String>;

    /// Adds a token that the mask allowed.
    ///
    /// # Errors
    ///
    /// If the token does not follow.
    fn push(&mut self, id: u32) -> Result<(), String>;
}
