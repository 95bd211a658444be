//! Operations of a model on a machine: arguments and grids of the kernels in [`MODEL`].
//!
//! Activations are the bits of bf16, the residual stream and gradients of weights f32. Results have the same bits in
//! any batch, in the forward pass: the order of a sum depends on the shapes of a row and a weight alone.
#![expect(clippy::needless_pass_by_value, reason = "who passes a slice for writing gives it up")]

mod attention;
mod cached;
mod decoding;
mod elementwise;
mod embedding;
mod head;
mod optimizer;
mod products;
mod rows;
mod softmax;

pub use attention::{AttentionLayout, BackwardLayout};
pub use cached::{BlockTables, KvShape};
pub use decoding::DecodingPass;
pub use elementwise::{HeadNorm, Positions, RopeTables};
pub use embedding::EmbeddingLayout;
pub use head::HeadInput;
pub use optimizer::Master;
pub use products::{
    AdapterTerms, Destination, LinearOutput, MapOutput, count_pieces, fit_one_launch,
};
pub use rows::RowSources;
pub use softmax::{FROM_HOST, LogProbabilities, SampledTokens, SoftmaxRows};

use super::{Kernels, LaunchShape, Machine, Module, RecordedLaunch};

const DEVICE: &str = include_str!("device.cuh");

/// The kernels of a model.
pub const MODEL: [Module; 4] = [
    Module {
        name: "elementwise.cu",
        source: &[DEVICE, include_str!("elementwise.cu")],
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
        source: &[DEVICE, include_str!("attention.cu"), include_str!("attention_back.cu")],
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
