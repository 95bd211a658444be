//! Equality of two answers.

use num_rational::BigRational;
use num_traits::Zero;

use crate::based::Based;
use crate::exact::ExactExpr;
use crate::name::{ResultName, distinct_variables};
use crate::numeric;
use crate::value::{MathAnswer, MathValue};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, WorkBudget};

/// Returns the verdict on an answer and a reference. The comparison is not symmetric: an answer may omit parts of a
/// reference, such as the base of its digits, and may show more, such as the sum behind a value.
pub(crate) fn compare_parsed(
    answer: &MathAnswer,
    reference: &MathAnswer,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if let MathValue::Relation { sign: '=', right, combined: true, .. } = &answer.value
        && matches!(reference.value, MathValue::Number(_))
        && distinct_variables(right).is_empty()
        && !right.is_zero()
    {
        let (value, unit) = (MathValue::Number(right.clone()), answer.unit.clone());
        return compare_values(&MathAnswer { unit, ..value.into() }, reference, work);
    }
    compare_values(answer, reference, work)
}

/// Returns the verdict on two values.
pub(crate) fn compare_values(
    a: &MathAnswer,
    b: &MathAnswer,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if let (MathValue::Named { name, value }, MathValue::Named { name: name2, value: value2 }) =
        (&a.value, &b.value)
    {
        return if name.conflicts_with(name2) {
            Ok(AnswerVerdict::Unequal)
        } else {
            compare_values(value, value2, work)
        };
    }
    if let MathValue::Named { value, .. } = &a.value {
        return compare_values(value, b, work);
    }
    if let MathValue::Named { value, .. } = &b.value {
        return compare_values(a, value, work);
    }
    if let Some(verdict) = compare_options(a, b, work)? {
        return Ok(verdict);
    }
    match a.unit.agrees_with(&b.unit) {
        AnswerVerdict::Unequal => Ok(AnswerVerdict::Unequal),
        units => Ok(units.and(compare_bare(a, b, work)?)),
    }
}

/// Returns the verdict on an answer and a reference one of which is an option with its value; `None` for others. Two such
/// values must agree in both, an option or a value alone in that. Words after an option may deny it.
fn compare_options(
    a: &MathAnswer,
    b: &MathAnswer,
    work: &mut WorkBudget,
) -> Result<Option<AnswerVerdict>, Stop> {
    let verdict = match (&a.value, &b.value) {
        (
            MathValue::Labeled { option: x, value: v },
            MathValue::Labeled { option: y, value: w },
        ) => AnswerVerdict::from(x == y).and(compare_values(v, w, work)?),
        (MathValue::Labeled { option: x, value }, MathValue::Choice(y)) => match &value.value {
            MathValue::Words(_) => AnswerVerdict::Undecided.and(AnswerVerdict::from(x == y)),
            _ => AnswerVerdict::from(x == y),
        },
        (MathValue::Choice(x), MathValue::Labeled { option: y, .. }) => AnswerVerdict::from(x == y),
        (MathValue::Labeled { value, .. }, _) => compare_values(value, b, work)?,
        (_, MathValue::Labeled { value, .. }) => compare_values(a, value, work)?,
        _ => return Ok(None),
    };
    Ok(Some(verdict))
}

/// Returns the verdict on two values whose units agree.
fn compare_bare(
    a: &MathAnswer,
    b: &MathAnswer,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    match (&a.value, &b.value) {
        (MathValue::Number(x), MathValue::Number(y)) => compare_numbers(a, x, b, y, work),
        (
            MathValue::Tuple { open, items, close },
            MathValue::Tuple { open: open2, items: items2, close: close2 },
        ) => {
            if (open, close) == (open2, close2) && items.len() == items2.len() {
                in_order(items, items2, work)
            } else {
                Ok(AnswerVerdict::Unequal)
            }
        }
        (MathValue::Assigned(x), MathValue::Assigned(y)) => by_name(x, y, work),
        (MathValue::Assigned(x), MathValue::Tuple { open: '(', items, close: ')' }) => {
            in_order(&as_tuple(x), items, work)
        }
        (MathValue::Tuple { open: '(', items, close: ')' }, MathValue::Assigned(y)) => {
            in_order(items, &as_tuple(y), work)
        }
        (MathValue::Assigned(x), MathValue::Set(y)) => in_any_order(&assigned_values(x), y, work),
        (MathValue::Set(x), MathValue::Assigned(y)) => in_any_order(x, &assigned_values(y), work),
        (MathValue::Set(x), MathValue::Set(y)) | (MathValue::Union(x), MathValue::Union(y)) => {
            in_any_order(x, y, work)
        }
        (MathValue::Matrix(x), MathValue::Matrix(y)) => compare_matrices(x, y, work),
        (
            MathValue::Reals { variable: Some(x), .. },
            MathValue::Reals { variable: Some(y), .. },
        ) if x != y => Ok(AnswerVerdict::Unequal),
        (MathValue::Reals { set, .. }, _) => match b.as_reals(work)? {
            Some(other) => Ok(AnswerVerdict::from(set.is_equal(&other, work)?)),
            None => Ok(AnswerVerdict::Unequal),
        },
        (_, MathValue::Reals { set, .. }) => match a.as_reals(work)? {
            Some(other) => Ok(AnswerVerdict::from(other.is_equal(set, work)?)),
            None => Ok(AnswerVerdict::Unequal),
        },
        // A set with one item equals that item, unless the item is a set.
        (MathValue::Set(x), _) => match &x[..] {
            [only] if !matches!(only.value, MathValue::Set(_)) => compare_values(only, b, work),
            _ => Ok(AnswerVerdict::Unequal),
        },
        (_, MathValue::Set(y)) => match &y[..] {
            [only] if !matches!(only.value, MathValue::Set(_)) => compare_values(a, only, work),
            _ => Ok(AnswerVerdict::Unequal),
        },
        _ => compare_unlike(a, b, work),
    }
}

/// Returns the verdict on relations, digits in a base, options and words.
fn compare_unlike(
    a: &MathAnswer,
    b: &MathAnswer,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    match (&a.value, &b.value) {
        (
            MathValue::Relation { left, sign, right, .. },
            MathValue::Relation { left: l, sign: s, right: r, .. },
        ) => {
            if sign == s {
                compare_relations([left, right], [l, r], *sign, work)
            } else {
                Ok(AnswerVerdict::Unequal)
            }
        }
        (MathValue::Relation { left, sign: '=', right, .. }, MathValue::Number(other))
        | (MathValue::Number(other), MathValue::Relation { left, sign: '=', right, .. })
            if left.as_name().is_some() =>
        {
            compare_expressions(right, other, work)
        }
        (MathValue::Based(x), MathValue::Based(y)) => Ok(AnswerVerdict::from(x.value == y.value)),
        (MathValue::Based(x), MathValue::Number(y)) => {
            Ok(AnswerVerdict::from(x.base == 10 && y.rational().as_ref() == Some(&x.value)))
        }
        // An answer may omit the base; a reference without one is decimal.
        (MathValue::Number(_), MathValue::Based(y)) => Ok(AnswerVerdict::from(spells_number(a, y))),
        (MathValue::Choice(x), MathValue::Number(y))
        | (MathValue::Number(y), MathValue::Choice(x)) => {
            Ok(AnswerVerdict::from(y.as_name() == Some(x.to_ascii_lowercase())))
        }
        (MathValue::Choice(x), MathValue::Choice(y)) => Ok(AnswerVerdict::from(x == y)),
        (MathValue::Words(x), MathValue::Words(y)) => Ok(AnswerVerdict::from(x == y)),
        _ => Ok(AnswerVerdict::Unequal),
    }
}

/// Returns true if a number has the digits of another in its base.
fn spells_number(number: &MathAnswer, based: &Based) -> bool {
    let digits = number.digits.as_ref().map(|digits| digits.trim_start_matches('0'));
    let of_base = based.digits.trim_start_matches('0');
    digits == Some(of_base)
}

/// Returns the verdict on two numbers, one of which may be a percentage.
fn compare_numbers(
    a: &MathAnswer,
    x: &ExactExpr,
    b: &MathAnswer,
    y: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    let mut verdict = compare_expressions(x, y, work)?;
    if verdict != AnswerVerdict::Equal && a.unit.percent != b.unit.percent {
        // The percent sign may be omitted, or the share written as a number.
        let (share, other) = if a.unit.percent { (x, y) } else { (y, x) };
        let share = share.over(&ExactExpr::integer(100), work)?;
        verdict = compare_expressions(&share, other, work)?;
    }
    // `2/3 \approx 0.67` gives both.
    let rounded = [(a, y), (b, x)]
        .iter()
        .any(|(answer, other)| answer.rounded.is_some() && answer.rounded == other.rational());
    Ok(if rounded { AnswerVerdict::Equal } else { verdict })
}

/// Returns the verdict on two expressions: exactly if possible, else by their values.
fn compare_expressions(
    a: &ExactExpr,
    b: &ExactExpr,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if a == b {
        return Ok(AnswerVerdict::Equal);
    }
    let difference = a.minus(b, work)?;
    if difference.is_zero() {
        return Ok(AnswerVerdict::Equal);
    }
    if difference.is_independent() {
        return Ok(AnswerVerdict::Unequal);
    }
    numeric::compare_functions(a, b, work)
}

pub(crate) fn in_order(
    a: &[MathAnswer],
    b: &[MathAnswer],
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (a, b) in a.iter().zip(b) {
        all = all.and(compare_values(a, b, work)?);
    }
    Ok(all)
}

/// Matches each item with an equal one. Equality is transitive, so the first match suffices.
fn in_any_order(
    a: &[MathAnswer],
    b: &[MathAnswer],
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut left: Vec<&MathAnswer> = b.iter().collect();
    let mut undecided = false;
    for item in a {
        let mut found = None;
        for (at, other) in left.iter().enumerate() {
            match compare_values(item, other, work)? {
                AnswerVerdict::Equal => {
                    found = Some(at);
                    break;
                }
                AnswerVerdict::Undecided => undecided = true,
                AnswerVerdict::Unequal => {}
            }
        }
        match found {
            Some(at) => drop(left.swap_remove(at)),
            None if undecided => return Ok(AnswerVerdict::Undecided),
            None => return Ok(AnswerVerdict::Unequal),
        }
    }
    Ok(AnswerVerdict::Equal)
}

fn assigned_values(assigned: &[(ResultName, MathAnswer)]) -> Vec<MathAnswer> {
    assigned.iter().map(|(_, value)| value.clone()).collect()
}

/// Returns named results as the items of a tuple: variables that are consecutive in the alphabet or by index in that
/// order, others as written.
fn as_tuple(assigned: &[(ResultName, MathAnswer)]) -> Vec<MathAnswer> {
    let keys: Option<Vec<_>> = assigned.iter().map(|(name, _)| name_order(name)).collect();
    let Some(keys) = keys else { return assigned_values(assigned) };
    let mut order: Vec<usize> = (0..assigned.len()).collect();
    order.sort_by_key(|at| keys[*at]);
    if order.windows(2).all(|pair| are_consecutive(keys[pair[0]], keys[pair[1]])) {
        order.into_iter().map(|at| assigned[at].1.clone()).collect()
    } else {
        assigned_values(assigned)
    }
}

/// Returns the letter and the subscript of a variable, by which named results are ordered.
fn name_order(name: &ResultName) -> Option<(u32, u32)> {
    let (letter, below) = name.as_variable()?;
    Some((letter as u32, below.unwrap_or_default()))
}

/// Returns true if `b` follows `a` in the alphabet, or has the same letter and the next subscript.
fn are_consecutive(a: (u32, u32), b: (u32, u32)) -> bool {
    b.0 == a.0 + 1 || b.0 == a.0 && b.1 == a.1 + 1
}

/// Returns the verdict on named results: the names must be the same, and the value of each.
fn by_name(
    a: &[(ResultName, MathAnswer)],
    b: &[(ResultName, MathAnswer)],
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (name, value) in a {
        let Some((_, other)) = b.iter().find(|(other, _)| other == name) else {
            return Ok(AnswerVerdict::Unequal);
        };
        all = all.and(compare_values(value, other, work)?);
    }
    Ok(all)
}

fn compare_matrices(
    a: &[Vec<ExactExpr>],
    b: &[Vec<ExactExpr>],
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    if a.iter().map(Vec::len).ne(b.iter().map(Vec::len)) {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        all = all.and(compare_expressions(a, b, work)?);
    }
    Ok(all)
}

/// Returns the verdict on two relations. They are equal if their differences are proportional, for an inequality by a
/// positive factor.
fn compare_relations(
    [left, right]: [&ExactExpr; 2],
    [left2, right2]: [&ExactExpr; 2],
    sign: char,
    work: &mut WorkBudget,
) -> Result<AnswerVerdict, Stop> {
    let (a, b) = (left.minus(right, work)?, left2.minus(right2, work)?);
    if a.is_zero() || b.is_zero() {
        return Ok(AnswerVerdict::from(a.is_zero() && b.is_zero()));
    }
    let (Some((monomial, x)), true) = (a.above.0.first_key_value(), a.below == b.below) else {
        return Ok(AnswerVerdict::Undecided);
    };
    let Some(y) = b.above.0.get(monomial) else { return Ok(AnswerVerdict::Unequal) };
    let factor = y / x;
    if !matches!(sign, '=' | '≠') && factor < BigRational::zero() {
        return Ok(AnswerVerdict::Unequal);
    }
    compare_expressions(&a.times(&factor.into(), work)?, &b, work)
}
