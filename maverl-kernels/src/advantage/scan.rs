//! Sums from the end of a text, or of a chain of agents, to its start.

use rayon::prelude::*;

use super::assert_same_length;
use super::segments::MOST;
use crate::par;

/// Discount and lambda from one place to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaeParams {
    /// Discount of what comes later.
    pub gamma: f64,
    /// GAE lambda: 0 is one place, 1 is to the end.
    pub lambda: f64,
}

/// Discount and lambda inside a reply, and from a reply to the next in a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaeSteps {
    /// From a place to the next one of the same reply, and to the end of a row that is no chain.
    pub within: GaeParams,
    /// From the last place of a reply of a chain to the first of the next.
    pub between: GaeParams,
}

impl GaeSteps {
    /// The same everywhere.
    pub const fn all(hop: GaeParams) -> Self {
        Self { within: hop, between: hop }
    }
}

/// Ragged rows, one after the other in one array of `[N]` places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaggedRows {
    offsets: Vec<u32>,
    /// 1 at the last place of each reply, for chains. `[N]`
    last: Option<Vec<u8>>,
}

impl RaggedRows {
    /// Rows of so many places.
    ///
    /// # Panics
    ///
    /// If there are 2³¹ rows or places, or more.
    pub fn from_lengths(lengths: &[usize]) -> Self {
        let (rows, places) = (lengths.len(), lengths.iter().sum::<usize>());
        assert!(rows.max(places) <= MOST, "RaggedRows: {rows} rows, {places} places: not 31 bits");
        let mut end = 0;
        let ends = lengths.iter().map(|&length| {
            end += length as u32;
            end
        });
        Self { offsets: std::iter::once(0).chain(ends).collect(), last: None }
    }

    /// Chains of replies of so many places each, `[chains][replies]`, in the order in which they were given.
    ///
    /// # Panics
    ///
    /// If there are 2³¹ rows or places, or more.
    pub fn from_chains<R: AsRef<[usize]>>(replies: &[R]) -> Self {
        let lengths: Vec<usize> = replies.iter().map(|chain| chain.as_ref().iter().sum()).collect();
        let all = replies.iter().flat_map(|chain| chain.as_ref());
        let last = all.flat_map(|&n| (1..=n).map(move |place| u8::from(place == n))).collect();
        Self { last: Some(last), ..Self::from_lengths(&lengths) }
    }

    /// Values of all rows.
    pub fn len(&self) -> usize {
        self.offsets[self.row_count()] as usize
    }

    /// True if there are no places.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows.
    pub fn row_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where each row begins, and where the last one ends.
    #[cfg(feature = "cuda")]
    pub(crate) fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// 1 at the last place of each reply, for chains.
    #[cfg(feature = "cuda")]
    pub(crate) fn reply_ends(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Calls `f(row, first place, part of out)` for each row, in parallel where that is faster.
    fn for_each_row(&self, out: &mut [[f64; 2]], f: impl Fn(usize, usize, &mut [[f64; 2]]) + Sync) {
        let (mut rest, mut parts) = (out, Vec::with_capacity(self.row_count()));
        for (row, pair) in self.offsets.windows(2).enumerate() {
            let (part, more) = rest.split_at_mut((pair[1] - pair[0]) as usize);
            parts.push((row, pair[0] as usize, part));
            rest = more;
        }
        if par::worth_it(self.len()) {
            parts.into_par_iter().for_each(|(row, first, part)| f(row, first, part))
        } else {
            parts.into_iter().for_each(|(row, first, part)| f(row, first, part))
        }
    }
}

/// Advantages and returns of every place, both `[N]`; the value after the end of a row is `after`, `[rows]`.
///
/// ```text
/// δₜ = rₜ + γ · Vₜ₊₁ − Vₜ
/// Aₜ = δₜ + γ · λ · Aₜ₊₁
/// Gₜ = Aₜ + Vₜ
/// ```
///
/// GAE, [1506.02438](https://arxiv.org/abs/1506.02438) eq. 16. Over chains of replies, where the last place of a reply is
/// followed by the first of the next, it is MARFT's, [2504.16129](https://arxiv.org/abs/2504.16129), with places of
/// actions or of tokens. The reference implementation of MARFT has one discount for both kinds of step; `within` of
/// `γ = λ = 1` leaves the length of replies out of it.
///
/// # Panics
///
/// If the lengths differ.
pub fn gae_advantages(
    rewards: &[f64],
    values: &[f64],
    after: &[f64],
    places: &RaggedRows,
    steps: GaeSteps,
) -> (Vec<f64>, Vec<f64>) {
    assert_same_length("gae", rewards.len(), places.len());
    assert_same_length("gae", values.len(), places.len());
    assert_same_length("gae", after.len(), places.row_count());
    let mut out = vec![[0.0; 2]; places.len()];
    places.for_each_row(&mut out, |row, first, part| {
        let (mut next, mut running) = (after[row], 0.0);
        for (t, out) in part.iter_mut().enumerate().rev() {
            let (reward, value) = (rewards[first + t], values[first + t]);
            let chained = places.last.as_ref().is_some_and(|last| last[first + t] != 0);
            let GaeParams { gamma, lambda } = if chained { steps.between } else { steps.within };
            running = reward + gamma * next - value + gamma * lambda * running;
            next = value;
            *out = [running, running + value];
        }
    });
    out.into_iter().map(|[advantage, gain]| (advantage, gain)).unzip()
}

/// The discounted sum of rewards from each place of a row on, `[N]`.
///
/// ```text
/// Rₜ = rₜ + γ · Rₜ₊₁
/// ```
///
/// GiGPO, [2505.10978](https://arxiv.org/abs/2505.10978) §4.2.
///
/// # Panics
///
/// If the lengths differ.
pub fn discounted_returns(rewards: &[f64], places: &RaggedRows, gamma: f64) -> Vec<f64> {
    let (values, after) = (vec![0.0; rewards.len()], vec![0.0; places.row_count()]);
    gae_advantages(
        rewards,
        &values,
        &after,
        places,
        GaeSteps::all(GaeParams { gamma, lambda: 1.0 }),
    )
    .0
}
