//! Tools and calls that environments behind servers share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::task::Task;
use crate::tools::Tool;

/// Tools of the tasks that were opened. Most tasks have equal ones.
#[derive(Default)]
pub(super) struct TaskTools(Mutex<ToolSets>);

#[derive(Default)]
struct ToolSets {
    sets: Vec<Arc<Vec<Tool>>>,
    /// By the source and the id of the task.
    of: BTreeMap<(String, String), Arc<Vec<Tool>>>,
}

impl TaskTools {
    /// Stores the tools of a task.
    pub(super) fn store(&self, task: &Task, tools: Vec<Tool>) {
        let known = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let set = known.sets.iter().find(|set| ***set == tools).cloned().unwrap_or_else(|| {
            let set = Arc::new(tools);
            known.sets.push(Arc::clone(&set));
            set
        });
        known.of.insert((task.source.clone(), task.id.clone()), set);
        known.sets.retain(|set| Arc::strong_count(set) > 1);
    }

    /// Returns the tools of a task; `None` if they are unknown.
    pub(super) fn find(&self, task: &Task) -> Option<Vec<Tool>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.of.get(&(task.source.clone(), task.id.clone())).map(|set| set.to_vec())
    }
}

/// Returns the failure of a request without an answer.
pub(super) fn late(limit: Duration) -> String {
    format!("no answer within {} s", limit.as_secs_f64())
}

/// Runs a future to its end on a thread of its own: the caller may be on a runtime, whose threads must not block.
pub(super) fn run_apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(work)
    });
    thread.join().unwrap_or_else(|_| Err("the client broke".to_owned()))
}
