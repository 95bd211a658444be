//! Kernels of estimators that other crates declare.

use super::{EmulateError, KernelLibrary, ThreadSchedule};

/// Declarations that a kernel of an estimator is compiled after.
pub const PRELUDE: &str = include_str!("estimator.cuh");

/// Name of the kernel.
pub const KERNEL: &str = "estimate";

/// Returns what a compiler is given for a kernel: [`PRELUDE`], definitions of its settings, and its file. Messages of the
/// compiler have the name and the lines of the file.
pub fn estimator_source(settings: &str, file: &str, source: &str) -> String {
    format!("{PRELUDE}\n{settings}\n#line 1 {file:?}\n{source}")
}

/// Threads of a block.
const BLOCK: u32 = 256;

/// A step as kernels of estimators read it: the fields of `Rewarded` in [`PRELUDE`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepArrays {
    /// Rewards. `[N]`
    pub rewards: Vec<f32>,
    /// Parts of the rewards, each `[N]`.
    pub parts: Vec<Vec<f32>>,
    /// Values of a critic for each row; none without a critic.
    pub values: Option<Vec<Vec<f32>>>,
    /// Seats. `[N]`
    pub seats: Vec<u32>,
    /// Turns. `[N]`
    pub turns: Vec<u32>,
    /// Tasks. `[N]`
    pub tasks: Vec<u32>,
    /// Episodes. `[N]`
    pub episodes: Vec<u32>,
    /// Tokens of each row. `[N]`
    pub lengths: Vec<u32>,
    /// Units. `[N]`
    pub units: Vec<u32>,
    /// Groups. `[N]`
    pub groups: Vec<u32>,
}

/// A kernel of an estimator, built for the CPU.
#[derive(Debug, Clone, Copy)]
pub struct Estimator {
    library: KernelLibrary,
}

impl Estimator {
    /// Builds a kernel from what [`estimator_source`] returns.
    ///
    /// # Errors
    ///
    /// See [`EmulateError`].
    pub fn build(source: &str) -> Result<Self, EmulateError> {
        Ok(Self { library: KernelLibrary::build(source, &[KERNEL])? })
    }

    /// Advantages of a step `[places]`, with threads in an order of [`ORDERS`](super::ORDERS). A place that the kernel does not
    /// write is NaN.
    ///
    /// # Panics
    ///
    /// If a field of the step has another length than the rewards, or the threads of the kernel wait for each other forever.
    pub fn run_step(&self, step: &StepArrays, places: usize, order: &'static str) -> Vec<f32> {
        let (packed, n) = (step.pack_arrays(), step.rewards.len());
        let fields = step.field_values(
            &packed,
            |numbers| numbers.as_ptr() as u64,
            |ids| ids.as_ptr() as u64,
        );
        let mut out = vec![f32::NAN; places];
        let blocks = places.max(n).max(1).div_ceil(BLOCK as usize) as u32;
        self.library.apply_settings(ThreadSchedule { order, ..ThreadSchedule::default() });
        let args = [fields.as_ptr() as u64, out.as_mut_ptr() as u64];
        // SAFETY: the fields are those of `Rewarded`, of the lengths it states, and outlive the launch. The kernel is
        // code of the crate that declares it, trusted to stay within them as its Rust code is.
        #[allow(unsafe_code)]
        let run = unsafe { self.library.launch_kernel(KERNEL, [blocks, 1, 1], BLOCK, 0, &args) };
        run.unwrap_or_else(|error| panic!("{error}"));
        out
    }
}

/// Arrays of a step that are made of its fields.
pub(crate) struct PackedStep {
    parts: Vec<f32>,
    values: Option<(Vec<f32>, Vec<u32>)>,
    token_begin: Vec<u32>,
    group_begin: Vec<u32>,
    group_rows: Vec<u32>,
}

impl StepArrays {
    fn id_arrays(&self) -> [&[u32]; 7] {
        let Self { seats, turns, tasks, episodes, lengths, units, groups, .. } = self;
        [seats, turns, tasks, episodes, lengths, units, groups].map(Vec::as_slice)
    }

    /// Returns the arrays that are made of the fields.
    ///
    /// # Panics
    ///
    /// If a field has another length than the rewards.
    pub(crate) fn pack_arrays(&self) -> PackedStep {
        let n = self.rewards.len();
        assert!(self.id_arrays().iter().all(|ids| ids.len() == n), "every id has {n} rows");
        assert!(self.parts.iter().all(|part| part.len() == n), "every part has {n} rows");
        let values = self.values.as_ref().map(|values| {
            assert_eq!(values.len(), n, "values of each row");
            (values.concat(), begin_offsets(values.iter().map(|row| row.len() as u32)))
        });
        let (group_begin, group_rows) = sort_by_group(&self.groups);
        let token_begin = begin_offsets(self.lengths.iter().copied());
        PackedStep { parts: self.parts.concat(), values, token_begin, group_begin, group_rows }
    }

    /// Returns the fields of `Rewarded` in [`PRELUDE`]: counts, and the addresses of the arrays.
    pub(crate) fn field_values(
        &self,
        packed: &PackedStep,
        mut numbers: impl FnMut(&[f32]) -> u64,
        mut ids: impl FnMut(&[u32]) -> u64,
    ) -> Vec<u64> {
        let n = self.rewards.len();
        let tokens = u64::from(packed.token_begin[n]);
        let groups = packed.group_begin.len() as u64 - 1;
        let (values, begin) = match &packed.values {
            Some((values, begin)) => (numbers(values), ids(begin)),
            None => (0, 0),
        };
        let mut fields = vec![n as u64, tokens, groups, self.parts.len() as u64];
        fields.extend([numbers(&self.rewards), numbers(&packed.parts), values, begin]);
        fields.extend(self.id_arrays().map(&mut ids));
        let PackedStep { token_begin, group_begin, group_rows, .. } = packed;
        fields.extend([token_begin, group_begin, group_rows].map(|of| ids(of)));
        fields
    }
}

/// Beginning of each of some lengths, and the end of the last.
fn begin_offsets(lengths: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Beginning of each group, and the rows of each in ascending order.
fn sort_by_group(groups: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let count = groups.iter().max().map_or(0, |&group| group + 1);
    let mut rows: Vec<u32> = (0..groups.len() as u32).collect();
    rows.sort_by_key(|&row| groups[row as usize]);
    let sizes = (0..count).map(|group| groups.iter().filter(|&&of| of == group).count() as u32);
    (begin_offsets(sizes), rows)
}
