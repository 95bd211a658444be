//! Mean 0, deviation 1.

/// Added to the variance, as in the reference implementations.
const EPS: f64 = 1e-8;

/// Gives the values of rows `[N]` mean 0 and deviation 1 over tokens, of which each row has so many `[N]`.
///
/// ```text
/// x = (x − mean) / sqrt(var + 1e-8)          var over n − 1 tokens
/// ```
///
/// REINFORCE++, [2501.03262](https://arxiv.org/abs/2501.03262) §3.
///
/// # Panics
///
/// If the lengths differ.
pub fn whiten(values: &mut [f64], tokens: &[usize]) {
    assert_eq!(values.len(), tokens.len(), "whiten: one number of tokens per value");
    let n = tokens.iter().sum::<usize>();
    let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
        values.iter().zip(tokens).map(|(&value, &tokens)| tokens as f64 * of(value)).sum()
    };
    let mean = sum(&|value| value) / n.max(1) as f64;
    let variance = sum(&|value| (value - mean).powi(2)) / n.saturating_sub(1).max(1) as f64;
    for value in values {
        *value = (*value - mean) / (variance + EPS).sqrt();
    }
}

/// Gives the values of all tokens `[N][T]` mean 0 and deviation 1; see [`whiten`].
pub fn whiten_tokens(values: &mut [Vec<f64>]) {
    let mut flat = values.concat();
    let tokens = vec![1; flat.len()];
    whiten(&mut flat, &tokens);
    let mut flat = flat.into_iter();
    for value in values.iter_mut().flatten() {
        *value = flat.next().unwrap_or_default();
    }
}
