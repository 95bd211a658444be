//! Files of a run: lines of files that grow, times.

pub(crate) mod growing;
pub(crate) mod spans;
