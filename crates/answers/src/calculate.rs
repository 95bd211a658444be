//! The calculator: exact values of expressions.

use num_traits::{One, Signed};

use crate::read::read_answer;
use crate::reading::NotationReading;
use crate::value::{MathAnswer, MathValue};
use crate::work::WorkBudget;

/// Longest expression in bytes.
const LONGEST: usize = 500;

/// Computes the exact value of an expression of numbers (`+ - * / ^`, parentheses, functions where they have a rational
/// value): an integer, or a fraction in lowest terms. Operations are counted, so no expression takes long.
///
/// ```
/// use maverl_answers::calculate_exactly;
///
/// assert_eq!(calculate_exactly("(1/3 + 1/6) * 7").as_deref(), Ok("7/2"));
/// assert_eq!(calculate_exactly("2^100 - 2^99 * 2").as_deref(), Ok("0"));
/// assert!(calculate_exactly("1/0").is_err());
/// ```
///
/// # Errors
///
/// In words for the caller: the text is no expression, is too long, or has no rational value.
pub fn calculate_exactly(expression: &str) -> Result<String, &'static str> {
    let expression = expression.trim();
    if expression.is_empty() || expression.len() > LONGEST {
        return Err("write an expression of 1 to 500 characters, like (3 + 4) * 5");
    }
    let mut work = WorkBudget::new();
    let read = read_answer(expression, NotationReading::Plain, &mut work);
    let none = "that is no expression that can be calculated; write numbers and + - * / ^ ( )";
    let read = match read.map_err(|_| none)? {
        MathAnswer { value: MathValue::Named { value, .. }, .. } => *value,
        read => read,
    };
    let value = match read {
        MathAnswer { value: MathValue::Number(value), unit, .. }
            if !unit.is_known() && !unit.percent =>
        {
            value
        }
        _ => return Err(none),
    };
    let value = value.rational().ok_or("its value is no rational number")?;
    let (sign, value) = (if value.is_negative() { "-" } else { "" }, value.abs());
    Ok(if value.denom().is_one() {
        format!("{sign}{}", value.numer())
    } else {
        format!("{sign}{}/{}", value.numer(), value.denom())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact() {
        for (expression, value) in [
            ("1 + 2 * 3", "7"),
            ("0.1 + 0.2", "3/10"),
            ("-(2/4)", "-1/2"),
            ("(1 + 1/3) / (2/9)", "6"),
            ("2^64", "18446744073709551616"),
            ("123456789 * 987654321", "121932631112635269"),
        ] {
            assert_eq!(calculate_exactly(expression).as_deref(), Ok(value), "{expression}");
        }
    }

    #[test]
    fn what_has_no_rational_value_is_refused() {
        for expression in ["", "1/0", "x + 1", "\\sqrt{2}", "9^9^9^9", "hello", "(1, 2)", "1 +"] {
            assert!(calculate_exactly(expression).is_err(), "{expression}");
        }
        assert!(calculate_exactly(&"1+".repeat(400)).is_err());
    }
}
