//! When two short answers say the same, as SQuAD and Search-R1 have it.

use std::collections::BTreeMap;

/// Lower case, without ASCII punctuation, without the articles a, an, the, with single spaces.
pub fn normalize(text: &str) -> String {
    let kept: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // An article is a whole word; what is no letter or digit ends a word and stays.
    let mut out = String::with_capacity(kept.len());
    let mut word = String::new();
    for c in kept.chars().chain([' ']) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        if !matches!(word.as_str(), "a" | "an" | "the") {
            out.push_str(&word);
        }
        word.clear();
        out.push(c);
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether an answer is the reference, both normalized. An answer of which nothing is left is never right.
pub fn exact_match(answer: &str, reference: &str) -> bool {
    let answer = normalize(answer);
    !answer.is_empty() && answer == normalize(reference)
}

/// Harmonic mean of precision and recall over the words of an answer and a reference, both normalized.
pub fn f1(answer: &str, reference: &str) -> f64 {
    let (answer, reference) = (normalize(answer), normalize(reference));
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

    /// Pairs of docs and verdicts from running the reference implementation (Dr. MAS, `search/utils.py`).
    #[test]
    fn answers_match_as_in_the_reference() {
        assert!(exact_match("The Beatles!", "beatles"));
        assert!(exact_match("U.S.A.", "USA"));
        assert!(exact_match("New-York", "newyork"));
        assert!(!exact_match("New-York", "new york"));
        assert!(exact_match("1,000", "1000"));
        assert!(exact_match("  an  apple a day ", "apple day"));
        assert!(!exact_match("theory", "ory"));
        assert!(!exact_match("the", "a"));
        assert!(!exact_match("", ""));
    }

    #[test]
    fn articles_end_where_words_do() {
        assert_eq!(normalize("A–b and the\u{a0}the 6½ Été"), "–b and 6½ été");
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
