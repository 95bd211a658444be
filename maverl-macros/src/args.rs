//! The arguments of an attribute: `key = value`, `key(..)` or `key`, separated by commas.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Ident, LitStr, Path, Token, token};

use crate::errors::{Errors, did_you_mean, quote_words};

/// Calls `read` for each argument with a known key, right after the key. Continues after an error, so that all are
/// reported.
pub(crate) fn read_args(
    tokens: TokenStream,
    known: &[&str],
    errors: &mut Errors,
    mut read: impl FnMut(&str, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) {
    let parsed =
        (|input: ParseStream<'_>| parse_args(input, known, errors, &mut read)).parse2(tokens);
    if let Err(error) = parsed {
        errors.push(error);
    }
}

fn parse_args(
    input: ParseStream<'_>,
    known: &[&str],
    errors: &mut Errors,
    read: &mut impl FnMut(&str, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) -> syn::Result<()> {
    let mut seen = Vec::new();
    while !input.is_empty() {
        let done = read_key(input, known, &mut seen)
            .and_then(|key| read(&key, input, errors))
            .and_then(|()| end_of_argument(input));
        if let Err(error) = done {
            errors.push(error);
            errors.wrong_arguments = true;
            skip_argument(input)?;
        }
        input.parse::<Option<Token![,]>>()?;
    }
    Ok(())
}

fn read_key(input: ParseStream<'_>, known: &[&str], seen: &mut Vec<String>) -> syn::Result<String> {
    let Ok(ident) = input.call(Ident::parse_any) else {
        return Err(input.error(format!("expected one of the arguments {}", quote_words(known))));
    };
    let key = ident.to_string();
    if !known.contains(&key.as_str()) {
        let hint = did_you_mean(&key, known);
        return Err(syn::Error::new(ident.span(), format!("unknown argument `{key}`{hint}")));
    }
    if seen.contains(&key) {
        return Err(syn::Error::new(ident.span(), format!("`{key}` is given twice; keep one")));
    }
    seen.push(key.clone());
    Ok(key)
}

fn end_of_argument(input: ParseStream<'_>) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        Ok(())
    } else {
        Err(input.error("expected `,` before the next argument"))
    }
}

/// Skips to the comma before the next argument (commas inside a type's `<..>` do not count).
fn skip_argument(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() {
        let key_follows =
            input.peek2(Ident::peek_any) && (input.peek3(Token![=]) || input.peek3(token::Paren));
        if input.peek(Token![,]) && key_follows {
            break;
        }
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

/// Parses `= value`; `form` is the form of the whole argument.
pub(crate) fn value<T: Parse>(input: ParseStream<'_>, form: &str) -> syn::Result<T> {
    if !input.peek(Token![=]) {
        return Err(input.error(format!("write `{form}`")));
    }
    input.parse::<Token![=]>()?;
    let here = input.fork();
    input.parse().map_err(|_| here.error(format!("write `{form}`")))
}

/// Parses `("word", ..)`, each a snake_case word.
pub(crate) fn parse_words(
    input: ParseStream<'_>,
    form: &str,
    errors: &mut Errors,
) -> syn::Result<Vec<LitStr>> {
    if !input.peek(token::Paren) {
        return Err(input.error(format!("write `{form}`")));
    }
    let content;
    syn::parenthesized!(content in input);
    let words = content
        .parse_terminated(<LitStr as Parse>::parse, Token![,])
        .map_err(|error| syn::Error::new(error.span(), format!("write `{form}`")))?;
    for word in &words {
        crate::name::check_word(word, errors);
    }
    Ok(words.into_iter().collect())
}

/// Parses `= path` of `crate`.
pub(crate) fn crate_path(input: ParseStream<'_>) -> syn::Result<Path> {
    if !input.peek(Token![=]) {
        return Err(input.error("write `crate = path`"));
    }
    input.parse::<Token![=]>()?;
    input.call(Path::parse_mod_style)
}

/// Returns the path of the framework crate.
pub(crate) fn krate(given: Option<Path>) -> Path {
    given.unwrap_or_else(|| syn::parse_quote!(::maverl))
}

/// Returns the path with spans at `span`: an error about an expression underlines it from its first token.
pub(crate) fn shown_at(span: Span, path: &Path) -> Path {
    let mut path = path.clone();
    if let Some(colons) = &mut path.leading_colon {
        colons.spans = [span; 2];
    }
    for segment in &mut path.segments {
        segment.ident.set_span(span);
    }
    path
}
