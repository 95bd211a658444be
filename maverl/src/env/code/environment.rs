//! The code environment: answers are programs.

use std::path::Path;
use std::sync::Arc;

use maverl_macros::{Settings, environment};
use maverl_sandbox::SandboxError;
use serde_json::{Map, json};
use tokio::sync::Semaphore;

use super::compiles::compile;
use super::judge::{CodeVerdict, Judge, Reason};
use super::problem::Problem;
use crate::builtin::facts;
use crate::env::options::{program_limits, program_places, sandbox_error};
use crate::env::{EnvError, Environment, Session};
use crate::task::{Action, Observation, Score, Task, TaskList};

/// Runs programs in a sandbox and judges them by hidden tests.
#[environment(name = "code", offers("attempt"))]
#[derive(Settings)]
pub struct CodeEnvironment {
    /// The interpreter: a command or a path.
    #[setting(default = "python3")]
    pub python: String,
    /// Refuses to run on a machine that lacks a layer of the sandbox.
    pub strict: bool,
    /// Rewards the share of passed tests instead of all or nothing.
    pub partial: bool,
    /// Time limit of a program in seconds: wall-clock time and CPU time.
    #[setting(default = 3.0)]
    pub seconds: f64,
    /// Address space limit of a program in MiB.
    #[setting(default = 512)]
    pub memory_mib: u64,
    /// Maximum number of attempts of an episode.
    #[setting(default = 2)]
    pub max_attempts: u32,
    /// Number of programs that run concurrently; 0 for one per core.
    pub parallel: usize,
    /// Set by [`Environment::start`].
    #[serde(skip)]
    pub(super) judges: Option<JudgePool>,
}

/// A judge with a limit on concurrent calls.
pub(super) struct JudgePool {
    judge: Arc<Judge>,
    places: Arc<Semaphore>,
}

impl Environment for CodeEnvironment {
    fn unsuited(data: &str) -> Option<&'static str> {
        facts::subject_of(data)
    }

    fn validate(&self, _: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        let tasks: Vec<Task> = tasks.iter().collect();
        let problems = understood(&tasks)?;
        let judge = self.new_judge()?;
        let warnings = judge.sandbox().protection_gaps().into_iter();
        let warnings = warnings.map(|warning| format!("the sandbox of programs {warning}"));
        let unseen = compile(&judge, &tasks, &problems)?;
        Ok(warnings.chain(unseen).collect())
    }

    fn start(&mut self, _: &Path) -> Result<(), EnvError> {
        let (judge, places) = (Arc::new(self.new_judge()?), program_places(self.parallel));
        self.judges = Some(JudgePool { judge, places });
        Ok(())
    }

    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        let problems = understood(tasks)?;
        match &self.judges {
            Some(judges) => compile(&judges.judge, tasks, &problems),
            None => Ok(None),
        }
    }

    /// Judges a program by the public tests of the task. Hidden tests never affect the observation.
    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let Action::Text(attempt) = action else {
            return Ok(Observation::new("there are no tools here; write a program"));
        };
        let done = session.actions >= self.max_attempts;
        let problem = understand(&session.task)?;
        let (public, entry) = (problem.public.len(), problem.entry.clone());
        let reply = attempt.clone();
        let verdict = self.ask(&session.task, move |judge| judge.attempt(&problem, &reply)).await?;
        Ok(Observation { text: told(&verdict, public, entry.as_deref()), done })
    }

    fn measure(&self) -> &'static str {
        "all tests passed"
    }

    /// Runs the tests on a thread of its own, once a slot is free.
    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        let problem = understand(&session.task)?;
        let reply = answer.unwrap_or_default().to_owned();
        let verdict = self.ask(&session.task, move |judge| judge.judge(&problem, &reply)).await?;
        Ok(self.scored(&verdict))
    }
}

impl CodeEnvironment {
    fn new_judge(&self) -> Result<Judge, EnvError> {
        let limits = program_limits("", self.seconds, self.memory_mib)?;
        Judge::new(&self.python, self.strict, limits, self.partial)
            .map_err(|error| sandbox_error(&error, ["python", "strict"], self.strict))
    }

    fn started(&self) -> Result<&JudgePool, EnvError> {
        self.judges.as_ref().ok_or_else(|| EnvError::new("the code environment was not started"))
    }

    /// Calls the judge on a blocking thread. If the caller is dropped, the program ends by its limits.
    async fn ask(
        &self,
        task: &Task,
        question: impl FnOnce(&Judge) -> Result<CodeVerdict, SandboxError> + Send + 'static,
    ) -> Result<CodeVerdict, EnvError> {
        let JudgePool { judge, places } = self.started()?;
        let (judge, places) = (Arc::clone(judge), Arc::clone(places));
        let place = places.acquire_owned().await;
        let place = place.expect("nobody closes the semaphore of the code environment");
        let asked = tokio::task::spawn_blocking(move || {
            let verdict = question(&judge);
            drop(place);
            verdict
        });
        let verdict =
            asked.await.map_err(|error| EnvError(format!("the judge of programs: {error}")))?;
        verdict.map_err(|error| EnvError::of_task(task, error))
    }

    fn scored(&self, verdict: &CodeVerdict) -> Score {
        let metrics = [
            ("tests_passed", verdict.share()),
            ("no_program", f64::from(verdict.reason == Reason::Nothing)),
            ("undefined", f64::from(verdict.reason == Reason::Undefined)),
            ("over_limit", f64::from(verdict.reason == Reason::Limit)),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), json!(value)));
        let reward = match (self.partial, verdict.passed()) {
            (_, true) => 1.0,
            (true, false) => verdict.share(),
            (false, false) => 0.0,
        };
        Score { reward, solved: verdict.passed(), metrics: Map::from_iter(metrics) }
    }
}

/// Returns the text of the observation of an attempt.
fn told(verdict: &CodeVerdict, public: usize, entry: Option<&str>) -> String {
    match (verdict.reason, public) {
        (Reason::Passed, 0) => match entry {
            Some(entry) => format!("the program defines `{entry}`; there are no public tests"),
            None => "the program is noted; there are no public tests".to_owned(),
        },
        (Reason::Passed, n) => format!("the program passes all {n} public tests"),
        (Reason::Nothing, _) => "there is no program; write one in a block of ```python".to_owned(),
        _ => format!("the program fails\n{}", verdict.detail),
    }
}

fn understand(task: &Task) -> Result<Problem, EnvError> {
    Problem::read(task).map_err(|what| EnvError::of_task(task, what))
}

fn understood(tasks: &[Task]) -> Result<Vec<Problem>, EnvError> {
    tasks.iter().map(understand).collect()
}
