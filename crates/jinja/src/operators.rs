//! Operators of templates, with Python's semantics.

use std::cmp::Ordering;

use crate::ast::{Comparison, Operator};
use crate::meter::{Failure, Meter, Outcome, refused};
use crate::value::{List, Value};

/// Negates a number.
pub(crate) fn negate(value: &Value) -> Outcome<Value> {
    match value {
        Value::Undefined(missing) => Err(missing.failure()),
        Value::Float(number) => Ok(Value::Float(-number)),
        value => match value.as_int() {
            Some(number) => whole(number.checked_neg()),
            None => refused(format!("bad operand type for unary -: '{}'", value.kind())),
        },
    }
}

/// Applies an operator.
pub(crate) fn operate(operator: Operator, a: &Value, b: &Value, meter: &Meter) -> Outcome<Value> {
    meter.step()?;
    match (operator, a, b) {
        (_, Value::Undefined(missing), _) | (_, _, Value::Undefined(missing)) => {
            Err(missing.failure())
        }
        (Operator::Add, Value::Str(a), Value::Str(b)) => {
            meter.bytes(a.len() + b.len())?;
            Ok(Value::str([&**a, &**b].concat()))
        }
        (Operator::Add, Value::List(a), Value::List(b)) if a.tuple == b.tuple => {
            meter.product(a.items.len() + b.items.len(), size_of::<Value>())?;
            let items = a.items.iter().chain(&b.items).cloned().collect();
            Ok(Value::List(List::new(items, a.tuple)?))
        }
        (Operator::Multiply, _, _) if !(a.is_number() && b.is_number()) => repeat(a, b, meter),
        _ => calculate(operator, a, b),
    }
}

/// Repeats a text or a sequence.
fn repeat(a: &Value, b: &Value, meter: &Meter) -> Outcome<Value> {
    let (repeated, times) = if a.as_int().is_some() { (b, a) } else { (a, b) };
    let Some(times) = times.as_int() else { return unsupported("*", a, b) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match repeated {
        Value::Str(text) if !text.is_empty() => {
            meter.product(times, text.len())?;
            Ok(Value::str(text.repeat(times)))
        }
        Value::List(list) if !list.items.is_empty() => {
            meter.product(times.saturating_mul(list.items.len()), size_of::<Value>())?;
            let items = (0..times).flat_map(|_| list.items.iter().cloned()).collect();
            Ok(Value::List(List::new(items, list.tuple)?))
        }
        Value::Str(_) | Value::List(_) => Ok(repeated.clone()),
        _ => unsupported("*", a, b),
    }
}

/// Applies an operator to numbers. A remainder has the sign of the divisor.
fn calculate(operator: Operator, a: &Value, b: &Value) -> Outcome<Value> {
    let zero = b.as_float() == Some(0.0);
    match (operator, a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
        (Operator::Modulo, _, _, Some(_), _) if zero => refused("division by zero"),
        (Operator::Add, Some(a), Some(b), _, _) => whole(a.checked_add(b)),
        (Operator::Subtract, Some(a), Some(b), _, _) => whole(a.checked_sub(b)),
        (Operator::Multiply, Some(a), Some(b), _, _) => whole(a.checked_mul(b)),
        (Operator::Modulo, Some(a), Some(b), _, _) => whole(
            a.checked_rem(b)
                .map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }),
        ),
        (Operator::Add, _, _, Some(a), Some(b)) => Ok(Value::Float(a + b)),
        (Operator::Subtract, _, _, Some(a), Some(b)) => Ok(Value::Float(a - b)),
        (Operator::Multiply, _, _, Some(a), Some(b)) => Ok(Value::Float(a * b)),
        (Operator::Modulo, _, _, Some(a), Some(b)) => {
            let rest = a % b;
            Ok(Value::Float(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
        }
        (Operator::Add, ..) => unsupported("+", a, b),
        (Operator::Subtract, ..) => unsupported("-", a, b),
        (Operator::Multiply, ..) => unsupported("*", a, b),
        _ => unsupported("%", a, b),
    }
}

fn whole(number: Option<i128>) -> Outcome<Value> {
    match number {
        Some(number) => Ok(Value::Int(number)),
        None => refused("a whole number of more than 127 bits"),
    }
}

fn unsupported<T>(operator: &str, a: &Value, b: &Value) -> Outcome<T> {
    let reason =
        format!("unsupported operand types for {operator}: '{}' and '{}'", a.kind(), b.kind());
    let formats = operator == "%" && a.as_str().is_some();
    let remedy = formats.then(|| "texts are put together with `~`, not formatted".to_owned());
    Err(Failure { reason, remedy })
}

/// Compares two values.
pub(crate) fn compare(
    comparison: Comparison,
    a: &Value,
    b: &Value,
    meter: &Meter,
) -> Outcome<bool> {
    let holds = match comparison {
        Comparison::Equal => return a.equals(b, meter),
        Comparison::NotEqual => return Ok(!a.equals(b, meter)?),
        Comparison::In => return contains(b, a, meter),
        Comparison::NotIn => return Ok(!contains(b, a, meter)?),
        Comparison::Less => Ordering::is_lt,
        Comparison::LessOrEqual => Ordering::is_le,
        Comparison::Greater => Ordering::is_gt,
        Comparison::GreaterOrEqual => Ordering::is_ge,
    };
    Ok(a.compare(b, meter)?.is_some_and(holds))
}

/// Returns true if a text, a sequence or a dictionary contains a part, an item or a key.
fn contains(whole: &Value, part: &Value, meter: &Meter) -> Outcome<bool> {
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
            meter.work(text.len())?;
            let indices = Indices::new(text.len(), bounds);
            meter.bytes(indices.count)?;
            let chars = indices.each().map(|at| char::from(text.as_bytes()[at]));
            Ok(Value::str(chars.collect::<String>()))
        }
        Value::Str(text) => {
            meter.product(text.len(), size_of::<char>())?;
            let chars: Vec<char> = text.chars().collect();
            let indices = Indices::new(chars.len(), bounds);
            Ok(Value::str(indices.each().map(|at| chars[at]).collect::<String>()))
        }
        Value::List(list) => {
            let indices = Indices::new(list.items.len(), bounds);
            meter.product(indices.count, size_of::<Value>())?;
            let part = indices.each().map(|at| list.items[at].clone()).collect();
            Ok(Value::List(List::new(part, list.tuple)?))
        }
        Value::Undefined(missing) => Err(missing.failure()),
        other => refused(format!("'{}' object cannot be sliced", other.kind())),
    }
}

/// Indices of a slice.
struct Indices {
    start: i128,
    step: i128,
    count: usize,
}

impl Indices {
    /// Returns the indices of a slice of `length` items, as Python computes them.
    fn new(length: usize, [start, stop, step]: [Option<i128>; 3]) -> Self {
        let (step, n) = (step.unwrap_or(1), length as i128);
        let (least, most) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let bound = |bound: Option<i128>, default: i128| match bound {
            Some(at) if at < 0 => at.saturating_add(n).clamp(least, most),
            Some(at) => at.clamp(least, most),
            None => default,
        };
        let (first, end) = if step > 0 { (0, n) } else { (n - 1, -1) };
        let (start, stop) = (bound(start, first), bound(stop, end));
        let span = if step > 0 { stop - start } else { start - stop };
        let count = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        Self { start, step, count: count as usize }
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count as i128).map(|i| (self.start + i * self.step) as usize)
    }
}
