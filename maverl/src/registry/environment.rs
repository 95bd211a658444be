//! A declared environment, and how it is created from its options.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{Build, Declaration, Entry, SourceLocation};
use crate::env::{DynEnvironment, EnvError, EnvironmentName};
use crate::task::{TaskList, parse_all};

/// A declared environment.
#[derive(Clone, Copy)]
pub struct EnvironmentEntry {
    /// Name, summary, source location, options.
    pub declaration: Declaration,
    /// Names of the actions it understands.
    pub offers: &'static [&'static str],
    /// Validates options without starting anything.
    pub check: fn(&Value) -> Result<(), String>,
    /// See [`Environment::unsuited`](crate::env::Environment::unsuited).
    pub unsuited: fn(&str) -> Option<&'static str>,
    /// See [`Environment::served`](crate::env::Environment::served). `None` if the options are invalid.
    pub served: fn(&Value) -> Option<&'static str>,
    /// Reads every task as the type that it declares, and validates them and the options: see
    /// [`Environment::validate`](crate::env::Environment::validate). Paths in options are relative to the directory.
    pub look: fn(&Value, &Path, &TaskList) -> Looked,
    /// Creates and starts the environment; paths in options are relative to the directory.
    pub start: fn(&Value, &Path) -> Started,
}

/// A started environment, or the reason that it could not start.
pub type Started = Result<Arc<dyn DynEnvironment>, EnvError>;

/// Warnings of an environment that has validated its options, or its error.
pub type Looked = Result<Vec<String>, EnvError>;

impl Entry {
    /// Creates an environment's entry.
    pub const fn environment<E: EnvironmentName + Build>(place: SourceLocation) -> Self {
        Self::Environment(EnvironmentEntry {
            declaration: Declaration::of::<E>(E::NAME, E::SUMMARY, place),
            offers: E::OFFERS,
            check: |options| E::build(options).map(drop),
            unsuited: E::unsuited,
            served: |options| E::build(options).ok()?.served(),
            look: |options, base, tasks| {
                let environment = E::build(options).map_err(EnvError)?;
                if E::READS_TASKS {
                    parse_all(E::read_task, tasks)?;
                }
                environment.validate(base, tasks)
            },
            start: |options, base| {
                let mut environment = E::build(options).map_err(EnvError)?;
                environment.start(base)?;
                Ok(Arc::new(environment))
            },
        })
    }
}
