//! Continuous batching: requests of every episode and agent join and leave between forward passes.
//!
//! Requests are served in order of arrival. When memory is full, younger requests are preempted: their blocks are freed
//! and recomputed when they resume. Neither the order, nor the other requests in a batch, nor the number of preemptions
//! changes a result (K-1).
//!
//! On a device, a pass is launched before the tokens of the last one are read: see [`ahead`].
//!
//! The thread repeats three steps: it admits waiting requests, computes the next tokens of the running ones, and
//! answers complete ones. Each policy with requests has one forward pass. The passes compute one token of each decoding
//! request, and at most `runtime.prefill_tokens` tokens of the prompts of all policies. A request whose caller is gone
//! is dropped.

mod ahead;
mod cache;
mod echo;
mod prefix;
mod slot;
mod states;
mod windows;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use maverl_kernels::attention::Segment;
use maverl_kernels::sample::TokenDraw;
use tokio::sync::OwnedSemaphorePermit;

use crate::files::{HfConfig, ModelError};
use crate::net::ops::{Backend, Cpu, DrawnIds, FROM_HOST, NewTokens};
use crate::net::{KvStore, Model, Pool};
use crate::runtime::{Completion, EngineStats, KvBlocks, Request, RuntimeError, RuntimeOptions};
use crate::text::Tokenizer;
use cache::Cache;
use prefix::NodeId;
use slot::RequestSlot;

pub(crate) use slot::Reply;

/// Running and waiting requests on one base.
pub(crate) struct Engine<O: Backend = Cpu> {
    ops: O,
    /// True if passes are launched before the tokens of the last one are read.
    ahead: bool,
    /// Tokens of each policy's last pass that were not read.
    unread: Vec<Option<O::Drawn>>,
    worker: String,
    tokenizer: Arc<Tokenizer>,
    prefill_tokens: usize,
    /// Requests in order of arrival.
    slots: Vec<RequestSlot>,
    cache: Cache<O>,
    /// Counters of each policy.
    work: Vec<Arc<Mutex<EngineStats>>>,
    blocks: Arc<KvBlocks>,
    pass: Pass<O>,
}

/// Inputs of one forward pass; the buffers are reused.
struct Pass<O: Backend> {
    ids: Vec<u32>,
    positions: Vec<u32>,
    /// Rows of the last tokens of requests that sample a token in this pass.
    ends: Vec<u32>,
    /// Row of each token among those that were not read, or [`FROM_HOST`].
    rows: Vec<u32>,
    /// Draws of the requests that sample a token.
    draws: Vec<TokenDraw>,
    /// Segments; empty between passes.
    segments: Vec<Segment<'static>>,
    pool: Pool<O>,
}

impl<O: Backend> Default for Pass<O> {
    fn default() -> Self {
        let (ids, positions, ends, rows) = Default::default();
        let (draws, segments) = Default::default();
        Self { ids, positions, ends, rows, draws, segments, pool: Pool::default() }
    }
}

/// Remaining resources while a step is scheduled.
struct StepBudget {
    /// Remaining prompt tokens.
    prefill: usize,
    /// Number of requests that hold blocks, each of which may soon need another.
    running: usize,
    /// Blocks that are being computed; a request that needs one of them waits.
    computing: BTreeSet<(NodeId, [u32; KvStore::TOKENS])>,
    /// True if a request waits for memory; later requests wait behind it.
    full: bool,
}

impl<O: Backend> Engine<O> {
    pub(crate) fn new(
        worker: &str,
        tokenizer: Arc<Tokenizer>,
        ops: &O,
        config: &HfConfig,
        options: &RuntimeOptions,
        policies: usize,
    ) -> Self {
        let bytes = options.kv_mib.get() << 20;
        Self {
            ops: ops.clone(),
            ahead: ops.runs_ahead(),
            unread: (0..policies).map(|_| None).collect(),
            worker: worker.to_owned(),
            tokenizer,
            prefill_tokens: options.prefill_tokens.get(),
            slots: Vec::new(),
            cache: Cache::new(
                ops,
                config,
                bytes,
                options.prefix_cache,
                policies,
                options.prefill_tokens.get(),
            ),
            work: (0..policies).map(|_| Arc::default()).collect(),
            blocks: Arc::default(),
            pass: Pass::default(),
        }
    }

    /// Returns the counters of each policy.
    pub(crate) fn work(&self) -> &[Arc<Mutex<EngineStats>>] {
        &self.work
    }

    /// Returns the number of tokens that the cache holds for one request.
    pub(crate) fn capacity(&self) -> usize {
        self.cache.tokens()
    }

    /// Returns the counts of blocks, which every step updates.
    pub(crate) fn blocks(&self) -> Arc<KvBlocks> {
        Arc::clone(&self.blocks)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the tokens that the oldest request has sampled so far.
    pub(crate) fn generated_tokens(&self) -> &[u32] {
        self.slots.first().map_or(&[], RequestSlot::generated_tokens)
    }

    /// Drops the cached prefixes of a policy, because its weights may have changed.
    pub(crate) fn forget(&mut self, policy: usize) {
        debug_assert!(self.is_idle(), "a barrier waits for every request (RT-1)");
        self.cache.forget(policy);
    }

    /// Adds a request; it joins the next forward pass.
    pub(crate) fn admit(
        &mut self,
        policy: usize,
        config: &HfConfig,
        version: u64,
        request: Request,
        reply: Reply<Completion>,
        permit: OwnedSemaphorePermit,
    ) {
        let (prompt, context) = (request.prompt.len(), config.max_position_embeddings);
        // The send fails only if the caller dropped the request.
        if prompt == 0 || prompt >= context {
            return drop(reply.send(Err(RuntimeError::Overflow { prompt, context })));
        }
        let room = request.sampling.max_tokens.min(context - prompt);
        let (tokens, capacity) = (prompt + room, self.cache.tokens());
        if tokens > capacity {
            let worker = self.worker.clone();
            return drop(reply.send(Err(RuntimeError::Memory { worker, tokens, capacity })));
        }
        self.slots.push(RequestSlot::new((policy, version), request, room, reply, permit));
    }

    /// Runs one forward pass for each policy that has requests. Every decoding request advances by one token, and
    /// waiting prompts by up to `prefill_tokens` together.
    pub(crate) fn step<'m>(&mut self, models: impl Iterator<Item = &'m Model<O>>) {
        for mut slot in self.slots.extract_if(.., |slot| slot.reply.is_closed()) {
            self.cache.release(&mut slot.table, &slot.tokens);
        }
        self.settle();
        if let Err(error) = self.schedule() {
            self.fail(&error, |_| true);
        }
        for (policy, model) in models.enumerate() {
            if let Err(error) = self.advance(policy, model) {
                self.fail(&error, |slot| slot.policy == policy);
            }
        }
        self.answer_ended();
        self.cache.count(&self.blocks);
    }

    /// Answers the requests that have ended.
    fn answer_ended(&mut self) {
        let mut at = 0;
        while at < self.slots.len() {
            if let Some(error) = self.slots[at].take_error() {
                let mut slot = self.slots.remove(at);
                self.cache.drop_blocks(&mut slot.table);
                drop(slot.reply.send(Err(error)));
                continue;
            }
            match self.slots[at].finish(&self.tokenizer) {
                None => at += 1,
                Some(finish) => {
                    let mut slot = self.slots.remove(at);
                    self.cache.release(&mut slot.table, &slot.tokens);
                    slot.answer(finish);
                }
            }
        }
        if self.slots.is_empty() {
            self.unread.iter_mut().for_each(|unread| *unread = None);
        }
    }

    /// Ends requests with an error.
    fn fail(&mut self, error: &ModelError, which: impl Fn(&RequestSlot) -> bool) {
        let error = error.clone().in_worker(&self.worker);
        for mut slot in self.slots.extract_if(.., |slot| which(slot)) {
            self.cache.drop_blocks(&mut slot.table);
            drop(slot.reply.send(Err(error.clone())));
        }
    }

    /// Decides the number of tokens of each request in this step, and allocates their blocks.
    fn schedule(&mut self) -> Result<(), ModelError> {
        let running = self.slots.iter().filter(|slot| !slot.table.is_empty()).count();
        let mut budget = StepBudget {
            prefill: self.prefill_tokens,
            running,
            computing: BTreeSet::new(),
            full: false,
        };
        for at in 0..self.slots.len() {
            self.slots[at].next = 0;
            if self.slots[at].has_all() {
                continue;
            }
            if self.slots[at].table.is_empty() && !self.start(at, &mut budget)? {
                continue;
            }
            let next = match self.slots[at].uncached_tokens() {
                1 => 1,
                pending => pending.min(budget.prefill),
            };
            let Self { slots, cache, .. } = self;
            let slot = &slots[at];
            let next = cache.until_kept(&slot.table, slot.uncached_tokens(), next);
            if next == 0 || !self.reserve(at, next, &mut budget)? {
                continue;
            }
            let slot = &mut self.slots[at];
            slot.next = next;
            if slot.uncached_tokens() > 1 {
                budget.prefill -= next;
                let block = slot.table.next_block(&slot.tokens).filter(|_| self.cache.shares());
                budget.computing.extend(block);
            }
        }
        Ok(())
    }

    /// Starts a request on cached blocks, if there is memory for the rest of it. Returns false if it must wait: for
    /// memory, or for a block that is being computed.
    fn start(&mut self, at: usize, budget: &mut StepBudget) -> Result<bool, ModelError> {
        if budget.full || budget.prefill == 0 {
            return Ok(false);
        }
        // The hidden states of cached tokens are gone, so a request for the log-probs of its prompt computes all of it.
        let whole = self.slots[at].reads_prompt();
        let RequestSlot { table, tokens, policy, .. } = &mut self.slots[at];
        if !whole {
            self.cache.acquire_prefix(table, tokens);
        }
        let block = table.next_block(tokens).filter(|_| !whole);
        if block.is_some_and(|block| budget.computing.contains(&block)) {
            self.cache.drop_blocks(table);
            return Ok(false);
        }
        let kept = self.cache.trim_to_state(table, tokens).filter(|_| !whole);
        let lacking = Cache::<O>::lacking(table, tokens.len());
        let room = self.cache.has_room(lacking, budget.running);
        let slot = table.state.is_some() || self.cache.has_slot();
        if budget.running > 0 && !(room && slot) {
            self.cache.drop_blocks(table);
            budget.full = true;
            return Ok(false);
        }
        self.cache.start_states(table, kept)?;
        if !whole && !self.cache.has_states() {
            self.cache.acquire_partial_block(table, tokens)?;
        }
        lock(&self.work[*policy]).reused += table.len as u64;
        let cached = table.len;
        self.slots[at].begin(cached);
        budget.running += 1;
        Ok(true)
    }

    /// Allocates the blocks for the next tokens of a request; preempts younger requests if necessary.
    fn reserve(
        &mut self,
        at: usize,
        next: usize,
        budget: &mut StepBudget,
    ) -> Result<bool, ModelError> {
        loop {
            let table = &mut self.slots[at].table;
            let tokens = table.len + next;
            if self.cache.reserve(table, tokens)? {
                return Ok(true);
            }
            budget.full = true;
            let younger = self.slots[at + 1..].iter_mut().rev().find(|slot| !slot.table.is_empty());
            let Some(slot) = younger else { return Ok(false) };
            self.cache.release(&mut slot.table, &slot.tokens);
            budget.running -= 1;
            lock(&self.work[slot.policy]).preempted += 1;
        }
    }

    /// Runs one forward pass of a policy over the next tokens of its requests, and samples a token for those that reach
    /// their last one. Returns the sampled tokens if they were not read.
    fn launch(
        &mut self,
        policy: usize,
        model: &Model<O>,
        unread: Option<&O::Drawn>,
    ) -> Result<Option<O::Drawn>, ModelError> {
        let Pass { ids, positions, ends, rows, segments: spare, pool, .. } = &mut self.pass;
        ids.clear();
        positions.clear();
        ends.clear();
        rows.clear();
        let mut segments: Vec<Segment<'_>> = mem::take(spare);
        for slot in self.slots.iter().filter(|slot| slot.is_next_of(policy)) {
            let (from, len) = (slot.table.len, slot.table.len + slot.next);
            match slot.unread {
                None => ids.extend_from_slice(&slot.tokens[from..len]),
                Some(_) => ids.push(0),
            }
            rows.resize(ids.len(), slot.unread.unwrap_or(FROM_HOST));
            positions.extend((from..len).map(|position| position as u32));
            if slot.is_ready() {
                ends.push(ids.len() as u32 - 1);
            }
            let RequestSlot { next: new_tokens, ref table, .. } = *slot;
            let (blocks, state) = (&table.blocks, table.state.unwrap_or_default());
            segments.push(Segment { new_tokens, len, blocks, state });
        }
        if ids.is_empty() {
            *spare = clear_segments(segments);
            return Ok(None);
        }
        model.decoder.pack();
        let (store, vocab) = (&mut self.cache.store, model.config.vocab_size);
        let drawn = unread.map(|drawn| DrawnIds { drawn, rows, vocab });
        let tokens = NewTokens { ids, positions, segments: &segments, drawn };
        let hidden = model.decoder.decode_cached(tokens, store, pool)?;
        *spare = clear_segments(segments);
        let mut row = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.is_next_of(policy)) {
            let end = row + slot.next as u32;
            slot.echo(&hidden, row..end, model, pool)?;
            row = end;
        }
        let drawn = self.sample(policy, model, &hidden);
        self.pass.pool.give([hidden]);
        drawn
    }
}

/// Clears the list but keeps its allocation for the next pass: collecting from an iterator of the same layout reuses
/// it.
fn clear_segments(mut segments: Vec<Segment<'_>>) -> Vec<Segment<'static>> {
    segments.clear();
    segments.into_iter().map(|segment| Segment { blocks: &[], ..segment }).collect()
}

/// Locks the counters. They are valid even if a thread panicked with the lock.
fn lock(work: &Mutex<EngineStats>) -> std::sync::MutexGuard<'_, EngineStats> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
