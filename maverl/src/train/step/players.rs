//! The players of a team: they run the episodes of training and of evaluations, and know no advantages.
//!
//! With several ranks, tasks are assigned to ranks in rotation, and all episodes of a task run on one rank. All ranks
//! then receive all episodes.

mod branches;
pub(crate) mod collect;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::data::Sampler;
use crate::eval::EvalSpec;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::rollout::{
    BegunRequest, EndpointTeachers, EndpointUsage, EpisodeRequest, RequestTimes, Rollout,
    RolloutError, TurnVersions, episode_seed,
};
use crate::run_dir::{TurnTime, WorkerSample};
use crate::runtime::{Policy, RuntimeError};
use crate::task::Task;
use crate::train::error::TrainError;
use crate::train::progress::Progress;
use crate::train::ranks::RankPeers;
use crate::train::record::spans::{self, Span};
use crate::train::record::worker_loads::WorkerLoads;
use crate::train::step::sink::{EndedEpisode, HeldOutSink, Observers};
use crate::train::step::unscored;
use crate::trajectory::Episode;

/// Interval at which the number of sampled tokens is reported.
const TICK: Duration = Duration::from_millis(500);

/// A team that plays: its rollout, the order of its tasks, and the held-out tasks.
pub(crate) struct Players {
    rollout: Rollout,
    /// Times of the requests of training episodes.
    times: Arc<RequestTimes>,
    /// Teachers behind endpoints, which score training episodes.
    teachers: Option<Arc<EndpointTeachers>>,
    /// Samples of the worker groups during the last episodes.
    samples: Mutex<WorkerLoads>,
    /// Policies in the plan's order, for rollouts with other seats or at another temperature.
    policies: Vec<Policy>,
    /// Order of the training data.
    pub(crate) sampler: Arc<Sampler>,
    /// Held-out tasks by split.
    held_out: BTreeMap<String, Vec<Task>>,
    seed: u64,
    max_unscored: f64,
    observers: Observers,
    /// Ranks to which episodes are dealt.
    peers: RankPeers,
}

/// Purpose of episodes: `train` or `eval/SPLIT`, and the step, from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage<'s> {
    pub(crate) name: &'s str,
    pub(crate) step: u64,
}

impl Players {
    /// Starts the environment and builds the team.
    pub(crate) fn start(
        plan: &Plan,
        registry: &Registry,
        policies: &[Policy],
        sampler: Sampler,
        held_out: BTreeMap<String, Vec<Task>>,
        (observers, peers): (Observers, RankPeers),
    ) -> Result<Self, RolloutError> {
        let began = Instant::now();
        let rollout = Rollout::start(plan, registry, policies)?;
        if let Some(name) =
            rollout.runner().rewards.takes_one_process().filter(|_| peers.size() > 1)
        {
            let problem =
                "verdicts of a judge are recorded by one process, and this run has several ranks";
            let (name, problem) = (name.to_owned(), problem.to_owned());
            return Err(RolloutError::Reward { name, problem });
        }
        let rollout = match plan.config.rollout.staleness {
            0 => rollout,
            _ => rollout.with_admission(plan.config.rollout.max_episodes),
        };
        Ok(Self {
            teachers: None,
            rollout,
            times: Arc::new(RequestTimes::new(move || began.elapsed().as_secs_f64())),
            samples: Mutex::new(WorkerLoads::begin(policies)),
            policies: policies.to_vec(),
            sampler: Arc::new(sampler),
            held_out,
            seed: plan.config.seed,
            max_unscored: plan.config.rollout.max_unscored,
            observers,
            peers,
        })
    }

    /// Connects the teachers of a plan that are behind endpoints.
    pub(crate) fn with_teachers(mut self, plan: &Plan) -> Result<Self, RolloutError> {
        if let Some(policy) = self.policies.first() {
            self.teachers = EndpointTeachers::start(plan, policy.tokenizer())?.map(Arc::new);
        }
        Ok(self)
    }

    /// Returns players of the batch of a step that is played ahead, with these policies, in a place of its own among those that
    /// are played at once. Episodes of earlier steps begin before its own, and it shows no progress. With `versions`, an episode
    /// goes on with newer policies.
    pub(crate) fn for_batch(
        &self,
        (step, place): (u64, usize),
        policies: &[Policy],
        versions: Option<TurnVersions>,
    ) -> Self {
        let began = Instant::now();
        Self {
            rollout: self.rollout.with_rank(step).with_versions(versions),
            times: Arc::new(RequestTimes::new(move || began.elapsed().as_secs_f64())),
            teachers: self.teachers.clone(),
            samples: Mutex::new(WorkerLoads::begin(policies)),
            policies: policies.to_vec(),
            sampler: Arc::clone(&self.sampler),
            held_out: BTreeMap::new(),
            observers: self.observers.without_display(),
            peers: self.peers.of_batch(place),
            ..*self
        }
    }

    /// Returns the team with the policies that a plan assigns to its seats. Its requests are timed, and teachers score its episodes.
    pub(crate) fn rollout(&self, plan: &Plan) -> Rollout {
        let rollout = self.rollout.with_plan(plan, &self.policies).with_times(&self.times);
        rollout.with_teachers(self.teachers.as_ref())
    }

    /// Returns the team of a plan at another temperature.
    pub(crate) fn at_temperature(&self, plan: &Plan, temperature: f32) -> Rollout {
        self.rollout.at_temperature(plan, &self.policies, temperature)
    }

    /// Takes the times of the turns of a rollout that has just ended.
    fn turn_times(&self, episodes: &[Episode], rollout: &Span) -> Vec<TurnTime> {
        let start = self.times.now() - rollout.seconds();
        spans::turns(episodes, &self.times.take(), start)
    }

    /// Takes the samples of the worker groups during a rollout that has just ended.
    fn worker_samples(&self) -> BTreeMap<String, Vec<WorkerSample>> {
        self.loads().take()
    }

    fn loads(&self) -> MutexGuard<'_, WorkerLoads> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tokens that the policies have sampled.
    fn sampled(&self) -> u64 {
        self.policies.iter().map(Policy::sampled).sum()
    }

    /// Returns the requests to each endpoint so far, and their cost.
    pub(crate) fn usage(&self) -> BTreeMap<String, EndpointUsage> {
        self.rollout.usage()
    }

    /// Returns the policies in the plan's order.
    pub(crate) fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns snapshots of the policies in a place of those that are kept at once.
    pub(crate) async fn snapshots(&self, place: usize) -> Result<Vec<Policy>, RuntimeError> {
        let mut snapshots = Vec::new();
        for policy in &self.policies {
            snapshots.push(policy.snapshot(place).await?);
        }
        Ok(snapshots)
    }

    /// Returns the held-out tasks by split.
    pub(crate) fn held_out(&self) -> &BTreeMap<String, Vec<Task>> {
        &self.held_out
    }

    /// Returns the receiver of progress.
    pub(crate) fn progress(&self) -> &dyn Progress {
        &*self.observers.progress
    }

    /// Returns the message of a plan's environment about tasks.
    pub(crate) fn report(
        &self,
        plan: &Plan,
        tasks: &[Task],
    ) -> Result<Option<String>, RolloutError> {
        let report = self.rollout.runner().environment.report(tasks);
        report.map_err(|error| RolloutError::Environment {
            name: plan.environment.name.clone(),
            error,
        })
    }

    /// Returns the files that the orchestra, the environments and the parts of the reward depend on, sorted.
    pub(crate) fn sources(&self) -> Vec<String> {
        let runner = self.rollout.runner();
        let mut sources = runner.orchestra.sources();
        sources.extend(runner.rewards.sources());
        sources.extend(runner.environment.sources());
        sources.extend(runner.environments.values().flat_map(|other| other.sources()));
        sources.sort();
        sources.dedup();
        sources
    }

    /// Writes what belongs to a run into its directory from now on.
    pub(crate) fn open_in(&self, dir: &Path) -> Result<(), RolloutError> {
        self.rollout.runner().rewards.open_in(dir)
    }

    /// Takes the counts and times of the parts of the reward since the last call.
    pub(crate) fn take_reward_usage(&self) -> Vec<(String, f64)> {
        self.rollout.runner().rewards.take_usage()
    }

    /// Returns the name that the environment gives to the share of solved episodes.
    pub(crate) fn measure(&self) -> String {
        self.rollout.runner().environment.measure().to_owned()
    }

    /// Runs the episodes of these indices on each task, and returns them in the order of tasks and indices. Observers
    /// receive each episode when it ends. `in_order` receives each one when all before it have ended, so its effect is
    /// independent of timing.
    ///
    /// Tasks are dealt to the ranks in turn, and every rank returns the episodes of all. Those of other ranks reach
    /// observers and `in_order` when all have ended.
    pub(crate) async fn play<'t>(
        &self,
        rollout: &Rollout,
        stage: Stage<'_>,
        tasks: impl IntoIterator<Item = &'t Task>,
        indices: Range<u32>,
        mut in_order: impl FnMut(&Episode) -> Result<(), TrainError>,
    ) -> Result<Vec<Episode>, TrainError> {
        let tasks: Vec<&Task> = tasks.into_iter().collect();
        let total = tasks.len() * indices.len();
        let requests = self.requests(stage, tasks, indices);
        let requests = requests.into_iter().map(|(place, request)| (place, (request, None)));
        self.play_requests(rollout, stage, (requests.collect(), total), &mut in_order).await
    }

    /// Runs the requests of this rank, each with its place among the `total` ones of all ranks.
    async fn play_requests(
        &self,
        rollout: &Rollout,
        stage: Stage<'_>,
        (requests, total): (Vec<(usize, BegunRequest)>, usize),
        in_order: &mut impl FnMut(&Episode) -> Result<(), TrainError>,
    ) -> Result<Vec<Episode>, TrainError> {
        let (own, requests): (Vec<usize>, Vec<BegunRequest>) = requests.into_iter().unzip();
        self.progress().play(&stage.text(self.observers.held_out), requests.len() as u64);
        let (before, count) = (self.sampled(), AtomicU64::new(0));
        *self.loads() = WorkerLoads::begin(&self.policies);
        let playing = async {
            let mut episodes: Vec<Option<Episode>> = vec![None; total];
            let (mut playing, mut next) = (rollout.play_from(requests), 0);
            while let Some((place, episode)) = playing.next().await {
                let ended = count.fetch_add(1, Ordering::Relaxed) + 1;
                self.progress().played(ended, self.sampled() - before);
                self.observers.on_episode(&stage.ended_episode(&episode))?;
                episodes[own[place]] = Some(episode);
                while let Some(Some(episode)) = episodes.get(next) {
                    in_order(episode)?;
                    next += 1;
                }
            }
            Ok::<_, TrainError>((episodes, next))
        };
        let ticking = with_ticks(playing, || {
            self.progress().played(count.load(Ordering::Relaxed), self.sampled() - before);
            self.loads().add(&self.policies);
        });
        let (episodes, next) = ticking.await?;
        let episodes = self.exchange(stage, episodes).await?;
        episodes[next..].iter().try_for_each(in_order)?;
        unscored::check(&episodes, self.max_unscored)?;
        Ok(episodes)
    }

    /// Returns the episodes of all ranks. Observers of rank 0 receive those of the others.
    async fn exchange(
        &self,
        stage: Stage<'_>,
        episodes: Vec<Option<Episode>>,
    ) -> Result<Vec<Episode>, TrainError> {
        if self.peers.ranks().is_none() {
            return Ok(episodes.into_iter().flatten().collect());
        }
        let played: Vec<bool> = episodes.iter().map(Option::is_some).collect();
        let own = episodes.into_iter().enumerate();
        let own = own.filter_map(|(place, episode)| Some((place, episode?))).collect();
        let all = self.peers.exchange(own).await?;
        for (_, episode) in all.iter().filter(|(place, _)| self.peers.leads() && !played[*place]) {
            self.observers.on_episode(&stage.ended_episode(episode))?;
        }
        Ok(all.into_iter().map(|(_, episode)| episode).collect())
    }

    /// Returns the requests of this rank, with their places among those of all ranks. The episodes of a task are on one
    /// rank, where they share a prompt.
    fn requests<'t>(
        &self,
        Stage { name, step }: Stage<'_>,
        tasks: impl IntoIterator<Item = &'t Task>,
        indices: Range<u32>,
    ) -> Vec<(usize, EpisodeRequest)> {
        let (rank, ranks, group) = (self.peers.rank(), self.peers.size(), indices.len());
        let dealt = tasks.into_iter().enumerate().filter(|(at, _)| at % ranks == rank);
        let mut requests = Vec::new();
        for (at, task) in dealt {
            for (place, index) in (at * group..).zip(indices.clone()) {
                let seed = episode_seed(self.seed, name, step, task, index);
                requests.push((place, EpisodeRequest { task: task.clone(), index, seed }));
            }
        }
        requests
    }

    /// Runs held-out tasks. Seeds do not depend on the step, so that evaluations of one run compare weights on equal
    /// draws.
    pub(crate) async fn evaluate(
        &self,
        plan: &Plan,
        spec: &EvalSpec,
    ) -> Result<Vec<Episode>, TrainError> {
        let rollout = match spec.temperature {
            None => self.rollout.clone(),
            Some(temperature) => self.at_temperature(plan, temperature),
        };
        let rollout = match &spec.ask {
            None => rollout,
            Some(instruction) => rollout.with_instruction(instruction),
        };
        let tasks = self.held_out.get(&spec.split).map(Vec::as_slice).unwrap_or_default();
        let name = format!("eval/{}", spec.split);
        let stage = Stage { name: &name, step: 0 };
        self.play(&rollout, stage, tasks, 0..spec.samples, |_| Ok(())).await
    }
}

impl Stage<'_> {
    /// Returns the name of the running episodes for the progress display.
    fn text(self, held_out: HeldOutSink) -> String {
        match self.name.strip_prefix("eval/") {
            Some(split) if held_out == HeldOutSink::Data => format!("playing `{split}`"),
            Some(split) => format!("evaluating on `{split}`"),
            None => format!("step {}", self.step + 1),
        }
    }

    fn ended_episode<'e>(&'e self, episode: &'e Episode) -> EndedEpisode<'e> {
        let step = if self.name.starts_with("eval/") { 0 } else { self.step + 1 };
        EndedEpisode { stage: self.name, step, episode }
    }
}

/// Awaits a future, and calls `tick` at intervals meanwhile.
async fn with_ticks<T>(future: impl Future<Output = T>, tick: impl Fn()) -> T {
    let (mut future, mut ticks) = (pin!(future), tokio::time::interval(TICK));
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            _ = ticks.tick() => tick(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episodes_for_a_data_set_are_not_called_an_evaluation() {
        let held_out = Stage { name: "eval/train", step: 0 };
        assert_eq!(held_out.text(HeldOutSink::Evaluation), "evaluating on `train`");
        assert_eq!(held_out.text(HeldOutSink::Data), "playing `train`");
        assert_eq!(Stage { name: "train", step: 4 }.text(HeldOutSink::Evaluation), "step 5");
    }
}
