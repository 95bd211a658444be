//! Replies that many teams use.

use maverl_macros::Reply;

/// An answer, the content of the only `<answer>` block.
#[derive(Reply, Debug, Clone, PartialEq, Eq)]
#[reply(tag = "answer", format = "Reply <answer>words</answer>.")]
pub struct Answer(pub String);

/// A decision, the content of the only `<verify>` block.
#[derive(Reply, Debug, Clone, Copy, PartialEq, Eq)]
#[reply(tag = "verify", format = "Reply <verify>yes</verify> or <verify>no</verify>.")]
pub enum Approval {
    /// `yes`.
    Yes,
    /// `no`.
    No,
}
