//! `maverl serve`: models, teams and parts of environments for other programs.

mod listen;
mod retriever;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;

#[derive(Subcommand)]
pub(super) enum ServeCommand {
    /// Answers queries over a corpus in the protocol of Search-R1: `POST /retrieve`.
    ///
    /// Ctrl-C finishes the requests under way and ends it; a second one ends it at once.
    Retriever(retriever::RetrieverArgs),
}

/// Serves until a signal.
pub(super) fn serve(command: &ServeCommand) -> Result<ExitCode, Failure> {
    match command {
        ServeCommand::Retriever(args) => retriever::serve(args),
    }
}
