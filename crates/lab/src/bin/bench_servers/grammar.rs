//! Replies of twenty forms that `maverl serve model` enforces, beside replies of the same lengths without a form.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use maverl_kernels::sample::derive_seed;
use serde_json::{Value, json};

use crate::host::host_with_stop_ids;
use crate::server::LocalServer;
use maverl::cli::Failure;
use maverl::client::Client;
use maverl_cli::bench::fixture::ROWS;
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::model::{Catalog, Entry, ModelServer, ModelSettings};
use maverl_serve::{Health, Structured, with_common_routes};

/// Name of the model in requests.
const MODEL: &str = "bench";
/// The forms: JSON Schemas whose texts and arrays have bounded lengths.
const FORMS: &str = include_str!("forms.json");
/// Maximum number of tokens of a reply. Nearly all end before: a number may have any number of decimals.
const LONGEST: u64 = 600;

/// Measures new tokens per second of 64 clients whose replies have forms, and of as many whose replies have none and are as long.
/// Server and clients share the machine.
pub(crate) async fn measure_grammar(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let served = GrammarServer::start(setup).await?;
    let (mut formed, mut free) = (Vec::new(), Vec::new());
    let (mut ends, mut valid) = (Vec::new(), Vec::new());
    for repeat in 0..=setup.repeats.get() as u64 {
        let begin = Instant::now();
        let replies = served.ask_all(derive_seed(repeat, 0), |i| served.form_fields(i)).await?;
        let with = token_rate(&replies, begin);
        let begin = Instant::now();
        let others = served
            .ask_all(derive_seed(repeat, 1), |i| json!({"max_tokens": replies[i].tokens}))
            .await?;
        let without = token_rate(&others, begin);
        if repeat > 0 {
            formed.push(with);
            free.push(without);
            let ended = replies.iter().filter(|reply| reply.ended).count() as f64;
            let whole = replies.iter().filter(|reply| reply.ended && reply.is_json).count() as f64;
            ends.push(100.0 * ended / replies.len() as f64);
            valid.push(100.0 * whole / ended.max(1.0));
        }
    }
    let shares = formed.iter().zip(&free).map(|(formed, free)| formed / free).collect();
    let unit = "new tokens/s";
    Ok(vec![
        Figure::new(format!("{ROWS} clients, twenty forms"), unit, formed),
        Figure::new(format!("{ROWS} clients, no form"), unit, free),
        Figure::new("with forms over without", "x", shares),
        Figure::new(format!("replies that end within {LONGEST} tokens"), "%", ends),
        Figure::new("replies that end and are JSON", "%", valid),
    ])
}

/// A reply.
struct TimedReply {
    tokens: u64,
    /// True if it ended by itself.
    ended: bool,
    is_json: bool,
}

fn token_rate(replies: &[TimedReply], begin: Instant) -> f64 {
    replies.iter().map(|reply| reply.tokens).sum::<u64>() as f64 / begin.elapsed().as_secs_f64()
}

/// A server of a model that enforces forms.
struct GrammarServer {
    client: Arc<Client>,
    forms: Vec<Value>,
    _server: LocalServer,
}

impl GrammarServer {
    async fn start(setup: &Setup) -> Result<Self, Failure> {
        let host = host_with_stop_ids(setup)?;
        let health = Health::default();
        let settings =
            ModelSettings { structured: Structured::Grammar, ..ModelSettings::default() };
        let server = ModelServer::new(settings, health.clone());
        server.open(Catalog::new(vec![Entry::new(MODEL, &host, 0, MODEL)], Vec::new()));
        let metrics = server.metrics().clone();
        let running =
            LocalServer::start(with_common_routes(server.router(), "model", health, metrics))
                .await?;
        let url = format!("{}/v1/chat/completions", running.url);
        let client = Client::new(url, None, Duration::from_secs(600), 0, ROWS);
        let forms = serde_json::from_str(FORMS)?;
        Ok(Self { client: Arc::new(client), forms, _server: running })
    }

    /// Returns the fields of a request for a form.
    fn form_fields(&self, i: usize) -> Value {
        let schema = &self.forms[i % self.forms.len()];
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "form", "schema": schema}});
        json!({"max_tokens": LONGEST, "response_format": format})
    }

    /// Sends the requests of all clients at once, with these fields.
    async fn ask_all(
        &self,
        seed: u64,
        fields: impl Fn(usize) -> Value,
    ) -> Result<Vec<TimedReply>, Failure> {
        let answers = (0..ROWS).map(|i| {
            let seed = derive_seed(seed, i as u64);
            let mut body = fields(i);
            let question = format!("Question {seed:016x}: who wrote the second book?");
            body["model"] = MODEL.into();
            body["messages"] = json!([{"role": "user", "content": question}]);
            body["seed"] = seed.into();
            async move {
                let answer = self.client.post(&Arc::new(body)).await.body.map_err(Failure)?;
                parse_reply(&serde_json::from_str(&answer)?)
            }
        });
        try_join_all(answers).await
    }
}

fn parse_reply(answer: &Value) -> Result<TimedReply, Failure> {
    let tokens = answer["usage"]["completion_tokens"].as_u64();
    let tokens = tokens.ok_or_else(|| Failure(format!("an answer has no usage: {answer}")))?;
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap_or_default();
    let ended = choice["finish_reason"] == "stop";
    Ok(TimedReply { tokens, ended, is_json: serde_json::from_str::<Value>(text).is_ok() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once;

    /// Prints the figures.
    #[tokio::test(flavor = "multi_thread")]
    async fn replies_of_every_form_that_end_are_json() {
        let figures =
            measure_grammar(&once()).await.unwrap_or_else(|Failure(text)| panic!("{text}"));
        for Figure { what, unit, median, .. } in &figures {
            println!("{what}: {median:.2} {unit}");
        }
        assert!(figures[3].median > 90.0);
        assert!((figures[4].median - 100.0).abs() < 1e-9);
    }
}
