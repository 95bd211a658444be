//! `maverl serve model`: models, adapters and the policies of a run, in OpenAI's protocol.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use serde_json::{Map, Value};

use super::engine::{RequestArgs, ServedPrecision, start};
use super::listen::ListenArgs;
use super::policies::Policies;
use crate::export::which;
use crate::{Failure, block_on, models, number, paths};
use maverl::checkpoint::Which;
use maverl::config::RuntimeOptions;
use maverl::files::ModelSource;
use maverl::output;
use maverl::runtime::Host;
use maverl::tools::{CallFormat, ThoughtFormat};
use maverl::train::Interrupt;
use maverl_serve::Limits;
use maverl_serve::model::{Catalog, Entry, ModelServer, ModelSettings};

#[derive(Args)]
#[command(group = ArgGroup::new("served").required(true))]
pub(crate) struct ServeModelArgs {
    /// The model: a Hugging Face directory, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub, or `builtin:tiny`.
    #[arg(long, value_name = "MODEL", group = "served")]
    model: Option<String>,
    /// Name of the model in requests. [default: the last part of MODEL]
    #[arg(long, value_name = "NAME", requires = "model")]
    name: Option<String>,
    /// An adapter on it, a PEFT directory, served under a name of its own; may be given several times.
    #[arg(long, value_name = "NAME=DIR", requires = "model", value_parser = named_dir)]
    adapter: Vec<(String, PathBuf)>,
    /// Precision of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "f32", requires = "model")]
    dtype: ServedPrecision,
    /// Further variables of its chat template, a JSON object: `{"enable_thinking": false}`.
    #[arg(long, value_name = "JSON", requires = "model", value_parser = models::kwargs)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Form in which it writes calls of tools, as `qwen_xml`. [default: that of its chat template]
    #[arg(long, value_name = "FORM", requires = "model", value_parser = models::call_format)]
    calls: Option<CallFormat>,
    /// Form of its thoughts: `think`, `none`, `harmony`, or the texts around them. [default: that of its chat template]
    #[arg(long, value_name = "FORM", requires = "model", value_parser = models::thought_format)]
    thoughts: Option<ThoughtFormat>,
    /// Serve the policies of the run in this directory, each under its name, as they were trained.
    #[arg(long, value_name = "RUN", group = "served")]
    run: Option<PathBuf>,
    /// Checkpoint: `last`, `best` (by validation), or the number of a step; may be given several times. The first has the
    /// plain names, and each has the names `POLICY@STEP`.
    #[arg(long, value_name = "WHICH", default_value = "last", requires = "run", value_parser = which)]
    checkpoint: Vec<Which>,
    /// Serve these policies of the run only; may be given several times.
    #[arg(long, value_name = "NAME", requires = "run")]
    policy: Vec<String>,
    #[command(flatten)]
    requests: RequestArgs,
    /// Directory beneath which clients may load adapters (`POST /v1/load_lora_adapter`).
    #[arg(long, value_name = "DIR", requires = "model")]
    allow_adapters: Option<PathBuf>,
    /// Most adapters that clients may have loaded at once.
    #[arg(long, value_name = "N", default_value = "8", value_parser = number::from_1)]
    max_adapters: NonZeroUsize,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Serves until a signal.
pub(super) fn serve(args: &ServeModelArgs) -> Result<ExitCode, Failure> {
    let settings =
        ModelSettings { allow_adapters: args.allow_adapters.clone(), ..args.requests.settings()? };
    let wanted = args.wanted_models()?;
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let listening = args.listen.open(Limits::default()).await?;
        let url = listening.url.clone();
        let server = ModelServer::new(settings, listening.health.clone());
        let metrics = server.metrics().clone();
        let serving = listening.run(server.router(), "model", metrics, &interrupt);
        let loading = async {
            let entries = args.load(&wanted).await?;
            output::tell(format_args!("serving {} at {url}/v1", names(&entries)));
            let spare = args.spare(&entries);
            server.open(Catalog::new(entries, spare));
            std::future::pending::<Result<(), Failure>>().await
        };
        tokio::select! {
            () = serving => Ok(ExitCode::SUCCESS),
            failed = loading => failed.map(|()| ExitCode::SUCCESS),
        }
    })
}

fn names(entries: &[Entry]) -> String {
    let names: Vec<String> = entries.iter().map(|entry| format!("`{}`", entry.name)).collect();
    names.join(", ")
}

/// Models to serve, whose paths and names are checked. That is done before the server listens. Weights are loaded after it,
/// so that `/health` answers meanwhile.
enum WantedModels<'a> {
    /// A model by its location.
    Model(&'a str, ModelSource),
    /// Policies of a run.
    Policies(Box<Policies<'a>>),
}

impl ServeModelArgs {
    /// Checks the paths and names of everything that is served.
    fn wanted_models(&self) -> Result<WantedModels<'_>, Failure> {
        match (&self.model, &self.run) {
            (Some(model), _) => {
                let source = models::source(model)?;
                self.check_adapters(&self.served_name(model))?;
                Ok(WantedModels::Model(model, source))
            }
            (None, Some(run)) => {
                let policies = Policies::open(run, &self.checkpoint, &self.policy)?;
                Ok(WantedModels::Policies(Box::new(policies)))
            }
            (None, None) => Err(Failure("give `--model` or `--run`".to_owned())),
        }
    }

    /// Loads everything that is served.
    async fn load(&self, wanted: &WantedModels<'_>) -> Result<Vec<Entry>, Failure> {
        match wanted {
            WantedModels::Model(model, source) => self.load_model(model, source).await,
            WantedModels::Policies(policies) => policies.load(&self.requests).await,
        }
    }

    /// Returns the name of the model in requests.
    fn served_name(&self, model: &str) -> String {
        self.name.clone().unwrap_or_else(|| short_name(model))
    }

    /// Refuses equal names, and directories without an adapter.
    fn check_adapters(&self, model: &str) -> Result<(), Failure> {
        let mut names = BTreeSet::from([model]);
        for (adapter, dir) in &self.adapter {
            if !names.insert(adapter) {
                return Err(Failure(format!("two models are called `{adapter}`")));
            }
            paths::adapter(dir)?;
        }
        Ok(())
    }

    async fn load_model(&self, model: &str, source: &ModelSource) -> Result<Vec<Entry>, Failure> {
        let name = self.served_name(model);
        let told = self.chat_template_kwargs.clone().unwrap_or_default();
        let dtype = self.dtype.into();
        let (source, runtime) = (source.clone(), self.requests.runtime(&RuntimeOptions::default()));
        let places = 1 + self.adapter.len() + self.places_for_clients();
        let loaded = tokio::task::spawn_blocking(move || {
            let files = models::fetch_files(&source)?;
            start(&files, dtype, &told, &runtime, places)
        });
        let (host, fingerprint) = loaded.await??;
        let base = Entry::new(name.clone(), &host, 0, model).with_reply_format(
            self.calls.unwrap_or_default(),
            &self.thoughts.clone().unwrap_or_default(),
        );
        let format = Arc::clone(&base.format);
        let base = Entry { fingerprint, ..base };
        let mut entries = vec![base];
        for (place, (adapter, dir)) in (1..).zip(&self.adapter) {
            let fingerprint = host.load_adapter(place, dir, 0).await?;
            let entry = Entry::new(adapter.clone(), &host, place, dir.display().to_string());
            let (parent, format) = (Some(name.clone()), Arc::clone(&format));
            entries.push(Entry { parent, fingerprint, format, ..entry });
        }
        Ok(entries)
    }

    fn places_for_clients(&self) -> usize {
        if self.allow_adapters.is_some() { self.max_adapters.get() } else { 0 }
    }

    /// Returns the places for adapters of clients: the last ones.
    fn spare(&self, entries: &[Entry]) -> Vec<(Host, usize)> {
        let Some(first) = entries.first().filter(|_| self.allow_adapters.is_some()) else {
            return Vec::new();
        };
        (1 + self.adapter.len()..first.host.places()).map(|i| (first.host.clone(), i)).collect()
    }
}

/// Returns the last part of a model's location.
fn short_name(model: &str) -> String {
    let name = model.rsplit(['/', ':']).find(|part| !part.is_empty()).unwrap_or(model);
    name.split('@').next().unwrap_or(name).to_owned()
}

/// Parses `NAME=DIR`.
fn named_dir(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => {
            Ok((name.to_owned(), dir.into()))
        }
        _ => Err("write NAME=DIR".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_by_the_last_part_of_its_location() {
        for (model, name) in [
            ("models/Qwen2.5-0.5B-Instruct", "Qwen2.5-0.5B-Instruct"),
            ("models/qwen/", "qwen"),
            ("hf:Qwen/Qwen2.5-0.5B@main", "Qwen2.5-0.5B"),
            ("builtin:tiny", "tiny"),
        ] {
            assert_eq!(short_name(model), name);
        }
    }

    #[test]
    fn adapters_and_checkpoints_are_read_from_the_command_line() {
        assert_eq!(named_dir("judge=a/b"), Ok(("judge".to_owned(), "a/b".into())));
        assert!(named_dir("judge").is_err() && named_dir("=a").is_err());
        assert_eq!(which("last"), Ok(Which::Last));
        assert_eq!(which("40"), Ok(Which::Step(40)));
        assert_eq!(which("newest"), Err("write `last`, `best` or a step".to_owned()));
        assert_eq!(which("latest"), Err("the newest checkpoint is `last`".to_owned()));
    }
}
