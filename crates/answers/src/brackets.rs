//! Bracket structure of token slices: top-level symbols, parts between separators, enclosing pairs.

use crate::token::Token;

/// Returns the change of bracket depth at a token.
pub(crate) fn nesting(token: &Token) -> i32 {
    match token {
        Token::Symbol('(' | '[' | '{' | '⦃') => 1,
        Token::Symbol(')' | ']' | '}' | '⦄') => -1,
        Token::Word(word) if word.starts_with("begin ") => 1,
        Token::Word(word) if word.starts_with("end ") => -1,
        _ => 0,
    }
}

/// Returns the position of the first wanted symbol outside all brackets.
pub(crate) fn top(tokens: &[Token], wanted: impl Fn(char) -> bool) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += nesting(token);
        matches!(token, Token::Symbol(symbol) if depth == 0 && wanted(*symbol))
    })
}

/// Parts between separators outside all brackets; at least one.
pub(crate) fn split(mut tokens: &[Token], separator: impl Fn(char) -> bool) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    while let Some(at) = top(tokens, &separator) {
        parts.push(&tokens[..at]);
        tokens = &tokens[at + 1..];
    }
    parts.push(tokens);
    parts
}

/// Returns all wanted symbols outside all brackets, in order.
pub(crate) fn symbols(mut tokens: &[Token], wanted: impl Fn(char) -> bool) -> Vec<char> {
    let mut symbols = Vec::new();
    while let Some(at) = top(tokens, &wanted) {
        symbols.extend(match tokens[at] {
            Token::Symbol(symbol) => Some(symbol),
            _ => None,
        });
        tokens = &tokens[at + 1..];
    }
    symbols
}

/// Returns true if the bracket that opens the tokens is closed by the last token.
pub(crate) fn closes(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += nesting(token);
        depth == 0
    });
    tokens.len() > 1 && end == Some(tokens.len() - 1)
}

/// Returns the tokens between a pair of brackets that encloses all of them.
pub(crate) fn inside(tokens: &[Token], open: char, close: char) -> Option<&[Token]> {
    match tokens {
        [Token::Symbol(first), inside @ .., Token::Symbol(last)]
            if (*first, *last) == (open, close) && closes(tokens) =>
        {
            Some(inside)
        }
        _ => None,
    }
}

/// Returns the tokens without the braces that enclose all of them and only group.
pub(crate) fn ungrouped(mut tokens: &[Token]) -> &[Token] {
    while let Some(inside) = inside(tokens, '{', '}') {
        tokens = inside;
    }
    tokens
}
