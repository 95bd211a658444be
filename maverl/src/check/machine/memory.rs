//! Comparison of a plan's memory with that of the machine.
//!
//! The bytes of a worker group are in `plan/summary.rs`, those of activations in `plan/activations.rs`, and the memory
//! of the machine in `available.rs`. Those of a GPU are not estimated but counted (`device.rs`).

use crate::check::purpose::Purpose;
use crate::config::Shard;
use crate::config::source::{Problems, path};
use crate::plan::{DeviceMemory, Plan, TokenBytes, WorkerPlan, WorkerSummary, bytes, weights};
use crate::runtime::{DeviceChoice, RuntimeOptions};

/// Share of the machine's memory above which a plan is reported as near the limit.
pub(super) const NEAR: f64 = 0.8;

/// Memory of all worker groups, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    /// Weights, references, moments and, in an update, gradients and activations; or the packed weights of rollouts, if
    /// those are larger.
    sure: u64,
    /// Part of `sure` that is activations.
    activations: u64,
    /// Maximum size of keys and values, beside `rollout`.
    kv: u64,
    /// Memory of rollouts without keys and values.
    rollout: u64,
    /// Part of `sure` that every rank has whole, also where ranks divide weights: the model as it is loaded, or the copy that
    /// rollouts read, with references and packed weights.
    whole: u64,
}

impl Need {
    fn of(workers: &[WorkerSummary], purpose: Purpose) -> Self {
        let weights = sum_over(workers, |worker| worker.weight_bytes);
        let packed = sum_over(workers, |worker| worker.packed_bytes);
        let kv = sum_over(workers, |worker| worker.kv_bytes);
        if matches!(purpose, Purpose::Eval | Purpose::Replay) {
            let rollout = weights + packed;
            return Self { sure: rollout, activations: 0, kv, rollout, whole: rollout };
        }
        let references = sum_over(workers, |worker| worker.reference_bytes);
        let kept = weights + references + sum_over(workers, |worker| worker.moment_bytes);
        let kept = kept.saturating_add(sum_over(workers, |worker| worker.snapshot_bytes));
        // That of a micro-batch of any number of tokens, up to `u64::MAX`.
        let activations = sum_over(workers, |worker| worker.activation_bytes);
        let gradients = sum_over(workers, |worker| worker.gradient_bytes);
        // Snapshots have keys and values of their own.
        let snapshots: Vec<WorkerSummary> =
            workers.iter().filter(|worker| worker.snapshot_bytes > 0).cloned().collect();
        let kv = kv.saturating_add(sum_over(&snapshots, |worker| worker.kv_bytes));
        let update = kept.saturating_add(gradients).saturating_add(activations);
        let rollout = kept.saturating_add(packed);
        let whole = weights + references + packed;
        Self { sure: update.max(rollout), activations, kv, rollout, whole }
    }

    /// Returns how a plan takes less.
    fn remedy(self) -> &'static str {
        if self.activations > self.sure / 2 {
            "lower `runtime.micro_batch_tokens`, or write `gradient_checkpointing = true` for the model"
        } else {
            "train adapters (`lora`) or a smaller model, or put agents on one worker group"
        }
    }

    /// Returns the peak memory.
    fn peak_memory(self) -> u64 {
        self.sure.max(self.rollout.saturating_add(self.kv))
    }
}

/// Returns the sum of a part of the memory over worker groups, at most `u64::MAX`.
fn sum_over(workers: &[WorkerSummary], part: fn(&WorkerSummary) -> u64) -> u64 {
    workers.iter().map(part).fold(0, u64::saturating_add)
}

/// Returns true for a worker group on a GPU, whose memory is not that of the machine.
pub(super) fn is_on_gpu(worker: &WorkerPlan, plan: &Plan, devices: &[DeviceMemory]) -> bool {
    let of = devices.iter().find(|of| of.worker == worker.name);
    let device = of.map_or(plan.device_of(worker), |of| of.device);
    matches!(device, DeviceChoice::Cuda(_))
}

/// Returns the worker groups whose memory is that of the machine.
fn in_memory(plan: &Plan, devices: &[DeviceMemory]) -> Vec<WorkerSummary> {
    let summaries = plan.workers.iter().zip(plan.summary().workers);
    let here = summaries.filter(|(worker, _)| !is_on_gpu(worker, plan, devices));
    here.map(|(_, summary)| summary).collect()
}

/// Returns the most bytes that a plan may take of the memory of the machine.
pub(super) fn peak_memory((plan, devices): (&Plan, &[DeviceMemory]), purpose: Purpose) -> u64 {
    Need::of(&in_memory(plan, devices), purpose).peak_memory()
}

/// Reports a plan that needs more memory than available. Returns warnings about one near the limit, or beyond it where
/// the run is planned for another machine: one of its models has no weights here.
pub(crate) fn check_memory(
    (plan, devices): (&Plan, &[DeviceMemory]),
    purpose: Purpose,
    machine: Option<u64>,
    problems: &mut Problems<'_>,
) -> Option<String> {
    let machine = machine?;
    let workers = in_memory(plan, devices);
    let need = Need::of(&workers, purpose);
    let absent = plan.workers.iter().any(|worker| weights::absent(&worker.source));
    // The numbers are those of one rank, and several that divide the weights need less each of what is not whole.
    let divided = plan.config.dist.shard == Shard::Full && need.whole <= machine;
    let elsewhere = divided || (purpose.is_elsewhere() && absent);
    let (there, least, most) = (bytes(machine), bytes(need.sure), bytes(need.peak_memory()));
    if need.sure > machine {
        let largest = workers.iter().max_by_key(|worker| worker.bytes())?;
        let message = format!(
            "the plan takes at least {least} of memory, and this machine has {there} to give; {} of it are activations",
            bytes(need.activations)
        );
        if elsewhere {
            return Some(message);
        }
        let help = format!("{}; `maverl check` shows what takes how much", need.remedy());
        problems.key(&path(["models", &largest.model]), message, help);
        return None;
    }
    let groups = workers.len() as u64;
    // Other programs and buffers need memory too.
    let usable = (NEAR * machine as f64) as u64;
    let room = usable.saturating_sub(need.rollout) / groups.max(1);
    let lower = kv_advice(room, Sequences::of(plan, |worker| !is_on_gpu(worker, plan, devices)));
    if need.peak_memory() > machine {
        let message = format!(
            "keys and values may take up to {} (`runtime.kv_mib`, for each of {groups} worker groups), with all else {most}, \
             and this machine has {there}",
            bytes(need.kv)
        );
        if elsewhere {
            return Some(format!("{message}; {lower}"));
        }
        return report_cache(plan, message, lower, problems);
    }
    let near = need.sure as f64 >= NEAR * machine as f64;
    near.then(|| format!("the plan takes at least {least} of the {there} that this machine has"))
}

/// Use of the memory for keys and values by the sequences of worker groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequences {
    /// Bytes of their tokens.
    token: TokenBytes,
    /// Maximum number of tokens of a sequence.
    context: u64,
    /// Maximum number of tokens of a completion.
    completion: u64,
}

impl Sequences {
    /// Returns the largest numbers of some worker groups of a plan.
    pub(super) fn of(plan: &Plan, is_meant: impl Fn(&WorkerPlan) -> bool) -> Self {
        let meant: Vec<bool> = plan.workers.iter().map(is_meant).collect();
        let workers = plan.workers.iter().zip(&meant).filter(|(_, meant)| **meant);
        let workers: Vec<&WorkerPlan> = workers.map(|(worker, _)| worker).collect();
        let seats = plan.seats.iter().filter(|seat| meant[plan.policies[seat.policy].worker]);
        let context = workers.iter().map(|worker| worker.context as u64).max().unwrap_or(0);
        let longest = seats.map(|seat| seat.sampling.max_tokens as u64).max().unwrap_or(0);
        Self {
            token: workers
                .iter()
                .map(|worker| worker.token_bytes)
                .max_by_key(|token| token.each())
                .unwrap_or_default(),
            context,
            completion: longest.min(context),
        }
    }

    /// Returns the numbers on a GPU, which has keys and values of half the size.
    pub(super) fn on_gpu(self) -> Self {
        Self { token: self.token.on_gpu(), ..self }
    }
}

/// Reports a cache of keys and values that may become larger than the memory. One of the default size is seldom filled: then it
/// returns a warning.
pub(super) fn report_cache(
    plan: &Plan,
    message: String,
    advice: String,
    problems: &mut Problems<'_>,
) -> Option<String> {
    if plan.config.runtime.kv_mib == RuntimeOptions::default().kv_mib {
        return Some(format!("{message}; {advice}"));
    }
    problems.value(&path(["runtime", "kv_mib"]), message, advice);
    None
}

/// Returns the advice about the keys and values of a worker group that has so many bytes for them.
pub(super) fn kv_advice(room: u64, sequences: Sequences) -> String {
    let Sequences { token, context, completion } = sequences;
    let fits = room >> 20;
    let tokens = token.tokens_in(fits << 20);
    if fits == 0 {
        return "nothing is left for keys and values: train adapters (`lora`) or a smaller model"
            .to_owned();
    }
    if tokens >= context {
        return format!("`runtime.kv_mib = {fits}` fits");
    }
    if tokens > completion {
        return format!(
            "`runtime.kv_mib = {fits}` fits, and holds sequences of {tokens} tokens; for those of the whole context, \
             {context} tokens, train adapters (`lora`) or a smaller model"
        );
    }
    format!(
        "what is left, {}, holds {tokens} tokens, and a reply may have {completion}: train adapters (`lora`) or a smaller \
         model, or lower `sampling.max_tokens`",
        bytes(room)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(gib: u64) -> WorkerSummary {
        WorkerSummary {
            name: String::new(),
            model: String::new(),
            path: String::new(),
            device: None,
            agents: Vec::new(),
            trained: true,
            parameters: 0,
            trainable_parameters: 0,
            trained_bytes: 0,
            weight_bytes: gib << 30,
            reference_bytes: gib << 30,
            gradient_bytes: gib << 30,
            moment_bytes: (2 * gib) << 30,
            activation_bytes: 3 << 30,
            packed_bytes: gib << 30,
            kv_bytes: 4 << 30,
            snapshot_bytes: 0,
        }
    }

    #[test]
    fn rollouts_and_updates_do_not_need_memory_at_once() {
        let need = Need::of(&[worker(1), worker(2)], Purpose::Train);
        // Weights, references and two moments of each, then gradients and activations.
        assert_eq!(need.sure, (12 + 3 + 6) << 30);
        assert_eq!((need.rollout, need.kv), ((12 + 3) << 30, 8 << 30));
        assert_eq!(need.peak_memory(), 23 << 30);
        let eval = Need::of(&[worker(1)], Purpose::Eval);
        assert_eq!((eval.sure, eval.peak_memory()), (2 << 30, 6 << 30));
    }

    #[test]
    fn advice_about_keys_and_values_leaves_room_for_a_sequence() {
        let sequences = |all, context, completion| {
            let token = TokenBytes { all, ..TokenBytes::default() };
            Sequences { token, context, completion }
        };
        let (small, large) = (sequences(1 << 10, 512, 64), sequences(1 << 18, 4096, 1024));
        let mib = |n: u64| n << 20;
        assert_eq!(kv_advice(mib(5), small), "`runtime.kv_mib = 5` fits");
        assert_eq!(kv_advice(mib(1), small), "`runtime.kv_mib = 1` fits");
        assert_eq!(kv_advice(mib(1024), large), "`runtime.kv_mib = 1024` fits");
        for room in [0, 1, mib(1) - 1] {
            let advice = kv_advice(room, small);
            assert!(advice.starts_with("nothing is left for keys and values"), "{advice}");
        }
        // Room for replies, and not for the whole context.
        for (room, tokens) in [(mib(1024) - 1, 4092), (mib(512), 2048), (mib(257), 1028)] {
            let advice = kv_advice(room, large);
            let part = format!("fits, and holds sequences of {tokens} tokens");
            assert!(advice.contains(&part) && advice.contains("(`lora`)"), "{room}: {advice}");
        }
        // Layers with a window keep their last tokens alone.
        let token = TokenBytes { all: 1 << 10, windowed: 7 << 10, window: 1024 };
        let windowed = Sequences { token, context: 65_536, completion: 1024 };
        for (room, tokens) in [(mib(16), 9216), (mib(32), 25_600)] {
            let advice = kv_advice(room, windowed);
            assert!(advice.contains(&format!("holds sequences of {tokens} tokens")), "{advice}");
        }
        // No room for the longest reply: no number of MiB helps.
        for (room, tokens) in [(mib(256), 1024), (mib(1), 4), (mib(37), 148)] {
            let advice = kv_advice(room, large);
            assert!(!advice.contains("kv_mib"), "{room}: {advice}");
            let part = format!("holds {tokens} tokens, and a reply may have 1024");
            assert!(advice.contains(&part) && advice.contains("max_tokens"), "{room}: {advice}");
        }
    }
}
