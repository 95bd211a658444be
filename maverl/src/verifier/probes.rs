//! Probes: what is known of a label without verifying anything. A verifier must be better than all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::calibration::class_sizes;
use super::statistics::auc;

/// Most characters of a shape.
const SHAPE: usize = 64;

/// A row as probes see it: never the question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probed<'a> {
    /// The reply.
    pub(crate) reply: &'a str,
    /// Name of the policy that gave it.
    pub(crate) policy: &'a str,
    /// Seat and path of its turn.
    pub(crate) place: &'a str,
    /// True if it is right.
    pub(crate) label: bool,
}

/// Returns the AUC of each probe on the test rows, fitted on the training rows. Empty without right and wrong rows in both.
///
/// - `length`: characters of the reply.
/// - `policy`, `place`: share of right replies of the policy, and of the seat and path of the turn.
/// - `format`: share of right replies of the same shape: letters, digits and blanks as such.
/// - `completion`: naive Bayes over words and pairs of words of the reply alone.
pub(crate) fn probes(train: &[Probed<'_>], test: &[Probed<'_>]) -> Vec<(&'static str, f64)> {
    if class_sizes(&labels_of(train)).is_none() {
        return Vec::new();
    }
    let scores = [
        ("length", lengths(train, test)),
        ("policy", shares(train, test, |row| row.policy.to_owned())),
        ("place", shares(train, test, |row| row.place.to_owned())),
        ("format", shares(train, test, |row| shape(row.reply))),
        ("completion", bayes(train, test)),
    ];
    let labels = labels_of(test);
    let scores = scores.into_iter();
    scores.filter_map(|(name, scores)| Some((name, auc(&scores, &labels)?))).collect()
}

fn labels_of(rows: &[Probed<'_>]) -> Vec<bool> {
    rows.iter().map(|row| row.label).collect()
}

/// Returns the lengths of the test replies, with the sign that is better on the training rows.
fn lengths(train: &[Probed<'_>], test: &[Probed<'_>]) -> Vec<f64> {
    let [of_train, of_test] = [train, test].map(|rows| -> Vec<f64> {
        rows.iter().map(|row| row.reply.chars().count() as f64).collect()
    });
    let area = auc(&of_train, &labels_of(train)).unwrap_or(0.5);
    let sign = if area < 0.5 { -1.0 } else { 1.0 };
    of_test.into_iter().map(|length| sign * length).collect()
}

/// Returns the share of right training rows with the same key, smoothed by two rows of the base rate.
fn shares(
    train: &[Probed<'_>],
    test: &[Probed<'_>],
    key: impl Fn(&Probed<'_>) -> String,
) -> Vec<f64> {
    let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for row in train {
        counts.entry(key(row)).or_default()[usize::from(row.label)] += 1.0;
    }
    let right: f64 = counts.values().map(|count| count[1]).sum();
    let base = right / train.len().max(1) as f64;
    let shares = test.iter().map(|row| {
        let [wrong, right] = counts.get(&key(row)).copied().unwrap_or_default();
        (right + 2.0 * base) / (wrong + right + 2.0)
    });
    shares.collect()
}

/// Returns the shape of a reply: runs of letters as `a`, of digits as `9`, of blanks as one.
fn shape(reply: &str) -> String {
    let mut shape: Vec<char> = reply.chars().map(shape_of).collect();
    shape.dedup();
    shape.into_iter().take(SHAPE).collect()
}

fn shape_of(c: char) -> char {
    match c {
        c if c.is_alphabetic() => 'a',
        c if c.is_numeric() => '9',
        c if c.is_whitespace() => ' ',
        c => c,
    }
}

/// Returns the log-odds of naive Bayes over words and pairs of words, with add-one smoothing.
fn bayes(train: &[Probed<'_>], test: &[Probed<'_>]) -> Vec<f64> {
    let (mut counts, mut rows): (BTreeMap<String, [f64; 2]>, [f64; 2]) = Default::default();
    for row in train {
        rows[usize::from(row.label)] += 1.0;
        for feature in features(row.reply) {
            counts.entry(feature).or_default()[usize::from(row.label)] += 1.0;
        }
    }
    let odds = test.iter().map(|row| {
        let known = features(row.reply).into_iter().filter_map(|feature| counts.get(&feature));
        known.map(|count| log_odds(*count, rows)).sum()
    });
    odds.collect()
}

/// Returns the log-odds of a feature from its numbers of wrong and right rows, and those of all rows.
fn log_odds(count: [f64; 2], rows: [f64; 2]) -> f64 {
    let [wrong, right] = [0, 1].map(|label| (count[label] + 1.0) / (rows[label] + 2.0));
    libm::log(right / wrong)
}

/// Returns the words of a reply, and its pairs of words. Signs are words.
fn features(reply: &str) -> BTreeSet<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for c in reply.chars() {
        match (c.is_alphanumeric(), words.last_mut()) {
            (true, Some(word)) if open => word.extend(c.to_lowercase()),
            (true, _) => words.push(c.to_lowercase().collect()),
            (false, _) if c.is_whitespace() => {}
            (false, _) => words.push(c.to_string()),
        }
        open = c.is_alphanumeric();
    }
    let pairs = words.windows(2).map(|pair| pair.join(" "));
    pairs.collect::<Vec<_>>().into_iter().chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply, its policy and its label.
    type Row = (String, &'static str, bool);

    fn rows(n: usize, row: impl Fn(usize, bool) -> (String, &'static str)) -> Vec<Row> {
        let one = |i: usize| {
            let (reply, policy) = row(i, i.is_multiple_of(2));
            (reply, policy, i.is_multiple_of(2))
        };
        (0..n).map(one).collect()
    }

    fn probed(rows: &[Row]) -> Vec<Probed<'_>> {
        rows.iter()
            .map(|(reply, policy, label)| Probed { reply, policy, place: "s 0", label: *label })
            .collect()
    }

    fn found(row: impl Fn(usize, bool) -> (String, &'static str)) -> BTreeMap<&'static str, f64> {
        let (train, test) = (rows(400, &row), rows(200, |i, right| row(i + 1000, right)));
        probes(&probed(&train), &probed(&test)).into_iter().collect()
    }

    #[test]
    fn each_shortcut_is_found_by_its_probe_and_none_where_there_is_none() {
        let none = found(|i, _| (format!("the answer is {}", i % 7), "p"));
        assert!(none.values().all(|auc| (auc - 0.5).abs() < 0.1), "{none:?}");
        let length = found(|i, right| ("x ".repeat(if right { 3 } else { 9 } + i % 3), "p"));
        assert!(length["length"] > 0.99, "{length:?}");
        let policy = found(|_, right| ("same".to_owned(), if right { "good" } else { "bad" }));
        assert!(policy["policy"] > 0.99 && policy["completion"] == 0.5, "{policy:?}");
        let format = found(|i, right| (format!("{i}{}", if right { "." } else { "!" }), "p"));
        assert!(format["format"] > 0.99 && format["completion"] > 0.99, "{format:?}");
        let words = found(|i, right| (format!("{} {i}", if right { "yes" } else { "not" }), "p"));
        assert!(words["completion"] > 0.99 && words["format"] == 0.5, "{words:?}");
    }

    #[test]
    fn rows_of_one_label_have_no_probes() {
        let rows = rows(10, |i, _| (i.to_string(), "p"));
        let all: Vec<Probed<'_>> = probed(&rows).into_iter().filter(|row| row.label).collect();
        assert!(probes(&all, &probed(&rows)).is_empty() && probes(&probed(&rows), &all).is_empty());
        assert_eq!(shape("Is 12 + 7 = 19?"), "a 9 + 9 = 9?");
    }
}
