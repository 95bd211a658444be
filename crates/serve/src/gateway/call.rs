//! Requests for completions, as calls of a seat.

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::dialect::Dialect;
use super::history::{Hash, order_results};
use super::options::{ProgramOptions, Structure};
use super::order;
use crate::anthropic::as_prompt;
use crate::openai::requests::CallRequest;
use crate::openai::{
    EndFields, Fields, Messages, StopTexts, Streaming, Structured, ToolChoice, Tools, WantedForm,
    with_system,
};
use crate::refusal::Refusal;
use maverl::orchestra::AskLimits;
use maverl::text::ChatMessage;
use maverl::tools::{Call as ToolCall, Schema};
use maverl::trajectory::TurnPath;

/// A call of a seat.
#[derive(Debug)]
pub(super) struct SeatCall {
    pub(super) dialect: Dialect,
    /// Index of the seat.
    pub(super) seat: usize,
    /// Name of the seat, as the program wrote it.
    pub(super) model: String,
    pub(super) messages: Vec<ChatMessage>,
    pub(super) tools: Tools,
    pub(super) limits: AskLimits,
    pub(super) choices: u32,
    pub(super) streaming: Streaming,
    /// The answer has token ids.
    pub(super) ids: bool,
    /// Path that the program gives.
    pub(super) path: Option<TurnPath>,
    /// No policy is trained on the reply.
    pub(super) masked: bool,
    /// The client sends the request again.
    pub(super) again: bool,
    /// Digest of the request; equal requests have equal ones.
    pub(super) digest: Hash,
    /// Name of a field of sampling that has no effect.
    pub(super) ignored: Option<&'static str>,
    /// Form that the reply must have.
    pub(super) form: DemandedForm,
}

/// Form that a reply must have. It is asked for in words, and checked.
#[derive(Debug, Default)]
pub(super) struct DemandedForm {
    /// A call of any tool (`None`), or of this one.
    call: Option<Option<String>>,
    /// A JSON value of this schema.
    json: Option<Schema>,
}

impl DemandedForm {
    fn read(format: &Value, choice: &ToolChoice) -> Self {
        let call = match choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(None),
            ToolChoice::Named(name) => Some(Some(name.clone())),
        };
        let json = match format["type"].as_str() {
            Some("json_object") => Some(json!({"type": "object"})),
            Some("json_schema") => Some(format["json_schema"]["schema"].clone()),
            _ => None,
        };
        // A missing schema accepts every value.
        let json = json.map(|value| if value.is_null() { json!({}) } else { value });
        Self { call, json: json.map(Schema::of_server) }
    }

    /// Checks the content and the calls of a reply.
    pub(super) fn check(&self, content: &str, calls: &[&ToolCall]) -> Result<(), String> {
        match &self.call {
            Some(None) if calls.is_empty() => {
                return Err("no tool is called, which was demanded".to_owned());
            }
            Some(Some(name)) if calls.iter().all(|call| call.name != *name) => {
                return Err(format!("the tool `{name}` is not called, which was demanded"));
            }
            _ => {}
        }
        let Some(schema) = self.json.as_ref().filter(|_| calls.is_empty()) else { return Ok(()) };
        match serde_json::from_str(content.trim()) {
            Err(error) => Err(format!("the reply is no JSON, which was demanded: {error}")),
            Ok(value) => schema
                .check(&value)
                .map_err(|what| format!("the reply violates its JSON schema: {what}")),
        }
    }
}

impl SeatCall {
    /// Reads a request.
    pub(super) fn read(
        dialect: Dialect,
        headers: &HeaderMap,
        body: &[u8],
        options: &ProgramOptions,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::parse(body)?;
        dialect.as_chat(&mut fields)?;
        Self::of_fields(dialect, fields, headers, body, options)
    }

    /// Reads a request for the number of tokens of the prompt of a message.
    pub(super) fn read_prompt(
        headers: &HeaderMap,
        body: &[u8],
        options: &ProgramOptions,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::parse(body)?;
        as_prompt(&mut fields)?;
        Self::of_fields(Dialect::Messages, fields, headers, body, options)
    }

    fn of_fields(
        dialect: Dialect,
        mut fields: Fields,
        headers: &HeaderMap,
        body: &[u8],
        options: &ProgramOptions,
    ) -> Result<Self, Refusal> {
        let model = fields.model()?.unwrap_or_default();
        let model = header(headers, "x-maverl-seat")?.map_or(model, str::to_owned);
        let seat = seat(&model, &options.models)?;
        let path = header(headers, "x-maverl-path")?.map(order::path).transpose();
        let path = path.map_err(|what| Refusal::invalid("X-Maverl-Path", what))?;
        let masked = header(headers, "x-maverl-train")? == Some("false");
        let retried = header(headers, "x-stainless-retry-count")?.is_some_and(|n| n != "0");
        let again = retried || headers.contains_key("idempotency-key");
        let kind = dialect.prefix().as_bytes();
        let digest = digest(&[kind, model.as_bytes(), format!("{path:?}").as_bytes(), body]);
        let request: CallRequest = fields.read()?;
        fields.finish(false)?;
        let call = Self::of_request(request, options)?;
        let call = Self { dialect, seat, model, path, masked, again, digest, ..call };
        if call.path.is_some() && call.choices > 1 {
            let message = "`n` is above 1, and the call has one path; leave `X-Maverl-Path` out";
            return Err(Refusal::invalid("n", message));
        }
        if dialect == Dialect::Text && !call.tools.declared.is_empty() {
            return Err(Refusal::invalid("tools", "`tools` are for chat completions"));
        }
        Ok(call)
    }

    fn of_request(request: CallRequest, options: &ProgramOptions) -> Result<Self, Refusal> {
        let CallRequest { messages: Messages(sent), tools, streaming, .. } = request;
        let structured = match options.structured {
            Structure::Prompt => Structured::Prompt,
            Structure::Refuse => Structured::Refuse,
        };
        let format = request.response_format.as_ref();
        let form = DemandedForm::read(format.unwrap_or(&Value::Null), &tools.choice);
        let wanted = WantedForm::read(format, &tools.choice, structured)?;
        let EndFields { stop: StopTexts(stop), stop_token_ids } = request.ends;
        // Every vocabulary is large enough for an id.
        if stop_token_ids.below(usize::MAX)?.is_some_and(|ids| !ids.is_empty()) {
            let what = "is not read here; write texts in `stop`, or `sampling.stop_ids` of the run";
            return Err(stop_token_ids.error(what));
        }
        if request.logprobs {
            let what = "is true; log-probs are in the rollouts of the run and in no answer";
            return Err(Refusal::unsupported_field("logprobs", what));
        }
        if let Some(Value::Object(variables)) = request.chat_template_kwargs
            && !variables.is_empty()
        {
            let what = "is not read here; write `models.NAME.chat_template_kwargs` of the run";
            return Err(Refusal::field("chat_template_kwargs", what));
        }
        Ok(Self {
            dialect: Dialect::Chat,
            seat: 0,
            model: String::new(),
            messages: order_results(with_system(sent, &wanted)),
            tools,
            limits: AskLimits {
                max_tokens: request.limit.requested_length(),
                stop,
                ..AskLimits::default()
            },
            choices: request.n.unwrap_or(1) as u32,
            streaming,
            ids: request.return_token_ids,
            path: None,
            masked: false,
            again: false,
            digest: [0; 32],
            ignored: request.sampling.0,
            form,
        })
    }
}

impl SeatCall {
    /// Returns the stop string that ended a reply, which the answer to a message names.
    pub(super) fn ending_stop(&self, reply: &str) -> Option<String> {
        let stops = self.limits.stop.iter().filter(|_| self.dialect == Dialect::Messages);
        let found = stops.filter_map(|stop| Some((reply.find(stop.as_str())?, stop)));
        found.min_by_key(|(at, _)| *at).map(|(_, stop)| stop.clone())
    }
}

/// Returns the value of a header.
fn header<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map(str::trim);
    text.map(Some).map_err(|_| Refusal::invalid(name, format!("the header `{name}` is no text")))
}

/// Returns the index of the seat that a name means. A single seat answers to any name.
pub(super) fn seat(name: &str, models: &[String]) -> Result<usize, Refusal> {
    if let Some(seat) = models.iter().position(|model| model == name) {
        return Ok(seat);
    }
    if models.len() == 1 {
        return Ok(0);
    }
    let name: String = name.chars().take(80).collect();
    let known: Vec<String> = models.iter().map(|model| format!("`{model}`")).collect();
    let message = format!("there is no model {name:?}; there are {}", known.join(", "));
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message);
    Err(Refusal { param: Some("model".to_owned()), retry: Some(false), ..refusal })
}

/// Returns the digest of texts in a row, each with its length.
pub(super) fn digest(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
