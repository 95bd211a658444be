//! The engine of served models: options of its requests, and its start.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::queue::QueueArgs;
use crate::{Failure, models, number};
use maverl::config::{Dtype, RuntimeOptions};
use maverl::files::ModelFiles;
use maverl::net::Model;
use maverl::runtime::Host;
use maverl::text::Tokenizer;
use maverl_serve::Structured;
use maverl_serve::model::ModelSettings;

/// Options of the requests to models.
#[derive(Args, Debug, Clone)]
pub(super) struct RequestArgs {
    /// Most choices that are generated at once.
    #[arg(long, value_name = "N", default_value = "64", value_parser = number::from_1)]
    max_requests: NonZeroUsize,
    #[command(flatten)]
    queue: QueueArgs,
    /// Seconds after which a running request is ended.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = number::seed)]
    timeout_s: u64,
    /// Largest body of a request in MiB.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number::from_0)]
    max_body_mib: usize,
    /// Refuse fields of requests that are unknown, instead of logging their names once.
    #[arg(long)]
    strict: bool,
    /// Requests for a form of the reply (`response_format`, a forced call): enforce it, describe the form to the model in words
    /// without enforcing it, or refuse them. [default: grammar, or refuse if the binary lacks the feature `grammar`]
    #[arg(long, value_name = "HOW")]
    structured: Option<StructuredArg>,
    /// MiB of keys and values. [default: that of `runtime.kv_mib`]
    #[arg(long, value_name = "N", value_parser = number::from_1)]
    kv_mib: Option<NonZeroUsize>,
    /// Threads of the numeric kernels; 0 is one per core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::from_0)]
    threads: usize,
}

/// Precision of matrix products.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ServedPrecision {
    /// 32 bits.
    F32,
    /// 16 bits with the exponent of 32.
    Bf16,
}

impl From<ServedPrecision> for Dtype {
    fn from(precision: ServedPrecision) -> Self {
        match precision {
            ServedPrecision::F32 => Self::F32,
            ServedPrecision::Bf16 => Self::Bf16,
        }
    }
}

/// Treatment of requests for a form of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StructuredArg {
    /// Sample only tokens that the form allows.
    Grammar,
    /// Describe the form in the system section.
    Prompt,
    /// Answer 400.
    Refuse,
}

impl StructuredArg {
    /// Returns the treatment, or an error if this binary cannot enforce forms.
    fn treatment(given: Option<Self>) -> Result<Structured, Failure> {
        match given {
            #[cfg(feature = "grammar")]
            None | Some(Self::Grammar) => Ok(Structured::Grammar),
            #[cfg(not(feature = "grammar"))]
            Some(Self::Grammar) => Err(Failure(
                "`--structured grammar` needs a binary with the feature `grammar`: `cargo build --release --bin maverl \
                 --features full,grammar`"
                    .to_owned(),
            )),
            #[cfg(not(feature = "grammar"))]
            None => Ok(Structured::Refuse),
            Some(Self::Prompt) => Ok(Structured::Prompt),
            Some(Self::Refuse) => Ok(Structured::Refuse),
        }
    }
}

impl RequestArgs {
    pub(super) fn settings(&self) -> Result<ModelSettings, Failure> {
        Ok(ModelSettings {
            strict: self.strict,
            structured: StructuredArg::treatment(self.structured)?,
            max_body: self.max_body_mib.max(1) << 20,
            timeout: Duration::from_secs(self.timeout_s),
            allow_adapters: None,
            queue: self.queue.limits(self.max_requests),
        })
    }

    /// Returns the settings of the engine, given those of the configuration.
    pub(super) fn runtime(&self, configured: &RuntimeOptions) -> RuntimeOptions {
        RuntimeOptions {
            threads: self.threads,
            max_requests: self.max_requests,
            kv_mib: self.kv_mib.unwrap_or(configured.kv_mib),
            ..configured.clone()
        }
    }
}

/// Loads a base and starts its thread. Returns it with the SHA-256 of the weights.
pub(super) fn start(
    files: &ModelFiles,
    dtype: Dtype,
    kwargs: &Map<String, Value>,
    runtime: &RuntimeOptions,
    places: usize,
) -> Result<(Host, String), Failure> {
    let tokenizer = Arc::new(Tokenizer::load(files)?.with_template_kwargs(kwargs));
    let base: Model = models::load(files, None)?.with_precision(dtype.into());
    let (tokens, rows, place) = (tokenizer.len(), base.config.vocab_size, files.describe());
    if tokens > rows {
        let problem = format!("the tokenizer has {tokens} tokens, the embedding {rows} rows");
        return Err(Failure(format!("{place}: {problem}")));
    }
    let host = Host::start(&place, &base, &tokenizer, runtime, places)?;
    let fingerprint = host.base().fingerprint();
    Ok((host, fingerprint))
}
