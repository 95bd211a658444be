//! Programs that play as an orchestra: they speak OpenAI's protocol, and are written in any language.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use agents::program::ProgramAgent;
use maverl::prelude::*;
use maverl::serve::gateway::{Gateway, Mode, ModelNames, OnCrash, ProgramOptions, Structure};
use maverl::trajectory::{Fault, FaultKind};

/// Runs a program for each episode; its requests for completions are the turns.
#[orchestra(name = "program/run", agents(ProgramAgent[models]))]
pub struct Run {
    /// The program and its arguments. It runs in the directory of the configuration.
    pub command: Vec<String>,
    /// `episode`: a process for each episode. `worker`: long-lived processes that claim episodes, or, without `command`,
    /// programs that attach from outside.
    pub mode: Mode,
    /// Number of workers; 0 is one for each core.
    pub processes: u32,
    /// Environment variable with the key of workers that attach from outside.
    pub key_env: String,
    /// Seconds in which the worker of an episode must make a request of the episode, or send a heartbeat.
    pub lease_s: f64,
    /// Names that the program asks as `model`, one for each seat of `program/agent`. A single one answers to any name.
    pub models: ModelNames,
    /// Maximum number of completions of an episode; further calls are refused.
    pub max_turns: NonZeroU32,
    /// Sampled tokens of an episode from which on calls are refused; 0 is no limit.
    pub max_total_tokens: u64,
    /// Keys of the task's data that the program is told.
    pub data: Vec<String>,
    /// Further variables of its environment, which otherwise has `PATH`, `HOME`, `LANG`, `TMPDIR` and those of the gateway.
    pub env: BTreeMap<String, String>,
    /// Variables that it inherits.
    pub pass_env: Vec<String>,
    /// Requests for a form of the reply: `prompt` asks for it in words and checks it, `refuse` refuses.
    pub structured: Structure,
    /// Outcome of an episode whose program crashes: `unscored`, or `score` (without an answer).
    pub on_crash: OnCrash,
    /// Files of the program. Their hashes are in `provenance.json`, and a run is not resumed with others.
    pub sources: Vec<String>,
    /// Address of the gateway; port 0 takes a free one.
    pub address: String,
    /// Address that programs are told, if it is another one.
    pub public_url: String,
    /// Seconds for which a call is kept for a retry after its client left.
    pub grace_s: f64,
    #[serde(skip)]
    gateway: Option<Gateway>,
}

impl Default for Run {
    fn default() -> Self {
        let (command, models, data, env, pass_env, sources) = Default::default();
        Self {
            command,
            mode: Mode::default(),
            processes: 0,
            key_env: String::new(),
            lease_s: 60.0,
            models,
            max_turns: NonZeroU32::MIN.saturating_add(63),
            max_total_tokens: 0,
            data,
            env,
            pass_env,
            structured: Structure::default(),
            on_crash: OnCrash::default(),
            sources,
            address: "127.0.0.1:0".to_owned(),
            public_url: String::new(),
            grace_s: 10.0,
            gateway: None,
        }
    }
}

impl Run {
    fn options(&self) -> ProgramOptions {
        ProgramOptions {
            command: self.command.clone(),
            mode: self.mode,
            processes: self.processes,
            key_env: self.key_env.clone(),
            lease_s: self.lease_s,
            models: self.models.0.clone(),
            max_turns: self.max_turns.get(),
            max_total_tokens: self.max_total_tokens,
            data: self.data.clone(),
            env: self.env.clone(),
            pass_env: self.pass_env.clone(),
            structured: self.structured,
            on_crash: self.on_crash,
            sources: self.sources.clone(),
            address: self.address.clone(),
            public_url: self.public_url.clone(),
            grace_s: self.grace_s,
        }
    }
}

impl Orchestra for Run {
    async fn run(&self, _: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let Some(gateway) = &self.gateway else {
            let fault = Fault::new(FaultKind::Program, "the orchestra was not started");
            return Err(fault.into());
        };
        gateway.play(team, self.members()).await
    }

    async fn ready(&self) {
        if let Some(gateway) = &self.gateway {
            gateway.ready().await;
        }
    }

    fn validate(&self, base: &Path) -> Result<Vec<String>, Vec<String>> {
        self.options().validate(base)
    }

    fn start(&mut self, base: &Path) -> Result<(), String> {
        self.gateway = Some(Gateway::bind(self.options(), base)?);
        Ok(())
    }

    fn sources(&self) -> Vec<String> {
        self.sources.clone()
    }
}

#[cfg(test)]
mod tests;
