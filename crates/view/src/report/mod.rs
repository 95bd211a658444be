//! A run as data: its directory is read, and values of JSON and sentences are returned. Without HTTP.
//!
//! Each part uses those before it in this list: `reading` (files), `rows` (numbers in memory), `analyses` (answers about
//! them), `notices` (what needs attention), `watched` (a run with all of it).

pub(crate) mod analyses;
pub(crate) mod notices;
pub(crate) mod problem;
pub(crate) mod reading;
pub(crate) mod rows;
pub(crate) mod watched;
