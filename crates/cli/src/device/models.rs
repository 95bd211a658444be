//! Shapes of the measured models, and limits of known devices.

use maverl_kernels::attention::Heads;
use maverl_kernels::cuda::speed::MeasuredSizes;

use super::args::ModelSize;
use maverl::files::create;

/// Context of the measured models.
const CONTEXT: usize = 4096;

impl ModelSize {
    /// Returns the shape of the model.
    pub(super) fn shape(self) -> create::Size {
        let [hidden, layers, q, kv, intermediate] = match self {
            Self::Half => [896, 24, 14, 2, 4864],
            Self::OneAndAHalf => [1536, 28, 12, 2, 8960],
            Self::Three => [2048, 36, 16, 2, 11008],
            Self::Seven => [3584, 28, 28, 4, 18944],
        };
        create::Size {
            vocab_size: 151_936,
            hidden_size: hidden,
            num_hidden_layers: layers,
            num_attention_heads: q,
            num_key_value_heads: kv,
            intermediate_size: intermediate,
            max_position_embeddings: CONTEXT,
        }
    }

    /// Returns its sizes for the measurement of kernels.
    pub(super) fn sizes(self) -> MeasuredSizes {
        let name = match self {
            Self::Half => "0.5b",
            Self::OneAndAHalf => "1.5b",
            Self::Three => "3b",
            Self::Seven => "7b",
        };
        let shape = self.shape();
        let dim = shape.hidden_size / shape.num_attention_heads;
        let heads = Heads::new(shape.num_attention_heads, shape.num_key_value_heads, dim);
        MeasuredSizes {
            name,
            hidden: shape.hidden_size,
            intermediate: shape.intermediate_size,
            heads,
            vocab: shape.vocab_size,
        }
    }
}

/// Dense peaks of products in bf16 with sums in f32, in TFLOP/s, by a part of the name. From data sheets; the first
/// match counts.
const PEAKS: [(&str, f64); 14] = [
    ("H100 PCIe", 756.0),
    ("H100", 989.0),
    ("H200", 989.0),
    ("GH200", 989.0),
    ("B200", 2250.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("A40", 149.7),
    ("A10", 125.0),
    ("L40S", 362.0),
    ("L4", 121.0),
    ("RTX 5090", 209.5),
    ("RTX 4090", 165.2),
    ("RTX 3090", 71.0),
];

/// Returns the peak of a device, if its name is known.
pub(super) fn peak(name: &str) -> Option<f64> {
    PEAKS.iter().find(|(part, _)| name.contains(part)).map(|(_, peak)| *peak)
}

/// Counts of a model with a tied head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counts {
    pub(super) parameters: f64,
    pub(super) head: f64,
    /// Bytes of keys and values of a token.
    pub(super) kv: f64,
    /// Layers times the width of all query heads.
    pub(super) attention: f64,
    pub(super) vocab: f64,
    /// Bytes of activations of a token that an update keeps, without checkpointing.
    pub(super) kept: f64,
}

impl Counts {
    pub(super) fn of(size: create::Size) -> Self {
        let dim = size.hidden_size / size.num_attention_heads;
        let (d, layers) = (size.hidden_size, size.num_hidden_layers);
        let (q, kv) = (size.num_attention_heads * dim, size.num_key_value_heads * dim);
        let layer = d * (2 * q + 2 * kv) + q + 2 * kv + 3 * d * size.intermediate_size + 2 * d;
        let head = size.vocab_size * d;
        Self {
            parameters: (layers * layer + head + d) as f64,
            head: head as f64,
            kv: (4 * layers * kv) as f64,
            attention: (layers * q) as f64,
            vocab: size.vocab_size as f64,
            kept: (layers
                * (8 * d
                    + 4 * q
                    + 4 * kv
                    + 4 * size.num_attention_heads
                    + 4 * size.intermediate_size)) as f64,
        }
    }

    /// Returns the operations of training on a token of a row of `row` tokens: six for each weight, and causal attention.
    pub(super) fn training(&self, row: f64) -> f64 {
        6.0 * self.parameters + 6.0 * row * self.attention
    }

    /// Returns the seconds that decoding a token of each of `rows` sequences of `context` tokens takes at least, by a
    /// memory of `bandwidth` bytes a second and products of `peak` operations a second.
    pub(super) fn floor(&self, rows: f64, context: f64, [bandwidth, peak]: [f64; 2]) -> f64 {
        let weights = (2.0 * self.parameters / bandwidth).max(2.0 * self.parameters * rows / peak);
        let logits = 8.0 * rows * self.vocab / bandwidth;
        weights + rows * context * self.kv / bandwidth + logits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn counts_are_those_of_the_published_models() {
        let parameters = |size: ModelSize| Counts::of(size.shape()).parameters;
        assert_eq!(parameters(ModelSize::Half), 494_032_768.0);
        assert_eq!(parameters(ModelSize::OneAndAHalf), 1_543_714_304.0);
        assert_eq!(parameters(ModelSize::Three), 3_085_938_688.0);
        let half = Counts::of(ModelSize::Half.shape());
        assert_eq!(half.kv, 12_288.0);
        assert!((0.73e6..0.75e6).contains(&half.kept), "{}", half.kept);
        // 256 rows of 1024 tokens on an H200: about a millisecond.
        let floor = half.floor(256.0, 1024.0, [4.3e12, 790e12]);
        assert!((1.0e-3..1.3e-3).contains(&floor), "{floor}");
        assert_eq!(peak("NVIDIA H100 80GB HBM3"), Some(989.0));
        assert_eq!(peak("NVIDIA H100 PCIe"), Some(756.0));
        assert_eq!(peak("NVIDIA A100-SXM4-80GB"), Some(312.0));
        assert_eq!((peak("NVIDIA L4"), peak("NVIDIA L40S")), (Some(121.0), Some(362.0)));
        assert_eq!(peak("NVIDIA A2"), None);
    }
}
