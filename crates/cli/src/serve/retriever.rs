//! `maverl serve retriever`: the search of an environment as a server of its own.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::de::DeserializeOwned;

use super::listen::ListenArgs;
use crate::{Failure, block_on, number};
use maverl::env::search::{
    BatchedSearch, Neighbors, Normalization, Pooling, Ranking, SearchEnvironment,
};
use maverl::output;
use maverl::train::Interrupt;
use maverl_serve::{Limits, Ready, ServerMetrics, retriever};

#[derive(Args)]
pub(crate) struct RetrieverArgs {
    /// Corpus: `builtin:facts`, or a file of documents (JSONL of `id`, `title`, `text`; SQuAD; HotpotQA).
    #[arg(value_name = "CORPUS")]
    corpus: String,
    /// Maximum size of a decompressed corpus in MiB.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = number::seed)]
    max_mib: u64,
    /// Ranking of documents: `bm25`, `dense` or `hybrid`.
    #[arg(long, value_name = "HOW", default_value = "bm25", value_parser = parse_named::<Ranking>)]
    ranking: Ranking,
    /// For `dense` and `hybrid`: the model whose hidden states are embeddings, a directory, `hf:ORG/NAME` or `builtin:tiny`.
    #[arg(long, value_name = "MODEL", default_value = "")]
    encoder: String,
    /// Pooling of hidden states to an embedding: `mean`, `cls`, `last`, or `auto` as the model's files say.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_named::<Pooling>)]
    pooling: Pooling,
    /// Scaling of embeddings to length 1: `always`, `never`, or `auto` as the model's files say.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_named::<Normalization>)]
    normalize: Normalization,
    /// Text before each query that the encoder reads.
    #[arg(long, value_name = "TEXT", default_value = "")]
    query_prefix: String,
    /// Text before each document that the encoder reads.
    #[arg(long, value_name = "TEXT", default_value = "")]
    document_prefix: String,
    /// Maximum number of tokens of a text that the encoder reads.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = number::from_0)]
    max_tokens: usize,
    /// Search for the nearest documents: `exact` or `hnsw`.
    #[arg(long, value_name = "HOW", default_value = "exact", value_parser = parse_named::<Neighbors>)]
    neighbors: Neighbors,
    /// Flat index of faiss with the embeddings of the corpus's rows; without it they are computed at the start.
    #[arg(long, value_name = "FILE", default_value = "")]
    index: String,
    /// Computes the embeddings of the corpus, writes them to a flat index of faiss, and ends.
    #[arg(long, value_name = "FILE", conflicts_with = "index")]
    build_index: Option<PathBuf>,
    /// Most seconds that the search of a request takes.
    #[arg(long, value_name = "S", default_value = "300", value_parser = number::from_1)]
    timeout_s: NonZeroUsize,
    /// Number of queries whose results are cached; 0 disables the cache.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = number::from_0)]
    cache: usize,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Parses a value of an option by its name in a configuration.
fn parse_named<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    serde_json::from_value(name.into()).map_err(|error| {
        let told = error.to_string();
        // The error of the command line already shows the found value.
        told.split_once(", expected ")
            .map_or(told.clone(), |(_, names)| format!("expected {names}"))
    })
}

impl RetrieverArgs {
    /// Returns the environment whose index is served.
    fn environment(&self) -> SearchEnvironment {
        let mut environment = SearchEnvironment::default();
        environment.corpus.clone_from(&self.corpus);
        environment.max_mib = self.max_mib;
        environment.ranking = self.ranking;
        environment.encoder.clone_from(&self.encoder);
        environment.pooling = self.pooling;
        environment.normalize = self.normalize;
        environment.query_prefix.clone_from(&self.query_prefix);
        environment.document_prefix.clone_from(&self.document_prefix);
        environment.max_tokens = self.max_tokens;
        environment.neighbors = self.neighbors;
        environment.index.clone_from(&self.index);
        environment
    }
}

/// Writes the index of `--build-index`.
fn build(args: &RetrieverArgs, path: &Path) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let mut told = 0;
    let count = args.environment().write_index(Path::new(""), path, |written, count| {
        let tenth = 10 * written / count;
        if tenth > told {
            told = tenth;
            output::tell(format_args!("embedded {written} of {count} documents"));
        }
    })?;
    let (seconds, path) = (started.elapsed().as_secs_f64(), path.display());
    output::tell(format_args!(
        "wrote the embeddings of {count} documents to {path} in {seconds:.1} s"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Serves until a signal.
pub(super) fn serve(args: &RetrieverArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.build_index {
        return build(args, path);
    }
    let index = args.environment().index(Path::new(""))?;
    let batched = Arc::new(BatchedSearch::new(index, args.cache));
    block_on(async {
        let interrupt = Interrupt::on_signals()?;
        let n = batched.index().documents().len();
        let server = args.listen.open(Limits { half_close: true, ..Limits::default() }).await?;
        output::tell(format_args!(
            "serving {n} documents of `{}` at {}/retrieve",
            args.corpus, server.url
        ));
        server.health.enter(Ready::Yes);
        let limit = Duration::from_secs(args.timeout_s.get() as u64);
        server
            .run(retriever(batched, limit), "retriever", ServerMetrics::new(&[]), &interrupt)
            .await;
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_of_a_configuration() {
        assert_eq!(parse_named::<Ranking>("hybrid"), Ok(Ranking::Hybrid));
        assert_eq!(parse_named::<Pooling>("last"), Ok(Pooling::Last));
        assert_eq!(parse_named::<Normalization>("never"), Ok(Normalization::Never));
        assert_eq!(parse_named::<Neighbors>("hnsw"), Ok(Neighbors::Hnsw));
        let message = parse_named::<Ranking>("faiss").unwrap_err();
        assert_eq!(message, "expected one of `bm25`, `dense`, `hybrid`");
    }
}
