//! The policies of a run as served models.

use std::path::Path;

use super::engine::{RequestArgs, start};
use crate::{Failure, of_run, paths, plan_with_warnings};
use maverl::check::Purpose;
use maverl::checkpoint::{Checkpoint, Checkpoints, Which};
use maverl::config::RuntimeOptions;
use maverl::files::{ModelFiles, ModelSource};
use maverl::plan::{Plan, PolicyPlan};
use maverl::registry::Registry;
use maverl::runtime::{DeviceChoice, Host};
use maverl_serve::model::Entry;

/// Policies of a run at some of its checkpoints.
pub(super) struct Policies<'a> {
    plan: Plan,
    checkpoints: Vec<Checkpoint>,
    /// Names of the policies; empty for all.
    only: &'a [String],
}

impl<'a> Policies<'a> {
    /// Reads the configuration of a run, and opens the checkpoints. No weights are loaded.
    pub(super) fn open(
        run: &Path,
        checkpoints: &[Which],
        only: &'a [String],
    ) -> Result<Self, Failure> {
        let plan = plan_with_warnings(&of_run(run)?.0, &Registry::collect()?, Purpose::Eval)?;
        let unknown =
            only.iter().find(|name| plan.policies.iter().all(|other| other.name != **name));
        if let Some(other) = unknown {
            let known = plan.policies.iter().map(|policy| format!("`{}`", policy.name));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(Failure(format!("the run has no policy `{other}`; it has {known}")));
        }
        let run = paths::run(run)?;
        let mut opened: Vec<Checkpoint> = Vec::new();
        for which in checkpoints {
            let checkpoint = Checkpoints::of(run.path()).open(*which)?;
            if opened.iter().all(|other| other.state.step != checkpoint.state.step) {
                opened.push(checkpoint);
            }
        }
        Ok(Self { plan, checkpoints: opened, only })
    }

    /// Loads the policies. The first checkpoint has the plain names, and each has the names `POLICY@STEP`.
    pub(super) async fn load(&self, requests: &RequestArgs) -> Result<Vec<Entry>, Failure> {
        let Self { plan, checkpoints, only } = self;
        let mut entries = Vec::new();
        for index in 0..plan.workers.len() {
            let its = plan.policies.iter().filter(|policy| policy.worker == index);
            let policies: Vec<&PolicyPlan> =
                its.filter(|policy| only.is_empty() || only.contains(&policy.name)).collect();
            entries.extend(adapters(plan, index, &policies, checkpoints, requests).await?);
            entries.extend(own_weights(plan, index, &policies, checkpoints, requests).await?);
        }
        let first = checkpoints.first().map_or(0, |checkpoint| checkpoint.state.step);
        // Plain names come first, in the order of the plan.
        let mut plain: Vec<Entry> =
            entries.iter().filter(|entry| entry.version == first).cloned().collect();
        for entry in &mut entries {
            entry.name = format!("{}@{}", entry.name, entry.version);
        }
        plain.append(&mut entries);
        Ok(plain)
    }
}

/// Loads the policies of a worker group that are adapters, all on one base.
async fn adapters(
    plan: &Plan,
    worker: usize,
    policies: &[&PolicyPlan],
    checkpoints: &[Checkpoint],
    requests: &RequestArgs,
) -> Result<Vec<Entry>, Failure> {
    let adapters: Vec<&&PolicyPlan> = policies.iter().filter(|p| p.adapter.is_some()).collect();
    if adapters.is_empty() {
        return Ok(Vec::new());
    }
    let places = adapters.len() * checkpoints.len();
    let source = plan.workers[worker].source.clone();
    let host = host(plan, worker, source, requests, places).await?.0;
    let (calls, thoughts) = plan.reply_format(worker);
    let (mut entries, mut place) = (Vec::new(), 0);
    for checkpoint in checkpoints {
        for policy in &adapters {
            let (dir, step) = (checkpoint.policy(&policy.name)?, checkpoint.state.step);
            let fingerprint = host.load_adapter(place, &dir, step).await?;
            let entry = Entry::new(policy.name.clone(), &host, place, dir.display().to_string())
                .with_reply_format(calls, &thoughts);
            let parent = Some(plan.workers[worker].name.clone());
            entries.push(Entry { version: step, parent, fingerprint, ..entry });
            place += 1;
        }
    }
    Ok(entries)
}

/// Loads the policies of a worker group that have weights of their own: a base for each checkpoint.
async fn own_weights(
    plan: &Plan,
    worker: usize,
    policies: &[&PolicyPlan],
    checkpoints: &[Checkpoint],
    requests: &RequestArgs,
) -> Result<Vec<Entry>, Failure> {
    let (calls, thoughts) = plan.reply_format(worker);
    let mut entries = Vec::new();
    for policy in policies.iter().filter(|policy| policy.adapter.is_none()) {
        for checkpoint in checkpoints {
            let (dir, step) = (checkpoint.policy(&policy.name)?, checkpoint.state.step);
            let source = ModelSource::Directory(dir.clone());
            let (host, fingerprint) = host(plan, worker, source, requests, 1).await?;
            let entry = Entry::new(policy.name.clone(), &host, 0, dir.display().to_string())
                .with_reply_format(calls, &thoughts);
            entries.push(Entry { version: step, fingerprint, ..entry });
        }
    }
    Ok(entries)
}

/// Starts the thread of a base with the settings of a worker group.
async fn host(
    plan: &Plan,
    worker: usize,
    source: ModelSource,
    requests: &RequestArgs,
    places: usize,
) -> Result<(Host, String), Failure> {
    let worker = plan.workers[worker].clone();
    let device = plan.device_of(&worker);
    if !matches!(device, DeviceChoice::Cpu | DeviceChoice::Auto) {
        let key = match worker.device {
            Some(_) => format!("worker_groups.{}.device", worker.name),
            None => "runtime.device".to_owned(),
        };
        return Err(Failure(format!(
            "`{key}` of the run is \"{}\", and its policies are served on the CPU alone: write them with `maverl export --run \
             RUN --out DIR`, and serve them with `--model DIR`",
            device
        )));
    }
    let runtime = RuntimeOptions { device, ..requests.runtime(&plan.config.runtime) };
    let loaded = tokio::task::spawn_blocking(move || {
        source.fetch()?;
        let files = ModelFiles::new(&source);
        start(&files, worker.dtype, &worker.chat_template_kwargs, &runtime, places)
    });
    loaded.await?
}
