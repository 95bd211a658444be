#![allow(clippy::unwrap_used)]

mod chat;
mod completions;
mod fields;
#[cfg(feature = "grammar")]
mod grammar;
mod limits;
mod messages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::base::{Health, with_common_routes};
use crate::guard::Guard;
use crate::listener::Limits;
use crate::openai::Structured;
use crate::queue::QueueLimits;
use crate::testing::{Answer, Running, ask, start, until};
use maverl::config::RuntimeOptions;
use maverl::files::{ModelFiles, ModelSource};
use maverl::net::Model;
use maverl::runtime::Host;
use maverl::text::Tokenizer;

/// A server of `builtin:tiny` with all layers of the real one.
pub(super) struct Served {
    pub(super) server: Arc<ModelServer>,
    pub(super) running: Running,
    pub(super) host: Host,
}

impl Served {
    pub(super) async fn start(settings: ModelSettings) -> Self {
        Self::of(&ModelSource::Builtin("tiny".to_owned()), settings).await
    }

    /// Starts a server of the files of `builtin:tiny`.
    pub(super) async fn of(source: &ModelSource, settings: ModelSettings) -> Self {
        let files = ModelFiles::new(source);
        let model = Model::load(&files).unwrap();
        let tokenizer = Arc::new(Tokenizer::load(&files).unwrap());
        let runtime = RuntimeOptions {
            max_requests: settings.queue.running,
            kv_mib: 64.try_into().unwrap(),
            ..RuntimeOptions::default()
        };
        let host = Host::start("tiny", &model, &tokenizer, &runtime, 2).unwrap();
        let fingerprint = model.fingerprint();
        let entry = Entry { fingerprint, ..Entry::new("tiny", &host, 0, "builtin:tiny") };
        let health = Health::default();
        let server = ModelServer::new(settings, health.clone());
        server.open(Catalog::new(vec![entry], vec![(host.clone(), 1)]));
        let router = with_common_routes(server.router(), "model", health, server.metrics().clone());
        let running = start(Guard::default().protect(router), Limits::default()).await;
        Self { server, running, host }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Sends a chat completion with a message and further fields.
    pub(super) async fn chat(&self, fields: Value) -> Answer {
        let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Who wrote Magdor?"}]});
        merge(&mut body, fields);
        ask(self.address(), "/v1/chat/completions", Some(&body)).await
    }

    /// Sends a text completion with further fields.
    pub(super) async fn complete(&self, fields: Value) -> Answer {
        let mut body = json!({"model": "tiny", "prompt": "Question: Who wrote Magdor?"});
        merge(&mut body, fields);
        ask(self.address(), "/v1/completions", Some(&body)).await
    }

    /// Returns the metric of a line that begins so.
    pub(super) async fn metric(&self, line: &str) -> f64 {
        let text = ask(self.address(), "/metrics", None).await.body;
        let found = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0.0)
    }
}

pub(super) fn merge(body: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    for (key, value) in fields {
        body[key] = value;
    }
}
