//! Rows sorted into groups, once, so that every sum over a group has one order.

use std::ops::Range;

/// Rows that are added up in one go. A longer group is added up in pieces of so many, which may meet on any thread.
pub(crate) const PIECE: usize = 512;

/// Rows, groups or places that there may be: kernels count them in 32 bits, and go past the end by less than a tile.
pub(crate) const MOST: usize = i32::MAX as usize;

/// Rows in groups: dense ids `[N]`, and the rows of each group in ascending order.
///
/// Made once for a batch by counting, on the host; any number of groups, of any sizes, empty ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    group: Vec<u32>,
    offsets: Vec<u32>,
    /// None where the rows of a group lie together, group after group.
    rows: Option<Vec<u32>>,
    /// Groups cut into pieces, for kernels; none where every group is one piece.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pieces: Option<Pieces>,
}

/// Groups cut into pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pieces {
    /// Where each piece begins among the sorted rows, and where the last one ends. `[pieces + 1]`
    starts: Vec<u32>,
    /// The pieces of each group. `[groups + 1]`
    offsets: Vec<u32>,
}

impl Segments {
    /// Sorts rows by the group of each, `[N]`. There are `max id + 1` groups.
    ///
    /// # Panics
    ///
    /// If there are 2³¹ rows or groups, or more.
    pub fn from_groups(group: &[usize]) -> Self {
        let (n, highest) = (group.len(), group.iter().max().copied().unwrap_or(0));
        assert!(
            n.max(highest + 1) <= MOST,
            "Segments: {n} rows, highest id {highest}: not 31 bits"
        );
        let group: Vec<u32> = group.iter().map(|&id| id as u32).collect();
        let groups = group.iter().max().map_or(0, |&id| id as usize + 1);
        let mut offsets = vec![0; groups + 1];
        for &id in &group {
            offsets[id as usize + 1] += 1;
        }
        for g in 0..groups {
            offsets[g + 1] += offsets[g];
        }
        let rows = (!group.is_sorted()).then(|| sort_rows(&group, &offsets));
        let pieces = cut_pieces(&offsets);
        Self { group, offsets, rows, pieces }
    }

    /// One group of `n` rows.
    pub fn single_group(n: usize) -> Self {
        Self::from_groups(&vec![0; n])
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.group.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty()
    }

    /// Groups, empty ones included.
    pub fn group_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The group of each row, `[N]`.
    pub(crate) fn group_ids(&self) -> &[u32] {
        &self.group
    }

    /// The row at each place of the order; none if that is the place itself.
    #[cfg(feature = "cuda")]
    pub(crate) fn row_order(&self) -> Option<&[u32]> {
        self.rows.as_deref()
    }

    /// Where each piece begins in the order.
    #[cfg(feature = "cuda")]
    pub(crate) fn piece_starts(&self) -> &[u32] {
        self.pieces.as_ref().map_or(&self.offsets, |pieces| &pieces.starts)
    }

    /// The pieces of each group; none if each is one piece.
    #[cfg(feature = "cuda")]
    pub(crate) fn group_pieces(&self) -> Option<&[u32]> {
        self.pieces.as_ref().map(|pieces| pieces.offsets.as_slice())
    }

    /// The row at a place of the order.
    pub(crate) fn row_at(&self, place: usize) -> usize {
        self.rows.as_ref().map_or(place, |rows| rows[place] as usize)
    }

    /// The places of a group in the order.
    pub(crate) fn range_of_group(&self, group: usize) -> Range<usize> {
        self.offsets[group] as usize..self.offsets[group + 1] as usize
    }
}

fn sort_rows(group: &[u32], offsets: &[u32]) -> Vec<u32> {
    let mut next = offsets.to_vec();
    let mut rows = vec![0; group.len()];
    for (row, &id) in (0..).zip(group) {
        let place = &mut next[id as usize];
        rows[*place as usize] = row;
        *place += 1;
    }
    rows
}

fn cut_pieces(offsets: &[u32]) -> Option<Pieces> {
    if offsets.windows(2).all(|pair| (pair[1] - pair[0]) as usize <= PIECE) {
        return None;
    }
    let mut pieces = Pieces { starts: vec![], offsets: vec![0] };
    for pair in offsets.windows(2) {
        pieces.starts.extend((pair[0]..pair[1]).step_by(PIECE));
        pieces.offsets.push(pieces.starts.len() as u32);
    }
    pieces.starts.extend(offsets.last());
    Some(pieces)
}

/// Grouping of rows: rows in units, of which each counts once with its mean, and units in groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// None where a unit is a row.
    pub(crate) units: Option<Segments>,
    /// Units in groups.
    pub(crate) groups: Segments,
    /// The group of each row, where a unit is more than a row. `[N]`
    group: Vec<u32>,
}

impl From<Segments> for Grouping {
    /// Every row is a unit.
    fn from(groups: Segments) -> Self {
        Self { units: None, groups, group: vec![] }
    }
}

impl Grouping {
    /// Every row is a unit; `group` is `[N]`.
    pub fn from_row_groups(group: &[usize]) -> Self {
        Segments::from_groups(group).into()
    }

    /// Rows of units `unit` in groups `group`, both `[N]`. Ids of units may have gaps.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or a unit lies in two groups.
    pub fn from_units(unit: &[usize], group: &[usize]) -> Self {
        let n = group.len();
        assert_eq!(unit.len(), n, "Grouping: {} units of {n} rows", unit.len());
        let mut of: Vec<Option<usize>> = vec![None; unit.iter().max().map_or(0, |u| u + 1)];
        for (&u, &g) in unit.iter().zip(group) {
            let first = *of[u].get_or_insert(g);
            assert_eq!(first, g, "Grouping: unit {u} lies in groups {first} and {g}");
        }
        let mut present = 0;
        let dense: Vec<usize> = of
            .iter()
            .map(|group| {
                present += usize::from(group.is_some());
                present.saturating_sub(1)
            })
            .collect();
        let units: Vec<usize> = unit.iter().map(|&u| dense[u]).collect();
        let groups: Vec<usize> = of.into_iter().flatten().collect();
        let group = group.iter().map(|&g| g as u32).collect();
        Self {
            units: Some(Segments::from_groups(&units)),
            groups: Segments::from_groups(&groups),
            group,
        }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.units.as_ref().unwrap_or(&self.groups).len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The unit of a row.
    pub(crate) fn unit_of_row(&self, row: usize) -> usize {
        self.units.as_ref().map_or(row, |units| units.group_ids()[row] as usize)
    }

    /// The group of each row, `[N]`.
    pub(crate) fn group_ids(&self) -> &[u32] {
        if self.units.is_some() { &self.group } else { self.groups.group_ids() }
    }
}
