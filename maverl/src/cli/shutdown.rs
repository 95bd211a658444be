//! End of the runtime that a command ran on.

use std::panic::{set_hook, take_hook};
use std::sync::Once;

use tokio::runtime::Runtime;

/// Shuts a runtime down without waiting: an environment may block a thread forever, and its episode was abandoned.
///
/// A task that sets a timer meanwhile panics in tokio. The task is dropped anyway, so this panic is not printed.
pub(super) fn shut_down(runtime: Runtime) {
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
