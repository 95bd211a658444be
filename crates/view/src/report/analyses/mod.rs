//! Answers about a run: sums, comparisons, causes, searches.

pub(crate) mod answers;
pub(crate) mod change;
pub(crate) mod compare;
pub(crate) mod divergence;
pub(crate) mod episode;
pub(crate) mod failed_replies;
pub(crate) mod fall;
pub(crate) mod groups;
pub(crate) mod hacking;
pub(crate) mod last_lines;
pub(crate) mod replies;
pub(crate) mod search;
pub(crate) mod team;
pub(crate) mod times;
pub(crate) mod tokens;
pub(crate) mod trace;
pub(crate) mod weights;
