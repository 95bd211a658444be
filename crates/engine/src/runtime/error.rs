//! Errors of the runtime.

use crate::files::ModelError;

/// Error of the runtime.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A worker's thread ended: a bug of this library, or memory ran out.
    #[error("worker group `{worker}` is gone: {reason}")]
    Gone {
        /// Name of the worker group.
        worker: String,
        /// Panic message, if known.
        reason: String,
    },
    /// The system refused to start the threads of the kernels.
    #[error("`runtime.threads` is {threads}: {reason}")]
    Threads {
        /// Requested number of threads; 0 is one per core.
        threads: usize,
        /// Message of the system.
        reason: String,
    },
    /// The device cannot be opened, or cannot run the worker groups.
    #[error("`{key}` is \"{device}\": {reason}")]
    Device {
        /// Key that asks for the device: `runtime.device`, or that of a worker group.
        key: String,
        /// Name of the device.
        device: String,
        /// Reasons, with remedies.
        reason: String,
    },
    /// The environment variable `MAVERL_SIMD` is invalid.
    #[error(transparent)]
    Simd(#[from] maverl_kernels::simd::PathError),
    /// The model could not be loaded, run or saved.
    #[error("worker group `{worker}`: {source}")]
    Model {
        /// Name of the worker group.
        worker: String,
        /// Error of the model.
        source: ModelError,
    },
    /// Worker groups are to divide among ranks what they do not divide.
    #[error("`dist.shard` is \"{shard}\", and {reason}: \"none\" or \"optimizer\"")]
    Shard {
        /// Value of the option.
        shard: &'static str,
        /// Part that is not divided.
        reason: String,
    },
    /// Two policies have one name, by which checkpoints and seeds know them.
    #[error("two policies are named `{policy}`; give each a name of its own")]
    Duplicate {
        /// The name.
        policy: String,
    },
    /// A loss or gradient is not finite; the optimizer step that would have used it was not taken.
    #[error(
        "policy `{policy}`: {what} is not finite; the optimizer step was not taken. A smaller `optim.lr` or \
         `optim.grad_clip` usually helps"
    )]
    NotFinite {
        /// Name of the policy.
        policy: String,
        /// Name of the number.
        what: String,
    },
    /// A loss is not finite with products in f16; the optimizer step that would have used it was not taken.
    #[error("policy `{policy}`: {what} is not finite{}; no scale of the loss helps: bf16 or f32", overflowed(*.layer))]
    LossBeyondF16 {
        /// Name of the policy.
        policy: String,
        /// Name of the loss.
        what: String,
        /// First layer whose result is not finite, if this process has found it.
        layer: Option<usize>,
    },
    /// A gradient overflows in f16, and the scale of the loss is 1 already.
    #[error("policy `{policy}`: {what} overflow at a loss scale of 1: bf16 or f32")]
    SmallestLossScale {
        /// Name of the policy.
        policy: String,
        /// Name of the gradients.
        what: String,
    },
    /// A prompt does not fit the context.
    #[error("a prompt of {prompt} tokens leaves no room in a context of {context}")]
    Overflow {
        /// Length of the prompt.
        prompt: usize,
        /// Context of the model.
        context: usize,
    },
    /// A request does not fit the memory for keys and values, even alone.
    #[error(
        "worker group `{worker}`: a request of up to {tokens} tokens, where `runtime.kv_mib` has room for the keys and \
         values of {capacity}; raise it, or lower `sampling.max_tokens`"
    )]
    Memory {
        /// Name of the worker group.
        worker: String,
        /// Tokens of the prompt and of the longest completion.
        tokens: usize,
        /// Tokens that fit.
        capacity: usize,
    },
    /// The grammar of a request allows no token, or takes too long.
    #[error("the grammar of the request: {problem}")]
    Grammar {
        /// Description of the problem.
        problem: String,
    },
    /// A generator in the place of a worker group gave no completion.
    #[error("policy `{policy}`: {problem}")]
    Generator {
        /// Name of the policy.
        policy: String,
        /// Description of the problem.
        problem: String,
    },
}

/// Returns the layer in which an activation overflowed, in parentheses.
fn overflowed(layer: Option<usize>) -> String {
    layer.map_or_else(String::new, |layer| {
        format!(" (layer {layer}: activation beyond 65,504 in f16)")
    })
}

impl ModelError {
    /// Converts the error to one of a worker group.
    pub(super) fn in_worker(self, worker: impl Into<String>) -> RuntimeError {
        RuntimeError::Model { worker: worker.into(), source: self }
    }
}
