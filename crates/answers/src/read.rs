//! Texts as answers: numbers, tuples, sets, intervals, matrices, relations, words.

use crate::based::Based;
use crate::brackets::{
    find_outside, has_outside, is_enclosed, split_outside, strip_braces, symbols_outside,
};
use crate::choice::{read_choice, split_label, unwrap_text};
use crate::equation::{read_approximation, read_equation};
use crate::exact::ExactExpr;
use crate::expression::read_expression;
use crate::function::is_known;
use crate::inequality::{SIGNS, read_inequality};
use crate::list::{self, MAX_ITEMS, SEPARATORS};
use crate::name::is_name;
use crate::quantity::split_unit;
use crate::reading::NotationReading;
use crate::reals::Reals;
use crate::token::MathToken;
use crate::tokens::split_tokens;
use crate::unit;
use crate::value::{MathAnswer, MathValue};
use crate::work::{Stop, WorkBudget};

/// Deepest nesting of brackets.
const MAX_DEPTH: u32 = 8;
/// Phrases that state that there is no solution.
const NOTHING: [&str; 7] = [
    "no solution",
    "no solutions",
    "no real solution",
    "no real solutions",
    "empty set",
    "the empty set",
    "no real roots",
];
/// Phrases that state that every real number is a solution.
const EVERYTHING: [&str; 6] = [
    "all real numbers",
    "all reals",
    "the set of all real numbers",
    "every real number",
    "any real number",
    "real numbers",
];
/// Phrases after a comma at the end that say nothing about the value: `72, in total`.
const ASIDES: [&str; 6] =
    ["in total", "in all", "all together", "altogether", "overall", "respectively"];
/// Words after [`EVERYTHING`] that introduce excluded numbers.
const EXCEPTIONS: [&str; 4] = ["except", "except for", "other than", "excluding"];

/// Reads an answer.
pub(crate) fn read_answer(
    text: &str,
    reading: NotationReading,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let text = without_aside(text);
    if let Some(choice) = read_choice(text) {
        return Ok(MathValue::Choice(choice).into());
    }
    if let Some((option, rest)) = split_label(text, reading)
        && let Ok(value) = read_value(rest, reading, work)
        && (value.is_single() || matches!(value.value, MathValue::Words(_)))
    {
        return Ok(MathValue::Labeled { option, value: Box::new(value) }.into());
    }
    read_value(text, reading, work)
}

/// Reads an answer that is no option.
fn read_value(
    text: &str,
    reading: NotationReading,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    if let Some(words) = read_words(unwrap_text(text)) {
        return Ok(words);
    }
    let mut tokens = split_tokens(text, reading);
    while matches!(tokens.last(), Some(MathToken::Symbol('.' | ',' | ';'))) {
        tokens.pop();
    }
    work.spend(tokens.len() as u64)?;
    read_tokens(&tokens, MAX_DEPTH, work)
}

/// Returns the text without an aside after a comma at its end.
fn without_aside(text: &str) -> &str {
    let trimmed = text.trim_end_matches(['.', ' ']);
    let rest = ASIDES.iter().find_map(|aside| {
        let at = trimmed.len().checked_sub(aside.len())?;
        let is_aside = trimmed.get(at..)?.eq_ignore_ascii_case(aside);
        trimmed[..at].trim_end().strip_suffix(',').filter(|_| is_aside)
    });
    rest.unwrap_or(text)
}

/// Reads an answer in words; a number word is read as a number.
fn read_words(text: &str) -> Option<MathAnswer> {
    let text = text.trim_end_matches('.').to_lowercase();
    let wordy = text.chars().all(|c| c.is_alphabetic() || c.is_whitespace() || "-'".contains(c));
    let first = text.split_whitespace().next()?;
    if !wordy || first.chars().count() < 2 || !text.contains(|c: char| "aeiouy".contains(c)) {
        return None;
    }
    const NUMBERS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    if let Some(number) = NUMBERS.iter().position(|word| *word == text) {
        return Some(MathValue::Number(ExactExpr::integer(number as i64)).into());
    }
    let mut words = text.split_whitespace();
    if first == "pi" || words.all(|word| word.len() <= 4 && is_product(word) || unit::is_unit(word))
    {
        return None;
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match words.as_str() {
        words if NOTHING.contains(&words) => MathValue::Set(Vec::new()).into(),
        words if EVERYTHING.contains(&words) => MathAnswer::of_reals(Reals::all()),
        _ => MathValue::Words(words).into(),
    })
}

fn is_product(word: &str) -> bool {
    word.len() <= 2 || word.as_bytes().windows(2).all(|pair| pair[0] < pair[1])
}

/// Reads tokens as an answer.
fn read_tokens(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let depth = depth.checked_sub(1).ok_or(Stop::Budget)?;
    work.spend(1)?;
    let part = |tokens: &[MathToken], work: &mut WorkBudget| read_tokens(tokens, depth, work);
    // The conclusion follows the arrow.
    if let Some(at) = find_outside(tokens, |c| c == '⇒') {
        return read_tokens(&tokens[at + 1..], depth, work);
    }
    if let Some(rows) = split_rows(tokens) {
        return list::read_bare_list(&rows, &part, work);
    }
    if tokens == [MathToken::Symbol('∅')] {
        return Ok(MathValue::Set(Vec::new()).into());
    }
    if let Some(at) = find_outside(tokens, |c| c == '∈').filter(|at| is_name(&tokens[..*at])) {
        return read_tokens(&tokens[at + 1..], depth, work);
    }
    if let Some(reals) = read_real_line(tokens, depth, work)? {
        return Ok(reals);
    }
    if has_outside(tokens, SEPARATORS) {
        return list::read_bare_list(tokens, &part, work);
    }
    if let Some(both) = list::both_signs(tokens) {
        let items = both.join(&MathToken::Symbol(','));
        return list::read_bare_list(&items, &part, work);
    }
    if let Some(at) = find_outside(tokens, |c| c == '∈') {
        return read_tokens(&tokens[at + 1..], depth, work);
    }
    if has_outside(tokens, "∪∩∖") {
        return read_set_operations(tokens, depth, work);
    }
    if has_outside(tokens, "≈") {
        return read_approximation(tokens, &part, work);
    }
    if has_outside(tokens, SIGNS) {
        return read_inequality(tokens, work);
    }
    if has_outside(tokens, "=") {
        return read_equation(tokens, &part, work);
    }
    read_simple(tokens, depth, work)
}

/// Reads an answer without relations and separators.
fn read_simple(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    if let Some(answer) = read_bracketed(tokens, depth, work)? {
        return Ok(answer);
    }
    if let Some(rows) = read_matrix(tokens, work)? {
        return Ok(MathValue::Matrix(rows).into());
    }
    if let Some(based) = Based::read_tokens(tokens) {
        return Ok(MathValue::Based(based).into());
    }
    if let Some(words) = read_spoken_item(tokens) {
        return Ok(words);
    }
    read_quantity(tokens, depth, work)
}

/// Returns the rows of `aligned` and `cases` as items of a list; `None` for cases with conditions.
fn split_rows(tokens: &[MathToken]) -> Option<Vec<MathToken>> {
    let [MathToken::Word(begin), inside @ .., MathToken::Word(_)] = tokens else { return None };
    let name = begin.strip_prefix("begin ")?.trim_end_matches('*');
    let aligned = matches!(name, "align" | "aligned" | "gathered" | "gather" | "split");
    if !is_enclosed(tokens) || !aligned && name != "cases" {
        return None;
    }
    let kept = inside.iter().filter(|token| !aligned || **token != MathToken::Symbol('&'));
    let rows: Vec<MathToken> = kept.map(row_as_comma).collect();
    (!rows.contains(&MathToken::Symbol('&'))).then_some(rows)
}

/// Returns a comma for the end of a row, else the token itself.
fn row_as_comma(token: &MathToken) -> MathToken {
    match token {
        MathToken::Row => MathToken::Symbol(','),
        token => token.clone(),
    }
}

/// Reads the set of all real numbers, or of all except some: `\mathbb{R}`, `\mathbb{R} - \{2\}`,
/// `all real numbers except 2`.
fn read_real_line(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<Option<MathAnswer>, Stop> {
    let real = MathToken::Word("mathbb R".to_owned());
    let without = match tokens {
        [first] if *first == real => return Ok(Some(MathAnswer::of_reals(Reals::all()))),
        [first, MathToken::Symbol('^' | '_'), sign @ ..]
            if *first == real && strip_braces(sign) == [MathToken::Symbol('+')] =>
        {
            let positive = Reals::above(ExactExpr::integer(0), false);
            return Ok(Some(MathAnswer::of_reals(positive)));
        }
        [first, MathToken::Symbol('-'), rest @ ..] if *first == real => rest,
        _ => {
            let run = tokens.iter().map_while(token_word).collect::<Vec<&str>>();
            let (length, phrase) = (run.len(), run.join(" ").to_lowercase());
            let rest = EVERYTHING.iter().find_map(|start| phrase.strip_prefix(start));
            match rest.map(str::trim) {
                Some("") if length == tokens.len() => {
                    return Ok(Some(MathAnswer::of_reals(Reals::all())));
                }
                Some(except) if EXCEPTIONS.contains(&except) => &tokens[length..],
                _ => return Ok(None),
            }
        }
    };
    let points = read_tokens(without, depth, work)?.as_points(work)?;
    Ok(Some(MathAnswer::of_reals(points.ok_or(Stop::Meaningless)?.complement())))
}

/// Returns the word of a token that cannot be part of an expression.
fn token_word(token: &MathToken) -> Option<&str> {
    match token {
        MathToken::Word(word) if !is_known(word) && !word.contains(' ') => Some(word),
        MathToken::Text(text) => Some(text),
        _ => None,
    }
}

/// Reads a set built with `∪`, `∩` and `∖`, from left to right. A union of sets that are not real is kept unevaluated.
fn read_set_operations(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let parts = split_outside(tokens, |c| "∪∩∖".contains(c));
    let signs = symbols_outside(tokens, |c| "∪∩∖".contains(c));
    if parts.len() > MAX_ITEMS {
        return Err(Stop::Budget);
    }
    let parts: Result<Vec<MathAnswer>, Stop> =
        parts.iter().map(|part| read_tokens(part, depth, work)).collect();
    let parts = parts?;
    let mut all = parts[0].as_reals(work)?;
    for (sign, part) in signs.iter().zip(&parts[1..]) {
        all = match (all, part.as_reals(work)?) {
            (Some(all), Some(part)) => Some(match sign {
                '∪' => all.union(&part, work)?,
                '∩' => all.intersection(&part, work)?,
                _ => all.without(&part, work)?,
            }),
            _ => None,
        };
    }
    match all {
        Some(set) => Ok(MathAnswer::of_reals(set)),
        None if signs.iter().all(|sign| *sign == '∪') => Ok(MathValue::Union(parts).into()),
        None => Err(Stop::Meaningless),
    }
}

fn read_bracketed(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<Option<MathAnswer>, Stop> {
    let (Some(MathToken::Symbol(open)), Some(MathToken::Symbol(close))) =
        (tokens.first(), tokens.last())
    else {
        return Ok(None);
    };
    if !"([{⦃".contains(*open) || !is_enclosed(tokens) {
        return Ok(None);
    }
    let part = |tokens: &[MathToken], work: &mut WorkBudget| read_tokens(tokens, depth, work);
    let inside = &tokens[1..tokens.len() - 1];
    let parts = split_outside(inside, |c| ",;".contains(c));
    match (open, close) {
        ('⦃', _) => list::read_set(inside, &part, work).map(Some),
        ('{', _) if parts.len() > 1 => list::read_set(inside, &part, work).map(Some),
        ('{', _) => read_tokens(inside, depth, work).map(Some),
        _ if parts.len() > 1 => {
            let parts: Vec<Vec<MathToken>> = parts.into_iter().map(<[MathToken]>::to_vec).collect();
            let items = list::read_all(&parts, &part, work)?;
            Ok(Some(MathValue::Tuple { open: *open, items, close: *close }.into()))
        }
        ('(', ')') | ('[', ']') => read_tokens(inside, depth, work).map(Some),
        _ => Ok(None),
    }
}

fn read_matrix(
    tokens: &[MathToken],
    work: &mut WorkBudget,
) -> Result<Option<Vec<Vec<ExactExpr>>>, Stop> {
    let [MathToken::Word(begin), inside @ .., MathToken::Word(end)] = tokens else {
        return Ok(None);
    };
    let name = begin.strip_prefix("begin ");
    let name = name.filter(|name| name.ends_with("matrix") || *name == "array");
    if name.is_none() || name != end.strip_prefix("end ") {
        return Ok(None);
    }
    let rows = inside.split(|token| *token == MathToken::Row).filter(|row| !row.is_empty());
    let rows: Result<Vec<Vec<ExactExpr>>, Stop> = rows
        .map(|row| {
            let cells = row.split(|token| *token == MathToken::Symbol('&'));
            cells.map(|cell| read_expression(cell, work)).collect()
        })
        .collect();
    rows.map(Some)
}

/// Reads an item of a list that consists of words alone.
fn read_spoken_item(tokens: &[MathToken]) -> Option<MathAnswer> {
    let text = tokens.iter().map(token_word).collect::<Option<Vec<&str>>>()?.join(" ");
    read_choice(&text).map(|choice| MathValue::Choice(choice).into()).or_else(|| read_words(&text))
}

/// Reads a number or an expression with its unit, or a ratio.
fn read_quantity(
    tokens: &[MathToken],
    depth: u32,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let length = tokens.len();
    let (tokens, unit) = split_unit(tokens)?;
    if tokens.len() < length && is_enclosed(&tokens) {
        let value = read_tokens(&tokens, depth, work)?;
        return Ok(MathAnswer { unit, ..value });
    }
    if let Some(at) = find_outside(&tokens, |c| c == ':') {
        let (left, right) = (&tokens[..at], &tokens[at + 1..]);
        // `Area: 120`
        if is_name(left) {
            let value = read_tokens(right, depth, work)?;
            return Ok(MathAnswer { unit, ..value });
        }
        // `3:30 p.m.` is not a ratio.
        if unit.is_daytime()
            && let ([MathToken::Number { digits: hours, .. }], [MathToken::Number { digits, .. }]) =
                (left, right)
        {
            let time = MathValue::Words(format!("{}:{digits}", hours.trim_start_matches('0')));
            return Ok(MathAnswer { unit, ..time.into() });
        }
        let ratio = read_expression(left, work)?.over(&read_expression(right, work)?, work)?;
        return Ok(MathValue::Number(ratio).into());
    }
    let digits = match &tokens[..] {
        [MathToken::Number { digits, .. }] => Some(digits.clone()),
        _ => None,
    };
    let value = MathValue::Number(read_expression(&tokens, work)?);
    Ok(MathAnswer { unit, digits, ..value.into() })
}
