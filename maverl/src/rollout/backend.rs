//! A model as a [`ChatBackend`].

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::agent::{Prompt, PromptForm};
use crate::config::{History, Overflow, RolloutConfig};
use crate::orchestra::{
    Ask, AskLimits, ChatBackend, Conversation, Response, other_prompt, request_begin,
};
use crate::rollout::later_system::takes_later_system;
use crate::rollout::prompt::{NextPrompt, PromptRoom, next_prompt, prompt_tokens, text_prompt};
use crate::rollout::structured::FormattedTokenizer;
use crate::rollout::versions::TurnVersions;
use crate::runtime::{Completion, Policy, Request, RuntimeError, Sampling, Watch};
use crate::tools::{CallFormat, ReplyFormat, ThoughtFormat};
use crate::trajectory::{Fault, FaultKind, Finish, Tokens, Turn, TurnPath};

/// A policy that generates the replies of a seat. Token in, token out: a conversation is only appended to, and sampled
/// tokens are never encoded again.
pub struct ModelBackend {
    policy: Policy,
    /// Versions of the policy's weights by turn, and its index in each version, if an episode goes on with newer ones.
    versions: Option<(Arc<TurnVersions>, usize)>,
    sampling: Arc<Sampling>,
    stop_ids: Vec<u32>,
    overflow: Overflow,
    history: History,
    takes_later_system: OnceLock<bool>,
    format: ReplyFormat,
}

impl ModelBackend {
    /// Creates a backend with sampling parameters, the treatment of prompts that do not fit and of earlier turns, and the
    /// form of its model's replies.
    pub fn new(
        policy: Policy,
        sampling: Sampling,
        rollout: &RolloutConfig,
        (calls, thoughts): (CallFormat, ThoughtFormat),
    ) -> Self {
        let RolloutConfig { overflow, history, .. } = *rollout;
        let stop_ids = [policy.tokenizer().stop_ids(), &sampling.stop_ids].concat();
        let (sampling, takes_later_system) = (Arc::new(sampling), OnceLock::new());
        let format = ReplyFormat::of_model(policy.tokenizer(), calls, &thoughts);
        let versions = None;
        Self { policy, versions, sampling, stop_ids, overflow, history, takes_later_system, format }
    }

    /// Returns the same backend with weights that depend on the turn: those of the policy of an index in its version.
    #[must_use]
    pub(super) fn with_versions(self, versions: Arc<TurnVersions>, index: usize) -> Self {
        Self { versions: Some((versions, index)), ..self }
    }

    /// Returns the policy with the weights that sample the turn of a path.
    fn policy(&self, path: &TurnPath) -> Result<Policy, Fault> {
        match &self.versions {
            Some((versions, index)) => versions.policy(path, *index),
            None => Ok(self.policy.clone()),
        }
    }

    async fn answer(&self, conversation: &mut Conversation, ask: Ask) -> Result<Response, Fault> {
        let sampling = self.sampling(&ask.limits);
        let next = self.render(conversation, &ask, &sampling)?;
        let watch = request_begin().map(Watch::of_begin);
        let request =
            Request { prompt: next.ids.clone(), sampling, seed: ask.seed, watch, grammar: None };
        let completion = self.policy(&ask.path)?.generate(request).await.map_err(fault)?;
        let ids = reply_ids(&completion.ids, &self.stop_ids);
        let reply = self.policy.tokenizer().decode_keeping(ids, &self.format.kept);
        Ok(self.record_reply(conversation, next, completion, reply, ask.seed))
    }

    /// Renders the prompt of a request. Its tools become those of the conversation.
    fn render(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
        sampling: &Sampling,
    ) -> Result<NextPrompt, Fault> {
        let room = self.room(sampling);
        let tokenizer = &**self.policy.tokenizer();
        let next = if ask.prompt.form == PromptForm::Text {
            text_prompt(tokenizer, conversation, &ask.prompt, room)?
        } else {
            let templater = FormattedTokenizer { tokenizer, format: &self.format };
            next_prompt(&templater, conversation, &ask.prompt, &self.stop_ids, room)?
        };
        conversation.tools = conversation.tools_with(&ask.prompt).to_vec();
        Ok(next)
    }

    /// Samples as many tokens as are recorded: limits of the request are not recorded, and change no token before them.
    async fn again(&self, path: &TurnPath, recorded: &Tokens) -> Result<Tokens, Fault> {
        let mut sampling = (*self.sampling).clone();
        sampling.max_tokens = recorded.completion.len().max(1);
        sampling.temperature = recorded.temperature;
        let (prompt, seed) = (recorded.prompt.clone(), recorded.seed);
        let request = Request::new(prompt, Arc::new(sampling), seed);
        let completion = self.policy(path)?.generate(request).await.map_err(fault)?;
        Ok(Tokens {
            completion: completion.ids,
            logprobs: completion.logprobs,
            version: completion.version,
            finish: completion.finish,
            routes: completion.routes,
            ..recorded.clone()
        })
    }

    /// Returns the room of a prompt.
    fn room(&self, sampling: &Sampling) -> PromptRoom {
        PromptRoom {
            context: self.policy.context(),
            max_tokens: sampling.max_tokens,
            overflow: self.overflow,
            history: self.history,
        }
    }

    /// Returns the sampling of a request.
    fn sampling(&self, limits: &AskLimits) -> Arc<Sampling> {
        if limits.is_empty() {
            return Arc::clone(&self.sampling);
        }
        let mut sampling = (*self.sampling).clone();
        sampling.max_tokens = limits.max_tokens(sampling.max_tokens);
        sampling.stop.extend(limits.stop.iter().chain(&limits.until).cloned());
        Arc::new(sampling)
    }

    fn record_reply(
        &self,
        conversation: &mut Conversation,
        next: NextPrompt,
        completion: Completion,
        reply: String,
        seed: u64,
    ) -> Response {
        conversation.messages = next.messages;
        conversation.push_reply(reply.as_str());
        conversation.ids = [next.ids.as_slice(), &completion.ids].concat();
        conversation.rendered = next.rendered;
        Response {
            reply,
            truncated: completion.finish == Finish::Length,
            shortened: next.shortened,
            forked: next.forked,
            tokens: Some(Tokens {
                prompt: next.ids,
                completion: completion.ids,
                logprobs: completion.logprobs,
                version: completion.version,
                seed,
                temperature: self.sampling.temperature,
                finish: completion.finish,
                routes: completion.routes,
            }),
        }
    }
}

impl ChatBackend for ModelBackend {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn respond<'a>(
        &'a self,
        conversation: &'a mut Conversation,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Response, Fault>> {
        self.answer(conversation, ask).boxed()
    }

    fn takes_later_system(&self) -> bool {
        *self.takes_later_system.get_or_init(|| takes_later_system(self.policy.tokenizer()))
    }

    fn count_tokens(&self, prompt: &Prompt) -> Option<Result<usize, Fault>> {
        let tokenizer = &**self.policy.tokenizer();
        Some(prompt_tokens(tokenizer, prompt, self.room(&self.sampling)))
    }

    fn reply_format(&self) -> ReplyFormat {
        self.format.clone()
    }

    fn recall(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
        recorded: &Turn,
    ) -> Result<Response, Fault> {
        let sampling = self.sampling(&ask.limits);
        let next = self.render(conversation, ask, &sampling)?;
        let tokens = recorded.tokens.as_ref().filter(|tokens| tokens.prompt == next.ids);
        let tokens = tokens.ok_or_else(|| other_prompt(recorded))?;
        conversation.messages = next.messages;
        conversation.push_reply(recorded.reply.as_str());
        conversation.ids = [next.ids.as_slice(), &tokens.completion].concat();
        conversation.rendered = next.rendered;
        Ok(Response::recorded(recorded))
    }

    fn sample_again<'a>(
        &'a self,
        path: &'a TurnPath,
        recorded: &'a Tokens,
    ) -> Option<BoxFuture<'a, Result<Tokens, Fault>>> {
        Some(self.again(path, recorded).boxed())
    }
}

/// Returns the sampled tokens without the stop id at their end.
fn reply_ids<'a>(ids: &'a [u32], stop_ids: &[u32]) -> &'a [u32] {
    match ids.split_last() {
        Some((last, rest)) if stop_ids.contains(last) => rest,
        _ => ids,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn fault(error: RuntimeError) -> Fault {
    let kind = match error {
        RuntimeError::Overflow { .. } => FaultKind::Overflow,
        _ => FaultKind::Worker,
    };
    Fault::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stop_id_at_the_end_is_not_spoken() {
        assert_eq!(reply_ids(&[9, 4, 9], &[9]), [9, 4]);
        assert_eq!(reply_ids(&[9, 4], &[9]), [9, 4]);
        assert!(reply_ids(&[], &[9]).is_empty());
    }

    #[test]
    fn a_prompt_too_long_for_the_worker_is_an_overflow() {
        let error = RuntimeError::Overflow { prompt: 9, context: 8 };
        assert_eq!(fault(error).kind, FaultKind::Overflow);
        let gone = RuntimeError::Gone { worker: "w".to_owned(), reason: "panic".to_owned() };
        assert_eq!(fault(gone).kind, FaultKind::Worker);
    }
}
