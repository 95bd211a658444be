//! Assignment of policies to seats and of worker groups to policies, and the optimizer of each policy.

use std::collections::BTreeMap;

use serde_json::json;

use super::adapter::{check_bases, plan_adapter};
use super::agreement::{agree, disagreement, values};
use super::groups::{PolicySeats, policy_groups};
use super::sampling::check_replies;
use super::teachers::UsedTeachers;
use super::worker::{own_micro_batch, plan_workers};
use crate::check::choice::ConfiguredSeat;
use crate::check::files::Models;
use crate::check::purpose::{Purpose, samples_replies};
use crate::config::source::Problems;
use crate::config::{
    Config, Dtype, KlIn, OptimConfig, OptimizerKind, PairLoss, Preset, SurrogatePlan,
};
use crate::files::HfConfig;
use crate::plan::{
    AlgorithmPlan, LossPlan, OptimOptions, PolicyPlan, Sampling, SeatPlan, TeacherPlan, WorkerPlan,
};
use crate::plan::{activation_bytes, muon_bytes};

/// Seats, policies, worker groups and teachers, each sorted.
pub(crate) struct Assignment {
    pub(crate) seats: Vec<SeatPlan>,
    pub(crate) policies: Vec<PolicyPlan>,
    pub(crate) workers: Vec<WorkerPlan>,
    pub(crate) teachers: Vec<TeacherPlan>,
}

/// Assigns policies to seats and worker groups to policies; `None` if a model is missing. Models have these precisions.
pub(crate) fn assign_policies(
    (config, algorithm): (&Config, &AlgorithmPlan),
    members: &[ConfiguredSeat],
    (models, precisions): (&Models, &BTreeMap<String, Dtype>),
    purpose: Purpose,
    problems: &mut Problems<'_>,
) -> Option<Assignment> {
    let mut groups = policy_groups(config, members, problems)?;
    let used = match purpose {
        Purpose::Eval => UsedTeachers::default(),
        _ => UsedTeachers::new(config, members, &mut groups, problems),
    };
    check_bases(config, &groups, problems);
    let workers = plan_workers(config, &groups, (models, precisions), problems)?;
    let (mut policies, mut seats) = (Vec::new(), Vec::new());
    for (name, group) in &groups {
        let optim = optim(config, name, group, problems);
        let opened = models.get(&group.model)?;
        let adapter = plan_adapter(config, name, group, opened, problems);
        let group_seats: Vec<SeatPlan> = group
            .members
            .iter()
            .map(|member| seat((config, algorithm), member, (group, policies.len()), &used))
            .collect();
        let gradient_checkpointing = config.models[&group.model].gradient_checkpointing;
        let trained = group_seats.iter().any(|seat| seat.trained);
        let update = (&opened.shape, precisions[&group.model], optim.kind);
        let activation_bytes = trained.then(|| update_bytes(config, group, update));
        if samples_replies(config, purpose) {
            check_replies(&group_seats, &group.model, &opened.shape, problems);
        }
        policies.push(PolicyPlan {
            name: name.clone(),
            worker: workers.iter().position(|worker| worker.name == group.worker)?,
            trained,
            gradient_checkpointing,
            activation_bytes,
            critic_parameters: 0,
            critic: critic(config, name, group, problems),
            reference: group_seats.iter().any(|seat| needs_reference(config, &used, seat)),
            adapter,
            optim,
        });
        seats.extend(group_seats);
    }
    seats.sort_by(|a, b| a.seat.cmp(&b.seat));
    // Policies that are exchanged speak for the seats of each other.
    if algorithm.swap_every > 0 && policies.iter().any(|p| p.reference) {
        policies.iter_mut().filter(|p| p.trained).for_each(|p| p.reference = true);
    }
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    let teachers = used.plans(config, &names);
    Some(Assignment { seats, policies, workers, teachers })
}

/// Returns the bytes of the activations of an update, or of what its optimizer needs, if that is more: activations are gone then.
fn update_bytes(
    config: &Config,
    group: &PolicySeats<'_>,
    (shape, dtype, optimizer): (&HfConfig, Dtype, OptimizerKind),
) -> u64 {
    let own = own_micro_batch(config, &group.worker);
    let tokens = own.unwrap_or(config.runtime.micro_batch_tokens).get();
    let checkpointing = config.models[&group.model].gradient_checkpointing;
    let bytes = activation_bytes(shape, tokens, tokens, checkpointing, dtype.into());
    match optimizer {
        OptimizerKind::Muon => bytes.max(muon_bytes(shape)),
        OptimizerKind::Adamw | OptimizerKind::Adamw8bit => bytes,
    }
}

/// Returns true if the loss of a seat has a reference, its reward has the KL to one, or one teaches it.
fn needs_reference(config: &Config, used: &UsedTeachers, seat: &SeatPlan) -> bool {
    let (preset, kl) = (config.algorithm.name, seat.loss.kl_coef > 0.0);
    let pair = &config.algorithm.preference;
    let free =
        pair.reference_free == Some(true) || pair.loss.is_some_and(PairLoss::is_reference_free);
    let needed = match preset {
        Preset::Sft | Preset::Verifier => false,
        Preset::OnlineDpo => !free || (kl && seat.loss.kl_in == KlIn::Reward),
        _ if preset.compares_pairs() => !free,
        _ => kl,
    };
    let taught = seat.teachers.as_ref().is_some_and(|its| used.needs_reference(config, its));
    seat.trained && (needed || taught)
}

/// Returns the plan of a seat. A declared surrogate holds for all seats.
fn seat(
    (config, algorithm): (&Config, &AlgorithmPlan),
    member: &ConfiguredSeat,
    (group, policy): (&PolicySeats<'_>, usize),
    used: &UsedTeachers,
) -> SeatPlan {
    let sampling = member.config.sampling.clone().unwrap_or_default().over(&config.sampling);
    let loss = member.config.loss.clone().unwrap_or_default().over(&config.algorithm.loss);
    let loss = LossPlan::from(&loss);
    let teachers = used.of_seat(member, loss.distill_coef, algorithm);
    let surrogate = match &algorithm.loss.surrogate {
        declared @ SurrogatePlan::Declared(_) => declared.clone(),
        _ => loss.surrogate,
    };
    SeatPlan {
        seat: member.seat.clone(),
        policy,
        trained: member.is_trained(config, &group.model),
        sampling: Sampling::from(&sampling),
        loss: LossPlan { surrogate, ..loss },
        teachers,
        options: member.options.clone(),
    }
}

/// Returns the optimizer of a policy. Reports a key on which its trained members disagree.
fn optim(
    config: &Config,
    policy: &str,
    group: &PolicySeats<'_>,
    problems: &mut Problems<'_>,
) -> OptimOptions {
    let base = &config.models[&group.model].optim;
    let settled: Vec<(&ConfiguredSeat, OptimOptions)> = group
        .members
        .iter()
        .filter(|member| member.is_trained(config, &group.model))
        .map(|member| {
            let own = member.config.optim.clone().unwrap_or_default();
            (*member, OptimOptions::from(&own.over(base)))
        })
        .collect();
    let Some((first, rest)) = settled.split_first() else { return OptimOptions::from(base) };
    for (member, optim) in rest {
        let [ours, theirs] = [&first.1, optim].map(|optim| values(&OptimConfig::from(optim)));
        agree(config, policy, group, "optim", &[(first.0, ours), (*member, theirs)], problems);
    }
    first.1
}

/// Returns the name of a policy's critic. Reports trained members that disagree.
fn critic(
    config: &Config,
    policy: &str,
    group: &PolicySeats<'_>,
    problems: &mut Problems<'_>,
) -> Option<String> {
    let mut trained = group.members.iter().filter(|m| m.is_trained(config, &group.model));
    let first = trained.next()?;
    let name = &first.config.critic;
    if let Some(other) = trained.find(|member| member.config.critic != *name) {
        let [ours, theirs] = [name, &other.config.critic].map(|name| json!(name));
        let found = [(*first, &ours), (*other, &theirs)];
        disagreement(config, (policy, &group.model), "critic", found, problems);
    }
    name.clone()
}
