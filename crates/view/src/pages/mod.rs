//! Pages of runs over HTTP, and pages without a server.

pub(crate) mod answer;
pub(crate) mod api;
pub(crate) mod assets;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod offline;
pub(crate) mod query;
pub(crate) mod selection;
pub(crate) mod serve;
pub(crate) mod viewer;
