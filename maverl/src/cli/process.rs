//! The process of a command: its exit code, and the runtime that it runs on.

use std::panic::{set_hook, take_hook};
use std::process::ExitCode;
use std::sync::{Mutex, Once, PoisonError};

use tokio::runtime::{Builder, Runtime};

use crate::cli::failure::Failure;
use crate::cli::terminal::tell;
use crate::cli::tracking::train_tracked;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::train::{Interrupt, Options, Report, TrainError};

/// Exit code of a process that was asked to stop, and has stopped.
pub(super) const STOPPED: u8 = 130;

/// Variable of a process whose standard input ends with the process that started it.
pub(super) const STARTER: &str = "MAVERL_STARTED_BY";

/// Lets this process stop in order when the process that started it ends, however that ends: the pipe of its standard input ends
/// too. Without the variable that says so, nothing happens. The death signal of Linux may come more than once.
pub fn stop_with_starter() {
    if std::env::var_os(STARTER).is_some() {
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            #[cfg(unix)]
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::TERM,
            );
        });
    }
}

/// Runs a command, and returns the exit code of the process. Wrong vector instructions (`MAVERL_SIMD`) are an error before
/// the command starts.
pub fn exit(command: impl FnOnce() -> Result<ExitCode, Failure>) -> ExitCode {
    let selected = maverl_kernels::simd::select_path().map_err(Failure::from);
    let result = selected.and_then(|_| command());
    #[cfg(feature = "mpi")]
    if result.is_ok() {
        crate::dist::leave_job();
    }
    let code = result.unwrap_or_else(|Failure(message)| {
        tell(format_args!("error: {}", message.trim_end()));
        ExitCode::FAILURE
    });
    #[cfg(feature = "mpi")]
    crate::dist::end_failed_job();
    code
}

/// Runs a future on a runtime of its own.
///
/// # Errors
///
/// Those of the future, or of starting threads.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(future);
    shut_down(runtime);
    done
}

/// Trains a plan on a runtime of its own. The first SIGINT or SIGTERM to this process interrupts the run.
///
/// # Errors
///
/// Same as [`block_on`]; also if the system refuses a handler of signals.
pub(super) fn train_until_signal(
    plan: &Plan,
    registry: &Registry,
    options: Options,
) -> Result<Result<Report, TrainError>, Failure> {
    let interrupt = process_interrupt()?;
    let options = Options { interrupt: interrupt.clone(), ..options };
    // Boxed: the state of a whole run is too large to be moved.
    let done = block_on(async { Ok(Box::pin(train_tracked(plan, registry, options)).await) });
    interrupt.end_run();
    done
}

/// Returns the interrupt that the first SIGINT or SIGTERM to this process raises. Its handler stays until the process ends, so
/// that a signal between two runs of a command stops the next one.
///
/// # Errors
///
/// If the system refuses a handler of signals or a thread.
pub(super) fn process_interrupt() -> Result<Interrupt, Failure> {
    static INTERRUPT: Mutex<Option<Interrupt>> = Mutex::new(None);
    let mut shared = INTERRUPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(interrupt) = &*shared {
        return Ok(interrupt.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let interrupt = runtime.block_on(async { Interrupt::on_signals() })?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *shared = Some(interrupt.clone());
    Ok(interrupt)
}

/// Prints the error of a run that a signal stopped before it began, and returns the exit code of the process. Ranks that this
/// process has joined over MPI end with it.
pub(super) fn report_stop(error: &TrainError) -> ExitCode {
    tell(error);
    #[cfg(feature = "mpi")]
    crate::dist::end_failed_job();
    ExitCode::from(STOPPED)
}

/// Shuts a runtime down without waiting: an environment may block a thread forever, and its episode was abandoned.
///
/// A task that sets a timer meanwhile panics in tokio. The task is dropped anyway, so this panic is not printed.
fn shut_down(runtime: Runtime) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !panic.payload_as_str().is_some_and(is_of_shutdown) {
                print(panic);
            }
        }));
    });
    runtime.shutdown_background();
}

/// Returns true for the message of tokio's panic in a task whose runtime is shut down.
fn is_of_shutdown(message: &str) -> bool {
    message.contains("context was found, but it is being shutdown")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_panic_of_a_timer_whose_runtime_was_shut_down_is_known() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let entered = runtime.enter();
        let mut timer = Box::pin(tokio::time::sleep(Duration::from_secs(60)));
        drop(entered);
        shut_down(runtime);
        let mut context = Context::from_waker(Waker::noop());
        let polled =
            catch_unwind(AssertUnwindSafe(|| timer.as_mut().poll(&mut context).is_ready()));
        let panic = polled.unwrap_err();
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap();
        assert!(is_of_shutdown(message), "{message}");
        assert!(!is_of_shutdown("index out of bounds"));
    }
}
