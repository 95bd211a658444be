//! Inequalities of a variable, as sets of real numbers.

use crate::brackets::{split, symbols};
use crate::exact::{Atom, Expr};
use crate::expression::expression;
use crate::name::variables;
use crate::quantity::split_unit;
use crate::reals::Reals;
use crate::token::Token;
use crate::value::{Answer, Value};
use crate::work::{Stop, Work};

/// Signs of inequalities.
pub(crate) const SIGNS: &str = "<>≤≥≠";

/// Reads tokens with an inequality sign outside of all brackets.
///
/// # Errors
///
/// If it is meaningless, or holds for no number.
pub(crate) fn inequality(tokens: &[Token], work: &mut Work) -> Result<Answer, Stop> {
    let sign = |c: char| c == '=' || SIGNS.contains(c);
    match (&split(tokens, sign)[..], &symbols(tokens, sign)[..]) {
        ([left, right], [sign]) => {
            simple(expression(left, work)?, *sign, bound(right, work)?, work)
        }
        ([left, middle, right], [first, last]) => {
            let (left, middle) = (bound(left, work)?, expression(middle, work)?);
            chain([left, middle, bound(right, work)?], [*first, *last], work)
        }
        _ => Err(Stop::Meaningless),
    }
}

/// Reads a side of an inequality; its unit is ignored.
fn bound(tokens: &[Token], work: &mut Work) -> Result<Expr, Stop> {
    expression(&split_unit(tokens)?.0, work)
}

/// Reads an inequality; for a variable and a number, returns it as a set.
fn simple(left: Expr, sign: char, right: Expr, work: &mut Work) -> Result<Answer, Stop> {
    let turned = |sign| match sign {
        '<' => '>',
        '>' => '<',
        '≤' => '≥',
        '≥' => '≤',
        sign => sign,
    };
    let variable = |expr: &Expr| expr.name().filter(|name| !"πe∞".contains(*name));
    if variable(&left).is_none() && variable(&right).is_some() {
        return simple(right, turned(sign), left, work);
    }
    let infinity = || Expr::atom(Atom::Name('∞'));
    let bounded = variable(&left).filter(|_| variables(&right).is_empty());
    match (sign, bounded) {
        ('>', Some(name)) => interval('(', right, infinity(), ')', name, work),
        ('≥', Some(name)) => interval('[', right, infinity(), ')', name, work),
        ('<', Some(name)) => interval('(', infinity().negated(), right, ')', name, work),
        ('≤', Some(name)) => interval('(', infinity().negated(), right, ']', name, work),
        ('≠', Some(name)) => {
            Ok(Value::Reals { set: Reals::point(right).complement(), variable: Some(name) }.into())
        }
        ('>' | '≥', None) => {
            let (left, sign, right) = (right, turned(sign), left);
            Ok(Value::Relation { left, sign, right, combined: false }.into())
        }
        _ => Ok(Value::Relation { left, sign, right, combined: false }.into()),
    }
}

/// Reads `a < x \le b`.
fn chain(
    [left, middle, right]: [Expr; 3],
    [first, last]: [char; 2],
    work: &mut Work,
) -> Result<Answer, Stop> {
    let name = middle.name().ok_or(Stop::Meaningless)?;
    let (low, high, first, last) = match (first, last) {
        ('<' | '≤', '<' | '≤') => (left, right, first == '≤', last == '≤'),
        ('>' | '≥', '>' | '≥') => (right, left, last == '≥', first == '≥'),
        _ => return Err(Stop::Meaningless),
    };
    let (open, close) = (if first { '[' } else { '(' }, if last { ']' } else { ')' });
    interval(open, low, high, close, name, work)
}

fn interval(
    open: char,
    low: Expr,
    high: Expr,
    close: char,
    variable: char,
    work: &mut Work,
) -> Result<Answer, Stop> {
    let constant = variables(&low).is_empty() && variables(&high).is_empty();
    let items = vec![Value::Number(low).into(), Value::Number(high).into()];
    let pair = Answer::from(Value::Tuple { open, items, close });
    if !constant {
        return Ok(pair);
    }
    let set = pair.reals(work)?.ok_or(Stop::Meaningless)?;
    Ok(Value::Reals { set, variable: Some(variable) }.into())
}
