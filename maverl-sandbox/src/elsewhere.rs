//! Where there is no Linux, there is no sandbox.

use crate::{Cover, Exam, Limits, Missing, Output, Report, SandboxError};

/// See the crate's documentation; this system has none.
#[derive(Debug)]
pub struct Sandbox {
    never: std::convert::Infallible,
}

impl Sandbox {
    /// Always [`SandboxError::Unsupported`].
    ///
    /// # Errors
    ///
    /// Always.
    pub fn new(_: &str, _: bool) -> Result<Self, SandboxError> {
        Err(SandboxError::Unsupported)
    }

    /// What this machine lacks.
    pub fn missing(&self) -> &[Missing] {
        match self.never {}
    }

    /// What holds.
    pub fn layers(&self) -> Vec<Cover> {
        match self.never {}
    }

    /// What does not hold.
    pub fn warnings(&self) -> Vec<String> {
        match self.never {}
    }

    /// Runs a program.
    ///
    /// # Errors
    ///
    /// None: there is no such value.
    pub fn run(&self, _: &str, _: &[u8], _: &Limits) -> Result<Output, SandboxError> {
        match self.never {}
    }

    /// Examines a candidate.
    ///
    /// # Errors
    ///
    /// None: there is no such value.
    pub fn examine(&self, _: &Exam<'_>, _: &Limits) -> Result<Report, SandboxError> {
        match self.never {}
    }
}
