//! Requests for completions, as calls of a seat.

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::dialect::Dialect;
use super::history::{Hash, ordered};
use super::options::{ProgramOptions, Structure};
use super::order;
use crate::openai::{
    Common, Fields, MaxTokens, Streaming, Structured, ToolChoice, Tools, Wanted, messages,
    with_system,
};
use crate::refusal::Refusal;
use maverl::agent::ReplyError;
use maverl::orchestra::AskLimits;
use maverl::text::ChatMessage;
use maverl::tools::{Call as ToolCall, Schema};
use maverl::trajectory::TurnPath;

/// Maximum number of choices of a call.
const MOST_CHOICES: i64 = 8;

/// Fields of sampling, which have no effect: the sampling of a seat is that of the run.
const SAMPLING: [&str; 7] =
    ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "reasoning_effort"];

/// A call of a seat.
#[derive(Debug)]
pub(super) struct Call {
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
    pub(super) form: Form,
}

/// Form that a reply must have. It is asked for in words, and checked.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// A call of any tool (`None`), or of this one.
    call: Option<Option<String>>,
    /// A JSON value of this schema.
    json: Option<Schema>,
}

impl Form {
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
        let schema = |value: Value| if value.is_null() { json!({}) } else { value };
        Self { call, json: json.map(|value| Schema::of_server(schema(value))) }
    }

    /// Checks the content and the calls of a reply.
    pub(super) fn check(&self, content: &str, calls: &[&ToolCall]) -> Result<(), ReplyError> {
        let wrong = |what: String| Err(ReplyError::Other(what));
        match &self.call {
            Some(None) if calls.is_empty() => {
                return wrong("no tool is called, which was demanded".to_owned());
            }
            Some(Some(name)) if calls.iter().all(|call| call.name != *name) => {
                return wrong(format!("the tool `{name}` is not called, which was demanded"));
            }
            _ => {}
        }
        let Some(schema) = self.json.as_ref().filter(|_| calls.is_empty()) else { return Ok(()) };
        match serde_json::from_str(content.trim()) {
            Err(error) => wrong(format!("the reply is no JSON, which was demanded: {error}")),
            Ok(value) => schema
                .check(&value)
                .or_else(|what| wrong(format!("the reply violates its JSON schema: {what}"))),
        }
    }
}

impl Call {
    /// Reads a request.
    pub(super) fn read(
        dialect: Dialect,
        headers: &HeaderMap,
        body: &[u8],
        options: &ProgramOptions,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::parse(body)?.converted(|map| dialect.request(map))?;
        let model = fields.text("model")?.unwrap_or_default();
        let model = header(headers, "x-maverl-seat")?.map_or(model, str::to_owned);
        let seat = seat(&model, &options.models)?;
        let path = header(headers, "x-maverl-path")?.map(order::path).transpose();
        let path = path.map_err(|what| Refusal::invalid("X-Maverl-Path", what))?;
        let masked = header(headers, "x-maverl-train")? == Some("false");
        let retried = header(headers, "x-stainless-retry-count")?.is_some_and(|n| n != "0");
        let again = retried || headers.contains_key("idempotency-key");
        let kind = dialect.prefix().as_bytes();
        let digest = digest(&[kind, model.as_bytes(), format!("{path:?}").as_bytes(), body]);
        let given: Vec<&str> =
            SAMPLING.into_iter().filter(|name| fields.take(name).is_some()).collect();
        let ignored = given.first().copied();
        let call = Self::read_fields(&mut fields, options)?;
        fields.finish(false)?;
        let call = Self { dialect, seat, model, path, masked, again, digest, ignored, ..call };
        if call.path.is_some() && call.choices > 1 {
            let message = "`n` is above 1, and the call has one path; leave `X-Maverl-Path` out";
            return Err(Refusal::invalid("n", message));
        }
        if dialect == Dialect::Text && !call.tools.declared.is_empty() {
            return Err(Refusal::invalid("tools", "`tools` are for chat completions"));
        }
        Ok(call)
    }

    fn read_fields(fields: &mut Fields, options: &ProgramOptions) -> Result<Self, Refusal> {
        let sent = messages(fields)?;
        let tools = Tools::read(fields)?;
        let format = fields.take("response_format").unwrap_or_default();
        let structured = match options.structured {
            Structure::Prompt => Structured::Prompt,
            Structure::Refuse => Structured::Refuse,
        };
        let form = Form::read(&format, &tools.choice);
        fields.put("response_format", format);
        let wanted = Wanted::read(fields, &tools.choice, structured)?;
        // Every vocabulary is large enough: stop ids are refused below.
        let Common { sampling } = Common::read(fields, usize::MAX)?;
        if !sampling.stop_ids.is_empty() {
            let what = "is not read here; write texts in `stop`, or `sampling.stop_ids` of the run";
            return Err(fields.error("stop_token_ids", what));
        }
        let limit = MaxTokens::read(fields, &["max_completion_tokens", "max_tokens"], 1)?;
        let choices = fields.integer("n", 1, MOST_CHOICES)?.unwrap_or(1) as u32;
        let streaming = Streaming::read(fields)?;
        let ids = fields.flag("return_token_ids")?;
        if fields.flag("logprobs")? {
            let what = "is true; log-probs are in the rollouts of the run and in no answer";
            return Err(fields.error("logprobs", what).with_code("unsupported_parameter"));
        }
        if let Some(Value::Object(variables)) = fields.take("chat_template_kwargs")
            && !variables.is_empty()
        {
            let what = "is not read here; write `models.NAME.chat_template_kwargs` of the run";
            return Err(fields.error("chat_template_kwargs", what));
        }
        fields.take("modalities");
        Ok(Self {
            dialect: Dialect::Chat,
            seat: 0,
            model: String::new(),
            messages: ordered(with_system(sent, &wanted)),
            tools,
            limits: AskLimits { max_tokens: limit.requested(), stop: sampling.stop },
            choices,
            streaming,
            ids,
            path: None,
            masked: false,
            again: false,
            digest: [0; 32],
            ignored: None,
            form,
        })
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
