//! Statistics of logits against labels.

use super::calibration::{Calibration, class_sizes};
use crate::rng::SplitMix64;

/// Bins of the calibration error.
const BINS: usize = 15;
/// Bootstrap samples of an interval.
const SAMPLES: usize = 200;

/// Quality of logits that tell right replies from wrong ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Statistics {
    /// Share of rows on the right side of 1/2.
    pub(crate) accuracy: f64,
    /// Mean of the shares of the right and of the wrong rows.
    pub(crate) balanced_accuracy: f64,
    /// Area under the ROC curve; see [`auc`].
    pub(crate) auc: f64,
    /// Mean negative log-likelihood.
    pub(crate) nll: f64,
    /// Mean squared error of the probabilities.
    pub(crate) brier: f64,
    /// Expected calibration error: 15 bins of equal count, weighted by their rows.
    pub(crate) ece: f64,
    /// Share of right rows.
    pub(crate) base_rate: f64,
    /// Number of rows.
    pub(crate) n: usize,
}

impl Statistics {
    /// Returns the values with their names.
    pub(crate) fn named_values(&self) -> [(&'static str, f64); 8] {
        [
            ("accuracy", self.accuracy),
            ("balanced_accuracy", self.balanced_accuracy),
            ("auc", self.auc),
            ("nll", self.nll),
            ("brier", self.brier),
            ("ece", self.ece),
            ("base_rate", self.base_rate),
            ("n", self.n as f64),
        ]
    }
}

/// Computes the statistics of logits `[N]` with a calibration. `None` without a right and a wrong row.
pub(crate) fn statistics(
    logits: &[f64],
    labels: &[bool],
    calibration: Calibration,
) -> Option<Statistics> {
    let n = logits.len();
    let [right, wrong] = class_sizes(labels)?;
    // Of wrong rows, and of right ones.
    let mut hits = [0.0; 2];
    let (mut nll, mut brier) = (0.0, 0.0);
    for (&logit, &label) in logits.iter().zip(labels) {
        let odds = calibration.odds(logit);
        hits[usize::from(label)] += f64::from((odds > 0.0) == label);
        nll += softplus(if label { -odds } else { odds });
        brier += (calibration.probability(logit) - f64::from(label)).powi(2);
    }
    Some(Statistics {
        accuracy: (hits[1] + hits[0]) / n as f64,
        balanced_accuracy: (hits[1] / right as f64 + hits[0] / wrong as f64) / 2.0,
        auc: auc(logits, labels)?,
        nll: nll / n as f64,
        brier: brier / n as f64,
        ece: ece(logits, labels, calibration),
        base_rate: right as f64 / n as f64,
        n,
    })
}

/// Computes `log(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

/// Computes the area under the ROC curve: the probability that a right row has a higher score than a wrong one, where ties
/// count half. `None` without a right and a wrong row.
///
/// ```text
/// AUC = (Σ ranks of the right rows − P (P + 1) / 2) / (P N)          ranks from 1, ties have their mean
/// ```
pub(crate) fn auc(scores: &[f64], labels: &[bool]) -> Option<f64> {
    let [right, wrong] = class_sizes(labels)?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (mut ranks, mut start) = (0.0, 0);
    while start < order.len() {
        let score = scores[order[start]];
        let tied = order[start..].iter().take_while(|&&i| scores[i] == score).count();
        // Ranks start + 1 to start + tied have this mean.
        let rank = start as f64 + (tied as f64 + 1.0) / 2.0;
        let of_right = order[start..start + tied].iter().filter(|&&i| labels[i]).count();
        ranks += rank * of_right as f64;
        start += tied;
    }
    let (right, wrong) = (right as f64, wrong as f64);
    Some((ranks - right * (right + 1.0) / 2.0) / (right * wrong))
}

/// Computes the expected calibration error over bins of equal count, in the order of the probabilities.
fn ece(logits: &[f64], labels: &[bool], calibration: Calibration) -> f64 {
    let n = logits.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let errors = (0..BINS).map(|bin| {
        let rows = &order[bin * n / BINS..(bin + 1) * n / BINS];
        let said: f64 = rows.iter().map(|&i| calibration.probability(logits[i])).sum();
        let right = rows.iter().filter(|&&i| labels[i]).count() as f64;
        (said - right).abs()
    });
    errors.sum::<f64>() / n as f64
}

/// Computes the 95 % interval of the AUC by a bootstrap over tasks. `tasks` has the task of each row, from 0. `None` where
/// too few samples have right and wrong rows.
pub(crate) fn auc_interval(scores: &[f64], labels: &[bool], tasks: &[usize]) -> Option<[f64; 2]> {
    let n = tasks.iter().max()? + 1;
    let mut rows = vec![Vec::new(); n];
    tasks.iter().enumerate().for_each(|(row, &task)| rows[task].push(row));
    let mut rng = SplitMix64::new(0);
    let found = (0..SAMPLES).filter_map(|_| {
        let chosen: Vec<usize> = (0..n).flat_map(|_| rows[rng.index(n)].iter().copied()).collect();
        let scores: Vec<f64> = chosen.iter().map(|&row| scores[row]).collect();
        let labels: Vec<bool> = chosen.iter().map(|&row| labels[row]).collect();
        auc(&scores, &labels)
    });
    let mut found: Vec<f64> = found.collect();
    found.sort_by(f64::total_cmp);
    if found.len() * 2 <= SAMPLES {
        return None;
    }
    let last = (found.len() - 1) as f64;
    Some([0.025, 0.975].map(|share| found[(last * share).round() as usize]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Counts pairs, as the definition says.
    fn by_pairs(scores: &[f64], labels: &[bool]) -> f64 {
        let of = |label: bool| {
            let rows = scores.iter().zip(labels);
            rows.filter(move |(_, its)| **its == label).map(|(score, _)| *score)
        };
        let (mut won, mut pairs) = (0.0, 0.0);
        for right in of(true) {
            for wrong in of(false) {
                pairs += 1.0;
                won += if right > wrong {
                    1.0
                } else if right == wrong {
                    0.5
                } else {
                    0.0
                };
            }
        }
        won / pairs
    }

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order_and_ties_count_half() {
        let mut rng = SplitMix64::new(3);
        for n in [2, 3, 10, 57] {
            for levels in [2, 5, 1000] {
                let scores: Vec<f64> = (0..n).map(|_| rng.index(levels) as f64 / 7.0).collect();
                let labels: Vec<bool> =
                    (0..n).map(|i| i == 0 || (i > 1 && rng.index(2) == 0)).collect();
                let area = auc(&scores, &labels).unwrap();
                assert!((area - by_pairs(&scores, &labels)).abs() < 1e-12);
            }
        }
        assert_eq!(auc(&[1.0, 2.0], &[true, true]), None);
        assert_eq!(auc(&[], &[]), None);
    }

    #[test]
    fn statistics_of_four_rows_are_those_computed_by_hand() {
        let found =
            statistics(&[2.0, -1.0, 0.5, -3.0], &[true, true, false, false], Calibration::NONE)
                .unwrap();
        assert_eq!((found.accuracy, found.balanced_accuracy, found.n), (0.5, 0.5, 4));
        assert_eq!((found.auc, found.base_rate), (0.75, 0.5));
        // sklearn.metrics.log_loss and brier_score_loss.
        let p: [f64; 4] = [
            0.880_797_077_977_882,
            0.268_941_421_369_995,
            0.622_459_331_201_855,
            0.047_425_873_177_567,
        ];
        let nll = -(p[0].ln() + p[1].ln() + (1.0 - p[2]).ln() + (1.0 - p[3]).ln()) / 4.0;
        let brier = ((1.0 - p[0]).powi(2) + (1.0 - p[1]).powi(2) + p[2] * p[2] + p[3] * p[3]) / 4.0;
        assert!((found.nll - nll).abs() < 1e-12 && (found.brier - brier).abs() < 1e-12);
        // Four bins of one row each.
        let ece = ((1.0 - p[0]) + (1.0 - p[1]) + p[2] + p[3]) / 4.0;
        assert!((found.ece - ece).abs() < 1e-12);
    }

    /// `accuracy_score`, `balanced_accuracy_score`, `roc_auc_score`, `log_loss`, `brier_score_loss` of scikit-learn 1.9.1.
    #[test]
    fn statistics_of_two_hundred_rows_are_those_of_scikit_learn() {
        let logits: Vec<f64> = (0..200).map(|i| f64::from(i * 37 % 101) / 10.0 - 5.0).collect();
        let labels: Vec<bool> =
            logits.iter().zip(0..).map(|(z, i)| (*z > 0.0) != (i % 4 == 0)).collect();
        let calibration = Calibration { temperature: 1.7, offset: -0.3 };
        let found = statistics(&logits, &labels, calibration).unwrap();
        let pairs = [
            (found.accuracy, 0.72),
            (found.balanced_accuracy, 0.720_572_057_205_720_6),
            (found.auc, 0.747_924_792_479_248),
            (found.nll, 0.642_966_725_766_261_8),
            (found.brier, 0.210_224_840_393_706_48),
            (found.base_rate, 0.505),
        ];
        let worst = pairs.iter().map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
        println!("largest difference to scikit-learn: {worst:.1e}");
        assert!(worst < 1e-9, "{found:?}");
    }

    #[test]
    fn logits_of_the_true_probabilities_are_calibrated_and_others_are_not() {
        let mut rng = SplitMix64::new(7);
        let logits: Vec<f64> = (0..6000).map(|i| f64::from(i % 61) / 10.0 - 3.0).collect();
        let labels: Vec<bool> = logits
            .iter()
            .map(|logit| {
                (rng.index(1 << 20) as f64)
                    < Calibration::NONE.probability(*logit) * f64::from(1 << 20)
            })
            .collect();
        let ece = |temperature| {
            let calibration = Calibration { temperature, offset: 0.0 };
            statistics(&logits, &labels, calibration).unwrap().ece
        };
        assert!(ece(1.0) < 0.03 && ece(0.2) > 0.08, "{} {}", ece(1.0), ece(0.2));
        let tasks: Vec<usize> = (0..6000).map(|row| row / 4).collect();
        let [low, high] = auc_interval(&logits, &labels, &tasks).unwrap();
        let area = auc(&logits, &labels).unwrap();
        assert!(low < area && area < high && high - low < 0.05, "{low} {area} {high}");
    }
}
