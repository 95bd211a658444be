//! Parts of a reply.

use maverl::tools::Call;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReplyPart {
    /// Text before the end of the thoughts.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A call.
    Call(Call),
}

impl ReplyPart {
    /// Adds parts to others. Texts of one kind that follow each other become one part, and so one event of a stream.
    pub(crate) fn append(parts: &mut Vec<Self>, more: Vec<Self>) {
        for part in more {
            match (parts.last_mut(), part) {
                (Some(Self::Content(text)), Self::Content(more))
                | (Some(Self::Reasoning(text)), Self::Reasoning(more)) => text.push_str(&more),
                (_, part) => parts.push(part),
            }
        }
    }
}

/// Adds a part, unless it is an empty text.
pub(super) fn add_part(parts: &mut Vec<ReplyPart>, part: ReplyPart) {
    let empty =
        matches!(&part, ReplyPart::Reasoning(text) | ReplyPart::Content(text) if text.is_empty());
    if !empty {
        parts.push(part);
    }
}
