//! An episode of a client in the served environment.

use std::sync::Arc;

use tokio::runtime::Handle;

use maverl::env::{DynEnvironment, EnvError, Session};
use maverl::task::{Action, Observation, Score, Task};
use maverl::tools::Tool;

/// Answer to a message that made the environment fail. Its own words, which may have paths, are in the log alone.
pub(crate) const FAILED: &str = "the environment failed; the log of the server has the reason";

/// A failure of the environment, which the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnvironmentFailed;

/// An open session of the environment. A call that fails leaves it as it was.
pub(crate) struct EnvironmentEpisode {
    environment: Arc<dyn DynEnvironment>,
    session: Session,
}

impl EnvironmentEpisode {
    /// Opens a session. Returns it with the question of the episode.
    pub(crate) async fn open(
        environment: Arc<dyn DynEnvironment>,
        task: Task,
        seed: u64,
    ) -> Result<(Self, String), EnvironmentFailed> {
        blocking(async move {
            let session = environment.open(&task, seed).await?;
            let question = environment.question(&session).unwrap_or(task.question);
            Ok((Self { environment, session }, question))
        })
        .await
    }

    pub(crate) fn task(&self) -> &Task {
        &self.session.task
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        self.environment.tools(&self.session.task)
    }

    pub(crate) async fn act(&mut self, action: Action) -> Result<Observation, EnvironmentFailed> {
        let (environment, mut session) = (Arc::clone(&self.environment), self.session.clone());
        let acted = blocking(async move {
            let seen = environment.act(&mut session, action).await?;
            Ok((session, seen))
        });
        let (session, seen) = acted.await?;
        self.session = session;
        Ok(seen)
    }

    pub(crate) async fn score(&self, answer: Option<String>) -> Result<Score, EnvironmentFailed> {
        let (environment, session) = (Arc::clone(&self.environment), self.session.clone());
        blocking(async move {
            let score = environment.score(&session, answer.as_deref()).await?;
            // Of what is no number, the protocols have nothing, or a null that means no reward.
            Score::check_bounds("the score", score.reward).map_err(EnvError)?;
            Ok(score)
        })
        .await
    }

    /// Returns an episode that goes on from the state of this one; `None` if the environment cannot copy it.
    pub(crate) async fn fork(&self) -> Result<Option<Self>, EnvironmentFailed> {
        let (environment, session) = (Arc::clone(&self.environment), self.session.clone());
        blocking(async move {
            let copy = environment.fork(&session).await?;
            Ok(copy.map(|session| Self { environment, session }))
        })
        .await
    }

    pub(crate) async fn close(self) -> Result<(), EnvironmentFailed> {
        blocking(async move { self.environment.close(self.session).await }).await
    }
}

/// Runs an environment, which may block its thread, on a thread for it. A panic is a failure.
async fn blocking<T: Send + 'static>(
    work: impl Future<Output = Result<T, EnvError>> + Send + 'static,
) -> Result<T, EnvironmentFailed> {
    let runtime = Handle::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work)).await;
    let done = done.unwrap_or_else(|error| Err(EnvError(format!("a bug: {error}"))));
    done.map_err(|error| {
        maverl::output::tell(format_args!("the environment failed: {error}"));
        EnvironmentFailed
    })
}
