//! Episodes without a judge: answers to questions that have no reference.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::env::{DynEnvironment, EnvError, Session};
use crate::orchestra::{ReplyListener, RequestOptions};
use crate::plan::Plan;
use crate::rollout::backend::ModelBackend;
use crate::rollout::episode_rewards::EpisodeRewards;
use crate::rollout::runner::{EpisodeRunner, Rollout};
use crate::runtime::{Policy, Sampling};
use crate::task::{Action, Observation, Score, Task};
use crate::tools::Tool;

/// An environment that answers actions and judges nothing: every answer scores 0.
struct Unjudged(Arc<dyn DynEnvironment>);

impl DynEnvironment for Unjudged {
    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        self.0.report(tasks)
    }

    fn measure(&self) -> &'static str {
        self.0.measure()
    }

    fn tools(&self, task: &Task) -> Vec<Tool> {
        self.0.tools(task)
    }

    fn actions(&self) -> Option<Vec<String>> {
        self.0.actions()
    }

    fn sources(&self) -> Vec<String> {
        self.0.sources()
    }

    fn takes_rewards(&self, task: &Task) -> bool {
        self.0.takes_rewards(task)
    }

    fn question(&self, session: &Session) -> Option<String> {
        self.0.question(session)
    }

    fn open<'a>(&'a self, task: &'a Task, seed: u64) -> BoxFuture<'a, Result<Session, EnvError>> {
        self.0.open(task, seed)
    }

    fn act<'a>(
        &'a self,
        session: &'a mut Session,
        action: Action,
    ) -> BoxFuture<'a, Result<Observation, EnvError>> {
        self.0.act(session, action)
    }

    fn score<'a>(
        &'a self,
        _: &'a Session,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Score, EnvError>> {
        Box::pin(async { Ok(Score::binary(false)) })
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
    ) -> BoxFuture<'a, Result<Option<Session>, EnvError>> {
        self.0.fork(session)
    }

    fn close(&self, session: Session) -> BoxFuture<'_, Result<(), EnvError>> {
        self.0.close(session)
    }
}

impl Rollout {
    /// Returns the same team without judge, rewards and penalties. `adjust` changes the sampling of the seats that a policy
    /// speaks for; endpoints keep theirs. Each reply is passed to `listener`.
    pub fn unjudged_runner(
        &self,
        plan: &Plan,
        policies: &[Policy],
        adjust: impl Fn(&mut Sampling),
        listener: &ReplyListener,
    ) -> EpisodeRunner {
        let runner = self.runner();
        let mut members = (*runner.members).clone();
        for seat in &plan.seats {
            let mut sampling = seat.sampling.clone();
            adjust(&mut sampling);
            let policy = policies[seat.policy].clone();
            if let Some(member) = members.get_mut(&seat.seat) {
                let (rollout, format) =
                    (&plan.config.rollout, plan.reply_format(plan.policies[seat.policy].worker));
                member.backend = Arc::new(ModelBackend::new(policy, sampling, rollout, format));
            }
        }
        EpisodeRunner {
            members: Arc::new(members),
            environment: Arc::new(Unjudged(Arc::clone(&runner.environment))),
            rewards: EpisodeRewards::default(),
            requests: RequestOptions {
                listener: Some(Arc::clone(listener)),
                ..runner.requests.clone()
            },
            ..runner.clone()
        }
    }
}
