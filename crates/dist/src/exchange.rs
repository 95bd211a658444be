//! Exchanges of arrays over a channel, and the machines that ranks agree on when they join.

use std::sync::Arc;

use crate::channel::Channel;
use crate::ranges::Machines;
use crate::steps::{Route, Step};
use crate::{Launch, Link, RankError, message};

/// What a rank gives for a number that its launcher does not tell.
const UNKNOWN: u64 = u64::MAX;

/// Returns the machines of all ranks. Unless the launcher of each gives its place, machines have equal numbers of ranks, and ranks are
/// numbered machine by machine, all count as ranks of one machine.
///
/// # Errors
///
/// If a rank is lost.
pub(crate) fn agree_on_machines(
    link: &Arc<dyn Link>,
    launch: &Launch,
) -> Result<Machines, RankError> {
    let whole = Machines::new(link.size(), link.size());
    let channel = Channel::new(Arc::clone(link), message::PLACES);
    let own = [launch.local_rank, launch.local_size];
    let own = own.map(|number| number.map_or(UNKNOWN, |number| number as u64).to_le_bytes());
    let places = channel.all_gather(&own.concat())?;
    let places: Vec<Vec<u64>> = places.iter().map(|bytes| numbers(bytes)).collect();
    let Some(&[_, local]) = places.first().map(Vec::as_slice) else { return Ok(whole) };
    let in_order = local > 0
        && (link.size() as u64).is_multiple_of(local)
        && places.iter().zip(0..).all(|(place, rank)| *place == [rank % local, local]);
    Ok(if in_order { Machines::new(link.size(), local as usize) } else { whole })
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect()
}

impl Channel {
    /// Makes the steps of this rank in an exchange of an array.
    pub(crate) fn exchange(&self, route: Route, values: &mut [f32]) -> Result<(), RankError> {
        let steps = route.steps(self.machines(), values.len(), self.rank());
        let mut sums = vec![0.0; values.len()];
        for step in steps {
            match step {
                Step::Send { to, range } => self.send_f32(to, &values[range])?,
                Step::SendSum { to, range } => self.send_f32(to, &sums[range])?,
                Step::Receive { from, range } => self.receive_f32(from, &mut values[range])?,
                Step::Begin { from, range } => self.receive_f32(from, &mut sums[range])?,
                Step::BeginOwn { range } => {
                    sums[range.clone()].copy_from_slice(&values[range]);
                }
                Step::Add { from, range } => {
                    let mut theirs = vec![0.0; range.len()];
                    self.receive_f32(from, &mut theirs)?;
                    add(&mut sums[range], &theirs);
                }
                Step::AddOwn { range } => add(&mut sums[range.clone()], &values[range]),
                Step::Keep { range } => values[range.clone()].copy_from_slice(&sums[range]),
            }
        }
        Ok(())
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}
