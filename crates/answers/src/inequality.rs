//! Inequalities of a variable, as sets of real numbers.

use crate::brackets::{split_outside, symbols_outside};
use crate::exact::{Atom, ExactExpr};
use crate::expression::read_expression;
use crate::name::distinct_variables;
use crate::quantity::split_unit;
use crate::reals::Reals;
use crate::token::MathToken;
use crate::value::{MathAnswer, MathValue};
use crate::work::{Stop, WorkBudget};

/// Signs of inequalities.
pub(crate) const SIGNS: &str = "<>≤≥≠";

/// Returns true for a sign of equality or inequality.
pub(crate) fn is_relation(sign: char) -> bool {
    sign == '=' || SIGNS.contains(sign)
}

/// Reads tokens with an inequality sign outside of all brackets.
///
/// # Errors
///
/// If it is meaningless, or holds for no number.
pub(crate) fn read_inequality(
    tokens: &[MathToken],
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    match (&split_outside(tokens, is_relation)[..], &symbols_outside(tokens, is_relation)[..]) {
        ([left, right], [sign]) => {
            read_simple(read_expression(left, work)?, *sign, read_bound(right, work)?, work)
        }
        ([left, middle, right], [first, last]) => {
            let (left, middle) = (read_bound(left, work)?, read_expression(middle, work)?);
            read_chain([left, middle, read_bound(right, work)?], [*first, *last], work)
        }
        _ => Err(Stop::Meaningless),
    }
}

/// Reads a side of an inequality; its unit is ignored.
fn read_bound(tokens: &[MathToken], work: &mut WorkBudget) -> Result<ExactExpr, Stop> {
    read_expression(&split_unit(tokens)?.0, work)
}

/// Reads an inequality; for a variable and a number, returns it as a set.
fn read_simple(
    left: ExactExpr,
    sign: char,
    right: ExactExpr,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let [variable, other] =
        [&left, &right].map(|expr| expr.as_name().filter(|name| !"πe∞".contains(*name)));
    if variable.is_none() && other.is_some() {
        return read_simple(right, turned_sign(sign), left, work);
    }
    let infinity = ExactExpr::atom(Atom::Name('∞'));
    let bounded = variable.filter(|_| distinct_variables(&right).is_empty());
    match (sign, bounded) {
        ('>', Some(name)) => bounded_interval('(', right, infinity, ')', name, work),
        ('≥', Some(name)) => bounded_interval('[', right, infinity, ')', name, work),
        ('<', Some(name)) => bounded_interval('(', infinity.negate(), right, ')', name, work),
        ('≤', Some(name)) => bounded_interval('(', infinity.negate(), right, ']', name, work),
        ('≠', Some(name)) => {
            Ok(MathValue::Reals { set: Reals::point(right).complement(), variable: Some(name) }
                .into())
        }
        ('>' | '≥', None) => {
            let (left, sign, right) = (right, turned_sign(sign), left);
            Ok(MathValue::Relation { left, sign, right, combined: false }.into())
        }
        _ => Ok(MathValue::Relation { left, sign, right, combined: false }.into()),
    }
}

/// Returns the sign of an inequality whose sides are swapped.
fn turned_sign(sign: char) -> char {
    match sign {
        '<' => '>',
        '>' => '<',
        '≤' => '≥',
        '≥' => '≤',
        sign => sign,
    }
}

/// Reads `a < x \le b`.
fn read_chain(
    [left, middle, right]: [ExactExpr; 3],
    [first, last]: [char; 2],
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let name = middle.as_name().ok_or(Stop::Meaningless)?;
    let (low, high, first, last) = match (first, last) {
        ('<' | '≤', '<' | '≤') => (left, right, first == '≤', last == '≤'),
        ('>' | '≥', '>' | '≥') => (right, left, last == '≥', first == '≥'),
        _ => return Err(Stop::Meaningless),
    };
    let (open, close) = (if first { '[' } else { '(' }, if last { ']' } else { ')' });
    bounded_interval(open, low, high, close, name, work)
}

fn bounded_interval(
    open: char,
    low: ExactExpr,
    high: ExactExpr,
    close: char,
    variable: char,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let constant = distinct_variables(&low).is_empty() && distinct_variables(&high).is_empty();
    let items = vec![MathValue::Number(low).into(), MathValue::Number(high).into()];
    let pair = MathAnswer::from(MathValue::Tuple { open, items, close });
    if !constant {
        return Ok(pair);
    }
    let set = pair.as_reals(work)?.ok_or(Stop::Meaningless)?;
    Ok(MathValue::Reals { set, variable: Some(variable) }.into())
}
