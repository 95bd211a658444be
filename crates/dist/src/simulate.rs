//! A simulation of ranks that walk a schedule: each has a thread that computes and one that exchanges, and a link within its
//! machine and one to others. A rank sends its messages one after the other; the receiver waits for those of its steps.

use std::collections::{BTreeMap, VecDeque};

use crate::ranges::Machines;
use crate::schedule::{Exchange, Schedule, Work};
use crate::steps::Step;

/// Links of a rank: within its machine, and to other machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Links {
    /// Bytes that a rank sends in a second.
    pub bandwidth: [f64; 2],
    /// Seconds from the end of a message's sending to its arrival.
    pub latency: [f64; 2],
}

/// Result of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulation {
    /// Seconds until the last rank ends.
    pub seconds: f64,
    /// Seconds that the rank with most work computes.
    pub computing: f64,
}

/// A message on its way.
#[derive(Debug, Clone, Copy)]
struct Sent {
    arrival: f64,
    position: usize,
    elements: usize,
}

/// A rank during a simulation.
#[derive(Debug, Default)]
struct Rank {
    /// Ends of works and of exchanges.
    works: Vec<f64>,
    exchanges: Vec<f64>,
    /// Steps of the exchange that is walked, and the number of those that are done.
    steps: Vec<Step>,
    done: usize,
    /// Time of the thread that exchanges.
    now: f64,
    computing: f64,
    /// True if the rank is among those that may go on.
    queued: bool,
}

/// Ranks that walk schedules.
struct Simulator<'s, L, W> {
    schedule: L,
    machines: &'s Machines,
    links: &'s Links,
    weight: usize,
    seconds: W,
    ranks: Vec<Rank>,
    /// Messages to each rank, by sender.
    messages: Vec<BTreeMap<usize, VecDeque<Sent>>>,
    /// Ranks that may go on.
    ready: VecDeque<usize>,
}

/// Simulates ranks that walk the schedules that `schedule` returns for them; weights have `weight` bytes. `seconds` returns the
/// duration of a work of a rank.
///
/// # Errors
///
/// If the lists of ranks differ, or ranks wait for each other: a message that names both exchanges.
pub fn simulate<'s>(
    schedule: impl Fn(usize) -> &'s Schedule,
    machines: &Machines,
    (links, weight): (&Links, usize),
    seconds: impl Fn(usize, &Work) -> f64,
) -> Result<Simulation, String> {
    let ranks = (0..machines.ranks()).map(|_| Rank { queued: true, ..Rank::default() }).collect();
    let messages = vec![BTreeMap::new(); machines.ranks()];
    let ready = (0..machines.ranks()).collect();
    let mut simulator =
        Simulator { schedule, machines, links, weight, seconds, ranks, messages, ready };
    while let Some(rank) = simulator.ready.pop_front() {
        simulator.ranks[rank].queued = false;
        simulator.walk(rank)?;
    }
    simulator.end()
}

impl<'s, L: Fn(usize) -> &'s Schedule, W: Fn(usize, &Work) -> f64> Simulator<'_, L, W> {
    /// Lets a rank go on until it waits for a message.
    fn walk(&mut self, rank: usize) -> Result<(), String> {
        loop {
            let computed = self.compute(rank);
            let exchanged = self.exchange(rank)?;
            if !computed && !exchanged {
                return Ok(());
            }
        }
    }

    /// Runs the works whose exchanges have ended. Returns true if there was one.
    fn compute(&mut self, rank: usize) -> bool {
        let works = &(self.schedule)(rank).works;
        let state = &mut self.ranks[rank];
        let before = state.works.len();
        while let Some(work) = works.get(state.works.len()) {
            let Some(begin) = end_of(&state.exchanges, work.after) else { break };
            let free = state.works.last().copied().unwrap_or(0.0);
            let duration = (self.seconds)(rank, work);
            state.computing += duration;
            state.works.push(begin.max(free) + duration);
        }
        state.works.len() > before
    }

    /// Walks one exchange until it waits. Returns true if the exchange ended.
    fn exchange(&mut self, rank: usize) -> Result<bool, String> {
        let schedule = (self.schedule)(rank);
        let position = self.ranks[rank].exchanges.len();
        let Some(exchange) = schedule.exchanges.get(position) else { return Ok(false) };
        let Some(begin) = end_of(&self.ranks[rank].works, exchange.after) else { return Ok(false) };
        if self.ranks[rank].done == 0 {
            self.ranks[rank].steps = schedule.steps(position, self.machines, rank);
            self.ranks[rank].now = self.ranks[rank].now.max(begin);
        }
        let width = exchange.width(self.weight) as f64;
        while let Some(step) = self.ranks[rank].steps.get(self.ranks[rank].done) {
            let (sent, awaited) = (step.sent(), step.awaited());
            if let Some((to, elements)) = sent {
                self.send(rank, to, (position, elements), width);
            }
            if let Some((from, elements)) = awaited {
                let Some(message) = self.take(from, rank) else { return Ok(false) };
                let theirs = (self.schedule)(from).exchanges.get(message.position);
                if (theirs, message.elements) != (Some(exchange), elements) {
                    return Err(self.difference([rank, from], [position, message.position]));
                }
                self.ranks[rank].now = self.ranks[rank].now.max(message.arrival);
            }
            self.ranks[rank].done += 1;
        }
        let state = &mut self.ranks[rank];
        (state.done, state.steps) = (0, Vec::new());
        state.exchanges.push(state.now);
        Ok(true)
    }

    fn send(&mut self, from: usize, to: usize, (position, elements): (usize, usize), width: f64) {
        let across = usize::from(self.machines.place(from).0 != self.machines.place(to).0);
        let state = &mut self.ranks[from];
        state.now += elements as f64 * width / self.links.bandwidth[across];
        let arrival = state.now + self.links.latency[across];
        let sent = Sent { arrival, position, elements };
        self.messages[to].entry(from).or_default().push_back(sent);
        if !std::mem::replace(&mut self.ranks[to].queued, true) {
            self.ready.push_back(to);
        }
    }

    fn take(&mut self, from: usize, to: usize) -> Option<Sent> {
        self.messages[to].get_mut(&from)?.pop_front()
    }

    /// Returns the message about ranks whose lists differ.
    fn difference(&self, ranks: [usize; 2], positions: [usize; 2]) -> String {
        let [ours, theirs] = [0, 1].map(|at| {
            let found = (self.schedule)(ranks[at]).exchanges.get(positions[at]);
            found.map_or_else(String::new, Exchange::to_string)
        });
        format!(
            "rank {} is at exchange {} ({ours}), rank {} at {} ({theirs}): a fault of maverl",
            ranks[0], positions[0], ranks[1], positions[1]
        )
    }

    /// Returns the result, if all ranks have ended.
    fn end(self) -> Result<Simulation, String> {
        for (rank, state) in self.ranks.iter().enumerate() {
            let schedule = (self.schedule)(rank);
            if let Some(exchange) = schedule.exchanges.get(state.exchanges.len()) {
                let position = state.exchanges.len();
                return Err(format!(
                    "rank {rank} waits in exchange {position} ({exchange}) forever"
                ));
            }
        }
        for (to, messages) in self.messages.iter().enumerate() {
            if let Some((from, _)) = messages.iter().find(|(_, left)| !left.is_empty()) {
                return Err(format!("rank {to} has not received all messages of rank {from}"));
            }
        }
        let ends = self
            .ranks
            .iter()
            .flat_map(|rank| rank.works.last().copied().into_iter().chain([rank.now]));
        let computing = self.ranks.iter().map(|rank| rank.computing);
        Ok(Simulation {
            seconds: ends.fold(0.0, f64::max),
            computing: computing.fold(0.0, f64::max),
        })
    }
}

/// Returns the end of what must be over before; `None` if it is not.
fn end_of(ends: &[f64], after: Option<usize>) -> Option<f64> {
    after.map_or(Some(0.0), |after| ends.get(after).copied())
}

#[cfg(test)]
mod tests;
