//! A scripted policy, to run an orchestra without a model.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::agent::AgentName;
use crate::env::{DynEnvironment, Environment};
use crate::orchestra::{
    Ask, ChatBackend, Conversation, DynOrchestra, Member, OrchestraName, Response,
};
use crate::registry::Registry;
use crate::rollout::{EpisodeRequest, EpisodeRunner};
use crate::task::Task;
use crate::tools::{CallFormat, ReplyFormat};
use crate::trajectory::{Episode, Fault, FaultKind, Message, Outcome, Seat};

type Respond = dyn Fn(&Ask, &[Message]) -> Response + Send + Sync;

/// A [`ChatBackend`] that replies with the result of a function.
#[derive(Clone)]
pub struct Script {
    name: String,
    respond: Arc<Respond>,
    calls: CallFormat,
}

impl Script {
    /// Creates a script from a function of the seat and the conversation so far that returns the reply. Its turns are
    /// those of an endpoint: they have no tokens and are never trained on.
    pub fn new(line: impl Fn(&Seat, &[Message]) -> String + Send + Sync + 'static) -> Self {
        Self::responding("script", move |ask, messages| Response::text(line(&ask.seat, messages)))
    }

    /// Creates a script with a name, as recorded in each turn, from a function of the request and the conversation that
    /// ends with its prompt.
    pub fn responding(
        name: impl Into<String>,
        respond: impl Fn(&Ask, &[Message]) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), respond: Arc::new(respond), calls: CallFormat::Auto }
    }

    /// Sets the form in which the script writes calls.
    #[must_use]
    pub fn calls(self, calls: CallFormat) -> Self {
        Self { calls, ..self }
    }

    async fn answer(&self, conversation: &mut Conversation, ask: Ask) -> Result<Response, Fault> {
        // Yields once, as a model would, so that concurrent requests with a race are detected here too.
        tokio::task::yield_now().await;
        conversation.push_prompt(&ask.prompt);
        let response = (self.respond)(&ask, &conversation.messages);
        conversation.push_reply(response.reply.as_str());
        Ok(response)
    }
}

impl ChatBackend for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn reply_format(&self) -> ReplyFormat {
        ReplyFormat::of_calls(self.calls)
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        self.answer(conversation, ask).boxed()
    }
}

/// An orchestra whose seats all use one [`Script`], for tests without a model.
///
/// ```
/// # use maverl::{Agent, AgentName, AskError, Input, Prompt};
/// # use maverl::env::{EnvError, Environment, Session};
/// # use maverl::orchestra::{Includes, Orchestra, OrchestraName, Team};
/// # use maverl::task::{Action, Observation, Score, Task};
/// # use maverl::trajectory::Seat;
/// # struct Question(String);
/// # impl Input for Question {
/// #     const FIELDS: &'static [&'static str] = &["question"];
/// #     const OBSERVATIONS: &'static [&'static str] = &[];
/// #     fn show(&self, _: usize) -> String { self.0.clone() }
/// # }
/// # struct Oracle;
/// # impl Agent for Oracle {
/// #     type Input = Question;
/// #     type Output = String;
/// #     fn prompt(&self, input: &Question) -> Prompt { Prompt::user(input.0.clone()) }
/// # }
/// # impl AgentName for Oracle {
/// #     const NAME: &'static str = "quiz/oracle";
/// #     const SUMMARY: &'static str = "Knows.";
/// # }
/// # struct Quiz;
/// # impl Orchestra for Quiz {
/// #     async fn run(&self, task: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
/// #         Ok(Some(team.ask::<Oracle>(&Question(task.question.clone())).await?))
/// #     }
/// # }
/// # impl Includes<Oracle> for Quiz {}
/// # impl OrchestraName for Quiz {
/// #     const NAME: &'static str = "quiz/ask";
/// #     const SUMMARY: &'static str = "Asks once.";
/// #     const NEEDS: &'static [&'static str] = &[];
/// #     fn members(&self) -> Vec<Seat> { vec![Seat::only("quiz/oracle")] }
/// # }
/// # struct Exact;
/// # impl Environment for Exact {
/// #     async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
/// #         Ok(Observation::new(""))
/// #     }
/// #     async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
/// #         Ok(Score::binary(answer == session.task.data["answer"].as_str()))
/// #     }
/// # }
/// use maverl::rollout::Scripted;
///
/// let quiz = Scripted::new(Quiz, Exact, |_seat, messages| match messages[0].content.as_str() {
///     "Capital of Norway?" => "Oslo".to_owned(),
///     _ => "I do not know".to_owned(),
/// })
/// .agent(Oracle); // not needed where `#[agent]` has registered it
///
/// let task = Task {
///     id: "1".to_owned(),
///     source: "quiz".to_owned(),
///     question: "Capital of Norway?".to_owned(),
///     data: [("answer".to_owned(), "Oslo".into())].into_iter().collect(),
/// };
/// let episode = quiz.play_blocking(&task);
/// assert_eq!(episode.turns.len(), 1);
/// assert!(episode.score().unwrap().solved);
/// ```
pub struct Scripted {
    orchestra: Arc<dyn DynOrchestra>,
    environment: Arc<dyn DynEnvironment>,
    environments: BTreeMap<String, Arc<dyn DynEnvironment>>,
    script: Script,
    agents: BTreeMap<&'static str, Arc<dyn Any + Send + Sync>>,
}

impl Scripted {
    /// Creates a scripted orchestra in a started environment, with the replies of its agents.
    pub fn new(
        orchestra: impl OrchestraName,
        environment: impl Environment,
        script: impl Fn(&Seat, &[Message]) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            orchestra: Arc::new(orchestra),
            environment: Arc::new(environment),
            environments: BTreeMap::new(),
            script: Script::new(script),
            agents: BTreeMap::new(),
        }
    }

    /// Sets the form in which the script writes calls.
    #[must_use]
    pub fn calls(self, calls: CallFormat) -> Self {
        Self { script: self.script.calls(calls), ..self }
    }

    /// Seats this agent, with its options, instead of the registered one with its defaults.
    #[must_use]
    pub fn agent<A: AgentName>(mut self, agent: A) -> Self {
        self.agents.insert(A::NAME, Arc::new(agent));
        self
    }

    /// Adds a started environment, in which the orchestra acts under a name.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, environment: impl Environment) -> Self {
        self.environments.insert(name.into(), Arc::new(environment));
        self
    }

    /// Plays one episode, without reward functions and penalties.
    pub async fn play(&self, task: &Task) -> Episode {
        let request = request(task);
        let members = match self.members() {
            Ok(members) => Arc::new(members),
            Err(fault) => return request.end_before_turns(Outcome::Unscored(fault)),
        };
        let runner = EpisodeRunner {
            members,
            orchestra: Arc::clone(&self.orchestra),
            environment: Arc::clone(&self.environment),
            environments: Arc::new(self.environments.clone()),
            rewards: Default::default(),
            requests: Default::default(),
            timeout: Duration::MAX,
        };
        runner.play(request).await
    }

    /// Runs [`Scripted::play`] without an async runtime, for an ordinary `#[test]`.
    ///
    /// # Panics
    ///
    /// If called from async code.
    pub fn play_blocking(&self, task: &Task) -> Episode {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.play(task)),
            Err(error) => {
                let fault = Fault::new(FaultKind::Orchestra, format!("no async runtime: {error}"));
                request(task).end_before_turns(Outcome::Unscored(fault))
            }
        }
    }

    fn members(&self) -> Result<BTreeMap<Seat, Member>, Fault> {
        let mut members = BTreeMap::new();
        for seat in self.orchestra.members() {
            let agent = match self.agents.get(seat.agent.as_str()) {
                Some(agent) => Arc::clone(agent),
                None => registered_script(&seat.agent)
                    .map_err(|message| Fault::new(FaultKind::Orchestra, message))?,
            };
            members.insert(seat, Member { agent, backend: Arc::new(self.script.clone()) });
        }
        Ok(members)
    }
}

/// Returns the request of the only episode of a task.
fn request(task: &Task) -> EpisodeRequest {
    EpisodeRequest { task: task.clone(), index: 0, seed: 0 }
}

fn registered_script(name: &str) -> Result<Arc<dyn Any + Send + Sync>, String> {
    let registry = Registry::collect().map_err(|error| error.to_string())?;
    let entry = registry.agents.get(name);
    let entry = entry.ok_or_else(|| {
        format!("agent `{name}` is not registered; seat it with `Scripted::agent`")
    })?;
    (entry.build)(&Value::Object(Map::new()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rollout::testing::{Critic, Fixture, Flow, Speaker, line, task};

    fn once() -> Flow {
        Flow::new(|_, team| {
            Box::pin(async move { Ok(Some(team.ask::<Speaker>(&line("speak")).await?.0)) })
        })
    }

    #[test]
    fn an_orchestra_is_played_without_a_model() {
        let scripted = Scripted::new(once(), Fixture, |seat, messages| {
            assert_eq!((seat.agent.as_str(), messages[1].content.as_str()), ("t/speaker", "speak"));
            "<w>yes</w>".to_owned()
        });
        let episode = scripted.agent(Speaker).agent(Critic).play_blocking(&task("p"));
        assert!(episode.score().unwrap().solved);
        assert_eq!((episode.turns[0].policy.as_str(), &episode.turns[0].tokens), ("script", &None));
    }

    #[test]
    fn an_agent_that_is_not_there_is_named() {
        let episode =
            Scripted::new(once(), Fixture, |_, _| String::new()).play_blocking(&task("p"));
        let Outcome::Unscored(fault) = episode.outcome else { panic!("scored") };
        assert_eq!((fault.kind, episode.turns.len()), (FaultKind::Orchestra, 0));
    }
}
