//! Inference servers that sample for policies: SGLang and vLLM over HTTP, token ids in and out.
//!
//! Every answer is validated before it becomes a completion: a server that misbehaves costs a request, or the episode that
//! asked, and never gives data that is not what was asked for.
//!
//! `sglang`, `vllm` and `vllm_whole` (full weights) are protocols: functions from a `request` to a body, and from a body
//! to an answer. `answer` validates what all answers have, `routes` reads experts of tokens, `control` sends weights to a
//! `server`, `attempt` asks one server once, and `remote` chooses a server for each attempt.

mod answer;
mod attempt;
mod control;
mod remote;
mod request;
mod routes;
mod server;
mod sglang;
mod vllm;
mod vllm_whole;

pub use remote::{Probe, RemotePolicy};
pub(super) use server::server_key;
pub use server::{ServerUsage, Servers};

#[cfg(test)]
mod tests;
