//! `maverl new-model`: a model of a known shape with random weights.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::export::{ExportDtype, writable, write_whole};
use super::{Failure, number, paths, print};
use maverl::files::blank::{SHAPES, blank_model};

#[derive(Args)]
pub(super) struct BlankArgs {
    /// Shape of the model.
    #[arg(long, value_name = "SHAPE", value_parser = PossibleValuesParser::new(SHAPES.iter().map(|shape| shape.name)))]
    like: String,
    /// Directory to write, new or empty.
    #[arg(long, value_name = "DIR", value_parser = paths::to_write())]
    out: PathBuf,
    /// Type of the stored weights.
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    dtype: ExportDtype,
    /// Seed of the weights.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::seed)]
    seed: u64,
}

/// Writes the model.
pub(super) fn blank(args: &BlankArgs) -> Result<ExitCode, Failure> {
    writable(&args.out)?;
    let shape = SHAPES.iter().find(|shape| shape.name == args.like);
    let shape = *shape.ok_or_else(|| Failure(format!("no shape is called `{}`", args.like)))?;
    let parameters =
        write_whole(&args.out, |dir| Ok(blank_model(dir, shape, args.dtype.into(), args.seed)?))?;
    print(&format!("wrote {}: {parameters} random parameters", args.out.display()))
}
