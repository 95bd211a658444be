//! `maverl export`: a model, an adapter, or a policy of a run, as a directory or a file that other programs load.

mod directory;
#[cfg(feature = "candle")]
mod gguf;
mod source;
pub(super) mod verifier;

pub use directory::{writable, write_whole};
pub use source::{ExportArgs, ExportDtype, GgufKind, which};

use std::path::Path;
use std::process::ExitCode;

use crate::cli::card::Kind;
use crate::cli::export::directory::{CARD, write_text};
use crate::cli::failure::Failure;
use crate::cli::terminal::print;
use crate::files::{ModelFiles, ModelSource, SaveOptions, StoredDtype};
use crate::net::Model;
#[cfg(feature = "candle")]
use gguf::export_gguf;

/// Maximum change of a logit by a merge, relative to the largest (or 1).
const TOLERANCE: f32 = 1e-4;

/// Exports the model, adapter or policy of the arguments.
pub fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    if let Some(kind) = args.gguf {
        return print(&export_gguf(args, kind)?);
    }
    writable(&args.out)?;
    if let (true, Some(run)) = (args.verifier, &args.run) {
        return print(&verifier::export(args, run)?);
    }
    let target = args.target()?;
    let (model, _, origin) = args.open()?;
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
    let told = write_whole(&args.out, |dir| {
        write_text(&dir.join(CARD), &card)?;
        if apart {
            return adapter(&model, dir, &args.out);
        }
        let dtype = args.dtype.map_or_else(|| model.stored_dtype(), StoredDtype::from);
        let options = SaveOptions { dtype, shard_bytes: args.max_shard_size };
        if args.merge {
            return write_merged(&model, dir, &options);
        }
        model.save_full(dir, &options)?;
        Ok(format!("a model of {} parameters in {}", model.weights.parameters(), dtype.name()))
    })?;
    print(&format!("wrote {}: {told}{}", args.out.display(), origin.describe_origin()))?;
    let Some((hub, id)) = target else { return Ok(ExitCode::SUCCESS) };
    let at = hub.push(&id, &args.out, args.private).map_err(|error| {
        let dir = args.out.display();
        Failure(format!("{error}. {dir} is written; `hf upload` can upload it, too"))
    })?;
    print(&format!("uploaded {id}: {at}"))
}

/// Returns the error of a program that writes no GGUF files.
#[cfg(not(feature = "candle"))]
fn export_gguf(_: &ExportArgs, _: GgufKind) -> Result<String, Failure> {
    Err(Failure(concat!("`--gguf`: ", crate::lacks_feature!("candle")).to_owned()))
}

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

/// Writes a model with its adapter merged, reads it back, and compares it with the unmerged one.
fn write_merged(model: &Model, dir: &Path, options: &SaveOptions) -> Result<String, Failure> {
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
