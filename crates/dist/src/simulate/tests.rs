#![allow(clippy::unwrap_used)]

use super::*;
use crate::units::{LayerSize, UnitSizes};
use crate::{ExchangeKind, Pass, Shard, Unit};

/// Qwen2.5-0.5B with fewer layers.
fn half_billion(layers: usize) -> UnitSizes {
    let layers = vec![LayerSize { frozen: 0, trained: 14_912_384 }; layers];
    UnitSizes {
        vocab: 151_936,
        width: 896,
        layers,
        tied: true,
        tables_trained: true,
        whole_tables: false,
    }
}

fn links() -> Links {
    Links { bandwidth: [450e9, 50e9], latency: [5e-6, 15e-6] }
}

#[test]
fn a_step_of_1024_ranks_ends_and_is_bound_by_latency() {
    let machines = Machines::new(1024, 8);
    let units = half_billion(3);
    let step = Pass::Training { rounds: 1, tokens: 2048 };
    let schedule = Schedule::new(&units, step, Shard::Full);
    let idle = |_: usize, _: &Work| 0.0;
    let found = simulate(|_| &schedule, &machines, (&links(), 4), idle).unwrap();
    // A sum goes through 128 machines one after the other.
    let sums = schedule
        .exchanges
        .iter()
        .filter(|exchange| exchange.kind == ExchangeKind::Reduce && exchange.unit != Unit::Rows);
    let hops = sums.count() as f64 * 127.0 * 15e-6;
    let [within, across] = schedule.sent_bytes(&machines, 0, 4);
    let sending = within as f64 / 450e9 + across as f64 / 50e9;
    assert!(found.seconds > hops && found.seconds < 2.0 * hops + 2.0 * sending, "{found:?}");
    assert!(hops > sending / 2.0, "{hops} {sending}");
}

#[test]
fn exchanges_are_hidden_behind_work_that_takes_longer() {
    let machines = Machines::new(16, 8);
    let units = half_billion(6);
    let step = Pass::Training { rounds: 1, tokens: 2048 };
    let schedule = Schedule::new(&units, step, Shard::Full);
    let run = |seconds: f64| {
        let work = |_: usize, _: &Work| seconds;
        simulate(|_| &schedule, &machines, (&links(), 4), work).unwrap()
    };
    let (idle, busy) = (run(0.0), run(1.0));
    assert_eq!(idle.computing, 0.0);
    // The first gather and the last reduction are beside no work.
    let waiting = busy.seconds - busy.computing;
    assert!(waiting > 0.0 && waiting < idle.seconds / 2.0, "{idle:?} {busy:?}");
}

#[test]
fn a_rank_that_skips_an_exchange_is_an_error_that_names_both_lists() {
    let machines = Machines::new(4, 2);
    let step = Pass::Training { rounds: 1, tokens: 100 };
    let whole = Schedule::new(&half_billion(2), step, Shard::Full);
    for skipped in 1..whole.exchanges.len() - 1 {
        let mut other = whole.clone();
        other.exchanges.remove(skipped);
        let of_rank = |rank: usize| if rank == 3 { &other } else { &whole };
        let found = simulate(of_rank, &machines, (&links(), 4), |_, _| 0.0).unwrap_err();
        let named = ["is at exchange", "a fault of maverl"].iter().all(|part| found.contains(part));
        assert!(named || found.contains("waits in exchange"), "{found}");
    }
    let mut other = whole.clone();
    other.exchanges.swap(3, 4);
    let of_rank = |rank: usize| if rank == 1 { &other } else { &whole };
    let found = simulate(of_rank, &machines, (&links(), 4), |_, _| 0.0).unwrap_err();
    assert!(found.contains("is at exchange 3 ("), "{found}");
}
