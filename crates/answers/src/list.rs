//! Lists: items in any order, results with names, and conditions that hold together or one by one.

use crate::brackets::{find_outside, has_outside, is_enclosed, split_outside, symbols_outside};
use crate::inequality::{SIGNS, is_relation};
use crate::name::is_name;
use crate::reals::Reals;
use crate::token::MathToken;
use crate::value::{MathAnswer, MathValue, ReadPart};
use crate::work::{Stop, WorkBudget};

/// Maximum number of items of a list that is compared.
pub(crate) const MAX_ITEMS: usize = 40;
/// Symbols between items; `∧` and `∨` stand for the words and the signs.
pub(crate) const SEPARATORS: &str = ",;∧∨";

/// Reads a list without brackets.
///
/// # Errors
///
/// If the list has fewer than two items, or an item is meaningless.
pub(crate) fn read_bare_list(
    tokens: &[MathToken],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let items = split_items(tokens);
    if items.len() < 2 {
        return Err(Stop::Meaningless);
    }
    read_list(tokens, items, read, work)
}

/// Reads the content of the braces of a set.
pub(crate) fn read_set(
    inside: &[MathToken],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    if let Some(set) = read_set_builder(inside, read, work)? {
        return Ok(set);
    }
    let items = read_all(&split_items(inside), read, work)?;
    Ok(match one_by_one(items) {
        MathValue::Set(items) => MathValue::Set(items),
        other => other,
    }
    .into())
}

/// Reads each part.
pub(crate) fn read_all(
    parts: &[Vec<MathToken>],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<Vec<MathAnswer>, Stop> {
    if parts.len() > MAX_ITEMS {
        return Err(Stop::Budget);
    }
    parts.iter().map(|part| read(part, work)).collect()
}

/// Splits a list into items. `a \pm b` is two items, and the text before `and` may end in a comma.
fn split_items(tokens: &[MathToken]) -> Vec<Vec<MathToken>> {
    let parts = split_outside(tokens, |c| SEPARATORS.contains(c)).into_iter();
    let parts = parts.filter(|part| !part.is_empty());
    parts
        .flat_map(|part| match both_signs(part) {
            Some(both) => both.to_vec(),
            None => vec![part.to_vec()],
        })
        .collect()
}

/// Returns the tokens with the upper signs for `±`, and with the lower ones.
pub(crate) fn both_signs(tokens: &[MathToken]) -> Option<[Vec<MathToken>; 2]> {
    let inside_brackets =
        matches!(tokens.first(), Some(MathToken::Symbol('⦃' | '(' | '['))) && is_enclosed(tokens);
    let signed = tokens.contains(&MathToken::Symbol('±')) && !inside_brackets;
    signed.then(|| [with_signs(tokens, '+', '-'), with_signs(tokens, '-', '+')])
}

/// Returns the tokens with one sign for `±` and another for `∓`.
fn with_signs(tokens: &[MathToken], upper: char, lower: char) -> Vec<MathToken> {
    let tokens = tokens.iter().map(|token| match token {
        MathToken::Symbol('±') => MathToken::Symbol(upper),
        MathToken::Symbol('∓') => MathToken::Symbol(lower),
        token => token.clone(),
    });
    tokens.collect()
}

fn read_list(
    tokens: &[MathToken],
    mut parts: Vec<Vec<MathToken>>,
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    // `x = 3, 4` and `x < -2 or > 2`: the text before the first sign applies to every item.
    if let Some(at) = find_outside(&parts[0], is_relation).filter(|at| is_left(&parts[0][..*at])) {
        let (name, with_sign) = (parts[0][..at].to_vec(), parts[0][..=at].to_vec());
        for part in &mut parts[1..] {
            match find_outside(part, is_relation) {
                None => part.splice(0..0, with_sign.iter().cloned()),
                Some(0) => part.splice(0..0, name.iter().cloned()),
                Some(_) => continue,
            };
        }
    }
    let conditions = parts.iter().any(|part| has_outside(part, SIGNS) || has_outside(part, "∈∖∪∩"));
    let items = read_all(&parts, read, work)?;
    if conditions && let Some(set) = join_conditions(tokens, &items, work)? {
        return Ok(set);
    }
    Ok(one_by_one(items).into())
}

/// Returns true for a left-hand side before a sign: a name, or names in brackets.
fn is_left(tokens: &[MathToken]) -> bool {
    let names = match tokens {
        [MathToken::Symbol('('), inside @ .., MathToken::Symbol(')')] if is_enclosed(tokens) => {
            split_outside(inside, |c| c == ',').iter().all(|part| is_name(part))
        }
        _ => false,
    };
    names || is_name(tokens)
}

/// Returns the items as results of different names if all items are named, else as an unordered list.
fn one_by_one(items: Vec<MathAnswer>) -> MathValue {
    let names: Option<Vec<_>> = items
        .iter()
        .map(|item| match &item.value {
            MathValue::Named { name, value } => Some((name.clone(), (**value).clone())),
            _ => None,
        })
        .collect();
    match names.filter(|names| names.len() > 1) {
        Some(names) if names.iter().all(|(name, _)| *name == names[0].0) => {
            MathValue::Set(names.into_iter().map(|(_, value)| value).collect())
        }
        Some(names) => MathValue::Assigned(names),
        None => MathValue::Set(items),
    }
}

/// Combines conditions on one variable into a set: with `or` any of them holds, with `and` all of them. With commas all
/// of them hold if that is possible.
fn join_conditions(
    tokens: &[MathToken],
    items: &[MathAnswer],
    work: &mut WorkBudget,
) -> Result<Option<MathAnswer>, Stop> {
    let mut variable = None;
    let mut sets = Vec::new();
    for item in items {
        let set = match &item.value {
            MathValue::Named { name, value } if name.as_variable().is_some() => {
                variable = variable.or(name.as_variable().map(|(letter, _)| letter));
                value.as_number().map(|number| Reals::point(number.clone()))
            }
            MathValue::Reals { set, variable: own } => {
                if own.is_some() && variable.is_some() && *own != variable {
                    return Ok(None);
                }
                variable = variable.or(*own);
                Some(set.clone())
            }
            _ => item.as_reals(work)?,
        };
        let Some(set) = set else { return Ok(None) };
        sets.push(set);
    }
    let (mut any, mut every) = (Reals::empty(), Reals::all());
    for set in &sets {
        any = any.union(set, work)?;
        every = every.intersection(set, work)?;
    }
    let words = symbols_outside(tokens, |c| "∧∨".contains(c));
    let set = match (words.contains(&'∨'), words.contains(&'∧')) {
        (true, true) => return Err(Stop::Meaningless),
        (true, false) => any,
        (false, true) => every,
        (false, false) if every.is_empty() => any,
        (false, false) => every,
    };
    Ok(Some(MathValue::Reals { set, variable }.into()))
}

/// Reads a set given by a condition on its members: `\{x : x > 5\}`.
fn read_set_builder(
    inside: &[MathToken],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<Option<MathAnswer>, Stop> {
    let Some(at) = find_outside(inside, |c| ":|".contains(c)) else { return Ok(None) };
    let member = match &inside[..at] {
        [MathToken::Letter(_)] => Reals::all(),
        [MathToken::Letter(_), MathToken::Symbol('∈'), of @ ..] => {
            read(of, work)?.as_reals(work)?.ok_or(Stop::Meaningless)?
        }
        _ => return Ok(None),
    };
    let condition = read(&inside[at + 1..], work)?;
    let MathValue::Reals { set, .. } = condition.value else { return Err(Stop::Meaningless) };
    let set = member.intersection(&set, work)?;
    Ok(Some(MathAnswer::of_reals(set)))
}
