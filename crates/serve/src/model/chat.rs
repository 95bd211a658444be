//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::answer::{AnswerForm, Generation, ReplyForm, finish_reason, ids};
use super::asked::AdmittedRequest;
use super::catalog::Entry;
use super::choice::{ChoiceEvent, ChoiceJob, ReplyBatch};
#[cfg(feature = "grammar")]
use super::grammar::Style;
use super::server::ModelServer;
use crate::anthropic::{has_later_system, without_later_system};
#[cfg(feature = "grammar")]
use crate::openai::StructuredForm;
use crate::openai::answer::Extra;
use crate::openai::chat::{ChatChunkChoice, ChatLogprobs, Delta, PartTokens, ToolCall};
use crate::openai::origin::AnswerOrigin;
use crate::openai::requests::ChatRequest;
use crate::openai::{
    Fields, Messages, ReplyPart, ReplyTextShape, ReportedTokens, Tools, WantedForm, chat_logprobs,
    flat, with_system,
};
use crate::refusal::Refusal;
use maverl::rollout::{plain_conversation, takes_later_system};
use maverl::runtime::Step;
use maverl::text::{ChatInput, ChatMessage, Rendered, TokenizerError};

/// Form of chat completions.
pub(super) struct ChatForm;

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("chat", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: AdmittedRequest) -> Result<Response, Refusal> {
    let of = Arc::clone(server);
    let read = asked.read(move |entry, fields| read(&of, entry, fields, ChatProtocol::OpenAi));
    let (chat, admitted) = read.await?;
    chat.answer(server, admitted).await
}

/// Protocol of a request that becomes a chat completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatProtocol {
    OpenAi,
    /// A system message may come later than the template takes it, and `max_tokens` may be more than the context leaves.
    Anthropic,
}

/// Prompt of a request.
pub(super) struct ChatPrompt {
    rendered: Rendered,
    pub(super) ids: Vec<u32>,
    /// Form that the reply must have.
    #[cfg(feature = "grammar")]
    enforced: Option<StructuredForm>,
}

impl ChatPrompt {
    /// Renders and encodes the prompt of a request, whose messages are taken.
    pub(super) fn read(
        server: &ModelServer,
        entry: &Entry,
        request: &mut ChatRequest,
        protocol: ChatProtocol,
    ) -> Result<Self, Refusal> {
        let ChatRequest { messages: Messages(messages), tools, response_format, .. } = request;
        let structured = server.settings.structured;
        let wanted = WantedForm::read(response_format.as_ref(), &tools.choice, structured)?;
        let effort = request.reasoning_effort.as_deref();
        let variables = variables(effort, request.chat_template_kwargs.as_ref())?;
        let mut messages = with_system(std::mem::take(messages), &wanted);
        let later = protocol == ChatProtocol::Anthropic && has_later_system(&messages);
        if later && !takes_later_system(entry.tokenizer()) {
            messages = without_later_system(messages);
        }
        let rendered = render(entry, messages, tools, variables, true)?;
        entry.bound_text(rendered.text())?;
        let ids = entry.tokenizer().encode_rendered(&rendered).map_err(|e| template_refusal(&e))?;
        Ok(Self {
            rendered,
            ids,
            #[cfg(feature = "grammar")]
            enforced: wanted.enforced,
        })
    }
}

/// Reads a request.
pub(super) fn read(
    server: &ModelServer,
    entry: Arc<Entry>,
    mut fields: Fields,
    protocol: ChatProtocol,
) -> Result<Generation<ChatForm>, Refusal> {
    let mut request: ChatRequest = fields.read()?;
    fields.finish(server.settings.strict)?;
    check_modalities(request.modalities.as_ref())?;
    let sampling = request.sampled.sampling(entry.vocabulary())?;
    let reported =
        ReportedTokens::of_chat(request.logprobs, request.top_logprobs, &request.tokens)?;
    let prompt = ChatPrompt::read(server, &entry, &mut request, protocol)?;
    #[cfg(feature = "grammar")]
    let enforced = prompt.enforced;
    let ChatPrompt { rendered, ids: prompt, .. } = prompt;
    let ChatRequest { tools, choices, streaming, limit, .. } = request;
    let max_tokens = match protocol {
        ChatProtocol::OpenAi => limit.length_within(prompt.len(), entry.context())?,
        ChatProtocol::Anthropic => limit.length_up_to(prompt.len(), entry.context())?,
    };
    reported.check_listed((choices.n as usize).saturating_mul(max_tokens))?;
    let sampling = Arc::new(maverl::runtime::Sampling { max_tokens, ..sampling });
    let format = Arc::clone(&entry.format);
    let shape = ReplyTextShape {
        thinking: format.begins_within_thoughts(rendered.text()),
        thoughts: format.has_thoughts,
        calls: if tools.declared.is_empty() { 0 } else { tools.most },
        tagged: false,
        format,
        tools: tools.declared.as_slice().into(),
    };
    let prompt: Arc<[u32]> = prompt.into();
    #[cfg(feature = "grammar")]
    let (grammar, shape) = match &enforced {
        None => (None, shape),
        Some(form) => {
            let tokenizer = entry.tokenizer();
            let style = Style::of(rendered.text(), shape.thinking, &entry.format, tokenizer);
            let grammar = server.grammars.compile(&entry, form, &tools, &style)?;
            (Some(grammar), ReplyTextShape { tagged: style.tagged, ..shape })
        }
    };
    #[cfg(not(feature = "grammar"))]
    let grammar = None;
    let jobs = ChoiceJob::each(choices, &prompt, &sampling, grammar.as_ref());
    let eager = streaming.stream;
    let fills_context = limit.is_cut_to(max_tokens);
    let batch = ReplyBatch { entry, shape, reported, jobs, eager, cached: 0.into(), fills_context };
    Ok(Generation { batch, choices, streaming, form: ChatForm })
}

impl ReplyForm for ChatForm {
    type Part = ChatChunkChoice;
    /// Number of calls so far.
    type State<'b> = usize;

    fn begin(&self, _: &ReplyBatch, index: usize) -> (usize, Option<ChatChunkChoice>) {
        (0, Some(ChatChunkChoice::first(index)))
    }

    /// Returns the parts of a reply, the first of which has the tokens.
    fn read(
        &self,
        batch: &ReplyBatch,
        index: usize,
        news: ChoiceEvent,
        calls: &mut usize,
    ) -> Vec<ChatChunkChoice> {
        let (parts, steps) = match news {
            ChoiceEvent::More { parts, steps } => (parts, steps),
            ChoiceEvent::End(end) => {
                let reason = finish_reason(&end);
                return vec![ChatChunkChoice::end(index, reason, Some(end.stop))];
            }
        };
        let seed = batch.jobs[index].seed;
        let mut deltas: Vec<Delta> = Vec::new();
        for part in parts {
            deltas.push(match part {
                ReplyPart::Content(text) => Delta::content(text),
                ReplyPart::Reasoning(text) => Delta::reasoning(text),
                ReplyPart::Call(call) => {
                    *calls += 1;
                    Delta::call(ToolCall::new(seed, *calls - 1, &call))
                }
            });
        }
        if deltas.is_empty() && !steps.is_empty() {
            deltas.push(Delta::content(String::new()));
        }
        let mut steps = Some(steps);
        let deltas = deltas.into_iter();
        deltas
            .map(|delta| {
                let tokens = tokens(batch, &steps.take().unwrap_or_default());
                ChatChunkChoice::new(index, delta, tokens)
            })
            .collect()
    }
}

impl AnswerForm for ChatForm {
    const PREFIX: &'static str = "chatcmpl";

    fn extra(&self, batch: &ReplyBatch, origin: AnswerOrigin) -> Extra {
        let prompt_token_ids = batch.reported.ids.then(|| batch.jobs[0].prompt.to_vec());
        Extra { maverl: Some(origin), prompt_token_ids }
    }
}

/// Returns what is reported of the tokens of a part.
fn tokens(batch: &ReplyBatch, steps: &[Step]) -> PartTokens {
    let ReplyBatch { entry, reported, .. } = batch;
    let listed = reported.logprobs && !steps.is_empty();
    let logprobs = listed.then(|| ChatLogprobs {
        content: chat_logprobs(entry.tokenizer(), steps, reported.form),
        refusal: (),
    });
    PartTokens { logprobs, ids: reported.ids.then(|| ids(steps)) }
}

/// Returns the further variables of the chat template.
fn variables(
    effort: Option<&str>,
    given: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, Refusal> {
    let mut variables = Map::new();
    if let Some(effort) = effort {
        variables.insert("enable_thinking".to_owned(), (effort != "none").into());
        // Templates as that of gpt-oss show it to the model.
        if effort != "none" {
            variables.insert("reasoning_effort".to_owned(), effort.into());
        }
    }
    let given = given.cloned().unwrap_or_default();
    if let Some(name) = ChatInput::VARIABLES.iter().find(|name| given.contains_key(**name)) {
        let what = format!("has `{name}`, which the request itself gives");
        return Err(Refusal::field("chat_template_kwargs", &what));
    }
    variables.extend(given);
    Ok(variables)
}

/// Fails for another modality than text.
fn check_modalities(modalities: Option<&Value>) -> Result<(), Refusal> {
    match modalities {
        Some(other) if *other != json!(["text"]) => {
            Err(Refusal::field_value("modalities", other, "[\"text\"]"))
        }
        _ => Ok(()),
    }
}

/// Renders a conversation with the reply opened. A template without support for tools gets them as text.
pub(super) fn render(
    entry: &Entry,
    messages: Vec<ChatMessage>,
    tools: &Tools,
    variables: Map<String, Value>,
    add_generation_prompt: bool,
) -> Result<Rendered, Refusal> {
    let tokenizer = entry.tokenizer();
    let declared = Some(&tools.declared).filter(|tools| !tools.is_empty());
    let input = match declared {
        Some(tools) if !tokenizer.takes_tools() => {
            ChatInput::open(&plain_conversation(&flat(&messages), tools))
        }
        _ => ChatInput { tools: declared.cloned(), ..ChatInput::open(messages) },
    };
    let input = ChatInput { chat_template_kwargs: variables, add_generation_prompt, ..input };
    tokenizer.render_chat(&input).map_err(|error| template_refusal(&error))
}

pub(super) fn template_refusal(error: &TokenizerError) -> Refusal {
    Refusal::invalid("messages", format!("the messages do not fit the chat template: {error}"))
}
