//! Ranges of arrays of parameters that ranks own.

use std::ops::Range;

/// Elements of a block. Every tensor begins at a block, and a range ends within one only where its array ends.
const BLOCK: usize = 64;

/// Ranks on their machines, numbered machine by machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machines {
    ranks: usize,
    local: usize,
}

impl Machines {
    /// Creates ranks of which each machine has `local`; the last one may have fewer.
    pub fn new(ranks: usize, local: usize) -> Self {
        let ranks = ranks.max(1);
        Self { ranks, local: local.clamp(1, ranks) }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the number of ranks of a machine.
    pub fn local(&self) -> usize {
        self.local
    }

    /// Returns the number of machines.
    pub fn count(&self) -> usize {
        self.ranks.div_ceil(self.local)
    }

    /// Returns the machine of a rank, and its number among the ranks of the machine.
    pub fn place(&self, rank: usize) -> (usize, usize) {
        (rank / self.local, rank % self.local)
    }

    /// Returns true if exchanges have two stages: between ranks of equal local number, and within a machine. One machine,
    /// machines of one rank, and machines of unequal numbers of ranks have one.
    pub fn has_stages(&self) -> bool {
        self.local > 1 && self.local < self.ranks && self.ranks.is_multiple_of(self.local)
    }

    /// Returns the range that a rank owns of an array. With two stages, the ranks of equal local number own neighboring ranges.
    pub fn range(&self, elements: usize, rank: usize) -> Range<usize> {
        let blocks = 0..elements.div_ceil(BLOCK);
        let (machine, local) = self.place(rank);
        let own = if self.has_stages() {
            part(&part(&blocks, local, self.local), machine, self.count())
        } else {
            part(&blocks, rank, self.ranks)
        };
        in_elements(&own, elements)
    }

    /// Returns the range that the ranks of a local number own together, if exchanges have two stages or there is one machine.
    pub fn local_range(&self, elements: usize, local: usize) -> Range<usize> {
        let blocks = 0..elements.div_ceil(BLOCK);
        in_elements(&part(&blocks, local, self.local), elements)
    }
}

/// Returns one of several parts of a range, of equal lengths up to one.
fn part(range: &Range<usize>, index: usize, count: usize) -> Range<usize> {
    let length = range.len();
    range.start + length * index / count..range.start + length * (index + 1) / count
}

/// Converts a range of blocks to one of elements.
fn in_elements(blocks: &Range<usize>, elements: usize) -> Range<usize> {
    (blocks.start * BLOCK).min(elements)..(blocks.end * BLOCK).min(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_all_ranks_are_whole_blocks_and_cover_an_array_once() {
        let layouts = [(1, 1), (4, 4), (4, 1), (4, 2), (6, 3), (7, 4), (64, 8), (1024, 8)];
        for (ranks, local) in layouts {
            let machines = Machines::new(ranks, local);
            for elements in [0, 1, 63, 64, 65, 640, 4099, 100_000] {
                let mut all: Vec<Range<usize>> =
                    (0..ranks).map(|rank| machines.range(elements, rank)).collect();
                let longest = all.iter().map(Range::len).max().unwrap_or(0);
                let share = elements.div_ceil(BLOCK).div_ceil(ranks) * BLOCK;
                assert!(longest <= share + BLOCK, "{longest} of {elements} on {ranks}");
                all.sort_by_key(|range| (range.start, range.end));
                assert_eq!(all[0].start, 0);
                assert_eq!(all[ranks - 1].end, elements);
                assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
                assert!(all.iter().all(|range| range.end % BLOCK == 0 || range.end == elements));
            }
        }
    }

    #[test]
    fn ranks_of_equal_local_number_own_neighboring_ranges_on_several_machines() {
        let machines = Machines::new(6, 3);
        let elements = 64 * 12;
        assert_eq!(machines.local_range(elements, 1), 256..512);
        assert_eq!([1, 4].map(|rank| machines.range(elements, rank)), [256..384, 384..512]);
        assert!(machines.has_stages());
        assert!(!Machines::new(7, 3).has_stages() && !Machines::new(6, 1).has_stages());
        assert_eq!((Machines::new(7, 3).count(), Machines::new(7, 3).place(5)), (3, (1, 2)));
    }
}
