//! The types of an agent: `Input -> Output`, before its other arguments.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::{Token, Type};

use crate::errors::Errors;

/// Splits the types off the arguments. Returns them, if they are there, and the other arguments. `form` is the form of the whole
/// attribute.
pub(crate) fn split(
    tokens: TokenStream,
    form: &str,
    errors: &mut Errors,
) -> (Option<(Type, Type)>, TokenStream) {
    let (first, rest) = first_argument(tokens.clone());
    if !is_types(&first) {
        return (None, tokens);
    }
    match read_types.parse2(first.iter().cloned().collect()) {
        Ok(types) => (Some(types), rest),
        Err(_) => {
            let first: TokenStream = first.into_iter().collect();
            let message = format!("write the types of the agent's input and reply: `{form}`");
            errors.at(first, message);
            errors.wrong_arguments = true;
            (None, rest)
        }
    }
}

fn read_types(input: ParseStream<'_>) -> syn::Result<(Type, Type)> {
    let first = input.parse()?;
    input.parse::<Token![->]>()?;
    Ok((first, input.parse()?))
}

/// Splits off the tokens before the first comma that is not inside of `<..>`.
fn first_argument(tokens: TokenStream) -> (Vec<TokenTree>, TokenStream) {
    let mut tokens = tokens.into_iter();
    let (mut first, mut depth, mut after_dash) = (Vec::new(), 0_i32, false);
    for token in tokens.by_ref() {
        let TokenTree::Punct(punct) = &token else {
            after_dash = false;
            first.push(token);
            continue;
        };
        match punct.as_char() {
            ',' if depth == 0 => break,
            '<' => depth += 1,
            '>' if !after_dash => depth -= 1,
            _ => {}
        }
        after_dash = punct.as_char() == '-' && punct.spacing() == Spacing::Joint;
        first.push(token);
    }
    (first, tokens.collect())
}

/// Returns true if an argument is meant as types: it has an arrow, or begins like a type and not like a key.
fn is_types(argument: &[TokenTree]) -> bool {
    let arrow = argument.windows(2).any(|pair| match pair {
        [TokenTree::Punct(first), TokenTree::Punct(second)] => {
            first.as_char() == '-' && second.as_char() == '>'
        }
        _ => false,
    });
    let capital = match argument.first() {
        Some(TokenTree::Ident(ident)) => ident.to_string().starts_with(char::is_uppercase),
        _ => false,
    };
    arrow || capital
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use quote::{ToTokens, quote};

    use super::*;

    fn parts(tokens: TokenStream) -> Option<[String; 3]> {
        let (types, rest) = split(tokens, "", &mut Errors::default());
        let (input, output) = types?;
        Some([input.to_token_stream(), output.to_token_stream(), rest].map(|it| it.to_string()))
    }

    #[test]
    fn types_are_split_off_at_the_first_comma_outside_of_them() {
        let found =
            parts(quote!(Pair<'static, u8, Vec<A>> -> Both<u8, f64>, name = "a/b")).unwrap();
        assert_eq!(found[1..], ["Both < u8 , f64 >", "name = \"a/b\""]);
        assert_eq!(parts(quote!(crate::Work -> String)).unwrap()[1..], ["String", ""]);
        assert_eq!(parts(quote!(name = "a/b", input = A)), None);
        assert_eq!(parts(quote!()), None);
    }

    #[test]
    fn half_of_the_types_is_a_mistake() {
        for wrong in [
            quote!(Work),
            quote!(Work -> ),
            quote!(-> Draft),
            quote!(Work => Draft),
            quote!(A -> B C),
        ] {
            let mut errors = Errors::default();
            assert!(split(wrong, "form", &mut errors).0.is_none());
            assert!(errors.finish(Some(())).unwrap_err().to_string().ends_with("`form`"));
        }
    }
}
