//! What is wrong with a source that cannot be read.

use std::ops::Range;

/// Position, message and help.
pub(crate) type UnreadValue = (Option<Range<usize>>, String, Option<String>);
