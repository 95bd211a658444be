//! Stub for systems other than Linux, which have no sandbox.

use crate::{Cover, Exam, ExamReport, MissingLayer, Output, ProgramLimits, SandboxError};

/// See the crate's documentation; this system has no sandbox.
#[derive(Debug)]
pub struct Sandbox {
    never: std::convert::Infallible,
}

impl Sandbox {
    /// Always returns [`SandboxError::Unsupported`].
    ///
    /// # Errors
    ///
    /// Always.
    pub fn new(_: &str, _: bool) -> Result<Self, SandboxError> {
        Err(SandboxError::Unsupported)
    }

    /// Returns the layers that this machine lacks.
    pub fn missing_layers(&self) -> &[MissingLayer] {
        match self.never {}
    }

    /// Returns the active layers.
    pub fn active_layers(&self) -> Vec<Cover> {
        match self.never {}
    }

    /// Returns the gaps of the protection.
    pub fn protection_gaps(&self) -> Vec<String> {
        match self.never {}
    }

    /// Runs a program.
    ///
    /// # Errors
    ///
    /// Never returns: a value of this type does not exist.
    pub fn run(&self, _: &str, _: &[u8], _: &ProgramLimits) -> Result<Output, SandboxError> {
        match self.never {}
    }

    /// Runs a program after a preamble.
    ///
    /// # Errors
    ///
    /// Never returns: a value of this type does not exist.
    pub fn run_after(
        &self,
        _: &str,
        _: &str,
        _: &[u8],
        _: &ProgramLimits,
    ) -> Result<Output, SandboxError> {
        match self.never {}
    }

    /// Examines a candidate.
    ///
    /// # Errors
    ///
    /// Never returns: a value of this type does not exist.
    pub fn examine(&self, _: &Exam<'_>, _: &ProgramLimits) -> Result<ExamReport, SandboxError> {
        match self.never {}
    }
}
