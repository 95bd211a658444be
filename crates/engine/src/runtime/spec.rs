//! Options of a runtime: its worker groups, their policies, and the machine.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use maverl_kernels::adamw::AdamW;
use maverl_kernels::matmul::Precision;
use serde_json::{Map, Value};

use crate::loss::ValueLimits;
use crate::model::lora::{Patterns, linear_names};
use crate::model::{HeadKind, HfConfig, LoraConfig, ModelSource};
use crate::runtime::DeviceChoice;
#[cfg(feature = "cuda")]
use crate::runtime::NcclOptions;

/// Options of the machine and of all worker groups. Results depend on `seed` and on the kinds of devices.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RuntimeOptions {
    /// Seed from which new adapters are initialized.
    pub seed: u64,
    /// Device of worker groups without one of their own.
    pub device: DeviceChoice,
    /// Threads of the numeric kernels; 0 is one per core.
    pub threads: usize,
    /// Maximum number of concurrent requests of a worker group.
    pub max_requests: NonZeroUsize,
    /// Maximum number of prompt tokens per forward pass.
    pub prefill_tokens: NonZeroUsize,
    /// Maximum memory for keys and values of a worker group, in MiB. When it is full, requests wait or are recomputed.
    pub kv_mib: NonZeroUsize,
    /// True to compute common prefixes of prompts once.
    pub prefix_cache: bool,
    /// True to record passes of decoding on a device, and to replay them as graphs.
    pub graphs: bool,
    /// Maximum number of tokens of a training micro-batch.
    pub micro_batch_tokens: NonZeroUsize,
    /// True to divide the moments of the optimizers among ranks (ZeRO-1).
    pub shard_optimizer: bool,
    /// NCCL between the GPUs of ranks; `None` for their other connection.
    #[cfg(feature = "cuda")]
    pub nccl: Option<NcclOptions>,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            device: DeviceChoice::Cpu,
            threads: 0,
            max_requests: NonZeroUsize::MIN.saturating_add(511),
            prefill_tokens: NonZeroUsize::MIN.saturating_add(4095),
            kv_mib: NonZeroUsize::MIN.saturating_add(4095),
            prefix_cache: true,
            graphs: true,
            micro_batch_tokens: NonZeroUsize::MIN.saturating_add(4095),
            shard_optimizer: false,
            #[cfg(feature = "cuda")]
            nccl: None,
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
    /// Precision of matrix products. Weights, sums and gradients are f32.
    pub precision: Precision,
    /// Device of its own; `None` for that of [`RuntimeOptions::device`].
    pub device: Option<DeviceChoice>,
    /// Additional variables of the chat template.
    pub template_kwargs: Map<String, Value>,
    /// Policies on the base.
    pub policies: Vec<PolicySpec>,
}

impl WorkerSpec {
    /// Creates a worker group of one trained policy of the same name, which is the base's own weights.
    pub fn new(name: impl Into<String>, source: ModelSource) -> Self {
        let name = name.into();
        Self {
            policies: vec![PolicySpec::new(name.clone())],
            name,
            source,
            precision: Precision::F32,
            device: None,
            template_kwargs: Map::new(),
        }
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

/// Start of an adapter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AdapterSpec {
    /// A new adapter: random A, zero B.
    New(LoraSpec),
    /// The adapter of a PEFT directory, with this dropout in training.
    Load {
        /// Directory.
        dir: PathBuf,
        /// Share of the inputs of A that is dropped in training.
        dropout: f32,
    },
}

/// Shape of a new LoRA adapter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LoraSpec {
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The scale is `alpha / rank`, or `alpha / sqrt(rank)` with `rslora`.
    pub alpha: f64,
    /// Share of the inputs of A that is dropped in training.
    pub dropout: f32,
    /// Ends of the names of the linear maps with a correction; `None` is all of them.
    pub target_modules: Option<Vec<String>>,
    /// True for the rank-stabilized scale.
    pub rslora: bool,
}

impl Default for LoraSpec {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0, dropout: 0.0, target_modules: None, rslora: false }
    }
}

impl LoraSpec {
    /// Returns the configuration of the adapter on a base.
    pub fn on(&self, base: &HfConfig) -> LoraConfig {
        let mut target_modules = self.target_modules.clone().unwrap_or_else(|| linear_names(base));
        target_modules.sort();
        target_modules.dedup();
        LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            dropout: self.dropout,
            target_modules,
            rslora: self.rslora,
            patterns: Patterns::default(),
        }
    }
}

/// A critic: a value head on a trunk.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CriticSpec {
    /// Trunk under the head.
    pub trunk: Trunk,
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
            head: HeadKind::Value,
            head_rate: 1.0,
            normalize: Normalize::None,
            limits: ValueLimits { clip: 0.2, huber: 0.0 },
            value_coef: 0.1,
            optim: OptimOptions::default(),
        }
    }
}

/// Trunk under the head of a critic.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Trunk {
    /// A copy of the base, every weight of it trained.
    Own,
    /// A new adapter on the policy's base.
    Lora(LoraSpec),
    /// The policy itself. Both are updated in the same optimizer steps.
    Shared,
}

/// Normalization of value targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Normalize {
    /// None: values are in units of the reward.
    #[default]
    None,
    /// Running mean and deviation of the returns.
    Running,
    /// The same, with the head corrected for their changes, so that no value changes (PopArt).
    Popart,
}

/// Options of AdamW. The learning rate is that of each [`Batch`](super::Batch).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimOptions {
    /// Decay rates of the moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Maximum global norm of the gradient.
    pub grad_clip: f64,
}

impl Default for OptimOptions {
    fn default() -> Self {
        Self { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, grad_clip: 1.0 }
    }
}

impl OptimOptions {
    /// Returns the constants of an AdamW step, and the factor that clips a gradient of this norm.
    ///
    /// ```text
    /// factor = min(grad_clip / (norm + 1e-6), 1)
    /// ```
    pub fn step(&self, lr: f64, norm: f64) -> (AdamW, f32) {
        let Self { betas: (beta1, beta2), eps, weight_decay, grad_clip } = *self;
        let factor = (grad_clip / (norm + 1e-6)).min(1.0) as f32;
        (AdamW { lr, beta1, beta2, eps, weight_decay }, factor)
    }
}
