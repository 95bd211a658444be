//! Collection of errors, which are reported together.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Errors found so far in one item.
#[derive(Default)]
pub(crate) struct Errors {
    all: Option<syn::Error>,
    /// True if some argument of the attribute could not be read.
    pub(crate) wrong_arguments: bool,
}

impl Errors {
    /// Adds an error.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.all {
            Some(errors) => errors.combine(error),
            None => self.all = Some(error),
        }
    }

    /// Adds an error at some tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds an error about a missing argument, at the arguments that are present. If one of those is wrong, it is
    /// probably the missing one, and no error is added.
    pub(crate) fn report_missing(&mut self, args: &TokenStream, message: impl std::fmt::Display) {
        match (self.wrong_arguments, args.is_empty()) {
            (true, _) => {}
            (false, true) => self.at_span(Span::call_site(), message),
            (false, false) => self.at(args, message),
        }
    }

    /// Adds an error at a span.
    pub(crate) fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Returns the value, or `None` after adding its error.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Returns the value if there are no errors; it is present whenever none were added.
    pub(crate) fn finish<T>(self, value: Option<T>) -> syn::Result<T> {
        match (self.all, value) {
            (Some(errors), _) => Err(errors),
            (None, Some(value)) => Ok(value),
            (None, None) => unreachable!("a part is missing only where a mistake was added"),
        }
    }
}

/// Formats `; did you mean X?` if one of the known words is close, else the list of them.
pub(crate) fn did_you_mean(found: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min();
    match (near, known) {
        (Some((_, word)), _) => format!("; did you mean `{word}`?"),
        (None, []) => "; there are none".to_owned(),
        (None, _) => format!("; known: {}", quote_words(known)),
    }
}

/// Formats `` `a`, `b` ``.
pub(crate) fn quote_words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
