#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::on_ranks;
use crate::tests::on_machines;
use crate::units::{LayerSize, UnitSizes};
use crate::{ExchangeKind, Pass, Ranks, Shard};

fn units(tied: bool) -> UnitSizes {
    let layers = [4097, 200].map(|trained| LayerSize { frozen: 0, trained }).to_vec();
    UnitSizes { vocab: 90, width: 9, layers, tied, tables_trained: true, whole_tables: true }
}

fn step(tied: bool) -> Schedule {
    Schedule::new(&units(tied), Pass::Training { rounds: 1, tokens: 7 }, Shard::Full)
}

/// Returns numbers of a rank in an exchange whose sum depends on the order of addition.
fn numbers(rank: usize, position: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + rank * 104_729 + position * 31) % 1009) as f32 - 504.0;
    (0..count).map(|i| number(i) * 10_f32.powi((rank as i32 * 3 + i as i32) % 7 - 3)).collect()
}

/// Makes all exchanges of an optimizer step. Returns the number of them.
fn walk(ranks: &Ranks, tied: bool) -> usize {
    let (units, schedule) = (units(tied), step(tied));
    let (rank, size) = (ranks.rank(), ranks.size());
    let channel = ranks.channel(1);
    let machines = channel.machines().unwrap();
    let mut exchanges = Exchanges::new(Some(&channel), machines, schedule.clone());
    for (position, exchange) in schedule.exchanges.iter().enumerate() {
        assert_eq!(exchanges.upcoming(), Some(exchange));
        let count = units.elements(exchange.unit);
        let own = machines.range(count, rank);
        if exchange.kind == ExchangeKind::Gather {
            let whole = numbers(0, position, count);
            let mut values = vec![f32::NAN; count];
            values[own.clone()].copy_from_slice(&whole[own]);
            exchanges.make(&mut values).unwrap();
            assert!(values == whole, "{exchange} on {size}");
        } else {
            let mut values = numbers(rank, position, count);
            exchanges.make(&mut values).unwrap();
            let mut sum = numbers(0, position, count);
            for other in 1..size {
                let theirs = numbers(other, position, count);
                sum.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
            }
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(&values[own.clone()]) == bits(&sum[own]), "{exchange} on {size}");
        }
    }
    assert_eq!(exchanges.upcoming(), None);
    channel.barrier().unwrap();
    schedule.exchanges.len()
}

#[test]
fn units_are_gathered_from_their_owners_and_reduced_in_the_order_of_ranks() {
    for tied in [false, true] {
        for size in [2, 3, 4] {
            let made = on_ranks(size, |ranks| walk(&ranks, tied));
            // Embedding, two layers, the head and two layers, and the sums of four units.
            assert_eq!(made, vec![10; size]);
        }
        assert_eq!(on_machines(4, 2, |ranks| walk(&ranks, tied)), [10; 4]);
    }
}

#[test]
fn one_rank_walks_a_schedule_and_its_arrays_stay() {
    let schedule = step(true);
    let mut exchanges = Exchanges::new(None, Machines::new(1, 1), schedule.clone());
    for work in 0..schedule.works.len() {
        while let Some(exchange) = exchanges.due(work) {
            let mut values = numbers(0, 0, units(true).elements(exchange.unit));
            let before = values.clone();
            exchanges.make(&mut values).unwrap();
            assert_eq!(values, before);
        }
    }
    assert_eq!(exchanges.upcoming(), None);
}

#[test]
fn ranks_whose_lists_differ_are_named_with_both_exchanges() {
    let (whole, mut other) = (step(false), step(false));
    other.exchanges.remove(2);
    let errors = on_ranks(2, |ranks| {
        let schedule = if ranks.rank() == 1 { &other } else { &whole };
        let channel = ranks.channel(1);
        let mut exchanges = Exchanges::new(Some(&channel), Machines::new(2, 2), schedule.clone());
        let make = |position: usize| {
            let count = units(false).elements(schedule.exchanges[position].unit);
            exchanges.make(&mut vec![1.0; count])
        };
        (0..3).map(make).find_map(Result::err).unwrap().to_string()
    });
    assert_eq!(
        errors,
        [
            "rank 1 is at exchange 2 (gather head), rank 0 at 2 (gather layer 1): a fault of maverl",
            "rank 0 is at exchange 2 (gather layer 1), rank 1 at 2 (gather head): a fault of maverl",
        ]
    );
}

#[test]
fn a_message_of_another_operation_is_named_too() {
    let errors = on_ranks(2, |ranks| {
        let channel = ranks.channel(1);
        let mut exchanges = Exchanges::new(Some(&channel), Machines::new(2, 2), step(false));
        let made = match ranks.rank() {
            0 => exchanges.make(&mut [1.0; 810]),
            _ => channel.all_reduce(&mut [1.0; 810]),
        };
        made.unwrap_err().to_string()
    });
    assert!(errors[0].contains("rank 1 is at exchange 0 (another operation)"), "{errors:?}");
    assert!(errors[0].contains("rank 0 at 0 (gather embedding)"), "{errors:?}");
}
