//! Operations of a model on a machine: arguments and grids of the kernels in [`MODEL`].
//!
//! Activations are the bits of bf16, the residual stream and gradients of weights f32. Results have the same bits in
//! any batch, in the forward pass: the order of a sum depends on the shapes of a row and a weight alone.
#![expect(clippy::needless_pass_by_value, reason = "who passes a slice for writing gives it up")]

mod attention;
mod cached;
mod decoding;
mod delta;
mod elementwise;
mod embedding;
mod experts;
mod gates;
mod head;
mod optimizer;
mod parts;
mod products;
mod recurrent;
mod rows;
mod scores;
mod softmax;

pub use attention::{AttentionLayout, BackwardLayout, SinksBack};
pub use cached::{BlockTables, KvShape};
pub use decoding::DecodingPass;
pub use delta::{DeltaGates, DeltaLayout, DeltaSlices, DeltaTargets, LARGEST_KEY, state_words};
pub use elementwise::{HeadNorm, Positions, RopeTables};
pub use embedding::EmbeddingLayout;
pub use experts::ChoiceRows;
pub use head::HeadInput;
pub use optimizer::Master;
pub use parts::{Gains, TurnedHeads};
pub use products::{
    AdapterTerms, Destination, LinearOutput, MapOutput, count_pieces, fit_one_launch,
};
pub use recurrent::{ConvInput, ConvLayout, StateLayout, tokens_before};
pub use rows::RowSources;
pub use scores::HEAD_DIMS;
pub use softmax::{FROM_HOST, LogProbabilities, SampledTokens, SoftmaxRows};

use super::{Kernels, LaunchShape, Machine, Module, RecordedLaunch};

const DEVICE: &str = include_str!("device.cuh");
const ROWS: &str = include_str!("rows.cuh");
const ATTENTION: &str = include_str!("attention.cu");
const ATTENTION_BACK: &str = include_str!("attention_back.cu");

/// The kernels of a model.
pub const MODEL: [Module; 9] = [
    Module {
        name: "elementwise.cu",
        source: &[DEVICE, ROWS, include_str!("elementwise.cu")],
        kernels: &[
            "gather",
            "scatter",
            "scatter_merge",
            "rms_norm",
            "rms_norm_wide",
            "rms_norm_back",
            "sum_rows",
            "sum_rows_bf16",
            "rope",
            "rope_back",
            "swiglu",
            "swiglu_back",
            "adamw",
            "squares",
            "sum_f64",
            "axpy",
            "round_to_bf16",
            "combine_rows",
            "copy",
        ],
    },
    Module {
        name: "products.cu",
        source: &[DEVICE, include_str!("products.cu")],
        kernels: &[
            "product_nt_16",
            "product_nt_64",
            "product_nt_128",
            "product_nt_128_pieces",
            "product_nn_64",
            "product_nn_128",
            "product_tn_64",
            "product_tn_128",
            "add_pieces",
            "products_nt_16",
            "products_nt_64",
            "add_map_pieces",
        ],
    },
    Module {
        name: "attention.cu",
        source: &[DEVICE, ATTENTION, ATTENTION_BACK],
        kernels: &[
            "attend_32",
            "attend_64",
            "attend_128",
            "attend_cached_32",
            "attend_cached_64",
            "attend_cached_128",
            "attend_one_32",
            "attend_one_64",
            "attend_one_128",
            "attend_merge",
            "append_kv",
            "attend_delta",
            "attend_dq_32",
            "attend_dq_64",
            "attend_dq_128",
            "attend_dkv_32",
            "attend_dkv_64",
            "attend_dkv_128",
        ],
    },
    Module {
        name: "softmax.cu",
        source: &[DEVICE, include_str!("softmax.cu")],
        kernels: &["softmax_partials", "softmax_rows", "softmax_back", "choose", "sampled_ids"],
    },
    Module {
        name: "scored.cu",
        source: &[
            DEVICE,
            "#define MORE_SCORES\n",
            ATTENTION,
            ATTENTION_BACK,
            include_str!("scored.cu"),
        ],
        kernels: &[
            "attend_scored_32",
            "attend_scored_64",
            "attend_scored_96",
            "attend_scored_128",
            "attend_scored_256",
            "attend_cached_scored_32",
            "attend_cached_scored_64",
            "attend_cached_scored_96",
            "attend_cached_scored_128",
            "attend_cached_scored_256",
            "attend_one_scored_32",
            "attend_one_scored_64",
            "attend_one_scored_96",
            "attend_one_scored_128",
            "attend_one_scored_256",
            "attend_dq_scored_32",
            "attend_dq_scored_64",
            "attend_dq_scored_96",
            "attend_dq_scored_128",
            "attend_dq_scored_256",
            "attend_dkv_scored_32",
            "attend_dkv_scored_64",
            "attend_dkv_scored_96",
            "attend_dkv_scored_128",
            "attend_dkv_scored_256",
            "attend_sinks_back",
        ],
    },
    Module {
        name: "experts.cu",
        source: &[DEVICE, ROWS, include_str!("experts.cu")],
        kernels: &[
            "gather_choices",
            "sum_choices",
            "multiply_choices",
            "clamped_gate",
            "clamped_gate_back",
            "add_gated_rows",
            "gated_rows_back",
        ],
    },
    Module {
        name: "parts.cu",
        source: &[DEVICE, ROWS, include_str!("parts.cu")],
        kernels: &[
            "norm_stream",
            "norm_act",
            "norm_onto",
            "norm_stream_back",
            "norm_act_back",
            "norm_onto_back",
            "turn_heads",
            "turn_heads_back",
            "scale_queries",
            "copy_columns",
            "geglu",
            "geglu_back",
            "apply_gate",
            "apply_gate_back",
            "multiply",
            "silu",
            "silu_back",
            "scale_stream",
            "sum_onto",
            "cap_logits",
            "cap_logits_back",
        ],
    },
    Module {
        name: "recurrent.cu",
        source: &[DEVICE, ROWS, include_str!("recurrent.cu")],
        kernels: &[
            "convolve",
            "convolve_cached",
            "advance_past",
            "convolve_back",
            "convolve_weights_back",
        ],
    },
    Module {
        name: "delta.cu",
        source: &[DEVICE, ROWS, include_str!("delta.cu")],
        kernels: &[
            "normalize_keys",
            "normalize_keys_back",
            "delta_gates",
            "delta_gates_back",
            "delta_rule",
            "delta_rule_cached",
            "delta_rule_back",
            "delta_keys_back",
        ],
    },
];

impl<M: Machine> Kernels<M> {
    /// Runs a kernel of [`MODEL`].
    #[allow(unsafe_code)]
    fn run_model_kernel(
        &self,
        kernel: &'static str,
        shape: LaunchShape,
        args: &[u64],
    ) -> Result<(), M::Error> {
        if let Some(recorder) = &self.recorder {
            recorder.add_launch(RecordedLaunch { kernel, shape, args: args.to_vec() });
            return Ok(());
        }
        // SAFETY: all callers are in this module. They pass the arguments that the kernel of that name declares, and
        // assert that slices are as long as its shapes say; indices in arrays are checked where those are made.
        unsafe { self.machine.launch_kernel(kernel, shape, args) }
    }
}

#[doc(hidden)]
pub mod tests;
