//! Mistakes are collected and reported together.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes found so far in one item.
#[derive(Default)]
pub(crate) struct Errors {
    all: Option<syn::Error>,
    /// Some argument of the attribute could not be read.
    pub(crate) wrong_arguments: bool,
}

impl Errors {
    /// Adds a mistake.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.all {
            Some(errors) => errors.combine(error),
            None => self.all = Some(error),
        }
    }

    /// Adds a mistake at some tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds that an argument is missing, at the arguments that are there. If one of those is wrong, it is likely the
    /// missing one and nothing more is said.
    pub(crate) fn missing(&mut self, args: &TokenStream, message: impl std::fmt::Display) {
        match (self.wrong_arguments, args.is_empty()) {
            (true, _) => {}
            (false, true) => self.at_span(Span::call_site(), message),
            (false, false) => self.at(args, message),
        }
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
        match (self.all, value) {
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
