//! Numbers of a plan: seats and policies, episodes of a step, memory.

use serde::Serialize;

use super::numbers::{NUMBER, at_most, bytes, count};
use super::step::StepSummary;
use super::{DeviceMemory, EndpointPlan, LoraConfig, Plan, PolicyPlan, memory};
use crate::config::ServerKind;
use crate::table::{Table, paragraphs};
use crate::trajectory::Seat;

/// A plan in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Size of a step.
    pub step: StepSummary,
    /// Every worker group, in the plan's order.
    pub workers: Vec<WorkerSummary>,
    /// Every policy, in the plan's order.
    pub policies: Vec<PolicySummary>,
    /// Every seat, in the plan's order.
    pub seats: Vec<PlannedSeat>,
    /// Memory that each worker group takes of its device; those on the CPU are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_memory: Vec<DeviceMemory>,
}

/// A worker group in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerSummary {
    /// Its name.
    pub name: String,
    /// The name in `[models]`.
    pub model: String,
    /// Where the weights come from, as a user writes it.
    pub path: String,
    /// Its device, if that is not `runtime.device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The agents it speaks for.
    pub agents: Vec<String>,
    /// True if its weights change.
    pub trained: bool,
    /// Number of parameters of the base.
    pub parameters: u64,
    /// Number of trained parameters: those of adapters, or of the base.
    pub trainable_parameters: u64,
    /// Bytes of the weights, adapters and critics included.
    pub weight_bytes: u64,
    /// Bytes of the frozen copies that the KL refers to.
    pub reference_bytes: u64,
    /// Bytes of the gradients; policies of one worker are updated one after the other.
    pub gradient_bytes: u64,
    /// Bytes of the optimizers' two moments.
    pub moment_bytes: u64,
    /// Bytes of the weights that are trained, critics included.
    #[serde(skip)]
    pub trained_bytes: u64,
    /// Bytes of activations in an update, at most, where no row is longer than a micro-batch.
    pub activation_bytes: u64,
    /// Bytes of the weights as products of few rows read them, kept while agents speak.
    pub packed_bytes: u64,
    /// Bytes of keys and values during rollout, at most (`runtime.kv_mib`); snapshots have as much again.
    pub kv_bytes: u64,
    /// Bytes of snapshots, which play episodes while policies are updated (`rollout.staleness`).
    #[serde(skip_serializing_if = "is_zero")]
    pub snapshot_bytes: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// A policy in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicySummary {
    /// Its name.
    pub name: String,
    /// The worker group that holds it.
    pub worker: String,
    /// Its rank, scale and targets, if it is an adapter.
    pub adapter: Option<LoraConfig>,
    /// The agents it speaks for.
    pub agents: Vec<String>,
    /// True if it is updated.
    pub trained: bool,
    /// Number of parameters: the adapter's, or the base's.
    pub parameters: u64,
    /// Bytes that it adds to its worker's base: weights, reference and moments, the critic's too. The base's own weights add
    /// none.
    pub bytes: u64,
}

impl WorkerSummary {
    /// All of its bytes that are there in updates and rollouts.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.reference_bytes + self.gradient_bytes + self.moment_bytes
    }
}

/// A seat in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedSeat {
    /// Who.
    pub seat: Seat,
    /// The policy that speaks for it.
    pub policy: String,
    /// Its turns are trained on.
    pub trained: bool,
    /// Sampling settings.
    pub temperature: f32,
    /// Longest reply in tokens.
    pub max_tokens: u64,
    /// Samples of a step, where it speaks once an episode.
    pub samples_per_call: u64,
}

impl Plan {
    /// The plan in numbers.
    pub fn summary(&self) -> PlanSummary {
        let step = StepSummary::of(self);
        let episodes = step.episodes;
        PlanSummary {
            step,
            device_memory: self.device_memory.clone(),
            workers: (0..self.workers.len()).map(|worker| self.worker_summary(worker)).collect(),
            policies: (0..self.policies.len()).map(|policy| self.policy_summary(policy)).collect(),
            seats: self
                .seats
                .iter()
                .map(|seat| PlannedSeat {
                    seat: seat.seat.clone(),
                    policy: self.policies[seat.policy].name.clone(),
                    trained: seat.trained,
                    temperature: seat.sampling.temperature,
                    max_tokens: seat.sampling.max_tokens as u64,
                    samples_per_call: episodes,
                })
                .collect(),
        }
    }

    /// Number of parameters of a policy.
    pub(super) fn parameters(&self, policy: &PolicyPlan) -> u64 {
        let base = self.workers[policy.worker].parameters;
        policy.adapter.as_ref().map_or(base, |adapter| adapter.parameters)
    }

    /// The seats that are spoken for by policies that fit, as text.
    fn agents(&self, fits: impl Fn(usize) -> bool) -> Vec<String> {
        let seats = self.seats.iter().filter(|seat| fits(seat.policy));
        let mut agents: Vec<String> = seats.map(|seat| seat.seat.to_string()).collect();
        agents.sort();
        agents
    }

    fn worker_summary(&self, index: usize) -> WorkerSummary {
        let worker = &self.workers[index];
        let policies = self.policies.iter().filter(|policy| policy.worker == index);
        let trained = policies.clone().filter(|policy| policy.trained);
        let moments = trained.clone();
        let moments = moments.map(|policy| policy.optim.kind.moment_bytes(self.parameters(policy)));
        let moments: u64 = moments.sum();
        let trained = trained.map(|policy| self.parameters(policy));
        let adapters = policies.clone().filter(|policy| policy.adapter.is_some());
        let adapters: u64 = adapters.map(|policy| self.parameters(policy)).sum();
        let references = policies.clone().filter(|policy| policy.reference);
        let references: u64 = references.map(|policy| self.parameters(policy)).sum();
        let critics = policies.clone().map(|policy| policy.critic_parameters);
        let base = worker.block_bytes.unwrap_or(worker.parameters * NUMBER);
        let activations = policies.filter_map(|policy| policy.activation_bytes);
        // Servers hold the keys and values of what they sample, and a teacher alone samples nothing.
        let mut seats = self.seats.iter();
        let samples = self.servers_of(index).is_none()
            && seats.any(|seat| self.policies[seat.policy].worker == index);
        WorkerSummary {
            name: worker.name.clone(),
            model: worker.model.clone(),
            path: worker.source.to_string(),
            device: worker
                .device
                .filter(|device| *device != self.config.runtime.device)
                .map(|device| device.to_string()),
            agents: self.agents(|policy| self.policies[policy].worker == index),
            trained: trained.clone().count() > 0,
            parameters: worker.parameters,
            trainable_parameters: trained.clone().sum(),
            weight_bytes: base + (adapters + critics.clone().sum::<u64>()) * NUMBER,
            reference_bytes: references * NUMBER,
            gradient_bytes: trained.clone().chain(critics.clone()).max().unwrap_or(0) * NUMBER,
            moment_bytes: moments + critics.clone().sum::<u64>() * 2 * NUMBER,
            trained_bytes: trained.chain(critics).sum::<u64>() * NUMBER,
            activation_bytes: activations.max().unwrap_or(0),
            packed_bytes: if samples { worker.packed_bytes } else { 0 },
            kv_bytes: if samples { (self.config.runtime.kv_mib.get() as u64) << 20 } else { 0 },
            snapshot_bytes: self.snapshot_bytes(index),
        }
    }

    /// Bytes of the snapshots of a worker group: the weights of each policy, and a base of their own under adapters.
    fn snapshot_bytes(&self, index: usize) -> u64 {
        let (worker, snapshots) = (&self.workers[index], self.snapshots(index) as u64);
        if snapshots == 0 {
            return 0;
        }
        let policies =
            self.policies.iter().filter(|policy| policy.worker == index && policy.trained);
        let under = policies.clone().any(|policy| policy.adapter.is_some());
        let copies: u64 = policies.map(|policy| self.parameters(policy)).sum();
        let base = if under { worker.packed_bytes } else { 0 };
        snapshots.saturating_mul(copies).saturating_mul(NUMBER).saturating_add(base)
    }

    fn policy_summary(&self, index: usize) -> PolicySummary {
        let policy = &self.policies[index];
        let parameters = self.parameters(policy);
        let copies = [(policy.adapter.is_some(), 1), (policy.reference, 1), (policy.trained, 2)];
        let copies: u64 = copies.iter().filter(|(there, _)| *there).map(|(_, n)| n).sum();
        PolicySummary {
            name: policy.name.clone(),
            worker: self.workers[policy.worker].name.clone(),
            adapter: policy.adapter.as_ref().map(|adapter| adapter.lora.clone()),
            agents: self.agents(|policy| policy == index),
            trained: policy.trained,
            parameters,
            bytes: (copies * parameters + 3 * policy.critic_parameters) * NUMBER,
        }
    }
}

/// The plan for readers, in lines of at most so many columns: worker groups, seats, and what a step is.
pub fn table(plan: &Plan, width: usize) -> String {
    let summary = plan.summary();
    let title = format!(
        "{} on {}, {} {} of {}\n\n",
        plan.orchestra.name,
        plan.environment.name,
        plan.config.steps,
        if plan.config.steps == 1 { "step" } else { "steps" },
        plan.algorithm.preset.name()
    )
    .to_lowercase();
    let mut text = paragraphs(&title, width);
    text += &workers(&summary).draw(width);
    text += "\n\n";
    if !summary.device_memory.is_empty() {
        text += &memory::table(&summary.device_memory).draw(width);
        text += "\n\n";
    }
    if summary.policies.iter().any(|policy| policy.adapter.is_some()) {
        text += &policies(&summary).draw(width);
        text += "\n\n";
    }
    text += &seats(&summary, &plan.endpoints).draw(width);
    text += "\n\n";
    text += &paragraphs(&summary.step.text(plan), width);
    text += &memory::devices(plan).map_or_else(String::new, |line| paragraphs(&line, width));
    if let Some(line) = plan.checkpoint_line() {
        text += &paragraphs(&format!("{line}\n"), width);
    }
    for (index, worker) in plan.workers.iter().enumerate() {
        if let Some((name, servers)) = plan.servers_of(index) {
            let kind = servers.kind.map_or("", ServerKind::name);
            let line = format!(
                "worker `{}` samples on the rollout servers `{name}`: {kind} at {}\n",
                worker.name,
                servers.urls.join(", ")
            );
            text += &paragraphs(&line, width);
        }
    }
    for warning in &plan.warnings {
        text += &paragraphs(&format!("warning: {warning}\n"), width);
    }
    text
}

fn workers(summary: &PlanSummary) -> Table {
    let mut table = Table::with_frame([
        "worker",
        "model",
        "agents",
        "parameters",
        "weights",
        "reference",
        "gradients",
        "moments",
        "together",
        "activations",
        "packed",
        "keys, values",
    ]);
    for worker in &summary.workers {
        table.row([
            worker.name.clone(),
            worker.path.clone(),
            worker.agents.join("\n"),
            count(worker.parameters),
            bytes(worker.weight_bytes),
            bytes(worker.reference_bytes),
            bytes(worker.gradient_bytes),
            bytes(worker.moment_bytes),
            bytes(worker.bytes()),
            at_most(worker.activation_bytes),
            bytes(worker.packed_bytes),
            at_most(worker.kv_bytes),
        ]);
    }
    table
}

fn policies(summary: &PlanSummary) -> Table {
    let mut table = Table::with_frame([
        "policy",
        "worker",
        "weights",
        "agents",
        "trained",
        "parameters",
        "added",
    ]);
    for policy in &summary.policies {
        table.row([
            policy.name.clone(),
            policy.worker.clone(),
            policy.adapter.as_ref().map_or("the base's own".to_owned(), |lora| {
                format!("adapter of rank {}", lora.rank)
            }),
            policy.agents.join("\n"),
            if policy.trained { "yes" } else { "no" }.to_owned(),
            count(policy.parameters),
            bytes(policy.bytes),
        ]);
    }
    table
}

fn seats(summary: &PlanSummary, endpoints: &[EndpointPlan]) -> Table {
    let mut table = Table::with_frame(["seat", "policy", "trained", "temperature", "max tokens"]);
    for seat in &summary.seats {
        table.row([
            seat.seat.to_string(),
            seat.policy.clone(),
            if seat.trained { "yes" } else { "no" }.to_owned(),
            seat.temperature.to_string(),
            seat.max_tokens.to_string(),
        ]);
    }
    for EndpointPlan { seat, name, sampling, .. } in endpoints {
        table.row([
            seat.to_string(),
            format!("endpoint {name}"),
            "no".to_owned(),
            sampling.temperature.to_string(),
            sampling.max_tokens.to_string(),
        ]);
    }
    table
}

/// The plan for machines: `{"summary": .., "plan": ..}`.
pub fn json(plan: &Plan) -> String {
    #[derive(Serialize)]
    struct SummaryJson<'a> {
        summary: PlanSummary,
        plan: &'a Plan,
    }
    serde_json::to_string_pretty(&SummaryJson { summary: plan.summary(), plan })
        .expect("a plan has text keys and finite numbers, so it is JSON")
}
