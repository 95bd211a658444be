//! Weights of policies on servers: full weights from a directory, and adapters under a new name for each version.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use maverl_hub::retry;
use serde_json::{Value, json};

use crate::client::{AttemptFailure, Client};
use crate::config::ServerKind;
use crate::rollout::servers::request::{AnswerProblem, ServedWeights, shorten_message};
use crate::rollout::servers::server::{LoadedWeights, Server, Servers};
use crate::rollout::servers::vllm_whole;

impl Servers {
    /// Gives a server weights that it lacks. Other requests wait meanwhile, and fail with this one.
    pub(super) async fn provide(
        &self,
        server: &Server,
        weights: &ServedWeights,
        retries: u32,
    ) -> Result<(), AnswerProblem> {
        if weights.label.is_empty() {
            return Ok(());
        }
        let before = server.refusals.load(Ordering::Relaxed);
        let mut loaded = server.loaded.lock().await;
        if server.refusals.load(Ordering::Relaxed) != before {
            return Err(AnswerProblem::transient("it has just failed"));
        }
        if loaded.iter().any(|its| its.there && its.label == weights.label) {
            return Ok(());
        }
        for (path, body) in load(self.kind, weights) {
            let done = self.control(server, (path, &body), retries).await;
            let Err(problem) = done else { continue };
            server.refusals.fetch_add(1, Ordering::Relaxed);
            let text =
                format!("it did not load `{}` from {}: {problem}", weights.label, weights.dir);
            return Err(match problem {
                AnswerProblem::Transient(_, least) => AnswerProblem::Transient(text, least),
                _ => AnswerProblem::Wrong(text),
            });
        }
        loaded.retain(|its| its.label != weights.label);
        loaded.push(LoadedWeights { label: weights.label.clone(), there: true });
        if !weights.adapter {
            loaded.retain(|its| its.label == weights.label);
        }
        Ok(())
    }

    /// Removes versions of a policy's adapter from all servers but the newest ones, so many with the current one. `older` are those
    /// before the current one.
    pub(super) async fn retire(&self, older: &mut Vec<String>, kept: usize) {
        let Some(last) = older.len().checked_sub(kept) else { return };
        let retired: Vec<String> = older.drain(..=last).collect();
        for server in &self.servers {
            let mut loaded = server.loaded.lock().await;
            for label in &retired {
                let Some(at) = loaded.iter().position(|its| its.label == *label) else { continue };
                let LoadedWeights { there, .. } = loaded.remove(at);
                let path = match self.kind {
                    ServerKind::Sglang => "/unload_lora_adapter",
                    ServerKind::Vllm => "/v1/unload_lora_adapter",
                };
                if there {
                    // A server that does not unload it has an adapter more in its memory, which it evicts by itself.
                    let body = json!({ "lora_name": label });
                    drop(self.control(server, (path, &body), 0).await);
                }
            }
        }
    }

    /// Notes that a server has lost weights.
    pub(super) async fn forget(&self, server: &Server, weights: &ServedWeights) {
        let mut loaded = server.loaded.lock().await;
        let its = loaded.iter_mut().filter(|its| its.label == weights.label);
        its.for_each(|its| its.there = false);
    }

    /// Sends a command to a server, until it succeeds or fails for good. A directory that the server does not see yet is tried
    /// again too: file systems that are shared may be late.
    async fn control(
        &self,
        server: &Server,
        (path, body): (&str, &Value),
        retries: u32,
    ) -> Result<(), AnswerProblem> {
        let url = format!("{}{path}", server.url);
        let client = Arc::new(Client::new(url, server.key.clone(), server.timeout, 0, 1));
        let body = Arc::new(body.clone());
        let mut pauses = retry::pauses(retries);
        loop {
            let done = client.post_once(&body).await;
            let (problem, again) = match done {
                Ok(text) => match check_accepted(self.kind, path, &text) {
                    Ok(()) => return Ok(()),
                    Err(problem) => {
                        let again = matches!(problem, AnswerProblem::Transient(..));
                        (problem, again)
                    }
                },
                // An attempt without an answer may have succeeded.
                Err(AttemptFailure::Refused(_, reason)) if reason.contains("already") => {
                    return Ok(());
                }
                Err(AttemptFailure::Refused(404, reason))
                    if vllm_whole::COMMANDS.contains(&path) =>
                {
                    (vllm_whole::not_open(path, &reason), false)
                }
                Err(AttemptFailure::Refused(404, reason)) => {
                    (AnswerProblem::Wrong(format!("{path}: {reason}")), true)
                }
                Err(failure) => {
                    let again = matches!(failure, AttemptFailure::Transient(..));
                    let text = format!("{path}: {}", failure.reason());
                    let problem = if again {
                        AnswerProblem::transient(text)
                    } else {
                        AnswerProblem::Wrong(text)
                    };
                    (problem, again)
                }
            };
            match pauses.next().filter(|_| again) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(problem),
            }
        }
    }
}

/// Returns the routes and the bodies of the commands that load weights, in their order.
fn load(kind: ServerKind, weights: &ServedWeights) -> Vec<(&'static str, Value)> {
    let ServedWeights { label, dir, adapter, .. } = weights;
    let command = match (kind, adapter) {
        (ServerKind::Sglang, false) => {
            let body = json!({ "model_path": dir, "weight_version": label, "flush_cache": true });
            ("/update_weights_from_disk", body)
        }
        (ServerKind::Sglang, true) => {
            ("/load_lora_adapter", json!({ "lora_name": label, "lora_path": dir }))
        }
        (ServerKind::Vllm, false) => return vllm_whole::load(weights),
        (ServerKind::Vllm, true) => {
            ("/v1/load_lora_adapter", json!({ "lora_name": label, "lora_path": dir }))
        }
    };
    vec![command]
}

/// Reads the answer of a command with status 200. SGLang answers `success`; vLLM a text, or `success` if it may fail.
fn check_accepted(kind: ServerKind, path: &str, text: &str) -> Result<(), AnswerProblem> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    if answer["success"] == true || kind == ServerKind::Vllm && answer["success"] != false {
        return Ok(());
    }
    if kind == ServerKind::Vllm {
        return Err(AnswerProblem::transient(format!("{path}: not while it runs other requests")));
    }
    let reason = [&answer["message"], &answer["error_message"]];
    let reason = reason.iter().find_map(|reason| reason.as_str()).unwrap_or(text);
    Err(AnswerProblem::Wrong(shorten_message(&format!("{reason:?}"))))
}
