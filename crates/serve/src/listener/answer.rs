//! Answers of handlers that may panic.

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;

use crate::refusal::Refusal;

/// Returns the answer of a handler, also if it panics.
pub(super) async fn answer(
    handler: impl Future<Output = Result<Response, Infallible>>,
) -> Result<Response, Infallible> {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => Ok(panic_answer(&*panic)),
    }
}

/// Returns the answer of a handler that panicked; the message of the panic goes to the log alone.
fn panic_answer(panic: &(dyn Any + Send)) -> Response {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    maverl::output::tell(format_args!(
        "error {id}: a request panicked: {}",
        text.unwrap_or("(no message)")
    ));
    Refusal::internal(format!("a bug of this server; its log has the error {id}")).into_response()
}
