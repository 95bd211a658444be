//! Operations that every rank takes part in.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::{Launch, Link, Machines, RankError};
use crate::steps::Route;

/// Elements of an array that are summed at a time, which bounds the memory of messages.
const BLOCK: usize = 4 << 20;

/// Shortest array that goes from machine to machine. The steps of a shorter one would take longer than its bytes.
const STAGED: usize = 1 << 16;

/// Stands for a number that the launcher of a rank does not tell.
const UNKNOWN: u64 = u64::MAX;

/// A channel between all ranks. Every rank calls its operations in the same order.
#[derive(Debug, Clone)]
pub struct Channel {
    link: Arc<dyn Link>,
    number: u32,
    /// Rank and number of ranks on the machine of this rank, if its launcher tells them.
    place: [Option<usize>; 2],
    /// Machines of all ranks, once they have agreed on them.
    machines: Arc<OnceLock<Machines>>,
}

impl Channel {
    pub(super) fn new(link: Arc<dyn Link>, number: u32) -> Self {
        Self { link, number, place: [None; 2], machines: Arc::default() }
    }

    /// Returns the channel with the place that a launcher tells.
    pub(super) fn launched_by(self, launch: &Launch) -> Self {
        Self { place: [launch.local_rank, launch.local_size], ..self }
    }

    /// Returns the machines of all ranks. The first call on a channel asks all ranks for their places.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn machines(&self) -> Result<Machines, RankError> {
        if let Some(machines) = self.machines.get() {
            return Ok(*machines);
        }
        let found = self.agree_on_machines()?;
        Ok(*self.machines.get_or_init(|| found))
    }

    /// Asks all ranks for their places, and returns their machines. Unless the launcher of each tells its place, machines have equal
    /// numbers of ranks, and ranks are numbered machine by machine, all count as ranks of one machine.
    fn agree_on_machines(&self) -> Result<Machines, RankError> {
        let own = self.place.map(|number| number.map_or(UNKNOWN, |number| number as u64));
        let places = self.all_gather(&own.map(u64::to_le_bytes).concat())?;
        let places: Vec<Vec<u64>> = places.iter().map(|bytes| decode(bytes)).collect();
        let (size, whole) = (self.size(), Machines::new(self.size(), self.size()));
        let Some(&[_, local]) = places.first().map(Vec::as_slice) else { return Ok(whole) };
        let in_order = local > 0
            && (size as u64).is_multiple_of(local)
            && places.iter().zip(0..).all(|(place, rank)| *place == [rank % local, local]);
        Ok(if in_order { Machines::new(size, local as usize) } else { whole })
    }

    /// Returns the rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.link.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.link.size()
    }

    /// Returns the messages of all ranks, in their order.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        self.send_all(|_| own)?;
        let mut all = Vec::with_capacity(self.size());
        for from in 0..self.size() {
            all.push(if from == self.rank() { own.to_vec() } else { self.receive(from)? });
        }
        Ok(all)
    }

    /// Returns the message of rank 0.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn broadcast(&self, own: &[u8]) -> Result<Vec<u8>, RankError> {
        if self.rank() > 0 {
            return self.receive(0);
        }
        self.send_all(|_| own)?;
        Ok(own.to_vec())
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn barrier(&self) -> Result<(), RankError> {
        self.all_gather(&[]).map(drop)
    }

    /// Returns the numbers of all ranks, in their order. Every rank gives as many.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn all_gather_f64(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, RankError> {
        let bytes: Vec<u8> = own.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.all_gather(&bytes)?;
        let numbers = all.iter().map(|bytes| {
            bytes.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
        });
        Ok(numbers.collect())
    }

    /// Adds the arrays of all ranks, element by element in the order of ranks: `((a_0 + a_1) + a_2) + ..`. All ranks get
    /// the same bits. A rank adds one part of each block, so each sends `2 (n - 1) / n` times the array. Over several machines, long
    /// arrays go from machine to machine between ranks of equal number, so that a number crosses to a machine once.
    ///
    /// # Errors
    ///
    /// If a rank is lost, or has an array of another length.
    pub fn all_reduce(&self, values: &mut [f32]) -> Result<(), RankError> {
        values.chunks_mut(BLOCK).try_for_each(|block| self.reduce_block(block))
    }

    /// Adds the arrays of all ranks as [`Channel::all_reduce`] does; a rank gets the sums of its range alone, and the rest of
    /// its array is undefined. `ranges` has the range of each rank. A rank sends `(n - 1) / n` times the array.
    ///
    /// # Errors
    ///
    /// If a rank is lost, or has an array of another length.
    pub fn reduce_scatter(
        &self,
        values: &mut [f32],
        ranges: &[Range<usize>],
    ) -> Result<(), RankError> {
        self.pieces(ranges).try_for_each(|parts| self.reduce(values, &parts))
    }

    /// Fills the arrays of all ranks, of which each has the values of its range. `ranges` has the range of each rank.
    ///
    /// # Errors
    ///
    /// If a rank is lost, or has an array of another length.
    pub fn all_gather_ranges(
        &self,
        values: &mut [f32],
        ranges: &[Range<usize>],
    ) -> Result<(), RankError> {
        self.pieces(ranges).try_for_each(|parts| self.spread(values, &parts))
    }

    /// Returns pieces of the ranges of all ranks that are exchanged at once, which bounds the memory of messages.
    fn pieces(&self, ranges: &[Range<usize>]) -> impl Iterator<Item = Vec<Range<usize>>> {
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        let length = (BLOCK / self.size()).max(1);
        (0..longest)
            .step_by(length)
            .map(move |from| ranges.iter().map(|range| piece(range, from..from + length)).collect())
    }

    fn reduce_block(&self, block: &mut [f32]) -> Result<(), RankError> {
        if block.len() >= STAGED && self.machines()?.has_stages() {
            self.exchange(Route::Reduce, block)?;
            return self.exchange(Route::Gather, block);
        }
        let parts = parts(block.len(), self.size());
        self.reduce(block, &parts)?;
        self.spread(block, &parts)
    }

    /// Adds the part of this rank in the order of ranks.
    fn reduce(&self, values: &mut [f32], parts: &[Range<usize>]) -> Result<(), RankError> {
        let messages: Vec<Vec<u8>> =
            parts.iter().map(|part| encode(&values[part.clone()])).collect();
        self.send_all(|to| &messages[to])?;
        drop(messages);
        let own = &mut values[parts[self.rank()].clone()];
        let mut sum: Option<Vec<f32>> = None;
        for from in 0..self.size() {
            let mut theirs = vec![0.0; own.len()];
            if from == self.rank() {
                theirs.copy_from_slice(own);
            } else {
                self.receive_f32(from, &mut theirs)?;
            }
            match &mut sum {
                None => sum = Some(theirs),
                Some(sum) => sum.iter_mut().zip(&theirs).for_each(|(sum, value)| *sum += value),
            }
        }
        own.copy_from_slice(&sum.unwrap_or_default());
        Ok(())
    }

    /// Sends the part of this rank to all others, and receives theirs.
    fn spread(&self, values: &mut [f32], parts: &[Range<usize>]) -> Result<(), RankError> {
        let message = encode(&values[parts[self.rank()].clone()]);
        self.send_all(|_| &message)?;
        for (from, part) in parts.iter().enumerate().filter(|(from, _)| *from != self.rank()) {
            self.receive_f32(from, &mut values[part.clone()])?;
        }
        Ok(())
    }

    /// Returns the first failure, if there was one.
    pub fn failure(&self) -> Option<RankError> {
        self.link.failure().borrow().clone()
    }

    /// Fails unless all ranks give the same number. `what` describes it for the message.
    ///
    /// # Errors
    ///
    /// If a rank is lost, or has another number than rank 0.
    pub fn agree(&self, number: u64, what: &str) -> Result<(), RankError> {
        let all = self.all_gather(&number.to_le_bytes())?;
        match all.iter().position(|other| *other != all[0]) {
            Some(rank) => Err(RankError::Differs { rank, what: what.to_owned() }),
            None => Ok(()),
        }
    }

    /// Sends a message to every other rank, beginning with the next one, so that not all send to the same one at once.
    fn send_all<'m>(&self, message: impl Fn(usize) -> &'m [u8]) -> Result<(), RankError> {
        (1..self.size()).try_for_each(|ahead| {
            let to = (self.rank() + ahead) % self.size();
            self.link.send(to, self.number, message(to))
        })
    }

    /// Sends a message to another rank.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn send(&self, to: usize, message: &[u8]) -> Result<(), RankError> {
        self.link.send(to, self.number, message)
    }

    /// Waits for the next message of another rank.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn receive(&self, from: usize) -> Result<Vec<u8>, RankError> {
        self.link.receive(from, self.number)
    }

    /// Sends numbers to another rank.
    ///
    /// # Errors
    ///
    /// If a rank is lost.
    pub fn send_f32(&self, to: usize, values: &[f32]) -> Result<(), RankError> {
        self.send(to, &encode(values))
    }

    /// Waits for the next numbers of another rank.
    ///
    /// # Errors
    ///
    /// If a rank is lost, or sends another number of them.
    pub fn receive_f32(&self, from: usize, to: &mut [f32]) -> Result<(), RankError> {
        decode_f32(from, &self.receive(from)?, to)
    }
}

/// Returns the elements of a range at offsets within it, as far as there are some.
fn piece(range: &Range<usize>, offsets: Range<usize>) -> Range<usize> {
    let [start, end] =
        [offsets.start, offsets.end].map(|offset| (range.start + offset).min(range.end));
    start..end
}

/// Divides elements into a range for each rank, of equal lengths up to one.
pub fn parts(elements: usize, ranks: usize) -> Vec<Range<usize>> {
    (0..ranks).map(|rank| elements * rank / ranks..elements * (rank + 1) / ranks).collect()
}

/// Decodes the numbers of a message of a rank.
pub(crate) fn decode_f32(from: usize, bytes: &[u8], to: &mut [f32]) -> Result<(), RankError> {
    if bytes.len() != to.len() * 4 {
        let what = format!("an array of {} elements has {} there", to.len(), bytes.len() / 4);
        return Err(RankError::Differs { rank: from, what });
    }
    for (value, bytes) in to.iter_mut().zip(bytes.chunks_exact(4)) {
        let mut own = [0; 4];
        own.copy_from_slice(bytes);
        *value = f32::from_le_bytes(own);
    }
    Ok(())
}

/// Encodes numbers for a message.
pub(crate) fn encode(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * 4];
    for (bytes, value) in bytes.chunks_exact_mut(4).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect()
}
