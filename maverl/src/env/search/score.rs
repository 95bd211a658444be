//! Equality of short answers, as in SQuAD and Search-R1.

use std::collections::BTreeMap;

/// Normalizes a text: lower case, without ASCII punctuation, with a space for each of the articles a, an, the, and with
/// single spaces.
pub fn normalize(text: &str) -> String {
    let kept: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // An article is a whole word; characters other than letters and digits end a word and stay.
    let mut out = String::with_capacity(kept.len());
    let mut word = String::new();
    for c in kept.chars().chain([' ']) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        match word.as_str() {
            "a" | "an" | "the" => out.push(' '),
            other => out.push_str(other),
        }
        word.clear();
        out.push(c);
    }
    let words = out.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Returns true for characters at which Python's `str.split` splits: white space, and the separators U+001C to U+001F.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns true if answer and reference are equal after normalization, as in SQuAD's official script. A reference that
/// normalizes to the empty text, such as `A`, is matched by every answer that does too.
pub fn exact_match(answer: &str, reference: &str) -> bool {
    normalize(answer) == normalize(reference)
}

/// Computes the harmonic mean of precision and recall over the words of an answer and a reference, both normalized. If
/// either has no words, the result is 1 if both have none, else 0, as in the official script of SQuAD 2.0.
pub fn f1(answer: &str, reference: &str) -> f64 {
    let (answer, reference) = (normalize(answer), normalize(reference));
    if answer.is_empty() && reference.is_empty() {
        return 1.0;
    }
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    answer
        .split(' ')
        .filter(|word| !word.is_empty())
        .for_each(|word| counts.entry(word).or_default().0 += 1);
    reference
        .split(' ')
        .filter(|word| !word.is_empty())
        .for_each(|word| counts.entry(word).or_default().1 += 1);
    let (mut given, mut wanted, mut common) = (0, 0, 0);
    for (a, r) in counts.values() {
        given += a;
        wanted += r;
        common += a.min(r);
    }
    if common == 0 { 0.0 } else { 2.0 * common as f64 / (given + wanted) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of texts and verdicts from running the reference implementation (Dr. MAS, `search/utils.py`).
    #[test]
    fn answers_match_as_in_the_reference() {
        assert!(exact_match("The Beatles!", "beatles"));
        assert!(exact_match("U.S.A.", "USA"));
        assert!(exact_match("New-York", "newyork"));
        assert!(!exact_match("New-York", "new york"));
        assert!(exact_match("1,000", "1000"));
        assert!(exact_match("  an  apple a day ", "apple day"));
        assert!(!exact_match("theory", "ory"));
    }

    /// By the definitions of SQuAD's official scripts: `evaluate-v1.1.py` for the match, `evaluate-v2.0.py` for F1.
    #[test]
    fn a_reference_that_normalizes_to_nothing_is_matched_by_such_an_answer() {
        for reference in ["A", "The", "a", "an the", "!", "-", "\"The\"", ""] {
            for answer in ["A", "the", "", "?", "An."] {
                assert!(exact_match(answer, reference), "{answer:?} {reference:?}");
                assert_eq!(f1(answer, reference), 1.0, "{answer:?} {reference:?}");
            }
            for answer in ["B", "a b", "the tower", "0"] {
                assert!(!exact_match(answer, reference), "{answer:?} {reference:?}");
                assert!(!exact_match(reference, answer), "{reference:?} {answer:?}");
                assert_eq!(f1(answer, reference), 0.0, "{answer:?} {reference:?}");
            }
        }
    }

    #[test]
    fn articles_end_where_words_do() {
        assert_eq!(normalize("A–b and the\u{a0}the 6½ Été"), "–b and 6½ été");
    }

    /// Values of `normalize_answer` of SQuAD's `evaluate-v1.1.py` (Python 3.11).
    #[test]
    fn blanks_and_articles_are_those_of_the_official_script() {
        for (text, normalized) in [
            ("new\u{1c}york", "new york"),
            ("new\u{1d}\u{1e}york\u{1f}", "new york"),
            ("\u{1c}the\u{1c}city", "city"),
            ("new\u{85}york", "new york"),
            ("new\u{b}\u{c}york", "new york"),
            ("new\u{2028}york\u{3000}", "new york"),
            ("new\u{200b}york", "new\u{200b}york"),
            ("new\u{0}york", "new\u{0}york"),
            ("–the–", "– –"),
            ("«a»b", "« »b"),
            ("the_end", "theend"),
            ("A.N. Other", "other"),
            ("an\u{301} x", "\u{301} x"),
        ] {
            assert_eq!(normalize(text), normalized, "{text:?}");
        }
        assert!(
            exact_match("New\u{1c}York", "new york") && !exact_match("New\u{1c}York", "newyork")
        );
        assert_eq!(f1("New\u{1f}York", "york new"), 1.0);
    }

    #[test]
    fn f1_counts_common_words() {
        assert_eq!(f1("Ada Tovik", "ada tovik"), 1.0);
        assert_eq!(f1("Ada Tovik", "Ada"), 2.0 / 3.0);
        assert_eq!(f1("b b c", "b b b d"), 4.0 / 7.0);
        assert_eq!(f1("x", "y"), 0.0);
        assert_eq!(f1("", "y"), 0.0);
    }
}
