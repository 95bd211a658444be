//! A plan on several ranks, in numbers: memory, tokens and communication of a rank, without starting any.

use serde::Serialize;

use super::devices::Placement;
use super::numbers::{NUMBER, bytes};
use super::shard_text;
use super::sharding::{ShardedGroup, ShardingSummary};
use super::{Plan, PlanSummary, StepSummary, WorkerSummary};
use crate::config::Shard;
use crate::table::{Table, paragraphs};

/// Bytes of a number that products read and nobody trains, on a GPU.
const HALF: u64 = 2;
/// Bytes of a sampled token between ranks: its id and its log-prob as text, and its part of the prompt and of the text.
const TOKEN: u64 = 24;
/// Number of ranks up to which connections of every rank with every other one are few.
const MESH: u64 = 64;
const GB: f64 = 1e9;

/// A plan on ranks, in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RanksSummary {
    /// Number of ranks.
    pub ranks: u64,
    /// Name of the device of each rank; `None` for the CPU.
    pub device: Option<&'static str>,
    /// Bytes of its memory.
    pub device_bytes: Option<u64>,
    /// Bytes of weights, adapters, critics and references of a rank.
    pub weight_bytes: u64,
    /// Bytes of the gradients of a rank.
    pub gradient_bytes: u64,
    /// Bytes of the moments of a rank.
    pub moment_bytes: u64,
    /// Bytes of the activations of an update at most.
    pub activation_bytes: u64,
    /// Bytes of keys and values at most, and of packed weights on the CPU.
    pub rollout_bytes: u64,
    /// Bytes of a rank at most. Gradients and activations are not there during rollouts, nor keys and values in updates.
    pub rank_bytes: u64,
    /// Most tasks of a step that a rank plays.
    pub tasks_per_rank: u64,
    /// Sampled tokens of a step at most, if every seat speaks once an episode; of all ranks.
    pub tokens: u64,
    /// The same of the rank with most tasks.
    pub tokens_per_rank: u64,
    /// Bytes that a rank sends in a step for its episodes, and for its gradients.
    pub episode_bytes: u64,
    /// Bytes that a rank sends in a step for the sums of gradients.
    pub sum_bytes: u64,
    /// Bytes that a rank sends in a second.
    pub bandwidth: f64,
    /// Seconds of the communication of a step at that bandwidth.
    pub communication_s: f64,
    /// Seconds of a pass over the weights of the largest worker group at the bandwidth of the device's memory: no decoded
    /// token takes less.
    pub token_s: Option<f64>,
    /// Worker groups whose weights the ranks divide (`dist.shard`); none if every rank has all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharding: Option<ShardingSummary>,
    /// Limits that the plan exceeds.
    pub warnings: Vec<String>,
}

/// Returns the bytes that a rank sends in a step for sums of gradients, which are as large as the trained weights. Ranks that
/// shard the moments send weights in place of the sums.
fn sum_bytes(step: &StepSummary, trained: u64, critics: u64, ranks: u64) -> u64 {
    let policies = bytes_of_sum(trained.saturating_sub(critics), ranks);
    let critics = bytes_of_sum(critics, ranks);
    policies
        .saturating_mul(step.optimizer_steps)
        .saturating_add(critics.saturating_mul(step.critic_steps.unwrap_or(0)))
}

/// Returns the bytes that a rank sends for one sum of the gradients of weights of this size.
fn bytes_of_sum(weights: u64, ranks: u64) -> u64 {
    let others = u128::from(ranks.saturating_sub(1));
    (u128::from(weights) * 2 * others / u128::from(ranks.max(1))) as u64
}

impl RanksSummary {
    /// Computes the numbers of a plan on ranks.
    pub fn new(plan: &Plan, at: &Placement) -> Self {
        let summary = plan.summary();
        let mut found = Self::undivided(plan, at, &summary);
        found.divide(ShardingSummary::new(plan, at), summary.step.optimizer_steps);
        found.warnings = found.limits(&summary);
        if let Some(sharding) = &found.sharding {
            found.warnings.extend(shard_text::limits(plan, at, sharding));
        }
        found
    }

    /// Computes the numbers of ranks that have all weights.
    fn undivided(plan: &Plan, at: &Placement, summary: &PlanSummary) -> Self {
        let Placement { ranks, device, bandwidth: [_, bandwidth], .. } = *at;
        let workers = summary.workers.iter();
        let all_moments: u64 = workers.clone().map(|worker| worker.moment_bytes).sum();
        let moment_bytes = if plan.config.dist.shard == Shard::Optimizer {
            all_moments.div_ceil(ranks.max(1))
        } else {
            all_moments
        };
        let gradients = workers.clone().map(|worker| worker.gradient_bytes);
        let gradient_bytes = gradients.max().unwrap_or(0);
        let activations = workers.clone().map(|worker| worker.activation_bytes);
        let activation_bytes = activations.max().unwrap_or(0);
        let weights = workers.clone().map(|worker| weight_bytes(worker, device.is_some()));
        let weight_bytes: u64 = weights.sum();
        let packed: u64 = workers.clone().map(|worker| worker.packed_bytes).sum();
        let packed = if device.is_some() { 0 } else { packed };
        let rollout_bytes = packed + workers.clone().map(|worker| worker.kv_bytes).sum::<u64>();
        let working = rollout_bytes.max(gradient_bytes.saturating_add(activation_bytes));
        let tasks_per_rank = summary.step.tasks.div_ceil(ranks.max(1));
        let tokens_per_task = summary.step.tokens_per_call / summary.step.tasks.max(1);
        let tokens_per_rank = tokens_per_task.saturating_mul(tasks_per_rank);
        let others = ranks.saturating_sub(1);
        let episode_bytes = tokens_per_rank.saturating_mul(TOKEN).saturating_mul(others);
        let critics: u64 = plan.policies.iter().map(|policy| policy.critic_parameters).sum();
        let trained = workers.clone().map(|worker| worker.trained_bytes).sum();
        let sum_bytes = sum_bytes(&summary.step, trained, critics * NUMBER, ranks);
        let largest = workers.map(|worker| worker.parameters).max().unwrap_or(0);
        let width = if device.is_some() { HALF } else { NUMBER };
        let rank_bytes = weight_bytes.saturating_add(moment_bytes).saturating_add(working);
        Self {
            ranks,
            device: device.map(|device| device.name),
            device_bytes: device.map(|device| device.memory),
            weight_bytes,
            gradient_bytes,
            moment_bytes,
            activation_bytes,
            rollout_bytes,
            rank_bytes,
            tasks_per_rank,
            tokens: summary.step.tokens_per_call,
            tokens_per_rank,
            episode_bytes,
            sum_bytes,
            bandwidth,
            communication_s: (episode_bytes as f64 + sum_bytes as f64) / bandwidth,
            token_s: device.map(|device| (largest * width) as f64 / device.memory_bandwidth),
            sharding: None,
            warnings: Vec::new(),
        }
    }

    /// Replaces the numbers of ranks with all weights by those of ranks that divide them.
    fn divide(&mut self, sharding: Option<ShardingSummary>, optimizer_steps: u64) {
        let Some(sharding) = sharding else { return };
        let sum = |part: &dyn Fn(&ShardedGroup) -> u64| -> u64 {
            sharding.groups.iter().map(part).fold(0, u64::saturating_add)
        };
        self.weight_bytes = sum(&|group| group.rollout_shard_bytes + group.layer_bytes);
        self.moment_bytes = 0;
        self.gradient_bytes = sum(&|group| {
            group.shard_bytes.saturating_sub(group.rollout_shard_bytes) + group.sum_bytes
        });
        self.activation_bytes = sum(&|group| group.kept_bytes + group.pass_bytes);
        self.rollout_bytes =
            sum(&|group| group.rollout_bytes().saturating_sub(group.rollout_shard_bytes));
        self.rank_bytes = sum(&ShardedGroup::update_bytes).max(sum(&ShardedGroup::rollout_bytes));
        let sent = |group: &ShardedGroup| group.step.machine + group.step.across;
        self.sum_bytes = sum(&sent).saturating_mul(optimizer_steps);
        let seconds: f64 = sharding.groups.iter().map(|group| group.step.seconds()).sum();
        let episodes = self.episode_bytes as f64 / self.bandwidth;
        let copies = sharding.groups.iter().filter(|group| group.rollout == "copy");
        let copies: f64 = copies.map(|group| group.copy.seconds()).sum();
        self.communication_s = episodes + seconds * optimizer_steps as f64 + copies;
        self.sharding = Some(sharding);
    }

    /// Returns the limits that the numbers exceed, with remedies.
    fn limits(&self, summary: &PlanSummary) -> Vec<String> {
        let mut limits = Vec::new();
        if summary.workers.iter().any(|worker| worker.device.is_some()) {
            limits.push(
                "worker groups are on different devices (`worker_groups.NAME.device`); these numbers are for one device with \
                 all of them"
                    .to_owned(),
            );
        }
        if let Some(memory) = self.device_bytes.filter(|&memory| memory < self.rank_bytes) {
            limits.push(format!(
                "a rank needs {} and a device has {}: lower `runtime.kv_mib` or `runtime.micro_batch_tokens`, set \
                 `gradient_checkpointing` or `dist.shard`, or train adapters",
                bytes(self.rank_bytes),
                bytes(memory)
            ));
        }
        let tasks = summary.step.tasks;
        if tasks < self.ranks {
            limits.push(format!(
                "a step has {tasks} tasks, which are dealt whole: {} of {} ranks play no episode; raise \
                 `task.tasks_per_step`",
                self.ranks - tasks,
                self.ranks
            ));
        } else if !tasks.is_multiple_of(self.ranks) {
            limits.push(format!(
                "{tasks} tasks are not a multiple of {} ranks, so some ranks wait for those with one task more",
                self.ranks
            ));
        }
        if self.ranks > MESH {
            limits.push(format!(
                "every rank is connected with every other one: {} connections and threads a rank, and {} of episodes \
                 that each of them receives in a step",
                self.ranks - 1,
                bytes(self.tokens.saturating_mul(TOKEN))
            ));
        }
        limits
    }

    /// Formats the numbers in lines of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut table = Table::without_frame(["ranks".to_owned(), self.ranks.to_string()]);
        let device = self.device.map_or("cpu".to_owned(), |name| {
            format!("{name}, {}", bytes(self.device_bytes.unwrap_or(0)))
        });
        let communication = format!("communication a step, at {:.3} GB/s", self.bandwidth / GB);
        let mut rows = vec![("device", device), ("memory a rank, at most", bytes(self.rank_bytes))];
        if self.sharding.is_none() {
            rows.extend([
                ("  weights and references", bytes(self.weight_bytes)),
                ("  gradients", bytes(self.gradient_bytes)),
                ("  moments", bytes(self.moment_bytes)),
                ("  activations", bytes(self.activation_bytes)),
                ("  keys and values, between updates", bytes(self.rollout_bytes)),
            ]);
        }
        rows.extend([
            ("tasks a rank, at most", self.tasks_per_rank.to_string()),
            ("tokens a step, at most", self.tokens.to_string()),
            ("tokens a step and rank, at most", self.tokens_per_rank.to_string()),
            ("sent a step and rank: gradients", bytes(self.sum_bytes)),
            ("sent a step and rank: episodes", bytes(self.episode_bytes)),
            (communication.as_str(), format!("{:.3} s", self.communication_s)),
        ]);
        let token = self.token_s.map(|seconds| format!("{:.2} ms", seconds * 1e3));
        rows.extend(token.map(|token| ("a decoded token, at least", token)));
        for (name, value) in &rows {
            table.row([*name, value]);
        }
        let warnings: String =
            self.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        let memory = self.device_bytes;
        let divided = self.sharding.as_ref().map(|sharding| shard_text::lines(sharding, memory));
        let divided = divided.map_or_else(String::new, |lines| format!("\n{lines}"));
        format!("{}\n{}", table.draw(width), paragraphs(&format!("{divided}{warnings}"), width))
    }
}

/// Returns the bytes of a worker group's weights. A GPU has the weights that are not trained in bf16.
fn weight_bytes(worker: &WorkerSummary, gpu: bool) -> u64 {
    let trained = worker.trained_bytes;
    let frozen = worker.weight_bytes.saturating_sub(trained) + worker.reference_bytes;
    trained.min(worker.weight_bytes) + if gpu { frozen / NUMBER * HALF } else { frozen }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::algo::testing::plan;
    use crate::plan::DeviceModel;

    fn large() -> Plan {
        let mut plan = plan(&[("t/one", true), ("t/two", true)]);
        plan.workers.iter_mut().for_each(|worker| worker.parameters = 4_000_000);
        plan
    }

    #[test]
    fn sums_of_gradients_are_as_large_as_the_trained_weights_twice_for_many_ranks() {
        let plan = large();
        let on = |ranks| {
            RanksSummary::new(&plan, &Placement::new(ranks, DeviceModel::find("h100-80gb")))
        };
        let moments = plan.summary().workers.iter().map(|worker| worker.moment_bytes).sum::<u64>();
        let steps = plan.summary().step.optimizer_steps;
        assert_eq!((on(1).sum_bytes, on(1).episode_bytes), (0, 0));
        assert_eq!(on(2).sum_bytes, moments / 2 * steps);
        assert_eq!(on(1024).sum_bytes, (u128::from(moments) * 1023 / 1024) as u64 * steps);
        let seconds = (on(4).sum_bytes + on(4).episode_bytes) as f64 / 50e9;
        assert!((on(4).communication_s - seconds).abs() <= 1e-12 * seconds);
    }

    #[test]
    fn ranks_that_shard_the_moments_have_their_part_of_them_and_send_as_much() {
        let mut plan = large();
        let whole = RanksSummary::new(&plan, &Placement::new(8, None));
        plan.config = plan.config.with(|config| config.dist.shard = Shard::Optimizer);
        let part = RanksSummary::new(&plan, &Placement::new(8, None));
        assert_eq!(part.moment_bytes * 8, whole.moment_bytes);
        assert_eq!(whole.rank_bytes - part.rank_bytes, whole.moment_bytes - part.moment_bytes);
        assert_eq!(part.sum_bytes, whole.sum_bytes);
    }

    #[test]
    fn ranks_without_tasks_and_memory_that_does_not_suffice_are_named() {
        let plan = large();
        let tasks = plan.config.task.tasks_per_step.get() as u64;
        let found = RanksSummary::new(&plan, &Placement::new(tasks + 2, None).with_bandwidth(1e9));
        assert!(found.warnings[0].contains("2 of"), "{:?}", found.warnings);
        assert_eq!((found.tasks_per_rank, found.device), (1, None));
        let small = DeviceModel::of("small", 0, [1.0; 3], 1.0);
        let small: &'static DeviceModel = Box::leak(Box::new(small));
        let found = RanksSummary::new(&plan, &Placement::new(1, Some(small)));
        assert!(found.warnings[0].contains("`runtime.kv_mib`"), "{:?}", found.warnings);
    }
}
