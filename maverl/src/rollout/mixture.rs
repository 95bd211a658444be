//! Mixtures: each task is played in the environment of its component.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{BoxFuture, ready};

use crate::env::{DynEnvironment, EnvError, Session};
use crate::task::{Action, Observation, Score, Task};
use crate::tools::Tool;

/// Environments by the name of their component.
pub(super) struct Mixture(pub(super) BTreeMap<String, Arc<dyn DynEnvironment>>);

impl Mixture {
    fn of(&self, task: &Task) -> Option<&Arc<dyn DynEnvironment>> {
        self.0.get(task.component())
    }
}

impl DynEnvironment for Mixture {
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let mut notes = Vec::new();
        for (name, environment) in &self.0 {
            let own: Vec<Task> =
                tasks.iter().filter(|task| task.component() == name).cloned().collect();
            notes.extend(environment.report(&own)?.map(|note| format!("{name}: {note}")));
        }
        Ok((!notes.is_empty()).then(|| notes.join("\n")))
    }

    /// Returns the common name of the share of solved episodes, if all components share it.
    fn measure(&self) -> &'static str {
        let mut words = self.0.values().map(|environment| environment.measure());
        let first = words.next().unwrap_or("solved");
        if words.all(|word| word == first) { first } else { "solved" }
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        self.of(task).map(|environment| environment.tools(task)).unwrap_or_default()
    }

    /// Returns none: each component was compared with the orchestra when it started.
    fn actions(&self) -> Option<Vec<String>> {
        None
    }

    fn sources(&self) -> Vec<String> {
        self.0.values().flat_map(|environment| environment.sources()).collect()
    }

    fn takes_rewards(&self, task: &Task) -> bool {
        self.of(task).is_some_and(|environment| environment.takes_rewards(task))
    }

    fn question(&self, session: &Session) -> Option<String> {
        self.of(&session.task)?.question(session)
    }

    fn open<'a>(&'a self, task: &'a Task, seed: u64) -> BoxFuture<'a, Result<Session, EnvError>> {
        match self.of(task) {
            Some(environment) => environment.open(task, seed),
            None => Box::pin(ready(Err(foreign(task)))),
        }
    }

    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>> {
        match self.of(&session.task) {
            Some(environment) => environment.act(session, action),
            None => Box::pin(ready(Err(foreign(&session.task)))),
        }
    }

    fn score<'a>(
        &'a self,
        session: &'a Session,
        answer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>> {
        match self.of(&session.task) {
            Some(environment) => environment.score(session, answer),
            None => Box::pin(ready(Err(foreign(&session.task)))),
        }
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Session>, EnvError>> {
        match self.of(&session.task) {
            Some(environment) => environment.fork(session),
            None => Box::pin(ready(Err(foreign(&session.task)))),
        }
    }

    fn close(&self, session: Session) -> BoxFuture<'_, Result<(), EnvError>> {
        match self.of(&session.task) {
            Some(environment) => environment.close(session),
            None => Box::pin(ready(Err(foreign(&session.task)))),
        }
    }
}

fn foreign(task: &Task) -> EnvError {
    EnvError(format!("the task `{}` is of no component of this run", task.id))
}
