//! Files of a run: their paths, files that are read whole, files that grow.

pub(crate) mod files;
pub(crate) mod growing;
