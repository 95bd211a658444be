//! The server of `maverl serve model` under concurrent clients, beside its engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use maverl_kernels::sample::derive_seed;
use serde_json::{Value, json};

use crate::host::start_host;
use crate::server::LocalServer;
use maverl::cli::Failure;
use maverl::client::Client;
use maverl::runtime::{Host, Request, Sampling};
use maverl_cli::bench::fixture::{self, PROMPT, REPLY, ROWS};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::model::{Catalog, Entry, ModelServer, ModelSettings};
use maverl_serve::{Health, with_common_routes};

/// Name of the model in requests.
const MODEL: &str = "bench";

/// Measures new tokens per second of the engine, and of 64 clients that send the same requests to a server of it. Server
/// and clients share the machine.
pub(crate) async fn measure_serving(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let served = CompletionServer::start(setup).await?;
    let mut rates = [const { Vec::new() }; 3];
    for repeat in 0..=setup.repeats.get() as u64 {
        let [alone, whole, streamed] =
            [0, 1, 2].map(|kind| served.draw_prompts(derive_seed(repeat, kind)));
        let seconds = [
            served.time_engine(alone).await?,
            served.time_clients(whole, false).await?,
            served.time_clients(streamed, true).await?,
        ];
        for (rates, seconds) in rates.iter_mut().zip(seconds).filter(|_| repeat > 0) {
            rates.push((ROWS * REPLY) as f64 / seconds);
        }
    }
    let [engine, whole, streamed] = rates;
    let [whole_share, streamed_share] = [&whole, &streamed]
        .map(|rates| rates.iter().zip(&engine).map(|(rate, of)| rate / of).collect());
    let unit = "new tokens/s";
    Ok(vec![
        Figure::new("the engine alone", unit, engine),
        Figure::new(format!("{ROWS} clients"), unit, whole),
        Figure::new(format!("{ROWS} clients, streamed"), unit, streamed),
        Figure::new("clients over the engine", "x", whole_share),
        Figure::new("streamed clients over the engine", "x", streamed_share),
    ])
}

/// A server of a model.
struct CompletionServer {
    host: Host,
    vocab: usize,
    client: Arc<Client>,
    _server: LocalServer,
}

impl CompletionServer {
    async fn start(setup: &Setup) -> Result<Self, Failure> {
        let (host, vocab) = start_host(setup)?;
        let health = Health::default();
        let server = ModelServer::new(ModelSettings::default(), health.clone());
        server.open(Catalog::new(vec![Entry::new(MODEL, &host, 0, MODEL)], Vec::new()));
        let router = with_common_routes(server.router(), "model", health, server.metrics().clone());
        let running = LocalServer::start(router).await?;
        let url = format!("{}/v1/completions", running.url);
        let client = Client::new(url, None, Duration::from_secs(600), 0, ROWS);
        Ok(Self { host, vocab, client: Arc::new(client), _server: running })
    }

    /// Returns prompts that no other seed has, so that no cache helps.
    fn draw_prompts(&self, seed: u64) -> Vec<Vec<u32>> {
        let seeds = (0..ROWS as u64).map(|i| derive_seed(seed, i));
        seeds.map(|seed| fixture::ids(seed, PROMPT, self.vocab)).collect()
    }

    /// Returns the seconds of the engine.
    async fn time_engine(&self, prompts: Vec<Vec<u32>>) -> Result<f64, Failure> {
        let sampling = Arc::new(Sampling { max_tokens: REPLY, ..Sampling::default() });
        let begin = Instant::now();
        let requests = prompts.into_iter().zip(0..).map(|(prompt, seed)| {
            let sampling = Arc::clone(&sampling);
            self.host.generate(0, Request::new(prompt, sampling, seed))
        });
        try_join_all(requests).await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Returns the seconds of as many clients as there are prompts.
    async fn time_clients(&self, prompts: Vec<Vec<u32>>, stream: bool) -> Result<f64, Failure> {
        let begin = Instant::now();
        let answers = prompts.into_iter().enumerate().map(async |(seed, prompt)| {
            let mut body =
                json!({"model": MODEL, "prompt": prompt, "max_tokens": REPLY, "seed": seed});
            if stream {
                body["stream"] = true.into();
                body["stream_options"] = json!({"include_usage": true});
            }
            self.client.post(&Arc::new(body)).await.body.map_err(Failure)
        });
        let answers = try_join_all(answers).await?;
        let seconds = begin.elapsed().as_secs_f64();
        if answers.iter().all(|answer| count_tokens(answer, stream) == Some(REPLY as u64)) {
            Ok(seconds)
        } else {
            Err(Failure("an answer has too few tokens".to_owned()))
        }
    }
}

/// Returns the number of tokens of an answer.
fn count_tokens(answer: &str, stream: bool) -> Option<u64> {
    let last = if stream {
        answer.lines().rev().find_map(|line| line.strip_prefix("data: {"))
    } else {
        answer.strip_prefix('{')
    };
    let answer: Value = serde_json::from_str(&format!("{{{}", last?)).ok()?;
    answer["usage"]["completion_tokens"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_an_answer_are_in_its_usage() {
        let whole = r#"{"usage": {"completion_tokens": 3}}"#;
        assert_eq!((count_tokens(whole, false), count_tokens("error", false)), (Some(3), None));
        let streamed = format!("data: {{\"usage\": null}}\n\ndata: {whole}\n\ndata: [DONE]\n");
        assert_eq!(
            (count_tokens(&streamed, true), count_tokens("data: [DONE]\n", true)),
            (Some(3), None)
        );
    }
}
