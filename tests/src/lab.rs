//! Test fixture: a directory with a tiny random model, tasks and a configuration, in which the command line is run as a
//! child process.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use maverl::files::create::{Size, byte_level_bpe, random_model};
use maverl::run_dir::read_rollouts;
use maverl::trajectory::Episode;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Configuration of every test, changed by `--set`.
const CONFIG: &str = r#"
seed = 7
steps = 4

[task]
data = "tasks.jsonl"
tasks_per_step = 2
group_size = 4

[orchestra]
name = "duo/relay"

[environment]
name = "letters"

[models.tiny]
path = "model"
optim = { lr = 3e-3 }

[eval]
tasks = 4

[checkpoint]
every = 2
"#;

/// Ids that end a reply: a fifth of the vocabulary, since a random model rarely samples its one end of turn.
const STOP_IDS: std::ops::Range<u32> = 200..256;
const VOCAB: usize = 280;

/// A directory for running the command line.
pub struct Lab {
    home: TempDir,
    binary: PathBuf,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A run directory.
#[derive(Debug, Clone)]
pub struct Run(pub PathBuf);

impl Lab {
    /// Creates a directory for a binary with maverl's command line. In memory where that is possible: runs sync many
    /// files.
    pub fn new(binary: &str) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let lab = Self { home: home.expect("a directory for the test"), binary: binary.into() };
        lab.model("model", 256);
        let line = |i: usize| {
            let split = ["train", "train", "train", "validation", "test", "test"][i % 6];
            json!({ "id": format!("t{i}"), "question": format!("question {i}?"), "split": split })
        };
        let tasks: String = (0..36).map(|i| format!("{}\n", line(i))).collect();
        lab.write("tasks.jsonl", &tasks);
        let sampling =
            format!("[sampling]\nmax_tokens = 16\nstop_ids = {:?}\n", STOP_IDS.collect::<Vec<_>>());
        lab.write("run.toml", &format!("{CONFIG}\n{sampling}"));
        lab
    }

    /// Writes a random model directory.
    pub fn model(&self, name: &str, context: usize) {
        let texts = vec!["question answer open close evenly what who when".to_owned(); 2];
        let tokenizer =
            byte_level_bpe(&texts, VOCAB, |_| None).expect("the texts make a tokenizer");
        let size = Size {
            vocab_size: VOCAB,
            hidden_size: 32,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            intermediate_size: 48,
            max_position_embeddings: context,
        };
        random_model(&self.path(name), size, &tokenizer, 3).expect("the size makes a model");
    }

    /// Returns a path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the laboratory can be written");
    }

    /// Writes a copy of the configuration with two steps, another algorithm and other data.
    pub fn configuration(&self, name: &str, algorithm: &str, data: &str) {
        let text = fs::read_to_string(self.path("run.toml")).expect("every laboratory has one");
        let text = text.replace("steps = 4", "steps = 2").replace("tasks.jsonl", data);
        self.write(name, &format!("{text}\n[algorithm]\nname = \"{algorithm}\"\n"));
    }

    /// Writes `hybrid.toml`, a file of two stages: supervised training and reinforcement learning of one policy.
    pub fn hybrid(&self) {
        let line = "{\"prompt\": \"question?\", \"completion\": \"open\"}\n";
        self.write("shown.jsonl", &line.repeat(4));
        self.configuration("sft.toml", "sft", "shown.jsonl");
        self.configuration("rl.toml", "drmas", "tasks.jsonl");
        self.write("hybrid.toml", "# SFT, then RL.\nstages = [\"sft.toml\", \"rl.toml\"]\n");
    }

    /// Writes `judged.toml`, a file of two stages: a verifier, and reinforcement learning that it rewards.
    pub fn judged(&self) {
        let row = |n: usize, reply: &str| {
            let right = n.is_multiple_of(2) == (reply == "yes");
            json!({ "prompt": format!("is number {n} even?"), "completion": reply, "label": right })
        };
        let rows = (0..40).flat_map(|n| ["yes", "no"].map(|reply| format!("{}\n", row(n, reply))));
        self.write("labeled.jsonl", &rows.collect::<String>());
        self.configuration("judge.toml", "verifier", "labeled.jsonl");
        self.configuration("rl.toml", "drmas", "tasks.jsonl");
        let rl = fs::read_to_string(self.path("rl.toml")).expect("it was just written");
        self.write(
            "rl.toml",
            &format!("{rl}\n[rewards.verified.verifier]\npath = \"stage:judge\"\n"),
        );
        self.write("judged.toml", "stages = [\"judge.toml\", \"rl.toml\"]\n");
    }

    /// Returns the command line with arguments, not yet started. Environment variables with settings are removed, and
    /// messages have lines of one length.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).current_dir(self.home.path()).env("COLUMNS", "110");
        // Messages name the program as it is called: here by its name, as one that is installed.
        command.env_remove("CARGO");
        command.arg0(self.binary.file_name().unwrap_or_default());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MAVERL_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs the command line to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).output().expect("the binary starts"))
    }

    /// Trains into a directory with settings, and succeeds.
    pub fn train(&self, out: &str, set: &[&str]) -> Run {
        self.run(&train_args(out, set)).succeeded();
        Run(self.path(out))
    }

    /// Trains into a directory with settings, and fails.
    pub fn fails(&self, out: &str, set: &[&str]) -> Ended {
        self.run(&train_args(out, set)).failed()
    }
}

/// Returns the arguments of a training run in a new directory.
pub fn train_args<'a>(out: &'a str, set: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "run.toml", "--out", out];
    args.extend(set.iter().flat_map(|set| ["--set", set]));
    args
}

impl Ended {
    /// Returns the result of a process.
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }

    /// Panics unless the command succeeded.
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// Panics unless the command failed with exit code 1 and an error that is not a panic.
    pub fn failed(self) -> Self {
        assert_eq!(self.code, Some(1), "{self}");
        let orderly = self.stderr.contains("error: ") && !self.stderr.contains("panicked at");
        assert!(orderly, "{self}");
        self
    }

    /// Panics unless standard error has every part, wherever its lines are wrapped.
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            let there = self.stderr.contains(part) || self.unwrapped().contains(part);
            assert!(there, "{part:?} is missing in\n{self}");
        }
        self
    }

    /// Panics unless standard output has every part, wherever its lines are wrapped.
    pub fn prints(self, parts: &[&str]) -> Self {
        let printed = self.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(printed.contains(part), "{part:?} is missing in\n{self}");
        }
        self
    }

    /// Returns standard error in one line.
    pub fn unwrapped(&self) -> String {
        self.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

impl Run {
    /// Returns the content of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let path = self.0.join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// Returns a JSON file.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.bytes(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns the rows of `metrics.jsonl`; those with a loss are steps, the others evaluations.
    pub fn rows(&self) -> Vec<Value> {
        let text = String::from_utf8(self.bytes("metrics.jsonl")).expect("metrics are text");
        text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
    }

    /// Returns the rows of steps.
    pub fn steps(&self) -> Vec<Value> {
        self.rows().into_iter().filter(|row| row.get("rollout/episodes").is_some()).collect()
    }

    /// Returns the episodes of a step, from 1.
    pub fn episodes(&self, step: u64) -> Vec<Episode> {
        read_rollouts(&self.0.join(format!("rollouts/step-{step:06}.jsonl.zst")))
            .expect("rollouts can be read")
    }

    /// Returns the weights of a policy in the checkpoint of a step.
    pub fn weights(&self, step: u64, policy: &str) -> Vec<u8> {
        self.bytes(&format!("checkpoints/step-{step:06}/policies/{policy}/model.safetensors"))
    }

    /// Returns every file that is the same in two equal runs, by its name, sorted.
    pub fn lasting(&self) -> Vec<(String, Vec<u8>)> {
        let mut names: Vec<String> =
            ["metrics.jsonl", "episodes.jsonl", "warnings.jsonl", "plan.json"]
                .map(str::to_owned)
                .into();
        for part in ["rollouts", "samples", "tokenizers", "evaluations", "checkpoints"] {
            files(&self.0, Path::new(part), &mut names);
        }
        names.sort();
        names.into_iter().map(|name| (name.clone(), self.bytes(&name))).collect()
    }

    /// Panics unless every lasting file is the same in another run, and the summary except for its times.
    pub fn equals(&self, other: &Self) {
        let (ours, theirs) = (self.lasting(), other.lasting());
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&ours), names(&theirs));
        for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            // `trainer.json` and its manifests contain the length of `timing.jsonl`, which holds times.
            let timed = name.ends_with("/trainer.json") || name.ends_with("/manifest.json");
            assert!(timed || ours == theirs, "{name} differs from that of {}", other.0.display());
        }
        let summary = |run: &Self| {
            let mut summary = run.json("summary.json");
            summary["train_seconds"] = Value::Null;
            summary
        };
        assert_eq!(summary(self), summary(other));
    }

    /// Returns true if there is no incomplete file.
    pub fn is_tidy(&self) -> bool {
        let mut names = Vec::new();
        files(&self.0, Path::new(""), &mut names);
        !names.iter().any(|name| name.contains(".tmp-") || name.contains(".part."))
    }
}

/// Adds the files below `part` of a directory, by their path in it.
fn files(dir: &Path, part: &Path, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir.join(part)) else { return };
    for entry in entries {
        let name = part.join(entry.expect("the directory can be listed").file_name());
        if dir.join(&name).is_dir() {
            files(dir, &name, names);
        } else {
            names.push(name.to_string_lossy().into_owned());
        }
    }
}

/// Waits until a condition holds, for ten minutes at most: a busy machine does not miss it.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(600), "waited ten minutes for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the stride through the cases of a test: `n` in the first tier, 1 in the second (`MAVERL_FULL`).
pub fn stride(n: usize) -> usize {
    if std::env::var_os("MAVERL_FULL").is_some() { 1 } else { n }
}
