//! Models that are served.

use std::path::Path;
use std::sync::Arc;

use maverl::cli::Failure;
use maverl::files::ModelFiles;
use maverl::files::blank::blank_model;
use maverl::net::Model;
use maverl::runtime::Host;
use maverl::text::Tokenizer;
use maverl_cli::bench::fixture::{MODEL, in_directory, specs, write_model};
use maverl_cli::bench::setup::Setup;

/// Starts a model of the requested size that is served, and returns it with the size of its vocabulary.
pub(crate) fn start_host(setup: &Setup) -> Result<(Host, usize), Failure> {
    in_directory(|dir| {
        let (size, _) = write_model(dir, setup)?;
        Ok((load_host(dir, setup)?, size.vocab_size))
    })
}

/// Starts a model as [`start_host`] does, whose replies can end before `max_tokens`.
pub(crate) fn host_with_stop_ids(setup: &Setup) -> Result<Host, Failure> {
    in_model_directory(setup, |dir| load_host(dir, setup))
}

fn load_host(dir: &Path, setup: &Setup) -> Result<Host, Failure> {
    let (worker, options) = specs(dir, setup, &[])?;
    let files = ModelFiles::new(&worker.source);
    let model = Model::load(&files)?.with_precision(worker.dtype.into());
    let tokenizer = Arc::new(Tokenizer::load(&files)?);
    Ok(Host::start(MODEL, &model, &tokenizer, &options, 1)?)
}

/// Works in a temporary directory with a model of the requested size and its stop ids.
pub(crate) fn in_model_directory<T>(
    setup: &Setup,
    work: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    in_directory(|dir| {
        let (size, stored) = setup.model();
        blank_model(dir, size, stored, 0)?;
        work(dir)
    })
}
