//! Parsers of numbers on the command line, whose errors state the expected range.

use std::num::NonZeroUsize;
use std::ops::Range;

/// Parses a number of `[0, 2^63)`, the range of a configuration.
pub fn seed(text: &str) -> Result<u64, String> {
    whole_number(text, 0, i64::MAX as u64)
}

/// Parses a whole number from 0.
pub fn from_0(text: &str) -> Result<usize, String> {
    whole_number(text, 0, usize::MAX as u64).map(|number| number as usize)
}

/// Parses a whole number from 0 to 4294967295.
pub fn small(text: &str) -> Result<u32, String> {
    whole_number(text, 0, u64::from(u32::MAX)).map(|number| number as u32)
}

/// Parses the number of a port; 0 is a free one.
pub fn port(text: &str) -> Result<u16, String> {
    whole_number(text, 0, u64::from(u16::MAX)).map(|number| number as u16)
}

/// Parses a whole number from 1.
pub fn from_1(text: &str) -> Result<NonZeroUsize, String> {
    let number = whole_number(text, 1, usize::MAX as u64)?;
    NonZeroUsize::new(number as usize).ok_or_else(|| "expected a whole number from 1".to_owned())
}

/// Parses a finite number from 0.
pub fn decimal(text: &str) -> Result<f32, String> {
    real(text, "a finite number from 0", |x| x.is_finite() && x >= 0.0)
}

/// Parses a number from 0 to 1.
pub fn share(text: &str) -> Result<f32, String> {
    real(text, "a number from 0 to 1", |x| (0.0..=1.0).contains(&x))
}

/// Parses a number above 0 and at most 1.
pub fn positive_share(text: &str) -> Result<f32, String> {
    real(text, "a number above 0 and at most 1", |x| x > 0.0 && x <= 1.0)
}

/// Parses a finite number.
pub fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite());
    number.ok_or_else(|| "expected a finite number".to_owned())
}

/// Parses seconds, or another finite number above 0.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
    number.ok_or_else(|| "expected a finite number above 0".to_owned())
}

fn whole_number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let expected = match most {
        u64::MAX => format!("expected a whole number from {least}"),
        most => format!("expected a whole number from {least} to {most}"),
    };
    if let Some(number) = text.parse().ok().filter(|number| (least..=most).contains(number)) {
        return Ok(number);
    }
    // 1e3, 1_000 and 1000.0 are numbers in the notation of other programs.
    let other = text.replace(['_', ','], "").parse::<f64>().ok();
    let other = other.filter(|x| x.fract() == 0.0 && *x >= least as f64 && *x < 1e18);
    Err(match other {
        Some(number) if !text.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{expected}; write {number:.0}")
        }
        _ => expected,
    })
}

fn real(text: &str, expected: &str, holds: fn(f32) -> bool) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| holds(*number));
    number.ok_or_else(|| format!("expected {expected}"))
}

/// Upper bound of the numbers of ranges.
const MOST: usize = 10_000;

/// Parses different numbers, as `0..5`, `0..=4` or `1,2,7`.
pub fn ranges(text: &str, what: &str) -> Result<Vec<u64>, String> {
    let wrong = format!("{text:?} are no {what}; write a range as `0..5`, or a list as `1,2,7`");
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let Some(range) = one_range(part) else { return Err(wrong) };
        if range.end.saturating_sub(range.start) > MOST as u64 {
            return Err(format!("{text:?} are more than {MOST} {what}"));
        }
        numbers.extend(range.filter(|number| !numbers.contains(number)).collect::<Vec<_>>());
    }
    if numbers.is_empty() { Err(wrong) } else { Ok(numbers) }
}

/// Parses `7`, `0..5` or `0..=4`.
fn one_range(text: &str) -> Option<Range<u64>> {
    Some(match text.split_once("..") {
        None => part_of_range(text)?..part_of_range(text)? + 1,
        Some((from, to)) => match to.strip_prefix('=') {
            Some(to) => part_of_range(from)?..part_of_range(to)? + 1,
            None => part_of_range(from)?..part_of_range(to)?,
        },
    })
}

fn part_of_range(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|number| i64::try_from(*number).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_refused_with_what_is_expected() {
        let most = i64::MAX;
        for (text, told) in [
            ("-1", format!("expected a whole number from 0 to {most}")),
            ("", format!("expected a whole number from 0 to {most}")),
            ("99999999999999999999", format!("expected a whole number from 0 to {most}")),
            ("1e3", format!("expected a whole number from 0 to {most}; write 1000")),
            ("1_000", format!("expected a whole number from 0 to {most}; write 1000")),
        ] {
            assert_eq!(seed(text), Err(told));
        }
        assert_eq!(seed("7"), Ok(7));
        assert_eq!(from_1("0"), Err("expected a whole number from 1".to_owned()));
        assert_eq!(from_1("2").map(NonZeroUsize::get), Ok(2));
        assert_eq!(share("1.5"), Err("expected a number from 0 to 1".to_owned()));
        assert!(seconds("0").is_err() && decimal("nan").is_err() && positive_share("0").is_err());
    }
}
