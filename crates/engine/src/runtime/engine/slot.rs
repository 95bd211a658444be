//! A request in the engine.

use std::sync::Arc;

use maverl_kernels::sample::{
    BadLogits, Sampled, SamplingFilter, TokenDraw, sample_fresh, token_likelihood, uniform_number,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::cache::BlockTable;
use crate::files::{ModelError, ModelErrorKind};
use crate::net::ops::TokenChoice;
use crate::runtime::{
    Completion, Finish, Grammar, GrammarState, Request, RuntimeError, Sampling, Watch,
};
use crate::text::Tokenizer;

/// Channel for the result of a request.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, RuntimeError>>;

/// A request in the engine. A preempted request differs from a new one only in its tokens: keys and values of all but
/// the last are computed, then the last one gives the next token.
pub(super) struct RequestSlot {
    /// Index of the policy in the worker.
    pub(super) policy: usize,
    /// Tokens of the prompt, and those sampled so far.
    pub(super) tokens: Vec<u32>,
    pub(super) table: BlockTable,
    /// Number of tokens in the current forward pass.
    pub(super) next: usize,
    /// Row of its logits in that pass, if it samples a token.
    pub(super) row: Option<usize>,
    /// Row of its last token among those that a device has sampled, if the host has not read it.
    pub(super) unread: Option<u32>,
    pub(super) reply: Reply<Completion>,
    pub(super) sampling: Arc<Sampling>,
    pub(super) seed: u64,
    pub(super) watch: Option<Watch>,
    grammar: Option<Arc<dyn Grammar>>,
    /// Place in the grammar, from the first sampled token on.
    place: Option<Box<dyn GrammarState>>,
    /// Reason why the grammar cannot go on.
    stuck: Option<String>,
    /// Position of the last token of the prompt whose log-prob was sent.
    pub(super) echoed: usize,
    pub(super) logprobs: Vec<f32>,
    /// Maximum length of the completion: `max_tokens`, or the rest of the context.
    max_new_tokens: usize,
    version: u64,
    /// Admission permit, released when the slot is dropped.
    _permit: OwnedSemaphorePermit,
}

impl RequestSlot {
    pub(super) fn new(
        (policy, version): (usize, u64),
        request: Request,
        max_new_tokens: usize,
        reply: Reply<Completion>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let Request { prompt: mut tokens, sampling, seed, watch, grammar } = request;
        tokens.reserve_exact(max_new_tokens);
        Self {
            policy,
            tokens,
            table: BlockTable::nothing(policy),
            next: 0,
            row: None,
            unread: None,
            reply,
            sampling,
            seed,
            watch,
            grammar,
            place: None,
            stuck: None,
            echoed: 0,
            logprobs: Vec::with_capacity(max_new_tokens),
            max_new_tokens,
            version,
            _permit: permit,
        }
    }

    /// Returns the number of tokens, of which the last may not have been read.
    pub(super) fn length(&self) -> usize {
        self.tokens.len() + usize::from(self.unread.is_some())
    }

    /// Returns the number of tokens without keys and values; at least one, the last.
    pub(super) fn uncached_tokens(&self) -> usize {
        self.length() - self.table.len
    }

    /// Returns true if its last token was sampled but not read: it has as many tokens as it may.
    pub(super) fn has_all(&self) -> bool {
        self.unread.is_some() && self.drawn_so_far() >= self.max_new_tokens
    }

    /// Returns true if a pass of this policy has tokens of it.
    pub(super) fn is_next_of(&self, policy: usize) -> bool {
        self.policy == policy && self.next > 0
    }

    /// Returns true if this pass reaches the last token, so that a new one can be sampled.
    pub(super) fn is_ready(&self) -> bool {
        self.next > 0 && self.next == self.uncached_tokens()
    }

    /// Reports the number of cached tokens when the request begins; a preempted one began before.
    pub(super) fn begin(&self, cached: usize) {
        if let Some(watch) = self.watch.as_ref().filter(|_| self.logprobs.is_empty()) {
            watch.began(cached);
        }
    }

    /// Returns the number of tokens sampled and read so far.
    pub(super) fn sampled_tokens(&self) -> usize {
        self.logprobs.len()
    }

    /// Returns the number of tokens sampled so far, of which the last may not have been read.
    pub(super) fn drawn_so_far(&self) -> usize {
        self.sampled_tokens() + usize::from(self.unread.is_some())
    }

    /// Returns the tokens sampled so far.
    pub(super) fn generated_tokens(&self) -> &[u32] {
        &self.tokens[self.tokens.len() - self.sampled_tokens()..]
    }

    /// Returns the reason why the completion ended, or `None` if it has not.
    pub(super) fn finish(&self, tokenizer: &Tokenizer) -> Option<Finish> {
        let last = self.tokens.last().filter(|_| self.sampled_tokens() > 0)?;
        let stops = [tokenizer.stop_ids(), &self.sampling.stop_ids];
        if stops.iter().any(|ids| ids.contains(last)) || self.has_stopped(tokenizer) {
            return Some(Finish::Stop);
        }
        (self.sampled_tokens() >= self.max_new_tokens).then_some(Finish::Length)
    }

    /// Takes the error of a request whose grammar cannot go on.
    pub(super) fn take_error(&mut self) -> Option<RuntimeError> {
        let problem = self.stuck.take()?;
        Some(RuntimeError::Grammar { problem })
    }

    /// Sends the completion. The send fails only if the caller dropped the request.
    pub(super) fn answer(mut self, finish: Finish) {
        let ids = self.tokens.split_off(self.tokens.len() - self.sampled_tokens());
        let Self { reply, logprobs, version, .. } = self;
        drop(reply.send(Ok(Completion::new(ids, logprobs, version, finish))));
    }

    /// Returns true if a stop string ends the completion, with special tokens or without them, as replies are read. A string of n
    /// bytes lies within the last n tokens and the one before.
    fn has_stopped(&self, tokenizer: &Tokenizer) -> bool {
        let Some(longest) = self.sampling.stop.iter().map(String::len).max() else { return false };
        let (generated, stops) =
            (self.generated_tokens(), |text: String| self.contains_stop(&text));
        let last = &generated[generated.len().saturating_sub(longest + 1)..];
        if stops(tokenizer.decode_raw(last)) {
            return true;
        }
        if !last.iter().any(|id| tokenizer.is_special(*id)) {
            return false;
        }
        let shown = generated.iter().rev().copied().filter(|id| !tokenizer.is_special(*id));
        let mut shown: Vec<u32> = shown.take(longest + 1).collect();
        shown.reverse();
        stops(tokenizer.decode_raw(&shown))
    }

    fn contains_stop(&self, text: &str) -> bool {
        self.sampling.stop.iter().any(|stop| text.contains(stop.as_str()))
    }

    /// Returns temperature and filters.
    fn filter(&self) -> SamplingFilter {
        let Sampling { temperature, top_k, top_p, min_p, .. } = *self.sampling;
        SamplingFilter { temperature, top_k: top_k as usize, top_p, min_p }
    }

    /// Returns the logits that the grammar leaves, if there is one.
    fn masked_logits(&mut self, logits: &[f32]) -> Option<Result<Vec<f32>, String>> {
        let grammar = self.grammar.as_ref()?;
        let place = self.place.get_or_insert_with(|| grammar.begin());
        let mut masked = logits.to_vec();
        Some(place.mask(&mut masked).map(|()| masked))
    }

    fn push(&mut self, sampled: Sampled) {
        if let Some(Err(problem)) = self.place.as_mut().map(|place| place.push(sampled.id)) {
            self.stuck = Some(problem);
        }
        self.tokens.push(sampled.id);
        self.logprobs.push(sampled.logprob);
    }
}

impl TokenChoice for RequestSlot {
    fn row(&self) -> Option<usize> {
        self.row
    }

    fn draw(&self) -> Option<TokenDraw> {
        let SamplingFilter { temperature, .. } = self.filter();
        let unfiltered = SamplingFilter { temperature, ..SamplingFilter::default() };
        let plain = self.filter() == unfiltered && self.sampling.repetition_penalty == 1.0;
        let draw = TokenDraw { temperature, seed: self.seed, counter: self.drawn_so_far() as u64 };
        let watched = self.watch.as_ref().is_some_and(Watch::sends_steps);
        (plain && !watched && self.grammar.is_none()).then_some(draw)
    }

    fn choose(&mut self, logits: &[f32]) -> Result<(), ModelError> {
        let u = uniform_number(self.seed, self.sampled_tokens() as u64);
        let (filter, penalty) = (self.filter(), self.sampling.repetition_penalty);
        let sampled = match self.masked_logits(logits) {
            None => sample_fresh(logits, &self.tokens, penalty, &filter, u).map_err(blown_up)?,
            Some(Ok(masked)) => {
                let sampled = sample_fresh(&masked, &self.tokens, penalty, &filter, u);
                let Sampled { id, entropy, .. } = sampled.map_err(blown_up)?;
                let of_model =
                    token_likelihood(logits, filter.temperature, id, 0).map_err(blown_up)?;
                Sampled { id, logprob: of_model.logprob, entropy }
            }
            Some(Err(problem)) => {
                self.stuck = Some(problem);
                return Ok(());
            }
        };
        if let Some(watch) = &self.watch {
            watch.send_sampled(sampled.id, sampled.logprob, logits, filter.temperature);
        }
        self.push(sampled);
        Ok(())
    }

    fn take_drawn(&mut self, sampled: Result<Sampled, BadLogits>) -> Result<(), ModelError> {
        self.push(sampled.map_err(blown_up)?);
        Ok(())
    }
}

/// Converts the error of logits that describe no distribution, with a remedy.
fn blown_up(error: BadLogits) -> ModelError {
    let remedy = "the weights have blown up; a smaller `optim.lr` or `optim.grad_clip` usually helps. With `dtype = \"f16\"`, a \
                  number may have exceeded 65,504; write \"bf16\" or \"f32\"";
    ModelError::new(ModelErrorKind::Numeric, format!("{error}: {remedy}"))
}
