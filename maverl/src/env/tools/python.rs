//! The tool `python`: programs in the sandbox.

use std::sync::Arc;

use futures::future::BoxFuture;
use maverl_sandbox::{Output, ProgramLimits, Sandbox};
use tokio::sync::Semaphore;

use super::PythonOptions;
use super::provider::{CallContext, CallFailure, ToolProvider, blocking, text, tool_of_text};
use crate::env::EnvError;
use crate::env::options::{program_limits, program_places, sandbox_error};
use crate::tools::{Call, Tool};

/// Maximum output of a program in bytes, far above what is shown.
const OUTPUT: usize = 64 << 10;
/// Number of final lines of an error that are shown.
const LINES: usize = 8;

/// A sandbox with a limit on concurrent programs.
pub(super) struct PythonTool {
    sandbox: Arc<Sandbox>,
    limits: ProgramLimits,
    places: Arc<Semaphore>,
}

impl PythonTool {
    pub(super) fn new(options: &PythonOptions) -> Result<Self, EnvError> {
        let PythonOptions { command, strict, seconds, memory_mib, parallel } = options;
        let limits = program_limits("python.", *seconds, *memory_mib)?;
        let limits = ProgramLimits { output: OUTPUT, ..limits };
        let names = ["python.command", "python.strict"];
        let sandbox = Sandbox::new(command, *strict)
            .map_err(|error| sandbox_error(&error, names, *strict))?;
        Ok(Self { sandbox: Arc::new(sandbox), limits, places: program_places(*parallel) })
    }

    /// Returns the warnings about missing layers of this machine's sandbox, and their consequences.
    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = self.sandbox.protection_gaps().into_iter();
        warnings.map(|warning| format!("the sandbox of `python` {warning}")).collect()
    }
}

impl ToolProvider for PythonTool {
    fn tools(&self) -> Vec<Tool> {
        vec![tool_of_text("python", "Runs a Python program and shows what it prints.", "code")]
    }

    fn call<'a>(
        &'a self,
        _: CallContext<'a>,
        call: Call,
    ) -> BoxFuture<'a, Result<String, CallFailure>> {
        Box::pin(async move {
            let place = Arc::clone(&self.places).acquire_owned().await;
            let place = place.expect("nobody closes the semaphore of programs");
            let (sandbox, limits) = (Arc::clone(&self.sandbox), self.limits);
            let code = text(&call, "code").to_owned();
            let output = blocking(move || {
                let output = sandbox.run(&code, &[], &limits);
                drop(place);
                output
            });
            let output = output.await?.map_err(|error| EnvError::new(error.to_string()))?;
            output_text(&output)
        })
    }
}

/// Returns the output of a program, and its error if it failed.
fn output_text(output: &Output) -> Result<String, CallFailure> {
    let [printed, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let printed = printed.trim_end();
    if output.succeeded() {
        let printed = if printed.is_empty() { "(it prints nothing)" } else { printed };
        return Ok(printed.to_owned());
    }
    let lines: Vec<&str> = errors.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let parts = [format!("the program {}", output.ending), last, printed.to_owned()];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Err(CallFailure::Call(parts.join("\n")))
}
