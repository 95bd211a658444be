//! Softmax of one row.

use pulp::Simd;

use crate::lanes::{LANES, Lanes, Sixteen};

/// Elements that are summed in `f32`.
const BLOCK: usize = 16 * LANES;
/// Distance from the maximum below which an exponential is zero. The clamp keeps `0 · ∞` out of the entropy.
const FAR: f32 = -100.0;

/// Sums of one row's softmax.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogitRow {
    inverse: f32,
    /// Maximum of the scaled logits.
    pub(super) max: f32,
    /// Sum of exponentials, `Σ exp(z − max)`.
    pub(super) sum: f64,
    /// First moment, `Σ exp(z − max) (z − max)`.
    moment: f64,
}

impl LogitRow {
    /// Computes the sums of `logits * inverse`.
    #[inline(always)]
    pub(crate) fn from_logits<S: Simd, const N: usize>(
        lanes: Lanes<S, N>,
        logits: &[f32],
        inverse: f32,
    ) -> Self {
        Self::sum_logits(
            lanes,
            logits,
            inverse,
            #[inline(always)]
            |_, _| (),
        )
    }

    /// Computes [`LogitRow::from_logits`] and stores `exp(z − max)` of each logit.
    #[inline(always)]
    pub(crate) fn with_weights<S: Simd, const N: usize>(
        lanes: Lanes<S, N>,
        logits: &[f32],
        inverse: f32,
        weights: &mut [f32],
    ) -> Self {
        let (body, tail) = weights[..logits.len()].as_chunks_mut();
        Self::sum_logits(
            lanes,
            logits,
            inverse,
            #[inline(always)]
            |i, e| match body.get_mut(i) {
                Some(weights) => lanes.store(e, weights),
                None => tail.copy_from_slice(&lanes.array(e)[..tail.len()]),
            },
        )
    }

    /// Computes the sums. `exp` gets the exponentials of each sixteen logits.
    #[inline(always)]
    fn sum_logits<S: Simd, const N: usize>(
        lanes: Lanes<S, N>,
        logits: &[f32],
        inverse: f32,
        mut exp: impl FnMut(usize, Sixteen<S, N>),
    ) -> Self {
        let max = lanes.max(logits) * inverse;
        let distances = Distances::of(lanes, inverse, max);
        let (mut sum, mut moment) = (0.0, 0.0);
        for (block, logits) in logits.chunks(BLOCK).enumerate() {
            let (mut sums, mut moments) = (lanes.splat(0.0), lanes.splat(0.0));
            let (body, tail) = logits.as_chunks();
            for (i, z) in body.iter().enumerate() {
                let far = distances.clamped_distance(lanes, lanes.load(z));
                let e = lanes.exp(far);
                sums = lanes.add(sums, e);
                moments = lanes.mul_add(e, far, moments);
                exp(block * (BLOCK / LANES) + i, e);
            }
            if !tail.is_empty() {
                // Lanes without a logit hold negative infinity and add exactly zero.
                let z = lanes.load_first(tail, f32::NEG_INFINITY);
                let far = distances.clamped_distance(lanes, z);
                let e = lanes.exp(far);
                sums = lanes.add(sums, e);
                moments = lanes.mul_add(e, far, moments);
                exp(block * (BLOCK / LANES) + body.len(), e);
            }
            sum += f64::from(lanes.sum(sums));
            moment += f64::from(lanes.sum(moments));
        }
        Self { inverse, max, sum, moment }
    }

    /// Returns the log-probability of a logit of this row.
    pub(crate) fn logp(&self, logit: f32) -> f32 {
        (f64::from(logit * self.inverse - self.max) - libm::log(self.sum)) as f32
    }

    /// Returns the entropy, in nats.
    pub(crate) fn entropy(&self) -> f64 {
        (libm::log(self.sum) - self.moment / self.sum).max(0.0)
    }

    /// Replaces the logits of this row by their gradient. Each target has a derivative by its log-probability.
    #[inline(always)]
    pub(super) fn write_gradient<S: Simd, const N: usize>(
        &self,
        lanes: Lanes<S, N>,
        logits: &mut [f32],
        targets: &[u32],
        dlogp: &[f32],
        dentropy: f32,
    ) {
        let scale = lanes.splat((1.0 / self.sum) as f32);
        // log p + H = (z − max) + offset
        let offset = lanes.splat((self.entropy() - libm::log(self.sum)) as f32);
        let distances = Distances::of(lanes, self.inverse, self.max);
        let falling = lanes.splat(-self.inverse);
        let by_all = dlogp.iter().copied().reduce(|sum, by| sum + by).unwrap_or(0.0);
        let (by_logp, by_entropy) = (lanes.splat(by_all), lanes.splat(dentropy));
        lanes.map_lanes(
            [],
            [&mut *logits],
            #[inline(always)]
            |[], [z]| {
                let far = distances.clamped_distance(lanes, z);
                let p = lanes.mul(lanes.exp(far), scale);
                let grad = lanes.mul_add(by_entropy, lanes.add(far, offset), by_logp);
                [lanes.mul(lanes.mul(falling, p), grad)]
            },
        );
        for (&target, by) in targets.iter().zip(dlogp) {
            logits[target as usize] += self.inverse * by;
        }
    }
}

/// Distances of scaled logits from the largest.
struct Distances<S: Simd, const N: usize> {
    inverse: Sixteen<S, N>,
    max: Sixteen<S, N>,
    far: Sixteen<S, N>,
}

impl<S: Simd, const N: usize> Distances<S, N> {
    #[inline(always)]
    fn of(lanes: Lanes<S, N>, inverse: f32, max: f32) -> Self {
        Self { inverse: lanes.splat(inverse), max: lanes.splat(max), far: lanes.splat(FAR) }
    }

    /// Returns a value in [`FAR`]`..=0`.
    #[inline(always)]
    fn clamped_distance(&self, lanes: Lanes<S, N>, logits: Sixteen<S, N>) -> Sixteen<S, N> {
        lanes.larger(self.far, lanes.sub(lanes.mul(logits, self.inverse), self.max))
    }
}
