//! Data of a pass as rows of a batch. Every problem names the datum.

use std::collections::BTreeMap;
use std::sync::Arc;

use maverl::runtime::{Batch, CustomSurrogate, Objective, Row};

use super::losses::TokenLoss;
use super::proto::{Chunk, Datum, FLOAT32, INT64, PassRequest, TensorMessage};

/// Largest number of data of a request.
const MOST_DATA: usize = 4096;

/// Limits of texts: those of the base.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLimits {
    /// Maximum number of tokens.
    pub(super) context: usize,
    /// Number of token ids.
    pub(super) vocab: usize,
}

/// Returns the batch of a request.
///
/// # Errors
///
/// The first problem, with the number of the datum.
pub(super) fn read_batch(request: PassRequest, limits: TextLimits) -> Result<Batch, String> {
    let PassRequest { data, loss_fn, loss_fn_config, loss_fn_config_v2, .. } = request;
    let mut config = loss_fn_config;
    for (key, value) in loss_fn_config_v2 {
        let Some(number) = value.number else {
            let text = value.text.unwrap_or_default();
            return Err(format!("`{key}` of `loss_fn_config` is {text:?}; write a number"));
        };
        config.insert(key, number);
    }
    let loss = TokenLoss::read(&loss_fn, &config)?;
    if data.is_empty() || data.len() > MOST_DATA {
        let found = data.len();
        return Err(format!("the request has {found} data; it may have 1 to {MOST_DATA}"));
    }
    let rows = data.into_iter().enumerate().map(|(index, datum)| {
        read_row(datum, loss, limits).map_err(|what| format!("datum {index}: {what}"))
    });
    let rows = rows.collect::<Result<Vec<Row>, String>>()?;
    let surrogate = CustomSurrogate { name: loss_fn, value: Arc::new(loss) };
    Ok(if loss.has_ratio() {
        Batch { rows, surrogate: Some(surrogate), ..Batch::default() }
    } else {
        Batch { rows, objective: Objective::Supervised, ..Batch::default() }
    })
}

/// Returns the row of a datum: a target after each token of its text.
fn read_row(datum: Datum, loss: TokenLoss, limits: TextLimits) -> Result<Row, String> {
    let Datum { model_input, mut loss_fn_inputs } = datum;
    let inputs = read_text(&model_input, limits)?;
    let n = inputs.len();
    let targets =
        take(&mut loss_fn_inputs, "target_tokens")?.ok_or_else(|| missing("target_tokens"))?;
    let completion = read_targets(&targets, n, limits)?;
    let row = Row { inputs, completion, ..Row::default() };
    let row = if loss.has_ratio() {
        let logprobs = take_numbers(&mut loss_fn_inputs, "logprobs", n)?;
        let advantages = take_numbers(&mut loss_fn_inputs, "advantages", n)?;
        Row { logprobs, advantages, ..row }
    } else {
        let weights = take(&mut loss_fn_inputs, "weights")?;
        let weights = weights.map(|tensor| read_numbers(&tensor, "weights", n)).transpose()?;
        Row { weights: weights.unwrap_or_default(), ..row }
    };
    match loss_fn_inputs.keys().next() {
        None => Ok(row),
        Some(other) => {
            let known = if loss.has_ratio() {
                "`target_tokens`, `logprobs` and `advantages`"
            } else {
                "`target_tokens` and `weights`"
            };
            Err(format!("`loss_fn_inputs` has `{other}`; this loss reads {known}"))
        }
    }
}

fn missing(name: &str) -> String {
    format!("`loss_fn_inputs` has no `{name}`, which the loss needs")
}

/// Takes a dense tensor out of those of a datum.
fn take(
    tensors: &mut BTreeMap<String, TensorMessage>,
    name: &str,
) -> Result<Option<TensorMessage>, String> {
    match tensors.remove(name) {
        Some(tensor) if tensor.sparse_csr.is_some() => {
            Err(format!("`{name}` is sparse; send a dense tensor"))
        }
        found => Ok(found),
    }
}

/// Takes the `n` numbers of a tensor out of those of a datum.
fn take_numbers(
    tensors: &mut BTreeMap<String, TensorMessage>,
    name: &str,
    n: usize,
) -> Result<Vec<f32>, String> {
    let tensor = take(tensors, name)?.ok_or_else(|| missing(name))?;
    read_numbers(&tensor, name, n)
}

/// Reads the ids of the chunks of a text.
///
/// # Errors
///
/// If a chunk is no text, an id is not in the vocabulary, or the text is empty or too long.
pub(super) fn read_text(chunks: &[Chunk], limits: TextLimits) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    for chunk in chunks {
        let Chunk { encoded_text: Some(text), image: None, dmel: None } = chunk else {
            return Err("`model_input` has a chunk that is no text; images and sound are not read"
                .to_owned());
        };
        let words = text.tokens.chunks_exact(4);
        if !words.remainder().is_empty() {
            return Err("`encoded_text` has bytes that are no whole i32".to_owned());
        }
        ids.extend(
            words.map(|word| i64::from(i32::from_le_bytes([word[0], word[1], word[2], word[3]]))),
        );
    }
    check_ids(&ids, "`model_input`", limits)?;
    let n = ids.len();
    if n == 0 || n > limits.context {
        return Err(format!("`model_input` has {n} tokens; it may have 1 to {}", limits.context));
    }
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

/// Fails for an id that is not in the vocabulary.
pub(super) fn check_ids(ids: &[i64], what: &str, limits: TextLimits) -> Result<(), String> {
    let wrong = ids.iter().enumerate().find(|(_, id)| !(0..limits.vocab as i64).contains(*id));
    wrong.map_or(Ok(()), |(at, id)| {
        Err(format!("{what} has the id {id} at {at}; ids are 0 to {}", limits.vocab - 1))
    })
}

fn read_targets(tensor: &TensorMessage, n: usize, limits: TextLimits) -> Result<Vec<u32>, String> {
    let bytes = dense_bytes(tensor, "target_tokens", (INT64, 8), n)?;
    let ids = bytes.chunks_exact(8).map(|word| {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        i64::from_le_bytes(eight)
    });
    let ids: Vec<i64> = ids.collect();
    check_ids(&ids, "`target_tokens`", limits)?;
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

fn read_numbers(tensor: &TensorMessage, name: &str, n: usize) -> Result<Vec<f32>, String> {
    let bytes = dense_bytes(tensor, name, (FLOAT32, 4), n)?;
    let words = bytes.chunks_exact(4);
    let numbers: Vec<f32> =
        words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    match numbers.iter().position(|number| !number.is_finite()) {
        None => Ok(numbers),
        Some(at) => Err(format!("`{name}` has {} at {at}; write finite numbers", numbers[at])),
    }
}

/// Returns the bytes of a tensor of `n` numbers.
fn dense_bytes<'t>(
    tensor: &'t TensorMessage,
    name: &str,
    (dtype, size): (i32, usize),
    n: usize,
) -> Result<&'t [u8], String> {
    let kind = if dtype == INT64 { "int64" } else { "float32" };
    if tensor.dtype != dtype {
        return Err(format!("`{name}` is no tensor of {kind}"));
    }
    let bytes = tensor.dense.as_deref().unwrap_or_default();
    let found = bytes.len() / size;
    let flat = tensor.shape.iter().filter(|length| **length != 1).count() <= 1;
    if !bytes.len().is_multiple_of(size) || found != n || !flat {
        let shape = &tensor.shape;
        return Err(format!(
            "`{name}` has {found} numbers in the shape {shape:?}; the text has {n} tokens, and each has one"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::proto::{ConfigValue, EncodedText, OtherChunk, bytes_of_f32, bytes_of_ids};
    use super::*;

    const LIMITS: TextLimits = TextLimits { context: 8, vocab: 100 };

    fn tensor_of_ids(ids: &[i64]) -> TensorMessage {
        let dense = Some(ids.iter().flat_map(|id| id.to_le_bytes()).collect());
        TensorMessage {
            dense,
            dtype: INT64,
            shape: vec![ids.len() as i64],
            ..TensorMessage::default()
        }
    }

    fn tensor(numbers: &[f32]) -> TensorMessage {
        let dense = Some(bytes_of_f32(numbers));
        TensorMessage {
            dense,
            dtype: FLOAT32,
            shape: vec![numbers.len() as i64],
            ..TensorMessage::default()
        }
    }

    fn text(ids: &[u32]) -> Chunk {
        let tokens = bytes_of_ids(ids);
        Chunk { encoded_text: Some(EncodedText { tokens }), ..Chunk::default() }
    }

    fn datum() -> Datum {
        let inputs = [
            ("target_tokens", tensor_of_ids(&[2, 3, 0])),
            ("logprobs", tensor(&[-1.0, -2.0, 0.0])),
            ("advantages", tensor(&[1.0, -1.0, 0.0])),
        ];
        Datum {
            model_input: vec![text(&[1]), text(&[2, 3])],
            loss_fn_inputs: inputs.map(|(name, tensor)| (name.to_owned(), tensor)).into(),
        }
    }

    fn request(data: Vec<Datum>, loss: &str) -> PassRequest {
        PassRequest { data, loss_fn: loss.to_owned(), ..PassRequest::default() }
    }

    /// Returns the problem of a datum that was changed.
    fn refused(change: impl Fn(&mut Datum)) -> String {
        let mut wrong = datum();
        change(&mut wrong);
        read_batch(request(vec![datum(), wrong], "ppo"), LIMITS).unwrap_err()
    }

    #[test]
    fn a_datum_is_a_row_with_a_target_after_each_token() {
        let batch = read_batch(request(vec![datum()], "importance_sampling"), LIMITS).unwrap();
        let row = &batch.rows[0];
        assert_eq!((&row.inputs[..], &row.completion[..]), (&[1, 2, 3][..], &[2, 3, 0][..]));
        assert_eq!(row.advantages, [1.0, -1.0, 0.0]);
        assert!(batch.surrogate.is_some() && batch.objective == Objective::PolicyGradient);
        let mut weighted = datum();
        weighted.loss_fn_inputs = [
            ("target_tokens".to_owned(), tensor_of_ids(&[2, 3, 0])),
            ("weights".to_owned(), tensor(&[0.0, -0.5, 2.0])),
        ]
        .into();
        let batch = read_batch(request(vec![weighted], "cross_entropy"), LIMITS).unwrap();
        assert_eq!(batch.rows[0].weights, [0.0, -0.5, 2.0]);
        assert_eq!(batch.objective, Objective::Supervised);
    }

    #[test]
    fn a_problem_of_a_datum_is_told_with_its_number() {
        let put = |name: &'static str, tensor: TensorMessage| {
            refused(move |datum| drop(datum.loss_fn_inputs.insert(name.to_owned(), tensor.clone())))
        };
        for (found, wanted) in [
            (
                refused(|datum| drop(datum.loss_fn_inputs.remove("logprobs"))),
                "datum 1: `loss_fn_inputs` has no `logprobs`, which the loss needs",
            ),
            (
                put("advantages", tensor(&[1.0])),
                "datum 1: `advantages` has 1 numbers in the shape [1]; the text has 3 tokens, and each has one",
            ),
            (
                put("logprobs", tensor(&[0.0, f32::NAN, 0.0])),
                "datum 1: `logprobs` has NaN at 1; write finite numbers",
            ),
            (
                put("target_tokens", tensor_of_ids(&[1, 100, 0])),
                "datum 1: `target_tokens` has the id 100 at 1; ids are 0 to 99",
            ),
            (
                put("target_tokens", tensor(&[1.0; 3])),
                "datum 1: `target_tokens` is no tensor of int64",
            ),
            (
                put("mask", tensor(&[1.0; 3])),
                "datum 1: `loss_fn_inputs` has `mask`; this loss reads `target_tokens`, `logprobs` and `advantages`",
            ),
            (
                refused(|datum| datum.model_input.push(text(&[1; 9]))),
                "datum 1: `model_input` has 12 tokens; it may have 1 to 8",
            ),
            (
                refused(|datum| datum.model_input.push(text(&[100]))),
                "datum 1: `model_input` has the id 100 at 3; ids are 0 to 99",
            ),
            (
                refused(|datum| datum.model_input[0].image = Some(OtherChunk {})),
                "datum 1: `model_input` has a chunk that is no text; images and sound are not read",
            ),
        ] {
            assert_eq!(found, wanted);
        }
        assert_eq!(
            read_batch(request(Vec::new(), "ppo"), LIMITS).unwrap_err(),
            "the request has 0 data; it may have 1 to 4096"
        );
        let mut config = request(vec![datum()], "ppo");
        config.loss_fn_config_v2 = [(
            "clip_low_threshold".to_owned(),
            ConfigValue { number: None, text: Some("x".into()) },
        )]
        .into();
        let found = read_batch(config, LIMITS).unwrap_err();
        assert_eq!(found, "`clip_low_threshold` of `loss_fn_config` is \"x\"; write a number");
    }
}
