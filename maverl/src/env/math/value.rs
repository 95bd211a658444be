//! What answers say, and when two say the same.

use num_traits::Zero;

use super::Verdict;
use super::exact::{Expr, Stop, Work};
use super::numeric;

/// What an answer says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Number(Expr),
    /// A point, or an interval: which of them it is, only the question knows.
    Tuple {
        open: char,
        items: Vec<Answer>,
        close: char,
    },
    /// Items in any order, in braces or bare.
    Set(Vec<Answer>),
    Union(Vec<Answer>),
    Matrix(Vec<Vec<Expr>>),
    Relation {
        left: Expr,
        sign: char,
        right: Expr,
    },
    /// Digits in a base.
    Based {
        digits: String,
        base: String,
    },
    /// One of the options of a question.
    Choice(char),
    Words(String),
}

/// An answer with what stands around it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) unit: Option<&'static str>,
    pub(super) percent: bool,
    /// How it is written, if it is digits alone.
    pub(super) digits: Option<String>,
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self { value, unit: None, percent: false, digits: None }
    }
}

/// Whether two answers are the same.
pub(super) fn compare(a: &Answer, b: &Answer, work: &mut Work) -> Result<Verdict, Stop> {
    if let (Some(a), Some(b)) = (a.unit, b.unit)
        && a != b
    {
        return Ok(Verdict::Unequal);
    }
    match (&a.value, &b.value) {
        (Value::Number(x), Value::Number(y)) if a.percent != b.percent => {
            let hundredth = |x: &Expr, work: &mut Work| x.over(&Expr::integer(100), work);
            let (share, other) = if a.percent { (x, y) } else { (y, x) };
            // The sign may be left out, or the share written as a number.
            match same(share, other, work)? {
                Verdict::Equal => Ok(Verdict::Equal),
                _ => same(&hundredth(share, work)?, other, work),
            }
        }
        (Value::Number(x), Value::Number(y)) => same(x, y, work),
        (
            Value::Tuple { open, items, close },
            Value::Tuple { open: open2, items: items2, close: close2 },
        ) => match (open, close) == (open2, close2) && items.len() == items2.len() {
            true => in_order(items, items2, work),
            false => Ok(Verdict::Unequal),
        },
        (Value::Set(x), Value::Set(y)) | (Value::Union(x), Value::Union(y)) => {
            in_any_order(x, y, work)
        }
        (Value::Matrix(x), Value::Matrix(y)) => matrices(x, y, work),
        (Value::Relation { left, sign, right }, Value::Relation { left: l, sign: s, right: r }) => {
            match sign == s {
                true => relations([left, right], [l, r], *sign, work),
                false => Ok(Verdict::Unequal),
            }
        }
        (Value::Relation { left, sign: '=', right }, Value::Number(other))
        | (Value::Number(other), Value::Relation { left, sign: '=', right })
            if left.name().is_some() =>
        {
            same(right, other, work)
        }
        (Value::Based { digits, base }, Value::Based { digits: digits2, base: base2 }) => {
            match (base == base2, digits == digits2) {
                (true, equal) => Ok(Verdict::from(equal)),
                (false, _) => Ok(Verdict::Undecided),
            }
        }
        (Value::Based { digits, .. }, Value::Number(_)) => {
            Ok(Verdict::from(b.digits.as_ref() == Some(digits)))
        }
        (Value::Number(_), Value::Based { digits, .. }) => {
            Ok(Verdict::from(a.digits.as_ref() == Some(digits)))
        }
        (Value::Choice(x), Value::Number(y)) | (Value::Number(y), Value::Choice(x)) => {
            Ok(Verdict::from(y.name() == Some(x.to_ascii_lowercase())))
        }
        (Value::Choice(x), Value::Choice(y)) => Ok(Verdict::from(x == y)),
        (Value::Words(x), Value::Words(y)) => Ok(Verdict::from(x == y)),
        _ => Ok(Verdict::Unequal),
    }
}

/// Whether two expressions are the same: exactly where that decides, else by their values.
fn same(a: &Expr, b: &Expr, work: &mut Work) -> Result<Verdict, Stop> {
    if a == b {
        return Ok(Verdict::Equal);
    }
    let difference = a.minus(b, work)?;
    if difference.is_zero() {
        return Ok(Verdict::Equal);
    }
    if difference.independent() {
        return Ok(Verdict::Unequal);
    }
    numeric::identity(a, b, work)
}

fn in_order(a: &[Answer], b: &[Answer], work: &mut Work) -> Result<Verdict, Stop> {
    let mut all = Verdict::Equal;
    for (a, b) in a.iter().zip(b) {
        all = all.and(compare(a, b, work)?);
    }
    Ok(all)
}

/// Pairs each item with one that is equal to it. Equality is transitive, so taking the first one will do.
fn in_any_order(a: &[Answer], b: &[Answer], work: &mut Work) -> Result<Verdict, Stop> {
    if a.len() != b.len() {
        return Ok(Verdict::Unequal);
    }
    let mut left: Vec<&Answer> = b.iter().collect();
    let mut undecided = false;
    for item in a {
        let mut found = None;
        for (at, other) in left.iter().enumerate() {
            match compare(item, other, work)? {
                Verdict::Equal => {
                    found = Some(at);
                    break;
                }
                Verdict::Undecided => undecided = true,
                Verdict::Unequal => {}
            }
        }
        match found {
            Some(at) => drop(left.swap_remove(at)),
            None if undecided => return Ok(Verdict::Undecided),
            None => return Ok(Verdict::Unequal),
        }
    }
    Ok(Verdict::Equal)
}

fn matrices(a: &[Vec<Expr>], b: &[Vec<Expr>], work: &mut Work) -> Result<Verdict, Stop> {
    let shape = |rows: &[Vec<Expr>]| rows.iter().map(Vec::len).collect::<Vec<_>>();
    if shape(a) != shape(b) {
        return Ok(Verdict::Unequal);
    }
    let mut all = Verdict::Equal;
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        all = all.and(same(a, b, work)?);
    }
    Ok(all)
}

/// Whether two relations are one: their differences are proportional, for an inequality by a positive factor.
fn relations(
    [left, right]: [&Expr; 2],
    [left2, right2]: [&Expr; 2],
    sign: char,
    work: &mut Work,
) -> Result<Verdict, Stop> {
    let (a, b) = (left.minus(right, work)?, left2.minus(right2, work)?);
    if a.is_zero() || b.is_zero() {
        return Ok(Verdict::from(a.is_zero() && b.is_zero()));
    }
    let (Some((monomial, x)), true) = (a.above.0.first_key_value(), a.below == b.below) else {
        return Ok(Verdict::Undecided);
    };
    let Some(y) = b.above.0.get(monomial) else { return Ok(Verdict::Unequal) };
    let factor = y / x;
    let zero = num_rational::BigRational::zero();
    if !matches!(sign, '=' | '≠') && factor < zero {
        return Ok(Verdict::Unequal);
    }
    same(&a.times(&factor.into(), work)?, &b, work)
}
