//! Operators of templates, with Python's semantics.

use std::cmp::Ordering;

use crate::ast::{ComparisonOperator, Operator};
use crate::meter::{RenderFailure, RenderMeter, RenderResult, refuse_operation};
use crate::value::{List, TemplateValue};

/// Negates a number.
pub(crate) fn negate_number(value: &TemplateValue) -> RenderResult<TemplateValue> {
    match value {
        TemplateValue::Undefined(missing) => Err(missing.failure()),
        TemplateValue::Float(number) => Ok(TemplateValue::Float(-number)),
        value => match value.as_int() {
            Some(number) => checked_integer(number.checked_neg()),
            None => refuse_operation(format!("bad operand type for unary -: '{}'", value.kind())),
        },
    }
}

/// Applies an operator.
pub(crate) fn apply_operator(
    operator: Operator,
    a: &TemplateValue,
    b: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    meter.charge_step()?;
    match (operator, a, b) {
        (_, TemplateValue::Undefined(missing), _) | (_, _, TemplateValue::Undefined(missing)) => {
            Err(missing.failure())
        }
        (Operator::Add, TemplateValue::Str(a), TemplateValue::Str(b)) => {
            meter.charge_bytes(a.len() + b.len())?;
            Ok(TemplateValue::str([&**a, &**b].concat()))
        }
        (Operator::Add, TemplateValue::List(a), TemplateValue::List(b)) if a.tuple == b.tuple => {
            meter.charge_product(a.items.len() + b.items.len(), size_of::<TemplateValue>())?;
            let items = a.items.iter().chain(&b.items).cloned().collect();
            Ok(TemplateValue::List(List::new(items, a.tuple)?))
        }
        (Operator::Multiply, _, _) if !(a.is_number() && b.is_number()) => {
            repeat_value(a, b, meter)
        }
        _ => calculate_numbers(operator, a, b),
    }
}

/// Repeats a text or a sequence.
fn repeat_value(
    a: &TemplateValue,
    b: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let (repeated, times) = if a.as_int().is_some() { (b, a) } else { (a, b) };
    let Some(times) = times.as_int() else { return unsupported_operands("*", a, b) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match repeated {
        TemplateValue::Str(text) if !text.is_empty() => {
            meter.charge_product(times, text.len())?;
            Ok(TemplateValue::str(text.repeat(times)))
        }
        TemplateValue::List(list) if !list.items.is_empty() => {
            meter.charge_product(
                times.saturating_mul(list.items.len()),
                size_of::<TemplateValue>(),
            )?;
            let items = (0..times).flat_map(|_| list.items.iter().cloned()).collect();
            Ok(TemplateValue::List(List::new(items, list.tuple)?))
        }
        TemplateValue::Str(_) | TemplateValue::List(_) => Ok(repeated.clone()),
        _ => unsupported_operands("*", a, b),
    }
}

/// Applies an operator to numbers. A remainder has the sign of the divisor.
fn calculate_numbers(
    operator: Operator,
    a: &TemplateValue,
    b: &TemplateValue,
) -> RenderResult<TemplateValue> {
    let zero = b.as_float() == Some(0.0);
    match (operator, a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
        (Operator::Modulo, _, _, Some(_), _) if zero => refuse_operation("division by zero"),
        (Operator::Add, Some(a), Some(b), _, _) => checked_integer(a.checked_add(b)),
        (Operator::Subtract, Some(a), Some(b), _, _) => checked_integer(a.checked_sub(b)),
        (Operator::Multiply, Some(a), Some(b), _, _) => checked_integer(a.checked_mul(b)),
        (Operator::Modulo, Some(a), Some(b), _, _) => checked_integer(
            a.checked_rem(b)
                .map(|rest| if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }),
        ),
        (Operator::Add, _, _, Some(a), Some(b)) => Ok(TemplateValue::Float(a + b)),
        (Operator::Subtract, _, _, Some(a), Some(b)) => Ok(TemplateValue::Float(a - b)),
        (Operator::Multiply, _, _, Some(a), Some(b)) => Ok(TemplateValue::Float(a * b)),
        (Operator::Modulo, _, _, Some(a), Some(b)) => {
            let rest = a % b;
            Ok(TemplateValue::Float(if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }))
        }
        (Operator::Add, ..) => unsupported_operands("+", a, b),
        (Operator::Subtract, ..) => unsupported_operands("-", a, b),
        (Operator::Multiply, ..) => unsupported_operands("*", a, b),
        _ => unsupported_operands("%", a, b),
    }
}

fn checked_integer(number: Option<i128>) -> RenderResult<TemplateValue> {
    match number {
        Some(number) => Ok(TemplateValue::Int(number)),
        None => refuse_operation("a whole number of more than 127 bits"),
    }
}

fn unsupported_operands<T>(
    operator: &str,
    a: &TemplateValue,
    b: &TemplateValue,
) -> RenderResult<T> {
    let reason =
        format!("unsupported operand types for {operator}: '{}' and '{}'", a.kind(), b.kind());
    let formats = operator == "%" && a.as_str().is_some();
    let remedy = formats.then(|| "texts are put together with `~`, not formatted".to_owned());
    Err(RenderFailure { reason, remedy })
}

/// Compares two values.
pub(crate) fn compare_values(
    comparison: ComparisonOperator,
    a: &TemplateValue,
    b: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<bool> {
    let holds = match comparison {
        ComparisonOperator::Equal => return a.equals(b, meter),
        ComparisonOperator::NotEqual => return Ok(!a.equals(b, meter)?),
        ComparisonOperator::In => return contains_part(b, a, meter),
        ComparisonOperator::NotIn => return Ok(!contains_part(b, a, meter)?),
        ComparisonOperator::Less => Ordering::is_lt,
        ComparisonOperator::LessOrEqual => Ordering::is_le,
        ComparisonOperator::Greater => Ordering::is_gt,
        ComparisonOperator::GreaterOrEqual => Ordering::is_ge,
    };
    Ok(a.compare(b, meter)?.is_some_and(holds))
}

/// Returns true if a text, a sequence or a dictionary contains a part, an item or a key.
fn contains_part(
    whole: &TemplateValue,
    part: &TemplateValue,
    meter: &RenderMeter,
) -> RenderResult<bool> {
    match (whole, part) {
        (TemplateValue::Str(whole), TemplateValue::Str(part)) => {
            meter.charge_work(whole.len() + part.len())?;
            Ok(whole.contains(&**part))
        }
        (TemplateValue::Str(_), part) => {
            let kind = part.kind();
            refuse_operation(format!("'in <string>' requires string as left operand, not {kind}"))
        }
        (TemplateValue::Dict(dict), key) => Ok(dict.get(key, meter)?.is_some()),
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
pub(crate) fn slice_value(
    value: &TemplateValue,
    bounds: [Option<i128>; 3],
    meter: &RenderMeter,
) -> RenderResult<TemplateValue> {
    let [_, _, step] = bounds;
    if step == Some(0) {
        return refuse_operation("slice step cannot be zero");
    }
    match value {
        TemplateValue::Str(text) if text.is_ascii() => {
            meter.charge_work(text.len())?;
            let indices = Indices::new(text.len(), bounds);
            meter.charge_bytes(indices.count)?;
            let chars = indices.each().map(|at| char::from(text.as_bytes()[at]));
            Ok(TemplateValue::str(chars.collect::<String>()))
        }
        TemplateValue::Str(text) => {
            meter.charge_product(text.len(), size_of::<char>())?;
            let chars: Vec<char> = text.chars().collect();
            let indices = Indices::new(chars.len(), bounds);
            Ok(TemplateValue::str(indices.each().map(|at| chars[at]).collect::<String>()))
        }
        TemplateValue::List(list) => {
            let indices = Indices::new(list.items.len(), bounds);
            meter.charge_product(indices.count, size_of::<TemplateValue>())?;
            let part = indices.each().map(|at| list.items[at].clone()).collect();
            Ok(TemplateValue::List(List::new(part, list.tuple)?))
        }
        TemplateValue::Undefined(missing) => Err(missing.failure()),
        other => refuse_operation(format!("'{}' object cannot be sliced", other.kind())),
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
        // Negative positions count from the end.
        let within = |at: i128| (if at < 0 { at.saturating_add(n) } else { at }).clamp(least, most);
        let (first, end) = if step > 0 { (0, n) } else { (n - 1, -1) };
        let (start, stop) = (start.map_or(first, within), stop.map_or(end, within));
        let span = if step > 0 { stop - start } else { start - stop };
        let count = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        Self { start, step, count: count as usize }
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count as i128).map(|i| (self.start + i * self.step) as usize)
    }
}
