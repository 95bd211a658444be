//! CUDA C++ kernels beside estimators: what compilers are given.

use std::fmt::Write as _;

use maverl_kernels::emulate::estimator_source;
use serde_json::Value;

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
    pub(crate) fn whole(&self, settings: &Value) -> String {
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
