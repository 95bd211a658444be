//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::answer::{AnswerForm, Generation, ReplyForm, finish_reason, ids};
use super::asked::AdmittedRequest;
use super::catalog::Entry;
use super::choice::{ChoiceEvent, ChoiceJob, Echo, ReplyBatch};
use super::server::ModelServer;
use crate::openai::answer::{ChoicePart as _, Extra};
use crate::openai::completions::TextChoice;
use crate::openai::origin::AnswerOrigin;
use crate::openai::requests::TextRequest;
use crate::openai::{
    Echoed, Fields, ReplyPart, ReplyTextShape, ReportedTokens, TextLogprobsWriter, token_ids,
};
use crate::refusal::Refusal;
use maverl::runtime::Sampling;

/// Longest completion of a request that does not say, as in OpenAI's protocol.
const DEFAULT_TOKENS: usize = 16;
/// Forms of a prompt.
const PROMPTS: &str = "a text, a list of texts, a list of token ids, or a list of such lists";
/// Maximum number of prompts of a request.
const MOST_PROMPTS: usize = 256;

/// Form of text completions.
struct TextForm {
    /// Text of each prompt.
    prompts: Vec<String>,
    /// Number of choices of a prompt.
    n: usize,
    echo: Echo,
    streamed: bool,
}

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("completions", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: AdmittedRequest) -> Result<Response, Refusal> {
    let strict = server.settings.strict;
    let (text, admitted) = asked.read(move |entry, fields| read(strict, entry, fields)).await?;
    text.answer(server, admitted).await
}

/// Reads a request.
fn read(
    strict: bool,
    entry: Arc<Entry>,
    mut fields: Fields,
) -> Result<Generation<TextForm>, Refusal> {
    let request: TextRequest = fields.read()?;
    fields.finish(strict)?;
    let TextRequest { choices, streaming, echoed: Echoed { echo: echoes, limit }, .. } = request;
    let prompts = prompts(request.prompt.as_ref(), &entry)?;
    let sampling = request.sampled.sampling(entry.vocabulary())?;
    let reported = ReportedTokens::of_text(&request.logprobs, &request.tokens);
    if request.add_special_tokens.is_some_and(|value| value != true) {
        let what = "is false; send token ids as `prompt`";
        return Err(Refusal::field("add_special_tokens", what));
    }
    let echo = match (echoes, limit.requested_length()) {
        (false, _) => Echo::No,
        (true, Some(0)) => Echo::PromptAlone,
        (true, _) => Echo::Prompt,
    };
    if streaming.stream && echo != Echo::No {
        return Err(Refusal::field("echo", "is not for `stream`; leave one of them out"));
    }
    let (mut jobs, mut texts) = (Vec::new(), Vec::new());
    for (ids, text) in prompts {
        let limit = limit.or(DEFAULT_TOKENS.min(entry.context().saturating_sub(ids.len()).max(1)));
        let max_tokens = limit.length_within(ids.len(), entry.context())?.max(1);
        let sampling = Arc::new(Sampling { max_tokens, ..sampling.clone() });
        let prompt: Arc<[u32]> = ids.into();
        texts.push(text);
        let each = ChoiceJob::each(choices, &prompt, &sampling, None);
        jobs.extend(each.into_iter().map(|job| ChoiceJob { echo, ..job }));
    }
    let listed = jobs.iter().map(ChoiceJob::listed_tokens).fold(0, usize::saturating_add);
    reported.check_listed(listed)?;
    // Steps of a prompt are needed for its log-probs alone.
    if !reported.logprobs {
        jobs.iter_mut().filter(|job| job.echo == Echo::Prompt).for_each(|job| job.echo = Echo::No);
    }
    let (shape, eager) = (ReplyTextShape::default(), streaming.stream);
    let batch =
        ReplyBatch { entry, shape, reported, jobs, eager, cached: 0.into(), fills_context: false };
    let (n, streamed) = (choices.n as usize, streaming.stream);
    let form = TextForm { prompts: texts, n, echo, streamed };
    Ok(Generation { batch, choices, streaming, form })
}

/// What is known of a text between its parts.
struct TextState<'b> {
    logprobs: TextLogprobsWriter<'b>,
    /// Number of tokens of the echoed prompt that are still to come.
    echoed: usize,
}

impl TextForm {
    /// Returns what is echoed of a choice: the ids of its prompt, and their text.
    fn echoed_prompt<'b>(&'b self, batch: &'b ReplyBatch, index: usize) -> (&'b [u32], &'b str) {
        match self.echo {
            Echo::No => (&[], ""),
            Echo::Prompt | Echo::PromptAlone => {
                (&batch.jobs[index].prompt, &self.prompts[index / self.n])
            }
        }
    }
}

impl ReplyForm for TextForm {
    type Part = TextChoice;
    type State<'b> = TextState<'b>;

    /// Begins a choice, which has the echoed prompt if it is sent whole.
    fn begin<'b>(
        &'b self,
        batch: &'b ReplyBatch,
        index: usize,
    ) -> (TextState<'b>, Option<TextChoice>) {
        let ReplyBatch { entry, reported, jobs, .. } = batch;
        let (job, (ids, text)) = (&jobs[index], self.echoed_prompt(batch, index));
        let mut logprobs = TextLogprobsWriter::new(entry.tokenizer(), reported.form, (ids, text));
        let first = (!self.streamed).then(|| TextChoice {
            index,
            text: text.to_owned(),
            logprobs: reported.logprobs.then(|| logprobs.part(ids.first().copied(), &[])),
            token_ids: reported.ids.then(Vec::new),
            prompt_token_ids: reported.ids.then(|| job.prompt.to_vec()),
            ..TextChoice::default()
        });
        (TextState { logprobs, echoed: job.echoed_tokens().saturating_sub(1) }, first)
    }

    fn read(
        &self,
        batch: &ReplyBatch,
        index: usize,
        news: ChoiceEvent,
        state: &mut TextState<'_>,
    ) -> Vec<TextChoice> {
        let ReportedTokens { logprobs, ids: wanted, .. } = batch.reported;
        let part = match news {
            ChoiceEvent::More { parts, steps } => {
                // Steps of an echoed prompt come first.
                let echoed = state.echoed.min(steps.len());
                state.echoed -= echoed;
                TextChoice {
                    text: parts.iter().filter_map(content).collect(),
                    logprobs: logprobs.then(|| state.logprobs.part(None, &steps)),
                    stop_reason: Some(None),
                    token_ids: wanted.then(|| ids(&steps[echoed..])),
                    ..TextChoice::choice(index)
                }
            }
            ChoiceEvent::End(end) => TextChoice {
                finish_reason: Some(finish_reason(&end)),
                stop_reason: Some(end.stop),
                token_ids: wanted.then(Vec::new),
                ..TextChoice::choice(index)
            },
        };
        vec![part]
    }
}

impl AnswerForm for TextForm {
    const PREFIX: &'static str = "cmpl";

    fn extra(&self, _: &ReplyBatch, origin: AnswerOrigin) -> Extra {
        Extra { maverl: Some(origin), prompt_token_ids: None }
    }
}

fn content(part: &ReplyPart) -> Option<&str> {
    match part {
        ReplyPart::Content(text) => Some(text),
        _ => None,
    }
}

/// Reads `prompt`: a text, a list of texts, a list of ids, or a list of such lists. Returns ids and text of each.
fn prompts(prompt: Option<&Value>, entry: &Entry) -> Result<Vec<(Vec<u32>, String)>, Refusal> {
    let Some(value) = prompt else {
        let what = "is missing; write a text or a list of token ids";
        return Err(Refusal::field("prompt", what));
    };
    let list = match value {
        Value::String(_) => std::slice::from_ref(value),
        Value::Array(list) if list.first().is_some_and(Value::is_u64) => {
            std::slice::from_ref(value)
        }
        Value::Array(list) if !list.is_empty() => list.as_slice(),
        other => return Err(Refusal::field_value("prompt", other, PROMPTS)),
    };
    if list.len() > MOST_PROMPTS {
        let what = format!("has {} prompts; a request may have {MOST_PROMPTS}", list.len());
        return Err(Refusal::field("prompt", &what));
    }
    list.iter().map(|one| prompt_ids(one, entry)).collect()
}

/// Returns ids and text of a prompt.
fn prompt_ids(prompt: &Value, entry: &Entry) -> Result<(Vec<u32>, String), Refusal> {
    let tokenizer = entry.tokenizer();
    match prompt {
        Value::String(text) => {
            entry.bound_text(text)?;
            let ids = tokenizer.encode_framed(text);
            let ids = ids.map_err(|error| Refusal::invalid("prompt", error.to_string()))?;
            Ok((ids, text.clone()))
        }
        Value::Array(_) => {
            let ids = token_ids(prompt, entry.vocabulary());
            let ids = ids.map_err(|what| Refusal::field("prompt", &what))?;
            entry.bound_ids(&ids)?;
            let text = tokenizer.decode_raw(&ids);
            Ok((ids, text))
        }
        other => Err(Refusal::field_value("prompt", other, PROMPTS)),
    }
}
