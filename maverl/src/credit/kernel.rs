//! CUDA C++ kernels of estimators: the source that compilers get.

use std::fmt::Write as _;

use maverl_kernels::emulate::{StepArrays, estimator_source};
use serde_json::Value;

use super::RewardedStep;

/// Largest distance of a kernel from its Rust twin, in parts of the largest advantage of the step (or of 1).
const TOLERANCE: f64 = 1e-5;

/// Source of a kernel beside an estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSource {
    /// Name of the file, as it was written in the attribute.
    pub file: &'static str,
    /// Content of the file.
    pub text: &'static str,
}

impl KernelSource {
    /// Returns what a compiler is given: declarations, the settings as constants, and the file.
    pub(crate) fn whole_source(&self, settings: &Value) -> String {
        estimator_source(&constants(settings), self.file, self.text)
    }
}

/// Returns numbers and booleans among the settings as constants of C++.
fn constants(settings: &Value) -> String {
    let mut text = "namespace settings {\n".to_owned();
    for (name, value) in settings.as_object().into_iter().flatten() {
        let (kind, value) = match value {
            Value::Bool(value) => ("bool", value.to_string()),
            Value::Number(value) if value.is_f64() => ("double", value.to_string()),
            Value::Number(value) => ("long long", value.to_string()),
            _ => continue,
        };
        let _ = writeln!(text, "constexpr {kind} {name} = {value};");
    }
    text + "}"
}

/// Returns a step as kernels read it.
pub(crate) fn arrays(step: &RewardedStep<'_>) -> StepArrays {
    StepArrays {
        rewards: narrow_values(&step.rewards),
        parts: step.parts.iter().map(|part| narrow_values(&part.values)).collect(),
        values: step
            .values
            .as_ref()
            .map(|values| values.iter().map(|row| narrow_values(row)).collect()),
        seats: narrow_ids(&step.seats),
        turns: narrow_ids(&step.turns),
        tasks: narrow_ids(&step.tasks),
        episodes: narrow_ids(&step.episodes),
        lengths: narrow_ids(&step.lengths),
        units: narrow_ids(&step.units),
        groups: narrow_ids(&step.groups),
    }
}

fn narrow_values(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn narrow_ids(ids: &[usize]) -> Vec<u32> {
    ids.iter().map(|&id| id as u32).collect()
}

/// Returns the first advantage of a kernel that differs from that of its Rust twin: its place, and both values.
pub(crate) fn difference(got: &[f32], want: &[f64]) -> Option<String> {
    let largest = want.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
    let off = got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).abs() / largest);
    // An advantage that is no number is too far from any other.
    let place = off.map(|off| off <= TOLERANCE).position(|near| !near)?;
    Some(format!("place {place}: the kernel gives {}, Rust {}", got[place], want[place]))
}
