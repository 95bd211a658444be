//! Continuous batching: requests of every episode and agent join and leave between forward passes.

use std::sync::Arc;

use candle_core::Tensor;
use maverl_kernels::sample::{Filter, sample, uniform};
use rayon::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::model::{Context, KvCache, Model, ModelError, Tokenizer, nn};
use crate::plan::Sampling;
use crate::runtime::{Completion, Request, RuntimeError};
use crate::trajectory::Finish;

/// Where a completion goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, RuntimeError>>;

/// A request on its way through the engine.
struct Slot {
    /// Of the worker.
    policy: usize,
    request: Request,
    reply: Reply<Completion>,
    cache: KvCache,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// Longest completion: `max_tokens`, or what the context leaves.
    room: usize,
    version: u64,
    /// Tokens of the forward pass under way.
    next: usize,
    /// Admission is given back when the slot is dropped.
    _permit: OwnedSemaphorePermit,
}

/// The requests being completed on one base.
pub(crate) struct Engine {
    worker: String,
    tokenizer: Arc<Tokenizer>,
    prefill_tokens: usize,
    slots: Vec<Slot>,
}

impl Engine {
    pub(crate) fn new(worker: &str, tokenizer: Arc<Tokenizer>, prefill_tokens: usize) -> Self {
        Self { worker: worker.to_owned(), tokenizer, prefill_tokens, slots: Vec::new() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// What the oldest request has so far.
    pub(crate) fn made(&self) -> &[u32] {
        self.slots.first().map_or(&[], |slot| &slot.ids)
    }

    /// Takes a request in; it joins the next forward pass.
    pub(crate) fn admit(
        &mut self,
        policy: usize,
        model: &Model,
        version: u64,
        request: Request,
        reply: Reply<Completion>,
        permit: OwnedSemaphorePermit,
    ) {
        let (prompt, context) = (request.prompt.len(), model.config.max_position_embeddings);
        if prompt == 0 || prompt >= context {
            // A caller that has gone needs no answer.
            drop(reply.send(Err(RuntimeError::Overflow { prompt, context })));
            return;
        }
        let room = request.sampling.max_tokens.min(context - prompt);
        self.slots.push(Slot {
            policy,
            cache: KvCache::new(&model.config, prompt + room),
            ids: Vec::with_capacity(room),
            logprobs: Vec::with_capacity(room),
            room,
            version,
            next: 0,
            request,
            reply,
            _permit: permit,
        });
    }

    /// A forward pass of each policy that has requests: every decoding request advances by a token, and waiting prompts
    /// by up to `prefill_tokens` together.
    pub(crate) fn step<'m>(&mut self, models: impl Iterator<Item = &'m Model>) {
        self.slots.retain(|slot| !slot.reply.is_closed());
        let mut budget = self.prefill_tokens;
        for slot in &mut self.slots {
            slot.next = 1;
            if slot.ids.is_empty() {
                slot.next = (slot.request.prompt.len() - slot.cache.len()).min(budget);
                budget -= slot.next;
            }
        }
        for (policy, model) in models.enumerate() {
            let Err(error) = self.advance(policy, model) else { continue };
            let error = RuntimeError::Model { worker: self.worker.clone(), message: error.0 };
            for slot in self.slots.extract_if(.., |slot| slot.policy == policy) {
                drop(slot.reply.send(Err(error.clone())));
            }
        }
        let tokenizer = &self.tokenizer;
        let done = |slot: &mut Slot| slot.finish(tokenizer).is_some();
        for mut slot in self.slots.extract_if(.., done) {
            let finish = slot.finish(tokenizer).unwrap_or(Finish::Length);
            let ids = std::mem::take(&mut slot.ids);
            let logprobs = std::mem::take(&mut slot.logprobs);
            drop(slot.reply.send(Ok(Completion { ids, logprobs, version: slot.version, finish })));
        }
    }

    /// One forward pass of a policy, over the next tokens of its requests.
    fn advance(&mut self, policy: usize, model: &Model) -> Result<(), ModelError> {
        let (mut ids, mut positions, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sequences, mut ready) = (Vec::new(), Vec::new());
        let mine = |slot: &&mut Slot| slot.policy == policy && slot.next > 0;
        for slot in self.slots.iter_mut().filter(mine) {
            let Slot { request, cache, ids: made, logprobs, next, .. } = slot;
            let from = cache.len();
            match made.last() {
                Some(last) => ids.push(*last),
                None => ids.extend_from_slice(&request.prompt[from..from + *next]),
            }
            positions.extend((from..from + *next).map(|position| position as u32));
            if from + *next >= request.prompt.len() {
                ends.push(ids.len() as u32 - 1);
                ready.push((&*request, made, logprobs));
            }
            sequences.push((cache, *next));
        }
        if ids.is_empty() {
            return Ok(());
        }
        let (ids, positions): (Arc<[u32]>, Arc<[u32]>) = (ids.into(), positions.into());
        let hidden = model.frozen.forward(&ids, &positions, Context::Cached(&mut sequences))?;
        if ready.is_empty() {
            return Ok(());
        }
        let logits = model.frozen.logits(&nn::pick(&hidden, &ends.into())?)?;
        choose(&logits, &mut ready)
    }
}

/// Why logits describe no distribution, and what would help.
const BLOWN_UP: &str =
    "the weights have blown up; a smaller `optim.lr` or `optim.grad_clip` usually helps";

/// Samples the next token of each request from its row of `logits [R, V]`.
fn choose(
    logits: &Tensor,
    ready: &mut [(&Request, &mut Vec<u32>, &mut Vec<f32>)],
) -> Result<(), ModelError> {
    let (_, vocab) = logits.dims2()?;
    let results = nn::with_values(logits, |logits| {
        let rows = ready.par_iter_mut().zip(logits.par_chunks_exact(vocab));
        rows.map(|((request, ids, logprobs), row)| {
            let u = uniform(request.seed, ids.len() as u64);
            let sampled = sample(row, &filter(&request.sampling), u)
                .map_err(|e| ModelError(format!("{e}: {BLOWN_UP}")))?;
            ids.push(sampled.id);
            logprobs.push(sampled.logprob);
            Ok(())
        })
        .collect::<Result<Vec<()>, ModelError>>()
    })?;
    results.map(drop)
}

fn filter(sampling: &Sampling) -> Filter {
    let Sampling { temperature, top_k, top_p, min_p, .. } = *sampling;
    Filter { temperature, top_k: top_k as usize, top_p, min_p }
}

impl Slot {
    /// Why the completion is complete, if it is.
    fn finish(&self, tokenizer: &Tokenizer) -> Option<Finish> {
        let last = *self.ids.last()?;
        let sampling = &self.request.sampling;
        if tokenizer.stop_ids().contains(&last)
            || sampling.stop_ids.contains(&last)
            || self.stopped(tokenizer)
        {
            return Some(Finish::Stop);
        }
        (self.ids.len() >= self.room).then_some(Finish::Length)
    }

    /// Whether a stop string ends the completion. A string of n bytes lies within the last n tokens and the one before.
    fn stopped(&self, tokenizer: &Tokenizer) -> bool {
        let stop = &self.request.sampling.stop;
        let Some(longest) = stop.iter().map(String::len).max() else { return false };
        let tail = tokenizer.decode_raw(&self.ids[self.ids.len().saturating_sub(longest + 1)..]);
        stop.iter().any(|stop| tail.contains(stop.as_str()))
    }
}
