//! Estimators over a whole step: whitening, and averages that move from step to step.

use super::moments::weighted_moments;
use super::{Segments, assert_same_length};

/// Added to the variance when whitening, as in the reference implementations.
pub(crate) const WHITEN_EPS: f64 = 1e-8;

/// Mean 0 and deviation 1 in each group, over tokens, of which each row has so many `[N]`. One group is the batch; a
/// group for each seat is the per-agent form. A row of 0 tokens is in no statistic.
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
pub fn whiten_groups(values: &[f64], tokens: &[u32], by: &Segments) -> Vec<f64> {
    assert_same_length("whiten", values.len(), by.len());
    assert_same_length("whiten", tokens.len(), by.len());
    let groups = weighted_moments(by, |row| (values[row], f64::from(tokens[row])));
    let whitened = by.group_ids().iter().zip(values).map(|(&group, value)| {
        let own = &groups[group as usize];
        (value - own.mean) / (own.variance() + WHITEN_EPS).sqrt()
    });
    whitened.collect()
}

/// Rewards `[N]` less the moving average of each seat, which moves after they are taken.
///
/// ```text
/// A = r − b
/// b ← m · b + (1 − m) · mean r of the seat         if it has a row
/// ```
///
/// # Panics
///
/// If the lengths differ, or a seat has no average.
pub fn subtract_average(
    rewards: &[f64],
    seats: &Segments,
    momentum: f64,
    averages: &mut [f64],
) -> Vec<f64> {
    assert_same_length("ema", rewards.len(), seats.len());
    assert!(seats.group_count() <= averages.len(), "ema: one average per seat");
    let rows = seats.group_ids().iter().zip(rewards);
    let advantages = rows.map(|(&seat, reward)| reward - averages[seat as usize]).collect();
    for (seat, average) in averages.iter_mut().enumerate().take(seats.group_count()) {
        let places = seats.range_of_group(seat);
        let rows = places.len();
        if rows > 0 {
            let sum = places.fold(0.0, |sum, place| sum + rewards[seats.row_at(place)]);
            *average = momentum * *average + (1.0 - momentum) * sum / rows as f64;
        }
    }
    advantages
}
