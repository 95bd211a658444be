//! Softmax over the vocabulary: log-probabilities, their derivatives, sampling.

use std::fmt;

use crate::cuda::array::{args, expect_length};
use crate::cuda::{DeviceArray, Kernels, LaunchShape, Machine, Slice, SliceMut};
use crate::sample::{BadLogits, Sampled, TokenDraw, inverse_temperature};

/// Logits of a tile.
const TILE: usize = 64;
/// Rows of a block: a warp each.
const ROWS: usize = 8;
/// Words of a sampled token.
const WORDS: usize = 4;

/// Rows of logits with the same number of targets each.
#[derive(Debug)]
pub struct SoftmaxRows<M: Machine> {
    targets: DeviceArray<M, u32>,
    inverses: DeviceArray<M, f32>,
    most: u32,
}

impl<M: Machine> SoftmaxRows<M> {
    /// Returns the number of targets of a row; 1 without rows.
    fn each(&self) -> usize {
        self.targets.len().checked_div(self.inverses.len()).unwrap_or(1)
    }
}

/// Row of a token whose id the host gives.
pub const FROM_HOST: u32 = u32::MAX;

/// Tokens that a machine has sampled from rows of logits, or will have.
pub struct SampledTokens<M: Machine> {
    words: DeviceArray<M, u32>,
    /// Point in the machine's work after which they are there.
    at: M::Event,
}

impl<M: Machine> fmt::Debug for SampledTokens<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sampled tokens", self.len())
    }
}

impl<M: Machine> SampledTokens<M> {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.words.len() / WORDS
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asserts that rows are those of tokens, or [`FROM_HOST`].
    #[track_caller]
    pub(super) fn assert_rows(&self, rows: &[u32]) {
        let unknown = rows.iter().find(|&&row| row != FROM_HOST && row as usize >= self.len());
        assert!(unknown.is_none(), "row {unknown:?} of {} sampled tokens", self.len());
    }
}

/// Log-probabilities of rows' targets, and entropies.
#[derive(Debug)]
pub struct LogProbabilities<M: Machine> {
    /// Log-probabilities `[n, k]`.
    pub logp: Vec<f32>,
    /// Entropies `[n]`, in nats.
    pub entropy: Vec<f32>,
    /// Maximum, sum of exponentials and entropy of each row, which derivatives need.
    sums: DeviceArray<M, f64>,
}

impl<M: Machine> Kernels<M> {
    /// Copies targets `[n, k]` and inverse temperatures `[n]` of rows to the machine.
    ///
    /// # Errors
    ///
    /// If the device's memory is full, or the device fails.
    ///
    /// # Panics
    ///
    /// If there are no targets, or not as many of each row.
    pub fn softmax_rows(
        &self,
        targets: &[u32],
        inverse_temperatures: &[f32],
    ) -> Result<SoftmaxRows<M>, M::Error> {
        let n = inverse_temperatures.len();
        let k = targets.len().checked_div(n).unwrap_or(0);
        expect_length("softmax", "targets", targets.len(), n * k);
        assert!(n == 0 || k > 0, "softmax: {n} rows without targets");
        let most = targets.iter().copied().max().unwrap_or(0);
        let inverses = self.array_of(inverse_temperatures)?;
        Ok(SoftmaxRows { targets: self.array_of(targets)?, inverses, most })
    }

    /// Computes the log-probabilities of targets and the entropies of `logits [n, V]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the logits are not so many rows, or a target is not below `V`.
    pub fn log_probabilities(
        &self,
        logits: Slice<'_, f32>,
        rows: &SoftmaxRows<M>,
    ) -> Result<LogProbabilities<M>, M::Error> {
        let (n, vocab) = checked_shape("log_probabilities", logits, rows);
        let (partials, tiles) = self.sum_tiles(logits, &rows.inverses, n, vocab)?;
        let (logp, entropy) =
            (self.new_array::<f32>(rows.targets.len())?, self.new_array::<f32>(n)?);
        let sums = self.new_array::<f64>(3 * n)?;
        let each = rows.each();
        let SoftmaxRows { targets, inverses, .. } = rows;
        let given = args![logits, *inverses, *targets, partials, n, vocab, tiles];
        let args = [given, args![each, logp, entropy, sums]].concat();
        self.run_model_kernel("softmax_rows", LaunchShape::of_blocks(n.div_ceil(ROWS)), &args)?;
        Ok(LogProbabilities {
            logp: self.read_array(&logp)?,
            entropy: self.read_array(&entropy)?,
            sums,
        })
    }

    /// Computes the derivatives of a loss by the logits, in bf16, from its derivatives by log-probabilities `[n, k]` and
    /// entropies `[n]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the lengths differ from the shapes.
    pub fn logit_gradients(
        &self,
        logits: Slice<'_, f32>,
        rows: &SoftmaxRows<M>,
        of: &LogProbabilities<M>,
        [dlogp, dentropy]: [&[f32]; 2],
        dlogits: SliceMut<'_, u16>,
    ) -> Result<(), M::Error> {
        let (n, vocab) = checked_shape("logit_gradients", logits, rows);
        expect_length("logit_gradients", "sums", of.sums.len(), 3 * n);
        expect_length("logit_gradients", "dlogp", dlogp.len(), rows.targets.len());
        expect_length("logit_gradients", "dentropy", dentropy.len(), n);
        expect_length("logit_gradients", "dlogits", dlogits.len(), n * vocab);
        let (dlogp, dentropy, each) =
            (self.array_of(dlogp)?, self.array_of(dentropy)?, rows.each());
        let SoftmaxRows { targets, inverses, .. } = rows;
        let given = args![logits, *inverses, *targets, of.sums, dlogp, dentropy];
        let args = [given, args![vocab, each, dlogits]].concat();
        self.run_model_kernel("softmax_back", LaunchShape::of_blocks(n), &args)
    }

    /// Samples a token of each row of `logits [n, V]` like [`sample_token`](crate::sample::sample_token) without filters: by the
    /// same random numbers, and the same order of ids.
    ///
    /// # Errors
    ///
    /// If the device fails. A row whose logits describe no distribution is an error of its own.
    ///
    /// # Panics
    ///
    /// If the logits are not as many rows as draws, or a temperature is negative or not finite.
    pub fn choose_tokens(
        &self,
        logits: Slice<'_, f32>,
        draws: &[TokenDraw],
    ) -> Result<Vec<Result<Sampled, BadLogits>>, M::Error> {
        if logits.is_empty() || draws.is_empty() {
            assert!(logits.is_empty(), "choose: {} logits, no rows", logits.len());
            return Ok(vec![Err(BadLogits::Empty); draws.len()]);
        }
        let words = self.launch_choose(logits, draws)?;
        Ok(self.read_array(&words)?.chunks_exact(WORDS).map(decode_row).collect())
    }

    /// Launches [`Self::choose_tokens`] of at least one row of logits. [`Self::read_sampled`] reads the result.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// As [`Self::choose_tokens`], or if there are no logits.
    pub fn launch_sampling(
        &self,
        logits: Slice<'_, f32>,
        draws: &[TokenDraw],
    ) -> Result<SampledTokens<M>, M::Error> {
        assert!(!logits.is_empty() && !draws.is_empty(), "sample: no logits");
        let words = self.launch_choose(logits, draws)?;
        Ok(SampledTokens { words, at: self.machine.record_event()? })
    }

    /// Copies sampled tokens to the host, without waiting for what was launched after [`Self::launch_sampling`].
    ///
    /// # Errors
    ///
    /// If the device fails. A row whose logits describe no distribution is an error of its own.
    pub fn read_sampled(
        &self,
        tokens: &SampledTokens<M>,
    ) -> Result<Vec<Result<Sampled, BadLogits>>, M::Error> {
        let words = self.read_at(&tokens.at, &tokens.words)?;
        Ok(words.chunks_exact(WORDS).map(decode_row).collect())
    }

    /// Replaces ids `[n]` by those of sampled tokens: of the rows `from [n]`, or none where that is [`FROM_HOST`]. They are
    /// below `vocab`, whatever the logits were. The caller has checked the rows, and has both arrays, at these addresses.
    pub(super) fn replace_ids(
        &self,
        tokens: &SampledTokens<M>,
        [from, ids]: [u64; 2],
        n: usize,
        vocab: usize,
    ) -> Result<(), M::Error> {
        let shape = LaunchShape::of_threads(n);
        self.run_model_kernel("sampled_ids", shape, args![tokens.words, from, n, vocab, ids])
    }

    fn launch_choose(
        &self,
        logits: Slice<'_, f32>,
        draws: &[TokenDraw],
    ) -> Result<DeviceArray<M, u32>, M::Error> {
        let n = draws.len();
        let vocab = logits.len() / n;
        expect_length("choose", "logits", logits.len(), n * vocab);
        let (mut inverses, mut words) = (Vec::with_capacity(n), Vec::with_capacity(3 * n));
        for &TokenDraw { temperature: t, seed, counter } in draws {
            assert!(t >= 0.0 && t.is_finite(), "choose: temperature {t}");
            inverses.push(inverse_temperature(t));
            words.extend([seed, counter, u64::from(t == 0.0)]);
        }
        let inverses = self.array_of(&inverses)?;
        let (partials, tiles) = self.sum_tiles(logits, &inverses, n, vocab)?;
        let draws = self.array_of(&words)?;
        let drawn = self.new_array::<u32>(WORDS * n)?;
        let args = args![logits, inverses, partials, draws, n, vocab, tiles, drawn];
        self.run_model_kernel("choose", LaunchShape::of_blocks(n.div_ceil(ROWS)), args)?;
        Ok(drawn)
    }

    /// Computes the sums of tiles of 64 logits. Returns them and the number of tiles of a row.
    fn sum_tiles(
        &self,
        logits: Slice<'_, f32>,
        inverses: &DeviceArray<M, f32>,
        n: usize,
        vocab: usize,
    ) -> Result<(DeviceArray<M, f32>, usize), M::Error> {
        let tiles = vocab.div_ceil(TILE);
        let partials = self.new_array::<f32>(3 * n * tiles)?;
        let args = args![logits, *inverses, n, vocab, tiles, partials];
        let shape = LaunchShape::of_blocks((n * tiles).div_ceil(ROWS));
        self.run_model_kernel("softmax_partials", shape, args)?;
        Ok((partials, tiles))
    }
}

/// Reads what the kernel says of a row.
fn decode_row(words: &[u32]) -> Result<Sampled, BadLogits> {
    let (id, [logprob, entropy]) = (words[0], [words[1], words[2]].map(f32::from_bits));
    match words[3] {
        1 => Err(BadLogits::Nan(id as usize)),
        2 => Err(BadLogits::Infinite(id as usize)),
        3 => Err(BadLogits::NoMass),
        _ => Ok(Sampled { id, logprob, entropy }),
    }
}

#[track_caller]
fn checked_shape<M: Machine>(
    kernel: &str,
    logits: Slice<'_, f32>,
    rows: &SoftmaxRows<M>,
) -> (usize, usize) {
    let n = rows.inverses.len();
    let vocab = logits.len().checked_div(n).unwrap_or(0);
    expect_length(kernel, "logits", logits.len(), n * vocab);
    assert!(n == 0 || (rows.most as usize) < vocab, "{kernel}: target {} of {vocab}", rows.most);
    (n, vocab)
}
