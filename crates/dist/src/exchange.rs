//! Exchanges of arrays over a channel, step by step.

use crate::RankError;
use crate::channel::Channel;
use crate::steps::{Route, Step};

impl Channel {
    /// Makes the steps of this rank in an exchange of an array.
    pub(crate) fn exchange(&self, route: Route, values: &mut [f32]) -> Result<(), RankError> {
        let steps = route.steps(&self.machines()?, values.len(), self.rank());
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
