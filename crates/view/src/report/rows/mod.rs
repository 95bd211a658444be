//! Numbers of a run in memory: rows of episodes, metrics, facts; and episodes by their rows.

pub(crate) mod cache;
pub(crate) mod episodes;
pub(crate) mod index;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod selection;
pub(crate) mod series;
pub(crate) mod texts;
pub(crate) mod tracking;
pub(crate) mod validations;
