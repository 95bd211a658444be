//! Training.

mod interrupt;
mod progress;
mod summary;

pub use interrupt::Interrupt;
pub use progress::{Progress, Silent, StepLine, stderr};
pub use summary::{Evaluation, Score, Summary};
