//! Steps of an exchange of one array between ranks: what a rank sends, receives and adds, in order.
//!
//! - *Gather*: a rank sends its range to the ranks of equal local number on the other machines, and then the range that
//!   these own together to the other ranks of its machine. So a number crosses to a machine once.
//! - *Reduce*: `((g_0 + g_1) + g_2) + ..` in the order of ranks. Within a machine, the rank of a local number gets the
//!   pieces of all. It adds them to the sum of the machine before, and hands the sum on to the next machine. The last one
//!   sends each rank its range.
//!
//! With one stage ([`Machines::has_stages`]), a rank exchanges with all others, and the owner of a range adds all pieces.

use std::ops::Range;

use crate::ranges::Machines;

/// Elements of a message at most, which bounds its memory.
const PIECE: usize = 4 << 20;
/// Number of pieces of a sum that goes from machine to machine, so that all of them add at once, and fewest elements of one.
const CHAIN: (usize, usize) = (32, 1 << 16);

/// A step of a rank. Ranges are those of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sends values.
    Send {
        /// Receiver.
        to: usize,
        /// Elements.
        range: Range<usize>,
    },
    /// Receives values into their places.
    Receive {
        /// Sender.
        from: usize,
        /// Elements.
        range: Range<usize>,
    },
    /// Begins a sum with values of another rank.
    Begin {
        /// Sender.
        from: usize,
        /// Elements.
        range: Range<usize>,
    },
    /// Begins a sum with values of this rank.
    BeginOwn {
        /// Elements.
        range: Range<usize>,
    },
    /// Adds values of another rank to a sum.
    Add {
        /// Sender.
        from: usize,
        /// Elements.
        range: Range<usize>,
    },
    /// Adds values of this rank to a sum.
    AddOwn {
        /// Elements.
        range: Range<usize>,
    },
    /// Sends a sum.
    SendSum {
        /// Receiver.
        to: usize,
        /// Elements.
        range: Range<usize>,
    },
    /// Replaces values by their sum.
    Keep {
        /// Elements.
        range: Range<usize>,
    },
}

/// Ways in which an array is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Every rank gets the ranges of all.
    Gather,
    /// Every rank gets the ranges of the ranks of its machine and of those with their local numbers; these it has.
    GatherLocal,
    /// Every rank gets the ranges of the ranks of its local number.
    Spread,
    /// The owner of a range gets the sum over all ranks.
    Reduce,
    /// Every rank gets as many elements from each other rank.
    Scatter,
}

impl Route {
    /// Returns the steps of a rank for an array of so many elements, in order.
    pub(crate) fn steps(self, machines: &Machines, elements: usize, rank: usize) -> Vec<Step> {
        self.walk(Walk { machines, elements, rank, piece: PIECE })
    }

    fn walk(self, walk: Walk<'_>) -> Vec<Step> {
        let machines = walk.machines;
        match self {
            Self::Gather if machines.has_stages() => [walk.spread(), walk.gather_local()].concat(),
            Self::Gather => walk.gather_all(),
            Self::GatherLocal => walk.gather_local(),
            Self::Spread => walk.spread(),
            Self::Reduce if machines.has_stages() => walk.reduce_in_stages(),
            Self::Reduce => walk.reduce_at_owner(),
            Self::Scatter => walk.scatter(),
        }
    }
}

/// A rank that walks an exchange.
#[derive(Clone, Copy)]
struct Walk<'m> {
    machines: &'m Machines,
    elements: usize,
    rank: usize,
    /// Elements of a message at most.
    piece: usize,
}

impl Walk<'_> {
    /// Returns the pieces of a range that are sent at once.
    fn pieces(self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone {
        let (end, piece) = (range.end, self.piece);
        range.step_by(piece).map(move |start| start..(start + piece).min(end))
    }

    /// Returns the pieces of a sum that goes from machine to machine.
    fn chained(self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone {
        let (count, fewest) = CHAIN;
        let piece = range.len().div_ceil(count).max(fewest).min(self.piece);
        Self { piece, ..self }.pieces(range)
    }

    /// Returns the ranks of the machine of this rank.
    fn neighbors(self) -> Range<usize> {
        let local = self.machines.local();
        let first = self.rank / local * local;
        first..(first + local).min(self.machines.ranks())
    }

    fn range(self, rank: usize) -> Range<usize> {
        self.machines.range(self.elements, rank)
    }

    fn local_range(self, rank: usize) -> Range<usize> {
        self.machines.local_range(self.elements, self.machines.place(rank).1)
    }

    /// Returns the ranks of equal local number.
    fn rail(self) -> impl Iterator<Item = usize> + Clone {
        let local = self.machines.local();
        (self.rank % local..self.machines.ranks()).step_by(local)
    }

    /// Returns the ranges of messages to and from all ranks: of each round a piece for each rank, which may be empty. A rank that has
    /// made a round has received the pieces of all, so few messages wait at once.
    fn rounds(self) -> impl Iterator<Item = Vec<Range<usize>>> {
        let ranges: Vec<Range<usize>> =
            (0..self.machines.ranks()).map(|rank| self.range(rank)).collect();
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        (0..longest).step_by(self.piece).map(move |first| {
            let starts = ranges.iter().map(|range| ((range.start + first).min(range.end), range));
            starts.map(|(start, range)| start..(start + self.piece).min(range.end)).collect()
        })
    }

    fn gather_all(self) -> Vec<Step> {
        let others = self.others(&(0..self.machines.ranks()).collect::<Vec<_>>());
        let mut steps = Vec::new();
        for pieces in self.rounds() {
            let own = &pieces[self.rank];
            let receivers = others.iter().filter(|_| !own.is_empty());
            steps.extend(receivers.map(|&to| Step::Send { to, range: own.clone() }));
            let senders = others.iter().filter(|&&from| !pieces[from].is_empty());
            steps.extend(senders.map(|&from| Step::Receive { from, range: pieces[from].clone() }));
        }
        steps
    }

    fn gather_local(self) -> Vec<Step> {
        self.all_to_all(&self.neighbors().collect::<Vec<_>>(), Self::local_range)
    }

    fn spread(self) -> Vec<Step> {
        self.all_to_all(&self.rail().collect::<Vec<_>>(), Self::range)
    }

    /// Returns steps after which each of the ranks has the ranges of all of them.
    fn all_to_all(self, ranks: &[usize], range: fn(Self, usize) -> Range<usize>) -> Vec<Step> {
        let others = self.others(ranks);
        let own = others.iter().flat_map(|&to| {
            self.pieces(range(self, self.rank)).map(move |range| Step::Send { to, range })
        });
        let theirs = others.iter().flat_map(|&from| {
            self.pieces(range(self, from)).map(move |range| Step::Receive { from, range })
        });
        own.chain(theirs).collect()
    }

    fn scatter(self) -> Vec<Step> {
        let others = self.others(&(0..self.machines.ranks()).collect::<Vec<_>>());
        let all = || self.pieces(0..self.elements);
        let sends = others.iter().flat_map(|&to| all().map(move |range| Step::Send { to, range }));
        let receives =
            others.iter().flat_map(|&from| all().map(move |range| Step::Receive { from, range }));
        sends.chain(receives).collect()
    }

    /// Returns the others of some ranks, beginning with the next one, so that not all send to the same one at once.
    fn others(self, ranks: &[usize]) -> Vec<usize> {
        let own = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        (1..ranks.len()).map(|ahead| ranks[(own + ahead) % ranks.len()]).collect()
    }

    fn reduce_at_owner(self) -> Vec<Step> {
        let ranks: Vec<usize> = (0..self.machines.ranks()).collect();
        let others = self.others(&ranks);
        let mut steps = Vec::new();
        for pieces in self.rounds() {
            let receivers = others.iter().filter(|&&to| !pieces[to].is_empty());
            steps.extend(receivers.map(|&to| Step::Send { to, range: pieces[to].clone() }));
            let range = pieces[self.rank].clone();
            if !range.is_empty() {
                steps.extend(self.add(&ranks, &range, None));
                steps.push(Step::Keep { range });
            }
        }
        steps
    }

    fn reduce_in_stages(self) -> Vec<Step> {
        let neighbors: Vec<usize> = self.neighbors().collect();
        let (local, last) = (self.machines.local(), self.machines.count() - 1);
        let (machine, number) = self.machines.place(self.rank);
        let sends = self.others(&neighbors).into_iter().flat_map(|to| {
            self.chained(self.local_range(to)).map(move |range| Step::Send { to, range })
        });
        let mut steps: Vec<Step> = sends.collect();
        let summed = self.chained(self.local_range(self.rank));
        for range in summed.clone() {
            steps.extend(self.add(&neighbors, &range, self.rank.checked_sub(local)));
            if machine < last {
                steps.push(Step::SendSum { to: self.rank + local, range });
            } else {
                steps.extend(self.rail().filter_map(|to| self.hand_out(to, &range)));
            }
        }
        if machine < last {
            let own = self.range(self.rank);
            let parts = summed.map(|piece| common(&piece, &own)).filter(|part| !part.is_empty());
            let from = number + last * local;
            steps.extend(parts.map(|range| Step::Receive { from, range }));
        }
        steps
    }

    /// Returns the steps that add a piece of some ranks in their order, onto the sum of a rank before if there is one.
    fn add(self, ranks: &[usize], range: &Range<usize>, before: Option<usize>) -> Vec<Step> {
        let sum = before.map(|from| Step::Begin { from, range: range.clone() });
        let added = ranks.iter().enumerate().map(|(at, &from)| {
            let range = range.clone();
            let (begins, own) = (before.is_none() && at == 0, from == self.rank);
            match (begins, own) {
                (true, true) => Step::BeginOwn { range },
                (true, false) => Step::Begin { from, range },
                (false, true) => Step::AddOwn { range },
                (false, false) => Step::Add { from, range },
            }
        });
        sum.into_iter().chain(added).collect()
    }

    /// Returns the step that gives a rank its part of a complete sum, if it has one.
    fn hand_out(self, to: usize, piece: &Range<usize>) -> Option<Step> {
        let range = common(piece, &self.range(to));
        if range.is_empty() {
            return None;
        }
        Some(if to == self.rank { Step::Keep { range } } else { Step::SendSum { to, range } })
    }
}

impl Step {
    /// Returns the receiver and the number of elements of a message that the step sends.
    pub(crate) fn sent(&self) -> Option<(usize, usize)> {
        match self {
            Self::Send { to, range } | Self::SendSum { to, range } => Some((*to, range.len())),
            _ => None,
        }
    }

    /// Returns the sender and the number of elements of a message that the step waits for.
    pub(crate) fn awaited(&self) -> Option<(usize, usize)> {
        match self {
            Self::Receive { from, range }
            | Self::Begin { from, range }
            | Self::Add { from, range } => Some((*from, range.len())),
            _ => None,
        }
    }
}

fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    start..end.max(start)
}

#[cfg(test)]
mod tests;
