//! Turns of waiting choices: in rotation among keys, and among the requests of a key.

use std::collections::{BTreeMap, VecDeque};

use crate::guard::ClientNumber;

/// Waiting choices of every request of every key.
pub(super) struct Turns<T> {
    keys: Rotation<ClientNumber, Rotation<u64, VecDeque<T>>>,
}

/// Lines that are served one after the other, each one element at a time.
struct Rotation<K, L> {
    lines: BTreeMap<K, L>,
    /// Keys of the lines, the next one first.
    order: VecDeque<K>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { keys: Rotation::default() }
    }
}

impl<K, L> Default for Rotation<K, L> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Copy, L: Default> Rotation<K, L> {
    /// Returns the line of a key; a new one is the last in turn.
    fn line(&mut self, key: K) -> &mut L {
        let order = &mut self.order;
        self.lines.entry(key).or_insert_with(|| {
            order.push_back(key);
            L::default()
        })
    }

    /// Takes an element of the next line, which becomes the last one, or is removed if it is empty.
    fn take<T>(
        &mut self,
        take: impl FnOnce(&mut L) -> Option<T>,
        is_empty: impl FnOnce(&L) -> bool,
    ) -> Option<T> {
        let key = self.order.pop_front()?;
        let line = self.lines.get_mut(&key)?;
        let taken = take(line);
        if is_empty(line) {
            self.lines.remove(&key);
        } else {
            self.order.push_back(key);
        }
        taken
    }

    fn remove(&mut self, key: K) {
        if self.lines.remove(&key).is_some() {
            self.order.retain(|other| *other != key);
        }
    }
}

impl<T> Turns<T> {
    /// Adds a choice of a request.
    pub(super) fn add(&mut self, client: ClientNumber, request: u64, choice: T) {
        self.keys.line(client).line(request).push_back(choice);
    }

    /// Takes the choice whose turn it is.
    pub(super) fn next(&mut self) -> Option<T> {
        self.keys.take(
            |requests| requests.take(VecDeque::pop_front, VecDeque::is_empty),
            |requests| requests.lines.is_empty(),
        )
    }

    /// Removes all choices of a request.
    pub(super) fn forget(&mut self, client: ClientNumber, request: u64) {
        let Some(requests) = self.keys.lines.get_mut(&client) else { return };
        requests.remove(request);
        if requests.lines.is_empty() {
            self.keys.remove(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the choices in the order of their turns.
    fn order(choices: &[(usize, u64, &'static str)]) -> Vec<&'static str> {
        let mut turns = Turns::default();
        for &(client, request, choice) in choices {
            turns.add(ClientNumber(client), request, choice);
        }
        std::iter::from_fn(|| turns.next()).collect()
    }

    #[test]
    fn requests_of_a_key_take_turns_and_choices_of_a_request_keep_their_order() {
        let many = [
            (0, 1, "a1"),
            (0, 1, "a2"),
            (0, 1, "a3"),
            (0, 1, "a4"),
            (0, 2, "b1"),
            (0, 3, "c1"),
            (0, 2, "b2"),
        ];
        assert_eq!(order(&many), ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]);
    }

    #[test]
    fn a_key_with_many_requests_gets_no_more_turns_than_one_with_a_single_request() {
        let keys = [
            (0, 1, "a1"),
            (0, 2, "b1"),
            (0, 3, "c1"),
            (0, 4, "d1"),
            (1, 5, "x1"),
            (1, 5, "x2"),
            (2, 6, "y1"),
        ];
        assert_eq!(order(&keys), ["a1", "x1", "y1", "b1", "x2", "c1", "d1"]);
    }

    #[test]
    fn a_request_that_is_forgotten_leaves_no_turn_behind() {
        let mut turns = Turns::default();
        turns.add(ClientNumber(0), 1, "a1");
        turns.add(ClientNumber(0), 2, "b1");
        turns.add(ClientNumber(1), 3, "c1");
        turns.forget(ClientNumber(0), 1);
        turns.forget(ClientNumber(1), 3);
        turns.forget(ClientNumber(7), 3);
        assert_eq!((turns.next(), turns.next()), (Some("b1"), None));
        assert!(turns.keys.lines.is_empty() && turns.keys.order.is_empty());
    }

    proptest! {
        #[test]
        fn a_request_waits_for_at_most_one_turn_of_each_other_line(
            requests in prop::collection::vec((0_usize..4, 1_usize..30), 1..9),
        ) {
            let mut turns = Turns::default();
            for (request, &(key, choices)) in requests.iter().enumerate() {
                (0..choices).for_each(|_| turns.add(ClientNumber(key), request as u64, request));
            }
            let order: Vec<usize> = std::iter::from_fn(|| turns.next()).collect();
            prop_assert_eq!(order.len(), requests.iter().map(|(_, choices)| choices).sum::<usize>());
            for (request, &(key, _)) in requests.iter().enumerate() {
                let before: Vec<usize> = order.iter().copied().take_while(|turn| *turn != request).collect();
                let of_request = |other: usize| before.iter().filter(|turn| **turn == other).count();
                let of_key = |other: usize| before.iter().filter(|turn| requests[**turn].0 == other).count();
                // One turn of each other request of the key, and one of each other key for each turn of this one.
                let same = requests.iter().filter(|(other, _)| *other == key).count();
                for (other, &(owner, _)) in requests.iter().enumerate() {
                    prop_assert!(owner != key || of_request(other) <= 1, "{order:?}");
                }
                prop_assert!((0..4).all(|other| of_key(other) <= same), "{order:?}");
            }
        }
    }
}
