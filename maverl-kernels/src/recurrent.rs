//! Recurrent layers: causal convolutions, and the gated delta rule (Yang et al., 2024, arXiv:2412.06464).
//!
//! Both carry a state from token to token. One function serves training, prompts and decoding: it computes token after token
//! from the state before, so a sequence has the same bits however it is cut (K-1). Work is divided over columns, never over
//! tokens. In training a state is kept after each [`Span`], and the backward pass computes those in between again.

mod columns;
mod conv;
mod delta;
mod delta_back;
mod inputs;
mod spans;

pub use conv::{ConvWeights, causal_conv, causal_conv_bwd, causal_conv_onto};
pub use delta::{DeltaHeads, DeltaRows, delta_rule, delta_rule_onto};
pub use delta_back::{DeltaGradients, delta_rule_bwd};
pub use inputs::{
    GateGradients, GateWeights, delta_gates, delta_gates_bwd, normalize_keys, normalize_keys_bwd,
};
pub use spans::{SPAN_TOKENS, Span};

#[cfg(test)]
mod tests;
