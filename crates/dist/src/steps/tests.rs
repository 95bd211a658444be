#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::draw::Draw;

/// A rank that walks an exchange in memory.
struct Walker {
    steps: VecDeque<Step>,
    values: Vec<f32>,
    sums: Vec<f32>,
    /// Times that each element was received into its place.
    received: Vec<usize>,
}

type Messages = BTreeMap<(usize, usize), VecDeque<Vec<f32>>>;

impl Walker {
    /// Makes the next step. Returns false if it waits for a message.
    fn step(&mut self, rank: usize, messages: &mut Messages) -> bool {
        let Some(step) = self.steps.front().cloned() else { return false };
        let message = match step.awaited() {
            None => Vec::new(),
            Some((from, elements)) => {
                let queue = messages.entry((from, rank)).or_default();
                let Some(message) = queue.pop_front() else { return false };
                assert_eq!(message.len(), elements);
                message
            }
        };
        let add = |sums: &mut [f32], values: &[f32]| {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        };
        match step {
            Step::Send { to, range } => {
                messages.entry((rank, to)).or_default().push_back(self.values[range].to_vec());
            }
            Step::SendSum { to, range } => {
                messages.entry((rank, to)).or_default().push_back(self.sums[range].to_vec());
            }
            Step::Receive { range, .. } => {
                self.received[range.clone()].iter_mut().for_each(|times| *times += 1);
                self.values[range].copy_from_slice(&message);
            }
            Step::Begin { range, .. } => self.sums[range].copy_from_slice(&message),
            Step::BeginOwn { range } => {
                self.sums[range.clone()].copy_from_slice(&self.values[range]);
            }
            Step::Add { range, .. } => add(&mut self.sums[range], &message),
            Step::AddOwn { range } => add(&mut self.sums[range.clone()], &self.values[range]),
            Step::Keep { range } => self.values[range.clone()].copy_from_slice(&self.sums[range]),
        }
        self.steps.pop_front();
        true
    }
}

/// Exchanges the arrays of all ranks, with messages of at most so many elements.
fn exchange(route: Route, machines: &Machines, arrays: &[Vec<f32>], piece: usize) -> Vec<Walker> {
    let elements = arrays[0].len();
    let walkers = arrays.iter().enumerate().map(|(rank, values)| {
        let steps = route.walk(Walk { machines, elements, rank, piece }).into();
        let (sums, received) = (vec![f32::NAN; elements], vec![0; elements]);
        Walker { steps, values: values.clone(), sums, received }
    });
    let (mut walkers, mut messages): (Vec<Walker>, _) = (walkers.collect(), Messages::new());
    while walkers.iter_mut().enumerate().any(|(rank, walker)| walker.step(rank, &mut messages)) {}
    assert!(walkers.iter().all(|walker| walker.steps.is_empty()), "ranks wait for each other");
    assert!(messages.values().all(VecDeque::is_empty), "a message was not received");
    walkers
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Draws machines, with one stage or two, and numbers of each rank whose sum depends on the order of addition.
fn draw_case(draw: &mut Draw) -> (Machines, Vec<Vec<f32>>, usize) {
    let machines = Machines::new(draw.up_to(12) + 1, draw.up_to(5) + 1);
    let elements = draw.up_to(1200);
    let mut number = || {
        let value = (draw.up_to(2001) as f32 - 1000.0) * 1.1e-3;
        value * 10_f32.powi(draw.up_to(9) as i32 - 4)
    };
    let arrays = (0..machines.ranks()).map(|_| (0..elements).map(|_| number()).collect());
    let arrays = arrays.collect();
    (machines, arrays, [1 << 20, 64, 100, 7][draw.up_to(4)])
}

#[test]
fn sums_have_the_bits_of_adding_in_the_order_of_ranks_in_one_stage_and_in_two() {
    let (mut draw, mut stages) = (Draw::new(1), [0; 2]);
    for _ in 0..400 {
        let (machines, mut arrays, piece) = draw_case(&mut draw);
        // The sum of a rank alone keeps its sign of zero.
        arrays.iter_mut().for_each(|array| array.iter_mut().take(1).for_each(|v| *v = -0.0));
        let mut expected = arrays[0].clone();
        for array in &arrays[1..] {
            expected.iter_mut().zip(array).for_each(|(sum, value)| *sum += value);
        }
        let found = exchange(Route::Reduce, &machines, &arrays, piece);
        for (rank, walker) in found.iter().enumerate() {
            let own = machines.range(expected.len(), rank);
            assert_eq!(bits(&walker.values[own.clone()]), bits(&expected[own]), "{machines:?}");
        }
        stages[usize::from(machines.has_stages())] += 1;
    }
    assert!(stages[0] > 50 && stages[1] > 50, "{stages:?}");
}

#[test]
fn every_rank_gets_each_element_of_the_others_once() {
    let mut draw = Draw::new(2);
    for _ in 0..400 {
        let (machines, arrays, piece) = draw_case(&mut draw);
        let expected = &arrays[0];
        let owned = (0..machines.ranks()).map(|rank| {
            let mut own = vec![f32::NAN; expected.len()];
            let range = machines.range(expected.len(), rank);
            own[range.clone()].copy_from_slice(&expected[range]);
            own
        });
        let found = exchange(Route::Gather, &machines, &owned.collect::<Vec<_>>(), piece);
        for (rank, walker) in found.iter().enumerate() {
            assert_eq!(bits(&walker.values), bits(expected));
            let own = machines.range(expected.len(), rank);
            let times = walker.received.iter().enumerate();
            for (at, times) in times {
                assert_eq!(*times, usize::from(!own.contains(&at)), "{machines:?}");
            }
        }
    }
}

#[test]
fn new_weights_of_equal_local_numbers_and_a_gather_within_machines_are_all_weights() {
    for (ranks, local) in [(4, 2), (8, 2), (9, 3), (4, 4)] {
        let machines = Machines::new(ranks, local);
        let all: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let owned = (0..ranks).map(|rank| {
            let own = machines.range(all.len(), rank);
            let kept = all
                .iter()
                .enumerate()
                .map(|(at, value)| if own.contains(&at) { *value } else { f32::NAN });
            kept.collect()
        });
        let spread = exchange(Route::Spread, &machines, &owned.collect::<Vec<_>>(), 64);
        let spread: Vec<Vec<f32>> = spread.into_iter().map(|walker| walker.values).collect();
        let found = exchange(Route::GatherLocal, &machines, &spread, 64);
        assert!(found.iter().all(|walker| walker.values == all), "{machines:?}");
        let sent: Vec<usize> = Route::GatherLocal
            .steps(&machines, all.len(), 0)
            .iter()
            .filter_map(|step| step.sent().map(|(to, _)| machines.place(to).0))
            .collect();
        assert_eq!(sent, vec![0; local - 1]);
    }
}

#[test]
fn a_rank_of_1024_has_134_partners_and_messages_of_58_kb_in_a_layer_of_half_a_billion_parameters() {
    let machines = Machines::new(1024, 8);
    let layer = 14_912_384;
    let steps = Route::Gather.steps(&machines, layer, 0);
    let sent: Vec<(usize, usize)> = steps.iter().filter_map(Step::sent).collect();
    assert_eq!(sent.len(), 134);
    let across = sent.iter().filter(|(to, _)| machines.place(*to).0 > 0);
    let lengths: Vec<usize> = across.map(|(_, elements)| elements * 4).collect();
    assert_eq!(lengths.len(), 127);
    assert!(lengths.iter().all(|bytes| bytes.abs_diff(58_250) <= 256), "{}", lengths[0]);
}
