#![allow(clippy::unwrap_used)]
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::checkpoint::{Checkpoint, Which};
use crate::eval::{EvalReport, EvalSpec};
use crate::run_dir::RolloutWriter;
use crate::run_dir::disk::{entries, name};
use crate::run_dir::tests::{episode, origin};
use crate::run_dir::{
    EpisodeRow, MANIFEST, Manifest, SampleRecord, SpanRow, StepSamples, TokenRecord, read_episode,
    read_rollouts, read_samples, read_tokens,
};
use crate::train::progress::Silent;
use crate::trajectory::Episode;

mod ahead;
mod damage;
mod writing;

/// A learner whose weights are one number that every step changes. It fails when its fuse has burnt down.
struct Stirring {
    weights: u64,
    fuse: Rc<Cell<u32>>,
    /// First step without anything to learn.
    flat_from: u64,
    interrupt: (u64, Interrupt),
    staleness: u64,
    /// Number of steps whose weights the episodes in flight wait for.
    awaited: u64,
    /// Number of steps that were done.
    done: u64,
    /// Weights that play the episodes of each step.
    played: BTreeMap<u64, u64>,
    /// Change that another process makes to the metrics in the step of this number.
    meddling: Option<(u64, Meddling)>,
}

type Meddling = Box<dyn Fn()>;

impl Stirring {
    fn new(fuse: u32) -> Self {
        let interrupt = (u64::MAX, Interrupt::default());
        let (fuse, flat_from) = (Rc::new(Cell::new(fuse)), u64::MAX);
        let (staleness, awaited, done, played) = (0, 0, 0, BTreeMap::new());
        let meddling = None;
        Self { weights: 7, fuse, flat_from, interrupt, staleness, awaited, done, played, meddling }
    }

    /// Marks a point at which the process may end.
    fn moment(&self) -> Result<(), TrainError> {
        match self.fuse.get().checked_sub(1) {
            Some(left) => {
                self.fuse.set(left);
                Ok(())
            }
            None => Err(TrainError::NoSamples { step: 0, episodes: 0 }),
        }
    }
}

impl Trainable for Stirring {
    async fn step(
        &mut self,
        step: u64,
        rollouts: &mut RolloutWriter,
    ) -> Result<Stepped, TrainError> {
        self.moment()?;
        for batch in step + 1..=step + 1 + self.staleness {
            self.played.entry(batch).or_insert(self.weights);
        }
        let solved = self.played[&(step + 1)].is_multiple_of(2);
        let episodes = vec![episode("a", 0, solved, 2), episode("a", 1, !solved, 2)];
        for episode in &episodes {
            rollouts.append(episode)?;
            self.moment()?;
        }
        rollouts.finish()?;
        self.weights = (self.weights ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.done = step + 1;
        self.moment()?;
        if step + 1 == self.interrupt.0 {
            self.interrupt.1.raise();
        }
        if let Some((_, meddle)) = self.meddling.as_ref().filter(|(at, _)| *at == step + 1) {
            meddle();
        }
        Ok(Stepped {
            episodes,
            metrics: [("policy/small/loss", (self.weights % 1000) as f64)].into_iter().collect(),
            flat: step >= self.flat_from,
            warnings: vec![format!("weights are {}", self.weights)],
            warnings_once: vec![("stirred", format!("stirred in step {}", step + 1))],
            samples: Some(samples(self.weights)),
            tokens: step.is_multiple_of(2).then(|| tokens(self.weights)),
            ..Stepped::default()
        })
    }

    async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
        self.moment()?;
        let tasks = 0..spec.samples * 8;
        Ok(tasks.map(|bit| episode(&bit.to_string(), 0, self.weights >> bit & 1 == 1, 1)).collect())
    }

    async fn save(&self, draft: &Draft) -> Result<(), TrainError> {
        self.moment()?;
        let dir = draft.policy("small")?;
        fs::write(dir.join("model"), self.weights.to_string()).unwrap();
        self.moment()
    }

    fn staleness(&self) -> u64 {
        self.staleness
    }

    fn awaited_steps(&self) -> u64 {
        self.awaited
    }

    async fn save_in_flight(&mut self, step: u64, draft: &Draft) -> Result<(), TrainError> {
        // The runs of these tests have at most nine steps.
        assert!(self.done >= (step + self.awaited).min(9), "the episodes would wait for ever");
        self.moment()?;
        let in_flight = self.played.range(step + 1..step + 1 + self.staleness);
        draft.write("pending.json", &in_flight.collect::<BTreeMap<_, _>>())?;
        self.moment()
    }

    async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        self.played = checkpoint.read("pending.json")?.unwrap_or_default();
        let text = fs::read_to_string(checkpoint.policy("small")?.join("model")).unwrap();
        self.weights = text.parse().unwrap();
        Ok(())
    }
}

fn settings(steps: u64) -> (Origin, RunSettings) {
    let mut origin = origin();
    origin.config.steps = steps;
    origin.config.eval.every = 2;
    origin.config.checkpoint.every = 3;
    origin.config.algorithm.max_flat_steps = 3;
    let settings = settings_of(&origin);
    (origin, settings)
}

fn settings_of(Origin { config, .. }: &Origin) -> RunSettings {
    RunSettings {
        seed: 7,
        steps: config.steps,
        max_flat_steps: config.algorithm.max_flat_steps,
        eval: config.eval.clone(),
        rewards: Vec::new(),
        checkpoint: config.checkpoint.clone(),
        record: config.record.clone(),
        texts: config.track.episodes,
        seats: vec![Seat::only("t/a"), Seat::only("t/never")],
        measure: "goal met".to_owned(),
        missing: Missing::Nothing,
        plan: serde_json::json!({ "seats": ["t/a"] }),
        tokenizers: BTreeMap::from([("small".to_owned(), "{}".to_owned())]),
    }
}

/// Returns samples of a step with these weights.
fn samples(weights: u64) -> StepSamples {
    let reward = (weights % 7) as f64;
    let sample = SampleRecord { policy: "small".to_owned(), reward, ..SampleRecord::default() };
    StepSamples { samples: vec![sample], ..StepSamples::default() }
}

/// Returns the record of the tokens of a step with these weights.
fn tokens(weights: u64) -> TokenRecord {
    let value = [(weights % 7) as f32];
    TokenRecord::of(std::iter::once((1, BTreeMap::from([("entropy", &value[..])]))))
}

async fn train(place: RunLocation, steps: u64, work: Stirring) -> Result<Report, TrainError> {
    let (origin, settings) = settings(steps);
    train_as(place, &origin, settings, work, Arc::new(Silent)).await
}

async fn train_as(
    place: RunLocation,
    origin: &Origin,
    settings: RunSettings,
    work: Stirring,
    progress: Arc<dyn Progress>,
) -> Result<Report, TrainError> {
    let interrupt = work.interrupt.1.clone();
    interrupt.tell(Arc::clone(&progress));
    match Run::open(&place, origin, settings, work, progress, interrupt).await? {
        Opened::Ready(run) => run.run().await,
        Opened::Complete(report) => Ok(*report),
    }
}

/// Collects all messages.
#[derive(Default)]
struct Messages(std::sync::Mutex<Vec<String>>);

impl Messages {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Progress for Messages {
    fn begin(&self, _: u64, _: u64) {}
    fn step(&self, line: &StepLine) {
        self.note(&format!("step {}", line.step));
    }
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
    fn warn(&self, text: &str) {
        self.note(&format!("warning: {text}"));
    }
    fn end(&self) {
        self.note("end");
    }
}

/// Returns a directory in memory where that is possible: these tests sync thousands of files.
fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns everything that must be equal in an interrupted run: metrics, rows of episodes, warnings, rollouts, samples,
/// evaluations, the last checkpoint's weights.
fn outcome(dir: &Path) -> (String, Vec<(String, Vec<u8>)>, String) {
    assert!(!dir.join("progress.json").exists(), "it belongs to a running process");
    let metrics = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    let parts = ["rollouts", "evaluations", "samples", "tokenizers"];
    let parts = parts.map(|part| entries(&dir.join(part)).unwrap());
    let whole = ["episodes.jsonl", "warnings.jsonl", "plan.json"].map(|file| dir.join(file));
    let read = |path: &std::path::PathBuf| (name(path), fs::read(path).unwrap());
    let rollouts = parts.iter().flatten().chain(&whole).map(read).collect();
    let weights =
        Checkpoints::of(dir).open(Which::Last).unwrap().policy("small").unwrap().join("model");
    (metrics, rollouts, fs::read_to_string(weights).unwrap())
}

#[tokio::test]
async fn a_run_writes_what_it_did() {
    let home = home();
    let report =
        train(RunLocation::New(home.path().join("a")), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!((report.exit_code(), report.summary.complete, report.summary.steps), (0, true, 7));
    assert!(report.summary.before.is_some() && report.summary.after.is_some());
    let (metrics, rollouts, _) = outcome(&report.dir);
    // Two files per step, tokens of every other one, the evaluations before and after with their episodes, those of
    // three validations with their reports, a tokenizer, and the three files of the whole run.
    assert_eq!((metrics.lines().count(), rollouts.len()), (9, 2 * 7 + 4 + 2 * 3 + 2 * 3 + 1 + 3));
    let validation =
        RunDir::open(&report.dir).unwrap().read_evaluation::<EvalReport>("step-000002");
    assert_eq!(validation.unwrap().unwrap().tasks.len(), 8);
    assert!(metrics.lines().next().unwrap().contains("\"step\":0,\"eval/test/exact_match\""));
    let calls: Vec<u64> = report.summary.agents.values().map(|agent| agent.calls).collect();
    assert_eq!(calls, [28, 0], "who was never asked is there too");
    assert_eq!(report.summary.measure, "goal met");
    let before = RunDir::open(&report.dir).unwrap().evaluation_episodes("before");
    let ids: Vec<String> = read_rollouts(&before).unwrap().into_iter().map(|e| e.task.id).collect();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    let rows = fs::read_to_string(report.dir.join("episodes.jsonl")).unwrap();
    let rows: Vec<EpisodeRow> =
        rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // 8 tasks in each of 7 evaluations: before and after, both sampled and greedy, and 3 validations.
    assert_eq!(rows.len(), 2 * 7 + 7 * 8);
    assert_eq!((rows[0].stage.as_str(), rows[0].step), ("before", 0));
    let dir = RunDir::open(&report.dir).unwrap();
    for row in rows.iter().filter(|row| row.stage == TRAIN) {
        let episode = read_episode(&dir.rollouts(row.step), row.at).unwrap();
        assert_eq!(EpisodeRow::new(TRAIN, row.step, row.n, row.at, &episode), *row);
    }
    assert_eq!(read_samples(&dir.samples(1)).unwrap().samples.len(), 1);
    assert_eq!(read_tokens(&dir.tokens(3)).unwrap().offsets, [0, 1]);
    let timing = fs::read_to_string(report.dir.join("timing.jsonl")).unwrap();
    let timing =
        timing.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let seconds: BTreeMap<u64, f64> = timing
        .filter_map(|row| Some((row["step"].as_u64()?, row[STEP_SECONDS].as_f64()?)))
        .collect();
    let spans = fs::read_to_string(report.dir.join("spans.jsonl")).unwrap();
    assert_eq!(spans.lines().count(), 7);
    for line in spans.lines() {
        let row: SpanRow = serde_json::from_str(line).unwrap();
        let (mut end, mut trained) = (0.0, 0.0);
        for span in row.spans.iter().filter(|span| span.1.is_none()) {
            assert!((span.2 - end).abs() < 1e-6, "parts follow one another: {line}");
            end = span.2 + span.3;
            trained += if span.0 == "validation" { 0.0 } else { span.3 };
        }
        // The time of a step is measured after its parts, and evaluations within the part `validation`.
        assert!(trained < seconds[&row.step] + 1e-6, "{trained}: {line}");
    }
    assert!(!dir.tokens(2).exists());
    let warnings = fs::read_to_string(report.dir.join("warnings.jsonl")).unwrap();
    assert_eq!(warnings.matches("stirred in step").count(), 1, "{warnings}");
    assert_eq!(warnings.lines().count(), 8, "{warnings}");
    let manifest = Manifest::read(&report.dir).unwrap();
    manifest.verify(&report.dir, |_| true).unwrap();
    assert!(
        manifest.files.contains_key("summary.json") && manifest.files.contains_key("metrics.jsonl")
    );
}

#[tokio::test]
async fn a_run_killed_at_any_moment_ends_as_if_it_had_not_been() {
    let home = home();
    let whole = train(RunLocation::New(home.path().join("whole")), 7, Stirring::new(u32::MAX))
        .await
        .unwrap();
    let expected = outcome(&whole.dir);
    for fuse in 0.. {
        let dir = home.path().join(format!("killed-{fuse}"));
        let first = train(RunLocation::New(dir.clone()), 7, Stirring::new(fuse)).await;
        if first.is_ok() {
            assert!(fuse > 20, "the run has {fuse} moments");
            break;
        }
        let second = train(RunLocation::Resume(dir.clone()), 7, Stirring::new(fuse / 2 + 2)).await;
        if second.is_err() {
            train(RunLocation::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
        }
        assert_eq!(outcome(&dir), expected, "killed at moment {fuse}");
        let summary: RunSummary = read_json(&dir.join("summary.json")).unwrap();
        let expected = RunSummary { train_seconds: summary.train_seconds, ..whole.summary.clone() };
        assert_eq!(summary, expected, "killed at moment {fuse}");
    }
}

#[tokio::test]
async fn a_run_of_an_older_version_resumes_and_indexes_what_follows() {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 4, Stirring::new(u32::MAX)).await.unwrap();
    // Older versions had neither these files nor their lengths in checkpoints and in the manifest.
    for file in ["episodes.jsonl", "warnings.jsonl", "plan.json"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    fs::remove_dir_all(dir.join("samples")).unwrap();
    let newer = ["episodes.jsonl", "warnings.jsonl", "plan.json", "samples/"];
    let is_newer = |file: &str| newer.iter().any(|newer| file.starts_with(newer));
    for checkpoint in Checkpoints::of(&dir).steps().unwrap() {
        let dir = dir.join(format!("checkpoints/step-{checkpoint:06}"));
        let path = dir.join("trainer.json");
        let mut state: serde_json::Value = read_json(&path).unwrap();
        state["files"].as_object_mut().unwrap().retain(|file, _| !is_newer(file));
        state.as_object_mut().unwrap().remove("warned");
        let hash = crate::run_dir::FileHash::of(&write_json(&path, &state).unwrap());
        let mut manifest = Manifest::read(&dir).unwrap();
        manifest.files.insert("trainer.json".to_owned(), hash);
        manifest.write(&dir).unwrap();
    }
    let mut manifest = Manifest::read(&dir).unwrap();
    manifest.files.retain(|file, _| !is_newer(file) && !file.starts_with("checkpoints/"));
    manifest.write(&dir).unwrap();
    train(RunLocation::Resume(dir.clone()), 6, Stirring::new(u32::MAX)).await.unwrap();
    let rows = fs::read_to_string(dir.join("episodes.jsonl")).unwrap();
    let steps: Vec<u64> = rows
        .lines()
        .map(|line| serde_json::from_str::<EpisodeRow>(line).unwrap())
        .filter(|row| row.stage == TRAIN)
        .map(|row| row.step)
        .collect();
    assert_eq!(steps, [5, 5, 6, 6], "two episodes a step");
    assert!(dir.join("samples/step-000005.jsonl.zst").exists());
}

#[tokio::test]
async fn n_steps_and_then_n_more_are_2n_steps() {
    let home = home();
    let (whole, halves) = (home.path().join("whole"), home.path().join("halves"));
    train(RunLocation::New(whole.clone()), 8, Stirring::new(u32::MAX)).await.unwrap();
    train(RunLocation::New(halves.clone()), 4, Stirring::new(u32::MAX)).await.unwrap();
    train(RunLocation::Resume(halves.clone()), 8, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(outcome(&halves), outcome(&whole));
    let error =
        train(RunLocation::Resume(halves), 5, Stirring::new(0)).await.unwrap_err().to_string();
    assert!(error.contains("has gone to step 8 and `steps` is 5"), "{error}");
}

#[tokio::test]
async fn a_complete_run_is_not_touched() {
    let home = home();
    let dir = home.path().join("a");
    let first = train(RunLocation::New(dir.clone()), 3, Stirring::new(u32::MAX)).await.unwrap();
    let second = train(RunLocation::Resume(dir), 3, Stirring::new(0)).await.unwrap();
    assert_eq!(second, first);
}

#[tokio::test]
async fn an_interrupted_run_finishes_its_step_and_can_go_on() {
    let home = home();
    let whole = train(RunLocation::New(home.path().join("whole")), 7, Stirring::new(u32::MAX))
        .await
        .unwrap();
    let dir = home.path().join("a");
    let mut work = Stirring::new(u32::MAX);
    work.interrupt.0 = 5;
    let report = train(RunLocation::New(dir.clone()), 7, work).await.unwrap();
    assert_eq!(
        (report.exit_code(), report.summary.steps, report.summary.complete),
        (130, 5, false)
    );
    assert_eq!(Checkpoints::of(&dir).open(Which::Last).unwrap().state.step, 5);
    let report = train(RunLocation::Resume(dir.clone()), 7, Stirring::new(u32::MAX)).await.unwrap();
    assert_eq!(report.exit_code(), 0);
    assert_eq!(outcome(&dir), outcome(&whole.dir));
}

#[tokio::test]
async fn too_many_flat_steps_in_a_row_end_the_run_with_what_would_help() {
    let home = home();
    let dir = home.path().join("a");
    let mut work = Stirring::new(u32::MAX);
    work.flat_from = 2;
    let error = train(RunLocation::New(dir.clone()), 9, work).await.unwrap_err().to_string();
    assert!(error.contains("3 steps in a row") && error.contains("group_size"), "{error}");
    let command = format!(
        "go on with `maverl train --resume {} --set algorithm.max_flat_steps=6`",
        dir.display()
    );
    assert!(error.ends_with(&command), "{error}");
    let metrics = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    assert!(metrics.lines().last().unwrap().contains("\"step\":5"));
}

#[tokio::test]
async fn a_run_that_stopped_flat_goes_on_when_it_is_told_to_wait_longer() {
    let home = home();
    let flat = || Stirring { flat_from: 2, ..Stirring::new(u32::MAX) };
    let (mut origin, mut settings) = settings(9);
    origin.config.algorithm.max_flat_steps = 99;
    settings.max_flat_steps = 99;
    let whole = RunLocation::New(home.path().join("whole"));
    let silent: Arc<dyn Progress> = Arc::new(Silent);
    let whole =
        train_as(whole, &origin, settings.clone(), flat(), Arc::clone(&silent)).await.unwrap();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 9, flat()).await.unwrap_err();
    assert_eq!(Checkpoints::of(&dir).open(Which::Last).unwrap().state.step, 5, "nothing is lost");
    let error = train(RunLocation::Resume(dir.clone()), 9, flat()).await.unwrap_err().to_string();
    assert!(error.contains("3 steps in a row"), "it says so again, before anything is done");
    train_as(RunLocation::Resume(dir.clone()), &origin, settings, flat(), silent).await.unwrap();
    assert_eq!(outcome(&dir), outcome(&whole.dir));
}

#[tokio::test]
async fn evaluations_may_change_when_a_run_goes_on_and_what_cannot_be_compared_is_said() {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 4, Stirring::new(u32::MAX)).await.unwrap();
    assert!(Checkpoints::of(&dir).best().unwrap().is_some());
    let (mut origin, _) = settings(8);
    origin.config.eval.samples = std::num::NonZeroU32::MIN.saturating_add(1);
    origin.config.eval.every = 0;
    let said = Arc::new(Messages::default());
    let work = Stirring::new(u32::MAX);
    let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
    let settings = settings_of(&origin);
    train_as(RunLocation::Resume(dir.clone()), &origin, settings, work, progress).await.unwrap();
    let said = said.all();
    assert!(said[0].contains("the evaluation after training plays otherwise"), "{said:?}");
    assert!(said[1].contains("the best checkpoint is chosen among new validations"), "{said:?}");
    assert_eq!(Checkpoints::of(&dir).best().unwrap(), None);
    let resolved = fs::read_to_string(dir.join("resolved.toml")).unwrap();
    assert!(resolved.contains("samples = 2"), "{resolved}");
}

#[tokio::test]
async fn a_best_checkpoint_by_other_validations_stays_forgotten_if_the_run_is_killed_before_its_next_one()
 {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 4, Stirring::new(u32::MAX)).await.unwrap();
    let (mut origin, _) = settings(8);
    origin.config.eval.samples = std::num::NonZeroU32::MIN.saturating_add(1);
    let settings = settings_of(&origin);
    let mut changed = RunDir::open(&dir).unwrap();
    // The origin is changed, and the process ends before it writes a checkpoint.
    changed.change_origin(&origin).unwrap();
    drop(changed);
    let said = Arc::new(Messages::default());
    let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
    let work = Stirring::new(u32::MAX);
    train_as(RunLocation::Resume(dir.clone()), &origin, settings, work, progress).await.unwrap();
    let said = said.all();
    let forgotten = "the best checkpoint is chosen among new validations";
    assert!(said.iter().any(|text| text.contains(forgotten)), "{said:?}");
}

#[tokio::test]
async fn metrics_that_another_process_changes_in_mid_run_are_an_error_of_the_run() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 3] = [
        (|path| fs::File::options().write(true).open(path).unwrap().set_len(9).unwrap(), "9 bytes"),
        (|path| fs::rename(path, path.with_extension("old")).unwrap(), "it is gone"),
        // The length is unchanged: the difference is found when the run ends.
        (
            |path| {
                let text = fs::read_to_string(path).unwrap().replacen("step", "pets", 1);
                let mut file = fs::File::options().write(true).open(path).unwrap();
                std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            },
            "checksum",
        ),
    ];
    for (change, expected) in changes {
        let home = home();
        let dir = home.path().join("a");
        let path = dir.join("metrics.jsonl");
        let mut work = Stirring::new(u32::MAX);
        work.meddling = Some((4, Box::new(move || change(&path))));
        let error = train(RunLocation::New(dir.clone()), 7, work).await.unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl") && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn nearly_all_replies_malformed_are_told_of_once_in_training() {
    struct Babbling(Stirring);

    impl Trainable for Babbling {
        async fn step(
            &mut self,
            step: u64,
            rollouts: &mut RolloutWriter,
        ) -> Result<Stepped, TrainError> {
            let mut done = self.0.step(step, rollouts).await?;
            done.episodes = (0..8).map(|index| episode("a", index, false, 1)).collect();
            let turns = done.episodes.iter_mut().flat_map(|episode| &mut episode.turns);
            turns.for_each(|turn| turn.error = Some("there is no <answer> tag".to_owned()));
            Ok(done)
        }
        async fn evaluate(&self, spec: &EvalSpec) -> Result<Vec<Episode>, TrainError> {
            self.0.evaluate(spec).await
        }
        async fn save(&self, draft: &Draft) -> Result<(), TrainError> {
            self.0.save(draft).await
        }
        async fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
            self.0.load(checkpoint).await
        }
    }

    let home = home();
    let (origin, settings) = settings(5);
    let said = Arc::new(Messages::default());
    let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
    let (place, work) =
        (RunLocation::New(home.path().join("a")), Babbling(Stirring::new(u32::MAX)));
    let opened = Run::open(&place, &origin, settings, work, progress, Interrupt::default()).await;
    let Opened::Ready(run) = opened.unwrap() else { panic!("it is new") };
    run.run().await.unwrap();
    let said = said.all();
    let told = said.iter().filter(|line| line.contains("could not be read"));
    let told: Vec<&String> = told.collect();
    assert_eq!(told.len(), 1, "{said:?}");
    let parts = ["8 of 8 replies of `t/a`", "there is no <answer> tag", "\"yes\""];
    assert!(parts.iter().all(|part| told[0].contains(part)), "{}", told[0]);
}

#[tokio::test]
async fn who_stops_a_run_is_told_at_once_what_it_still_does_and_how_to_go_on() {
    let home = home();
    let dir = home.path().join("a");
    let (origin, settings) = settings(7);
    let mut work = Stirring::new(u32::MAX);
    work.interrupt.0 = 5;
    let said = Arc::new(Messages::default());
    let progress: Arc<dyn Progress> = Arc::clone(&said) as _;
    let report =
        train_as(RunLocation::New(dir.clone()), &origin, settings, work, progress).await.unwrap();
    let said = said.all();
    let at = |text: &str| said.iter().position(|line| line == text);
    let told = at("finishing step 5; again to stop now").expect("it is told");
    assert!(at("step 4").unwrap() < told && told < at("step 5").unwrap(), "{said:?}");
    let end = format!("go on with `maverl train --resume {}`", dir.display());
    assert!(report.table(120).ends_with(&end), "{}", report.table(120));
}

#[tokio::test]
async fn a_run_without_checkpoints_but_with_rows_is_not_started_over() {
    let home = home();
    let dir = home.path().join("a");
    train(RunLocation::New(dir.clone()), 3, Stirring::new(5)).await.unwrap_err();
    for checkpoint in entries(&dir.join("checkpoints")).unwrap() {
        fs::remove_dir_all(checkpoint).unwrap();
    }
    let error =
        train(RunLocation::Resume(dir), 3, Stirring::new(u32::MAX)).await.unwrap_err().to_string();
    assert!(error.contains("has no checkpoint"), "{error}");
}
