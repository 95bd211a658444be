//! Equality of two answers.

use num_rational::BigRational;
use num_traits::Zero;

use crate::based::Based;
use crate::exact::Expr;
use crate::name::{Name, variables};
use crate::numeric;
use crate::value::{Answer, Value};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, Work};

/// Returns the verdict on an answer and a reference. The comparison is not symmetric: an answer may omit parts of a
/// reference, such as the base of its digits, and may show more, such as the sum behind a value.
pub(crate) fn answers(
    answer: &Answer,
    reference: &Answer,
    work: &mut Work,
) -> Result<AnswerVerdict, Stop> {
    if let Value::Relation { sign: '=', right, combined: true, .. } = &answer.value
        && matches!(reference.value, Value::Number(_))
        && variables(right).is_empty()
        && !right.is_zero()
    {
        let (value, unit) = (Value::Number(right.clone()), answer.unit.clone());
        return values(&Answer { unit, ..value.into() }, reference, work);
    }
    values(answer, reference, work)
}

/// Returns the verdict on two values.
pub(crate) fn values(a: &Answer, b: &Answer, work: &mut Work) -> Result<AnswerVerdict, Stop> {
    if let (Value::Named { name, value }, Value::Named { name: name2, value: value2 }) =
        (&a.value, &b.value)
    {
        return if name.conflicts(name2) {
            Ok(AnswerVerdict::Unequal)
        } else {
            values(value, value2, work)
        };
    }
    if let Value::Named { value, .. } = &a.value {
        return values(value, b, work);
    }
    if let Value::Named { value, .. } = &b.value {
        return values(a, value, work);
    }
    if let Some(verdict) = options(a, b, work)? {
        return Ok(verdict);
    }
    match a.unit.agree(&b.unit) {
        AnswerVerdict::Unequal => Ok(AnswerVerdict::Unequal),
        units => Ok(units.and(bare(a, b, work)?)),
    }
}

/// Returns the verdict on an answer and a reference one of which is an option with its value; `None` for others. Two such
/// values must agree in both, an option or a value alone in that. Words after an option may deny it.
fn options(a: &Answer, b: &Answer, work: &mut Work) -> Result<Option<AnswerVerdict>, Stop> {
    let verdict = match (&a.value, &b.value) {
        (Value::Labeled { option: x, value: v }, Value::Labeled { option: y, value: w }) => {
            AnswerVerdict::from(x == y).and(values(v, w, work)?)
        }
        (Value::Labeled { option: x, value }, Value::Choice(y)) => match &value.value {
            Value::Words(_) => AnswerVerdict::Undecided.and(AnswerVerdict::from(x == y)),
            _ => AnswerVerdict::from(x == y),
        },
        (Value::Choice(x), Value::Labeled { option: y, .. }) => AnswerVerdict::from(x == y),
        (Value::Labeled { value, .. }, _) => values(value, b, work)?,
        (_, Value::Labeled { value, .. }) => values(a, value, work)?,
        _ => return Ok(None),
    };
    Ok(Some(verdict))
}

/// Returns the verdict on two values whose units agree.
fn bare(a: &Answer, b: &Answer, work: &mut Work) -> Result<AnswerVerdict, Stop> {
    match (&a.value, &b.value) {
        (Value::Number(x), Value::Number(y)) => numbers(a, x, b, y, work),
        (
            Value::Tuple { open, items, close },
            Value::Tuple { open: open2, items: items2, close: close2 },
        ) => {
            if (open, close) == (open2, close2) && items.len() == items2.len() {
                in_order(items, items2, work)
            } else {
                Ok(AnswerVerdict::Unequal)
            }
        }
        (Value::Assigned(x), Value::Assigned(y)) => by_name(x, y, work),
        (Value::Assigned(x), Value::Tuple { open: '(', items, close: ')' }) => {
            in_order(&as_tuple(x), items, work)
        }
        (Value::Tuple { open: '(', items, close: ')' }, Value::Assigned(y)) => {
            in_order(items, &as_tuple(y), work)
        }
        (Value::Assigned(x), Value::Set(y)) => in_any_order(&results(x), y, work),
        (Value::Set(x), Value::Assigned(y)) => in_any_order(x, &results(y), work),
        (Value::Set(x), Value::Set(y)) | (Value::Union(x), Value::Union(y)) => {
            in_any_order(x, y, work)
        }
        (Value::Matrix(x), Value::Matrix(y)) => matrices(x, y, work),
        (Value::Reals { variable: Some(x), .. }, Value::Reals { variable: Some(y), .. })
            if x != y =>
        {
            Ok(AnswerVerdict::Unequal)
        }
        (Value::Reals { set, .. }, _) => match b.reals(work)? {
            Some(other) => Ok(AnswerVerdict::from(set.is(&other, work)?)),
            None => Ok(AnswerVerdict::Unequal),
        },
        (_, Value::Reals { set, .. }) => match a.reals(work)? {
            Some(other) => Ok(AnswerVerdict::from(other.is(set, work)?)),
            None => Ok(AnswerVerdict::Unequal),
        },
        // A set with one item equals that item, unless the item is a set.
        (Value::Set(x), _) => match &x[..] {
            [only] if !matches!(only.value, Value::Set(_)) => values(only, b, work),
            _ => Ok(AnswerVerdict::Unequal),
        },
        (_, Value::Set(y)) => match &y[..] {
            [only] if !matches!(only.value, Value::Set(_)) => values(a, only, work),
            _ => Ok(AnswerVerdict::Unequal),
        },
        _ => unlike(a, b, work),
    }
}

/// Returns the verdict on relations, digits in a base, options and words.
fn unlike(a: &Answer, b: &Answer, work: &mut Work) -> Result<AnswerVerdict, Stop> {
    match (&a.value, &b.value) {
        (
            Value::Relation { left, sign, right, .. },
            Value::Relation { left: l, sign: s, right: r, .. },
        ) => {
            if sign == s {
                relations([left, right], [l, r], *sign, work)
            } else {
                Ok(AnswerVerdict::Unequal)
            }
        }
        (Value::Relation { left, sign: '=', right, .. }, Value::Number(other))
        | (Value::Number(other), Value::Relation { left, sign: '=', right, .. })
            if left.name().is_some() =>
        {
            same(right, other, work)
        }
        (Value::Based(x), Value::Based(y)) => Ok(AnswerVerdict::from(x.value == y.value)),
        (Value::Based(x), Value::Number(y)) => {
            Ok(AnswerVerdict::from(x.base == 10 && y.rational().as_ref() == Some(&x.value)))
        }
        // An answer may omit the base; a reference without one is decimal.
        (Value::Number(_), Value::Based(y)) => Ok(AnswerVerdict::from(spells(a, y))),
        (Value::Choice(x), Value::Number(y)) | (Value::Number(y), Value::Choice(x)) => {
            Ok(AnswerVerdict::from(y.name() == Some(x.to_ascii_lowercase())))
        }
        (Value::Choice(x), Value::Choice(y)) => Ok(AnswerVerdict::from(x == y)),
        (Value::Words(x), Value::Words(y)) => Ok(AnswerVerdict::from(x == y)),
        _ => Ok(AnswerVerdict::Unequal),
    }
}

/// Returns true if a number has the digits of another in its base.
fn spells(number: &Answer, based: &Based) -> bool {
    let digits = number.digits.as_ref().map(|digits| digits.trim_start_matches('0'));
    let of_base = based.digits.trim_start_matches('0');
    digits == Some(of_base)
}

/// Returns the verdict on two numbers, one of which may be a percentage.
fn numbers(
    a: &Answer,
    x: &Expr,
    b: &Answer,
    y: &Expr,
    work: &mut Work,
) -> Result<AnswerVerdict, Stop> {
    let hundredth = |x: &Expr, work: &mut Work| x.over(&Expr::integer(100), work);
    let mut verdict = same(x, y, work)?;
    if verdict != AnswerVerdict::Equal && a.unit.percent != b.unit.percent {
        // The percent sign may be omitted, or the share written as a number.
        let (share, other) = if a.unit.percent { (x, y) } else { (y, x) };
        verdict = same(&hundredth(share, work)?, other, work)?;
    }
    // `2/3 \approx 0.67` gives both.
    let rounded = |rounded: &Option<BigRational>, other: &Expr| {
        rounded.is_some() && *rounded == other.rational()
    };
    if rounded(&a.rounded, y) || rounded(&b.rounded, x) {
        Ok(AnswerVerdict::Equal)
    } else {
        Ok(verdict)
    }
}

/// Returns the verdict on two expressions: exactly if possible, else by their values.
fn same(a: &Expr, b: &Expr, work: &mut Work) -> Result<AnswerVerdict, Stop> {
    if a == b {
        return Ok(AnswerVerdict::Equal);
    }
    let difference = a.minus(b, work)?;
    if difference.is_zero() {
        return Ok(AnswerVerdict::Equal);
    }
    if difference.independent() {
        return Ok(AnswerVerdict::Unequal);
    }
    numeric::identity(a, b, work)
}

pub(crate) fn in_order(a: &[Answer], b: &[Answer], work: &mut Work) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (a, b) in a.iter().zip(b) {
        all = all.and(values(a, b, work)?);
    }
    Ok(all)
}

/// Matches each item with an equal one. Equality is transitive, so the first match suffices.
fn in_any_order(a: &[Answer], b: &[Answer], work: &mut Work) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut left: Vec<&Answer> = b.iter().collect();
    let mut undecided = false;
    for item in a {
        let mut found = None;
        for (at, other) in left.iter().enumerate() {
            match values(item, other, work)? {
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

fn results(assigned: &[(Name, Answer)]) -> Vec<Answer> {
    assigned.iter().map(|(_, value)| value.clone()).collect()
}

/// Returns named results as the items of a tuple: variables that are consecutive in the alphabet or by index in that
/// order, others as written.
fn as_tuple(assigned: &[(Name, Answer)]) -> Vec<Answer> {
    let place = |name: &Name| {
        let (letter, below) = name.variable()?;
        Some((letter as u32, below.unwrap_or_default()))
    };
    let places: Option<Vec<_>> = assigned.iter().map(|(name, _)| place(name)).collect();
    let Some(places) = places else { return results(assigned) };
    let mut order: Vec<usize> = (0..assigned.len()).collect();
    order.sort_by_key(|at| places[*at]);
    let next = |pair: &[usize]| {
        let (a, b) = (places[pair[0]], places[pair[1]]);
        b.0 == a.0 + 1 || b.0 == a.0 && b.1 == a.1 + 1
    };
    if order.windows(2).all(next) {
        order.into_iter().map(|at| assigned[at].1.clone()).collect()
    } else {
        results(assigned)
    }
}

/// Returns the verdict on named results: the names must be the same, and the value of each.
fn by_name(
    a: &[(Name, Answer)],
    b: &[(Name, Answer)],
    work: &mut Work,
) -> Result<AnswerVerdict, Stop> {
    if a.len() != b.len() {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (name, value) in a {
        let Some((_, other)) = b.iter().find(|(other, _)| other == name) else {
            return Ok(AnswerVerdict::Unequal);
        };
        all = all.and(values(value, other, work)?);
    }
    Ok(all)
}

fn matrices(a: &[Vec<Expr>], b: &[Vec<Expr>], work: &mut Work) -> Result<AnswerVerdict, Stop> {
    let shape = |rows: &[Vec<Expr>]| rows.iter().map(Vec::len).collect::<Vec<_>>();
    if shape(a) != shape(b) {
        return Ok(AnswerVerdict::Unequal);
    }
    let mut all = AnswerVerdict::Equal;
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        all = all.and(same(a, b, work)?);
    }
    Ok(all)
}

/// Returns the verdict on two relations. They are equal if their differences are proportional, for an inequality by a
/// positive factor.
fn relations(
    [left, right]: [&Expr; 2],
    [left2, right2]: [&Expr; 2],
    sign: char,
    work: &mut Work,
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
    same(&a.times(&factor.into(), work)?, &b, work)
}
