//! Data that a server has.

/// Beginning of data that a server has.
pub(crate) const SERVED: &str = "openenv:";

/// Returns true for data that are tasks of a server.
pub(crate) fn is_served(data: &str) -> bool {
    data.starts_with(SERVED)
}
