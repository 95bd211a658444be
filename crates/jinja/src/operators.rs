//! Operators of templates, with Python's semantics.

use std::cmp::Ordering;

use super::ast::{Comparison, Operator, Sign};
use super::format;
use super::meter::{Meter, Outcome, refused};
use super::value::{List, Value, undefined};

/// Applies a sign.
pub(crate) fn sign(sign: Sign, value: &Value) -> Outcome<Value> {
    Ok(match (sign, value) {
        (Sign::Not, value) => Value::Bool(!value.is_true()),
        (_, Value::Undefined(_)) => return Err(undefined(value)),
        (Sign::Plus, Value::Float(number)) => Value::Float(*number),
        (Sign::Minus, Value::Float(number)) => Value::Float(-number),
        (sign, value) => match value.as_int() {
            Some(number) if sign == Sign::Plus => Value::Int(number),
            Some(number) => whole(number.checked_neg())?,
            None => return refused(format!("bad operand type for unary -: '{}'", value.kind())),
        },
    })
}

/// Applies an operator.
pub(crate) fn operate(operator: Operator, a: &Value, b: &Value, meter: &Meter) -> Outcome<Value> {
    meter.step()?;
    match (operator, a, b) {
        (Operator::Modulo, Value::Str(pattern), _) => {
            Ok(Value::str(format::percent(pattern, b, meter)?))
        }
        (_, Value::Undefined(_), _) => Err(undefined(a)),
        (_, _, Value::Undefined(_)) => Err(undefined(b)),
        (Operator::Add, Value::Str(a), Value::Str(b)) => {
            meter.bytes(a.len() + b.len())?;
            Ok(Value::str([&**a, &**b].concat()))
        }
        (Operator::Add, Value::List(a), Value::List(b)) => Value::list(joined(a, b, meter)?),
        (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => Value::tuple(joined(a, b, meter)?),
        (Operator::Multiply, _, _) if !(a.is_number() && b.is_number()) => repeated(a, b, meter),
        _ => arithmetic(operator, a, b),
    }
}

fn joined(a: &List, b: &List, meter: &Meter) -> Outcome<Vec<Value>> {
    meter.product(a.items.len() + b.items.len(), size_of::<Value>())?;
    Ok(a.items.iter().chain(&b.items).cloned().collect())
}

/// Repeats a text or sequence.
fn repeated(a: &Value, b: &Value, meter: &Meter) -> Outcome<Value> {
    let (repeats, times) = if a.as_int().is_some() { (b, a) } else { (a, b) };
    let Some(times) = times.as_int() else { return unsupported("*", a, b) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let items = |list: &List| {
        meter.product(times.saturating_mul(list.items.len()), size_of::<Value>())?;
        Ok((0..times).flat_map(|_| list.items.iter().cloned()).collect())
    };
    match repeats {
        Value::Str(text) if text.is_empty() => Ok(repeats.clone()),
        Value::Str(text) => {
            meter.product(times, text.len())?;
            Ok(Value::str(text.repeat(times)))
        }
        Value::List(list) | Value::Tuple(list) if list.items.is_empty() => Ok(repeats.clone()),
        Value::List(list) => Value::list(items(list)?),
        Value::Tuple(list) => Value::tuple(items(list)?),
        _ => unsupported("*", a, b),
    }
}

fn arithmetic(operator: Operator, a: &Value, b: &Value) -> Outcome<Value> {
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return whole_arithmetic(operator, a, b);
    }
    let (Some(x), Some(y)) = (a.as_float(), b.as_float()) else {
        return unsupported(spelled(operator), a, b);
    };
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && y == 0.0 {
        return refused("division by zero");
    }
    Ok(Value::Float(match operator {
        Operator::Add => x + y,
        Operator::Subtract => x - y,
        Operator::Multiply => x * y,
        Operator::Divide => x / y,
        Operator::FloorDivide => ((x - modulo(x, y)) / y).round(),
        Operator::Modulo => modulo(x, y),
        Operator::Power => x.powf(y),
    }))
}

/// Returns the remainder with the divisor's sign.
fn modulo(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

fn whole_arithmetic(operator: Operator, a: i128, b: i128) -> Outcome<Value> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && b == 0 {
        return refused("division by zero");
    }
    match operator {
        Operator::Add => whole(a.checked_add(b)),
        Operator::Subtract => whole(a.checked_sub(b)),
        Operator::Multiply => whole(a.checked_mul(b)),
        Operator::Divide => Ok(Value::Float(a as f64 / b as f64)),
        Operator::FloorDivide => whole(a.checked_div_euclid(b).map(|quotient| {
            // Rounds towards minus infinity, also for a negative divisor.
            if b < 0 && a.rem_euclid(b) != 0 { quotient - 1 } else { quotient }
        })),
        Operator::Modulo => whole(
            a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest + b } else { rest }),
        ),
        Operator::Power if b < 0 && a == 0 => refused("0 cannot be raised to a negative power"),
        Operator::Power if b < 0 => Ok(Value::Float((a as f64).powf(b as f64))),
        Operator::Power => match (a, u32::try_from(b)) {
            (0 | 1, _) if b > 0 => Ok(Value::Int(a)),
            (-1, _) => Ok(Value::Int(if b % 2 == 0 { 1 } else { -1 })),
            (a, Ok(b)) => whole(a.checked_pow(b)),
            (_, Err(_)) => whole(None),
        },
    }
}

fn whole(number: Option<i128>) -> Outcome<Value> {
    match number {
        Some(number) => Ok(Value::Int(number)),
        None => refused("a whole number of more than 127 bits"),
    }
}

fn spelled(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "**",
    }
}

fn unsupported<T>(operator: &str, a: &Value, b: &Value) -> Outcome<T> {
    let (a, b) = (a.kind(), b.kind());
    refused(format!("unsupported operand types for {operator}: '{a}' and '{b}'"))
}

/// Compares two values.
pub(crate) fn compare(
    comparison: Comparison,
    a: &Value,
    b: &Value,
    meter: &Meter,
) -> Outcome<bool> {
    let ordered = |holds: fn(Ordering) -> bool| Ok(a.compare(b, meter)?.is_some_and(holds));
    match comparison {
        Comparison::Equal => a.equals(b, meter),
        Comparison::NotEqual => Ok(!a.equals(b, meter)?),
        Comparison::Less => ordered(Ordering::is_lt),
        Comparison::LessOrEqual => ordered(Ordering::is_le),
        Comparison::Greater => ordered(Ordering::is_gt),
        Comparison::GreaterOrEqual => ordered(Ordering::is_ge),
        Comparison::In => contains(b, a, meter),
        Comparison::NotIn => Ok(!contains(b, a, meter)?),
    }
}

/// Returns true if a text, a sequence or a dictionary contains a part, an item or a key.
pub(crate) fn contains(whole: &Value, part: &Value, meter: &Meter) -> Outcome<bool> {
    match (whole, part) {
        (Value::Str(whole), Value::Str(part)) => {
            meter.work(whole.len() + part.len())?;
            Ok(whole.contains(&**part))
        }
        (Value::Str(_), part) => {
            let kind = part.kind();
            refused(format!("'in <string>' requires string as left operand, not {kind}"))
        }
        (Value::Dict(dict), key) => Ok(dict.get(key, meter)?.is_some()),
        (whole, part) => {
            for item in &whole.items(meter)?.items {
                if item.equals(part, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Returns the items `start:stop:step` of a text or sequence.
pub(crate) fn slice(value: &Value, bounds: [Option<i128>; 3], meter: &Meter) -> Outcome<Value> {
    let [_, _, step] = bounds;
    if step == Some(0) {
        return refused("slice step cannot be zero");
    }
    match value {
        Value::Str(text) if text.is_ascii() => {
            let places = Places::new(text.len(), bounds);
            meter.bytes(places.count)?;
            let chars = places.each().map(|at| char::from(text.as_bytes()[at]));
            Ok(Value::str(chars.collect::<String>()))
        }
        Value::Str(text) => {
            meter.product(text.len(), size_of::<char>())?;
            let chars: Vec<char> = text.chars().collect();
            let places = Places::new(chars.len(), bounds);
            Ok(Value::str(places.each().map(|at| chars[at]).collect::<String>()))
        }
        Value::List(list) | Value::Tuple(list) => {
            let places = Places::new(list.items.len(), bounds);
            meter.product(places.count, size_of::<Value>())?;
            let part = places.each().map(|at| list.items[at].clone()).collect();
            if matches!(value, Value::List(_)) { Value::list(part) } else { Value::tuple(part) }
        }
        Value::Undefined(_) => Err(undefined(value)),
        other => refused(format!("'{}' object cannot be sliced", other.kind())),
    }
}

/// Indices of a slice.
struct Places {
    start: i128,
    step: i128,
    count: usize,
}

impl Places {
    /// Returns the indices of a slice of `length` items, as Python computes them.
    fn new(length: usize, [start, stop, step]: [Option<i128>; 3]) -> Self {
        let (step, n) = (step.unwrap_or(1), length as i128);
        let (least, most) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let bound = |bound: Option<i128>, default: i128| match bound {
            Some(at) if at < 0 => at.saturating_add(n).clamp(least, most),
            Some(at) => at.clamp(least, most),
            None => default,
        };
        let (start, stop) = match step > 0 {
            true => (bound(start, 0), bound(stop, n)),
            false => (bound(start, n - 1), bound(stop, -1)),
        };
        let span = if step > 0 { stop - start } else { start - stop };
        let count = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        Self { start, step, count: count as usize }
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count as i128).map(|i| (self.start + i * self.step) as usize)
    }
}
