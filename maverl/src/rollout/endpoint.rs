//! Endpoints: OpenAI-compatible servers, and replies in a file, instead of a model of the run.

mod completion;

use std::collections::BTreeMap;
use std::ops::{AddAssign, Sub};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use completion::{EndpointCompletion, Reply};

use crate::agent::Prompt;
use crate::client::{Answered, Client};
use crate::config::EndpointConfig;
use crate::data::{self, ScriptLine};
use crate::orchestra::{Ask, AskLimits, ChatBackend, Conversation, Response};
use crate::plan::Sampling;
use crate::rollout::plain::plain_conversation;
use crate::trajectory::{Fault, FaultKind, Message, Seat, TurnPath};

/// A server or a script that replies for agents. Every failure is a fault of the episode, never text.
pub struct Endpoint {
    name: String,
    source: EndpointSource,
    usage: Mutex<EndpointUsage>,
}

enum EndpointSource {
    Server(Server),
    Script(Vec<ScriptLine>),
}

/// Requests to an endpoint, and their cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EndpointUsage {
    /// Number of requests that were answered.
    pub requests: u64,
    /// Number of attempts that failed.
    pub failures: u64,
    /// Number of answers without token counts from the server; they are not part of the following fields.
    pub uncounted: u64,
    /// Prompt tokens, as counted by the server.
    pub prompt_tokens: u64,
    /// Sampled tokens, as counted by the server.
    pub completion_tokens: u64,
    /// Cost by the prices of the configuration.
    pub cost: f64,
}

impl AddAssign for EndpointUsage {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.uncounted += other.uncounted;
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.cost += other.cost;
    }
}

impl Sub for EndpointUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            failures: self.failures - before.failures,
            uncounted: self.uncounted - before.uncounted,
            prompt_tokens: self.prompt_tokens - before.prompt_tokens,
            completion_tokens: self.completion_tokens - before.completion_tokens,
            cost: self.cost - before.cost,
        }
    }
}

struct Server {
    client: Arc<Client>,
    model: String,
    places: Semaphore,
    prices: [f64; 2],
}

impl Endpoint {
    /// Creates the endpoint of a configuration; the path of a script is relative to `base`.
    ///
    /// # Errors
    ///
    /// If the script cannot be read, or the environment variable of the key is not set.
    pub fn new(name: &str, config: &EndpointConfig, base: &Path) -> Result<Self, String> {
        let source = match &config.script {
            Some(script) => EndpointSource::Script(
                data::script(&base.join(script)).map_err(|error| error.to_string())?,
            ),
            None => EndpointSource::Server(Server::new(config)?),
        };
        Ok(Self { name: name.to_owned(), source, usage: Mutex::default() })
    }

    /// Returns the reply to messages that belong to no turn; `asker` is the seat of lines of a script.
    ///
    /// # Errors
    ///
    /// If the server or the script gives no reply.
    pub(crate) async fn complete(
        &self,
        asker: &str,
        messages: &[Message],
        sampling: &Sampling,
        seed: u64,
    ) -> Result<String, Fault> {
        let ask = Ask {
            seat: Seat::only(asker),
            path: TurnPath::default(),
            seed,
            prompt: Prompt::user(String::new()),
            limits: AskLimits::default(),
        };
        let Reply { text, truncated } = self.reply(&ask, messages, sampling).await?;
        if truncated {
            let most = sampling.max_tokens;
            return Err(
                self.fault(&format!("its reply was cut after `max_tokens` = {most}; allow more"))
            );
        }
        Ok(text)
    }

    /// Returns the requests so far, and their cost.
    pub fn usage(&self) -> EndpointUsage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, usage: EndpointUsage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) += usage;
    }

    fn fault(&self, message: &str) -> Fault {
        Fault::new(FaultKind::Endpoint, format!("endpoint `{}`: {message}", self.name))
    }

    async fn reply(
        &self,
        ask: &Ask,
        messages: &[Message],
        sampling: &Sampling,
    ) -> Result<Reply, Fault> {
        match &self.source {
            EndpointSource::Script(lines) => {
                // Yields once, because a model never replies at once either.
                tokio::task::yield_now().await;
                self.charge(EndpointUsage { requests: 1, ..EndpointUsage::default() });
                match scripted_line(lines, &ask.seat.to_string(), messages) {
                    Some(text) => Ok(Reply { text: text.to_owned(), truncated: false }),
                    None => {
                        Err(self.fault(&format!("no line of its script is for `{}`", ask.seat)))
                    }
                }
            }
            EndpointSource::Server(server) => {
                let body = server.body(ask, messages, sampling);
                Ok(self.request(server, body).await?.cut_after(&sampling.stop))
            }
        }
    }

    /// Sends a request to a server, and counts its cost even if the answer contains no reply.
    async fn request(&self, server: &Server, body: Value) -> Result<Reply, Fault> {
        let _place =
            server.places.acquire().await.map_err(|error| self.fault(&error.to_string()))?;
        let Answered { failures, body } = server.client.post(&Arc::new(body)).await;
        self.charge(EndpointUsage { failures: u64::from(failures), ..EndpointUsage::default() });
        let body = body.map_err(|error| self.fault(&error))?;
        let read = EndpointCompletion::read(&body);
        let reply = read.and_then(|EndpointCompletion { reply, usage }| {
            self.charge(server.usage(usage));
            reply
        });
        reply.map_err(|error| self.fault(&format!("{}: {error}", server.client.address())))
    }
}

/// Returns the client of a route of an endpoint's server.
///
/// # Errors
///
/// If the environment variable of the key is not set.
pub(super) fn endpoint_client(config: &EndpointConfig, route: &str) -> Result<Arc<Client>, String> {
    let key = match &config.key_env {
        None => None,
        Some(name) => match std::env::var(name) {
            Ok(key) if !key.is_empty() => Some(key),
            Ok(_) => return Err(format!("the environment variable `{name}` is empty")),
            Err(_) => return Err(format!("the environment variable `{name}` is not set")),
        },
    };
    let timeout = Duration::try_from_secs_f64(config.timeout_s).unwrap_or(Duration::MAX);
    let url = config.url.as_deref().unwrap_or_default().trim_end_matches('/');
    let (url, at_once) = (format!("{url}/{route}"), config.max_requests.get());
    Ok(Arc::new(Client::new(url, key, timeout, config.retries, at_once)))
}

impl Server {
    fn new(config: &EndpointConfig) -> Result<Self, String> {
        let at_once = config.max_requests.get();
        Ok(Self {
            client: endpoint_client(config, "chat/completions")?,
            model: config.model.clone().unwrap_or_default(),
            places: Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)),
            prices: [config.prompt_price, config.completion_price],
        })
    }

    /// Computes the cost of an answer from its token counts.
    fn usage(&self, usage: Option<[u64; 2]>) -> EndpointUsage {
        let requests = EndpointUsage { requests: 1, ..EndpointUsage::default() };
        let Some([prompt_tokens, completion_tokens]) = usage else {
            return EndpointUsage { uncounted: 1, ..requests };
        };
        let [given, made] = self.prices;
        let cost = (given * prompt_tokens as f64 + made * completion_tokens as f64) / 1e6;
        EndpointUsage { prompt_tokens, completion_tokens, cost, ..requests }
    }

    /// Returns a request. It has no `stop`: servers cut the string from the reply, and few of them say which one it was.
    fn body(&self, ask: &Ask, messages: &[Message], sampling: &Sampling) -> Value {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            // Servers expect signed integers.
            "seed": ask.seed >> 1,
        });
        if ask.prompt.is_continuation() {
            // Names of vLLM and SGLang. A server that does not know them answers with an error.
            body["continue_final_message"] = json!(true);
            body["add_generation_prompt"] = json!(false);
        }
        body
    }
}

/// Returns the first line for a seat and its last prompt.
fn scripted_line<'l>(lines: &'l [ScriptLine], seat: &str, messages: &[Message]) -> Option<&'l str> {
    let asked = messages.last().map_or("", |message| message.content.as_str());
    let line = lines.iter().find(|line| {
        line.seat.as_deref().is_none_or(|of| of == seat)
            && line.contains.as_deref().is_none_or(|part| asked.contains(part))
    });
    line.map(|line| line.reply.as_str())
}

/// Backend of one seat that uses an endpoint, with the seat's sampling.
pub struct EndpointVoice {
    endpoint: Arc<Endpoint>,
    sampling: Sampling,
}

impl EndpointVoice {
    /// Creates a backend with the given sampling.
    pub fn new(endpoint: Arc<Endpoint>, sampling: Sampling) -> Self {
        Self { endpoint, sampling }
    }

    async fn answer(&self, conversation: &mut Conversation, ask: Ask) -> Result<Response, Fault> {
        let prompt = &ask.prompt;
        let told = plain_conversation(
            &conversation.messages_with(prompt),
            conversation.tools_with(prompt),
        );
        let mut sampling = self.sampling.clone();
        sampling.max_tokens = ask.limits.max_tokens(sampling.max_tokens);
        sampling.stop.extend(ask.limits.stop.iter().cloned());
        let Reply { text, truncated } = self.endpoint.reply(&ask, &told, &sampling).await?;
        conversation.push_prompt(prompt);
        conversation.push_reply(text.as_str());
        Ok(Response { truncated, ..Response::text(text) })
    }
}

impl ChatBackend for EndpointVoice {
    fn name(&self) -> &str {
        &self.endpoint.name
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        self.answer(conversation, ask).boxed()
    }
}

/// Endpoints by name.
pub(super) type Endpoints = BTreeMap<String, Arc<Endpoint>>;

#[cfg(test)]
mod tests;
