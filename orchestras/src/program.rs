//! Programs that play as an orchestra: they speak OpenAI's protocol, and are written in any language.

use std::path::Path;

use agents::program::ProgramAgent;
use maverl::prelude::*;
use maverl::trajectory::{Fault, FaultKind};
use maverl_serve::gateway::{Gateway, ProgramOptions};

/// Runs a program for each episode; its requests for completions are the turns.
#[orchestra(name = "program/run", agents(ProgramAgent[options]))]
#[derive(Default)]
#[serde(transparent)]
pub struct Run {
    options: ProgramOptions,
    #[serde(skip)]
    gateway: Option<Gateway>,
}

impl Orchestra for Run {
    async fn run(&self, _: &Task, team: &Team<Self>) -> Result<Option<String>, AskError> {
        let Some(gateway) = &self.gateway else {
            let fault = Fault::new(FaultKind::Program, "the orchestra was not started");
            return Err(fault.into());
        };
        team.play_by(gateway, self.members()).await
    }

    async fn ready(&self) {
        if let Some(gateway) = &self.gateway {
            gateway.ready().await;
        }
    }

    fn validate(&self, base: &Path) -> Result<Vec<String>, Vec<String>> {
        self.options.validate(base)
    }

    fn start(&mut self, base: &Path) -> Result<(), String> {
        self.gateway = Some(Gateway::bind(self.options.clone(), base)?);
        Ok(())
    }

    /// A program decides itself.
    fn acts(&self) -> bool {
        true
    }

    /// A program has the data of its task.
    fn passes_on(&self) -> Vec<&'static str> {
        vec!["system", "history"]
    }

    fn sources(&self) -> Vec<String> {
        self.gateway.as_ref().map_or_else(|| self.options.sources.clone(), Gateway::sources)
    }
}

#[cfg(test)]
mod tests;
