//! Mistakes are collected and reported together.

use proc_macro2::Span;
use quote::ToTokens;

/// The mistakes found so far in one item.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds a mistake.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Adds a mistake at some tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds a mistake at a span.
    pub(crate) fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// The value, or `None` with its error added.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// The value if there were no mistakes; it is there whenever none were added.
    pub(crate) fn finish<T>(self, value: Option<T>) -> syn::Result<T> {
        match (self.0, value) {
            (Some(errors), _) => Err(errors),
            (None, Some(value)) => Ok(value),
            (None, None) => unreachable!("a part is missing only where a mistake was added"),
        }
    }
}

/// `; did you mean X?` if one of the known words is close, else the list of them.
pub(crate) fn did_you_mean(found: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min();
    match (near, known) {
        (Some((_, word)), _) => format!("; did you mean `{word}`?"),
        (None, []) => "; there are none".to_owned(),
        (None, _) => format!("; known: {}", quoted(known)),
    }
}

/// `` `a`, `b` ``.
pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
