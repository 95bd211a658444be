//! Rows that are scored, packed so that what several of them begin with is computed once: replies to one prompt.

use maverl_kernels::attention::Packing;

/// Packed rows. The common beginning of a group of rows is a row of its own before them.
#[derive(Debug, Default)]
pub(super) struct PackedReplies {
    pub(super) ids: Vec<u32>,
    pub(super) positions: Vec<u32>,
    offsets: Vec<usize>,
    prefixes: Vec<Option<usize>>,
    /// Place after the last token of each row, in the order in which the rows were given.
    pub(super) ends: Vec<usize>,
}

impl PackedReplies {
    /// Packs rows. Beside each is the number of its last tokens that it shares with no row, at least one and at most all.
    pub(super) fn of(rows: &[(&[u32], usize)]) -> Self {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&row| rows[row].0);
        let common: Vec<usize> =
            order.windows(2).map(|pair| common(rows[pair[0]], rows[pair[1]])).collect();
        let mut packed = Self { offsets: vec![0], ends: vec![0; rows.len()], ..Self::default() };
        let mut begin = 0;
        for end in groups(&common) {
            let group = &order[begin..end];
            let shared = common[begin..end - 1].iter().copied().min().unwrap_or(0);
            let prefix = (shared > 0).then(|| packed.push(&rows[group[0]].0[..shared], 0, None));
            for &row in group {
                packed.push(&rows[row].0[shared..], shared, prefix);
                packed.ends[row] = packed.ids.len();
            }
            begin = end;
        }
        packed
    }

    /// Adds a row that begins at a position. Returns its number.
    fn push(&mut self, ids: &[u32], position: usize, prefix: Option<usize>) -> usize {
        self.ids.extend_from_slice(ids);
        self.positions.extend((position as u32..).take(ids.len()));
        self.offsets.push(self.ids.len());
        self.prefixes.push(prefix);
        self.prefixes.len() - 1
    }

    pub(super) fn packing(&self) -> Packing<'_> {
        Packing { offsets: &self.offsets, prefixes: &self.prefixes }
    }
}

/// Returns the number of tokens that two rows begin with and may share.
fn common((a, own_of_a): (&[u32], usize), (b, own_of_b): (&[u32], usize)) -> usize {
    let (a, b) = (&a[..a.len() - own_of_a], &b[..b.len() - own_of_b]);
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Divides sorted rows into groups of neighbors, of which each computes its common beginning once, so that the fewest tokens are
/// computed. `common[i]` is what rows i and i + 1 share. Returns the ends of the groups.
fn groups(common: &[usize]) -> Vec<usize> {
    let n = common.len() + 1;
    // Tokens that are saved among the first rows, and the begin of their last group.
    let mut best = vec![(0, 0); n + 1];
    for end in 1..=n {
        let mut shared = usize::MAX;
        best[end] = (best[end - 1].0, end - 1);
        for begin in (0..end - 1).rev() {
            shared = shared.min(common[begin]);
            let saved = best[begin].0 + shared * (end - begin - 1);
            if saved > best[end].0 {
                best[end] = (saved, begin);
            }
        }
    }
    let mut ends = Vec::new();
    let mut end = n;
    while end > 0 {
        ends.push(end);
        end = best[end].1;
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_compute_the_fewest_tokens() {
        assert_eq!(groups(&[]), [1]);
        assert_eq!(groups(&[0, 0]), [1, 2, 3]);
        assert_eq!(groups(&[9, 9, 2, 9, 9]), [3, 6]);
        // Two tokens of all six are less than nine of each half, and more than two of each pair.
        assert_eq!(groups(&[2, 2, 2, 2, 2]), [6]);
        assert_eq!(groups(&[3, 2, 2, 2, 3]), [6]);
    }

    #[test]
    fn replies_to_a_prompt_share_it_and_keep_their_own_tokens() {
        let rows: [(&[u32], usize); 4] =
            [(&[7, 8, 9, 1], 1), (&[5, 5], 1), (&[7, 8, 9, 1], 2), (&[7, 8, 9, 2, 3], 1)];
        let packed = PackedReplies::of(&rows);
        assert_eq!(packed.ids, [5, 5, 7, 8, 9, 1, 9, 1, 9, 2, 3]);
        assert_eq!(packed.positions, [0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4]);
        assert_eq!(packed.offsets, [0, 2, 4, 6, 8, 11]);
        assert_eq!(packed.prefixes, [None, None, Some(1), Some(1), Some(1)]);
        assert_eq!(packed.ends, [6, 2, 8, 11]);
    }
}
