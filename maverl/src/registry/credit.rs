//! Declared estimators and surrogates.

use std::sync::Arc;

use serde_json::Value;

use super::{Build, Declaration, Entry, SourceLocation};
use crate::credit::{Advantage, CudaKernel, KernelSource, Surrogate};

/// A declared estimator of advantages.
#[derive(Clone, Copy)]
pub struct AdvantageEntry {
    /// Name, summary, place, settings.
    pub declaration: Declaration,
    /// Makes the estimator from its settings.
    pub build: fn(&Value) -> Result<Arc<dyn Advantage>, String>,
    /// CUDA C++ kernel beside it.
    pub kernel: Option<KernelSource>,
}

/// A declared surrogate.
#[derive(Clone, Copy)]
pub struct SurrogateEntry {
    /// Name, summary, place, settings.
    pub declaration: Declaration,
    /// Makes the surrogate from its settings.
    pub build: fn(&Value) -> Result<Arc<dyn Surrogate>, String>,
}

impl Entry {
    /// An estimator's entry.
    pub const fn advantage<A: Advantage + Build>(
        name: &'static str,
        summary: &'static str,
        place: SourceLocation,
    ) -> Self {
        Self::Advantage(AdvantageEntry {
            declaration: Declaration::of::<A>(name, summary, place),
            build: |settings| Ok(Arc::new(A::build(settings)?)),
            kernel: None,
        })
    }

    /// An estimator's entry, with the kernel beside it.
    pub const fn advantage_with_kernel<A: CudaKernel + Build>(
        name: &'static str,
        summary: &'static str,
        place: SourceLocation,
    ) -> Self {
        Self::Advantage(AdvantageEntry {
            declaration: Declaration::of::<A>(name, summary, place),
            build: |settings| Ok(Arc::new(A::build(settings)?)),
            kernel: Some(KernelSource { file: A::FILE, text: A::SOURCE }),
        })
    }

    /// A surrogate's entry.
    pub const fn surrogate<S: Surrogate + Build>(
        name: &'static str,
        summary: &'static str,
        place: SourceLocation,
    ) -> Self {
        Self::Surrogate(SurrogateEntry {
            declaration: Declaration::of::<S>(name, summary, place),
            build: |settings| Ok(Arc::new(S::build(settings)?)),
        })
    }
}
