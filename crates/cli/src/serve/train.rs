//! `maverl serve train`: adapters of several clients on one base, by the Tinker API.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::engine::ServedPrecision;
use super::listen::ListenArgs;
use crate::{Failure, block_on, models, number};
use maverl::check::available_memory;
use maverl::config::{Dtype, RuntimeOptions};
use maverl::files::{ModelFiles, ModelSource};
use maverl::net::Model;
use maverl::output;
use maverl::plan::{activation_bytes, bytes};
use maverl::runtime::{LoraSpec, TrainingHost};
use maverl::text::Tokenizer;
use maverl::train::Interrupt;
use maverl_serve::Limits;
use maverl_serve::tinker::{TinkerServer, TinkerSettings, TrainedBase, router};

/// Files of a tokenizer, from which a client loads it.
const TOKENIZER_FILES: [&str; 4] =
    ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

#[derive(Args)]
pub(crate) struct ServeTrainArgs {
    /// A base: a Hugging Face directory, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub, or `builtin:tiny`. Clients call it by
    /// its name on the hub, the last part of its directory, or `builtin:tiny`. May be given several times.
    #[arg(long, value_name = "MODEL", required = true)]
    model: Vec<String>,
    /// Directory of checkpoints. A server that is started again with the same directory reads those of the one before.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Most models of clients at once, of each base. Fewer, with a warning, if the memory has no room for as many of the largest
    /// rank.
    #[arg(long, value_name = "N", default_value = "16", value_parser = number::from_1)]
    max_models: NonZeroUsize,
    /// Largest rank of an adapter.
    #[arg(long, value_name = "N", default_value = "64", value_parser = number::from_1)]
    max_rank: NonZeroUsize,
    /// Numerator of the scale of adapters, `alpha / rank`.
    #[arg(long, value_name = "ALPHA", default_value = "32", value_parser = above_0)]
    lora_alpha: f64,
    /// Most adapters for samples that are in memory at once, of each base; others are loaded when they are asked for.
    #[arg(long, value_name = "N", default_value = "8", value_parser = number::from_1)]
    max_samplers: NonZeroUsize,
    /// Precision of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: ServedPrecision,
    /// Most samples that are generated at once.
    #[arg(long, value_name = "N", default_value = "64", value_parser = number::from_1)]
    max_requests: NonZeroUsize,
    /// Most tokens of a part of a pass that is computed at once.
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    micro_batch_tokens: Option<NonZeroUsize>,
    /// MiB of keys and values. [default: that of `runtime.kv_mib`]
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    kv_mib: Option<NonZeroUsize>,
    /// Threads of the numeric kernels; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    threads: usize,
    /// Largest body of a request in MiB, unpacked.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number::from_0)]
    max_body_mib: usize,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Parses a number above 0.
fn above_0(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "write a number above 0".to_owned())
}

/// Serves until a signal.
pub(super) fn serve(args: &ServeTrainArgs) -> Result<ExitCode, Failure> {
    let wanted = args.wanted()?;
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let listening = args.listen.open(Limits::default()).await?;
        let url = listening.url.clone();
        let server = TinkerServer::new(args.settings(), listening.health.clone());
        let metrics = server.metrics().clone();
        let serving = listening.run(router(&server), "train", metrics, &interrupt);
        let loading = async {
            let names: Vec<String> = wanted.iter().map(|(name, _)| format!("`{name}`")).collect();
            let (names, own) = (names.join(", "), args.clone_for_loading());
            let bases = tokio::task::spawn_blocking(move || own.load(&wanted)).await??;
            server.open(bases).map_err(Failure)?;
            output::tell(format_args!("training {names} at {url}; TINKER_BASE_URL={url}"));
            server.watch_sessions().await;
            Ok::<(), Failure>(())
        };
        tokio::select! {
            () = serving => Ok(ExitCode::SUCCESS),
            failed = loading => failed.map(|()| ExitCode::SUCCESS),
        }
    })
}

/// Settings with which the bases are loaded and served.
struct Loading {
    out: PathBuf,
    max_models: usize,
    max_rank: usize,
    lora_alpha: f64,
    max_samplers: usize,
    dtype: Dtype,
    runtime: RuntimeOptions,
}

impl ServeTrainArgs {
    /// Returns the names and sources of the bases.
    fn wanted(&self) -> Result<Vec<(String, ModelSource)>, Failure> {
        let (mut names, mut wanted) = (BTreeSet::new(), Vec::new());
        for model in &self.model {
            let name = name_of(model);
            if !names.insert(name.clone()) {
                return Err(Failure(format!("two bases are called `{name}`")));
            }
            wanted.push((name, models::source(model)?));
        }
        Ok(wanted)
    }

    fn settings(&self) -> TinkerSettings {
        TinkerSettings {
            out: self.out.clone(),
            max_rank: self.max_rank.get(),
            lora_alpha: self.lora_alpha,
            max_body: self.max_body_mib.max(1) << 20,
        }
    }

    fn clone_for_loading(&self) -> Loading {
        let defaults = RuntimeOptions::default();
        let runtime = RuntimeOptions {
            threads: self.threads,
            max_requests: self.max_requests,
            kv_mib: self.kv_mib.unwrap_or(defaults.kv_mib),
            micro_batch_tokens: self.micro_batch_tokens.unwrap_or(defaults.micro_batch_tokens),
            ..defaults
        };
        Loading {
            out: self.out.clone(),
            max_models: self.max_models.get(),
            max_rank: self.max_rank.get(),
            lora_alpha: self.lora_alpha,
            max_samplers: self.max_samplers.get(),
            dtype: self.dtype.into(),
            runtime,
        }
    }
}

impl Loading {
    /// Loads the bases, and starts their threads.
    fn load(&self, wanted: &[(String, ModelSource)]) -> Result<Vec<TrainedBase>, Failure> {
        let loaded = wanted.iter().map(|(name, source)| {
            let files = models::fetch_files(source)?;
            let tokenizer = Arc::new(Tokenizer::load(&files)?);
            let model = models::load(&files, None)?;
            Ok((name, files, tokenizer, model))
        });
        let loaded = loaded.collect::<Result<Vec<_>, Failure>>()?;
        let bases: Vec<&Model> = loaded.iter().map(|(.., model)| model).collect();
        let max_models = self.models_that_fit(&bases, available_memory())?;
        let places = 1 + max_models + self.max_samplers;
        let mut trained = Vec::with_capacity(loaded.len());
        for (name, files, tokenizer, model) in &loaded {
            let options = (&self.runtime, self.dtype);
            let host = TrainingHost::start(name, model, tokenizer, options, places)?;
            let tokenizer = self.tokenizer_place(name, files)?;
            trained.push(TrainedBase { name: (*name).clone(), host, tokenizer, max_models });
        }
        Ok(trained)
    }

    /// Returns the number of models of each base that the memory has room for, at most `--max-models`.
    fn models_that_fit(&self, bases: &[&Model], memory: Option<u64>) -> Result<usize, Failure> {
        let lora = LoraSpec { rank: self.max_rank, alpha: self.lora_alpha, ..LoraSpec::default() };
        let tokens = self.runtime.micro_batch_tokens.get();
        let (mut fixed, mut one, mut activations) = (0, 0, 0);
        for base in bases {
            // In updates as they are stored, in samples repacked.
            let weights = 8 * base.trainable().elements() as u64;
            let cache = (self.runtime.kv_mib.get() as u64) << 20;
            let samplers =
                TrainingHost::adapter_bytes(&base.config, &lora)? / 4 * self.max_samplers as u64;
            let precision = self.dtype.into();
            activations =
                activations.max(activation_bytes(&base.config, tokens, tokens, false, precision));
            fixed += weights + cache + samplers;
            one += TrainingHost::adapter_bytes(&base.config, &lora)?;
        }
        let Some(memory) = memory else { return Ok(self.max_models) };
        let fixed = fixed + activations;
        let fits = usize::try_from(memory.saturating_sub(fixed) / one.max(1)).unwrap_or(usize::MAX);
        let (rank, wanted) = (self.max_rank, self.max_models);
        if fits == 0 {
            return Err(Failure(format!(
                "the bases, keys and values and a pass take up to {}, and a model of rank {rank} {}; this machine has {}. Lower \
                 `--kv-mib`, `--micro-batch-tokens` or `--max-rank`",
                bytes(fixed),
                bytes(one),
                bytes(memory)
            )));
        }
        if fits < wanted {
            output::tell(format_args!(
                "warning: the memory has room for {fits} models of rank {rank} instead of `--max-models` {wanted}: {} each beside {} \
                 of {}",
                bytes(one),
                bytes(fixed),
                bytes(memory)
            ));
        }
        Ok(fits.min(wanted))
    }

    /// Returns the name on the hub or the directory from which clients load a tokenizer. That of a built-in model is written below
    /// the directory of checkpoints.
    fn tokenizer_place(&self, name: &str, files: &ModelFiles) -> Result<String, Failure> {
        if let Some(dir) = files.directory() {
            let on_hub = name.contains('/');
            return Ok(if on_hub {
                name.to_owned()
            } else {
                fs::canonicalize(dir)?.display().to_string()
            });
        }
        let dir = self.out.join("tokenizers").join(name.replace(':', "-"));
        fs::create_dir_all(&dir)?;
        for file in TOKENIZER_FILES {
            if let Some(content) = files.read(file)? {
                fs::write(dir.join(file), content)?;
            }
        }
        Ok(fs::canonicalize(dir)?.display().to_string())
    }
}

/// Returns the name of a base in requests.
fn name_of(model: &str) -> String {
    if let Some(on_hub) = model.strip_prefix("hf:") {
        return on_hub.split('@').next().unwrap_or(on_hub).to_owned();
    }
    if model.starts_with("builtin:") {
        return model.to_owned();
    }
    let last = Path::new(model).file_name();
    last.map_or_else(|| model.to_owned(), |last| last.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_called_as_clients_know_it() {
        for (model, name) in [
            ("hf:Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
            ("hf:Qwen/Qwen3-0.6B@main", "Qwen/Qwen3-0.6B"),
            ("builtin:generalist", "builtin:generalist"),
            ("models/Qwen3-4B/", "Qwen3-4B"),
        ] {
            assert_eq!(name_of(model), name);
        }
    }

    #[test]
    fn as_many_models_are_allowed_as_the_memory_has_room_for() {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let Ok(model) = Model::load(&files) else { panic!("the shipped model loads") };
        let loading = Loading {
            out: PathBuf::new(),
            max_models: 16,
            max_rank: 64,
            lora_alpha: 32.0,
            max_samplers: 8,
            dtype: Dtype::F32,
            runtime: RuntimeOptions::default(),
        };
        let fit = |memory| loading.models_that_fit(&[&model], memory).map_err(|Failure(told)| told);
        assert_eq!(fit(None), Ok(16));
        assert_eq!(fit(Some(1 << 40)), Ok(16));
        let told = fit(Some(1 << 20)).err().unwrap_or_default();
        assert!(
            told.contains("a model of rank 64") && told.contains("this machine has 1"),
            "{told}"
        );
        let lora = LoraSpec { rank: 64, ..LoraSpec::default() };
        let one = TrainingHost::adapter_bytes(&model.config, &lora).unwrap_or(0);
        let mut memory = 4 << 30;
        while fit(Some(memory)).is_err() {
            memory += one;
        }
        assert_eq!(fit(Some(memory + 2 * one)), Ok(3));
    }
}
