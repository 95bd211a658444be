//! Kernels and arguments of each estimator.
#![allow(unsafe_code)] // for launches; callers assert the lengths, as the comment at each call says

use std::sync::Arc;

use super::recording::LaunchRecorder;
use super::{
    BLOCK, DeviceElement, GroupingOn, LaunchShape, Machine, MemoryUsage, PlacesOn, SegmentsOn,
};
use crate::advantage::{
    Baseline, GaeParams, GaeSteps, Grouping, RaggedRows, Relative, Segments, Singleton, WHITEN_EPS,
};

/// Threads that share a piece of a group.
const LANES: usize = 8;
/// Threads that share a row of a scan.
const WARP: usize = 32;
/// Null pointer: omits an argument.
pub(super) const NONE: u64 = 0;

/// The estimators of [`Arithmetic`](crate::advantage::Arithmetic), and the operations of a model, on a machine.
#[derive(Debug, Clone)]
pub struct Kernels<M> {
    pub(super) machine: M,
    pub(super) usage: Arc<MemoryUsage>,
    /// Where launches go in place of the machine.
    pub(super) recorder: Option<Arc<LaunchRecorder>>,
    /// True if the machine's library computes no products.
    pub(super) own_products: bool,
}

/// Base of a sum `add + weight · A`. An address of 0 omits `add`.
#[derive(Clone, Copy)]
pub(super) struct SumBase {
    pub(super) to: u64,
    pub(super) weight: f64,
}

impl SumBase {
    pub(super) const NOTHING: Self = Self { to: NONE, weight: 1.0 };
}

/// Arguments of a scan. An address of 0 omits an argument.
pub(super) struct ScanArguments {
    pub(super) rewards: u64,
    pub(super) values: u64,
    pub(super) after: u64,
    pub(super) hops: GaeSteps,
    pub(super) advantages: u64,
    pub(super) returns: u64,
}

/// Groups of a grouping with their moments.
pub(super) struct Measured<M: Machine> {
    pub(super) units: Option<M::Array<f64>>,
    pub(super) groups: M::Array<f64>,
}

// Every address belongs to an array of the length of the grouping or rows beside it.
impl<M: Machine> Kernels<M> {
    /// Creates the estimators on this machine.
    pub fn new(machine: M) -> Self {
        Self { machine, usage: Arc::default(), recorder: None, own_products: false }
    }

    /// Returns the same kernels, by which all products are computed, without the machine's library.
    #[must_use]
    pub fn with_own_products(&self) -> Self
    where
        M: Clone,
    {
        Self { own_products: true, ..self.clone() }
    }

    /// Returns the same kernels, whose arrays are counted apart.
    #[must_use]
    pub fn fork(&self) -> Self
    where
        M: Clone,
    {
        Self { own_products: self.own_products, ..Self::new(self.machine.clone()) }
    }

    /// Returns the count of the bytes of arrays. Temporary ones of estimators are not counted.
    pub const fn usage(&self) -> &Arc<MemoryUsage> {
        &self.usage
    }

    /// Returns the machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Uploads segments.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn upload_segments(&self, segments: &Segments) -> Result<SegmentsOn<M>, M::Error> {
        SegmentsOn::new(&self.machine, segments)
    }

    /// Uploads a grouping.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn upload_grouping(&self, grouping: &Grouping) -> Result<GroupingOn<M>, M::Error> {
        GroupingOn::new(&self.machine, grouping)
    }

    /// Uploads rows or chains.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn upload_rows(&self, places: &RaggedRows) -> Result<PlacesOn<M>, M::Error> {
        PlacesOn::new(&self.machine, places)
    }

    pub(super) fn address_of<T: DeviceElement>(&self, array: &M::Array<T>) -> u64 {
        self.machine.array_address(array)
    }

    fn address_or_null<T: DeviceElement>(&self, array: Option<&M::Array<T>>) -> u64 {
        array.map_or(NONE, |array| self.address_of(array))
    }

    /// Runs a kernel with at least `threads` threads. Zero threads launch nothing.
    fn launch_threads(
        &self,
        kernel: &'static str,
        threads: usize,
        args: &[u64],
    ) -> Result<(), M::Error> {
        assert!(self.recorder.is_none(), "the kernels of estimators are not recorded");
        // SAFETY: all callers are in this module. They pass the arguments that the kernel of that name declares, with
        // counts of the groupings; public functions assert that slices have these lengths.
        unsafe { self.machine.launch_kernel(kernel, LaunchShape::of_threads(threads), args) }
    }

    /// Computes the moments of each group, three numbers each.
    pub(super) fn measure_moments(
        &self,
        kernel: &'static str,
        values: u64,
        weights: u64,
        by: &SegmentsOn<M>,
    ) -> Result<M::Array<f64>, M::Error> {
        let rows = self.address_or_null(by.rows.as_ref());
        let pieces = self.machine.allocate_array(3 * by.pieces.max(1))?;
        let args = [
            values,
            weights,
            rows,
            self.address_of(&by.starts),
            by.pieces as u64,
            self.address_of(&pieces),
        ];
        self.launch_threads(kernel, by.pieces * LANES, &args)?;
        let Some(offsets) = &by.offsets else { return Ok(pieces) };
        let groups = self.machine.allocate_array(3 * by.groups)?;
        let args = [self.address_of(&pieces), self.address_of(offsets), self.address_of(&groups)];
        self.launch_threads("merge", by.groups * BLOCK as usize, &args)?;
        Ok(groups)
    }

    /// Computes the moments of units, where they are more than rows, and those of groups over units.
    pub(super) fn measure_units(
        &self,
        values: u64,
        by: &GroupingOn<M>,
    ) -> Result<Measured<M>, M::Error> {
        let Some(units) = &by.units else {
            let groups = self.measure_moments("moments_f32", values, NONE, &by.groups)?;
            return Ok(Measured { units: None, groups });
        };
        let measured = self.measure_moments("moments_f32", values, NONE, units)?;
        let means = self.machine.allocate_array::<f64>(units.groups.max(1))?;
        let args = [self.address_of(&measured), units.groups as u64, self.address_of(&means)];
        self.launch_threads("means", units.groups, &args)?;
        let groups =
            self.measure_moments("moments_f64", self.address_of(&means), NONE, &by.groups)?;
        Ok(Measured { units: Some(measured), groups })
    }

    /// Writes advantages to `out`. Uses one kernel if no other groups give the scale and every group is one piece of
    /// rows.
    pub(super) fn relative_at(
        &self,
        values: u64,
        by: &GroupingOn<M>,
        options: &Relative,
        add: SumBase,
        out: u64,
    ) -> Result<(), M::Error> {
        if by.units.is_some() {
            return self.relative_rows(values, by, None, options, add, out);
        }
        self.relative_segments(values, &by.groups, options, add, out)
    }

    /// Computes [`Self::relative_at`] where every row is a unit.
    pub(super) fn relative_segments(
        &self,
        values: u64,
        by: &SegmentsOn<M>,
        options: &Relative,
        add: SumBase,
        out: u64,
    ) -> Result<(), M::Error> {
        if by.offsets.is_some() {
            let groups = self.measure_moments("moments_f32", values, NONE, by)?;
            let group = [self.address_of(&by.group), self.address_of(&groups)];
            let ids = [[NONE; 2], group, [NONE; 2]];
            return self.write_advantages(values, ids, options, add, by.len, out);
        }
        let rows = self.address_or_null(by.rows.as_ref());
        let (starts, groups) = (self.address_of(&by.starts), by.groups as u64);
        let (add, weight) = (add.to, add.weight.to_bits());
        let eps = options.eps.to_bits();
        let args = [values, rows, starts, groups, add, weight, encode_options(options), eps, out];
        self.launch_threads("relative_groups", by.groups * LANES, &args)
    }

    /// Writes advantages to `out`, with the deviation of the groups of `scale`.
    pub(super) fn relative_rows(
        &self,
        values: u64,
        by: &GroupingOn<M>,
        scale: Option<&GroupingOn<M>>,
        options: &Relative,
        add: SumBase,
        out: u64,
    ) -> Result<(), M::Error> {
        let own = self.measure_units(values, by)?;
        let other = scale.map(|scale| self.measure_units(values, scale)).transpose()?;
        let unit = self.address_or_null(by.units.as_ref().map(|units| &units.group));
        let unit = [unit, self.address_or_null(own.units.as_ref())];
        let group = [self.address_of(by.group_ids()), self.address_of(&own.groups)];
        let scales = self.address_or_null(other.as_ref().map(|other| &other.groups));
        let scale = [self.address_or_null(scale.map(GroupingOn::group_ids)), scales];
        self.write_advantages(values, [unit, group, scale], options, add, by.len(), out)
    }

    /// Writes the advantages of rows. Units, groups and groups of the deviation are each ids by row, and moments by id.
    fn write_advantages(
        &self,
        values: u64,
        ids: [[u64; 2]; 3],
        options: &Relative,
        add: SumBase,
        n: usize,
        out: u64,
    ) -> Result<(), M::Error> {
        let numbers =
            [add.to, add.weight.to_bits(), encode_options(options), options.eps.to_bits()];
        let args = [&[values][..], ids.as_flattened(), &numbers, &[n as u64, out]].concat();
        self.launch_threads("relative_rows", n, &args)
    }

    pub(super) fn scan_at(
        &self,
        scan: &ScanArguments,
        places: &PlacesOn<M>,
    ) -> Result<(), M::Error> {
        let [within, between] = [scan.hops.within, scan.hops.between]
            .map(|hop| [hop.gamma.to_bits(), (hop.gamma * hop.lambda).to_bits()]);
        let last = self.address_or_null(places.last.as_ref());
        let (offsets, rows) = (self.address_of(&places.offsets), places.count as u64);
        let from = [scan.rewards, scan.values, scan.after, last, offsets, rows];
        let to = [scan.advantages, scan.returns];
        let args = [&from[..], &within, &between, &to].concat();
        self.launch_threads("gae", places.count * WARP, &args)
    }

    pub(super) fn whiten_at(
        &self,
        values: u64,
        tokens: u64,
        by: &SegmentsOn<M>,
        out: u64,
    ) -> Result<(), M::Error> {
        let groups = self.measure_moments("moments_f32", values, tokens, by)?;
        let (group, groups) = (self.address_of(&by.group), self.address_of(&groups));
        let args = [values, group, groups, WHITEN_EPS.to_bits(), by.len as u64, out];
        self.launch_threads("whiten_rows", by.len, &args)
    }

    pub(super) fn ema_at(
        &self,
        rewards: u64,
        seats: &SegmentsOn<M>,
        momentum: f64,
        averages: u64,
        out: u64,
    ) -> Result<(), M::Error> {
        let groups = self.measure_moments("moments_f32", rewards, NONE, seats)?;
        let group = self.address_of(&seats.group);
        self.launch_threads(
            "ema_rows",
            seats.len,
            &[rewards, group, averages, seats.len as u64, out],
        )?;
        let args = [self.address_of(&groups), momentum.to_bits(), seats.groups as u64, averages];
        self.launch_threads("ema_move", seats.groups, &args)
    }
}

impl ScanArguments {
    /// Returns the arguments for discounted returns: advantages with values of 0 and lambda 1.
    pub(super) fn for_returns(rewards: u64, gamma: f64, out: u64) -> Self {
        let hops = GaeSteps::all(GaeParams { gamma, lambda: 1.0 });
        Self { rewards, values: NONE, after: NONE, hops, advantages: out, returns: NONE }
    }
}

/// Encodes `Relative` in the bits that `advantage` in the source reads.
fn encode_options(options: &Relative) -> u64 {
    let baseline = match options.baseline {
        Baseline::None => 0,
        Baseline::Mean => 1,
        Baseline::LeaveOneOut => 2,
        Baseline::SecondBest => panic!("there is no kernel of the second best"),
    };
    let raw = options.singleton == Singleton::Raw;
    baseline | u64::from(options.normalize_std) << 2 | u64::from(raw) << 3
}
