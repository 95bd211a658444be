//! A rule-based judge of form, not of correctness. A metric and never a reward, because a policy trained on it learns
//! to write empty phrases.

use std::collections::BTreeSet;

/// Phrases that refer to evidence.
const EVIDENCE: [&str; 8] = [
    "research shows",
    "studies indicate",
    "according to",
    "evidence suggests",
    "data shows",
    "statistics",
    "for example",
    "for instance",
];

/// Phrases that draw a conclusion.
const REASONING: [&str; 8] = [
    "therefore",
    "thus",
    "because",
    "consequently",
    "as a result",
    "this means",
    "implies that",
    "follows that",
];

/// Minimum number of words of a sentence; shorter ones do not count.
const SENTENCE: usize = 5;

/// Rates the form of an argument from 0 to 1.
///
/// `(0.2 length + 0.25 evidence + 0.25 reasoning + 0.15 structure + 0.15 relevance) · distinct`, after MRLM's judge, but:
///
/// - phrases are whole words, a sentence counts for one phrase, and only sentences of five words count;
/// - `distinct` is the share of distinct words in every window of three words, so repetition lowers the whole rating.
pub fn rule(text: &str, question: &str) -> f64 {
    let sentences: Vec<Vec<String>> = text
        .split(['.', '!', '?', '\n'])
        .map(words_of)
        .filter(|words| words.len() >= SENTENCE)
        .collect();
    let all = words_of(text);
    let (mut evidence, mut reasoning) = (0, 0);
    for sentence in &sentences {
        let sentence = format!(" {} ", sentence.join(" "));
        if has_phrase(&sentence, &EVIDENCE) {
            evidence += 1;
        } else if has_phrase(&sentence, &REASONING) {
            reasoning += 1;
        }
    }
    let asked: BTreeSet<String> =
        words_of(question).into_iter().filter(|word| word.chars().count() > 3).collect();
    let met = asked.iter().filter(|word| all.contains(word)).count();
    let score = 0.2 * length(text.chars().count())
        + 0.25 * capped_share(evidence, 2)
        + 0.25 * capped_share(reasoning, 2)
        + 0.15 * capped_share(sentences.len(), 5)
        + 0.15 * capped_share(met, asked.len().min(3));
    score * distinct(&all)
}

fn has_phrase(sentence: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| sentence.contains(&format!(" {phrase} ")))
}

/// Returns the share of `n` in `of`, at most 1.
fn capped_share(n: usize, of: usize) -> f64 {
    (n as f64 / of.max(1) as f64).min(1.0)
}

/// Rates the length: 1 from 100 to 500 characters, and half for twice as many.
fn length(chars: usize) -> f64 {
    match chars {
        0..100 => chars as f64 / 100.0,
        100..=500 => 1.0,
        _ => (1.0 - (chars - 500) as f64 / 500.0).max(0.5),
    }
}

/// Returns the share of distinct words in every window of three words.
fn distinct(words: &[String]) -> f64 {
    let triples: Vec<&[String]> = words.windows(3).collect();
    let different: BTreeSet<&[String]> = triples.iter().copied().collect();
    if triples.is_empty() { 1.0 } else { different.len() as f64 / triples.len() as f64 }
}

fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &str = "Should cities close their centers to private cars?";
    const SENSIBLE: &str = "Cities that close their centers become quieter, and this means people stay longer. According \
        to the mayor of Ghent, private cars fell by a third. Shops did not suffer, because more people came on foot.";

    #[test]
    fn an_argument_beats_a_soup_of_keywords() {
        let soup = [EVIDENCE.join(" "), REASONING.join(" ")].join(" ");
        let sensible = rule(SENSIBLE, QUESTION);
        assert!(sensible > 0.6, "{sensible}");
        for cheat in [soup.clone(), soup.replace(' ', ". "), format!("{soup}.").repeat(3)] {
            assert!(rule(&cheat, QUESTION) < 0.5 * sensible, "{cheat}: {}", rule(&cheat, QUESTION));
        }
    }

    #[test]
    fn repetition_lowers_everything() {
        let times = |n| rule(&SENSIBLE.repeat(n), QUESTION);
        assert!(times(2) < 0.8 * times(1) && times(3) < 0.8 * times(2));
        assert_eq!(rule("", QUESTION), 0.0);
    }
}
