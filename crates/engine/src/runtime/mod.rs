//! Worker groups and the policies on them: generation and updates on one base.
//!
//! - **RT-1** An update is a barrier: it runs after all generations sent before it, and before all sent after it.
//! - **RT-2** Every completion carries the number of updates of its policy.
//! - **RT-3** A worker's panic resolves every pending call to [`RuntimeError::Gone`].
//! - **K-1** A completion never depends on the other requests in a batch, to the bit.

mod adapter;
mod batch;
mod checkpoint;
mod columns;
mod critic;
mod device;
mod direct;
mod engine;
mod error;
mod generator;
mod grammar;
mod host;
mod loss_scale;
mod memory;
#[cfg(feature = "cuda")]
mod nccl;
mod optim;
mod optimizer;
mod packed;
#[cfg(any(feature = "cuda", feature = "candle"))]
mod parity;
mod pass;
mod peers;
mod policy;
mod pools;
#[cfg(feature = "cuda")]
mod predict;
mod queue;
mod request;
mod sharded;
mod snapshots;
mod spec;
mod start;
mod stats;
mod trainer;
mod training_host;
mod watch;
mod work;
mod worker;

pub use crate::message::{Finish, Routes};
pub use adapter::{AdapterSpec, LoraSpec, TargetModules};
pub use batch::{
    Batch, CustomSurrogate, Objective, ObservedText, Row, TeacherTokens, ValueBatch, ValueRow,
    ValueTarget, ValueText,
};
pub use checkpoint::PolicyCopy;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use device::DeviceKernels;
pub use device::{DeviceChoice, WorkerDevice};
pub use direct::{Scores, complete, score};
#[doc(hidden)]
pub use generator::{Generating, Generator};
pub use grammar::{Grammar, GrammarState};
pub use host::{Host, KvBlocks, LoadedModel, ModelHost};
pub use loss_scale::{LossScaleOptions, ScaleStats};
#[cfg(feature = "cuda")]
pub use maverl_dist::NcclOptions;
pub use maverl_dist::Shard;
pub use optim::{OptimOptions, OptimizerKind, Schedule};
pub use packed::TopTokens;
#[cfg(any(feature = "cuda", feature = "candle"))]
#[doc(hidden)]
pub use parity::{StepDifference, compare_step};
pub use policy::Policy;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub use predict::{MemoryPlan, Workload, predict};
pub use request::{Completion, Request, Sampling};
pub use spec::{
    CriticSpec, Dtype, Normalize, PolicySpec, RuntimeOptions, SavedMoments, Trunk, WorkerSpec,
};
#[doc(hidden)]
pub use spec::{LARGE, LoraConfig, LossScaleConfig, MANY, OptimConfig, REPLY, SamplingConfig};
pub use start::Runtime;
pub use stats::{
    DivergenceStats, LayerLoad, ObservationStats, PairStats, RouterStats, SharedTokens,
    UpdateStats, ValueStats,
};
#[doc(hidden)]
pub use training_host::{PassResult, TrainedModel, TrainingHost};
pub use watch::{Step, Watch};
pub use {columns::TokenColumns, critic::Scale, error::RuntimeError};
pub use {memory::giving_back, work::EngineStats};

#[cfg(test)]
mod tests;
