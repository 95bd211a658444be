//! Options of a program: what is run, which seats it asks, and what it may do.

mod directory;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::is_loopback;
use crate::key::Keys;
use maverl::orchestra::SeatCount;
use maverl::settings::Settings;

/// Variables of the environment that every program inherits.
pub(super) const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Program that confines others.
pub(super) const BWRAP: &str = "bwrap";
/// Maximum number of workers that a run starts.
const MOST_PROCESSES: u32 = 1024;
/// Variables that the gateway sets.
pub(super) const OWN: [&str; 11] = [
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    "MAVERL_EPISODE_URL",
    "MAVERL_GATEWAY_KEY",
    "MAVERL_GATEWAY_URL",
    "MAVERL_SEED",
    "NO_PROXY",
];

/// Options of a program that plays as an orchestra: those of `program/run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Settings)]
#[serde(default, deny_unknown_fields)]
#[settings(level = "team")]
pub struct ProgramOptions {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// `episode`: a process for each episode. `worker`: long-lived processes that claim episodes, or, without `command`,
    /// programs that attach from outside.
    pub mode: Mode,
    /// Number of workers; 0 is one for each core.
    #[setting(default = 0)]
    pub processes: u32,
    /// Environment variable with the key of workers that attach from outside; empty if none do.
    pub key_env: String,
    /// Seconds in which the worker of an episode must make a request of the episode, or send a heartbeat.
    #[setting(default = 60.0)]
    pub lease_s: f64,
    /// Names that the program asks as `model`, one for each seat of `program/agent`. A single one answers to any name.
    pub models: Vec<String>,
    /// Maximum number of completions of an episode; further calls are refused.
    #[setting(default = 64)]
    pub max_turns: NonZeroU32,
    /// Sampled tokens of an episode from which on calls are refused; 0 is no limit.
    #[setting(default = 0)]
    pub max_total_tokens: u64,
    /// Keys of the task's data that the program is told.
    pub data: Vec<String>,
    /// Further variables of its environment, which otherwise has `PATH`, `HOME`, `LANG`, `TMPDIR` and those of the gateway.
    pub env: BTreeMap<String, String>,
    /// Variables that it inherits.
    pub pass_env: Vec<String>,
    /// Directory in which the program of an episode runs: `config` is that of the configuration, `episode` one of its own,
    /// with a home beside it. It is removed at the end.
    pub workdir: WorkDirectory,
    /// Directory whose files are copied into that of each episode; empty for none. Their hashes are those of `sources`, too.
    pub files: String,
    /// `bwrap` runs the program under bubblewrap: it sees its own directory, the programs and libraries of the system, and no
    /// other file. The network stays.
    pub confine: Confine,
    /// Further files and directories that a confined program may read.
    pub readable: Vec<String>,
    /// Requests for a form of the reply: `prompt` asks for it in words and checks it, `refuse` refuses.
    pub structured: Structure,
    /// Outcome of an episode whose program crashes: `unscored`, or `score` (without an answer).
    pub on_crash: OnCrash,
    /// Files of the program. Their hashes are in `provenance.json`, and a run is not resumed with others.
    pub sources: Vec<String>,
    /// Address of the gateway; port 0 takes a free one.
    #[setting(default = "127.0.0.1:0")]
    pub address: String,
    /// Address that programs are told, if it is another one.
    pub public_url: String,
    /// Seconds for which a call is kept for a retry after its client left.
    #[setting(default = 10.0)]
    pub grace_s: f64,
}

/// Number of seats: one for each model.
impl SeatCount for ProgramOptions {
    fn seats(&self) -> u32 {
        u32::try_from(self.models.len()).unwrap_or(u32::MAX)
    }
}

/// Life of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A process for each episode.
    #[default]
    Episode,
    /// Long-lived processes that claim episodes, and programs that attach from outside.
    Worker,
}

/// Directory in which the program of an episode runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkDirectory {
    /// That of the configuration.
    #[default]
    Config,
    /// One of its own, which is removed at the end.
    Episode,
}

/// Confinement of the program of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confine {
    /// It has the rights of the user.
    #[default]
    None,
    /// Bubblewrap hides files and processes from it.
    Bwrap,
}

/// Treatment of requests for a form of the reply (`response_format`, forced tools).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// The form is described in the system section, and the reply is checked.
    #[default]
    Prompt,
    /// Such a request is refused.
    Refuse,
}

/// Outcome of an episode whose program crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCrash {
    /// Unscored, as a fault that the policy did not cause.
    #[default]
    Unscored,
    /// Scored without an answer.
    Score,
}

impl ProgramOptions {
    /// Validates the options: every problem, or warnings. Relative paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// Every problem; it begins with the name of the option.
    pub fn validate(&self, base: &Path) -> Result<Vec<String>, Vec<String>> {
        let mut problems = self.problems_of_models();
        problems.extend(self.problem_of_command(base));
        problems.extend(self.problems_of_workers());
        problems.extend(self.problems_of_directory(base));
        for name in self.sources.iter().filter(|name| !base.join(name).is_file()) {
            let at = base.join(name);
            problems.push(format!("`sources` names `{name}`; there is no file {}", at.display()));
        }
        for name in OWN.iter().filter(|name| self.env.contains_key(**name)) {
            problems.push(format!("`env` sets `{name}`, which the gateway sets; remove it"));
        }
        if !self.grace_s.is_finite() || !(0.0..=3600.0).contains(&self.grace_s) {
            problems.push(format!("`grace_s` is {}; write 0 to 3600 seconds", self.grace_s));
        }
        if !self.public_url.is_empty() && !self.public_url.starts_with("http") {
            problems.push(format!(
                "`public_url` is {:?}; write an address such as `http://gateway.example:8000`",
                self.public_url
            ));
        }
        if problems.is_empty() { Ok(self.warnings()) } else { Err(problems) }
    }

    fn problems_of_models(&self) -> Vec<String> {
        if self.models.is_empty() {
            let what =
                "`models` is empty; write the names that the program asks, such as [\"agent\"]";
            return vec![what.to_owned()];
        }
        let mut problems = Vec::new();
        for (i, name) in self.models.iter().enumerate() {
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:".contains(c));
            if !(1..=64).contains(&name.len()) || !plain {
                problems.push(format!(
                    "`models` has {name:?}; write 1 to 64 letters, digits, `.`, `_`, `-`, `/` or `:`"
                ));
            }
            if self.models[..i].contains(name) {
                problems.push(format!("`models` has {name:?} twice"));
            }
        }
        problems
    }

    fn problem_of_command(&self, base: &Path) -> Option<String> {
        let Some(program) = self.command.first() else {
            if self.mode == Mode::Worker && !self.key_env.is_empty() {
                return None;
            }
            let what = "`command` is empty; write the program and its arguments, such as [\"python3\", \"agent.py\"]";
            return Some(what.to_owned());
        };
        if find_program(program, base).is_some() {
            return None;
        }
        if program.contains(char::is_whitespace) {
            let parts: Vec<&str> = program.split_whitespace().collect();
            return Some(format!(
                "`command` runs a program that is called `{program}`; write its name and arguments apart, as {parts:?}"
            ));
        }
        Some(if program.contains('/') {
            let file = base.join(program);
            format!("`command` runs `{program}`; there is no file {}", file.display())
        } else {
            format!("`command` runs `{program}`, which is in no directory of `PATH`")
        })
    }

    fn problems_of_workers(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.mode == Mode::Episode {
            let set = [("processes", self.processes > 0), ("key_env", !self.key_env.is_empty())];
            for (name, _) in set.iter().filter(|(_, set)| *set) {
                problems.push(format!(
                    "`{name}` is for workers; set `mode = \"worker\"`, or remove it"
                ));
            }
            return problems;
        }
        if self.processes > MOST_PROCESSES {
            let n = self.processes;
            problems.push(format!("`processes` is {n}; write at most {MOST_PROCESSES}"));
        }
        if !(self.lease_s > 0.0 && self.lease_s <= 86_400.0) {
            problems
                .push(format!("`lease_s` is {}; write more than 0, at most 86400", self.lease_s));
        }
        if !self.key_env.is_empty()
            && let Err(problem) = Keys::default().add_variable(&self.key_env)
        {
            problems.push(format!("`key_env`: {problem}"));
        }
        problems
    }

    /// Returns the number of workers that the run starts.
    pub(super) fn workers(&self) -> usize {
        match (self.mode, self.processes) {
            (Mode::Episode, _) => 0,
            (Mode::Worker, _) if self.command.is_empty() => 0,
            (Mode::Worker, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (Mode::Worker, n) => n as usize,
        }
    }

    /// Returns the time in which the worker of an episode must make a request.
    pub(super) fn lease(&self) -> Duration {
        Duration::try_from_secs_f64(self.lease_s).unwrap_or(Duration::MAX)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for name in self.pass_env.iter().filter(|name| std::env::var_os(name).is_none()) {
            warnings.push(format!("`orchestra.pass_env` names `{name}`, which is not set"));
        }
        if !is_loopback(&self.address) {
            warnings.push(format!(
                "`orchestra.address` is {}: keys of episodes and their texts travel unencrypted",
                self.address
            ));
        }
        warnings
    }

    /// Returns the time for which a call is kept whose client left.
    pub(super) fn grace(&self) -> Duration {
        Duration::try_from_secs_f64(self.grace_s).unwrap_or_default()
    }
}

/// Returns the path of a program: as it is written if it has a `/`, else in the directories of `PATH`.
pub(super) fn find_program(program: &str, base: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(base.join(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::gateway::tests::options;

    #[test]
    fn every_problem_of_the_options_is_told_with_its_option() {
        let wrong = ProgramOptions {
            command: vec!["no-such-program-4711".to_owned()],
            models: vec!["a b".to_owned(), "c".to_owned(), "c".to_owned()],
            env: [("OPENAI_API_KEY".to_owned(), "x".to_owned())].into(),
            sources: vec!["none.py".to_owned()],
            grace_s: f64::NAN,
            public_url: "gateway".to_owned(),
            ..options(&[])
        };
        let problems = wrong.validate(Path::new("/")).unwrap_err();
        for part in ["has \"a b\"", "\"c\" twice", "no directory of `PATH`", "`none.py`"] {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
        }
        assert_eq!(problems.len(), 7, "{problems:?}");
        let empty = ProgramOptions { command: vec![], models: vec![], ..options(&[]) };
        assert_eq!(empty.validate(Path::new("/")).unwrap_err().len(), 2);
        let line =
            ProgramOptions { command: vec!["python3 agent.py".to_owned()], ..options(&["a"]) };
        let told = line.validate(Path::new("/")).unwrap_err().concat();
        assert!(told.ends_with("as [\"python3\", \"agent.py\"]"), "{told}");
    }

    #[test]
    fn keys_of_workers_are_for_workers() {
        let valid = ProgramOptions { command: vec!["sh".to_owned()], ..options(&["a"]) };
        let episode = ProgramOptions { processes: 2, key_env: "X".to_owned(), ..valid.clone() };
        assert_eq!(episode.validate(Path::new("/")).unwrap_err().len(), 2);
        let worker = ProgramOptions { mode: Mode::Worker, processes: 2, ..valid };
        assert_eq!((worker.validate(Path::new("/")), worker.workers()), (Ok(vec![]), 2));
        let attached = ProgramOptions {
            command: vec![],
            key_env: "MAVERL_NO_SUCH_KEY".to_owned(),
            lease_s: 0.0,
            ..worker
        };
        let problems = attached.validate(Path::new("/")).unwrap_err();
        assert!(problems.len() == 2 && problems[1].contains("is not set"), "{problems:?}");
        assert_eq!(attached.workers(), 0);
    }

    #[test]
    fn a_directory_of_its_own_is_that_of_an_episode_and_confinement_needs_it() {
        let valid = ProgramOptions { command: vec!["sh".to_owned()], ..options(&["a"]) };
        let files = "no/such/files".to_owned();
        let readable = vec!["none".to_owned()];
        let shared = ProgramOptions { files, readable, ..valid.clone() };
        let problems = shared.validate(Path::new("/")).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        let confined = ProgramOptions { confine: Confine::Bwrap, ..valid.clone() };
        let problems = confined.validate(Path::new("/")).unwrap_err();
        assert!(problems[0].contains("set `workdir = \"episode\"`"), "{problems:?}");
        let workdir = WorkDirectory::Episode;
        let worker = ProgramOptions { mode: Mode::Worker, workdir, ..valid.clone() };
        assert!(worker.validate(Path::new("/")).unwrap_err()[0].contains("plays several"));
        let files = tempfile::tempdir().unwrap();
        let named = files.path().display().to_string();
        let own = ProgramOptions { workdir, files: named.clone(), ..valid.clone() };
        assert_eq!(own.validate(Path::new("/")), Ok(vec![]));
        #[cfg(unix)]
        {
            let _socket = std::os::unix::net::UnixListener::bind(files.path().join("s")).unwrap();
            let problems = own.validate(Path::new("/")).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with(&format!("`files`: {named}/s is a socket")));
        }
        let above = std::env::temp_dir().display().to_string();
        let itself = ProgramOptions { workdir, files: above, ..valid };
        let problems = itself.validate(Path::new("/")).unwrap_err();
        assert!(problems[0].contains("a copy would copy itself"), "{problems:?}");
    }

    #[test]
    fn what_is_probably_not_meant_is_a_warning() {
        let odd = ProgramOptions {
            command: vec!["sh".to_owned()],
            pass_env: vec!["MAVERL_NO_SUCH_VARIABLE".to_owned()],
            address: "0.0.0.0:8000".to_owned(),
            ..options(&["a"])
        };
        let warnings = odd.validate(Path::new("/")).unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}
