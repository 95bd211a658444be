//! Options that several environments have.

use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use maverl_sandbox::{ProgramLimits, SandboxError};
use tokio::sync::Semaphore;

use super::EnvError;

use crate::client;

/// Range of the time limit of a program in seconds.
pub const SECONDS: RangeInclusive<f64> = 0.01..=3600.0;

/// Returns the key in the variable that `key_env` names, if it names one.
pub(super) fn read_key(key_env: &str) -> Result<Option<String>, EnvError> {
    client::key(key_env).map_err(EnvError)
}

/// Returns the value of `timeout_s` as a duration.
pub(super) fn read_timeout(timeout_s: f64) -> Result<Duration, EnvError> {
    let timeout = Duration::try_from_secs_f64(timeout_s).ok().filter(|it| !it.is_zero());
    timeout.ok_or_else(|| EnvError(format!("`timeout_s` is {timeout_s}; write seconds above 0")))
}

/// Returns the limits of programs. Messages name the options after `section`.
pub(super) fn program_limits(
    section: &str,
    seconds: f64,
    memory_mib: u64,
) -> Result<ProgramLimits, EnvError> {
    if !SECONDS.contains(&seconds) {
        let (least, most) = (SECONDS.start(), SECONDS.end());
        return Err(EnvError(format!("`{section}seconds` is {seconds}; write {least} to {most}")));
    }
    if !(64..=1 << 20).contains(&memory_mib) {
        return Err(EnvError(format!(
            "`{section}memory_mib` is {memory_mib}; write 64 to 1048576"
        )));
    }
    let time = Duration::from_secs_f64(seconds);
    let memory = memory_mib << 20;
    Ok(ProgramLimits { wall: time, cpu: time, memory, ..ProgramLimits::default() })
}

/// Returns the places of programs that run at a time; 0 is one for each core.
pub(super) fn program_places(parallel: usize) -> Arc<Semaphore> {
    let places = match parallel {
        0 => available_parallelism().map_or(1, NonZero::get),
        places => places,
    };
    Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)))
}

/// Returns the error of a sandbox that cannot be made, after the option that names the interpreter, or that is strict.
pub(super) fn sandbox_error(
    error: &SandboxError,
    [python, strict]: [&str; 2],
    is_strict: bool,
) -> EnvError {
    match error {
        SandboxError::Python { .. } => EnvError(format!("`{python}`: {error}")),
        SandboxError::Lacking { .. } if is_strict => EnvError(format!("`{strict}`: {error}")),
        _ => EnvError(error.to_string()),
    }
}
