//! Experts of the tokens of a text.

use std::sync::Arc;

/// Experts of the tokens of a text in all layers of a model that have experts, as its sampler chose them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// Numbers of experts `[tokens, width]`; of a token those of each layer, one after the other.
    experts: Arc<[u8]>,
    /// Number of choices of a token: layers with experts times experts of a token.
    width: usize,
}

impl Routes {
    /// Creates the routes of a text. Returns none if the numbers are not whole tokens.
    pub fn new(experts: impl Into<Arc<[u8]>>, width: usize) -> Option<Self> {
        let experts = experts.into();
        (width > 0 && experts.len().is_multiple_of(width)).then_some(Self { experts, width })
    }

    /// Returns the numbers of experts, `[tokens, width]`.
    pub fn experts(&self) -> &[u8] {
        &self.experts
    }

    /// Returns the number of choices of a token.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.experts.len() / self.width
    }
}
