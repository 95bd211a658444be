//! `maverl export --verifier`: the head and trunk of a verifier as a reward model.

use std::path::Path;

use serde_json::json;

use crate::checkpoint::Which;
use crate::cli::card::Kind;
use crate::cli::export::directory::{CARD, write_text, write_whole};
use crate::cli::export::source::{ExportArgs, ExportOrigin, policy_dir};
use crate::cli::failure::Failure;
use crate::cli::models;
use crate::data::SEEN;
use crate::files::{SaveOptions, StoredDtype};
use crate::net::lora::is_adapter;
use crate::net::{HeadKind, RewardHead, RewardModel, ValueHead};
use crate::run_dir::disk::name;
use crate::train::{VERIFIER, VerifierRecord};

/// Exports the verifier in the last checkpoint of a run, and returns what was written.
pub(in crate::cli) fn export_verifier(run: &Path, out: &Path) -> Result<String, Failure> {
    let args = ExportArgs {
        model: None,
        adapter: None,
        run: Some(run.to_owned()),
        policy: None,
        checkpoint: Which::Last,
        merge: false,
        verifier: true,
        gguf: None,
        gguf_pre: None,
        modelfile: false,
        out: out.to_owned(),
        dtype: None,
        max_shard_size: SaveOptions::default().shard_bytes,
        push_to: None,
        private: false,
    };
    export(&args, run)
}

/// Exports the verifier of a run, and returns what was written.
pub(super) fn export(args: &ExportArgs, run: &Path) -> Result<String, Failure> {
    let (dir, step) = policy_dir(run, args.checkpoint, args.policy.as_deref())?;
    let critic = dir.join("critic");
    let record = record(&dir)?;
    let (base, adapter) = if is_adapter(&critic) {
        (args.base_model(&critic)?, Some(critic.as_path()))
    } else {
        (critic.display().to_string(), None)
    };
    let files = models::files(&base)?;
    let model = models::load(&files, adapter)?;
    let model = if adapter.is_some() { model.merge()?.0 } else { model };
    let kinds = [HeadKind::Reward, HeadKind::Likelihood].into_iter();
    let mut heads = kinds.map(|kind| ValueHead::load(kind, &critic, &model.config));
    let head = heads.find_map(Result::transpose).transpose()?.ok_or_else(|| no_verifier(run))?;
    let dtype = args.dtype.map_or_else(|| model.stored_dtype(), StoredDtype::from);
    let options = SaveOptions { dtype, shard_bytes: args.max_shard_size };
    let policy = name(&dir).replace("%2F", "/");
    let origin = ExportOrigin::Policy { run: run.to_owned(), policy, step, base: None };
    let card = origin.card(Kind::Model)?.text();
    let settings = RewardHead::new(record.temperature, record.offset);
    let model = RewardModel::new(model, head, settings)?;
    write_whole(&args.out, |dir| {
        write_text(&dir.join(CARD), &card)?;
        write_text(&dir.join(SEEN), &format!("{:#}\n", json!({"tasks": record.tasks})))?;
        Ok(model.save(dir, &options)?)
    })?;
    Ok(format!(
        "wrote {}: a reward model of step {step} in {}, temperature {:.3}, offset {:.3}, trained on {} questions",
        args.out.display(),
        dtype.name(),
        record.temperature,
        record.offset,
        record.tasks.len()
    ))
}

/// Reads the state of the verifier beside the policies of a checkpoint.
fn record(policy: &Path) -> Result<VerifierRecord, Failure> {
    let checkpoint = policy.parent().and_then(Path::parent).unwrap_or(policy);
    let path = checkpoint.join(VERIFIER);
    let bytes = std::fs::read(&path).map_err(|_| no_verifier(checkpoint))?;
    serde_json::from_slice(&bytes).map_err(|e| Failure(format!("{}: {e}", path.display())))
}

fn no_verifier(place: &Path) -> Failure {
    Failure(format!(
        "{} has no verifier: train one with `algorithm.name = \"verifier\"`",
        place.display()
    ))
}
