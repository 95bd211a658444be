//! Answers as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::metrics::ServerMetrics;
use crate::refusal::{Refusal, to_json};

/// Time without news after which a comment is sent, so that proxies keep the connection.
const PING: Duration = Duration::from_secs(15);
/// Number of events that wait for the client. Sampling does not wait for them: its steps are in a queue of their own.
const EVENTS: usize = 64;

/// Sender of the events of an answer.
pub(crate) struct Events {
    sender: mpsc::Sender<Bytes>,
    /// True once the last event is known.
    ended: Arc<AtomicBool>,
}

impl Events {
    /// Sends an event; returns false if the client is gone.
    pub(crate) async fn send(&self, event: &impl Serialize) -> bool {
        self.text(format!("data: {}\n\n", to_json(event))).await
    }

    /// Sends an event with a name; returns false if the client is gone.
    pub(crate) async fn send_named(&self, name: &str, event: &impl Serialize) -> bool {
        self.text(format!("event: {name}\ndata: {}\n\n", to_json(event))).await
    }

    /// Marks the answer as complete, before its last events are sent.
    pub(crate) fn end_stream(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Ends the answer.
    pub(crate) async fn finish_stream(&self) {
        self.end_stream();
        self.text("data: [DONE]\n\n".to_owned()).await;
    }

    /// Ends the answer with an error, which clients raise. There is no `[DONE]`.
    pub(crate) async fn fail(&self, refusal: &Refusal) {
        self.end_stream();
        self.send(&refusal.answer()).await;
    }

    /// Waits for what a receiver gets next, and sends a comment whenever that takes long.
    pub(crate) async fn next<T>(&self, news: &mut mpsc::Receiver<T>) -> Option<T> {
        loop {
            match tokio::time::timeout(PING, news.recv()).await {
                Ok(next) => return next,
                Err(_) => {
                    self.text(": ping\n\n".to_owned()).await;
                }
            }
        }
    }

    async fn text(&self, text: String) -> bool {
        self.sender.send(text.into()).await.is_ok()
    }
}

/// A task that ends with its owner.
struct Owned(JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for an answer. Counts the request if its client leaves before the end.
pub(crate) async fn count_leaving<T>(
    metrics: &ServerMetrics,
    answer: impl Future<Output = T>,
) -> T {
    let attended = Attended::new(metrics);
    let answer = answer.await;
    attended.ended.store(true, Ordering::Release);
    answer
}

/// Counts a request whose client leaves before the end.
struct Attended {
    metrics: ServerMetrics,
    ended: Arc<AtomicBool>,
}

impl Attended {
    fn new(metrics: &ServerMetrics) -> Self {
        Self { metrics: metrics.clone(), ended: Arc::default() }
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            self.metrics.add("maverl_disconnects_total", &[], 1);
        }
    }
}

/// Answers with the events that `write` sends. Dropping the answer, as when the client leaves, drops `write`.
pub(crate) fn events<F: Future<Output = ()> + Send + 'static>(
    metrics: &ServerMetrics,
    write: impl FnOnce(Events) -> F,
) -> Response {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let attended = Attended::new(metrics);
    let writing = write(Events { sender, ended: Arc::clone(&attended.ended) });
    let task = Owned(tokio::spawn(async move {
        writing.await;
        drop(attended);
    }));
    let stream = futures::stream::poll_fn(move |context| {
        let _owned = &task;
        events.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(stream)).into_response()
}
