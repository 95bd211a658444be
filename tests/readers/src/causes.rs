//! Known differences between the readers: which replies each one reads otherwise than maverl, and why.

use maverl::tools::{Call, CallFormat};
use serde_json::Value;

use crate::draw::{collect_texts, is_beyond};
use crate::others::Reader;

/// A reason for which a reader does not return the calls of some replies.
pub struct Cause {
    /// Behavior of the reader.
    pub name: &'static str,
    readers: &'static [Reader],
    formats: &'static [CallFormat],
    /// Returns true for the calls that it concerns.
    concerns: fn(&[Call]) -> bool,
}

const TOOL_PARSER: &[Reader] = &[Reader::ToolParser];
const DYNAMO: &[Reader] = &[Reader::Dynamo];

/// Every known difference.
const CAUSES: [Cause; 10] = [
    Cause {
        name: "does not know the form",
        readers: &Reader::ALL,
        formats: &[CallFormat::MistralV11],
        concerns: |_| true,
    },
    Cause {
        name: "ends at a closing tag or fence within a text",
        readers: &Reader::ALL,
        formats: &[
            CallFormat::Hermes,
            CallFormat::QwenXml,
            CallFormat::Glm,
            CallFormat::MinimaxM2,
            CallFormat::DeepseekV3,
            CallFormat::DeepseekV31,
            CallFormat::DeepseekDsml,
        ],
        concerns: |calls| texts(calls).iter().any(|text| text.contains(['<', '`'])),
    },
    Cause {
        name: "cuts blanks from both ends of a text",
        readers: &Reader::ALL,
        formats: &[CallFormat::QwenXml, CallFormat::MinimaxM2, CallFormat::DeepseekDsml],
        concerns: |calls| texts(calls).iter().any(|text| text.trim() != *text),
    },
    Cause {
        name: "reads the text `null` as null",
        readers: &Reader::ALL,
        formats: &[CallFormat::QwenXml, CallFormat::MinimaxM2],
        concerns: |calls| texts(calls).iter().any(|text| text.eq_ignore_ascii_case("null")),
    },
    Cause {
        name: "reads numbers and truth values within lists and objects as texts",
        readers: TOOL_PARSER,
        formats: &[CallFormat::Gemma4],
        concerns: |calls| {
            arguments(calls).any(|value| inner(value).any(|value| !value.is_string()))
        },
    },
    Cause {
        name: "loses all arguments with an exponent or a negative number",
        readers: DYNAMO,
        formats: &[CallFormat::Gemma4, CallFormat::Pythonic],
        concerns: |calls| arguments(calls).any(|value| has_number(value, is_signed_or_scientific)),
    },
    Cause {
        name: "reads no call of a list with a dash in a name",
        readers: &Reader::ALL,
        formats: &[CallFormat::Pythonic],
        concerns: has_dash,
    },
    Cause {
        name: "ends a list at `)]` within a text",
        readers: TOOL_PARSER,
        formats: &[CallFormat::Pythonic],
        concerns: |calls| texts(calls).iter().any(|text| text.contains(")]")),
    },
    Cause {
        name: "leaves out a call with a dash in its name",
        readers: TOOL_PARSER,
        formats: &[CallFormat::KimiK2],
        concerns: has_dash,
    },
    Cause {
        name: "reads no call if there are several",
        readers: DYNAMO,
        formats: &[CallFormat::Llama3Json],
        concerns: |calls| calls.len() > 1,
    },
];

/// Returns the first known cause for which a reader may differ on these calls.
pub fn cause(reader: Reader, format: CallFormat, calls: &[Call]) -> Option<&'static str> {
    let holds = |cause: &&Cause| {
        cause.readers.contains(&reader)
            && cause.formats.contains(&format)
            && (cause.concerns)(calls)
    };
    let known = CAUSES.iter().find(holds).map(|cause| cause.name);
    known.or_else(|| is_beyond(format, calls).then_some("has no escape for its texts"))
}

fn arguments(calls: &[Call]) -> impl Iterator<Item = &Value> {
    calls.iter().flat_map(|call| call.arguments.values())
}

fn texts(calls: &[Call]) -> Vec<&str> {
    let mut texts = Vec::new();
    arguments(calls).for_each(|value| collect_texts(value, &mut texts));
    texts
}

fn has_dash(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.name.contains('-'))
}

/// Returns the values directly within a list or an object.
fn inner(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(object) => Box::new(object.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Returns true for a number, or for a list or an object with a number, of which `of` is true.
fn has_number(value: &Value, of: fn(&str) -> bool) -> bool {
    match value {
        Value::Number(number) => of(&number.to_string()),
        value => inner(value).any(|value| has_number(value, of)),
    }
}

fn is_signed_or_scientific(number: &str) -> bool {
    number.contains(['-', 'e'])
}
