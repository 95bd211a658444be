//! One attempt at a server.

use std::sync::Arc;

use serde_json::Value;

use crate::client::AttemptFailure;
use crate::config::ServerKind;
use crate::rollout::servers::answer::ServerAnswer;
use crate::rollout::servers::request::{AnswerProblem, Asked};
use crate::rollout::servers::server::{Server, Servers};
use crate::rollout::servers::{sglang, vllm, vllm_whole};

impl Servers {
    /// Makes one attempt at a server, which gets the weights first if it lacks them.
    pub(super) async fn attempt(
        &self,
        server: &Server,
        asked: &Asked<'_>,
    ) -> Result<ServerAnswer, AnswerProblem> {
        if self.leads {
            // The caller tries again.
            self.provide(server, asked.weights, 0).await?;
        }
        let place = server.places.acquire().await;
        let _place = place.map_err(|_| AnswerProblem::transient("the process is ending"))?;
        let whole = asked.weights.is_whole();
        let body = match self.kind {
            ServerKind::Sglang => sglang::body(asked),
            ServerKind::Vllm if whole => vllm_whole::body(asked),
            ServerKind::Vllm => vllm::body(asked),
        };
        let client = if whole { &server.generate_whole } else { &server.generate };
        let text = match client.post_once(&Arc::new(body)).await {
            Ok(text) => text,
            Err(AttemptFailure::Refused(status, reason)) if self.lacks(asked, status, &reason) => {
                return Err(AnswerProblem::Missing(reason));
            }
            Err(AttemptFailure::Refused(403, reason)) if whole && self.kind == ServerKind::Vllm => {
                return Err(vllm_whole::not_open(vllm_whole::GENERATE, &reason));
            }
            Err(failure) => return Err(failure.into()),
        };
        // A cut answer is a failure of the connection.
        let answer: Value = serde_json::from_str(&text).map_err(|error| {
            let start = crate::client::start(&text);
            AnswerProblem::transient(format!("answered {start}, no JSON: {error}"))
        })?;
        match self.kind {
            ServerKind::Sglang => sglang::read(&answer, asked),
            ServerKind::Vllm if whole => vllm_whole::read(&answer, asked),
            ServerKind::Vllm => vllm::read(&answer, asked),
        }
    }

    /// Returns true if a status means that the server does not know an adapter.
    fn lacks(&self, asked: &Asked<'_>, status: u16, reason: &str) -> bool {
        asked.weights.adapter
            && match self.kind {
                ServerKind::Vllm => status == 404,
                ServerKind::Sglang => status == 400 && reason.contains("not loaded"),
            }
    }
}
