//! Limits on the cost of a rendering.

use std::cell::Cell;

/// Limits of a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderLimits {
    /// Maximum number of steps: evaluated expressions and statements, and work on texts and lists in units of 64 bytes.
    pub steps: u64,
    /// Maximum bytes of all texts and lists that the rendering creates, freed ones included.
    pub bytes: u64,
}

impl Default for RenderLimits {
    /// Returns one or two seconds of work, and 128 MiB: thirty times the text of a context of a million tokens.
    fn default() -> Self {
        Self { steps: 20_000_000, bytes: 128 << 20 }
    }
}

/// Bytes of work that count as one step.
const UNIT: usize = 64;

/// Maximum nesting of values.
pub(crate) const DEPTH: u32 = 128;

/// Reason why a rendering ends, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenderFailure {
    pub(crate) reason: String,
    pub(crate) remedy: Option<String>,
}

/// Result of an operation, or the reason why the rendering ends.
pub(crate) type RenderResult<T> = Result<T, RenderFailure>;

/// Returns the failure of an operation.
pub(crate) fn refuse_operation<T>(reason: impl Into<String>) -> RenderResult<T> {
    Err(RenderFailure { reason: reason.into(), remedy: None })
}

/// Returns the failure of using a name that does not exist, with the names that do.
pub(crate) fn unknown_name<T>(what: &str, name: &str, known: &[&str]) -> RenderResult<T> {
    Err(RenderFailure {
        reason: format!("there is no {what} `{name:.60}`"),
        remedy: Some(format!("there are `{}`", known.join("`, `"))),
    })
}

/// Remaining budget of a rendering. Every operation charges it before it allocates or works.
pub(crate) struct RenderMeter {
    limits: RenderLimits,
    steps: Cell<u64>,
    bytes: Cell<u64>,
}

impl RenderMeter {
    pub(crate) fn new(limits: RenderLimits) -> Self {
        Self { limits, steps: Cell::new(limits.steps), bytes: Cell::new(limits.bytes) }
    }

    /// Charges a step.
    pub(crate) fn charge_step(&self) -> RenderResult<()> {
        self.charge_steps(1)
    }

    fn charge_steps(&self, n: u64) -> RenderResult<()> {
        let Some(left) = self.steps.get().checked_sub(n) else {
            let most = self.limits.steps;
            return refuse_operation(format!("it did not come to an end within {most} steps"));
        };
        self.steps.set(left);
        Ok(())
    }

    /// Charges work on bytes that allocates none: a search, a comparison.
    pub(crate) fn charge_work(&self, bytes: usize) -> RenderResult<()> {
        self.charge_steps((bytes / UNIT) as u64 + 1)
    }

    /// Charges bytes that are about to be allocated.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> RenderResult<()> {
        let Some(left) = self.bytes.get().checked_sub(bytes as u64) else {
            let most = self.limits.bytes;
            return refuse_operation(format!("it makes more than {most} bytes of text and lists"));
        };
        self.bytes.set(left);
        self.charge_work(bytes)
    }

    /// Charges `pieces` elements of `size` bytes.
    pub(crate) fn charge_product(&self, pieces: usize, size: usize) -> RenderResult<()> {
        self.charge_bytes(pieces.saturating_mul(size))
    }

    /// Returns the bytes charged so far.
    #[cfg(test)]
    pub(crate) fn made(&self) -> u64 {
        self.limits.bytes - self.bytes.get()
    }
}
