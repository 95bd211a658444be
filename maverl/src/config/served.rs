//! Data that are tasks of an environment's server: `data = "ENVIRONMENT:SPLIT"`.

use serde_json::{Map, Value};

/// Server of an environment that has tasks of its own. The module of the environment submits it, whether the program has the
/// environment's Cargo feature or not.
pub(crate) struct TaskServer {
    /// Name of the environment, and of its data before the colon.
    pub(crate) environment: &'static str,
    /// Requests the tasks of a split.
    pub(crate) fetch: FetchTasks,
}

/// Function that requests the tasks of a split, with the options of the environment and the keys whose numbers are texts as
/// they are written. Blocks the thread.
pub(crate) type FetchTasks =
    fn(&Map<String, Value>, &str, &[Vec<String>]) -> Result<ServedTasks, String>;

/// Tasks of a server.
pub(crate) struct ServedTasks {
    /// Name of their source.
    pub(crate) source: String,
    /// Each task as the server has it.
    pub(crate) tasks: Vec<Value>,
}

inventory::collect!(TaskServer);

impl TaskServer {
    /// Returns the server that has these data, and the split; `None` for data without a server.
    pub(crate) fn of_data(data: &str) -> Option<(&'static Self, &str)> {
        let (environment, split) = data.split_once(':')?;
        let mut servers = inventory::iter::<Self>.into_iter();
        Some((servers.find(|server| server.environment == environment)?, split))
    }
}

/// Returns true for data that are tasks of a server.
pub(crate) fn is_served(data: &str) -> bool {
    TaskServer::of_data(data).is_some()
}
