//! Maps and sets that are made of the items of an iterator.
//!
//! [`collect`](Iterator::collect) sorts the items first, with a sort that is compiled for each iterator. These functions insert
//! one item after the other, as other code does with maps of the same type.

use std::collections::BTreeMap;

/// Functions of iterators over keys and values. Of values with the same key, the last stays.
pub(crate) trait IntoMap<K: Ord, V>: Iterator<Item = (K, V)> + Sized {
    /// Returns the map of all items.
    fn into_map(self) -> BTreeMap<K, V> {
        let mut map = BTreeMap::new();
        for (key, value) in self {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Ord, V, I: Iterator<Item = (K, V)>> IntoMap<K, V> for I {}

/// Functions of iterators over keys and values that may fail.
pub(crate) trait TryIntoMap<K: Ord, V, E>:
    Iterator<Item = Result<(K, V), E>> + Sized
{
    /// Returns the map of all items.
    ///
    /// # Errors
    ///
    /// The first error of an item.
    fn try_into_map(self) -> Result<BTreeMap<K, V>, E> {
        let mut map = BTreeMap::new();
        for item in self {
            let (key, value) = item?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<K: Ord, V, E, I: Iterator<Item = Result<(K, V), E>>> TryIntoMap<K, V, E> for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_keys_the_last_value_stays_as_with_collect() {
        let items = [("b", 1), ("a", 2), ("b", 3)];
        assert_eq!(items.into_iter().into_map(), items.into_iter().collect());
    }

    #[test]
    fn the_first_error_of_an_item_is_returned() {
        let items = [Ok(("a", 1)), Err("no b"), Err("no c")];
        assert_eq!(items.into_iter().try_into_map(), Err("no b"));
        assert_eq!(items[..1].iter().copied().try_into_map(), Ok(BTreeMap::from([("a", 1)])));
    }
}
