//! Spans of a packing, between which recurrent layers keep their states.

use std::ops::Range;

use crate::attention::Packing;

/// Most tokens of a span.
pub const SPAN_TOKENS: usize = 64;

/// Tokens of a packing that follow each other in a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Tokens; at least one.
    pub tokens: Range<usize>,
    /// Index of the span before it on its path; `None` at the start of a sequence.
    pub before: Option<usize>,
}

impl Packing<'_> {
    /// Returns the spans of all nodes in order: every [`SPAN_TOKENS`] tokens of a node are one, and the rest is another.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        // Last span on the path that ends with each node.
        let mut ends: Vec<Option<usize>> = Vec::with_capacity(self.offsets.len());
        for (n, bounds) in self.offsets.windows(2).enumerate() {
            let mut before = self.parent_of_node(n).and_then(|parent| ends[parent]);
            for start in (bounds[0]..bounds[1]).step_by(SPAN_TOKENS) {
                spans.push(Span { tokens: start..bounds[1].min(start + SPAN_TOKENS), before });
                before = Some(spans.len() - 1);
            }
            ends.push(before);
        }
        spans
    }
}

/// Returns the number of tokens of spans, which follow each other.
pub(super) fn token_count(spans: &[Span]) -> usize {
    spans.last().map_or(0, |span| span.tokens.end)
}
