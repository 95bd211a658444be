//! Options of a runtime: its worker groups, their policies, and the machine.

use std::num::NonZeroUsize;

use maverl_kernels::matmul::Precision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

// Forms in which users write options.
pub use super::adapter::LoraConfig;
pub use super::loss_scale::LossScaleConfig;
pub use super::optim::OptimConfig;
pub use super::request::{REPLY, SamplingConfig};

use crate::files::{ModelError, ModelSource};
use crate::loss::ValueLimits;
use crate::net::HeadKind;
#[cfg(feature = "cuda")]
use crate::runtime::NcclOptions;
use crate::runtime::loss_scale::LossScale;
use crate::runtime::{AdapterSpec, DeviceChoice, LoraSpec, LossScaleOptions, OptimOptions};
use crate::settings::Settings;
use maverl_dist::Shard;

/// Largest number of requests, passes, minibatches, and tasks of a step.
pub const MANY: u64 = 1 << 20;
/// Largest number of tokens of a batch, and of MiB.
pub const LARGE: u64 = 1 << 30;

/// Options of the machine and of all worker groups: `[runtime]` of a configuration. Results depend on `seed` and on the kinds
/// of devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "run", crate = crate)]
pub struct RuntimeOptions {
    /// Device of models and advantages: "cpu", "cuda", "cuda:1", "candle:cpu", "auto" or "emulated". "auto" takes the first GPU if
    /// one can be used. On a GPU, products are in bf16 and advantages in f32. "candle:cpu" runs models by the kernels of candle, in
    /// f32, for comparison: bits depend on timing. "emulated" runs a GPU's kernels on the CPU: slow, for tests. Worker groups with another device have it in `[worker_groups.NAME]`.
    #[setting(level = "team")]
    pub device: DeviceChoice,
    /// Threads of the numeric kernels; 0 is one per core. Results do not depend on it.
    #[setting(range = 0..=1024)]
    pub threads: usize,
    /// Maximum number of concurrent requests of a worker group.
    #[setting(default = 512, range = 1..=MANY)]
    pub max_requests: NonZeroUsize,
    /// Maximum number of prompt tokens that a worker group processes together in a step of generation.
    #[setting(default = 4096, range = 1..=LARGE)]
    pub prefill_tokens: NonZeroUsize,
    /// Maximum size of the KV cache of a worker group in MiB. If it is full, requests wait or are preempted and recomputed; results do not depend on it.
    #[setting(default = 4096, range = 1..=LARGE)]
    pub kv_mib: NonZeroUsize,
    /// Compute the keys and values of a common prefix of prompts once. Results do not depend on it.
    #[setting(default = true)]
    pub prefix_cache: bool,
    /// On a GPU, record passes of decoding, and replay them as CUDA graphs. Results do not depend on it.
    #[setting(default = true)]
    pub graphs: bool,
    /// Maximum number of tokens of a training micro-batch.
    #[setting(default = 4096, range = 1..=LARGE, level = "team")]
    pub micro_batch_tokens: NonZeroUsize,
    /// Seed from which new adapters are initialized.
    #[serde(skip)]
    #[setting(skip)]
    pub seed: u64,
    /// Division of models among ranks. With [`Shard::Full`], policies are on the CPU, and have no adapters and critics; worker groups are
    /// not started with [`Shard::Hybrid`].
    #[serde(skip)]
    #[setting(skip)]
    pub shard: Shard,
    /// NCCL between the GPUs of ranks; `None` for their other connection.
    #[cfg(feature = "cuda")]
    #[serde(skip)]
    #[setting(skip)]
    pub nccl: Option<NcclOptions>,
}

/// Precision of matrix products. Weights, sums and gradients of weights are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// Nothing: single precision.
    #[default]
    F32,
    /// The nearest `bf16`.
    Bf16,
    /// The nearest `f16`, with a scale of the loss ([`LossScaleOptions`](super::LossScaleOptions)).
    F16,
    /// Nothing: single precision. The weights of a frozen base stay in the blocks of its GGUF file, on a device of candle.
    File,
}

/// Moments of an optimizer in a checkpoint. Those of [`OptimizerKind::Adamw8bit`](super::OptimizerKind::Adamw8bit) keep their 8 bits,
/// or are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SavedMoments {
    /// As they are: training goes on with the same bits.
    #[default]
    F32,
    /// The nearest `bf16`, in half of the bytes.
    Bf16,
    /// None: they begin at zero again.
    None,
}

impl SavedMoments {
    /// Returns true if an update after loading has the bits of one without.
    pub fn is_exact(&self) -> bool {
        *self == Self::F32
    }
}

impl From<Dtype> for Precision {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 | Dtype::File => Self::F32,
            Dtype::Bf16 => Self::Bf16,
            Dtype::F16 => Self::F16,
        }
    }
}

/// A worker group: a base model on a thread of its own, and the policies on it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WorkerSpec {
    /// Name in messages.
    pub name: String,
    /// Source of the base's weights.
    pub source: ModelSource,
    /// Precision of matrix products.
    pub dtype: Dtype,
    /// Scale of the loss of its policies and critics, with [`Dtype::F16`].
    pub loss_scale: LossScaleOptions,
    /// Device of its own; `None` for that of [`RuntimeOptions::device`].
    pub device: Option<DeviceChoice>,
    /// Largest number of tokens of a training micro-batch; `None` for [`RuntimeOptions::micro_batch_tokens`].
    pub micro_batch_tokens: Option<NonZeroUsize>,
    /// Additional variables of the chat template.
    pub template_kwargs: Map<String, Value>,
    /// Policies on the base.
    pub policies: Vec<PolicySpec>,
    /// Number of snapshots of each policy that may be kept at once; see [`Policy::snapshot`](super::Policy::snapshot).
    pub snapshots: usize,
}

impl WorkerSpec {
    /// Creates a worker group of one trained policy of the same name, which is the base's own weights.
    pub fn new(name: impl Into<String>, source: ModelSource) -> Self {
        let name = name.into();
        Self {
            policies: vec![PolicySpec::new(name.clone())],
            name,
            source,
            dtype: Dtype::F32,
            loss_scale: LossScaleOptions::default(),
            device: None,
            micro_batch_tokens: None,
            template_kwargs: Map::new(),
            snapshots: 0,
        }
    }

    /// Returns the options of this worker group: those of all, with its own largest micro-batch.
    pub(crate) fn options(&self, all: &RuntimeOptions) -> RuntimeOptions {
        let micro_batch_tokens = self.micro_batch_tokens.unwrap_or(all.micro_batch_tokens);
        RuntimeOptions { micro_batch_tokens, ..all.clone() }
    }

    /// Creates the scale of the loss of a policy or a critic, if products are in f16.
    ///
    /// Fails if its start is no power of two.
    pub(crate) fn first_scale(&self) -> Result<Option<LossScale>, ModelError> {
        (self.dtype == Dtype::F16).then(|| LossScale::new(self.loss_scale)).transpose()
    }
}

/// A policy: the base's own weights or an adapter on it, and its training. New weights are a function of the seed and the
/// name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicySpec {
    /// Name in messages and checkpoints.
    pub name: String,
    /// True if it is updated. A frozen policy has no optimizer state.
    pub trained: bool,
    /// True to keep a frozen copy of the starting weights, for the KL.
    pub reference: bool,
    /// True to recompute activations in the backward pass instead of storing them.
    pub gradient_checkpointing: bool,
    /// Adapter on the base; `None` for the base's own weights. With adapters, the base is frozen.
    pub adapter: Option<AdapterSpec>,
    /// Critic beside the policy.
    pub critic: Option<CriticSpec>,
    /// Optimizer.
    pub optim: OptimOptions,
}

impl PolicySpec {
    /// Creates a trained policy on the base's own weights, without reference and critic.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            trained: true,
            reference: false,
            gradient_checkpointing: false,
            adapter: None,
            critic: None,
            optim: OptimOptions::default(),
        }
    }
}

/// A critic: a value head on a trunk.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CriticSpec {
    /// Trunk under the head.
    pub trunk: Trunk,
    /// Shape of the adapter with [`Trunk::Lora`].
    pub lora: LoraSpec,
    /// Kind of the head: of rewards or log-probs for a verifier.
    pub head: HeadKind,
    /// Learning rate of the head on a trunk of its own, in units of the trunk's.
    pub head_rate: f64,
    /// Normalization of value targets.
    pub normalize: Normalize,
    /// Bounds of the value loss.
    pub limits: ValueLimits,
    /// Coefficient of the value loss in a shared trunk; 0 keeps it out.
    pub value_coef: f64,
    /// Optimizer.
    pub optim: OptimOptions,
}

impl CriticSpec {
    /// Creates a critic on a trunk, with a clip of 0.2.
    pub fn new(trunk: Trunk) -> Self {
        Self {
            trunk,
            lora: LoraSpec::default(),
            head: HeadKind::Value,
            head_rate: 1.0,
            normalize: Normalize::default(),
            limits: ValueLimits { clip: 0.2, huber: 0.0 },
            value_coef: 0.1,
            optim: OptimOptions::default(),
        }
    }
}

/// Trunk under the head of a critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trunk {
    /// A copy of the model, every weight of it trained.
    #[default]
    Own,
    /// An adapter on the policy's base, which stays as it is.
    Lora,
    /// The policy itself.
    Shared,
}

/// Normalization of value targets: none, running statistics, or PopArt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Normalize {
    /// Reward.
    #[default]
    None,
    /// Deviations of the returns so far from their mean.
    Running,
    /// The same; when they move, the head moves against it, so that no value changes.
    Popart,
}
