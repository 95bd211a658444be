//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::answer::{finish_reason, ids, usage};
use super::asked::Asked;
use super::catalog::Entry;
use super::choice::{Batch, Echo, Job, News};
#[cfg(feature = "grammar")]
use super::grammar::Style;
use super::server::ModelServer;
use crate::openai::chat::{ChatCompletion, ChatLogprobs, ChoiceEnd, Delta, PartTokens, ToolCall};
use crate::openai::writer::{ChatWriter, ChunkWriter, Extra, UsageChunks, WholeWriter};
use crate::openai::{
    Choices, Common, Fields, MaxTokens, Part, Reported, Shape, Streaming, Tools, Wanted,
    chat_logprobs, flat, messages, with_system,
};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::{attended, events};
use maverl::rollout::plain;
use maverl::runtime::Step;
use maverl::text::{ChatInput, ChatMessage, Rendered, TokenizerError};

/// A request that was read.
pub(super) struct Chat {
    batch: Batch,
    choices: Choices,
    streaming: Streaming,
}

pub(super) async fn route(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    server.answer("chat", request, |asked| answer(&server, asked)).await
}

async fn answer(server: &Arc<ModelServer>, asked: Asked) -> Result<Response, Refusal> {
    let of = Arc::clone(server);
    let (chat, admitted) = asked.read(move |entry, fields| Chat::read(&of, entry, fields)).await?;
    if chat.streaming.stream {
        return Ok(chat.stream(server, admitted));
    }
    let answer = attended(&server.metrics, chat.answer(server, &admitted)).await?;
    Ok(json_response(StatusCode::OK, &answer))
}

impl Chat {
    /// Returns true if the client asked for a stream.
    pub(super) fn is_streamed(&self) -> bool {
        self.streaming.stream
    }

    pub(super) fn read(
        server: &ModelServer,
        entry: Arc<Entry>,
        mut fields: Fields,
    ) -> Result<Self, Refusal> {
        let fields = &mut fields;
        let messages = messages(fields)?;
        let tools = Tools::read(fields)?;
        let wanted = Wanted::read(fields, &tools.choice, server.settings.structured)?;
        let Common { sampling } = Common::read(fields, entry.vocabulary())?;
        let limit = MaxTokens::read(fields, &["max_completion_tokens", "max_tokens"], 1)?;
        let choices = Choices::read(fields)?;
        let streaming = Streaming::read(fields)?;
        let reported = Reported::of_chat(fields)?;
        let variables = variables(fields)?;
        only_text(fields)?;
        fields.finish(server.settings.strict)?;
        let messages = with_system(messages, &wanted);
        let rendered = render(&entry, messages, &tools, variables, true)?;
        entry.bound_text(rendered.text())?;
        let prompt = entry.tokenizer().encode_rendered(&rendered).map_err(|e| unrendered(&e))?;
        let max_tokens = limit.within(prompt.len(), entry.context())?;
        reported.bound((choices.n as usize).saturating_mul(max_tokens))?;
        let sampling = Arc::new(maverl::runtime::Sampling { max_tokens, ..sampling });
        let shape = Shape {
            thinking: rendered.text().trim_end().ends_with("<think>"),
            thoughts: true,
            calls: if tools.declared.is_empty() { 0 } else { tools.most },
            tagged: false,
        };
        let prompt: Arc<[u32]> = prompt.into();
        #[cfg(feature = "grammar")]
        let (grammar, shape) = match &wanted.enforced {
            None => (None, shape),
            Some(form) => {
                let style = Style::of(rendered.text(), shape.thinking);
                let grammar = server.grammars.compile(&entry, form, &tools, style)?;
                (Some(grammar), Shape { tagged: style.tagged, ..shape })
            }
        };
        #[cfg(not(feature = "grammar"))]
        let grammar = None;
        let job = |i| Job {
            prompt: Arc::clone(&prompt),
            sampling: Arc::clone(&sampling),
            seed: choices.seed_of(i),
            echo: Echo::No,
            grammar: grammar.clone(),
        };
        let jobs = (0..choices.n).map(job).collect();
        let eager = streaming.stream;
        let batch = Batch { entry, shape, reported, jobs, eager, cached: 0.into() };
        Ok(Self { batch, choices, streaming })
    }

    /// Returns the whole answer, at its end.
    pub(super) async fn answer(
        &self,
        server: &ModelServer,
        admitted: &Admitted,
    ) -> Result<ChatCompletion, Refusal> {
        let mut writer = WholeWriter::default();
        let tokens = self.write(server, admitted, &mut writer).await?.unwrap_or_default();
        let header = self.batch.entry.header("chatcmpl");
        Ok(writer.finish(header, usage(&self.batch, tokens), self.extra()))
    }

    /// Answers in chunks.
    fn stream(self, server: &Arc<ModelServer>, admitted: Admitted) -> Response {
        let of = Arc::clone(server);
        events(&server.metrics, move |events| async move {
            let asked = self.streaming.include_usage;
            let mut writer = ChunkWriter {
                header: self.batch.entry.header("chatcmpl"),
                extra: self.extra(),
                usage: if asked { UsageChunks::All } else { UsageChunks::None },
                events: &events,
            };
            match self.write(&of, &admitted, &mut writer).await {
                Err(refusal) => events.fail(&refusal).await,
                Ok(None) => {}
                Ok(Some(tokens)) => writer.finish(usage(&self.batch, tokens), None).await,
            }
        })
    }

    /// Returns what an answer has beside its choices.
    fn extra(&self) -> Extra {
        let Batch { entry, reported, jobs, .. } = &self.batch;
        Extra {
            maverl: Some(entry.origin(self.choices.seed)),
            prompt_token_ids: reported.ids.then(|| jobs[0].prompt.to_vec()),
        }
    }

    /// Writes the choices while they are generated. Returns the number of sampled tokens, or `None` if the client left.
    async fn write(
        &self,
        server: &ModelServer,
        admitted: &Admitted,
        writer: &mut impl ChatWriter,
    ) -> Result<Option<usize>, Refusal> {
        let (news, mut received) = mpsc::channel::<(usize, News)>(64);
        let batch = &self.batch;
        let written = async {
            let (mut tokens, mut calls) = (0, vec![0; batch.jobs.len()]);
            for index in 0..batch.jobs.len() {
                if !writer.begin(index).await {
                    return None;
                }
            }
            while let Some((index, news)) = writer.next(&mut received).await {
                let goes_on = match news {
                    News::More { parts, steps } => {
                        self.write_parts(writer, index, (parts, &steps), &mut calls[index]).await
                    }
                    News::End(end) => {
                        tokens += end.tokens;
                        let reason = finish_reason(&end);
                        let end = ChoiceEnd { reason, stop: Some(end.stop), token_ids: None };
                        writer.end(index, end).await
                    }
                };
                if !goes_on {
                    return None;
                }
            }
            Some(tokens)
        };
        let (done, tokens) = tokio::join!(batch.run(server, admitted, news), written);
        done.map(|()| tokens)
    }

    /// Writes parts of a reply, the first of which has the tokens.
    async fn write_parts(
        &self,
        writer: &mut impl ChatWriter,
        index: usize,
        (parts, steps): (Vec<Part>, &[Step]),
        calls: &mut usize,
    ) -> bool {
        let seed = self.batch.jobs[index].seed;
        let mut deltas: Vec<Delta> = Vec::new();
        for part in parts {
            deltas.push(match part {
                Part::Content(text) => Delta::content(text),
                Part::Reasoning(text) => Delta::reasoning(text),
                Part::Call(call) => {
                    *calls += 1;
                    Delta::call(ToolCall::new(seed, *calls - 1, &call))
                }
            });
        }
        if deltas.is_empty() && !steps.is_empty() {
            deltas.push(Delta::content(String::new()));
        }
        for (i, delta) in deltas.into_iter().enumerate() {
            let steps = if i == 0 { steps } else { &[] };
            if !writer.add(index, delta, self.tokens(steps)).await {
                return false;
            }
        }
        true
    }

    /// Returns what is reported of the tokens of a part.
    fn tokens(&self, steps: &[Step]) -> PartTokens {
        let Batch { entry, reported, .. } = &self.batch;
        let listed = reported.logprobs && !steps.is_empty();
        let logprobs = listed.then(|| ChatLogprobs {
            content: chat_logprobs(entry.tokenizer(), steps, reported.form),
            refusal: (),
        });
        PartTokens { logprobs, ids: reported.ids.then(|| ids(steps)) }
    }
}

/// Reads `chat_template_kwargs` and `reasoning_effort`.
fn variables(fields: &mut Fields) -> Result<Map<String, Value>, Refusal> {
    let mut variables = Map::new();
    if let Some(effort) = fields.text("reasoning_effort")? {
        variables.insert("enable_thinking".to_owned(), (effort != "none").into());
    }
    match fields.take("chat_template_kwargs") {
        None => {}
        Some(Value::Object(given)) => {
            if let Some(name) = ChatInput::VARIABLES.iter().find(|name| given.contains_key(**name))
            {
                let what = format!("has `{name}`, which the request itself gives");
                return Err(fields.error("chat_template_kwargs", &what));
            }
            variables.extend(given);
        }
        Some(other) => return Err(fields.wrong("chat_template_kwargs", &other, "an object")),
    }
    Ok(variables)
}

/// Reads `modalities`, of which there is one.
fn only_text(fields: &mut Fields) -> Result<(), Refusal> {
    match fields.take("modalities") {
        None => Ok(()),
        Some(value) if value == json!(["text"]) => Ok(()),
        Some(other) => Err(fields.wrong("modalities", &other, "[\"text\"]")),
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
        Some(tools) if !tokenizer.takes_tools() => ChatInput::open(&plain(&flat(&messages), tools)),
        _ => ChatInput { tools: declared.cloned(), ..ChatInput::open(messages) },
    };
    let input = ChatInput { chat_template_kwargs: variables, add_generation_prompt, ..input };
    tokenizer.render_chat(&input).map_err(|error| unrendered(&error))
}

pub(super) fn unrendered(error: &TokenizerError) -> Refusal {
    Refusal::invalid("messages", format!("the messages do not fit the chat template: {error}"))
}
