//! Messages of the Tinker API that are Protocol Buffers, with the numbers of `tinker_public.proto` of the package `tinker` 0.38.

use std::collections::BTreeMap;

use prost::Message;

/// Body of `forward_backward`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PassRequest {
    #[prost(string, tag = "1")]
    pub(super) model_id: String,
    #[prost(int32, tag = "2")]
    pub(super) seq_id: i32,
    #[prost(message, repeated, tag = "3")]
    pub(super) data: Vec<Datum>,
    #[prost(string, tag = "4")]
    pub(super) loss_fn: String,
    #[prost(btree_map = "string, double", tag = "5")]
    pub(super) loss_fn_config: BTreeMap<String, f64>,
    #[prost(bool, tag = "6")]
    pub(super) forward_only: bool,
    #[prost(btree_map = "string, message", tag = "7")]
    pub(super) loss_fn_config_v2: BTreeMap<String, ConfigValue>,
}

/// Number or text of a loss.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigValue {
    #[prost(double, optional, tag = "1")]
    pub(super) number: Option<f64>,
    #[prost(string, optional, tag = "2")]
    pub(super) text: Option<String>,
}

/// A text, and tensors that its loss needs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Datum {
    #[prost(message, repeated, tag = "1")]
    pub(super) model_input: Vec<Chunk>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) loss_fn_inputs: BTreeMap<String, TensorMessage>,
}

/// A part of a text: one of the three.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Chunk {
    #[prost(message, optional, tag = "1")]
    pub(super) encoded_text: Option<EncodedText>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<OtherChunk>,
    #[prost(message, optional, tag = "3")]
    pub(super) dmel: Option<OtherChunk>,
}

/// Token ids, as bytes of i32.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncodedText {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) tokens: Vec<u8>,
}

/// A part that is no text; its fields are not read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OtherChunk {}

/// A tensor: bytes of its numbers, their type and the shape.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorMessage {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(super) dense: Option<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    pub(super) sparse_csr: Option<OtherChunk>,
    #[prost(int32, tag = "3")]
    pub(super) dtype: i32,
    #[prost(int64, repeated, tag = "4")]
    pub(super) shape: Vec<i64>,
}

/// Types of the numbers of tensors.
pub(super) const FLOAT32: i32 = 1;
/// See [`FLOAT32`].
pub(super) const INT64: i32 = 2;

/// Result of `forward_backward`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PassOutput {
    #[prost(string, tag = "1")]
    pub(super) loss_fn_output_type: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) loss_fn_outputs: Vec<ArrayRecord>,
    #[prost(btree_map = "string, double", tag = "3")]
    pub(super) metrics: BTreeMap<String, f64>,
}

/// Tensors of several data.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ArrayRecord {
    #[prost(string, tag = "1")]
    pub(super) type_tag: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) fields: BTreeMap<String, BatchedTensor>,
    #[prost(int64, tag = "3")]
    pub(super) num_datums: i64,
}

/// Tensors of several data, one after the other; `offsets` are their bounds in bytes, as bytes of i64.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchedTensor {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) data: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) offsets: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) dtype: i32,
    #[prost(int64, repeated, tag = "4")]
    pub(super) trailing_shape: Vec<i64>,
}

/// Result of `asample`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SampleOutput {
    #[prost(message, repeated, tag = "1")]
    pub(super) sequences: Vec<SampledSequence>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) prompt_logprobs: Option<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    pub(super) topk_prompt_logprobs: Option<TopkLogprobs>,
    #[prost(int32, tag = "4")]
    pub(super) prompt_cache_hit_tokens: i32,
}

/// A sampled text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SampledSequence {
    /// 0 for a stop, 1 for the length.
    #[prost(int32, tag = "1")]
    pub(super) stop_reason: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) tokens: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(super) logprobs: Option<Vec<u8>>,
    #[prost(message, optional, tag = "4")]
    pub(super) topk_sampled_logprobs: Option<TopkLogprobs>,
}

/// The likeliest tokens of places, row by row.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TopkLogprobs {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) token_ids: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) logprobs: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(super) k: u32,
    #[prost(uint32, tag = "4")]
    pub(super) length: u32,
}

/// Returns numbers as bytes, the lowest first.
pub(super) fn bytes_of_f32(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns token ids as bytes of i32.
pub(super) fn bytes_of_ids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}
