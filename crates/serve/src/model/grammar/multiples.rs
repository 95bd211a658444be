//! Schemas as a grammar can have them: their spelling, bounds of integers, and bounds of `multipleOf`.
//!
//! The lexer divides a number digit by digit, in 32 bits: with `p` decimals and the digits `d` of the divisor it computes
//! `10 d + 9 · 10ᵖ`. Beyond 2³² the remainders would be wrong, and so would the numbers that they allow.

use std::collections::BTreeSet;

use serde_json::{Number, Value, json};

use super::narrowed::{BOUNDS, DATA, is_integer, narrow_bounds};

/// Largest integer of a call whose schema has no bound, and the negative of the smallest. Larger ones do not fit 64 bits, and
/// would be texts in the arguments, which the schema refuses.
const LARGEST_INTEGER: i64 = 1_000_000_000_000_000_000;
/// Maximum number of decimals of a divisor.
const DECIMALS: u32 = 8;

/// Divisors of a schema.
#[derive(Default)]
struct Divisors {
    /// Number of decimals, and digits without the point.
    known: BTreeSet<(u32, u32)>,
    /// True if a value may have to be a multiple of several of them.
    combined: bool,
}

/// Fails for a schema with a `multipleOf` that the lexer cannot divide by.
fn check_multiples(schema: &Value) -> Result<(), String> {
    let mut divisors = Divisors::default();
    divisors.collect(schema)?;
    divisors.check_together()
}

impl Divisors {
    /// Adds the divisors of a schema. Fails for one whose remainders do not fit 32 bits.
    fn collect(&mut self, schema: &Value) -> Result<(), String> {
        match schema {
            Value::Array(schemas) => schemas.iter().try_for_each(|schema| self.collect(schema)),
            Value::Object(schema) => schema.iter().try_for_each(|(key, value)| match value {
                Value::Number(number) if key == "multipleOf" => {
                    self.known.insert(digits(number)?);
                    Ok(())
                }
                _ if DATA.contains(&key.as_str()) => Ok(()),
                _ => {
                    self.combined |= key == "allOf";
                    self.collect(value)
                }
            }),
            _ => Ok(()),
        }
    }

    /// Fails for divisors that may be combined, and whose least common multiple does not fit 32 bits.
    fn check_together(&self) -> Result<(), String> {
        let most = self.known.iter().map(|(decimals, _)| *decimals).max().unwrap_or(0);
        let scaled = self.known.iter().map(|(decimals, digits)| {
            u128::from(*digits) * u128::from(10_u32.pow(most - decimals))
        });
        let limit = u128::from(u32::MAX);
        let common = scaled.clone().fold(1, |common: u128, digits| {
            if common > limit { common } else { common / gcd(common, digits) * digits }
        });
        let product = common.saturating_mul(scaled.max().unwrap_or(1));
        if !self.combined
            || self.known.len() < 2
            || product <= limit && common <= largest(most).into()
        {
            return Ok(());
        }
        Err("its values of `multipleOf`, which `allOf` may combine, have a least common multiple beyond 32 bits".to_owned())
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the largest digits of a divisor with so many decimals.
fn largest(decimals: u32) -> u32 {
    (u32::MAX - 9 * 10_u32.pow(decimals)) / 10
}

/// Returns the decimals and the digits of a divisor. Fails for one whose remainders do not fit 32 bits.
fn digits(divisor: &Number) -> Result<(u32, u32), String> {
    let value = divisor.as_f64().unwrap_or(f64::INFINITY);
    let (mut digits, mut decimals) = (value.abs(), 0);
    while digits.fract() != 0.0 && decimals < DECIMALS {
        (digits, decimals) = (10.0 * digits, decimals + 1);
    }
    if digits > 0.0 && digits.fract() == 0.0 && digits <= f64::from(largest(decimals)) {
        return Ok((decimals, digits as u32));
    }
    Err(format!(
        "`multipleOf` is {divisor}, whose remainders cannot be counted exactly; expected a whole number from 1 to {}, or a \
         short decimal such as 0.01",
        largest(0)
    ))
}

/// Returns a schema whose values have one form: on one line, with a blank after each comma and colon. Where blanks are free,
/// a weak model writes them without end.
pub(super) fn compact_schema(mut schema: Value) -> Result<Value, String> {
    check_multiples(&schema)?;
    narrow_bounds(&mut schema)?;
    let Value::Object(mut schema) = schema else { return Ok(schema) };
    let spelled =
        json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
    schema.insert("x-guidance".to_owned(), spelled);
    Ok(Value::Object(schema))
}

/// Returns the schema of arguments, as [`compact_schema`], whose integers fit 64 bits.
pub(super) fn argument_schema(mut schema: Value) -> Result<Value, String> {
    bound_integers(&mut schema);
    compact_schema(schema)
}

/// Bounds the integers of a schema, and of those in it, where it has no bounds.
fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(bound_integers),
        Value::Object(table) => {
            let others = table.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str()));
            others.for_each(|(_, value)| bound_integers(value));
            if !is_integer(table) || ["enum", "const"].iter().any(|key| table.contains_key(*key)) {
                return;
            }
            for (keys, bound) in BOUNDS.iter().zip([-LARGEST_INTEGER, LARGEST_INTEGER]) {
                if !keys.iter().any(|key| table.contains_key(*key)) {
                    table.insert(keys[0].to_owned(), bound.into());
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_divisor_is_one_whose_remainders_fit_32_bits() {
        for fits in [
            json!(1),
            json!(2.0),
            json!(0.1),
            json!(0.5),
            json!(0.01),
            json!(0.005),
            json!(1e5),
            json!(-3),
            json!(86_400_000),
            json!(429_496_728),
            json!(1e-8),
        ] {
            assert_eq!(check_multiples(&json!({"multipleOf": fits})), Ok(()), "{fits}");
        }
        for beyond in [
            json!(0),
            json!(0.0),
            json!(429_496_729),
            json!(999_999_937),
            json!(4_294_967_295_u64),
            json!(u64::MAX),
            json!(1e300),
            json!(1e-9),
            json!(1e-300),
            json!(0.123_456_789),
            json!(99.999_999_99),
            json!(-999_999_937),
        ] {
            let schema =
                json!({"anyOf": [{"properties": {"a": {"items": {"multipleOf": beyond}}}}]});
            let error = check_multiples(&schema).err().unwrap_or_default();
            assert!(error.starts_with("`multipleOf` is "), "{beyond}: {error}");
        }
    }

    #[test]
    fn data_and_properties_of_that_name_are_no_divisors() {
        let data = json!({"const": {"multipleOf": 0}, "enum": [{"multipleOf": 1e300}], "default": {"multipleOf": 0}});
        assert_eq!(check_multiples(&data), Ok(()));
        let property = json!({"properties": {"multipleOf": {"type": "integer"}}});
        assert_eq!(check_multiples(&property), Ok(()));
    }

    #[test]
    fn divisors_that_may_be_combined_have_a_common_multiple_that_fits() {
        let both = |a: Value, b: Value| json!({"allOf": [{"multipleOf": a}, {"multipleOf": b}]});
        for (a, b) in [
            (json!(2), json!(3)),
            (json!(0.01), json!(5)),
            (json!(0.5), json!(0.25)),
            (json!(60), json!(3600)),
            (json!(86_400_000), json!(86_400_000)),
        ] {
            let apart = json!({"anyOf": [{"multipleOf": a}, {"multipleOf": b}]});
            assert_eq!(check_multiples(&apart), Ok(()));
            assert_eq!(check_multiples(&both(a, b)), Ok(()));
        }
        for (a, b) in [
            (json!(99_991), json!(99_989)),
            (json!(1000), json!(86_400_000)),
            (json!(1e-8), json!(7)),
            (json!(65_536), json!(65_537)),
        ] {
            let apart = json!({"properties": {"a": {"multipleOf": a}, "b": {"multipleOf": b}}});
            assert_eq!(check_multiples(&apart), Ok(()));
            let error = check_multiples(&both(a, b)).err().unwrap_or_default();
            assert!(error.contains("least common multiple"), "{error}");
        }
    }

    #[test]
    fn integers_of_arguments_fit_64_bits() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "l": {"type": "array", "items": {"type": ["integer", "null"]}},
                "own": {"type": "integer", "exclusiveMinimum": 3, "maximum": 5},
                "real": {"type": "number"},
                "word": {"enum": [{"type": "integer"}]},
            },
        });
        let before = schema.clone();
        bound_integers(&mut schema);
        let items = &schema["properties"]["l"]["items"];
        let bounds = (items["minimum"].as_i64(), items["maximum"].as_i64());
        assert_eq!(bounds, (Some(-LARGEST_INTEGER), Some(LARGEST_INTEGER)));
        for key in ["own", "real", "word"] {
            assert_eq!(schema["properties"][key], before["properties"][key], "{key}");
        }
    }
}
