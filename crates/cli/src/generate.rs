//! `maverl generate`: a completion, printed while it is sampled.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::models::ModelArgs;
use super::{Failure, number, print};
use maverl::output;
use maverl::runtime::{self, Completion, Request, Sampling};
use maverl::text::{ChatInput, ChatMessage, Tokenizer};
use maverl::trajectory::Finish;

#[derive(Args)]
pub(super) struct GenerateArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Prompt of the model.
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_ids")]
    prompt: Option<String>,
    /// Prompt as token ids, such as the `prompt_ids` and `ids` of `--json`.
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', value_parser = number::small)]
    #[arg(conflicts_with_all = ["prompt", "chat", "system"])]
    prompt_ids: Vec<u32>,
    /// Send the prompt as a user's message, in the model's chat template; without it, the model continues the text.
    #[arg(long)]
    chat: bool,
    /// System message before the prompt.
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Take the most likely token; same as `--temperature 0`.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    greedy: bool,
    /// Temperature, which divides the logits; 0 is greedy.
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = number::decimal)]
    temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = number::small)]
    top_k: u32,
    /// Keep the smallest set of most likely tokens with this probability.
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = number::positive_share)]
    top_p: f32,
    /// Drop tokens less likely than this times the most likely one.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = number::share)]
    min_p: f32,
    /// Maximum length of the completion in tokens.
    #[arg(long, value_name = "N", default_value = "256", value_parser = number::from_1)]
    max_tokens: NonZeroUsize,
    /// Seed of the sampling.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::seed)]
    seed: u64,
    /// Print ids, text and log-probs as JSON when the completion ends.
    #[arg(long)]
    json: bool,
}

/// Completes a prompt.
pub(super) fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let (model, tokenizer) = args.model.open()?;
    let prompt = args.prompt_ids(&tokenizer)?;
    let rows = model.config.vocab_size;
    if let Some(id) = prompt.iter().find(|&&id| id as usize >= rows) {
        return Err(Failure(format!(
            "`--prompt-ids` has {id}; the model has ids from 0 to {}",
            rows - 1
        )));
    }
    if prompt.is_empty() {
        return Err(Failure("`--prompt` is empty; the model needs at least one token".to_owned()));
    }
    let sampling = Arc::new(args.sampling());
    let request = Request::new(prompt.clone(), sampling, args.seed);
    if args.json {
        let done = runtime::complete(&model, &tokenizer, request, |_| ())?;
        return print(&output::json(&GenerationReport::new(&prompt, &done, &tokenizer))?);
    }
    let mut stream = tokenizer.detokenizer();
    // A disk that is full ends the output, but not the completion.
    runtime::complete(&model, &tokenizer, request, |id| drop(output::print(&stream.push(id))))?;
    output::print(&(stream.finish() + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl GenerateArgs {
    fn prompt_ids(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
        if !self.chat {
            if self.model.chat_template_kwargs.is_some() {
                let message = "`--chat-template-kwargs` is for a chat template; add `--chat`";
                return Err(Failure(message.to_owned()));
            }
            return match &self.prompt {
                Some(text) => Ok(tokenizer.encode_framed(text)?),
                None => Ok(self.prompt_ids.clone()),
            };
        }
        let system = self.system.as_deref().map(|text| ChatMessage::new("system", text));
        let user = ChatMessage::new("user", self.prompt.as_deref().unwrap_or_default());
        let rendered = tokenizer.render_chat(&ChatInput::open(system.into_iter().chain([user])))?;
        Ok(tokenizer.encode_rendered(&rendered)?)
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: if self.greedy { 0.0 } else { self.temperature },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            max_tokens: self.max_tokens.get(),
            ..Sampling::default()
        }
    }
}

/// A completion for machines.
#[derive(Serialize)]
struct GenerationReport<'a> {
    prompt_ids: &'a [u32],
    /// Sampled ids, the stop id included.
    ids: &'a [u32],
    text: String,
    /// Log-probability of each id, under the temperature-scaled, unfiltered softmax.
    logprobs: &'a [f32],
    finish_reason: &'static str,
}

impl<'a> GenerationReport<'a> {
    fn new(prompt_ids: &'a [u32], done: &'a Completion, tokenizer: &Tokenizer) -> Self {
        let finish_reason = match done.finish {
            Finish::Stop => "stop",
            Finish::Length => "length",
        };
        let (ids, logprobs, text) = (&done.ids, &done.logprobs, tokenizer.decode(&done.ids));
        Self { prompt_ids, ids, text, logprobs, finish_reason }
    }
}
