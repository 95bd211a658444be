//! A run as data: its directory is read, and values of JSON and sentences are returned. Without HTTP.
//!
//! Each floor uses those above it in this list: `reading` (files), `rows` (numbers in memory), `analyses` (answers about
//! them), `notices` (what needs attention).

pub(crate) mod analyses;
pub(crate) mod notices;
pub(crate) mod reading;
pub(crate) mod rows;
