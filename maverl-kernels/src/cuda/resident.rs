//! Groupings and rows in a machine's memory, for batches that several estimators read.

use super::Machine;
use crate::advantage::{Grouping, RaggedRows, Segments};

/// [`Segments`] on a machine.
pub struct SegmentsOn<M: Machine> {
    pub(super) len: usize,
    pub(super) groups: usize,
    pub(super) group: M::Array<u32>,
    pub(super) rows: Option<M::Array<u32>>,
    pub(super) starts: M::Array<u32>,
    /// Number of pieces of all groups.
    pub(super) pieces: usize,
    /// Offsets of the pieces of each group; `None` if each group is one piece.
    pub(super) offsets: Option<M::Array<u32>>,
}

impl<M: Machine> SegmentsOn<M> {
    pub(super) fn new(machine: &M, segments: &Segments) -> Result<Self, M::Error> {
        Ok(Self {
            len: segments.len(),
            groups: segments.group_count(),
            group: machine.upload_array(segments.group_ids())?,
            rows: segments.row_order().map(|ids| machine.upload_array(ids)).transpose()?,
            starts: machine.upload_array(segments.piece_starts())?,
            pieces: segments.piece_starts().len() - 1,
            offsets: segments.group_pieces().map(|ids| machine.upload_array(ids)).transpose()?,
        })
    }
}

/// A [`Grouping`] on a machine.
pub struct GroupingOn<M: Machine> {
    pub(super) units: Option<SegmentsOn<M>>,
    pub(super) groups: SegmentsOn<M>,
    /// Group of each row, where a unit is more than a row.
    pub(super) group: Option<M::Array<u32>>,
}

impl<M: Machine> GroupingOn<M> {
    pub(super) fn new(machine: &M, grouping: &Grouping) -> Result<Self, M::Error> {
        let units =
            grouping.units.as_ref().map(|units| SegmentsOn::new(machine, units)).transpose()?;
        let group =
            units.is_some().then(|| machine.upload_array(grouping.group_ids())).transpose()?;
        Ok(Self { units, groups: SegmentsOn::new(machine, &grouping.groups)?, group })
    }

    /// Returns the group of each row.
    pub(super) fn group_ids(&self) -> &M::Array<u32> {
        self.group.as_ref().unwrap_or(&self.groups.group)
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.units.as_ref().unwrap_or(&self.groups).len
    }
}

/// [`RaggedRows`] on a machine.
pub struct PlacesOn<M: Machine> {
    pub(super) len: usize,
    pub(super) count: usize,
    pub(super) offsets: M::Array<u32>,
    pub(super) last: Option<M::Array<u8>>,
}

impl<M: Machine> PlacesOn<M> {
    pub(super) fn new(machine: &M, places: &RaggedRows) -> Result<Self, M::Error> {
        Ok(Self {
            len: places.len(),
            count: places.row_count(),
            offsets: machine.upload_array(places.offsets())?,
            last: places.reply_ends().map(|last| machine.upload_array(last)).transpose()?,
        })
    }
}
