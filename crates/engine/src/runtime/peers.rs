//! The other ranks of a worker group: work on rows is dealt to all, and every rank gets all results.
//!
//! A row is computed by one rank, and K-1 gives it the bits that every rank would compute. Sums are added in the order of
//! ranks, so that all have the same bits, which differ by rounding from those of another number of ranks.
//!
//! Norm, clipping and the check for finite numbers use the sums, so every rank applies the same optimizer step. In each
//! update, ranks compare hashes of the batch and of the weights.

use std::ops::Range;
#[cfg(feature = "cuda")]
use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::files::{ModelError, ModelErrorKind};
use crate::loss::{PolicyLoss, ValueLoss};
use crate::net::memory::Memory;
use crate::net::ops::Ops;
#[cfg(feature = "cuda")]
use crate::net::ops::Transfer;
#[cfg(feature = "cuda")]
use crate::net::values::ALIGN;
use crate::net::{Gradients, Params, unit_places};
use crate::runtime::RuntimeError;
#[cfg(feature = "cuda")]
use maverl_dist::parts;
use maverl_dist::{Channel, Machines, RankError, Shard};

/// The ranks on which a worker group is; none beside this process by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    channel: Option<Channel>,
    /// Division of the models among the ranks.
    shard: Shard,
    /// Connection of the devices of the ranks, if they have one.
    #[cfg(feature = "cuda")]
    transfer: Option<Arc<dyn Transfer>>,
}

impl Peers {
    /// Creates the ranks that share a channel, and divide models as `shard` says.
    pub(crate) fn new(channel: Option<Channel>, shard: Shard) -> Self {
        let channel = channel.filter(|channel| channel.size() > 1);
        Self {
            shard: if channel.is_some() { shard } else { Shard::None },
            channel,
            #[cfg(feature = "cuda")]
            transfer: None,
        }
    }

    /// Returns the same ranks for arrays in host memory, of which each rank has all moments.
    pub(crate) fn on_host(&self) -> Self {
        Self::new(self.channel.clone(), Shard::None)
    }

    /// Returns the same ranks with a connection of their devices.
    #[cfg(feature = "cuda")]
    pub(crate) fn with_transfer(&self, transfer: Arc<dyn Transfer>) -> Self {
        Self { transfer: Some(transfer), ..self.clone() }
    }

    /// Returns the channel, if there are other ranks.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    /// Returns threads for a worker group that waits for other ranks; `None` if there are none. In the global pool the
    /// groups of this rank would wait for each other's threads, and other ranks for them.
    pub(crate) fn threads(&self) -> Result<Option<ThreadPool>, RuntimeError> {
        if self.channel.is_none() {
            return Ok(None);
        }
        let threads = rayon::current_num_threads();
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(Some).map_err(|error| RuntimeError::Threads { threads, reason: error.to_string() })
    }

    /// Returns the channel of ranks that divide the moments (ZeRO-1), or all of a model.
    pub(crate) fn of_shards(&self) -> Option<&Channel> {
        self.channel.as_ref().filter(|_| self.shard != Shard::None)
    }

    /// Returns true if ranks divide the weights that are trained (ZeRO-3).
    pub(crate) fn divide_weights(&self) -> bool {
        self.shard == Shard::Full
    }

    /// Returns the rank of this process.
    pub(crate) fn rank(&self) -> usize {
        self.channel.as_ref().map_or(0, Channel::rank)
    }

    /// Returns the number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.channel.as_ref().map_or(1, Channel::size)
    }

    /// Returns the ranks as those of one machine: what each owns, and so the order of the norm's squares, does not depend on the
    /// machines that they are on.
    pub(crate) fn machines(&self) -> Machines {
        Machines::new(self.size(), self.size())
    }

    /// Returns the range of an array that each rank owns, in the order of ranks.
    fn owned(&self, elements: usize) -> Vec<Range<usize>> {
        let machines = self.machines();
        (0..self.size()).map(|rank| machines.range(elements, rank)).collect()
    }

    /// Returns the range of each unit of parameters that each rank owns: in the order of units, and of ranks.
    pub(crate) fn owned_of_units<O: Memory>(&self, params: &Params<O>) -> Vec<Vec<Range<usize>>> {
        let units = unit_places(params).into_iter();
        units.map(|unit| shifted(self.owned(unit.len()), unit.start)).collect()
    }

    /// Returns the rows of this rank: a range with about as many tokens as those of other ranks. `units` are numbers of rows
    /// that are not separated, with the tokens of each unit.
    pub(crate) fn share(&self, units: &[[usize; 2]]) -> Range<usize> {
        let Some(channel) = &self.channel else {
            return 0..units.iter().map(|[rows, _]| rows).sum();
        };
        let [start, end] =
            [channel.rank(), channel.rank() + 1].map(|rank| first_row(units, rank, channel.size()));
        start..end
    }

    /// Computes a list of numbers for each row, each on one rank. `compute` gets the rows of this rank.
    pub(crate) fn lists(
        &self,
        units: &[[usize; 2]],
        compute: impl FnOnce(Range<usize>) -> Result<Vec<Vec<f32>>, ModelError>,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let own = compute(self.share(units))?;
        let Some(channel) = &self.channel else { return Ok(own) };
        let all = channel.all_gather(&encode(&own)).map_err(lost_rank)?;
        Ok(all.iter().flat_map(|bytes| decode(bytes)).collect())
    }

    /// Adds a count of all ranks.
    pub(crate) fn count(&self, own: u64) -> Result<u64, ModelError> {
        Ok(self.numbers(&[own as f64])?.concat().into_iter().map(|count| count as u64).sum())
    }

    /// Combines the gradients of all ranks: those that the moments of this rank belong to. The sums of an embedding that are apart
    /// are added to those of the head when both are combined.
    pub(crate) fn combine<O: Ops>(
        &self,
        ops: &O,
        gradients: &mut Gradients<'_, O>,
    ) -> Result<(), ModelError> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let embedding = gradients.take_embedding();
        let units = self.owned_of_units(gradients.params());
        let sums = gradients.combine(|reached| channel.all_reduce(reached).map_err(lost_rank))?;
        self.reduce(ops, (channel, &mut *sums), &units)?;
        let Some((place, mut apart)) = embedding else { return Ok(()) };
        self.reduce(ops, (channel, &mut apart), &[self.owned(place.len())])?;
        ops.add_sums(sums, place, &apart)
    }

    /// Adds the arrays of all ranks. A rank that has a shard of the moments gets the sums of its range of each unit.
    fn reduce<O: Ops>(
        &self,
        ops: &O,
        (channel, sums): (&Channel, &mut O::Sums),
        units: &[Vec<Range<usize>>],
    ) -> Result<(), ModelError> {
        #[cfg(feature = "cuda")]
        if let Some(transfer) = &self.transfer {
            if self.of_shards().is_some() {
                return units.iter().try_for_each(|unit| ops.reduce(&**transfer, sums, unit));
            }
            let elements = units.iter().flatten().map(|range| range.end).max().unwrap_or(0);
            let shards = aligned_parts(elements, self.size());
            ops.reduce(&**transfer, sums, &shards)?;
            return ops.spread_sums(&**transfer, sums, &shards);
        }
        ops.update_sums(sums, &mut |values| {
            let added = if self.of_shards().is_some() {
                units.iter().try_for_each(|unit| channel.reduce_scatter(values, unit))
            } else {
                channel.all_reduce(values)
            };
            added.map_err(lost_rank)
        })
    }

    /// Returns the norm of combined gradients. The squares of the range of each unit that each rank owns are added in this order,
    /// also by a rank that has all sums.
    pub(crate) fn norm<O: Ops>(
        &self,
        ops: &O,
        gradients: &Gradients<'_, O>,
    ) -> Result<f64, ModelError> {
        let Some(channel) = &self.channel else { return gradients.norm(ops) };
        let units = self.owned_of_units(gradients.params());
        let squares = |range: &Range<usize>| gradients.squares(ops, range.clone());
        if self.of_shards().is_some() {
            let own = units.iter().map(|unit| squares(&unit[channel.rank()]));
            return self.norm_of_squares(&own.collect::<Result<Vec<f64>, _>>()?);
        }
        let all: Result<Vec<f64>, _> = units.iter().flatten().map(squares).collect();
        Ok(all?.iter().sum::<f64>().sqrt())
    }

    /// Returns the norm of gradients, of which each rank gives the sum of the squares of its range of each unit.
    pub(crate) fn norm_of_squares(&self, own: &[f64]) -> Result<f64, ModelError> {
        let all = self.numbers(own)?;
        let in_order = (0..own.len()).flat_map(|unit| all.iter().map(move |of| of[unit]));
        Ok(in_order.sum::<f64>().sqrt())
    }

    /// Sends the parameters that this rank owns to the other ranks, and receives theirs.
    pub(crate) fn spread<O: Ops>(
        &self,
        ops: &O,
        weights: &mut O::Weights,
        units: &[Vec<Range<usize>>],
    ) -> Result<(), ModelError> {
        let Some(channel) = self.of_shards() else { return Ok(()) };
        #[cfg(feature = "cuda")]
        if let Some(transfer) = &self.transfer {
            return units
                .iter()
                .try_for_each(|unit| ops.spread_weights(&**transfer, weights, unit));
        }
        ops.update_weights(weights, &mut |values| {
            let gathered =
                units.iter().try_for_each(|unit| channel.all_gather_ranges(values, unit));
            gathered.map_err(lost_rank)
        })
    }

    /// Returns the numbers of all ranks, in their order.
    pub(crate) fn numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, ModelError> {
        match &self.channel {
            None => Ok(vec![own.to_vec()]),
            Some(channel) => channel.all_gather_f64(own).map_err(lost_rank),
        }
    }

    /// Fails unless all ranks have the same weights.
    pub(crate) fn compare<O: Ops>(
        &self,
        ops: &O,
        params: &Params<O>,
        policy: &str,
    ) -> Result<(), ModelError> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let what = format!(
            "the weights of policy `{policy}` differ after an update; a rank has another build of maverl, or memory that \
             fails"
        );
        channel.agree(params.checksum(ops)?, &what).map_err(lost_rank)
    }

    /// Fails unless all ranks have the same bytes, of which they give a hash.
    pub(crate) fn agree(&self, hash: impl FnOnce() -> u64, policy: &str) -> Result<(), ModelError> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let what = format!(
            "the batch of policy `{policy}` differs; episodes must not depend on the machine that plays them"
        );
        channel.agree(hash(), &what).map_err(lost_rank)
    }

    /// Adds the sums of all ranks over the rows of a loss.
    pub(crate) fn policy_loss(&self, own: PolicyLoss) -> Result<PolicyLoss, ModelError> {
        let [low, high, dual] = own.clipped;
        let counts =
            [own.tokens, own.kl_tokens, low, high, dual, own.masked, own.taught, own.observed];
        let counts = counts.map(|count| count as f64);
        let terms = [own.loss, own.surrogate, own.kl, own.entropy, own.ppo_kl];
        let sums = [&terms[..], &[own.divergence, own.mass, own.observation_nll]].concat();
        let mut sum = PolicyLoss::default();
        for of in self.numbers(&[sums, counts.to_vec()].concat())? {
            let ([sums, counts], []) = of.as_chunks::<8>() else { continue };
            let [loss, surrogate, kl, entropy, ppo_kl, divergence, mass, observation_nll] = *sums;
            let [tokens, kl_tokens, low, high, dual, masked, taught, observed] =
                counts.map(|count| count as u64);
            sum += PolicyLoss {
                loss,
                surrogate,
                kl,
                entropy,
                tokens,
                kl_tokens,
                clipped: [low, high, dual],
                ppo_kl,
                masked,
                divergence,
                mass,
                taught,
                observation_nll,
                observed,
            };
        }
        Ok(sum)
    }

    /// Adds the sums of all ranks over the values of a loss.
    pub(crate) fn value_loss(&self, own: ValueLoss) -> Result<ValueLoss, ModelError> {
        let mut sum = ValueLoss::default();
        for of in self.numbers(&[own.loss, own.clipped as f64, own.values as f64])? {
            let &[loss, clipped, values] = of.as_slice() else { continue };
            sum += ValueLoss { loss, clipped: clipped as u64, values: values as u64 };
        }
        Ok(sum)
    }
}

/// Returns ranges that begin later by an offset.
fn shifted(ranges: Vec<Range<usize>>, by: usize) -> Vec<Range<usize>> {
    ranges.into_iter().map(|range| range.start + by..range.end + by).collect()
}

/// Divides an array into a range of whole blocks for each rank.
#[cfg(feature = "cuda")]
fn aligned_parts(elements: usize, ranks: usize) -> Vec<Range<usize>> {
    let aligned = parts(elements / ALIGN, ranks).into_iter();
    aligned.map(|part| part.start * ALIGN..part.end * ALIGN).collect()
}

/// Adds a word to a hash.
pub(crate) fn mix_word(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Converts the loss of a rank to an error of the worker group.
pub(crate) fn lost_rank(error: RankError) -> ModelError {
    ModelError::new(ModelErrorKind::Io, error.to_string()).with_source(error)
}

/// Returns the first row of a rank: the one that begins nearest to its share of the tokens.
fn first_row(units: &[[usize; 2]], rank: usize, ranks: usize) -> usize {
    let total: usize = units.iter().map(|[_, tokens]| tokens).sum();
    let target = total * rank / ranks;
    let (mut before, mut row) = (0, 0);
    for [rows, tokens] in units {
        // A unit belongs to the rank in whose share its middle is.
        if rank < ranks && before + tokens / 2 >= target {
            break;
        }
        (before, row) = (before + tokens, row + rows);
    }
    row
}

/// Encodes lists of numbers: for each, its length and its numbers.
pub(crate) fn encode(lists: &[Vec<f32>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for list in lists {
        bytes.extend_from_slice(&(list.len() as u32).to_le_bytes());
        bytes.extend(list.iter().flat_map(|value| value.to_le_bytes()));
    }
    bytes
}

/// Decodes the lists of [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Vec<Vec<f32>> {
    let mut words = bytes.chunks_exact(4).map(|bytes| {
        let mut word = [0; 4];
        word.copy_from_slice(bytes);
        word
    });
    let mut lists = Vec::new();
    while let Some(length) = words.next() {
        let length = u32::from_le_bytes(length) as usize;
        lists.push(words.by_ref().take(length).map(f32::from_le_bytes).collect());
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_rank_and_ranks_have_about_as_many_tokens() {
        for (ranks, rows) in [(1, 1), (2, 1), (3, 2), (4, 4), (7, 2), (64, 1)] {
            let units: Vec<[usize; 2]> = (0..40).map(|i| [rows, 3 + (i * 7) % 11]).collect();
            let total: usize = units.iter().map(|[_, tokens]| tokens).sum();
            let bounds: Vec<usize> =
                (0..=ranks).map(|rank| first_row(&units, rank, ranks)).collect();
            assert_eq!((bounds[0], bounds[ranks]), (0, 40 * rows));
            for pair in bounds.windows(2) {
                assert!(pair[0] <= pair[1] && pair[0] % rows == 0, "{bounds:?}");
                let own = &units[pair[0] / rows..pair[1] / rows];
                let tokens: usize = own.iter().map(|[_, tokens]| tokens).sum();
                assert!(tokens.abs_diff(total / ranks) <= 13, "{tokens} of {total}");
            }
        }
        assert_eq!(first_row(&[], 1, 2), 0);
    }

    #[test]
    fn lists_are_decoded_to_the_bit() {
        let lists = vec![vec![1.5, -0.0, f32::NAN], vec![], vec![f32::MIN_POSITIVE]];
        let found = decode(&encode(&lists));
        let bits = |lists: &[Vec<f32>]| -> Vec<Vec<u32>> {
            lists.iter().map(|list| list.iter().map(|value| value.to_bits()).collect()).collect()
        };
        assert_eq!(bits(&found), bits(&lists));
    }
}
