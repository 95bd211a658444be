//! Shapes of targets and of the results of rows.

/// Asserts that targets are tokens of a vocabulary.
pub(super) fn check_targets(name: &str, targets: &[u32], vocab: usize) {
    let most = targets.iter().max().map_or(0, |&t| t as usize + 1);
    assert!(most <= vocab, "{name}: target {} of a vocabulary of {vocab}", most.max(1) - 1);
}

/// Asserts the lengths of the results of rows. Returns the number of targets of a row.
pub(super) fn check_rows(
    name: &str,
    inv_temperature: &[f32],
    targets: &[u32],
    logp: &[f32],
    entropy: &[f32],
) -> usize {
    let (n, m) = (inv_temperature.len(), targets.len());
    let lens = (logp.len(), entropy.len());
    assert_eq!(lens, (m, n), "{name}: log-probs of {m} targets and entropies of {n} rows");
    targets_of_a_row(name, targets, inv_temperature)
}

/// Returns the number of targets of a row; 1 without rows.
pub(super) fn targets_of_a_row(name: &str, targets: &[u32], inv_temperature: &[f32]) -> usize {
    let (n, m) = (inv_temperature.len(), targets.len());
    assert!(m.is_multiple_of(n.max(1)) && (m == 0) == (n == 0), "{name}: {m} targets of {n} rows");
    assert!(inv_temperature.iter().all(|&t| t > 0.0), "{name}: temperatures are positive");
    (m / n.max(1)).max(1)
}
