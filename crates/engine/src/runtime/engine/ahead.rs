//! Passes that are launched before the host has read the tokens of the last one.
//!
//! A device samples the tokens of a pass, and the next pass reads their ids in its memory. The host reads them while that pass
//! runs. What follows from a token is therefore known one pass late:
//!
//! - A request gets the block of its next token before it is known whether there is one.
//! - A request that ends has a token more in the pass under way. That token is discarded. A request that ends because it has
//!   as many tokens as it may is not in that pass.
//! - Where the host has to know a token before the next one is sampled (filters, a repetition penalty, a grammar, a receiver of
//!   steps), no pass of the policy is launched ahead while such a request is there.
//!
//! Draws are counted, so the tokens are the same (K-1).

use super::slot::RequestSlot;
use super::{Engine, Pass, lock};
use crate::files::ModelError;
use crate::net::Model;
use crate::net::ops::{Backend, TokenChoice as _};

impl<O: Backend> Engine<O> {
    /// Reads the tokens of policies whose next tokens the host samples, and answers requests that have ended.
    pub(super) fn settle(&mut self) {
        for policy in 0..self.unread.len() {
            let mut own = self.slots.iter().filter(|slot| slot.policy == policy);
            if self.unread[policy].is_some() && own.any(|slot| slot.draw().is_none()) {
                let read = self.unread[policy].take().map(|unread| self.read(policy, &unread));
                if let Some(Err(error)) = read {
                    self.fail(&error, |slot| slot.policy == policy);
                }
                self.answer_ended();
            }
        }
    }

    /// Runs one forward pass of a policy over the next tokens of its requests. Reads the tokens of the pass before if they
    /// were not read.
    pub(super) fn advance(&mut self, policy: usize, model: &Model<O>) -> Result<(), ModelError> {
        let mut own = self.slots.iter().filter(|slot| slot.policy == policy);
        let unread = self.unread[policy].take().filter(|_| own.any(|slot| slot.unread.is_some()));
        self.slots.iter_mut().for_each(|slot| slot.row = None);
        let launched = self.launch(policy, model, unread.as_ref())?;
        if let Some(unread) = unread {
            self.read(policy, &unread)?;
        }
        if launched.is_some() {
            let drawn = self.slots.iter_mut().filter(|slot| slot.row.is_some());
            drawn.for_each(|slot| slot.unread = slot.row.map(|row| row as u32));
        }
        self.unread[policy] = launched;
        self.commit(policy)
    }

    /// Samples a token for each request that is ready. Returns the tokens if they were not read.
    pub(super) fn sample(
        &mut self,
        policy: usize,
        model: &Model<O>,
        hidden: &O::Act,
    ) -> Result<Option<O::Drawn>, ModelError> {
        let Pass { ends, draws, pool, .. } = &mut self.pass;
        if ends.is_empty() {
            return Ok(None);
        }
        draws.clear();
        let own = self.slots.iter_mut().filter(|slot| slot.policy == policy);
        for (row, slot) in own.filter(|slot| slot.is_ready()).enumerate() {
            slot.row = Some(row);
            draws.extend(slot.draw());
        }
        if self.ahead && draws.len() == ends.len() {
            return model.decoder.draw(hidden, ends, draws, pool).map(Some);
        }
        model.decoder.choose(hidden, ends, &mut self.slots, pool)?;
        Ok(None)
    }

    /// Reads the tokens of a policy's last pass.
    fn read(&mut self, policy: usize, unread: &O::Drawn) -> Result<(), ModelError> {
        let tokens = self.ops.read_drawn(unread)?;
        for slot in self.slots.iter_mut().filter(|slot| slot.policy == policy) {
            if let Some(row) = slot.unread.take() {
                slot.take_drawn(tokens[row as usize])?;
            }
        }
        Ok(())
    }

    /// Records the tokens of a forward pass, and inserts new blocks into the prefix tree.
    fn commit(&mut self, policy: usize) -> Result<(), ModelError> {
        let mut work = lock(&self.work[policy]);
        let before = work.decoded + work.discarded;
        for slot in self.slots.iter_mut().filter(|slot| slot.policy == policy && slot.next > 0) {
            if slot.unread.is_some() && slot.finish(&self.tokenizer).is_some() {
                // It ended with the token that was read after the pass was launched.
                slot.unread = None;
                work.discarded += 1;
                continue;
            }
            let (sampled, length) = (slot.drawn_so_far(), slot.length());
            let RequestSlot { table, tokens, next, .. } = slot;
            table.len += *next;
            // The whole prompt, so that later requests can share it up to the last token.
            let states = self.cache.has_states();
            let end = sampled == usize::from(!states) && table.len + 1 == length;
            let whole = end || table.is_split();
            let place = self.cache.insert_prefix(table, tokens, whole);
            self.cache.keep_copy(table, place.filter(|_| whole))?;
            self.cache.move_window(table, sampled, end);
            if sampled > 1 && *next == 1 {
                work.decoded += 1
            } else {
                work.prefilled += *next as u64
            }
        }
        work.passes += u64::from(work.decoded + work.discarded > before);
        Ok(())
    }
}
