//! `maverl export --gguf`: a model or an adapter as one file, which is complete or not there.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use crate::cli::export::directory::write_text;
use crate::cli::export::source::{ExportArgs, GgufKind};
use crate::cli::failure::Failure;
use crate::files::gguf::NumberKind;
use crate::net::{GgufOptions, GgufReport, Model};
use crate::plan::bytes;
use crate::run_dir::disk::{parent, remove, sync_dir, temporary};
use crate::text::Tokenizer;

/// Name of the file that ollama reads.
const MODELFILE: &str = "Modelfile";

/// Writes the file, and returns what was written.
pub(super) fn export_gguf(args: &ExportArgs, kind: GgufKind) -> Result<String, Failure> {
    let beside = args.modelfile.then(|| parent(&args.out).join(MODELFILE));
    for path in [Some(&args.out), beside.as_ref()].into_iter().flatten() {
        if path.exists() {
            let name = path.display();
            return Err(Failure(format!("{name} is there already; give another `--out`")));
        }
    }
    let (model, files, origin) = args.open()?;
    if args.merge && model.adapter().is_none() {
        return Err(Failure("`--merge` is for adapters, and there is none".to_owned()));
    }
    let name = args.out.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let options = GgufOptions { kind: kind.into(), pre: args.gguf_pre.clone(), name };
    let apart = model.adapter().is_some() && !args.merge;
    let model = if args.merge { model.merge()?.0 } else { model };
    let base = model.base_name().to_owned();
    let report = write_whole(&args.out, |staged| {
        let written = if apart {
            model.save_gguf_adapter(staged, &options)
        } else {
            model.save_gguf(staged, &files, &options)
        };
        written.map_err(|error| refused(kind, &error.to_string()))
    })?;
    if let Some(path) = &beside {
        let adapter_of = apart.then_some(base.as_str());
        write_text(path, &modelfile(&args.out, adapter_of, &Tokenizer::load(&files)?))?;
    }
    let what = if apart { format!("an adapter of {base}") } else { describe(&model) };
    let (out, from) = (args.out.display(), origin.describe_origin());
    let mut told = format!("wrote {out}: {what}, {}{from}", bytes(report.bytes));
    told.extend(others(kind, &report).map(|line| format!("\n{line}")));
    Ok(told)
}

fn describe(model: &Model) -> String {
    format!("a model of {} parameters", model.weights.parameters())
}

/// Returns an error of writing with the argument.
fn refused(kind: GgufKind, what: &str) -> Failure {
    Failure(format!("--gguf {}: {what}", kind_name(kind)))
}

fn kind_name(kind: GgufKind) -> String {
    let value = kind.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Returns the line about matrices of another kind than was asked for.
fn others(kind: GgufKind, report: &GgufReport) -> Option<String> {
    let wanted: NumberKind = kind.into();
    let all = report.others.iter().map(|((columns, other), count)| {
        let (matrices, other) = (report.matrices, other.name());
        format!("{count} of {matrices} matrices have rows of {columns} numbers, no multiple of {}: they are {other}", wanted.block())
    });
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| {
        format!("--gguf {}: {} ({})", kind_name(kind), all.join("; "), bytes(report.bytes))
    })
}

/// Returns the text of a `Modelfile`. Ollama takes the chat template from the file.
fn modelfile(out: &Path, adapter_of: Option<&str>, tokenizer: &Tokenizer) -> String {
    let file = out.file_name().unwrap_or_default().to_string_lossy();
    let mut lines = match adapter_of {
        Some(base) => vec![format!("FROM {base}"), format!("ADAPTER ./{file}")],
        None => vec![format!("FROM ./{file}")],
    };
    let ends = tokenizer.stop_ids().iter().map(|end| tokenizer.decode_raw(&[*end]));
    lines.extend(ends.map(|end| format!("PARAMETER stop {end:?}")));
    lines.join("\n") + "\n"
}

/// Writes a file that appears under its name only when it is complete.
fn write_whole<T>(
    out: &Path,
    write: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let staged: PathBuf = temporary(out);
    let written = write(&staged).and_then(|written| {
        std::fs::rename(&staged, out)
            .map_err(|e| Failure(format!("cannot write {}: {e}", out.display())))?;
        sync_dir(parent(out))?;
        Ok(written)
    });
    if written.is_err() {
        // What remains only takes space. The first error is the one to report.
        let _ = remove(&staged);
    }
    written
}

impl From<GgufKind> for NumberKind {
    fn from(kind: GgufKind) -> Self {
        match kind {
            GgufKind::Q8 => Self::Q8_0,
            GgufKind::Q4 => Self::Q4K,
            GgufKind::Q5 => Self::Q5K,
            GgufKind::Q6 => Self::Q6K,
            GgufKind::F16 => Self::F16,
            GgufKind::Bf16 => Self::Bf16,
            GgufKind::F32 => Self::F32,
        }
    }
}
