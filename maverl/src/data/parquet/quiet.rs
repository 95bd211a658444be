//! Conversion of a library's panics to errors, without output on standard error.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while panics of this thread are caught and not printed.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs work and converts its panic to an error. The panic hook stays active for every other thread, and for this one
/// afterwards.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                print(panic);
            }
        }));
    });
    let before = CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    done.map_err(|_| "the reader of Parquet cannot make sense of it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_next_one_is_printed_again() {
        assert_eq!(caught(|| 3), Ok(3));
        assert!(caught(|| panic!("inside")).is_err());
        assert!(!CAUGHT.get());
    }
}
