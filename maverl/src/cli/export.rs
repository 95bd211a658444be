//! `maverl export`: a model, an adapter, or a policy of a run, as a directory that other programs load.

mod verifier;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueEnum};

use super::card::{Card, Kind};
use super::{Failure, models, paths, print};
use crate::checkpoint::{Checkpoints, Which};
use crate::files::{Hub, HubId, ModelFiles, ModelSource, SaveOptions, StoredDtype};
use crate::net::Model;
use crate::net::lora::is_adapter;
use crate::run_dir::disk::{
    entries, file_name, name, parent, remove, sync_dir, sync_tree, temporary,
};
use crate::text::Tokenizer;

/// Maximum change of a logit by a merge, relative to the largest (or 1).
const TOLERANCE: f32 = 1e-4;

#[derive(Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(true))]
pub struct ExportArgs {
    /// Model: a Hugging Face directory, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` on the hub, or `builtin:tiny`.
    ///
    /// With `--run`: the base of a policy that is an adapter, if the base has been moved since.
    #[arg(long, value_name = "MODEL", group = "source")]
    model: Option<String>,
    /// Adapter on the model, a PEFT directory.
    #[arg(long, value_name = "DIR", conflicts_with = "run")]
    adapter: Option<PathBuf>,
    /// Export a policy of the run in this directory.
    #[arg(long, value_name = "RUN", group = "source")]
    run: Option<PathBuf>,
    /// Policy to export; needed if the run has several.
    #[arg(long, value_name = "NAME", requires = "run")]
    policy: Option<String>,
    /// Checkpoint: `last`, `best` (by validation), or the number of a step.
    #[arg(long, value_name = "WHICH", default_value = "last", requires = "run", value_parser = which)]
    checkpoint: Which,
    /// Merge the adapter into its base, and write one model; without it, the adapter alone is written.
    #[arg(long)]
    merge: bool,
    /// Export the verifier of a run with `algorithm.name = "verifier"`, as a reward model: in the layout of
    /// `AutoModelForSequenceClassification`, and as `[rewards.NAME.verifier]` and `maverl serve reward --model` read it.
    #[arg(long, requires = "run", conflicts_with_all = ["merge", "adapter", "push_to"])]
    verifier: bool,
    /// Directory to write, new or empty.
    #[arg(long, value_name = "DIR", value_parser = paths::to_write())]
    out: PathBuf,
    /// Type of the stored weights. [default: as `config.json` says; an adapter always f32]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<ExportDtype>,
    /// Maximum size of a file of weights: a number of bytes, or one with KB, MB or GB.
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = size)]
    max_shard_size: u64,
    /// Upload the directory to a repository on the hub, `hf:ORG/NAME`, which is created if necessary.
    ///
    /// The token in `HF_TOKEN` needs permission to write. The base of an adapter must be on the hub, too.
    #[arg(long, value_name = "REPO")]
    push_to: Option<String>,
    /// Create the repository as private.
    #[arg(long, requires = "push_to")]
    private: bool,
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

/// Exports the verifier in the last checkpoint of a run, and returns what was written.
pub fn export_verifier(run: &Path, out: &Path) -> Result<String, Failure> {
    let args = ExportArgs {
        model: None,
        adapter: None,
        run: Some(run.to_owned()),
        policy: None,
        checkpoint: Which::Last,
        merge: false,
        verifier: true,
        out: out.to_owned(),
        dtype: None,
        max_shard_size: SaveOptions::default().shard_bytes,
        push_to: None,
        private: false,
    };
    verifier::export(&args, run)
}

/// Exports the model, adapter or policy of the arguments.
pub fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    writable(&args.out)?;
    if let (true, Some(run)) = (args.verifier, &args.run) {
        return print(&verifier::export(args, run)?);
    }
    let target = args.target()?;
    let (model, origin) = args.open()?;
    if args.merge && model.adapter().is_none() {
        return Err(Failure("`--merge` is for adapters, and there is none".to_owned()));
    }
    let apart = model.adapter().is_some() && !args.merge;
    if target.is_some() && apart && !model.base_name().starts_with("hf:") {
        return Err(Failure(format!(
            "`--push-to`: the base of the adapter, {}, is not on the hub, so nobody could load it; `--merge` makes one \
             model of both",
            model.base_name()
        )));
    }
    let card = origin.card(if apart { Kind::Adapter } else { Kind::Model })?.text();
    let told = whole(&args.out, |dir| {
        std::fs::write(dir.join(CARD), &card)
            .map_err(|e| Failure(format!("cannot write {}: {e}", dir.join(CARD).display())))?;
        if apart {
            return adapter(&model, dir, &args.out);
        }
        let dtype = args.dtype.map_or_else(|| model.stored_dtype(), StoredDtype::from);
        let options = SaveOptions { dtype, shard_bytes: args.max_shard_size };
        if args.merge {
            return merged(&model, dir, &options);
        }
        model.save_full(dir, &options)?;
        Ok(format!("a model of {} parameters in {}", model.weights.parameters(), dtype.name()))
    })?;
    print(&format!("wrote {}: {told}{}", args.out.display(), origin.told()))?;
    let Some((hub, id)) = target else { return Ok(ExitCode::SUCCESS) };
    let at = hub.push(&id, &args.out, args.private).map_err(|error| {
        let dir = args.out.display();
        Failure(format!("{error}. {dir} is written; `hf upload` can upload it, too"))
    })?;
    print(&format!("uploaded {id}: {at}"))
}

/// The model card.
const CARD: &str = "README.md";
/// Where a built-in base is written, within the adapter's directory.
const BASE: &str = "base";

/// Writes an adapter with its tokenizer. A base that no other program has is written beside it.
fn adapter(model: &Model, dir: &Path, out: &Path) -> Result<String, Failure> {
    const TOLD: &str = "an adapter; `--merge` would make one model of it and its base";
    let base = model.base_name();
    if !base.starts_with("builtin:") {
        model.save_adapter(dir, base)?;
        return Ok(format!("{TOLD}. Its base is {base}"));
    }
    let place = std::path::absolute(out).map_err(|e| Failure(format!("{}: {e}", out.display())))?;
    let place = place.join(BASE);
    model.save_adapter(dir, &place.display().to_string())?;
    let beside = dir.join(BASE);
    std::fs::create_dir(&beside)
        .map_err(|e| Failure(format!("cannot make {}: {e}", beside.display())))?;
    model.save_full(
        &beside,
        &SaveOptions { dtype: model.stored_dtype(), ..SaveOptions::default() },
    )?;
    Ok(format!(
        "{TOLD}. Its base, {base}, is in {}, which `base_model_name_or_path` of `adapter_config.json` names: write another \
         path there if you move it",
        place.display()
    ))
}

/// Where an exported model is from.
enum ExportOrigin {
    /// A model as users write it.
    Model(String),
    /// A policy of a run, at a step; its base, where it is an adapter.
    Policy { run: PathBuf, policy: String, step: u64, base: Option<String> },
}

impl ExportOrigin {
    /// Returns the policy and the step, for the message about what was written.
    fn told(&self) -> String {
        match self {
            Self::Model(_) => String::new(),
            Self::Policy { policy, step, .. } => format!(" (policy `{policy}`, step {step})"),
        }
    }

    fn card(&self, kind: Kind) -> Result<Card, Failure> {
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
    fn target(&self) -> Result<Option<(Hub, HubId)>, Failure> {
        let Some(text) = &self.push_to else { return Ok(None) };
        let id = text.strip_prefix("hf:").ok_or_else(|| {
            Failure(format!("`--push-to` is {text:?}; a repository of the hub is `hf:ORG/NAME`"))
        })?;
        let (hub, id) = (Hub::from_env()?, HubId::parse(id)?);
        hub.check_push(&id)?;
        Ok(Some((hub, id)))
    }

    fn open(&self) -> Result<(Model, ExportOrigin), Failure> {
        let (model, adapter, origin) = match &self.run {
            None => {
                let model = self.model.clone().unwrap_or_default();
                (model.clone(), self.adapter.clone(), ExportOrigin::Model(model))
            }
            Some(run) => {
                let (dir, step) = policy(run, self.checkpoint, self.policy.as_deref())?;
                let (run, policy) = (run.clone(), name(&dir).replace("%2F", "/"));
                let origin = |base| ExportOrigin::Policy { run, policy, step, base };
                if is_adapter(&dir) {
                    let base = self.base(&dir)?;
                    (base.clone(), Some(dir), origin(Some(base)))
                } else if self.model.is_some() {
                    return Err(Failure(
                        "`--model` is the base of an adapter, and this policy is none: it has its own weights; leave \
                         `--model` out"
                            .to_owned(),
                    ));
                } else {
                    (dir.display().to_string(), None, origin(None))
                }
            }
        };
        let files = models::files(&model)?;
        // The tokenizer is copied unchanged; a damaged one would make the export useless.
        Tokenizer::load(&files)?;
        Ok((models::load(&files, adapter.as_deref())?, origin))
    }

    /// Returns the base of a policy that is an adapter.
    fn base(&self, dir: &Path) -> Result<String, Failure> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let place = dir.display();
        match models::base(dir)? {
            None => Err(Failure(format!("{place} does not name its base; give it as `--model`"))),
            Some(base) if !base.contains(':') && !Path::new(&base).is_dir() => Err(Failure(
                format!("{place} has the base {base}, which is not there; give it as `--model`"),
            )),
            Some(base) => Ok(base),
        }
    }
}

/// The directory of a policy in a checkpoint, and the checkpoint's step.
fn policy(run: &Path, which: Which, policy: Option<&str>) -> Result<(PathBuf, u64), Failure> {
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

/// Writes a model with its adapter merged, reads it back, and compares it with the unmerged one.
fn merged(model: &Model, dir: &Path, options: &SaveOptions) -> Result<String, Failure> {
    let (merged, exact) = model.merge()?;
    merged.save_full(dir, options)?;
    drop(merged);
    let written = Model::load(&ModelFiles::new(&ModelSource::Directory(dir.to_owned())))?;
    let (ours, theirs) = (logits(model)?, logits(&written)?);
    let size = ours.iter().fold(1.0_f32, |most, logit| most.max(logit.abs()));
    let differences = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
    // `max` would skip a logit that is not a number.
    let worst = differences.fold(0.0_f32, |w, d| if d > w || d.is_nan() { d } else { w });
    let n = ours.len() / model.config.vocab_size;
    if options.dtype == StoredDtype::F32 {
        return if worst <= TOLERANCE * size {
            Ok(format!("merged in float32; on {n} tokens no logit moves by more than {worst:.1e}"))
        } else {
            Err(Failure(format!(
                "the merged model's logits are off by {worst:e}, of at most {:e}; nothing is written",
                TOLERANCE * size
            )))
        };
    }
    let name = options.dtype.name();
    Ok(format!(
        "merged; on {n} tokens no logit moves by more than {exact:.1e} in float32, before the weights are rounded, and \
         {worst:.1e} as written in {name}"
    ))
}

/// Returns logits of ids spread over the vocabulary.
fn logits(model: &Model) -> Result<Vec<f32>, Failure> {
    let n = model.config.max_position_embeddings.min(64);
    let ids: Vec<u32> = (0..n).map(|i| (i * 7919 % model.config.vocab_size) as u32).collect();
    Ok(model.logits(&ids)?)
}

/// Fails for a directory that is not empty.
pub fn writable(out: &Path) -> Result<(), Failure> {
    if out.exists() && (!out.is_dir() || !entries(out)?.is_empty()) {
        return Err(Failure(format!("{} is not empty; give another `--out`", out.display())));
    }
    Ok(())
}

/// Writes a directory that appears under its name only when it is complete.
pub fn whole<T>(out: &Path, write: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<T, Failure> {
    let staged = temporary(out);
    remove(&staged)?;
    let made = std::fs::create_dir_all(&staged)
        .map_err(|e| Failure(format!("cannot make {}: {e}", staged.display())))
        .and_then(|()| write(&staged))
        .and_then(|told| {
            sync_tree(&staged)?;
            std::fs::rename(&staged, out)
                .map_err(|e| Failure(format!("cannot write {}: {e}", out.display())))?;
            sync_dir(parent(out))?;
            Ok(told)
        });
    if made.is_err() {
        // A remaining temporary directory only takes space. The first error is the one to report.
        let _ = remove(&staged);
    }
    made
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
