//! Worker groups whose weights ranks divide, in numbers: memory and messages of a rank (`dist.shard`).
//!
//! Letters of the formulas: P_t and P_f trained and frozen parameters, U those of the largest layer, L layers, D width, R ranks,
//! G ranks of a machine, w bytes of a weight in use.

use serde::Serialize;

use super::devices::Placement;
use super::shares::{F32, Parameters, WeightInUse};
use super::{Plan, WorkerPlan};
use crate::config::{RolloutWeights, Shard};
use crate::dist::{LayerSize, Links, Machines, Pass, Schedule, UnitSizes, simulate};
use crate::files::HfConfig;

/// Bytes of the two moments of a weight.
const MOMENTS: u64 = 8;
/// Bytes of the messages that a rank has at once.
const MESSAGES: u64 = 32 << 20;
/// Seconds from the end of a message's sending to its arrival, within a machine and across.
const LATENCY: [f64; 2] = [5e-6, 15e-6];
/// Numbers of layers that are simulated of a model with more.
const SIMULATED: [usize; 2] = [6, 9];
/// Tokens of a pass of rollouts: one for each of many requests.
const BEAT: usize = 256;

/// Bytes that a rank sends, and their seconds at its bandwidths.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct SentBytes {
    /// Bytes within its machine.
    pub machine: u64,
    /// Bytes to other machines.
    pub across: u64,
    /// Seconds of the bytes within its machine.
    pub machine_s: f64,
    /// Seconds of the bytes to other machines.
    pub across_s: f64,
}

/// A worker group whose weights ranks divide, in numbers of a rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShardedGroup {
    /// Its name.
    pub worker: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of its share of weights, moments and sums of gradients.
    pub shard_bytes: u64,
    /// True if embedding and head are exchanged whole: not by rows and in slices.
    pub whole_tables: bool,
    /// Bytes of the weights in use: of two layers, or of one and an embedding.
    pub layer_bytes: u64,
    /// Bytes of the sums of gradients in use: of two layers, and of an embedding that is exchanged whole.
    pub sum_bytes: u64,
    /// Bytes of inputs that are kept for the way back.
    pub kept_bytes: u64,
    /// Tokens of a rank in an optimizer step.
    pub tokens: u64,
    /// Tokens of a rank in a round, whose inputs are kept.
    pub kept_tokens: u64,
    /// Bytes of the way of a micro-batch through one layer and the head.
    pub pass_bytes: u64,
    /// Bytes of messages.
    pub message_bytes: u64,
    /// Rounds of an optimizer step.
    pub rounds: u64,
    /// Weights that rollouts read: `copy`, `layers`, or `servers` if inference servers sample.
    pub rollout: &'static str,
    /// Bytes of a copy of the weights; on CPUs with the packed weights that products read.
    pub copy_bytes: u64,
    /// Bytes of its share of weights and moments during rollouts.
    pub rollout_shard_bytes: u64,
    /// Bytes of keys and values at most (`runtime.kv_mib`).
    pub kv_bytes: u64,
    /// Tokens whose keys and values these are.
    pub kv_tokens: u64,
    /// Exchanges of an optimizer step.
    pub exchanges: u64,
    /// Messages that a rank sends in an optimizer step.
    pub messages: u64,
    /// Bytes of an optimizer step.
    pub step: SentBytes,
    /// Bytes of a copy of the weights.
    pub copy: SentBytes,
    /// Bytes of a pass of log-probs.
    pub log_probs: SentBytes,
    /// Bytes of a pass of rollouts by layers.
    pub layers: SentBytes,
    /// Seconds of a simulated optimizer step: products at the device's peak, and exchanges that wait for them or for each other.
    pub simulated_s: f64,
    /// Seconds of it in which products are computed.
    pub products_s: f64,
}

/// Worker groups whose weights ranks divide, in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShardingSummary {
    /// Value of `dist.shard`.
    pub shard: &'static str,
    /// Ranks of a machine.
    pub ranks_per_machine: u64,
    /// Worker groups.
    pub groups: Vec<ShardedGroup>,
}

/// Returns the units of a model, all of whose parameters are trained.
pub fn model_units(shape: &HfConfig) -> UnitSizes {
    let numbers = |dims: &[usize]| dims.iter().product::<usize>();
    let layers = shape.layers.iter().map(|layer| LayerSize {
        frozen: 0,
        trained: layer.tensors().map(|(_, dims)| numbers(&dims)).sum(),
    });
    let mut layers: Vec<LayerSize> = layers.collect();
    if let Some(last) = layers.last_mut() {
        last.trained += shape.norm.width;
    }
    UnitSizes {
        vocab: shape.vocab_size,
        width: shape.hidden_size,
        layers,
        tied: shape.tie_word_embeddings,
        tables_trained: true,
        whole_tables: false,
    }
}

/// A worker group on ranks.
struct Group<'p> {
    plan: &'p Plan,
    worker: &'p WorkerPlan,
    index: usize,
    at: &'p Placement,
    shard: Shard,
    units: UnitSizes,
    weight: WeightInUse,
}

impl<'p> Group<'p> {
    fn new(plan: &'p Plan, index: usize, at: &'p Placement, shard: Shard) -> Self {
        let worker = &plan.workers[index];
        let weight = WeightInUse::of(worker.dtype, at.device.is_some());
        let mut units = worker.units.clone();
        units.whole_tables = at.device.is_none() && shard == Shard::Full;
        let policies = plan.policies.iter().filter(|policy| policy.worker == index);
        let trained = policies.filter(|policy| policy.trained);
        if !trained.clone().any(|policy| policy.adapter.is_none()) {
            let adapters = trained.filter_map(|policy| policy.adapter.as_ref());
            let largest = adapters.map(|adapter| adapter.parameters).max().unwrap_or(0) as usize;
            let each = largest.div_ceil(units.layers.len().max(1));
            units.tables_trained = false;
            for layer in &mut units.layers {
                *layer = LayerSize { frozen: layer.trained, trained: each };
            }
        }
        Self { plan, worker, index, at, shard, units, weight }
    }

    /// Returns the largest number of tokens of a rank in an optimizer step, if every seat speaks once an episode; one micro-batch
    /// where replies are given.
    fn tokens(&self) -> u64 {
        let Plan { policies, seats, config, algorithm, .. } = self.plan;
        let its = (0..policies.len()).filter(|&at| policies[at].worker == self.index);
        let longest = its.map(|policy| {
            let spoken = seats.iter().filter(|seat| seat.policy == policy && seat.trained);
            spoken.map(|seat| seat.sampling.max_tokens as u64).fold(0, u64::saturating_add)
        });
        let group = u64::from(config.task.group_size.get());
        let tasks = (config.task.tasks_per_step.get() as u64).div_ceil(self.at.ranks);
        let played = if algorithm.preset.is_supervised() { 0 } else { tasks.saturating_mul(group) };
        let all = longest.max().unwrap_or(0).saturating_mul(played);
        let micro = self.plan.micro_batch_tokens(self.worker) as u64;
        all.div_ceil(algorithm.minibatches as u64).max(micro)
    }

    /// Returns bytes of the inputs of a number of tokens that are kept for the way back.
    fn kept_bytes(&self, tokens: u64) -> u64 {
        let (layers, width) = (self.units.layers.len() as u64, self.units.width as u64);
        let with_checkpoints = (F32 * (layers + 3) * width).saturating_mul(tokens);
        let mut its = self.plan.policies.iter().filter(|policy| policy.worker == self.index);
        if its.all(|policy| policy.gradient_checkpointing || !policy.trained) {
            return with_checkpoints;
        }
        // Without checkpointing all results of layers are kept.
        let its = self.plan.policies.iter().filter(|policy| policy.worker == self.index);
        let of_micro = its.filter_map(|policy| policy.activation_bytes).max().unwrap_or(0);
        let micro = self.plan.micro_batch_tokens(self.worker) as u64;
        with_checkpoints.max(of_micro.saturating_mul(tokens.div_ceil(micro)))
    }

    fn schedule(&self, pass: Pass) -> Schedule {
        Schedule::new(&self.units, pass, self.shard)
    }

    fn machines(&self) -> Machines {
        Machines::new(self.at.ranks as usize, self.at.local as usize)
    }

    /// Returns what rank 0 sends in a pass; no rank sends more.
    fn sent(&self, schedule: &Schedule) -> SentBytes {
        let bytes = schedule.sent_bytes(&self.machines(), 0, self.weight.bytes as usize);
        let [machine_s, across_s] = [0, 1].map(|at| bytes[at] as f64 / self.at.bandwidth[at]);
        SentBytes { machine: bytes[0] as u64, across: bytes[1] as u64, machine_s, across_s }
    }

    /// Simulates an optimizer step of one round. Returns its seconds, and those of products at the device's peak. The time grows by
    /// as much with each layer, so few layers are simulated of many.
    fn simulated(&self, tokens: u64) -> [f64; 2] {
        let layers = self.units.layers.len();
        let [few, more] = SIMULATED;
        if layers <= more {
            return self.simulated_layers(layers, tokens);
        }
        let [one, other] = [few, more].map(|layers| self.simulated_layers(layers, tokens));
        let rest = (layers - few) as f64 / (more - few) as f64;
        [0, 1].map(|at| one[at] + (other[at] - one[at]) * rest)
    }

    /// Simulates an optimizer step of the first layers.
    fn simulated_layers(&self, layers: usize, tokens: u64) -> [f64; 2] {
        let mut units = self.units.clone();
        units.layers.truncate(layers);
        let step = Pass::Training { rounds: 1, tokens: tokens as usize };
        let schedule = Schedule::new(&units, step, self.shard);
        let peak = self.at.device.map_or(f64::INFINITY, |device| device.products);
        let frozen = usize::from(!self.units.tables_trained);
        let links = Links { bandwidth: self.at.bandwidth, latency: LATENCY };
        let found = simulate(
            |_| &schedule,
            &self.machines(),
            (&links, self.weight.bytes as usize),
            |_, work| {
                let products = work.products();
                let products = if products > 1 { products - frozen } else { products };
                2.0 * (products * work.elements) as f64 * tokens as f64 / peak
            },
        );
        found.map_or([f64::NAN; 2], |found| [found.seconds, found.computing])
    }

    /// Returns the numbers of the worker group.
    fn summary(&self) -> ShardedGroup {
        let Self { plan, worker, at, units, weight, .. } = self;
        let parameters = Parameters::of(plan, self.index);
        let micro = plan.micro_batch_tokens(worker) as u64;
        let (tokens, round) = (self.tokens(), plan.config.dist.round as u64);
        let kept_tokens = if round == 0 { tokens } else { tokens.min(round.saturating_mul(micro)) };
        let rounds = tokens.div_ceil(kept_tokens);
        let trains = parameters.trained > 0;
        let step = Pass::Training { rounds: rounds as usize, tokens: kept_tokens as usize };
        let step = self.schedule(step);
        let [simulated_s, products_s] = if trains { self.simulated(kept_tokens) } else { [0.0; 2] };
        let [in_use, summed] = units.in_use().map(|number| number as u64);
        let packed = if at.device.is_some() { 0 } else { worker.packed_bytes };
        let copy_bytes = weight.bytes * units.parameters() as u64 + packed;
        let rollout_shard_bytes = parameters.shard_bytes(at, self.shard, *weight, MOMENTS);
        let kv_bytes = if plan.servers_of(self.index).is_some() {
            0
        } else {
            (plan.config.runtime.kv_mib.get() as u64) << 20
        };
        let kept =
            if at.device.is_some() { worker.token_bytes.on_gpu() } else { worker.token_bytes };
        let mut found = ShardedGroup {
            worker: worker.name.clone(),
            parameters: units.parameters() as u64,
            shard_bytes: parameters.shard_bytes(at, self.shard, *weight, MOMENTS + F32),
            whole_tables: units.whole_tables,
            layer_bytes: weight.bytes * in_use,
            sum_bytes: if trains { F32 * summed } else { 0 },
            kept_bytes: if trains { self.kept_bytes(kept_tokens) } else { 0 },
            tokens,
            kept_tokens,
            pass_bytes: worker.layer_pass_bytes,
            message_bytes: MESSAGES,
            rounds,
            rollout: "copy",
            copy_bytes,
            rollout_shard_bytes,
            kv_bytes,
            kv_tokens: kept.tokens_in(kv_bytes),
            exchanges: if trains { step.exchanges.len() as u64 } else { 0 },
            messages: if trains { step.sent_messages(&self.machines(), 0) as u64 } else { 0 },
            step: if trains { self.sent(&step) } else { SentBytes::default() },
            copy: self.sent(&self.schedule(Pass::Copy)),
            // With whole tables, log-probs are computed with the copy for rollouts.
            log_probs: if units.whole_tables {
                SentBytes::default()
            } else {
                self.sent(&self.schedule(Pass::Forward { tokens: tokens as usize }))
            },
            layers: self.sent(&self.schedule(Pass::Forward { tokens: BEAT })),
            simulated_s,
            products_s,
        };
        found.rollout = self.rollout(&found);
        found
    }

    /// Returns the weights that rollouts read. Without a device nothing is known that a copy would not fit.
    fn rollout(&self, found: &ShardedGroup) -> &'static str {
        if self.plan.servers_of(self.index).is_some() {
            return "servers";
        }
        let memory = self.at.device.map_or(u64::MAX, |device| device.memory);
        match self.plan.config.dist.rollout {
            RolloutWeights::Copy => "copy",
            RolloutWeights::Layers => "layers",
            RolloutWeights::Auto if found.copy_memory() <= memory => "copy",
            RolloutWeights::Auto => "layers",
        }
    }
}

impl SentBytes {
    /// Returns the seconds of all bytes.
    pub fn seconds(&self) -> f64 {
        self.machine_s + self.across_s
    }
}

impl ShardedGroup {
    /// Returns the bytes of a rank in an update.
    pub fn update_bytes(&self) -> u64 {
        let of_layers = self.layer_bytes + self.sum_bytes + self.pass_bytes + self.message_bytes;
        self.shard_bytes.saturating_add(of_layers).saturating_add(self.kept_bytes)
    }

    /// Returns the bytes of a rank in a rollout from a copy.
    pub fn copy_memory(&self) -> u64 {
        self.rollout_shard_bytes.saturating_add(self.copy_bytes).saturating_add(self.kv_bytes)
    }

    /// Returns the bytes of a rank in a rollout.
    pub fn rollout_bytes(&self) -> u64 {
        match self.rollout {
            "copy" => self.copy_memory(),
            "layers" => self.rollout_shard_bytes + self.layer_bytes + self.kv_bytes,
            _ => self.rollout_shard_bytes,
        }
    }
}

impl ShardingSummary {
    /// Computes the numbers of a plan; `None` if its ranks have all weights.
    pub(crate) fn new(plan: &Plan, at: &Placement) -> Option<Self> {
        let shard = plan.config.dist.shard;
        if matches!(shard, Shard::None | Shard::Optimizer) {
            return None;
        }
        let groups = (0..plan.workers.len()).map(|index| Group::new(plan, index, at, shard));
        let groups = groups.map(|group| group.summary()).collect();
        Some(Self { shard: shard.name(), ranks_per_machine: at.local, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::testing::plan;
    use crate::plan::DeviceModel;

    #[test]
    fn the_time_of_many_layers_is_that_of_few_and_as_much_for_each_further_one() {
        let mut plan = plan(&[("t/one", true)]);
        let layers = vec![LayerSize { frozen: 0, trained: 200_000_000 }; 30];
        plan.workers[0].units = UnitSizes {
            vocab: 150_000,
            width: 5120,
            layers,
            tables_trained: true,
            ..UnitSizes::default()
        };
        let at = Placement::new(16, DeviceModel::find("h100-80gb"));
        for tokens in [64, 512, 8192] {
            let group = Group::new(&plan, 0, &at, Shard::Full);
            let (found, whole) = (group.simulated(tokens), group.simulated_layers(30, tokens));
            for (found, whole) in found.into_iter().zip(whole) {
                assert!((found - whole).abs() <= 0.02 * whole, "{found} {whole}");
            }
        }
    }
}
