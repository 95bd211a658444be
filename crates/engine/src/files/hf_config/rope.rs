//! Rotary position embedding (Su et al., 2021, arXiv:2104.09864): frequencies of its kinds.

use maverl_kernels::rope::RopeTable;

/// Rotary position embedding of some layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the frequencies. **(default: `10000`)**
    pub theta: f64,
    /// Share of each head that is rotated: its first elements. **(default: `1`)**
    pub partial: f64,
    /// Change of the frequencies for sequences longer than the first ones trained on.
    pub scaling: Scaling,
}

/// Change of the frequencies `f` of a rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// None.
    None,
    /// Frequencies are divided by this factor.
    Linear(f32),
    /// That of Llama 3.1.
    Llama3(Llama3),
    /// YaRN.
    Yarn(Yarn),
    /// LongRoPE.
    Long(LongRope),
}

/// The scaling of Llama 3.1 and later (reference: transformers `_compute_llama3_parameters`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    /// Divisor of the lowest frequencies.
    pub factor: f32,
    /// Waves longer than the original context over this are scaled.
    pub low_freq_factor: f32,
    /// Waves shorter than the original context over this stay as they are.
    pub high_freq_factor: f32,
    /// The context before scaling.
    pub original_max_position_embeddings: usize,
}

/// YaRN (Peng et al., 2023, arXiv:2309.00071; reference: transformers `_compute_yarn_parameters`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Divisor of the lowest frequencies.
    pub factor: f64,
    /// Factor of cosines and sines.
    pub attention_factor: f32,
    /// Rotations in the original context above which a frequency stays as it is.
    pub beta_fast: f64,
    /// Rotations below which a frequency is divided.
    pub beta_slow: f64,
    /// True if the bounds between both are rounded to whole frequencies.
    pub truncate: bool,
    /// The context before scaling.
    pub original_max_position_embeddings: usize,
}

/// LongRoPE (Ding et al., 2024, arXiv:2402.13753; reference: transformers `_compute_longrope_parameters`).
#[derive(Debug, Clone, PartialEq)]
pub struct LongRope {
    /// Divisors of the frequencies up to the original context, one for each.
    pub short_factor: Vec<f32>,
    /// Divisors of the frequencies beyond it.
    pub long_factor: Vec<f32>,
    /// Factor of cosines and sines, the same for both.
    pub attention_factor: f32,
    /// The context before scaling.
    pub original_max_position_embeddings: usize,
    /// True if the long factors are used.
    pub long: bool,
}

/// Frequencies of a rotary embedding, and the factor of its cosines and sines.
#[derive(Debug, Clone, PartialEq)]
pub struct Frequencies {
    /// Frequencies, for half of the rotated elements of a head.
    pub inv_freq: Vec<f32>,
    /// Factor of cosines and sines.
    pub factor: f32,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Frequencies {
    /// Returns the table of cosines and sines for so many positions.
    pub(crate) fn table(&self, positions: usize) -> RopeTable {
        let Self { inv_freq, factor, head_dim } = self;
        RopeTable::new(inv_freq, positions).with_head_dim(*head_dim).with_factor(*factor)
    }
}

impl Rope {
    /// Returns the rotary embedding of a base, of whole heads.
    pub fn plain(theta: f64) -> Self {
        Self { theta, partial: 1.0, scaling: Scaling::None }
    }

    /// Returns the number of elements of a head that are rotated.
    pub fn rotated_dim(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.partial) as usize
    }

    /// Returns the context before LongRoPE's scaling, if its factors are others beyond it.
    pub fn short_context(&self) -> Option<usize> {
        match &self.scaling {
            Scaling::Long(long) if long.short_factor != long.long_factor => {
                Some(long.original_max_position_embeddings)
            }
            _ => None,
        }
    }

    /// Uses the long factors of LongRoPE.
    pub(super) fn use_long_factors(&mut self) {
        if let Scaling::Long(long) = &mut self.scaling {
            long.long = true;
        }
    }

    /// Returns by how much each frequency of a head of `head_dim` elements is divided.
    #[cfg(feature = "candle")]
    pub(crate) fn divisors(&self, head_dim: usize) -> Vec<f32> {
        let plain = Self { scaling: Scaling::None, ..self.clone() }.frequencies(head_dim).inv_freq;
        let scaled = self.frequencies(head_dim).inv_freq;
        plain.into_iter().zip(scaled).map(|(plain, scaled)| plain / scaled).collect()
    }

    /// Returns the frequencies of a head of `head_dim` elements, of which `n` are rotated; the arithmetic is `f32`, as in
    /// transformers.
    ///
    /// ```text
    /// fᵢ = theta^(−2i / n),   0 ≤ i < n / 2
    /// ```
    pub fn frequencies(&self, head_dim: usize) -> Frequencies {
        let (theta, n) = (self.theta as f32, self.rotated_dim(head_dim));
        let plain = (0..n / 2).map(|i| libm::powf(theta, (2 * i) as f32 / n as f32).recip());
        let mut factor = 1.0;
        let inv_freq = match &self.scaling {
            Scaling::None => plain.collect(),
            Scaling::Linear(factor) => plain.map(|f| f / factor).collect(),
            Scaling::Llama3(llama3) => plain.map(|f| llama3.scale_frequency(f)).collect(),
            Scaling::Yarn(yarn) => {
                factor = yarn.attention_factor;
                yarn.scale_frequencies(plain.collect(), self.theta)
            }
            Scaling::Long(long) => {
                factor = long.attention_factor;
                let divisors = if long.long { &long.long_factor } else { &long.short_factor };
                plain.zip(divisors).map(|(f, divisor)| f / divisor).collect()
            }
        };
        Frequencies { inv_freq, factor, head_dim }
    }
}

impl Llama3 {
    /// A frequency whose wave is long against the original context is divided by the factor, one whose wave is short is
    /// not, and between them goes a straight line.
    fn scale_frequency(&self, f: f32) -> f32 {
        let context = self.original_max_position_embeddings as f32;
        let wave = 2.0 * std::f32::consts::PI / f;
        if wave < context / self.high_freq_factor {
            return f;
        }
        if wave > context / self.low_freq_factor {
            return f / self.factor;
        }
        let smooth = (context / wave - self.low_freq_factor)
            / (self.high_freq_factor - self.low_freq_factor);
        (1.0 - smooth) * f / self.factor + smooth * f
    }
}

impl Yarn {
    /// Divides low frequencies by the factor, keeps high ones, and goes in a straight line between them. `n` elements are
    /// rotated, `c` is the original context:
    ///
    /// ```text
    /// bound(β) = n ln(c / (2 π β)) / (2 ln theta),   low = bound(beta_fast),   high = bound(beta_slow)
    /// rᵢ = clip((i − low) / (high − low), 0, 1),   fᵢ ← fᵢ rᵢ / factor + fᵢ (1 − rᵢ)
    /// ```
    fn scale_frequencies(&self, mut frequencies: Vec<f32>, theta: f64) -> Vec<f32> {
        let n = 2.0 * frequencies.len() as f64;
        let mut low = self.bound(self.beta_fast, n, theta);
        let mut high = self.bound(self.beta_slow, n, theta);
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(n - 1.0));
        if low == high {
            high += 0.001;
        }
        for (i, f) in frequencies.iter_mut().enumerate() {
            let ramp = (((i as f64 - low) / (high - low)) as f32).clamp(0.0, 1.0);
            *f = *f / self.factor as f32 * ramp + *f * (1.0 - ramp);
        }
        frequencies
    }

    /// Returns the index of the frequency that rotates so often in the original context.
    fn bound(&self, rotations: f64, n: f64, theta: f64) -> f64 {
        let context = self.original_max_position_embeddings as f64;
        let waves = context / (rotations * 2.0 * std::f64::consts::PI);
        n * libm::log(waves) / (2.0 * libm::log(theta))
    }

    /// Returns the usual factor of cosines and sines, with a coefficient of its growth.
    ///
    /// ```text
    /// m(s, c) = 0.1 c ln s + 1,   1 if s ≤ 1
    /// ```
    pub(crate) fn usual_factor(scale: f64, coefficient: f64) -> f64 {
        if scale <= 1.0 { 1.0 } else { 0.1 * coefficient * libm::log(scale) + 1.0 }
    }
}

impl LongRope {
    /// Returns the usual factor of cosines and sines for a context that grew by a factor.
    ///
    /// ```text
    /// sqrt(1 + ln F / ln original),   1 if F ≤ 1
    /// ```
    pub(super) fn usual_factor(growth: f64, original: usize) -> f64 {
        if growth <= 1.0 {
            return 1.0;
        }
        (1.0 + libm::log(growth) / libm::log(original as f64)).sqrt()
    }
}
