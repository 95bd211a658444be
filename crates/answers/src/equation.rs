//! Equations as results: `AB = 120`, `(x, y) = (7, -2)`, `5 + 5 = 10`, `m + n = 5 + 7 = 12`.

use num_rational::BigRational;

use num_traits::ToPrimitive;

use crate::based::Based;
use crate::brackets::{inside_brackets, split_outside};
use crate::equality;
use crate::expression::read_expression;
use crate::name::{LeftSide, ResultName, distinct_variables, is_name, read_left};
use crate::numeric;
use crate::token::MathToken;
use crate::value::{MathAnswer, MathValue, ReadPart};
use crate::verdict::AnswerVerdict;
use crate::work::{Stop, WorkBudget};

/// Reads tokens with `=` outside of all brackets.
///
/// # Errors
///
/// If its sides contradict each other, or are meaningless.
pub(crate) fn read_equation(
    tokens: &[MathToken],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let mut parts = split_outside(tokens, |c| c == '=');
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
    if Based::read_tokens(first).is_some() {
        return last_equal_side(&parts, read, work);
    }
    match read_left(first, work)? {
        LeftSide::Value => last_equal_side(&parts, read, work),
        LeftSide::Name(name) => {
            // `x = y = 3`
            let names = rest[..rest.len() - 1].iter().take_while(|part| is_name(part)).count();
            name_value(name, first, last_equal_side(&rest[names..], read, work)?, work)
        }
        LeftSide::Names(names) => assign_names(first, names, last_equal_side(rest, read, work)?),
        LeftSide::Expression { expr, combined } => {
            let MathAnswer { value, unit, .. } = last_equal_side(rest, read, work)?;
            let MathValue::Number(right) = value else { return Err(Stop::Meaningless) };
            let value = MathValue::Relation { left: expr, sign: '=', right, combined };
            Ok(MathAnswer { unit, ..value.into() })
        }
    }
}

/// Names a value. If the value has variables, the name is a variable too, and both form an equation.
fn name_value(
    name: ResultName,
    left: &[MathToken],
    value: MathAnswer,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    match &value.value {
        MathValue::Number(right)
            if name.as_variable().is_some() && !distinct_variables(right).is_empty() =>
        {
            let (left, right) = (read_expression(left, work)?, right.clone());
            Ok(MathValue::Relation { left, sign: '=', right, combined: false }.into())
        }
        _ => Ok(MathValue::Named { name, value: Box::new(value) }.into()),
    }
}

/// Names values: of one point, or of several.
fn assign_names(
    left: &[MathToken],
    names: Vec<ResultName>,
    value: MathAnswer,
) -> Result<MathAnswer, Stop> {
    match value.value {
        MathValue::Tuple { open: '(', items, close: ')' } if items.len() == names.len() => {
            Ok(MathValue::Assigned(names.into_iter().zip(items).collect()).into())
        }
        MathValue::Set(_) => {
            let name = ResultName::new(inside_brackets(left, '(', ')').unwrap_or(left));
            Ok(MathValue::Named { name, value: Box::new(value) }.into())
        }
        _ => Err(Stop::Meaningless),
    }
}

/// Returns the last of several sides that are all equal.
fn last_equal_side(
    parts: &[&[MathToken]],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let (last, before) = parts.split_last().ok_or(Stop::Meaningless)?;
    let mut value = read(last, work)?;
    for part in before {
        let other = read(part, work)?;
        if !are_consistent(&other, &value, work)? {
            return Err(Stop::Meaningless);
        }
        if value.unit.is_none() {
            value.unit = other.unit;
        }
    }
    Ok(value)
}

/// Returns true unless two sides of an equation contradict each other. Conversions of units and bases are allowed.
fn are_consistent(a: &MathAnswer, b: &MathAnswer, work: &mut WorkBudget) -> Result<bool, Stop> {
    if a.unit.is_known()
        && b.unit.is_known()
        && a.unit.agrees_with(&b.unit) == AnswerVerdict::Unequal
    {
        return Ok(true);
    }
    let based = matches!((&a.value, &b.value), (MathValue::Based(_), _) | (_, MathValue::Based(_)));
    if based {
        return Ok(rational_value(a).is_some() && rational_value(a) == rational_value(b));
    }
    Ok(equality::compare_values(a, b, work)? == AnswerVerdict::Equal)
}

/// Returns the rational number that an answer is, in any base.
fn rational_value(answer: &MathAnswer) -> Option<BigRational> {
    match &answer.value {
        MathValue::Based(based) => Some(based.value.clone()),
        MathValue::Number(number) => number.rational(),
        _ => None,
    }
}

/// Reads tokens with `≈` outside of all brackets: a rounded value, or a value beside its rounded form.
///
/// # Errors
///
/// If the rounded value is not close to the exact one.
pub(crate) fn read_approximation(
    tokens: &[MathToken],
    read: ReadPart<'_>,
    work: &mut WorkBudget,
) -> Result<MathAnswer, Stop> {
    let parts = split_outside(tokens, |c| c == '≈');
    let [exact, rounded] = parts[..] else { return Err(Stop::Meaningless) };
    if exact.is_empty() {
        return read(rounded, work);
    }
    if is_name(exact) {
        let equal = [exact, &[MathToken::Symbol('=')], rounded].concat();
        return read_equation(&equal, read, work);
    }
    let (mut exact, rounded) = (read(exact, work)?, read(rounded, work)?);
    let number = exact.as_number().ok_or(Stop::Meaningless)?;
    let (Some(near), Some(digits)) =
        (rounded.as_number().and_then(|number| number.rational()), &rounded.digits)
    else {
        return Err(Stop::Meaningless);
    };
    let off = numeric::real_value(number, work)? - near.to_f64().ok_or(Stop::Meaningless)?;
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
