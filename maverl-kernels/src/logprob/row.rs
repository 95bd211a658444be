//! The softmax of one row.

use crate::lanes::{self, LANES};

/// Elements that are summed in `f32`.
const BLOCK: usize = 16 * LANES;
/// Below this distance from the maximum an exponential is zero; the clamp keeps `0 · ∞` out of the entropy.
const FAR: f32 = -100.0;

/// The sums of one row's softmax.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Row {
    pub(crate) inverse: f32,
    /// Of the scaled logits.
    pub(crate) max: f32,
    /// `Σ exp(z − max)`.
    pub(super) sum: f64,
    /// `Σ exp(z − max) (z − max)`.
    moment: f64,
}

impl Row {
    /// The sums of `logits * inverse`.
    #[inline(always)]
    pub(crate) fn of(logits: &[f32], inverse: f32) -> Self {
        let max = lanes::max(logits) * inverse;
        let (mut sum, mut moment) = (0.0, 0.0);
        for block in logits.chunks(BLOCK) {
            let (mut sums, mut moments) = ([0.0; LANES], [0.0; LANES]);
            let (body, tail) = block.as_chunks::<LANES>();
            for z in body {
                for l in 0..LANES {
                    let far = distance(z[l], inverse, max);
                    let e = lanes::exp(far);
                    sums[l] += e;
                    moments[l] = e.mul_add(far, moments[l]);
                }
            }
            for (l, &z) in tail.iter().enumerate() {
                let far = distance(z, inverse, max);
                let e = lanes::exp(far);
                sums[l] += e;
                moments[l] = e.mul_add(far, moments[l]);
            }
            sum += f64::from(lanes::sum_lanes(sums));
            moment += f64::from(lanes::sum_lanes(moments));
        }
        Self { inverse, max, sum, moment }
    }

    /// The log-probability of a logit of this row.
    pub(crate) fn logp(&self, logit: f32) -> f32 {
        (f64::from(logit * self.inverse - self.max) - self.sum.ln()) as f32
    }

    /// The entropy, in nats.
    pub(crate) fn entropy(&self) -> f64 {
        (self.sum.ln() - self.moment / self.sum).max(0.0)
    }

    /// Replaces the logits of this row by their gradient.
    #[inline(always)]
    pub(super) fn gradient(&self, logits: &mut [f32], target: usize, dlogp: f32, dentropy: f32) {
        let scale = (1.0 / self.sum) as f32;
        // log p + H = (z − max) + offset
        let offset = (self.entropy() - self.sum.ln()) as f32;
        for z in logits.iter_mut() {
            let far = distance(*z, self.inverse, self.max);
            let p = lanes::exp(far) * scale;
            *z = -self.inverse * p * dentropy.mul_add(far + offset, dlogp);
        }
        logits[target] += self.inverse * dlogp;
    }
}

/// How far a scaled logit is from the largest: at most zero, not below [`FAR`].
#[inline(always)]
pub(crate) fn distance(logit: f32, inverse: f32, max: f32) -> f32 {
    let far = logit * inverse - max;
    if far < FAR { FAR } else { far }
}
