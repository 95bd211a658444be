//! The retriever's server under concurrent clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::pace::percentile;
use maverl::cli::Failure;
use maverl::config::TaskConfig;
use maverl::data::{self, Bounds};
use maverl::env::EnvError;
use maverl::env::search::{BatchedSearch, Index, Retriever};
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;
use maverl_serve::serve_retriever;

/// Number of clients, each of which sends the next query after an answer.
const CLIENTS: usize = 64;
/// Number of queries per client.
const QUERIES: usize = 100;
/// Number of documents per query.
const TOP_K: usize = 3;
/// Number of connections that send the beginning of a request and no more.
const HALF_OPEN: usize = 200;

/// Measures queries per second, and the median and the 99th percentile of the latency, which is measured beside half-open
/// connections, too. Server and clients share the machine.
pub(crate) async fn retriever(setup: &Setup, corpus: &str) -> Result<Vec<Figure>, Failure> {
    let base = Path::new("");
    // No cache on either side: queries are repeated.
    let batched = Arc::new(BatchedSearch::new(
        Index::new(data::corpus(corpus, base, Bounds::default())?)?,
        0,
    ));
    let config = TaskConfig { data: corpus.to_owned(), ..TaskConfig::default() };
    let tasks = data::load(&config, data::ALL, base)?;
    let questions: Arc<[String]> = tasks.into_iter().map(|task| task.question).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let url = format!("http://{address}/retrieve");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve_retriever(listener, batched, async move {
        let _ = stopped.await;
    }));
    let client = Arc::new(Retriever::new(&url, None, Duration::from_secs(30), 0, 0));
    let (mut rates, mut halves, mut most) = (Vec::new(), Vec::new(), Vec::new());
    let (mut beside, mut times) = (Vec::new(), Vec::new());
    for repeat in 0..=setup.repeats.get() {
        let start = Instant::now();
        let latencies = storm(&client, &questions).await?;
        let seconds = start.elapsed().as_secs_f64();
        let open = half_open(address).await?;
        let among = percentile(&storm(&client, &questions).await?, 99);
        drop(open);
        if repeat > 0 {
            rates.push(latencies.len() as f64 / seconds);
            halves.push(percentile(&latencies, 50));
            most.push(percentile(&latencies, 99));
            beside.push(among);
            times.push(among / percentile(&latencies, 99));
        }
    }
    drop(stop);
    server.await?;
    Ok(vec![
        Figure::new(format!("{CLIENTS} clients"), "queries/s", rates),
        Figure::new("latency, p50", "ms", halves),
        Figure::new("latency, p99", "ms", most),
        Figure::new(format!("p99 beside {HALF_OPEN} half-open"), "ms", beside),
        Figure::new("p99 beside them over alone", "x", times),
    ])
}

/// Opens connections that send the beginning of a request. The server closes them after its timeout.
async fn half_open(address: SocketAddr) -> Result<Vec<TcpStream>, Failure> {
    let mut open = Vec::with_capacity(HALF_OPEN);
    for _ in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"POST /retrieve HTTP/1.1\r\nhost: localhost\r\n").await?;
        open.push(stream);
    }
    Ok(open)
}

/// Sends the questions of all clients, one at a time per client. Returns the milliseconds of each, ascending.
async fn storm(client: &Arc<Retriever>, questions: &Arc<[String]>) -> Result<Vec<f64>, EnvError> {
    let clients = (0..CLIENTS).map(async |number| {
        let mut latencies = Vec::with_capacity(QUERIES);
        for i in 0..QUERIES {
            let question = &questions[(number * QUERIES + i) % questions.len()];
            let start = Instant::now();
            client.search(question, TOP_K).await?;
            latencies.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok::<_, EnvError>(latencies)
    });
    let mut latencies = try_join_all(clients).await?.concat();
    latencies.sort_by(f64::total_cmp);
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once;

    /// Prints the figures.
    #[tokio::test(flavor = "multi_thread")]
    async fn all_clients_are_answered() {
        let shared = std::env::var_os("MAVERL_TEST_DATA");
        let corpus = shared.map_or("builtin:facts".to_owned(), |shared| {
            Path::new(&shared).join("data/xquad.en.json").display().to_string()
        });
        let figures =
            retriever(&once(), &corpus).await.unwrap_or_else(|Failure(text)| panic!("{text}"));
        for Figure { what, unit, median, .. } in &figures {
            println!("{what}: {median:.2} {unit}");
        }
        assert!(figures[1].median <= figures[2].median);
    }
}
