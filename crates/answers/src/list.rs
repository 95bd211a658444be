//! Lists: items in any order, results with names, and conditions that hold together or one by one.

use crate::brackets::{closes, split, symbols, top};
use crate::inequality::SIGNS;
use crate::name::is_name;
use crate::reals::Reals;
use crate::token::Token;
use crate::value::{Answer, ReadPart, Value};
use crate::work::{Stop, Work};

/// Maximum number of items of a list that is compared.
pub(crate) const MAX_ITEMS: usize = 40;
/// Symbols between items; `∧` and `∨` stand for the words and the signs.
pub(crate) const SEPARATORS: &str = ",;∧∨";

/// Reads a list without brackets.
///
/// # Errors
///
/// If the list has fewer than two items, or an item is meaningless.
pub(crate) fn bare(tokens: &[Token], read: ReadPart<'_>, work: &mut Work) -> Result<Answer, Stop> {
    let items = parts(tokens);
    if items.len() < 2 {
        return Err(Stop::Meaningless);
    }
    list(tokens, items, read, work)
}

/// Reads the content of the braces of a set.
pub(crate) fn set(inside: &[Token], read: ReadPart<'_>, work: &mut Work) -> Result<Answer, Stop> {
    if let Some(set) = described(inside, read, work)? {
        return Ok(set);
    }
    let items = all(&parts(inside), read, work)?;
    Ok(match one_by_one(items) {
        Value::Set(items) => Value::Set(items),
        other => other,
    }
    .into())
}

/// Reads each part.
pub(crate) fn all(
    parts: &[Vec<Token>],
    read: ReadPart<'_>,
    work: &mut Work,
) -> Result<Vec<Answer>, Stop> {
    if parts.len() > MAX_ITEMS {
        return Err(Stop::Budget);
    }
    parts.iter().map(|part| read(part, work)).collect()
}

/// Splits a list into items. `a \pm b` is two items, and the text before `and` may end in a comma.
fn parts(tokens: &[Token]) -> Vec<Vec<Token>> {
    let parts = split(tokens, |c| SEPARATORS.contains(c)).into_iter();
    let parts = parts.filter(|part| !part.is_empty());
    parts
        .flat_map(|part| match both_signs(part) {
            Some(both) => both.to_vec(),
            None => vec![part.to_vec()],
        })
        .collect()
}

/// Returns the tokens with the upper signs for `±`, and with the lower ones.
pub(crate) fn both_signs(tokens: &[Token]) -> Option<[Vec<Token>; 2]> {
    let chosen = |upper: char, lower: char| -> Vec<Token> {
        let chosen = tokens.iter().map(|token| match token {
            Token::Symbol('±') => Token::Symbol(upper),
            Token::Symbol('∓') => Token::Symbol(lower),
            token => token.clone(),
        });
        chosen.collect()
    };
    let inside_brackets =
        matches!(tokens.first(), Some(Token::Symbol('⦃' | '(' | '['))) && closes(tokens);
    let signed = tokens.contains(&Token::Symbol('±')) && !inside_brackets;
    signed.then(|| [chosen('+', '-'), chosen('-', '+')])
}

fn list(
    tokens: &[Token],
    mut parts: Vec<Vec<Token>>,
    read: ReadPart<'_>,
    work: &mut Work,
) -> Result<Answer, Stop> {
    // `x = 3, 4` and `x < -2 or > 2`: the text before the first sign applies to every item.
    let sign = |c: char| c == '=' || SIGNS.contains(c);
    if let Some(at) = top(&parts[0], sign).filter(|at| is_left(&parts[0][..*at])) {
        let (name, with_sign) = (parts[0][..at].to_vec(), parts[0][..=at].to_vec());
        for part in &mut parts[1..] {
            match top(part, sign) {
                None => part.splice(0..0, with_sign.iter().cloned()),
                Some(0) => part.splice(0..0, name.iter().cloned()),
                Some(_) => continue,
            };
        }
    }
    let condition =
        |part: &Vec<Token>| !symbols(part, |c| SIGNS.contains(c) || "∈∖∪∩".contains(c)).is_empty();
    let conditions = parts.iter().any(condition);
    let items = all(&parts, read, work)?;
    if conditions && let Some(set) = joined(tokens, &items, work)? {
        return Ok(set);
    }
    Ok(one_by_one(items).into())
}

/// Returns true for a left-hand side before a sign: a name, or names in brackets.
fn is_left(tokens: &[Token]) -> bool {
    let names = match tokens {
        [Token::Symbol('('), inside @ .., Token::Symbol(')')] if closes(tokens) => {
            split(inside, |c| c == ',').iter().all(|part| is_name(part))
        }
        _ => false,
    };
    names || is_name(tokens)
}

/// Returns the items as results of different names if all items are named, else as an unordered list.
fn one_by_one(items: Vec<Answer>) -> Value {
    let names: Option<Vec<_>> = items
        .iter()
        .map(|item| match &item.value {
            Value::Named { name, value } => Some((name.clone(), (**value).clone())),
            _ => None,
        })
        .collect();
    match names.filter(|names| names.len() > 1) {
        Some(names) if names.iter().all(|(name, _)| *name == names[0].0) => {
            Value::Set(names.into_iter().map(|(_, value)| value).collect())
        }
        Some(names) => Value::Assigned(names),
        None => Value::Set(items),
    }
}

/// Combines conditions on one variable into a set: with `or` any of them holds, with `and` all of them. With commas all
/// of them hold if that is possible.
fn joined(tokens: &[Token], items: &[Answer], work: &mut Work) -> Result<Option<Answer>, Stop> {
    let mut variable = None;
    let mut sets = Vec::new();
    for item in items {
        let set = match &item.value {
            Value::Named { name, value } if name.variable().is_some() => {
                variable = variable.or(name.variable().map(|(letter, _)| letter));
                value.number().map(|number| Reals::point(number.clone()))
            }
            Value::Reals { set, variable: own } => {
                if own.is_some() && variable.is_some() && *own != variable {
                    return Ok(None);
                }
                variable = variable.or(*own);
                Some(set.clone())
            }
            _ => item.reals(work)?,
        };
        let Some(set) = set else { return Ok(None) };
        sets.push(set);
    }
    let (mut any, mut every) = (Reals::empty(), Reals::all());
    for set in &sets {
        any = any.union(set, work)?;
        every = every.intersection(set, work)?;
    }
    let words = symbols(tokens, |c| "∧∨".contains(c));
    let set = match (words.contains(&'∨'), words.contains(&'∧')) {
        (true, true) => return Err(Stop::Meaningless),
        (true, false) => any,
        (false, true) => every,
        (false, false) if every.is_empty() => any,
        (false, false) => every,
    };
    Ok(Some(Value::Reals { set, variable }.into()))
}

/// Reads a set given by a condition on its members: `\{x : x > 5\}`.
fn described(
    inside: &[Token],
    read: ReadPart<'_>,
    work: &mut Work,
) -> Result<Option<Answer>, Stop> {
    let Some(at) = top(inside, |c| ":|".contains(c)) else { return Ok(None) };
    let member = match &inside[..at] {
        [Token::Letter(_)] => Reals::all(),
        [Token::Letter(_), Token::Symbol('∈'), of @ ..] => match read(of, work)?.reals(work)? {
            Some(set) => set,
            None => return Err(Stop::Meaningless),
        },
        _ => return Ok(None),
    };
    let condition = read(&inside[at + 1..], work)?;
    let Value::Reals { set, .. } = condition.value else { return Err(Stop::Meaningless) };
    let set = member.intersection(&set, work)?;
    Ok(Some(Value::Reals { set, variable: None }.into()))
}
