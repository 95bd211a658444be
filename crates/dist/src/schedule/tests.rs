#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::draw::Draw;
use crate::units::LayerSize;
use crate::{Links, simulate};

const BOTH: [Shard; 2] = [Shard::Hybrid, Shard::Full];

/// Draws a model: its tables may be tied or frozen, and its layers may have adapters.
fn draw_units(draw: &mut Draw) -> UnitSizes {
    let width = draw.up_to(60) + 1;
    let adapters = draw.flip();
    let layers = (0..draw.up_to(4) + 1).map(|_| {
        let (base, own) = (draw.up_to(60_000) + 1, draw.up_to(3000) + 1);
        if adapters {
            LayerSize { frozen: base, trained: own }
        } else {
            LayerSize { frozen: 0, trained: base }
        }
    });
    let layers = layers.collect();
    let (tied, tables_trained) = (draw.flip(), !adapters && draw.flip());
    let (vocab, whole_tables) = (draw.up_to(3000) + 1, draw.up_to(4) == 0);
    UnitSizes { vocab, width, layers, tied, tables_trained, whole_tables }
}

fn draw_pass(draw: &mut Draw) -> Pass {
    let tokens = draw.up_to(5000);
    match draw.up_to(4) {
        0 => Pass::Copy,
        1 => Pass::Forward { tokens },
        _ => Pass::Training { rounds: draw.up_to(3) + 1, tokens },
    }
}

/// Draws machines of equal numbers of ranks, or with `uneven` any.
fn draw_machines(draw: &mut Draw, uneven: bool) -> Machines {
    let local = draw.up_to(4) + 1;
    let ranks = if uneven { draw.up_to(11) + 1 } else { local * (draw.up_to(3) + 1) };
    Machines::new(ranks, local)
}

/// Counts the exchanges of each kind and unit.
fn count(schedule: &Schedule) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for exchange in &schedule.exchanges {
        *counts.entry(exchange.to_string()).or_default() += 1;
    }
    counts
}

/// Returns how often each unit is exchanged in a pass, by the rules of the module.
fn expected_counts(units: &UnitSizes, pass: Pass, shard: Shard) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut add = |kind: &str, unit: Unit, times: usize| {
        *counts.entry(format!("{kind} {unit}")).or_default() += times;
    };
    let slices = if units.whole_tables { 1 } else { units.slices().len() };
    let rows = if units.whole_tables { Unit::Table } else { Unit::Rows };
    let slice = |at| if units.whole_tables { units.head() } else { Unit::Slice(at) };
    let (rounds, training) = match pass {
        Pass::Training { rounds, .. } => (rounds, true),
        _ => (1, false),
    };
    if pass == Pass::Copy {
        units.whole().into_iter().for_each(|unit| add("gather", unit, 1));
        return counts;
    }
    add("gather", rows, rounds);
    for layer in 0..units.layers.len() {
        add("gather", Unit::Layer(layer), if training { 2 * rounds } else { 1 });
    }
    let of_head = match (slices, training) {
        (1, _) => 1,
        (_, true) => 3,
        (_, false) => 2,
    };
    (0..slices).for_each(|at| add("gather", slice(at), of_head * rounds));
    if training {
        (0..units.layers.len()).for_each(|layer| add("reduce", Unit::Layer(layer), rounds));
    }
    if training && units.tables_trained {
        (0..slices).for_each(|at| add("reduce", slice(at), rounds));
        add("reduce", rows, rounds);
    }
    if training && shard == Shard::Hybrid {
        let trained = units.whole().into_iter().filter(|unit| units.sums(*unit).is_some());
        trained.for_each(|unit| add("spread", unit, 1));
    }
    counts
}

/// Returns the bytes that all ranks together send within machines and across for an array, by formula: who gets an element
/// from where.
fn expected_elements(machines: &Machines, shard: Shard, exchange: &Exchange) -> [usize; 2] {
    let (ranks, local, count) = (machines.ranks(), machines.local(), machines.count());
    let hybrid = shard == Shard::Hybrid;
    let neighbors = |rank: usize| {
        let first = rank / local * local;
        (first + local).min(ranks) - first
    };
    let arrays = match &exchange.content {
        Content::Arrays(arrays) => arrays.clone(),
        Content::Rows { rows, width } => {
            let inside: usize = (0..ranks).map(|rank| neighbors(rank) - 1).sum();
            let each = rows.div_ceil(ranks) * width;
            return [inside * each, (ranks * (ranks - 1) - inside) * each];
        }
    };
    let mut sum = [0; 2];
    for n in arrays {
        let last: usize = (ranks - local..ranks).map(|rank| machines.range(n, rank).len()).sum();
        // To all ranks, in one stage.
        let inside: usize =
            (0..ranks).map(|rank| machines.range(n, rank).len() * (neighbors(rank) - 1)).sum();
        let in_stages = [n * count * (local - 1), n * (count - 1)];
        let [within, across] = match exchange.kind {
            ExchangeKind::Gather if hybrid => [n * count * (local - 1), 0],
            ExchangeKind::Spread => [0, n * (count - 1)],
            ExchangeKind::Gather if machines.has_stages() => in_stages,
            // The chain, and the parts that the last machine hands out.
            ExchangeKind::Reduce if machines.has_stages() => {
                [in_stages[0], in_stages[1] + n - last]
            }
            ExchangeKind::Gather => [inside, n * (ranks - 1) - inside],
            // Each element comes from all others, some of which are in the machine of its owner.
            ExchangeKind::Reduce => [inside, n * (ranks - 1) - inside],
        };
        sum = [sum[0] + within, sum[1] + across];
    }
    sum
}

#[test]
fn ten_thousand_drawn_schedules_exchange_each_unit_as_often_as_stated_and_send_the_bytes_of_the_formula()
 {
    let mut draw = Draw::new(17);
    for case in 0..10_000 {
        let (units, pass) = (draw_units(&mut draw), draw_pass(&mut draw));
        let shard = BOTH[draw.up_to(2)];
        let machines = draw_machines(&mut draw, shard == Shard::Full);
        let schedule = Schedule::new(&units, pass, shard);
        assert_eq!(schedule, Schedule::new(&units, pass, shard), "case {case}");
        assert_eq!(count(&schedule), expected_counts(&units, pass, shard), "case {case}");
        let weight = [2, 4][draw.up_to(2)];
        let mut sent = [0; 2];
        for rank in 0..machines.ranks() {
            let own = schedule.sent_bytes(&machines, rank, weight);
            sent = [sent[0] + own[0], sent[1] + own[1]];
        }
        let mut expected = [0; 2];
        for exchange in &schedule.exchanges {
            let width = if exchange.kind == ExchangeKind::Reduce { 4 } else { weight };
            let elements = expected_elements(&machines, shard, exchange);
            expected = [expected[0] + elements[0] * width, expected[1] + elements[1] * width];
        }
        assert_eq!(sent, expected, "case {case}: {machines:?} {pass:?} {shard:?}");
    }
}

#[test]
fn ranks_of_drawn_schedules_end_whatever_each_of_them_computes() {
    let mut draw = Draw::new(5);
    for case in 0..1000 {
        let (units, pass) = (draw_units(&mut draw), draw_pass(&mut draw));
        let shard = BOTH[draw.up_to(2)];
        let machines = draw_machines(&mut draw, shard == Shard::Full);
        let schedule = Schedule::new(&units, pass, shard);
        let links = Links { bandwidth: [1e9, 1e8], latency: [1e-6, 1e-5] };
        // The last rank has no rows, and others have few or many.
        let idle = machines.ranks() - 1;
        let work = |rank: usize, _: &Work| if rank == idle { 0.0 } else { (rank % 5) as f64 };
        let found = simulate(|_| &schedule, &machines, (&links, 4), work);
        let found = found.unwrap_or_else(|problem| panic!("case {case}: {problem}"));
        assert!(found.seconds >= found.computing, "case {case}: {found:?}");
    }
}

#[test]
fn every_work_has_its_weights_and_both_arrays_take_turns() {
    let layers = vec![LayerSize { frozen: 0, trained: 64 * 64 * 12 }; 3];
    let units = UnitSizes {
        vocab: 1500,
        width: 64,
        layers,
        tied: true,
        tables_trained: true,
        whole_tables: false,
    };
    let schedule = Schedule::new(&units, Pass::Training { rounds: 2, tokens: 100 }, Shard::Full);
    let gathers: Vec<&Exchange> =
        schedule.exchanges.iter().filter(|e| e.kind == ExchangeKind::Gather).collect();
    for (at, gather) in gathers.iter().enumerate() {
        // The first two have free arrays.
        let work = gather.after.map_or(at, |after| after + 2);
        assert_eq!(schedule.works[work].unit, gather.unit, "gather {at}");
        let place = schedule.exchanges.iter().position(|e| std::ptr::eq(e, *gather)).unwrap();
        assert!(schedule.works[work].after.unwrap() >= place);
    }
    for exchange in schedule.exchanges.iter().filter(|e| e.kind == ExchangeKind::Reduce) {
        let work = &schedule.works[exchange.after.unwrap()];
        assert_eq!(work.unit, exchange.unit);
        assert!(matches!(work.phase, Phase::Gradients | Phase::Backward), "{work:?}");
    }
    let last = schedule.works.last().unwrap();
    assert_eq!((last.phase, last.after), (Phase::Update, Some(schedule.exchanges.len() - 1)));
}

#[test]
fn ranks_with_all_weights_exchange_nothing_by_units() {
    let layers = vec![LayerSize { frozen: 0, trained: 640 }];
    let units = UnitSizes {
        vocab: 64,
        width: 8,
        layers,
        tied: false,
        tables_trained: true,
        whole_tables: false,
    };
    for shard in [Shard::None, Shard::Optimizer] {
        let schedule = Schedule::new(&units, Pass::Training { rounds: 1, tokens: 9 }, shard);
        assert!(schedule.exchanges.is_empty() && schedule.works.is_empty());
    }
}
