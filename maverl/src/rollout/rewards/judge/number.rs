//! The score in a text without a form: its last number, apart from the scale that a judge may repeat after it.

/// Words between a score and the scale after it.
const JOINING: [&str; 18] = [
    "a", "an", "between", "from", "in", "max", "maximum", "of", "on", "out", "point", "points",
    "possible", "range", "scale", "stars", "the", "within",
];
/// Words and signs without which a number after a score is not the end of its scale.
const SHARING: [&str; 7] = ["/", "of", "on", "max", "maximum", "possible", "scale"];
/// Words beside a number that may be the end of the scale.
const ENDING: [&str; 5] = ["max", "maximum", "possible", "range", "scale"];
/// Words and signs between the ends of a range.
const RANGES: [&str; 6] = ["-", "–", "to", "through", "and", ".."];
/// Characters at which a part of a sentence ends.
const STOPS: [char; 5] = ['.', ';', '!', '?', '\n'];

/// A number, and its position in bytes.
struct FoundNumber {
    value: f64,
    begin: usize,
    end: usize,
}

/// Returns the last number of a text. If that is the end of the scale, as in `3/10`, `3 (out of 10)` and `3 on a scale from 0 to 10`, it
/// is the number before it. `None` if the number may be an end of the scale or of another range: `3/4`, `3 to 4`, `three out of 10`.
pub(super) fn last_number(text: &str, scale: [f64; 2]) -> Option<f64> {
    score(text, &numbers(text), scale)
}

/// Returns the numbers of a text. A minus after a digit is no sign.
fn numbers(text: &str) -> Vec<FoundNumber> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is = |at: usize, sign: u8| bytes.get(at) == Some(&sign);
    let (mut numbers, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let fraction = is(at, b'.') && is_digit(at + 1) && (at == 0 || !is(at - 1, b'.'));
        if !is_digit(at) && !fraction {
            at += 1;
            continue;
        }
        let length = (at..).take_while(|&i| is_digit(i) || is(i, b'.')).count();
        let signed = at > 0 && is(at - 1, b'-') && (at == 1 || !is_digit(at - 2));
        let begin = at - usize::from(signed);
        let word = text[begin..at + length].trim_end_matches('.');
        if let Ok(value) = word.parse() {
            numbers.push(FoundNumber { value, begin, end: begin + word.len() });
        }
        at += length;
    }
    numbers
}

/// Returns the score among the numbers of a text.
fn score(text: &str, numbers: &[FoundNumber], scale: [f64; 2]) -> Option<f64> {
    let [low, high] = scale;
    let (last, before) = numbers.split_last()?;
    let is_end = last.value.total_cmp(&high).is_eq();
    let Some((previous, earlier)) = before.split_last() else {
        return alone(text, 0, last, is_end);
    };
    let gap = &text[previous.end..last.begin];
    let words = plain(gap);
    if gap == "," || RANGES.contains(&words.as_str()) {
        let begins = [low, 0.0, 1.0].iter().any(|begin| previous.value.total_cmp(begin).is_eq());
        let of = earlier.last().filter(|_| is_end && begins)?;
        let joined = is_joining(&plain(&text[of.end..previous.begin]));
        return if joined { score(&text[..of.end], earlier, scale) } else { None };
    }
    let shares = SHARING.iter().any(|sharing| parts(&words).any(|part| part == *sharing));
    if shares && is_joining(&words) {
        return if is_end { score(&text[..previous.end], before, scale) } else { None };
    }
    let after_share = earlier.last().map(|first| plain(&text[first.end..previous.begin]));
    if words == "=" && after_share.is_some_and(|share| share == "/") {
        return None;
    }
    alone(text, previous.end, last, is_end)
}

/// Returns the value of a number that no other one explains, if the words beside it do not make it an end of the scale. The part of
/// the text from `from` has no other number.
fn alone(text: &str, from: usize, number: &FoundNumber, is_end: bool) -> Option<f64> {
    let before = plain(text[from..number.begin].rsplit(STOPS).next().unwrap_or_default());
    let after = plain(text[number.end..].split(STOPS).next().unwrap_or_default());
    let ends = parts(&before).chain(parts(&after)).any(|part| ENDING.contains(&part));
    let shares = before.ends_with("out of") || before.ends_with('/');
    (!(shares || is_end && ends)).then_some(number.value)
}

/// Returns a text in lower case, without marks of Markdown and blanks around it.
fn plain(text: &str) -> String {
    text.replace(['*', '_', '`'], "").trim().to_lowercase()
}

/// Returns the words and slashes of a text.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('/')
        .flat_map(|part| match part.strip_suffix('/') {
            Some(before) => [before, "/"],
            None => [part, ""],
        })
        .flat_map(|part| part.split(|c: char| !c.is_alphabetic() && c != '/'))
        .filter(|part| !part.is_empty())
}

/// Returns true if a text between a score and a number only leads to the scale.
fn is_joining(text: &str) -> bool {
    let allowed = |c: char| c.is_alphabetic() || " /([:,-".contains(c);
    text.chars().all(allowed)
        && text.contains(|c: char| c.is_alphabetic() || "/([".contains(c))
        && parts(text).all(|part| part == "/" || JOINING.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_scale_is_not_the_score_before_it() {
        for text in [
            "Score: 3/10",
            "It is mostly wrong. Score: 3 (out of 10).",
            "I give it a 3 on a scale from 0 to 10.",
            "I give it a **3** on a scale of 1 to 10",
            "3 (0-10)",
            "3 (scale: 0 – 10)",
            "3 on a 0-10 scale.",
            "3 on a 10-point scale",
            "3 points out of a possible 10",
            "3 of 10",
            "3/10 (on a scale from 0 to 10)",
            "3, on a scale between 0 and 10",
            "3 [0,10]",
            "On a scale of 0 to 10, I say 3.",
            "Score (0-10): 3",
            "Score out of 10: 3",
            "There are 10 claims. I give a score of 3.",
        ] {
            assert_eq!(last_number(text, [0.0, 10.0]), Some(3.0), "{text}");
        }
    }

    #[test]
    fn the_end_of_the_scale_is_a_score_where_it_is_given_as_one() {
        for text in [
            "10",
            "10/10",
            "a 10 on a scale of 0 to 10",
            "On a scale of 0 to 10, this is a perfect 10.",
            "Score from 0 to 10: 10",
            "I give it a score of 10.",
            "The scale is clear. I give 10.",
        ] {
            assert_eq!(last_number(text, [0.0, 10.0]), Some(10.0), "{text}");
        }
        assert_eq!(last_number("Score: -0.5 (-1 to 1)", [-1.0, 1.0]), Some(-0.5));
        assert_eq!(last_number("Score...5", [0.0, 10.0]), Some(5.0));
    }

    #[test]
    fn a_number_that_may_be_an_end_of_a_range_is_no_score() {
        for text in [
            "",
            "3/4",
            "3 to 4",
            "between 7 and 8",
            "7-8",
            "7,5",
            "three out of 10",
            "I give it a three. The scale goes from 0 to 10.",
            "It has 2 errors. On a scale of 0 to 10, it is a seven.",
            "It has 2 errors on a list. The scale is 0-10.",
            "The best, on a scale from 0 to 10.",
            "a three; the maximum is 10",
            "a three on the 10-point scale",
            "3/10 = 0.3",
            "1.2.3",
        ] {
            assert_eq!(last_number(text, [0.0, 10.0]), None, "{text}");
        }
    }
}
