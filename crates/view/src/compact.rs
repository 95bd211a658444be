//! Sorts and collections with little code: the sorts of the standard library are compiled for each type anew, to 6 kB, and
//! `collect` into a map has one. Sorts of many elements use them nevertheless.

use std::cmp::Ordering;

/// Sorts a list stably.
pub(crate) fn sort_by<T>(list: &mut [T], by: impl Fn(&T, &T) -> Ordering) {
    let mut ranks = sorted_ranks(list.len(), &|a, b| by(&list[a], &list[b]));
    for i in 0..list.len() {
        // Each swap brings one element to its rank.
        while ranks[i] != i {
            let rank = ranks[i];
            list.swap(i, rank);
            ranks.swap(i, rank);
        }
    }
}

/// Returns the map or set of all items.
pub(crate) fn collect_into<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut found = C::default();
    found.extend(items);
    found
}

/// Returns the rank of each of `n` elements after sorting.
fn sorted_ranks(n: usize, by: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| by(*a, *b));
    let mut ranks = vec![0; n];
    for (rank, element) in order.into_iter().enumerate() {
        ranks[element] = rank;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_as_by_the_standard_library() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for n in 0..60 {
            // Pairs of equal first numbers keep their order.
            let list: Vec<(u64, usize)> = (0..n).map(|i| (draw() % 7, i)).collect();
            let (mut ours, mut other) = (list.clone(), list);
            sort_by(&mut ours, |a, b| b.0.cmp(&a.0));
            other.sort_by_key(|pair| std::cmp::Reverse(pair.0));
            assert_eq!(ours, other);
        }
    }
}
