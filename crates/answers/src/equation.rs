//! Equations as results: `AB = 120`, `(x, y) = (7, -2)`, `5 + 5 = 10`, `m + n = 5 + 7 = 12`.

use num_traits::ToPrimitive;

use crate::based::Based;
use crate::brackets::{inside, split};
use crate::equality;
use crate::expression::expression;
use crate::name::{Left, Name, is_name, left, variables};
use crate::numeric;
use crate::token::Token;
use crate::value::{Answer, ReadPart, Value};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, Work};

/// Reads tokens with `=` outside of all brackets.
///
/// # Errors
///
/// If its sides contradict each other, or are meaningless.
pub(crate) fn equation(
    tokens: &[Token],
    read: ReadPart<'_>,
    work: &mut Work,
) -> Result<Answer, Stop> {
    let mut parts = split(tokens, |c| c == '=');
    if parts[0].is_empty() {
        parts.remove(0);
    }
    if parts.iter().any(|part| part.is_empty()) {
        return Err(Stop::Meaningless);
    }
    // `120 = AB`
    if let [value, name] = parts[..]
        && is_name(name)
        && !is_name(value)
    {
        parts = vec![name, value];
    }
    let (first, rest) = match &parts[..] {
        [only] => return read(only, work),
        [first, rest @ ..] => (*first, rest),
        [] => return Err(Stop::Meaningless),
    };
    if Based::read(first).is_some() {
        return agreed(&parts, read, work);
    }
    match left(first, work)? {
        Left::Value => agreed(&parts, read, work),
        Left::Name(name) => {
            // `x = y = 3`
            let names = rest[..rest.len() - 1].iter().take_while(|part| is_name(part)).count();
            named(name, first, agreed(&rest[names..], read, work)?, work)
        }
        Left::Names(names) => assigned(first, names, agreed(rest, read, work)?),
        Left::Expression { expr, combined } => {
            let Answer { value, unit, .. } = agreed(rest, read, work)?;
            let Value::Number(right) = value else { return Err(Stop::Meaningless) };
            let value = Value::Relation { left: expr, sign: '=', right, combined };
            Ok(Answer { unit, ..value.into() })
        }
    }
}

/// Names a value. If the value has variables, the name is a variable too, and both form an equation.
fn named(name: Name, left: &[Token], value: Answer, work: &mut Work) -> Result<Answer, Stop> {
    match &value.value {
        Value::Number(right) if name.variable().is_some() && !variables(right).is_empty() => {
            let (left, right) = (expression(left, work)?, right.clone());
            Ok(Value::Relation { left, sign: '=', right, combined: false }.into())
        }
        _ => Ok(Value::Named { name, value: Box::new(value) }.into()),
    }
}

/// Names values: of one point, or of several.
fn assigned(left: &[Token], names: Vec<Name>, value: Answer) -> Result<Answer, Stop> {
    match value.value {
        Value::Tuple { open: '(', items, close: ')' } if items.len() == names.len() => {
            Ok(Value::Assigned(names.into_iter().zip(items).collect()).into())
        }
        Value::Set(_) => {
            let name = Name::new(inside(left, '(', ')').unwrap_or(left));
            Ok(Value::Named { name, value: Box::new(value) }.into())
        }
        _ => Err(Stop::Meaningless),
    }
}

/// Returns the last of several sides that are all equal.
fn agreed(parts: &[&[Token]], read: ReadPart<'_>, work: &mut Work) -> Result<Answer, Stop> {
    let (last, before) = parts.split_last().ok_or(Stop::Meaningless)?;
    let mut value = read(last, work)?;
    for part in before {
        let other = read(part, work)?;
        if !consistent(&other, &value, work)? {
            return Err(Stop::Meaningless);
        }
        if value.unit.is_none() {
            value.unit = other.unit;
        }
    }
    Ok(value)
}

/// Returns true unless two sides of an equation contradict each other. Conversions of units and bases are allowed.
fn consistent(a: &Answer, b: &Answer, work: &mut Work) -> Result<bool, Stop> {
    if a.unit.is_known() && b.unit.is_known() && a.unit.agree(&b.unit) == AnswerVerdict::Unequal {
        return Ok(true);
    }
    let constant = |answer: &Answer| match &answer.value {
        Value::Based(based) => Some(based.value.clone()),
        Value::Number(number) => number.rational(),
        _ => None,
    };
    let based = matches!((&a.value, &b.value), (Value::Based(_), _) | (_, Value::Based(_)));
    if based {
        return Ok(constant(a).is_some() && constant(a) == constant(b));
    }
    Ok(equality::values(a, b, work)? == AnswerVerdict::Equal)
}

/// Reads tokens with `≈` outside of all brackets: a rounded value, or a value beside its rounded form.
///
/// # Errors
///
/// If the rounded value is not close to the exact one.
pub(crate) fn approximation(
    tokens: &[Token],
    read: ReadPart<'_>,
    work: &mut Work,
) -> Result<Answer, Stop> {
    let parts = split(tokens, |c| c == '≈');
    let [exact, rounded] = parts[..] else { return Err(Stop::Meaningless) };
    if exact.is_empty() {
        return read(rounded, work);
    }
    if is_name(exact) {
        let equal = [exact, &[Token::Symbol('=')], rounded].concat();
        return equation(&equal, read, work);
    }
    let (mut exact, rounded) = (read(exact, work)?, read(rounded, work)?);
    let number = exact.number().ok_or(Stop::Meaningless)?;
    let (Some(near), Some(digits)) =
        (rounded.number().and_then(|number| number.rational()), &rounded.digits)
    else {
        return Err(Stop::Meaningless);
    };
    let off = numeric::real(number, work)? - near.to_f64().ok_or(Stop::Meaningless)?;
    if !is_near(off * near.to_f64().unwrap_or(1.0).signum(), digits) {
        return Err(Stop::Meaningless);
    }
    exact.rounded = Some(near);
    Ok(exact)
}

/// Returns true if a difference is within rounding or truncation to the given digits, away from zero.
fn is_near(off: f64, digits: &str) -> bool {
    let exponent = match digits.split_once('.') {
        Some((_, decimals)) => -(decimals.len() as i32),
        None => (digits.len() - digits.trim_end_matches('0').len()) as i32,
    };
    let step = 10_f64.powi(exponent);
    let slack = 1e-9 * step;
    (-step / 2.0 - slack..step).contains(&off)
}
