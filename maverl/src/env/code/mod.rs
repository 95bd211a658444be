//! Programs as answers: Python that runs in a sandbox and is judged by tests.
//!
//! A reply contains one program: its last block fenced by three backticks, or the whole reply. The program is judged by
//! the hidden tests of the task, which no observation quotes. An attempt is judged by the public tests.

mod compiles;
mod entry;
mod environment;
mod judge;
mod problem;
mod reply;
mod tolerance;

#[doc(hidden)]
pub use super::options::SECONDS;
pub use environment::CodeEnvironment;
#[doc(hidden)]
pub use judge::{CodeVerdict, Judge, Reason};
#[doc(hidden)]
pub use problem::{Problem, Stream, Tests};
#[doc(hidden)]
pub use reply::program;

#[cfg(test)]
mod tests;
