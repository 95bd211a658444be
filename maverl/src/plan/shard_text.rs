//! Lines and warnings about worker groups whose weights ranks divide.

use super::Plan;
use super::devices::Placement;
use super::sharding::{SentBytes, ShardedGroup, ShardingSummary};
use crate::config::{RolloutWeights, Shard};

const GB: f64 = 1e9;

/// Returns the lines about a plan on ranks. `memory` is that of the device of a rank.
pub(super) fn lines(summary: &ShardingSummary, memory: Option<u64>) -> String {
    let several = summary.groups.len() > 1;
    let groups = summary.groups.iter().map(|group| {
        let title =
            if several { format!("worker group `{}`\n", group.worker) } else { String::new() };
        title + &group_lines(group, memory)
    });
    let title = format!(
        "dist.shard = \"{}\", {} ranks a machine\n",
        summary.shard, summary.ranks_per_machine
    );
    title + &groups.collect::<String>() + "\n"
}

fn group_lines(group: &ShardedGroup, memory: Option<u64>) -> String {
    let of = memory.map_or_else(String::new, |memory| format!(" of {}", gigabytes(memory)));
    let in_use = if group.whole_tables { "a layer and the embedding" } else { "two layers" };
    let mut text = format!(
        "memory a rank: {}{of} GB in updates: shard {}, {in_use} {}, their sums {}, kept inputs {} ({} tokens), one layer's \
         pass {}, messages {}\n",
        gigabytes(group.update_bytes()),
        gigabytes(group.shard_bytes),
        gigabytes(group.layer_bytes),
        gigabytes(group.sum_bytes),
        gigabytes(group.kept_bytes),
        grouped(group.kept_tokens),
        gigabytes(group.pass_bytes),
        gigabytes(group.message_bytes),
    );
    text += &rollout_line(group);
    if group.exchanges == 0 {
        return text;
    }
    let rollouts = match group.rollout {
        "copy" => format!("{} a copy", sent(&group.copy)),
        "layers" => format!("{} a pass of rollouts", sent(&group.layers)),
        _ => format!("{} new weights for the servers", sent(&group.copy)),
    };
    text += &format!(
        "sent a rank in its machine, across: {} an optimizer step ({}, {} s), {rollouts}, {} a pass of log-probs; {} exchanges \
         and {} messages an optimizer step\n",
        sent(&group.step),
        amount(group.step.machine_s),
        amount(group.step.across_s),
        sent(&group.log_probs),
        group.exchanges,
        grouped(group.messages),
    );
    let waiting = (group.simulated_s - group.products_s).max(0.0);
    text + &format!(
        "simulated: {:.2} s a round of an optimizer step: {:.2} s of products at the peak of the device, {waiting:.2} s of \
         exchanges beside none\n",
        group.simulated_s, group.products_s
    )
}

fn rollout_line(group: &ShardedGroup) -> String {
    let shards = gigabytes(group.rollout_shard_bytes);
    let kept = format!(
        "{} for keys and values ({} tokens)",
        gigabytes(group.kv_bytes),
        grouped(group.kv_tokens)
    );
    match group.rollout {
        "copy" => {
            format!("rollout: copy, {} + {shards} of shards; {kept}\n", gigabytes(group.copy_bytes))
        }
        "layers" => format!(
            "rollout: layers, {} + {shards} of shards; {kept}; {} s a pass for its exchanges\n",
            gigabytes(group.layer_bytes),
            amount(group.layers.seconds())
        ),
        _ => format!("rollout: inference servers; {shards} of shards\n"),
    }
}

/// Returns warnings about what ranks do not have room for, or do not do.
pub(super) fn limits(plan: &Plan, at: &Placement, summary: &ShardingSummary) -> Vec<String> {
    let mut found: Vec<String> = untrained(plan, at).into_iter().collect();
    let rest = at.ranks % at.local;
    if plan.config.dist.shard == Shard::Hybrid && rest > 0 {
        found.push(format!(
            "`dist.shard` is \"hybrid\": node-{} has {rest} ranks and node-0 has {}; every machine needs as many, numbered machine \
             by machine",
            at.ranks / at.local,
            at.local
        ));
    }
    let Some(device) = at.device else { return found };
    for group in &summary.groups {
        let (name, memory) = (device.name, device.memory);
        found.extend(rollout_limit(plan, group, (name, memory)));
        found.extend(kept_limit(plan, group, memory));
    }
    found
}

/// Returns the warning about a division with which this version does not train the plan; `None` if it does.
fn untrained(plan: &Plan, at: &Placement) -> Option<String> {
    let shard = plan.config.dist.shard;
    let name = shard.name();
    let parts = plan.undivided_parts();
    let reason = if shard != Shard::Full {
        "`maverl train` takes \"none\", \"optimizer\" and \"full\"".to_owned()
    } else if at.device.is_some() {
        "it divides weights on the CPU".to_owned()
    } else {
        parts.first()?.message.clone()
    };
    Some(format!(
        "this version plans with `dist.shard = \"{name}\"` and does not train with it: {reason}"
    ))
}

/// Returns the warning about weights that rollouts cannot read.
fn rollout_limit(plan: &Plan, group: &ShardedGroup, (name, memory): (&str, u64)) -> Option<String> {
    let (asked, stale) = (plan.config.dist.rollout, plan.config.rollout.staleness > 0);
    let copy = gigabytes(group.copy_bytes);
    if group.rollout == "layers" && stale {
        let given = match asked {
            RolloutWeights::Layers => "`dist.rollout` is \"layers\"",
            _ => "a copy does not fit",
        };
        return Some(format!(
            "{given} and rollouts use older weights: they need a copy ({copy} GB; {name} has {}) or `rollout_servers`",
            gigabytes(memory.saturating_sub(group.rollout_shard_bytes))
        ));
    }
    if group.rollout != "copy" || group.copy_memory() <= memory {
        return None;
    }
    Some(format!(
        "`dist.rollout` is \"copy\": `{}` needs {copy} GB beside {} of shards and {} of keys and values, {name} has {}; \"layers\" \
         needs {} and takes {} s a pass for its exchanges, or name `rollout_servers`",
        group.worker,
        gigabytes(group.rollout_shard_bytes),
        gigabytes(group.kv_bytes),
        gigabytes(memory),
        gigabytes(group.layer_bytes),
        amount(group.layers.seconds())
    ))
}

/// Returns the warning about kept inputs that the memory of a device has no room for, with the largest power of two of micro-batches
/// that fit.
fn kept_limit(plan: &Plan, group: &ShardedGroup, memory: u64) -> Option<String> {
    let others = group.update_bytes() - group.kept_bytes;
    let room = memory.checked_sub(others)?;
    if group.kept_bytes <= room {
        return None;
    }
    let worker = plan.workers.iter().find(|worker| worker.name == group.worker)?;
    let micro = plan.micro_batch_tokens(worker) as u64;
    let of_tokens = |tokens: u64| {
        (u128::from(group.kept_bytes) * u128::from(tokens) / u128::from(group.kept_tokens)) as u64
    };
    let rounds = (0..20).map(|power| 1_u64 << power);
    let round = rounds.take_while(|round| of_tokens(round * micro) <= room).last();
    let needed = format!(
        "kept inputs of {} tokens a rank need {} GB",
        grouped(group.kept_tokens),
        gigabytes(group.kept_bytes)
    );
    Some(match round {
        Some(round) => format!(
            "{needed}: set dist.round = {round} ({} GB; each round after the first sends {} GB more across), or more `minibatches`",
            gigabytes(of_tokens(round * micro)),
            amount(group.step.across as f64 / group.rounds as f64 / GB)
        ),
        None => format!("{needed}: lower `micro_batch_tokens`, or use more ranks"),
    })
}

/// Formats what is sent within a machine and across.
fn sent(of: &SentBytes) -> String {
    let [machine, across] = [of.machine, of.across].map(|bytes| amount(bytes as f64 / GB));
    format!("{machine}, {across} GB")
}

/// Formats bytes as gigabytes with one decimal, and few with two.
fn gigabytes(bytes: u64) -> String {
    let value = bytes as f64 / GB;
    if value < 0.1 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Formats a number with two digits or as a whole number.
fn amount(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Formats a whole number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.char_indices().map(|(at, digit)| {
        let begins = at > 0 && (digits.len() - at).is_multiple_of(3);
        if begins { format!(",{digit}") } else { digit.to_string() }
    });
    places.collect()
}

#[cfg(test)]
mod tests;
