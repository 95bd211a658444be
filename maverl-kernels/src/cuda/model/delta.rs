//! The gated delta rule over packed tokens, and behind states of sequences. Gates and states are the bits of f32, two elements of
//! an array each.

use super::elementwise::{ROWS, ROWS_OF_A_SUM};
use super::recurrent::{SEQUENCE_WORDS, StateLayout};
use crate::attention::Packing;
use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};
use crate::recurrent::{DeltaHeads, SPAN_TOKENS};

/// Largest width of a key.
pub const LARGEST_KEY: usize = 128;
/// Columns of a head that a warp has.
const COLUMNS: usize = 8;
/// Trees that the backward pass walks at once.
const TREES: usize = 16;
/// Numbers of a `DeltaSpan` of the source.
const SPAN_WORDS: usize = 4;
/// Elements of the bits of an f32.
const WORDS: usize = 2;

/// Spans of packed tokens as the delta rule walks them.
#[derive(Debug)]
pub struct DeltaLayout<M: Machine> {
    spans: DeviceArray<M, i32>,
    trees: DeviceArray<M, i32>,
    tokens: usize,
}

/// Inputs of the rule for `n` tokens.
#[derive(Debug, Clone, Copy)]
pub struct DeltaSlices<'a> {
    /// Normalized queries, normalized keys, and values, `[n, mixed_width]`.
    pub mixed: Slice<'a, u16>,
    /// Factors of the state, the bits of `[n, values]`.
    pub decay: Slice<'a, u16>,
    /// Weights of new values, the bits of `[n, values]`.
    pub beta: Slice<'a, u16>,
    /// Heads.
    pub heads: DeltaHeads,
}

/// Gates of the state before their functions, and the weights of these, `[values]`.
#[derive(Debug, Clone, Copy)]
pub struct DeltaGates<'a> {
    /// Inputs of decay and beta, `[n, values]`.
    pub inputs: [Slice<'a, u16>; 2],
    /// Logarithm of the rate of decay.
    pub a_log: Slice<'a, u16>,
    /// Bias of the time step.
    pub dt_bias: Slice<'a, u16>,
}

/// Gradients of the rule by its inputs, all overwritten; that of the decay by its logarithm.
#[derive(Debug)]
pub struct DeltaTargets<'a> {
    /// `[n, mixed_width]`.
    pub mixed: SliceMut<'a, u16>,
    /// The bits of `[n, values]`.
    pub log_decay: SliceMut<'a, u16>,
    /// The bits of `[n, values]`.
    pub beta: SliceMut<'a, u16>,
}

/// Returns the arguments of a shape.
fn shape_args(heads: DeltaHeads) -> [u64; 4] {
    let DeltaHeads { keys, values, key_dim, value_dim } = heads;
    [keys, values, key_dim, value_dim].map(|number| number as u64)
}

/// Returns the tiles of the columns of a head.
fn tiles_of_head(heads: DeltaHeads) -> usize {
    heads.value_dim.div_ceil(COLUMNS)
}

/// Returns the number of elements of the bits of a state.
pub fn state_words(heads: DeltaHeads) -> usize {
    WORDS * heads.values * heads.key_dim * heads.value_dim
}

impl DeltaSlices<'_> {
    /// Returns the number of tokens.
    #[track_caller]
    fn checked(&self, kernel: &str, n: usize) {
        let DeltaHeads { keys, values, key_dim, .. } = self.heads;
        assert!(
            values.is_multiple_of(keys) && key_dim <= LARGEST_KEY,
            "{kernel}: {:?}",
            self.heads
        );
        expect_length(kernel, "mixed", self.mixed.len(), n * self.heads.mixed_width());
        expect_length(kernel, "decay", self.decay.len(), WORDS * n * values);
        expect_length(kernel, "beta", self.beta.len(), WORDS * n * values);
    }
}

impl<M: Machine> Kernels<M> {
    /// Copies the spans of a packing to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    pub fn delta_layout(&self, packing: Packing<'_>) -> Result<DeltaLayout<M>, M::Error> {
        let (mut words, mut trees, mut tokens) = (Vec::new(), Vec::new(), 0);
        for (index, span) in packing.spans().into_iter().enumerate() {
            if span.before.is_none() {
                trees.push(index as i32);
            }
            let before = span.before.map_or(-1, |before| before as i32);
            words.extend([span.tokens.start as i32, span.tokens.len() as i32, before, 0]);
            tokens = span.tokens.end;
        }
        trees.push((words.len() / SPAN_WORDS) as i32);
        Ok(DeltaLayout { spans: self.array_of(&words)?, trees: self.array_of(&trees)?, tokens })
    }

    /// Normalizes queries and keys of `raw [n, mixed_width]`, and computes decay and beta, the bits of `[n, values]` each.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn delta_inputs(
        &self,
        raw: Slice<'_, u16>,
        gates: DeltaGates<'_>,
        heads: DeltaHeads,
        mut mixed: SliceMut<'_, u16>,
        [decay, beta]: [SliceMut<'_, u16>; 2],
    ) -> Result<(), M::Error> {
        let (width, [a, b]) = (heads.mixed_width(), gates.inputs);
        let n = raw.len() / width;
        expect_length("delta_inputs", "mixed", mixed.len(), n * width);
        for len in [WORDS * a.len(), WORDS * b.len(), decay.len(), beta.len()] {
            expect_length("delta_inputs", "gates", len, WORDS * n * heads.values);
        }
        let [keys, values] = [2 * heads.keys_width(), heads.values_width()];
        let to = (mixed.reborrow(), width, keys);
        self.copy_columns(values, (raw, width, keys), to)?;
        let args = [args![raw, n], &shape_args(heads), args![mixed]].concat();
        let shape = LaunchShape::of_blocks((2 * n * heads.keys).div_ceil(ROWS));
        self.run_model_kernel("normalize_keys", shape, &args)?;
        let DeltaGates { a_log, dt_bias, .. } = gates;
        let args = args![a, b, a_log, dt_bias, n, heads.values, decay, beta];
        self.run_model_kernel("delta_gates", LaunchShape::of_threads(n * heads.values), args)
    }

    /// Computes the gradients of [`Self::delta_inputs`]: by `raw` in place of those by its result, and by the inputs of the gates,
    /// overwritten. Those of `a_log` and `dt_bias` are added to sums.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn delta_inputs_back(
        &self,
        (raw, gates, heads): (Slice<'_, u16>, DeltaGates<'_>, DeltaHeads),
        mixed: SliceMut<'_, u16>,
        [log_decay, beta]: [Slice<'_, u16>; 2],
        [da, db]: [SliceMut<'_, u16>; 2],
        sums: [Option<SliceMut<'_, f32>>; 2],
    ) -> Result<(), M::Error> {
        let (values, n) = (heads.values, raw.len() / heads.mixed_width());
        expect_length("delta_inputs_back", "mixed", mixed.len(), raw.len());
        for len in [WORDS * da.len(), WORDS * db.len(), log_decay.len(), beta.len()] {
            expect_length("delta_inputs_back", "gates", len, WORDS * n * values);
        }
        let args = [args![raw, n], &shape_args(heads), args![mixed]].concat();
        let shape = LaunchShape::of_blocks((2 * n * heads.keys).div_ceil(ROWS));
        self.run_model_kernel("normalize_keys_back", shape, &args)?;
        let blocks = n.div_ceil(ROWS_OF_A_SUM);
        let partials = [self.new_array::<f32>(blocks * values)?, self.new_array(blocks * values)?];
        let DeltaGates { inputs: [a, b], a_log, dt_bias } = gates;
        let given = args![a, b, a_log, dt_bias, log_decay, beta, n, values];
        let args = [given, args![da, db, partials[0], partials[1]]].concat();
        let grid = [blocks as u32, values.div_ceil(256) as u32, 1];
        let shape = LaunchShape { grid, ..LaunchShape::of_blocks(0) };
        self.run_model_kernel("delta_gates_back", shape, &args)?;
        for (partials, sum) in partials.into_iter().zip(sums) {
            if let Some(sum) = sum {
                self.add_rows(partials, blocks, values, sum)?;
            }
        }
        Ok(())
    }

    /// Computes [`delta_rule`](crate::recurrent::delta_rule): `out` is `[n, values · value_dim]`; `states` gets the bits of the states
    /// after each span, [`state_words`] each.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn delta_rule(
        &self,
        of: DeltaSlices<'_>,
        at: &DeltaLayout<M>,
        states: SliceMut<'_, u16>,
        out: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let DeltaSlices { mixed, decay, beta, heads } = of;
        of.checked("delta_rule", at.tokens);
        expect_length("delta_rule", "out", out.len(), at.tokens * heads.values_width());
        let words = at.span_count() * state_words(heads);
        expect_length("delta_rule", "states", states.len(), words);
        let given = args![mixed, decay, beta, at.spans, at.trees];
        let args = [given, &shape_args(heads), args![states, out]].concat();
        let columns = heads.values * tiles_of_head(heads);
        self.run_model_kernel("delta_rule", warps(at.tree_count(), columns), &args)
    }

    /// Computes the gradients of [`Self::delta_rule`] from its states and the gradient of its result.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn delta_rule_back(
        &self,
        of: DeltaSlices<'_>,
        at: &DeltaLayout<M>,
        [states, dout]: [Slice<'_, u16>; 2],
        to: DeltaTargets<'_>,
    ) -> Result<(), M::Error> {
        let (DeltaSlices { mixed, decay, beta, heads }, n) = (of, at.tokens);
        of.checked("delta_rule_back", n);
        let DeltaTargets { mixed: dmixed, log_decay, beta: dbeta } = to;
        expect_length("delta_rule_back", "dout", dout.len(), n * heads.values_width());
        let words = at.span_count() * state_words(heads);
        expect_length("delta_rule_back", "states", states.len(), words);
        expect_length("delta_rule_back", "dmixed", dmixed.len(), mixed.len());
        for len in [log_decay.len(), dbeta.len()] {
            expect_length("delta_rule_back", "gates", len, WORDS * n * heads.values);
        }
        let (blocks, trees) = (at.tree_count().min(TREES), at.tree_count());
        let passed = self.zeroed_array::<f32>(words / WORDS)?;
        let kept = SPAN_TOKENS * heads.key_dim * COLUMNS;
        let scratch = self.new_array::<f32>(blocks * heads.values * kept)?;
        let dkeys = self.new_array::<f32>(heads.values * n * 2 * heads.key_dim)?;
        let given = args![mixed, decay, beta, at.spans, at.trees, trees];
        for tile in 0..tiles_of_head(heads) {
            let results = args![states, passed, scratch, dout, dmixed, dkeys, log_decay, dbeta];
            let own = args![tile, tile == 0];
            let args = [given, own, &shape_args(heads), args![n], results].concat();
            self.run_model_kernel("delta_rule_back", warps(blocks, heads.values), &args)?;
        }
        let args = [args![dkeys, n], &shape_args(heads), args![dmixed]].concat();
        let shape = LaunchShape::of_threads(2 * n * heads.keys_width());
        self.run_model_kernel("delta_keys_back", shape, &args)
    }

    /// Computes [`delta_rule_onto`](crate::recurrent::delta_rule_onto) of new tokens: `out` is `[n, values · value_dim]`. `states` are
    /// slots of `stride` numbers, of which the states begin at `start`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes, or a slot does not exist.
    pub fn delta_rule_cached(
        &self,
        of: DeltaSlices<'_>,
        at: &StateLayout<M>,
        (states, stride, start): (SliceMut<'_, f32>, usize, usize),
        out: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let DeltaSlices { mixed, decay, beta, heads } = of;
        let n = at.of.len();
        of.checked("delta_rule_cached", n);
        expect_length("delta_rule_cached", "out", out.len(), n * heads.values_width());
        let end = start + state_words(heads) / WORDS;
        let fit = end <= stride && (at.most + 1) * stride <= states.len();
        assert!(fit, "delta_rule_cached: slot {} of {} numbers", at.most, states.len());
        let (len, count) = (states.len(), at.sequences.len() / SEQUENCE_WORDS);
        let own = states.sub_slice(start..len);
        let given = args![mixed, decay, beta, at.sequences];
        let args = [given, &shape_args(heads), args![own, stride, out]].concat();
        let columns = heads.values * tiles_of_head(heads);
        self.run_model_kernel("delta_rule_cached", warps(count, columns), &args)
    }
}

impl<M: Machine> DeltaLayout<M> {
    /// Returns the number of spans.
    pub fn span_count(&self) -> usize {
        self.spans.len() / SPAN_WORDS
    }

    fn tree_count(&self) -> usize {
        self.trees.len() - 1
    }
}

/// Returns the shape of a launch of warps.
fn warps(x: usize, y: usize) -> LaunchShape {
    LaunchShape { grid: [x as u32, y as u32, 1], threads: 32, shared: 0 }
}
