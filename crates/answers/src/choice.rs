//! Options of a question: `(B)`, alone or with their value.

use crate::reading::NotationReading;
use crate::token::MathToken;
use crate::tokens::split_tokens;
use crate::unit;

/// Commands whose argument is text, with their brace.
const TEXTUAL: [&str; 6] =
    ["\\text{", "\\mbox{", "\\textbf{", "\\mathrm{", "\\textnormal{", "\\textrm{"];

/// Reads an option: `A`, `(B)`, `\text{(C)}`, `D.`
pub(crate) fn read_choice(text: &str) -> Option<char> {
    let text = unwrap_text(text);
    let text = text.trim_end_matches('.').trim_matches(['(', ')']).trim();
    let mut letters = text.chars();
    letters.next().filter(|c| ('A'..='J').contains(c) && letters.next().is_none())
}

/// Returns the argument of `\text{..}` if that is the whole text, else the text itself.
pub(crate) fn unwrap_text(text: &str) -> &str {
    let text = text.trim().trim_matches('$').trim_end_matches('.').trim();
    let text = text.strip_prefix("\\displaystyle").unwrap_or(text).trim();
    let inner = TEXTUAL
        .iter()
        .find_map(|start| text.strip_prefix(start))
        .and_then(|rest| rest.strip_suffix('}'));
    inner.filter(|inner| !inner.contains(['{', '}'])).unwrap_or(text).trim()
}

/// Splits an option from its value: `\textbf{(B)}\ 12`, `\text{(B) }12`, `(B) 12`, `B) 12`, `B. 12`.
pub(crate) fn split_label(text: &str, reading: NotationReading) -> Option<(char, &str)> {
    const BLANKS: [char; 4] = [' ', '~', '\\', '$'];
    const SPACES: [&str; 4] = [" ", "~", "$", "\\ "];
    let text = unwrap_text(text);
    let wrapped = TEXTUAL.iter().chain(&["\\mathbf{"]).find_map(|start| text.strip_prefix(start));
    let (label, rest) = match wrapped {
        Some(rest) => rest.split_once('}')?,
        None => text.split_at(text.find([')', '.'])? + 1),
    };
    let label = label.trim_matches(BLANKS);
    let label = label.strip_prefix('(').unwrap_or(label).strip_suffix([')', '.', ':'])?;
    let mut letters = label.chars();
    let option = letters.next().filter(|c| ('A'..='J').contains(c) && letters.next().is_none())?;
    let spaced = wrapped.is_some() || rest.starts_with(BLANKS);
    let mut rest = rest;
    while let Some(text) = SPACES.iter().find_map(|space| rest.strip_prefix(space)) {
        rest = text;
    }
    (spaced && read_choice(rest).is_none() && begins_value(rest, reading)).then_some((option, rest))
}

/// Returns true if a text after an option is its value: it begins with no operator and no separator, and denies nothing.
fn begins_value(text: &str, reading: NotationReading) -> bool {
    if text.split(|c: char| !c.is_alphabetic()).any(unit::is_hedge) {
        return false;
    }
    match split_tokens(text, reading).as_slice() {
        [] => false,
        [MathToken::Symbol('-'), MathToken::Number { .. } | MathToken::Word(_), ..] => {
            text.starts_with('-') && !text.starts_with("- ")
        }
        [MathToken::Symbol(sign), ..] => "([{⦃|$€£∅".contains(*sign),
        _ => true,
    }
}
