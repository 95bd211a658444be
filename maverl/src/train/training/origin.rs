//! Parts of the origin of a run: its devices, the files it depends on, its plan in numbers.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::run_dir::RunDirError;
use crate::run_dir::disk::hash_bytes;
use crate::run_dir::error::At;
use crate::runtime::{DeviceChoice, Policy, Runtime};
use crate::train::error::TrainError;

/// Returns the hash of each file that the orchestra depends on, by its name.
pub(crate) fn source_hashes(
    plan: &Plan,
    names: Vec<String>,
) -> Result<Vec<(String, String)>, TrainError> {
    let mut hashes = Vec::new();
    for name in names {
        let path = plan.base.join(&name);
        let bytes = std::fs::read(&path).at("read", &path)?;
        hashes.push((format!("source {name}"), hash_bytes(&bytes)));
    }
    Ok(hashes)
}

/// Returns the tokenizer of each policy as JSON, by name.
pub(crate) fn tokenizer_texts(policies: &[Policy]) -> Result<BTreeMap<String, String>, TrainError> {
    let mut texts = BTreeMap::new();
    for policy in policies {
        let name = policy.name().to_owned();
        let json = policy.tokenizer().to_json();
        let json = json.map_err(|source| TrainError::Tokenizer { policy: name.clone(), source })?;
        texts.insert(name, json);
    }
    Ok(texts)
}

/// Returns the number of threads of a run.
pub(crate) fn used_threads(plan: &Plan) -> usize {
    match plan.config.runtime.threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    }
}

/// Returns the plan in numbers, with the names that have no numbers: seats of endpoints, and environments.
pub(crate) fn plan_numbers(plan: &Plan) -> serde_json::Value {
    let endpoints = plan.endpoints.iter();
    let endpoints = endpoints.map(|of| serde_json::json!({ "seat": of.seat, "endpoint": of.name }));
    let mut summary = plan.summary();
    for worker in &mut summary.workers {
        // As it is written, so that the file does not depend on the directory of the command.
        if let Some(model) = plan.config.models.get(&worker.model) {
            worker.path.clone_from(&model.path);
        }
    }
    serde_json::json!({
        "summary": summary,
        "endpoints": endpoints.collect::<Vec<_>>(),
        "environment": plan.environment.name,
        "environments": plan.environments.keys().collect::<Vec<_>>(),
    })
}

/// Returns the device of the models, and after it each worker group that has another.
pub(crate) fn runtime_devices(runtime: &Runtime) -> String {
    let own = runtime.worker_devices().filter(|of| of.name != runtime.device());
    let own = own.map(|of| format!("; worker group `{}`: {}", of.worker, of.name));
    std::iter::once(runtime.device().to_owned()).chain(own).collect()
}

/// Returns the CPU with the vector instructions in use, as in `cpu x86_64 linux, avx2`, after the device of the models if
/// that is another; then each worker group that is on another device.
pub(crate) fn origin_device(runtime: &Runtime) -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let simd = maverl_kernels::simd::select_path()
        .map_or_else(|error| error.to_string(), |path| path.to_string());
    let cpu = format!("cpu {arch} {os}, {simd}");
    let own = runtime.worker_devices().filter(|of| of.device != runtime.resolved_device());
    let own = own.map(|of| match of.device {
        DeviceChoice::Cpu => format!("; worker group `{}`: cpu", of.worker),
        _ => format!("; worker group `{}`: {}", of.worker, of.name),
    });
    let shared = match runtime.device() {
        device if device.starts_with("cpu") => cpu,
        device => format!("{device}; {cpu}"),
    };
    std::iter::once(shared).chain(own).collect()
}

/// Returns the absolute path of the directory that paths of a configuration are relative to.
pub(crate) fn absolute_base(base: &Path) -> Result<PathBuf, RunDirError> {
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    std::path::absolute(base).at("find", base)
}
