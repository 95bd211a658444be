//! `maverl train` and `maverl check` with a file of stages: configurations that are trained one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use toml_edit::Key;

use crate::check::Purpose;
use crate::checkpoint::{Checkpoints, Which};
use crate::cli::arguments::{ConfigArgs, RunArgs};
use crate::cli::export::verifier::export_verifier;
use crate::cli::failure::Failure;
use crate::cli::planning::plan_checked;
use crate::cli::process::{process_interrupt, report_stop, train_until_signal};
use crate::cli::run_options::{is_follower, ready_plan, resume_or_start};
use crate::cli::simulated::Simulated;
use crate::cli::terminal::{self, print, tell};
use crate::cli::tracking::check_packages;
use crate::config::source::{ShippedName, Sources, config_stem, file_table};
use crate::config::{Preset, STAGE};
use crate::plan::{Plan, RewardSource};
use crate::registry::Registry;
use crate::run_dir::next;
use crate::train::{Launch, Options, Report, TrainError, own_name, verifier_tasks};

/// Key of a file of stages.
const KEY: &str = "stages";

/// File of a LoRA adapter in the directory of a policy.
const ADAPTER: &str = "adapter_config.json";

/// Configurations that are trained one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stages {
    file: PathBuf,
    configs: Vec<PathBuf>,
}

/// Pause of a rank that waits for a verifier.
const PAUSE: Duration = Duration::from_millis(100);

/// Indices of the earlier stages that a stage takes models and verifiers from.
#[derive(Debug, Default, PartialEq, Eq)]
struct Origins {
    /// Stage whose policy a model starts from, for each model that starts from one.
    models: BTreeMap<String, usize>,
    /// Stage whose verifier scores replies, for each part of the reward that has one.
    verifiers: BTreeMap<String, usize>,
}

impl Origins {
    fn is_empty(&self) -> bool {
        self.models.is_empty() && self.verifiers.is_empty()
    }
}

impl Stages {
    /// Reads the file that is given as the configuration. `None` if it is a configuration, or cannot be read.
    pub(super) fn read(given: &ConfigArgs) -> Result<Option<Self>, Failure> {
        let Some(file) = given.path() else { return Ok(None) };
        let Some(table) = file_table(file) else { return Ok(None) };
        let Some(value) = table.get(KEY) else { return Ok(None) };
        if let Some(other) = table.keys().find(|key| *key != KEY) {
            let what = format!("`{other}` beside `stages`; a file of stages has no other key");
            return Err(wrong_stages(file, &what));
        }
        let paths = value.as_array().into_iter().flatten().map(toml::Value::as_str);
        let Some(paths) = paths.collect::<Option<Vec<_>>>().filter(|paths| !paths.is_empty())
        else {
            return Err(wrong_stages(file, &format!("`stages` is {value}")));
        };
        let configs = match ShippedName::parse(file).and_then(|name| name.find()) {
            Some(shipped) => {
                shipped.stages().iter().map(|one| one.name.to_string().into()).collect()
            }
            None => paths.into_iter().map(|path| stage_path(file, path)).collect(),
        };
        Ok(Some(Self { file: file.clone(), configs }))
    }

    /// Returns the first line of what is said of a stage.
    fn heading(&self, stage: usize) -> String {
        let (count, config) = (self.configs.len(), self.configs[stage].display());
        format!("stage {} of {count}: {config}", stage + 1)
    }

    /// Returns the name of a stage: that of its file, without the extension.
    fn name(&self, stage: usize) -> String {
        config_stem(&self.configs[stage])
    }

    /// Returns the run directory of a stage.
    fn run(&self, dir: &Path, stage: usize) -> PathBuf {
        dir.join(format!("{}-{}", stage + 1, self.name(stage)))
    }

    /// Returns the plans of all stages, or the problems of all.
    fn plans(
        &self,
        over: impl Fn(Sources) -> Sources,
        registry: &Registry,
        purpose: Purpose,
    ) -> Result<Vec<Plan>, Failure> {
        let (mut plans, mut problems) = (Vec::new(), Vec::new());
        let mut verifiers = BTreeMap::new();
        for (stage, config) in self.configs.iter().enumerate() {
            let sources = Sources { verifiers: verifiers.clone(), ..over(Sources::file(config)) };
            let planned = plan_checked(&sources, registry, purpose)
                .and_then(|plan| Ok((questions(&plan)?, plan)));
            match planned {
                Ok((questions, plan)) => {
                    verifiers.extend(questions.map(|its| (self.name(stage), its)));
                    plans.push(plan);
                }
                Err(Failure(error)) => {
                    problems.push(format!("{}: {error}", self.heading(stage)));
                    // A later stage may name its verifier, which is no problem of that stage.
                    verifiers.insert(self.name(stage), BTreeSet::new());
                }
            }
        }
        if problems.is_empty() { Ok(plans) } else { Err(Failure(problems.join("\n"))) }
    }

    /// Returns what the models and the verifiers of each stage are from.
    fn origins(&self, plans: &[Plan]) -> Result<Vec<Origins>, Failure> {
        let mut all = Vec::new();
        for (stage, plan) in plans.iter().enumerate() {
            let earlier = &plans[..stage];
            let (models, verifiers) = (models(plan, earlier), self.verifiers(plan, earlier));
            all.push(Origins { models, verifiers });
        }
        match all.iter().skip(1).position(Origins::is_empty) {
            Some(before) => Err(self.unconnected_stage(before + 1, plans)),
            None => Ok(all),
        }
    }

    /// Returns the latest of the earlier stages that trains the verifier of a part of the reward, for each part.
    fn verifiers(&self, plan: &Plan, earlier: &[Plan]) -> BTreeMap<String, usize> {
        let mut origins = BTreeMap::new();
        for reward in &plan.rewards {
            let RewardSource::Verifier(verifier) = &reward.source else { continue };
            let Some(name) = verifier.path.strip_prefix(STAGE) else { continue };
            let mut stages = earlier.iter().enumerate();
            let origin =
                stages.rposition(|(stage, plan)| trains_verifier(plan) && self.name(stage) == name);
            origins.extend(origin.map(|stage| (reward.name.clone(), stage)));
        }
        origins
    }

    /// Returns the error of a stage that starts from nothing that was trained before.
    fn unconnected_stage(&self, stage: usize, plans: &[Plan]) -> Failure {
        let models = quote_names(plans[stage].config.models.keys().map(String::as_str));
        let policies = quote_names(plans[..stage].iter().flat_map(trained_policies));
        Failure(format!(
            "{}: no model starts from a policy of the stages before, and no reward has a verifier of theirs; models: {models}; \
             policies: {policies}; a model starts from the policy that has its name: rename a model",
            self.heading(stage)
        ))
    }

    /// Reports the problems of all stages, as each rank would.
    pub(super) fn check_plans(&self, args: &RunArgs, registry: &Registry) -> Result<(), Failure> {
        let plans = self.plans(|sources| args.over(sources), registry, Purpose::Train)?;
        self.origins(&plans).map(drop)
    }

    /// `maverl check` with a file of stages.
    pub(super) fn check(
        &self,
        given: &ConfigArgs,
        registry: &Registry,
        simulated: &Simulated,
        json: bool,
    ) -> Result<ExitCode, Failure> {
        let plans = self.plans(|sources| given.over(sources), registry, simulated.purpose())?;
        self.origins(&plans)?;
        let mut answers = Vec::new();
        for (stage, plan) in plans.iter().enumerate() {
            let answer = simulated.answer(plan, json)?;
            answers.push(if json {
                answer
            } else {
                format!("{}\n\n{answer}", self.heading(stage))
            });
        }
        print(&own_name(&if json {
            format!("[{}]", answers.join(","))
        } else {
            answers.join("\n")
        }))
    }

    /// Trains each stage. Models that have the name of a policy of an earlier stage start from its last checkpoint.
    /// Existing runs are resumed. All ranks of a launch train each stage; rank 0 alone prints.
    pub(super) fn train(
        &self,
        args: &RunArgs,
        registry: &Registry,
        launch: Option<&Launch>,
    ) -> Result<ExitCode, Failure> {
        let leads = !is_follower(launch);
        let plans = self.plans(|sources| args.over(sources), registry, Purpose::Train)?;
        let all = self.origins(&plans)?;
        let mut dir = match &args.out {
            Some(dir) => dir.clone(),
            None => next(&PathBuf::from("runs"), &args.stem(None)),
        };
        for (stage, origins) in all.iter().enumerate() {
            let mut over = Vec::new();
            let mut told = vec![self.heading(stage)];
            for (model, &origin) in &origins.models {
                let policy = self.policy(&dir, origin, model)?;
                told.push(format!("`{model}` starts from `{}`", policy.display()));
                over.push(start(model, &policy)?);
            }
            for (reward, &origin) in &origins.verifiers {
                let limit = Duration::from_secs_f64(plans[stage].config.dist.join_s);
                let Some(verifier) = self.verifier(&dir, origin, (leads, limit))? else {
                    return Ok(report_stop(&stopped_joining(launch)));
                };
                told.push(format!("reward `{reward}` has the verifier `{}`", verifier.display()));
                let path = toml::Value::from(absolute(&verifier)?.display().to_string());
                over.push(format!("rewards.{}.verifier.path={path}", Key::new(reward)));
            }
            if leads {
                told.iter().for_each(tell);
            }
            let run = self.run(&dir, stage);
            let (sources, options) =
                resume_or_start(args, Sources::file(&self.configs[stage]), &run, &over)?;
            let plan = ready_plan(&sources, registry, launch)?;
            check_packages(&plan.config.track, &options.place)?;
            let again = stage + 1 < all.len();
            let options = Options { launch: launch.cloned(), again, ..options };
            let report = match train_until_signal(&plan, registry, options)? {
                Err(error @ TrainError::StoppedJoining { .. }) => return Ok(report_stop(&error)),
                done => done?,
            };
            // That of rank 0, which has created it.
            dir = report.dir.parent().unwrap_or(&dir).to_owned();
            if leads {
                self.report(&report, &dir)?;
            }
            if report.interrupted {
                return Ok(ExitCode::from(report.exit_code()));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the report of a stage, and the command that goes on after an interruption.
    fn report(&self, report: &Report, dir: &Path) -> Result<(), Failure> {
        print(&report.table(terminal::width()))?;
        if report.interrupted {
            let (run, file, dir) = (report.dir.display(), self.file.display(), dir.display());
            tell(format_args!(
                "stopped in `{run}`; `maverl train {file} --out {dir}` with the same options goes on"
            ));
        }
        Ok(())
    }

    /// Returns the directory of a policy in the last checkpoint of a stage.
    fn policy(&self, dir: &Path, stage: usize, policy: &str) -> Result<PathBuf, Failure> {
        Ok(Checkpoints::of(&self.run(dir, stage)).open(Which::Last)?.policy(policy)?)
    }

    /// Returns the directory of the verifier in the last checkpoint of a stage. The rank that `leads` exports it; other ranks
    /// wait until it is there. `None` if this rank is asked to stop meanwhile.
    fn verifier(
        &self,
        dir: &Path,
        stage: usize,
        (leads, limit): (bool, Duration),
    ) -> Result<Option<PathBuf>, Failure> {
        let run = self.run(dir, stage);
        let step = Checkpoints::of(&run).open(Which::Last)?.state.step;
        let out = run.join(format!("verifier-{step:06}"));
        if leads && !out.is_dir() {
            tell(export_verifier(&run, &out)?);
        }
        let (began, interrupt) = (Instant::now(), process_interrupt()?);
        while !out.is_dir() {
            if interrupt.is_raised() {
                return Ok(None);
            }
            if began.elapsed() > limit {
                let (out, seconds) = (out.display(), limit.as_secs());
                return Err(Failure(format!(
                    "{out}: rank 0 has not written the verifier within {seconds} s, which is `dist.join_s`"
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Some(out))
    }
}

/// Returns the configurations of a file of stages, in their order; `None` if the arguments name no such file.
///
/// # Errors
///
/// If the file names no stages, or more than stages.
pub fn stage_configs(given: &ConfigArgs) -> Result<Option<Vec<PathBuf>>, Failure> {
    Ok(Stages::read(given)?.map(|stages| stages.configs))
}

/// Returns the error of a rank that is asked to stop while it waits for rank 0.
fn stopped_joining(launch: Option<&Launch>) -> TrainError {
    let (rank, size) = launch.map_or((0, 1), |launch| (launch.rank, launch.size));
    TrainError::StoppedJoining { rank, size }
}

fn wrong_stages(file: &Path, what: &str) -> Failure {
    let example =
        "write the paths of configurations, as in `stages = [\"sft.toml\", \"ppo.toml\"]`";
    Failure(format!("{}: {what}; {example}", file.display()))
}

fn quote_names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the path of a stage beside its file, or the name of a configuration that the program brings.
fn stage_path(file: &Path, stage: &str) -> PathBuf {
    match ShippedName::parse(Path::new(stage)) {
        Some(name) => name.to_string().into(),
        None => file.with_file_name(stage),
    }
}

/// Returns true if a plan trains a verifier.
fn trains_verifier(plan: &Plan) -> bool {
    plan.config.algorithm.name == Preset::Verifier
}

/// Returns the keys of the questions that a stage trains a verifier on, if it trains one.
fn questions(plan: &Plan) -> Result<Option<BTreeSet<String>>, Failure> {
    Ok(trains_verifier(plan).then(|| verifier_tasks(plan)).transpose()?)
}

/// Returns the names of the policies that a plan trains. A verifier is none of them: its trunk has the name of a policy, which
/// stays as it is.
fn trained_policies(plan: &Plan) -> impl Iterator<Item = &str> {
    let learns = !trains_verifier(plan);
    let trained = plan.policies.iter().filter(move |policy| policy.trained && learns);
    trained.map(|policy| policy.name.as_str())
}

/// Returns the latest of the earlier stages that trains a policy with the name of a model, for each model.
fn models(plan: &Plan, earlier: &[Plan]) -> BTreeMap<String, usize> {
    let mut origins = BTreeMap::new();
    for model in plan.config.models.keys() {
        let mut stages = earlier.iter();
        let origin = stages.rposition(|plan| trained_policies(plan).any(|policy| policy == model));
        origins.extend(origin.map(|stage| (model.clone(), stage)));
    }
    origins
}

/// Returns the assignment that starts a model from the directory of a policy: a whole model, or an adapter.
fn start(model: &str, policy: &Path) -> Result<String, Failure> {
    let key = if policy.join(ADAPTER).is_file() { "adapter" } else { "path" };
    let path = toml::Value::from(absolute(policy)?.display().to_string());
    Ok(format!("models.{}.{key}={path}", Key::new(model)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Result<Option<Stages>, String> {
        read_named("hybrid.toml", text)
    }

    fn read_named(name: &str, text: &str) -> Result<Option<Stages>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let args = ConfigArgs::of_file(file);
        Stages::read(&args).map_err(|Failure(error)| error)
    }

    #[test]
    fn stages_are_paths_beside_their_file() {
        let stages = read("stages = [\"sft.toml\", \"sub/ppo.toml\"]").unwrap().unwrap();
        let dir = stages.file.parent().unwrap();
        assert_eq!(stages.configs, [dir.join("sft.toml"), dir.join("sub/ppo.toml")]);
        assert_eq!(stages.run(Path::new("runs/a"), 1), Path::new("runs/a/2-ppo"));
    }

    #[test]
    fn a_file_of_stages_may_be_yaml_as_configurations_may() {
        let text = "stages:\n  - sft.yaml\n  - ppo.toml\n";
        let stages = read_named("hybrid.yaml", text).unwrap().unwrap();
        let dir = stages.file.parent().unwrap();
        assert_eq!(stages.configs, [dir.join("sft.yaml"), dir.join("ppo.toml")]);
        assert!(read_named("run.yml", "steps: 3\n").unwrap().is_none());
        let error = read_named("hybrid.yaml", "stages: []\n").unwrap_err();
        assert!(error.contains("`stages` is []"), "{error}");
    }

    #[test]
    fn a_configuration_is_no_file_of_stages() {
        for text in ["", "steps = 3", "not TOML"] {
            assert_eq!(read(text).unwrap(), None);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_no_file_of_stages() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("hybrid.toml");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for file in [pipe, "/dev/zero".into(), dir.path().to_owned()] {
            let args = ConfigArgs::of_file(file);
            assert_eq!(
                Stages::read(&args).unwrap_or_else(|Failure(error)| panic!("{error}")),
                None
            );
        }
    }

    #[test]
    fn a_wrong_file_of_stages_is_answered_with_what_one_is() {
        for (text, found) in [
            ("stages = []", "`stages` is []"),
            ("stages = \"sft.toml\"", "`stages` is \"sft.toml\""),
            ("stages = [1]", "`stages` is [1]"),
            ("stages = [\"a.toml\"]\nsteps = 2", "`steps` beside `stages`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(found) && error.contains("stages = [\"sft.toml\""), "{error}");
        }
    }

    #[test]
    fn a_model_starts_from_a_whole_model_or_from_an_adapter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        assert_eq!(start("a", dir.path()).unwrap(), format!("models.a.path=\"{path}\""));
        std::fs::write(dir.path().join(ADAPTER), "{}").unwrap();
        let assignment = start("a.b", dir.path()).unwrap();
        assert_eq!(assignment, format!("models.\"a.b\".adapter=\"{path}\""));
    }
}
