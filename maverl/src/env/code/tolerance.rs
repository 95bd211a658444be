//! Tolerances of numbers in the outputs of programs.

use serde_json::Value;

use crate::task::Task;

/// Number of characters around the word "error" that are searched for its kind and its bound, blanks excluded.
const REACH: usize = 100;

/// Returns the tolerance of a task: its key `tolerance`, else what its question states.
///
/// # Errors
///
/// If the key is no number.
pub(super) fn tolerance(task: &Task) -> Result<Option<f64>, String> {
    match task.data.get("tolerance") {
        None | Some(Value::Null) => Ok(stated(&task.question)),
        Some(value) => match value.as_f64().filter(|number| (0.0..1.0).contains(number)) {
            Some(number) => Ok(Some(number).filter(|number| *number > 0.0)),
            None => Err(format!(
                "`tolerance` is {value}; write the accepted relative difference of numbers, such as 1e-6"
            )),
        },
    }
}

/// Returns the bound that a question states: "absolute or relative error does not exceed 10^{-6}", "answers within 10^-5
/// of the actual answer will be accepted".
fn stated(question: &str) -> Option<f64> {
    let text: String = question.to_lowercase().chars().filter_map(plain).collect();
    let error = text.match_indices("error").filter_map(|(at, word)| {
        let (before, after) = text_around(&text, at, word);
        let kind = before.contains("relative") || before.contains("absolute");
        bound(after).filter(|_| kind)
    });
    let within = text.match_indices("within").filter_map(|(at, word)| {
        let (_, after) = text_around(&text, at, word);
        let accepted = after.contains("accepted") || after.contains("consideredcorrect");
        bound(after).filter(|_| accepted && after.starts_with(['1', '0']))
    });
    error.chain(within).next()
}

/// Returns the texts within reach before and after a word at this place.
fn text_around<'t>(text: &'t str, at: usize, word: &str) -> (&'t str, &'t str) {
    let start = text[..at].char_indices().rev().nth(REACH - 1).map_or(0, |(start, _)| start);
    let after = &text[at + word.len()..];
    let end = after.char_indices().nth(REACH).map_or(after.len(), |(end, _)| end);
    (&text[start..at], &after[..end])
}

/// Returns a character of a bound as plain text; `None` for blanks and the marks of TeX.
fn plain(c: char) -> Option<char> {
    match c {
        '−' | '–' => Some('-'),
        _ if c.is_alphanumeric() || "-^.".contains(c) => Some(c),
        _ => None,
    }
}

/// Returns the first power of ten with a negative exponent: `10^-6`, `10-6`, `1e-6`, `0.000001`.
fn bound(text: &str) -> Option<f64> {
    let starts = text.char_indices().filter(|(start, c)| {
        matches!(*c, '0' | '1')
            && !text[..*start].ends_with(|c: char| c.is_ascii_digit() || c == '.')
    });
    starts.filter_map(|(start, _)| leading_power(&text[start..])).next()
}

/// Returns the power of ten with a negative exponent that a text begins with.
fn leading_power(text: &str) -> Option<f64> {
    if let Some(rest) = ["10^-", "10-", "1e-"].iter().find_map(|mark| text.strip_prefix(mark)) {
        let exponent: i32 = leading_digits(rest).parse().ok()?;
        return (1..=12).contains(&exponent).then(|| 10_f64.powi(-exponent));
    }
    let decimals = leading_digits(text.strip_prefix("0.")?);
    let is_power = decimals.trim_start_matches('0') == "1";
    is_power.then(|| 10_f64.powi(-(decimals.len() as i32)))
}

fn leading_digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

/// Returns true if two outputs have the same lines and words, where numbers that are not both whole may differ by the
/// tolerance: as a share of the wanted one if that is above 1.
pub(super) fn near_lines(found: &str, wanted: &str, tolerance: f64) -> bool {
    let (found, wanted) = (words_of_lines(found), words_of_lines(wanted));
    found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(found, wanted)| near_words(found, wanted, tolerance))
}

fn words_of_lines(text: &str) -> Vec<Vec<&str>> {
    text.trim_end().lines().map(|line| line.split_whitespace().collect()).collect()
}

fn near_words(found: &[&str], wanted: &[&str], tolerance: f64) -> bool {
    found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| is_near(found, wanted, tolerance))
}

fn is_near(found: &str, wanted: &str, tolerance: f64) -> bool {
    match (finite_number(found), finite_number(wanted)) {
        _ if found == wanted => true,
        (Some(a), Some(b)) if !(is_whole(found) && is_whole(wanted)) => {
            (a - b).abs() <= tolerance * b.abs().max(1.0)
        }
        _ => false,
    }
}

fn finite_number(word: &str) -> Option<f64> {
    word.parse().ok().filter(|number: &f64| number.is_finite())
}

fn is_whole(number: &str) -> bool {
    number.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_states_its_tolerance_in_the_words_of_contests() {
        for (question, wanted) in [
            (
                "Your answer is correct if its absolute or relative error does not exceed $10^{-6}$.",
                1e-6,
            ),
            ("The relative or absolute error should not exceed 10^{ - 9}.", 1e-9),
            (
                "your answer is considered correct if its absolute or relative error doesn't exceed 10 - 4",
                1e-4,
            ),
            ("Absolute error of at most 10−5 is fine.", 1e-5),
            ("with an absolute or relative error of at most 1e-6", 1e-6),
            ("The error may be relative or absolute; relative error below 0.001 is accepted", 1e-3),
            ("Answers within 10^-5 of the actual answer will be accepted.", 1e-5),
            ("Answers within $10^{-5}$ of the actual value will be accepted as correct.", 1e-5),
        ] {
            assert_eq!(stated(question), Some(wanted), "{question}");
        }
        for question in [
            "",
            "Print the number of errors. There are at most 10^6 of them.",
            "Find x such that |x| <= 10^-6.",
            "The relative error is what you must print. There are 10^5 rows.",
            "Points within 10^-5 of the line count.",
            "Print the absolute value; on error print 0.",
            "absolute or relative error of at most 10^-99",
        ] {
            assert_eq!(stated(question), None, "{question}");
        }
    }

    #[test]
    fn numbers_differ_by_the_tolerance_and_nothing_else_does() {
        for (found, wanted) in [
            ("0.3333333", "0.333333333"),
            ("1.0\n2.50\n", "1\n2.5"),
            ("3", "3.0000001"),
            ("1000000.5", "1000000.9"),
            ("YES 0.5", "YES  0.50000001"),
            ("1e-7", "0"),
            ("-0.0", "0.0"),
        ] {
            assert!(near_lines(found, wanted, 1e-6), "{found:?} {wanted:?}");
        }
        for (found, wanted) in [
            ("0.3333", "0.333333333"),
            ("1000001", "1000000"),
            ("1.0 2.5", "1\n2.5"),
            ("1.0\n2.5\n3", "1\n2.5"),
            ("nan", "0.5"),
            ("inf", "0.5"),
            ("yes 0.5", "YES 0.5"),
            ("05", "5"),
            ("0.5x", "0.5"),
            ("", "0.0"),
            ("1000003.5", "1000001.5"),
        ] {
            assert!(!near_lines(found, wanted, 1e-6), "{found:?} {wanted:?}");
        }
    }
}
