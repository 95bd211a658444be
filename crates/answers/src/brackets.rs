//! Bracket structure of token slices: top-level symbols, parts between separators, enclosing pairs.

use crate::token::MathToken;

/// Returns the change of bracket depth at a token.
pub(crate) fn depth_change(token: &MathToken) -> i32 {
    match token {
        MathToken::Symbol('(' | '[' | '{' | '⦃') => 1,
        MathToken::Symbol(')' | ']' | '}' | '⦄') => -1,
        MathToken::Word(word) if word.starts_with("begin ") => 1,
        MathToken::Word(word) if word.starts_with("end ") => -1,
        _ => 0,
    }
}

/// Returns the position of the first wanted symbol outside all brackets.
pub(crate) fn find_outside(tokens: &[MathToken], wanted: impl Fn(char) -> bool) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += depth_change(token);
        matches!(token, MathToken::Symbol(symbol) if depth == 0 && wanted(*symbol))
    })
}

/// Returns true if one of some symbols stands outside all brackets.
pub(crate) fn has_outside(tokens: &[MathToken], wanted: &str) -> bool {
    find_outside(tokens, |c| wanted.contains(c)).is_some()
}

/// Parts between separators outside all brackets; at least one.
pub(crate) fn split_outside(
    mut tokens: &[MathToken],
    separator: impl Fn(char) -> bool,
) -> Vec<&[MathToken]> {
    let mut parts = Vec::new();
    while let Some(at) = find_outside(tokens, &separator) {
        parts.push(&tokens[..at]);
        tokens = &tokens[at + 1..];
    }
    parts.push(tokens);
    parts
}

/// Returns all wanted symbols outside all brackets, in order.
pub(crate) fn symbols_outside(
    mut tokens: &[MathToken],
    wanted: impl Fn(char) -> bool,
) -> Vec<char> {
    let mut symbols = Vec::new();
    while let Some(at) = find_outside(tokens, &wanted) {
        symbols.extend(match tokens[at] {
            MathToken::Symbol(symbol) => Some(symbol),
            _ => None,
        });
        tokens = &tokens[at + 1..];
    }
    symbols
}

/// Returns true if the bracket that opens the tokens is closed by the last token.
pub(crate) fn is_enclosed(tokens: &[MathToken]) -> bool {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += depth_change(token);
        depth == 0
    });
    tokens.len() > 1 && end == Some(tokens.len() - 1)
}

/// Returns the tokens between a pair of brackets that encloses all of them.
pub(crate) fn inside_brackets(
    tokens: &[MathToken],
    open: char,
    close: char,
) -> Option<&[MathToken]> {
    match tokens {
        [MathToken::Symbol(first), inside @ .., MathToken::Symbol(last)]
            if (*first, *last) == (open, close) && is_enclosed(tokens) =>
        {
            Some(inside)
        }
        _ => None,
    }
}

/// Returns the tokens without the braces that enclose all of them and only group.
pub(crate) fn strip_braces(mut tokens: &[MathToken]) -> &[MathToken] {
    while let Some(inside) = inside_brackets(tokens, '{', '}') {
        tokens = inside;
    }
    tokens
}
