//! Exchanges of arrays over a channel, step by step.

use std::ops::Range;

use crate::RankError;
use crate::channel::{Channel, decode_f32, encode};
use crate::ranges::Machines;
use crate::schedule::{Exchange, Schedule};
use crate::steps::{Route, Step};

/// Exchanges of a schedule, which all ranks make in its order. Each message has position and name of its exchange, so ranks whose
/// lists differ are an error that names both.
#[derive(Debug)]
pub struct Exchanges {
    channel: Option<Channel>,
    machines: Machines,
    schedule: Schedule,
    /// Position of the next exchange.
    position: usize,
}

impl Exchanges {
    /// Creates the exchanges of a schedule between ranks on machines, which say what each of them owns. Without a channel there are no
    /// other ranks, and nothing is sent.
    pub fn new(channel: Option<&Channel>, machines: Machines, schedule: Schedule) -> Self {
        Self { channel: channel.cloned(), machines, schedule, position: 0 }
    }

    /// Returns the next exchange, if there is one.
    pub fn upcoming(&self) -> Option<&Exchange> {
        self.schedule.exchanges.get(self.position)
    }

    /// Returns the next exchange, if it must have ended before a work of the schedule.
    pub fn due(&self, work: usize) -> Option<&Exchange> {
        let after = self.schedule.works.get(work)?.after?;
        self.upcoming().filter(|_| self.position <= after)
    }

    /// Makes the next exchange with the array of its unit. After a gather the array is complete; after a reduction it has the sums of
    /// the range that this rank owns, and the rest is undefined.
    ///
    /// # Errors
    ///
    /// If a rank is lost, is at another exchange, or has an array of another length.
    ///
    /// # Panics
    ///
    /// If the array does not have the length of the unit.
    pub fn make(&mut self, values: &mut [f32]) -> Result<(), RankError> {
        let (position, shard) = (self.position, self.schedule.shard());
        let Some(exchange) = self.schedule.exchanges.get(position) else { return Ok(()) };
        self.position += 1;
        let Some(channel) = &self.channel else { return Ok(()) };
        let transfers = Transfers { channel, head: Some(Head { position, exchange }) };
        let mut first = 0;
        for (route, elements) in exchange.routes(&self.machines, shard) {
            let array = &mut values[first..first + elements];
            transfers.walk(route.steps(&self.machines, elements, channel.rank()), array)?;
            first += elements;
        }
        assert_eq!(first, values.len(), "{exchange}: an array of another length");
        Ok(())
    }
}

impl Channel {
    /// Makes the steps of this rank in an exchange of an array.
    pub(crate) fn exchange(&self, route: Route, values: &mut [f32]) -> Result<(), RankError> {
        let steps = route.steps(&self.machines()?, values.len(), self.rank());
        Transfers { channel: self, head: None }.walk(steps, values)
    }
}

/// Head of the messages of an exchange.
#[derive(Clone, Copy)]
struct Head<'e> {
    position: usize,
    exchange: &'e Exchange,
}

impl Head<'_> {
    /// Encodes position and name, with the length of the name before it.
    fn encode(self) -> Vec<u8> {
        let name = self.exchange.to_string();
        let numbers = [self.position as u32, name.len() as u32].map(u32::to_le_bytes).concat();
        [&numbers[..], name.as_bytes()].concat()
    }

    /// Returns the numbers of a message that begins with this head.
    fn strip(self, channel: &Channel, from: usize, message: &[u8]) -> Result<Vec<u8>, RankError> {
        let own = self.encode();
        match message.strip_prefix(&own[..]) {
            Some(numbers) => Ok(numbers.to_vec()),
            None => Err(self.difference(channel.rank(), from, message)),
        }
    }

    /// Returns the error about a rank whose message has another head.
    fn difference(self, own_rank: usize, rank: usize, message: &[u8]) -> RankError {
        let (position, exchange) = named_exchange(message)
            .unwrap_or_else(|| (self.position, "another operation".to_owned()));
        let own_exchange = self.exchange.to_string();
        let own_position = self.position;
        RankError::Exchange { rank, position, exchange, own_rank, own_position, own_exchange }
    }
}

/// Returns position and name of the exchange that a message belongs to.
fn named_exchange(message: &[u8]) -> Option<(usize, String)> {
    let (position, rest) = message.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let name = std::str::from_utf8(name).ok()?;
    Some((u32::from_le_bytes(*position) as usize, name.to_owned()))
}

/// Messages of one exchange.
struct Transfers<'c> {
    channel: &'c Channel,
    /// Head of each message, if it has one.
    head: Option<Head<'c>>,
}

impl Transfers<'_> {
    fn walk(&self, steps: Vec<Step>, values: &mut [f32]) -> Result<(), RankError> {
        let summed = summed_range(&steps);
        let in_sums = |range: &Range<usize>| range.start - summed.start..range.end - summed.start;
        let mut sums = vec![0.0; summed.len()];
        for step in steps {
            match step {
                Step::Send { to, range } => self.send(to, &values[range])?,
                Step::SendSum { to, range } => self.send(to, &sums[in_sums(&range)])?,
                Step::Receive { from, range } => self.receive(from, &mut values[range])?,
                Step::Begin { from, range } => self.receive(from, &mut sums[in_sums(&range)])?,
                Step::BeginOwn { range } => {
                    sums[in_sums(&range)].copy_from_slice(&values[range]);
                }
                Step::Add { from, range } => {
                    let mut theirs = vec![0.0; range.len()];
                    self.receive(from, &mut theirs)?;
                    add(&mut sums[in_sums(&range)], &theirs);
                }
                Step::AddOwn { range } => add(&mut sums[in_sums(&range)], &values[range]),
                Step::Keep { range } => {
                    values[range.clone()].copy_from_slice(&sums[in_sums(&range)]);
                }
            }
        }
        Ok(())
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), RankError> {
        let head = self.head.map_or_else(Vec::new, Head::encode);
        self.channel.send(to, &[head, encode(values)].concat())
    }

    fn receive(&self, from: usize, to: &mut [f32]) -> Result<(), RankError> {
        let message = self.channel.receive(from)?;
        let numbers = match self.head {
            None => message,
            Some(head) => head.strip(self.channel, from, &message)?,
        };
        decode_f32(from, &numbers, to)
    }
}

/// Returns the range that the sums of steps lie in.
fn summed_range(steps: &[Step]) -> Range<usize> {
    let mut all: Option<Range<usize>> = None;
    for step in steps {
        let (Step::Begin { range, .. } | Step::BeginOwn { range }) = step else { continue };
        let sum = all.get_or_insert_with(|| range.clone());
        *sum = sum.start.min(range.start)..sum.end.max(range.end);
    }
    all.unwrap_or(0..0)
}

fn add(sums: &mut [f32], values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

#[cfg(test)]
mod tests;
