//! The server of `maverl serve reward`: replies in one request, and each in a request of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maverl_kernels::sample::{derive_seed, uniform_number};
use serde_json::{Value, json};

use crate::host::in_model_directory;
use crate::server::LocalServer;
use maverl::cli::Failure;
use maverl::client::Client;
use maverl::env::math::MathEnvironment;
use maverl::files::{ModelFiles, ModelSource, SaveOptions};
use maverl::net::{HeadKind, Model, RewardHead, RewardModel, ValueHead};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::QueueLimits;
use maverl_serve::reward::{Grader, RewardServer, RewardSettings};
use maverl_serve::{Health, with_common_routes};

/// Number of tasks of a request, and of replies to each.
const TASKS: usize = 4;
const REPLIES: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(600);

/// Text of a reply about loaves and those that are kept.
type ReplyWriter = fn(u64, u64) -> String;

/// Measures the milliseconds of 32 replies in one request and of 32 requests one after another, for a verifier with random weights
/// that reads answers or explanations, and for the judge `math`. Server and client share the machine.
pub(crate) async fn measure_reward(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let verifier = GraderServer::start(start_verifier(setup)?).await?;
    let judge =
        GraderServer::start(Grader::environment(Arc::new(MathEnvironment::default()))).await?;
    let parts: [(&str, &GraderServer, ReplyWriter); 3] = [
        ("verifier, answers", &verifier, short_reply),
        ("verifier, explanations", &verifier, long_reply),
        ("judge", &judge, long_reply),
    ];
    let mut figures = Vec::new();
    for (name, served, reply) in parts {
        figures.extend(measure_replies(name, served, reply, setup).await?);
    }
    Ok(figures)
}

/// Starts a verifier of the size of the arguments.
fn start_verifier(setup: &Setup) -> Result<Grader, Failure> {
    in_model_directory(setup, |dir| {
        let model = Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned())))?;
        let head = ValueHead::new(HeadKind::Reward, &model.config);
        let weight: Vec<f32> =
            (0..model.config.hidden_size).map(|i| libm::sinf(i as f32)).collect();
        head.vars()[0].1.set(&weight)?;
        let model = RewardModel::new(model, head, RewardHead::new(1.0, 0.0))?;
        let with_head = dir.join("verifier");
        std::fs::create_dir_all(&with_head)?;
        model.save(&with_head, &SaveOptions::default())?;
        Grader::verifier(&with_head).map_err(Failure)
    })
}

/// Measures replies to a server. The name begins the figures.
async fn measure_replies(
    name: &str,
    served: &GraderServer,
    reply: ReplyWriter,
    setup: &Setup,
) -> Result<[Figure; 3], Failure> {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for repeat in 0..=setup.repeats.get() as u64 {
        let items = draw_replies(repeat, reply);
        let begin = Instant::now();
        served.score_replies(&items).await?;
        let whole = begin.elapsed().as_secs_f64() * 1e3;
        let begin = Instant::now();
        for item in &items {
            served.score_replies(std::slice::from_ref(item)).await?;
        }
        let single = begin.elapsed().as_secs_f64() * 1e3;
        if repeat > 0 {
            together.push(whole);
            alone.push(single);
        }
    }
    let ratios = alone.iter().zip(&together).map(|(alone, together)| alone / together).collect();
    let n = TASKS * REPLIES;
    Ok([
        Figure::new(format!("{name}, {n} replies at once"), "ms", together),
        Figure::new(format!("{name}, one after another"), "ms", alone),
        Figure::new(format!("{name}, times less at once"), "x", ratios),
    ])
}

/// A server of rewards, and its client.
struct GraderServer {
    client: Arc<Client>,
    _server: LocalServer,
}

impl GraderServer {
    async fn start(grader: Grader) -> Result<Self, Failure> {
        let health = Health::default();
        let settings =
            RewardSettings { max_body: 16 << 20, timeout: TIMEOUT, queue: QueueLimits::default() };
        let server = RewardServer::new(settings, health.clone());
        server.open(grader);
        let metrics = server.metrics().clone();
        let running =
            LocalServer::start(with_common_routes(server.router(), "reward", health, metrics))
                .await?;
        let url = format!("{}/v1/score", running.url);
        Ok(Self { client: Arc::new(Client::new(url, None, TIMEOUT, 0, 1)), _server: running })
    }

    /// Scores replies in one request.
    async fn score_replies(&self, items: &[Value]) -> Result<(), Failure> {
        let body = Arc::new(json!({"protocol": 1, "items": items}));
        let answer: Value =
            serde_json::from_str(&self.client.post(&body).await.body.map_err(Failure)?)?;
        let scored = answer["items"].as_array().into_iter().flatten();
        if scored.filter(|item| item["reward"].is_number()).count() == items.len() {
            Ok(())
        } else {
            Err(Failure(format!("a reply was not scored: {answer}")))
        }
    }
}

/// Returns replies to tasks of arithmetic that no other seed has.
fn draw_replies(seed: u64, reply: ReplyWriter) -> Vec<Value> {
    (0..TASKS * REPLIES).map(|i| draw_reply(seed, i, reply)).collect()
}

/// Returns one of the replies.
fn draw_reply(seed: u64, i: usize, reply: ReplyWriter) -> Value {
    let [loaves, kept] = [(i / REPLIES, 900.0), (TASKS + i, 40.0)]
        .map(|(at, n)| (uniform_number(derive_seed(seed, 1), at as u64) * n) as u64 + 20);
    let question = format!(
        "A baker makes {loaves} loaves in the morning and twice as many in the afternoon, and sells all of them but the few \
         that the children eat. Each loaf costs three coins. How many coins does the baker take in?"
    );
    json!({
        "id": i.to_string(), "messages": [{"role": "user", "content": question}], "completion": reply(loaves, kept),
        "answer": true_answer(loaves, kept).to_string(), "data": {"answers": [true_answer(loaves, 20).to_string()]},
    })
}

fn true_answer(loaves: u64, kept: u64) -> u64 {
    3 * (3 * loaves - kept)
}

fn short_reply(loaves: u64, kept: u64) -> String {
    format!("<answer>{}</answer>", true_answer(loaves, kept))
}

fn long_reply(loaves: u64, kept: u64) -> String {
    format!(
        "The baker makes {loaves} loaves in the morning and {} in the afternoon, which is {} in all. The children eat {kept}, so \
         {} are sold. {}",
        2 * loaves,
        3 * loaves,
        3 * loaves - kept,
        short_reply(loaves, kept)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once;

    /// Prints the figures.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_reply_is_scored_at_once_and_alone() {
        let figures =
            measure_reward(&once()).await.unwrap_or_else(|Failure(text)| panic!("{text}"));
        for Figure { what, unit, median, .. } in &figures {
            println!("{what}: {median:.2} {unit}");
        }
        assert_eq!(figures.len(), 9);
    }
}
