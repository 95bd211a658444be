//! Arguments of an export, and the model that they name.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};

use crate::checkpoint::{Checkpoints, Which};
use crate::cli::card::{Card, Kind};
use crate::cli::failure::Failure;
use crate::cli::{models, paths};
use crate::files::{Hub, HubId, ModelFiles, StoredDtype};
use crate::net::Model;
use crate::net::lora::is_adapter;
use crate::run_dir::disk::{entries, file_name, name};
use crate::text::Tokenizer;

/// Arguments of `maverl export`.
#[derive(Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(true))]
pub struct ExportArgs {
    /// Model: a Hugging Face directory, a GGUF file, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub, or `builtin:tiny`.
    ///
    /// With `--run`: the base of a policy that is an adapter, if the base has been moved since.
    #[arg(long, value_name = "MODEL", group = "source")]
    pub(super) model: Option<String>,
    /// Adapter on the model, a PEFT directory.
    #[arg(long, value_name = "DIR", conflicts_with = "run")]
    pub(super) adapter: Option<PathBuf>,
    /// Export a policy of the run in this directory.
    #[arg(long, value_name = "RUN", group = "source")]
    pub(super) run: Option<PathBuf>,
    /// Policy to export; needed if the run has several.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(super) policy: Option<String>,
    /// Checkpoint: `last`, `best` (by validation), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "last", requires = "run", value_parser = which)]
    pub(super) checkpoint: Which,
    /// Merge the adapter into its base, and write one model; without it, the adapter alone is written.
    #[arg(long)]
    pub(super) merge: bool,
    /// Export the verifier of a run with `algorithm.name = "verifier"`, as a reward model: in the layout of
    /// `AutoModelForSequenceClassification`, and as `[rewards.NAME.verifier]` and `maverl serve reward --model` read it.
    #[arg(long, requires = "run", conflicts_with_all = ["merge", "adapter", "push_to"])]
    pub(super) verifier: bool,
    /// Write one GGUF file, which llama.cpp and programs built on it load, with numbers of this kind (feature `candle`).
    ///
    /// `q8_0` rounds all matrices to blocks of 8-bit numbers. With `q4_k`, `q5_k` and `q6_k`, embedding and head are Q6_K, and
    /// rows whose width is no multiple of 256 are Q8_0. Without `--merge`, an adapter alone is written, as f32, f16 or bf16.
    #[arg(long, value_name = "KIND", conflicts_with_all = ["verifier", "dtype", "push_to"])]
    pub(super) gguf: Option<GgufKind>,
    /// Name of llama.cpp for the way in which the tokenizer splits texts (`tokenizer.ggml.pre`), where it is not known.
    #[arg(long, value_name = "NAME", requires = "gguf")]
    #[cfg_attr(not(feature = "candle"), allow(dead_code))]
    pub(super) gguf_pre: Option<String>,
    /// Write a `Modelfile` for ollama beside the GGUF file.
    #[arg(long, requires = "gguf")]
    #[cfg_attr(not(feature = "candle"), allow(dead_code))]
    pub(super) modelfile: bool,
    /// Directory to write, new or empty; with `--gguf`, a new file.
    #[arg(long, value_name = "PATH", value_parser = paths::to_write())]
    pub(super) out: PathBuf,
    /// Type of the stored weights. [default: as `config.json` says; an adapter always f32]
    #[arg(long, value_name = "TYPE")]
    pub(super) dtype: Option<ExportDtype>,
    /// Maximum size of a file of weights: a number of bytes, or one with KB, MB or GB.
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = size)]
    pub(super) max_shard_size: u64,
    /// Upload the directory to a repository on the hub, `hf:ORG/NAME`, which is created if necessary.
    ///
    /// The token in `HF_TOKEN` needs permission to write. The base of an adapter must be on the hub, too.
    #[arg(long, value_name = "REPO")]
    pub(super) push_to: Option<String>,
    /// Create the repository as private.
    #[arg(long, requires = "push_to")]
    pub(super) private: bool,
}

/// Number type of stored weights.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportDtype {
    /// 32 bits, as trained.
    F32,
    /// The upper half of f32.
    Bf16,
    /// Half precision.
    F16,
}

/// Kind of the numbers in a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GgufKind {
    /// Blocks of 8-bit numbers.
    #[value(name = "q8_0")]
    Q8,
    /// Blocks of 4-bit numbers.
    #[value(name = "q4_k")]
    Q4,
    /// Blocks of 5-bit numbers.
    #[value(name = "q5_k")]
    Q5,
    /// Blocks of 6-bit numbers.
    #[value(name = "q6_k")]
    Q6,
    /// Half precision.
    F16,
    /// The upper half of f32.
    Bf16,
    /// 32 bits, as trained.
    F32,
}

impl From<ExportDtype> for StoredDtype {
    fn from(dtype: ExportDtype) -> Self {
        match dtype {
            ExportDtype::F32 => Self::F32,
            ExportDtype::Bf16 => Self::Bf16,
            ExportDtype::F16 => Self::F16,
        }
    }
}

/// Parses a checkpoint.
pub fn which(text: &str) -> Result<Which, String> {
    match text {
        "last" => Ok(Which::Last),
        "latest" => Err("the newest checkpoint is `last`".to_owned()),
        "best" => Ok(Which::Best),
        step => {
            step.parse().map(Which::Step).map_err(|_| "write `last`, `best` or a step".to_owned())
        }
    }
}

/// Where an exported model is from.
pub(super) enum ExportOrigin {
    /// A model as users write it.
    Model(String),
    /// A policy of a run, at a step; its base, where it is an adapter.
    Policy { run: PathBuf, policy: String, step: u64, base: Option<String> },
}

impl ExportOrigin {
    /// Returns the policy and the step, for the message about what was written.
    pub(super) fn describe_origin(&self) -> String {
        match self {
            Self::Model(_) => String::new(),
            Self::Policy { policy, step, .. } => format!(" (policy `{policy}`, step {step})"),
        }
    }

    pub(super) fn card(&self, kind: Kind) -> Result<Card, Failure> {
        match self {
            Self::Model(base) => Ok(Card::new(kind, base)),
            Self::Policy { run, policy, step, base } => {
                Card::of_run(kind, base.as_deref(), (run, policy, *step))
            }
        }
    }
}

impl ExportArgs {
    /// The repository to upload to, if there is one.
    pub(super) fn target(&self) -> Result<Option<(Hub, HubId)>, Failure> {
        let Some(text) = &self.push_to else { return Ok(None) };
        let id = text.strip_prefix("hf:").ok_or_else(|| {
            Failure(format!("`--push-to` is {text:?}; a repository of the hub is `hf:ORG/NAME`"))
        })?;
        let (hub, id) = (Hub::from_env()?, HubId::parse(id)?);
        hub.check_push(&id)?;
        Ok(Some((hub, id)))
    }

    /// Opens the model, under its adapter if it has one, with its files.
    pub(super) fn open(&self) -> Result<(Model, ModelFiles, ExportOrigin), Failure> {
        let (model, adapter, origin) = match &self.run {
            None => {
                let model = self.model.clone().unwrap_or_default();
                (model.clone(), self.adapter.clone(), ExportOrigin::Model(model))
            }
            Some(run) => {
                let (dir, step) = policy_dir(run, self.checkpoint, self.policy.as_deref())?;
                let (run, policy) = (run.clone(), name(&dir).replace("%2F", "/"));
                let (model, adapter, base) = if is_adapter(&dir) {
                    let base = self.base_model(&dir)?;
                    (base.clone(), Some(dir), Some(base))
                } else if self.model.is_some() {
                    return Err(Failure(
                        "`--model` is the base of an adapter, and this policy is none: it has its own weights; leave \
                         `--model` out"
                            .to_owned(),
                    ));
                } else {
                    (dir.display().to_string(), None, None)
                };
                (model, adapter, ExportOrigin::Policy { run, policy, step, base })
            }
        };
        let files = models::files(&model)?;
        // The tokenizer is copied unchanged; a damaged one would make the export useless.
        Tokenizer::load(&files)?;
        Ok((models::load(&files, adapter.as_deref())?, files, origin))
    }

    /// Returns the base of a policy that is an adapter.
    pub(super) fn base_model(&self, dir: &Path) -> Result<String, Failure> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let place = dir.display();
        match models::base_name(dir)? {
            None => Err(Failure(format!("{place} does not name its base; give it as `--model`"))),
            Some(base) if !base.contains(':') && !Path::new(&base).exists() => Err(Failure(
                format!("{place} has the base {base}, which is not there; give it as `--model`"),
            )),
            Some(base) => Ok(base),
        }
    }
}

/// The directory of a policy in a checkpoint, and the checkpoint's step.
pub(super) fn policy_dir(
    run: &Path,
    which: Which,
    policy: Option<&str>,
) -> Result<(PathBuf, u64), Failure> {
    let run = paths::run(run)?;
    let checkpoint = Checkpoints::of(run.path()).open(which)?;
    let step = checkpoint.state.step;
    let dirs = entries(&checkpoint.path().join("policies"))?;
    let known = dirs.iter().map(|dir| name(dir)).collect::<Vec<_>>().join("`, `");
    match (policy, dirs.as_slice()) {
        (None, [only]) => Ok((only.clone(), step)),
        (None, _) => Err(Failure(format!(
            "the run has several policies: give one of `{known}` as `--policy`"
        ))),
        (Some(policy), _) => {
            let found = dirs.iter().find(|dir| name(dir) == file_name(policy));
            found.cloned().map(|dir| (dir, step)).ok_or_else(|| {
                Failure(format!("the run has no policy `{policy}`; it has `{known}`"))
            })
        }
    }
}

/// Parses `5000`, `300MB`, `5GB`; units are powers of 1000, as in `save_pretrained`.
fn size(text: &str) -> Result<u64, String> {
    let upper = text.to_uppercase();
    let units = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let unit = units.iter().find_map(|(name, unit)| Some((upper.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((&upper, 1_u64));
    let bytes = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "write bytes, or as `300MB` or `5GB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_with_or_without_a_unit() {
        assert_eq!(size("5000"), Ok(5000));
        assert_eq!(size("300MB"), Ok(300_000_000));
        assert_eq!(size("5gb"), Ok(5_000_000_000));
        for wrong in ["", "0", "-1", "1.5GB", "5TB", "99999999999999GB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
