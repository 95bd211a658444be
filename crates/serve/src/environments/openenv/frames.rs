//! Messages of OpenEnv, as its package writes them.

use serde_json::{Map, Value, json};

use crate::environments::episode::{EnvironmentFailed, FAILED};
use crate::environments::server::ServedEnvironment;
use maverl::tools::Tool;

/// Code of a failed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameErrorCode {
    InvalidJson,
    UnknownType,
    Validation,
    Execution,
    /// The environment failed, for a reason that is not in the message.
    Session,
    Capacity,
}

impl FrameErrorCode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InvalidJson => "INVALID_JSON",
            Self::UnknownType => "UNKNOWN_TYPE",
            Self::Validation => "VALIDATION_ERROR",
            Self::Execution => "EXECUTION_ERROR",
            Self::Session => "SESSION_ERROR",
            Self::Capacity => "CAPACITY_REACHED",
        }
    }
}

/// A message that failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failed {
    pub(super) code: FrameErrorCode,
    pub(super) message: String,
    /// Places of invalid fields with the problem.
    pub(super) fields: Vec<(String, String)>,
}

impl Failed {
    pub(super) fn new(code: FrameErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fields: Vec::new() }
    }

    /// Creates the failure of a message whose field is invalid.
    pub(super) fn field(name: &str, problem: &str) -> Self {
        let fields = vec![(name.to_owned(), problem.to_owned())];
        Self { fields, ..Self::new(FrameErrorCode::Validation, "Invalid message") }
    }

    /// Returns the frame.
    pub(super) fn frame(&self) -> Value {
        let mut data = json!({"message": self.message, "code": self.code.name()});
        if !self.fields.is_empty() {
            let errors = self.fields.iter().map(
                |(name, problem)| json!({"type": "value_error", "loc": [name], "msg": problem}),
            );
            data["errors"] = errors.collect();
        }
        json!({"type": "error", "data": data})
    }
}

impl From<EnvironmentFailed> for Failed {
    fn from(_: EnvironmentFailed) -> Self {
        Self::new(FrameErrorCode::Session, FAILED)
    }
}

/// Returns the frame of an observation. Its metadata stand within it and beside it.
pub(super) fn observation(
    fields: Value,
    reward: Option<f64>,
    done: bool,
    metadata: Map<String, Value>,
) -> Value {
    let mut observation = fields;
    observation["metadata"] = Value::Object(metadata.clone());
    let mut data = json!({"observation": observation, "reward": reward, "done": done});
    if !metadata.is_empty() {
        data["metadata"] = Value::Object(metadata);
    }
    json!({"type": "observation", "data": data})
}

/// Returns tools in the form of the package; `schema` is the name of their schemas.
pub(super) fn tools(tools: &[Tool], schema: &str) -> Vec<Value> {
    let told = tools.iter().map(|tool| {
        json!({"name": tool.name, "description": tool.description, schema: tool.parameters.json()})
    });
    told.collect()
}

/// Keyword of the schema of actions for the names of those that the environment understands, which OpenEnv has no word for.
const ACTIONS: &str = "x-maverl-actions";

/// Returns the JSON Schemas of actions, observations and states. That of actions names the actions that the environment
/// understands, if they are known.
pub(super) fn schema(served: &ServedEnvironment) -> Value {
    let mut schema = forms();
    if let Some(actions) = served.listed_actions() {
        schema["action"][ACTIONS] = json!(actions);
    }
    schema
}

fn forms() -> Value {
    let metadata = json!({"type": "object", "additionalProperties": true, "title": "Metadata"});
    json!({
        "action": {
            "type": "object",
            "title": "MaverlAction",
            "description": "A message of the team: an action, or with `final` or as <answer>words</answer> its answer. Tools \
                            are called by `{\"type\": \"call_tool\", \"tool_name\", \"arguments\"}`.",
            "properties": {
                "message": {"type": "string", "title": "Message"},
                "final": {"type": "boolean", "default": false, "title": "Final"},
                "metadata": metadata,
            },
            "required": ["message"],
            "additionalProperties": false,
        },
        "observation": {
            "type": "object",
            "title": "MaverlObservation",
            "properties": {
                "text": {"type": "string", "default": "", "title": "Text"},
                "tools": {"type": "array", "items": {"type": "object"}, "title": "Tools"},
                "done": {"type": "boolean", "default": false, "title": "Done"},
                "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null, "title": "Reward"},
                "metadata": metadata,
            },
        },
        "state": {
            "type": "object",
            "title": "MaverlState",
            "properties": {
                "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "step_count": {"type": "integer", "minimum": 0, "default": 0},
                "task_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            },
        },
    })
}
