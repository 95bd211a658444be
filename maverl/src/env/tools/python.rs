//! The tool `python`: programs in the sandbox.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use maverl_sandbox::{Output, ProgramLimits, Sandbox, SandboxError};
use tokio::sync::Semaphore;

use super::PythonOptions;
use super::provider::{CallContext, CallFailure, ToolProvider, blocking, text, tool_of_text};
use crate::env::EnvError;
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
        let limits = limits(options)?;
        let sandbox = Sandbox::new(&options.command, options.strict).map_err(|error| {
            let option = match error {
                SandboxError::Python { .. } => "`python.command`: ",
                SandboxError::Lacking { .. } if options.strict => "`python.strict`: ",
                _ => "",
            };
            EnvError::new(format!("{option}{error}"))
        })?;
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let places = if options.parallel == 0 { cores() } else { options.parallel };
        let places = Semaphore::new(places.min(Semaphore::MAX_PERMITS));
        Ok(Self { sandbox: Arc::new(sandbox), limits, places: Arc::new(places) })
    }

    /// Returns the warnings about missing layers of this machine's sandbox, and their consequences.
    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = self.sandbox.protection_gaps().into_iter();
        warnings.map(|warning| format!("the sandbox of `python` {warning}")).collect()
    }
}

fn limits(options: &PythonOptions) -> Result<ProgramLimits, EnvError> {
    let PythonOptions { seconds, memory_mib, .. } = *options;
    if !(seconds.is_finite() && (0.01..=3600.0).contains(&seconds)) {
        let message = format!("`python.seconds` is {seconds}; write 0.01 to 3600");
        return Err(EnvError::new(message));
    }
    if !(64..=1 << 20).contains(&memory_mib) {
        let message = format!("`python.memory_mib` is {memory_mib}; write 64 to 1048576");
        return Err(EnvError::new(message));
    }
    let time = Duration::from_secs_f64(seconds);
    let memory = memory_mib << 20;
    Ok(ProgramLimits { wall: time, cpu: time, memory, output: OUTPUT, ..ProgramLimits::default() })
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
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let printed = text(&output.stdout);
    if output.succeeded() {
        return Ok(if printed.is_empty() { "(it prints nothing)".to_owned() } else { printed });
    }
    let errors = text(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let parts = [format!("the program {}", output.ending), last, printed];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Err(CallFailure::Call(parts.join("\n")))
}
