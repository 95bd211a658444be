//! Quantities: tokens of a number and of its unit.

use crate::function::{is_function, is_known};
use crate::token::MathToken;
use crate::unit::{MathUnit, UnitPiece, lookup_unit, text_pieces};
use crate::work::Stop;

/// Splits tokens into a quantity and its unit. The unit is the text after the number and any currency sign.
///
/// # Errors
///
/// If the words after the number state another number or deny it.
pub(crate) fn split_unit(tokens: &[MathToken]) -> Result<(Vec<MathToken>, MathUnit), Stop> {
    let mut quantity = tokens.to_vec();
    let mut unit = MathUnit::default();
    let start = (1..tokens.len()).find(|at| unit_begins(tokens, *at));
    if let Some((start, pieces)) = start.and_then(|at| Some((at, split_pieces(&tokens[at..])?))) {
        unit = MathUnit::from_pieces(&pieces)?;
        quantity.truncate(start);
    }
    let (money, quantity): (Vec<_>, Vec<_>) = quantity
        .into_iter()
        .partition(|token| matches!(token, MathToken::Symbol('$' | '€' | '£' | '¥' | '₹' | '¢')));
    if let Some(MathToken::Symbol(sign)) = money.first() {
        let sign = lookup_unit(&sign.to_string()).unwrap_or_default();
        unit.multiply(sign, 1);
    }
    Ok((quantity, unit))
}

/// Returns true if a unit may begin at a token.
fn unit_begins(tokens: &[MathToken], at: usize) -> bool {
    use MathToken::{Symbol, Text, Word};
    match &tokens[at..] {
        // Inside a function degrees are part of the number.
        [Symbol('°'), ..]
        | [Symbol('^'), Symbol('°'), ..]
        | [Symbol('^'), Symbol('{'), Symbol('°'), ..] => {
            !tokens.iter().any(|token| matches!(token, Word(word) if is_function(word)))
        }
        [Text(_) | Symbol('%'), ..] => true,
        [Word(frac), Symbol('{'), Text(_), ..] if frac == "frac" => true,
        [Word(micro), Text(_), ..] => micro == "mu",
        [Symbol('/'), Text(_), ..] => true,
        [Symbol('/'), Word(word), ..] | [Word(word), ..] => !is_known(word) && !word.contains(' '),
        _ => false,
    }
}

/// Splits tokens into the pieces of a unit; `None` if the tokens are something else.
fn split_pieces(mut tokens: &[MathToken]) -> Option<Vec<UnitPiece>> {
    use MathToken::{Letter, Number, Symbol, Text, Word};
    let mut pieces = Vec::new();
    while let Some(first) = tokens.first() {
        let mut length = 1;
        match tokens {
            [Text(text), ..] => pieces.extend(text_pieces(text)?),
            // `\mu\text{m}`
            [Word(micro), Text(text), ..] if micro == "mu" => {
                pieces.extend(text_pieces(&format!("μ{}", text.trim_start()))?);
                length = 2;
            }
            // `\frac{\text{km}}{\text{h}}`
            [Word(frac), Symbol('{'), ..] if frac == "frac" => {}
            [Symbol('}'), Symbol('{'), ..] => {
                pieces.push(UnitPiece::Per);
                length = 2;
            }
            [Word(text), ..] if !is_known(text) && !text.contains(' ') => {
                pieces.push(UnitPiece::Word(text.clone()));
            }
            [Symbol('^'), Symbol('{'), Symbol('°'), Symbol('}'), ..] => {
                pieces.push(UnitPiece::Word("°".to_owned()));
                length = 4;
            }
            [Symbol('^'), Symbol('{'), Symbol('-'), Number { digits, .. }, Symbol('}'), ..] => {
                pieces.push(UnitPiece::Power(-digits.parse::<i32>().ok()?));
                length = 5;
            }
            [Symbol('^'), Symbol('{'), Number { digits, .. }, Symbol('}'), ..] => {
                pieces.push(UnitPiece::Power(digits.parse().ok()?));
                length = 4;
            }
            [Symbol('^'), Number { digits, .. }, ..] => {
                pieces.push(UnitPiece::Power(digits.parse().ok()?));
                length = 2;
            }
            [Number { digits, .. }, ..] if matches!(pieces.last(), Some(UnitPiece::Word(_))) => {
                pieces.push(UnitPiece::Power(digits.parse().ok().filter(|n| matches!(n, 2 | 3))?));
            }
            [Letter(letter), ..] if !pieces.is_empty() => {
                pieces.push(UnitPiece::Word(letter.to_string()));
            }
            [Symbol('/'), ..] => pieces.push(UnitPiece::Per),
            [Symbol(symbol @ ('°' | '%' | '$' | '€' | '£' | '¥' | '₹' | '¢')), ..] => {
                pieces.push(UnitPiece::Word(symbol.to_string()));
            }
            [Symbol('^' | '*' | '.' | '(' | ')' | '{' | '}' | '-'), ..] => {}
            _ => return None,
        }
        debug_assert!(length > 0, "{first:?}");
        tokens = &tokens[length..];
    }
    Some(pieces)
}
