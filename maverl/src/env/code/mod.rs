//! Programs as answers: Python that runs in a sandbox and is judged by tests.
//!
//! A reply holds one program, the last block fenced by three backticks, or the whole reply. It is judged by the hidden
//! tests of the task, which no observation quotes; an attempt is judged by the public ones.

mod compiles;
mod entry;
mod environment;
mod judge;
mod problem;
mod reply;

pub use environment::CodeEnvironment;
pub(crate) use judge::SECONDS;
pub use judge::{CodeVerdict, Judge, Reason};
pub use problem::{Problem, Stream, Tests};
pub use reply::program;

#[cfg(test)]
mod tests;
