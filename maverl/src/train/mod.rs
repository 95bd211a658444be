//! Training.

mod course;
mod error;
mod interrupt;
mod progress;
mod summary;

pub use error::TrainError;
pub use interrupt::Interrupt;
pub use progress::{Progress, Silent, StepLine, stderr};
pub use summary::{Evaluation, Report, Score, Summary};
