//! Functions of a user's Python files, called in processes of their own: rewards and environments by path.
//!
//! ```text
//! PythonFile ─► source (interpreter, names, hashes)
//!        └────► PythonProcess: lines of JSON ◄─► worker.py ─► the user's function
//! PythonPool ─► several processes; whichever is idle takes the next items
//! ```
//!
//! A process is started by the interpreter of the configuration, with a cleaned environment and `PYTHONHASHSEED=0`. What the file
//! prints goes to a log. A process that ends, hangs, or breaks the protocol is killed with its group and started again. No
//! interpreter runs inside this process.

mod log;
mod pool;
mod process;
mod source;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use pool::{PoolLimits, PythonPool};
pub(crate) use source::{PythonFile, SourceError, python_sources};

/// Program of a process that computes rewards.
pub(crate) const REWARDS: &str =
    concat!(include_str!("python/worker.py"), "\n\n", include_str!("python/rewards.py"));

/// Program of a process that plays an environment.
pub(crate) const ENVIRONMENT: &str =
    concat!(include_str!("python/worker.py"), "\n\n", include_str!("python/environment.py"));
