//! Voices that are no model of the run: OpenAI-compatible servers, and replies in a file.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::{AddAssign, Sub};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::config::OutsiderConfig;
use crate::data::{self, ScriptLine};
use crate::orchestra::{Ask, Conversation, Said, Voice};
use crate::plan::Sampling;
use crate::rollout::plain::plain;
use crate::trajectory::{Fault, FaultKind, Message};

/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Pause before the second attempt; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A server or a script that speaks for agents. Every failure is a fault of the episode, never text.
pub struct Outsider {
    name: String,
    source: Source,
    bill: Mutex<Bill>,
}

enum Source {
    Server(Arc<Server>),
    Script(Vec<ScriptLine>),
}

/// What an outsider was asked, and what that cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bill {
    /// Requests that were answered.
    pub requests: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Tokens given, as the server counts them.
    pub prompt_tokens: u64,
    /// Tokens made, as the server counts them.
    pub completion_tokens: u64,
    /// By the prices of the configuration.
    pub cost: f64,
}

impl AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.cost += other.cost;
    }
}

impl Sub for Bill {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            failures: self.failures - before.failures,
            prompt_tokens: self.prompt_tokens - before.prompt_tokens,
            completion_tokens: self.completion_tokens - before.completion_tokens,
            cost: self.cost - before.cost,
        }
    }
}

struct Server {
    url: String,
    model: String,
    key: Option<String>,
    agent: ureq::Agent,
    retries: u32,
    room: Semaphore,
    prices: [f64; 2],
}

/// Why one attempt gave no reply.
enum Failure {
    /// Worth another attempt.
    Passing(String),
    Final(String),
}

/// What a server answers, as far as it is read.
#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: Content,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    content: Option<String>,
}

#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl Outsider {
    /// What a configuration describes; the path of a script is relative to `base`.
    ///
    /// # Errors
    ///
    /// If the script cannot be read, or the variable with the key is not set.
    pub fn new(name: &str, config: &OutsiderConfig, base: &Path) -> Result<Self, String> {
        let source = match &config.script {
            Some(script) => {
                Source::Script(data::script(&base.join(script)).map_err(|error| error.to_string())?)
            }
            None => Source::Server(Arc::new(Server::new(config)?)),
        };
        Ok(Self { name: name.to_owned(), source, bill: Mutex::default() })
    }

    /// What was asked so far, and what it cost.
    pub fn bill(&self) -> Bill {
        *self.bill.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, bill: Bill) {
        *self.bill.lock().unwrap_or_else(PoisonError::into_inner) += bill;
    }

    fn fault(&self, message: &str) -> Fault {
        Fault::new(FaultKind::Worker, format!("outsider `{}`: {message}", self.name))
    }

    /// The reply, and whether it was cut off.
    async fn reply(
        &self,
        ask: &Ask,
        messages: &[Message],
        sampling: &Sampling,
    ) -> Result<(String, bool), Fault> {
        match &self.source {
            Source::Script(lines) => {
                // As with a model, no reply comes at once.
                tokio::task::yield_now().await;
                self.charge(Bill { requests: 1, ..Bill::default() });
                let reply = scripted(lines, &ask.seat.to_string(), messages);
                let none = || self.fault(&format!("no line of its script is for `{}`", ask.seat));
                reply.map(|reply| (reply.to_owned(), false)).ok_or_else(none)
            }
            Source::Server(server) => {
                self.request(server, &server.body(ask, messages, sampling)).await
            }
        }
    }

    /// Asks a server, again where that may help, with growing pauses.
    async fn request(&self, server: &Arc<Server>, body: &Value) -> Result<(String, bool), Fault> {
        let _room = server.room.acquire().await.map_err(|error| self.fault(&error.to_string()))?;
        let mut pause = FIRST_PAUSE;
        let mut attempt = 0;
        loop {
            let (asked, body) = (Arc::clone(server), body.clone());
            let done = tokio::task::spawn_blocking(move || asked.ask(&body)).await;
            let failure = match done.unwrap_or_else(|error| Err(Failure::Final(error.to_string())))
            {
                Ok(answer) => return self.read(server, answer),
                Err(failure) => failure,
            };
            self.charge(Bill { failures: 1, ..Bill::default() });
            attempt += 1;
            match failure {
                Failure::Passing(_) if attempt <= server.retries => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Failure::Passing(reason) | Failure::Final(reason) => {
                    return Err(self.fault(&format!("{reason} ({attempt} attempts)")));
                }
            }
        }
    }

    fn read(&self, server: &Server, answer: Answer) -> Result<(String, bool), Fault> {
        let Usage { prompt_tokens, completion_tokens } = answer.usage;
        let [given, made] = server.prices;
        let cost = (given * prompt_tokens as f64 + made * completion_tokens as f64) / 1e6;
        self.charge(Bill { requests: 1, failures: 0, prompt_tokens, completion_tokens, cost });
        let choice = answer.choices.into_iter().next();
        let choice = choice.ok_or_else(|| self.fault("answered with no choice"))?;
        let truncated = choice.finish_reason.as_deref() == Some("length");
        Ok((choice.message.content.unwrap_or_default(), truncated))
    }
}

impl Server {
    fn new(config: &OutsiderConfig) -> Result<Self, String> {
        let key = match &config.key_env {
            None => None,
            Some(name) => match std::env::var(name) {
                Ok(key) if !key.is_empty() => Some(key),
                Ok(_) => return Err(format!("the environment variable `{name}` is empty")),
                Err(_) => return Err(format!("the environment variable `{name}` is not set")),
            },
        };
        let timeout = Duration::try_from_secs_f64(config.timeout_s).unwrap_or(Duration::MAX);
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        let url = config.url.as_deref().unwrap_or_default().trim_end_matches('/');
        Ok(Self {
            url: format!("{url}/chat/completions"),
            model: config.model.clone().unwrap_or_default(),
            key,
            agent: agent.into(),
            retries: config.retries,
            room: Semaphore::new(
                NonZeroUsize::get(config.max_requests).min(Semaphore::MAX_PERMITS),
            ),
            prices: [config.prompt_price, config.completion_price],
        })
    }

    fn body(&self, ask: &Ask, messages: &[Message], sampling: &Sampling) -> Value {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            // Servers take signed numbers.
            "seed": ask.seed >> 1,
        });
        if !sampling.stop.is_empty() {
            body["stop"] = json!(sampling.stop);
        }
        body
    }

    fn ask(&self, body: &Value) -> Result<Answer, Failure> {
        let mut request = self.agent.post(&self.url);
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send_json(body).map_err(failure)?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(failure)?;
        match status {
            200 => serde_json::from_str(&text).map_err(|error| {
                Failure::Final(format!("answered {}, no chat completion: {error}", start(&text)))
            }),
            408 | 429 | 500..=599 => {
                Err(Failure::Passing(format!("status {status}: {}", start(&text))))
            }
            _ => Err(Failure::Final(format!("status {status}: {}", start(&text)))),
        }
    }
}

/// Timeouts and broken connections may pass; anything else will not.
fn failure(error: ureq::Error) -> Failure {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Protocol, Timeout};
    match error {
        Io(_) | Timeout(_) | ConnectionFailed | HostNotFound | Protocol(_) => {
            Failure::Passing(error.to_string())
        }
        error => Failure::Final(error.to_string()),
    }
}

/// The start of what a server said, for messages.
fn start(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

/// The first line that is for a seat and what it was asked last.
fn scripted<'l>(lines: &'l [ScriptLine], seat: &str, messages: &[Message]) -> Option<&'l str> {
    let asked = messages.last().map_or("", |message| message.content.as_str());
    let fits = |line: &&ScriptLine| {
        line.seat.as_deref().is_none_or(|of| of == seat)
            && line.contains.as_deref().is_none_or(|part| asked.contains(part))
    };
    lines.iter().find(fits).map(|line| line.reply.as_str())
}

/// An outsider that speaks for one seat, with that seat's sampling.
pub struct OutsiderVoice {
    outsider: Arc<Outsider>,
    sampling: Sampling,
}

impl OutsiderVoice {
    /// A voice that asks for such sampling.
    pub fn new(outsider: Arc<Outsider>, sampling: Sampling) -> Self {
        Self { outsider, sampling }
    }

    async fn answer(&self, conversation: &mut Conversation, ask: Ask) -> Result<Said, Fault> {
        let prompt = &ask.prompt;
        let told = plain(&conversation.messages_with(prompt), conversation.tools_with(prompt));
        let (reply, truncated) = self.outsider.reply(&ask, &told, &self.sampling).await?;
        conversation.hear(prompt);
        conversation.say(reply.as_str());
        Ok(Said { reply, tokens: None, truncated, shortened: 0, forked: false })
    }
}

impl Voice for OutsiderVoice {
    fn name(&self) -> &str {
        &self.outsider.name
    }

    fn say<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Said, Fault>> {
        self.answer(conversation, ask).boxed()
    }
}

/// Outsiders by name.
pub(super) type Outsiders = BTreeMap<String, Arc<Outsider>>;

#[cfg(test)]
mod tests;
