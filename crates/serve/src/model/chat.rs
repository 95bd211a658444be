//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::answer::{Header, Whole, finish_reason, ids, usage, whole};
use super::choice::{Batch, Echo, Job, News};
#[cfg(feature = "grammar")]
use super::grammar::Style;
use super::reading::Asked;
use super::{Entry, ModelServer};
use crate::openai::{
    Choices, Common, Fields, MaxTokens, Part, Reported, Shape, Streaming, Tools, Wanted, call_id,
    chat_logprobs, flat, messages, with_system,
};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::{Events, attended, events};
use maverl::model::{ChatInput, ChatMessage, Rendered, TokenizerError};
use maverl::rollout::plain;
use maverl::runtime::Step;

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
    ) -> Result<Value, Refusal> {
        let batch = &self.batch;
        let choices = whole(server, batch, admitted).await?;
        let header = Header::new("chatcmpl", "chat.completion", &batch.entry, self.choices.seed);
        let tokens = choices.iter().filter_map(|choice| Some(choice.end.as_ref()?.tokens)).sum();
        let listed = choices.iter().enumerate().map(|(i, choice)| self.choice(i, choice));
        let mut answer = header.answer(listed.collect());
        answer.insert("usage".to_owned(), usage(batch, tokens));
        answer.insert("maverl".to_owned(), header.repeatable());
        if batch.reported.ids {
            answer.insert("prompt_token_ids".to_owned(), batch.jobs[0].prompt.to_vec().into());
        }
        Ok(answer.into())
    }

    fn choice(&self, index: usize, choice: &Whole) -> Value {
        let calls = choice.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        });
        let calls: Vec<Value> = calls
            .enumerate()
            .map(|(i, call)| self.call(index, i, &call.name, &call.arguments))
            .collect();
        let content = choice.content();
        let content =
            if content.is_empty() && !calls.is_empty() { Value::Null } else { content.into() };
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), content);
        message.insert("refusal".to_owned(), Value::Null);
        if let Some(reasoning) = choice.reasoning() {
            message.insert("reasoning_content".to_owned(), reasoning.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        let mut listed =
            json!({"index": index, "message": message, "logprobs": self.logprobs(&choice.steps)});
        if let Some(end) = &choice.end {
            listed["finish_reason"] = finish_reason(end).into();
            listed["stop_reason"] = end.stop.clone().unwrap_or_default();
        }
        if self.batch.reported.ids {
            listed["token_ids"] = ids(&choice.steps);
        }
        listed
    }

    /// Returns a call; equal requests have equal ids.
    fn call(
        &self,
        choice: usize,
        index: usize,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Value {
        let arguments = Value::Object(arguments.clone()).to_string();
        json!({
            "id": call_id(self.batch.jobs[choice].seed, index),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        })
    }

    fn logprobs(&self, steps: &[Step]) -> Value {
        let reported = self.batch.reported;
        if !reported.logprobs {
            return Value::Null;
        }
        let content = chat_logprobs(self.batch.entry.tokenizer(), steps, reported.form);
        json!({"content": content, "refusal": null})
    }

    /// Answers in chunks.
    fn stream(self, server: &Arc<ModelServer>, admitted: Admitted) -> Response {
        let of = Arc::clone(server);
        events(&server.metrics, move |events| async move {
            self.write(&of, &admitted, &events).await;
        })
    }

    async fn write(&self, server: &ModelServer, admitted: &Admitted, events: &Events) {
        let (news, mut received) = mpsc::channel::<(usize, News)>(64);
        let batch = &self.batch;
        let header =
            Header::new("chatcmpl", "chat.completion.chunk", &batch.entry, self.choices.seed);
        let write = async {
            let (mut tokens, mut calls) = (0, vec![0; batch.jobs.len()]);
            if !self.begin(&header, events).await {
                return None;
            }
            while let Some((index, news)) = events.next(&mut received).await {
                let chunks = match news {
                    News::More { parts, steps } => {
                        self.deltas(index, &parts, &steps, &mut calls[index])
                    }
                    News::End(end) => {
                        tokens += end.tokens;
                        let reason = json!(finish_reason(&end));
                        vec![json!({
                            "index": index, "delta": {}, "logprobs": null, "finish_reason": reason,
                            "stop_reason": end.stop,
                        })]
                    }
                };
                for chunk in chunks {
                    if !events.send(&self.chunk(&header, vec![chunk])).await {
                        return None;
                    }
                }
            }
            Some(tokens)
        };
        let (done, tokens) = tokio::join!(batch.run(server, admitted, news), write);
        match (done, tokens) {
            (Err(refusal), _) => events.fail(&refusal).await,
            (Ok(()), None) => {}
            (Ok(()), Some(tokens)) => {
                let usage = self.streaming.include_usage.then(|| usage(batch, tokens));
                header.end(usage, events).await;
            }
        }
    }

    /// Sends the first chunk of every choice.
    async fn begin(&self, header: &Header, events: &Events) -> bool {
        for index in 0..self.batch.jobs.len() {
            let delta = json!({"role": "assistant", "content": ""});
            let choice =
                json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            let mut chunk = self.chunk(header, vec![choice]);
            if index == 0 {
                chunk["maverl"] = header.repeatable();
                if self.batch.reported.ids {
                    chunk["prompt_token_ids"] = self.batch.jobs[0].prompt.to_vec().into();
                }
            }
            if !events.send(&chunk).await {
                return false;
            }
        }
        true
    }

    fn chunk(&self, header: &Header, choices: Vec<Value>) -> Value {
        let mut chunk = header.answer(choices);
        if self.streaming.include_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        chunk.into()
    }

    /// Returns the choices of chunks: one a part, the first of which has the tokens.
    fn deltas(
        &self,
        index: usize,
        parts: &[Part],
        steps: &[Step],
        calls: &mut usize,
    ) -> Vec<Value> {
        let mut deltas: Vec<Value> = parts
            .iter()
            .map(|part| match part {
                Part::Content(text) => json!({"content": text}),
                Part::Reasoning(text) => json!({"reasoning_content": text}),
                Part::Call(call) => {
                    let mut told = self.call(index, *calls, &call.name, &call.arguments);
                    told["index"] = (*calls).into();
                    *calls += 1;
                    json!({"tool_calls": [told]})
                }
            })
            .collect();
        if deltas.is_empty() && !steps.is_empty() {
            deltas.push(json!({"content": ""}));
        }
        let choice = |(i, delta): (usize, Value)| {
            let steps = if i == 0 { steps } else { &[] };
            let logprobs = if steps.is_empty() { Value::Null } else { self.logprobs(steps) };
            let mut choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null});
            if self.batch.reported.ids {
                choice["token_ids"] = ids(steps);
            }
            choice
        };
        deltas.into_iter().enumerate().map(choice).collect()
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
