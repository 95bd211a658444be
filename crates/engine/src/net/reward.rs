//! Reward models: a decoder with a linear head without bias, in the layout of `AutoModelForSequenceClassification`, or one that
//! scores a reply by the log-probs of its tokens, in the layout of a causal language model.
//!
//! A directory has the files of a model, with `score.weight [1, D]` among its weights, and `reward_head.json`, which says
//! where a row is scored and how its logit becomes a probability:
//!
//! ```text
//! {"protocol": 2, "place": "generation_prompt", "temperature": 1.3, "offset": 0.2}
//! p = 1 / (1 + exp(−(logit / temperature + offset)))                         without an offset, it is 0
//! ```
//!
//! One that scores by log-probs has no `score.weight`; its head is in `reward_head.json`, and [`reply_odds`] take the logit's place:
//!
//! ```text
//! {"protocol": 2, "place": "reply", "temperature": 1.3, "offset": 0.2, "likelihood": {"weight": 4.0, "bias": 2.0}}
//! logit = 1/n Σ (weight log p(y_t | x, y_<t) + bias)                         y: the n tokens of the reply, with its end
//! ```

mod settings;

use std::path::Path;

use serde_json::{Value, json};

use crate::files::save::{self, SavedTensor, TensorWriter};
use crate::files::shards::SCORE;
use crate::files::{ModelError, ModelFiles, ModelSource, SaveOptions, Shards};
use crate::message::Message;
use crate::net::model::companion;
use crate::net::{Context, Forest, HeadKind, Model, Pool, Rows, ValueHead};
use crate::text::{ChatInput, Rendered, Tokenizer, TokenizerError};
use settings::{FILE, LikelihoodHead, ScoredPlace};
pub use settings::{RewardHead, reply_odds};

/// Returns the token ids of a conversation that ends with the reply to score. The last one is the scored token. Of a row
/// that is longer than the context, the beginning is cut.
///
/// # Errors
///
/// If the template refuses the conversation.
pub fn scored_ids(
    tokenizer: &Tokenizer,
    chat: &ChatInput,
    context: usize,
) -> Result<Vec<u32>, TokenizerError> {
    let scored = ChatInput { add_generation_prompt: true, ..chat.clone() };
    last_ids(tokenizer, &tokenizer.render_chat(&scored)?, context)
}

/// Returns the last `context` ids of a text. Of a text with more bytes than twice as many tokens have, only the end is encoded:
/// the first tokens of a cut text may be others, and they are not among the last ones.
fn last_ids(
    tokenizer: &Tokenizer,
    rendered: &Rendered,
    context: usize,
) -> Result<Vec<u32>, TokenizerError> {
    let text = rendered.text();
    let most = tokenizer.most_bytes(context.saturating_mul(2));
    let at = text.ceil_char_boundary(text.len().saturating_sub(most));
    let mut ids = tokenizer.encode_rendered(&rendered.after(at))?;
    let cut = ids.len().saturating_sub(context);
    Ok(ids.split_off(cut))
}

/// Returns the token ids of a conversation that ends with the reply to score, and the number of the reply's tokens, which are the
/// last ones: with its end of turn, as the model generates it. Of a row that is longer than the context, the beginning is cut.
///
/// # Errors
///
/// If the template refuses the conversation, or changes the prompt when the reply is appended, or the reply has no tokens.
pub fn reply_ids(
    tokenizer: &Tokenizer,
    chat: &ChatInput,
    context: usize,
) -> Result<(Vec<u32>, usize), TokenizerError> {
    let divided = tokenizer.reply(chat)?;
    if divided.last_bytes() > tokenizer.most_bytes(context) {
        let message = "the reply has more bytes than any that fits the context";
        return Err(TokenizerError::Template(message.to_owned()));
    }
    // The first tokens of a cut text may be others, and they are not among the last ones.
    let divided = divided.cut_before(tokenizer.most_bytes(context.saturating_mul(2)));
    let (mut ids, reply) = tokenizer.encode_parts(&divided)?;
    ids.extend_from_slice(&reply);
    let cut = ids.len().saturating_sub(context);
    let ids = ids.split_off(cut);
    // The first token of a row follows none.
    let places = reply.len().min(ids.len().saturating_sub(1));
    match places {
        0 => {
            let message = "a reply without tokens has no log-probs";
            Err(TokenizerError::Template(message.to_owned()))
        }
        _ => Ok((ids, places)),
    }
}

/// A decoder with a head that scores rows.
pub struct RewardModel {
    model: Model,
    head: ValueHead,
    /// Settings of the head.
    pub settings: RewardHead,
}

impl RewardModel {
    /// Creates a reward model; an adapter of the model must have been merged.
    ///
    /// # Errors
    ///
    /// If the head is one of values.
    pub fn new(model: Model, head: ValueHead, settings: RewardHead) -> Result<Self, ModelError> {
        let settings = match head.kind() {
            HeadKind::Reward => settings,
            HeadKind::Likelihood => {
                let (weight, bias) = head.parts();
                let likelihood = LikelihoodHead { weight: weight[0], bias: bias[0] };
                RewardHead { place: ScoredPlace::Reply, likelihood: Some(likelihood), ..settings }
            }
            HeadKind::Value => {
                return Err(ModelError::wrong_argument(
                    "a head of values is not that of a reward model",
                ));
            }
        };
        Ok(Self { model, head, settings })
    }

    /// Loads a directory that [`RewardModel::save`] wrote.
    ///
    /// # Errors
    ///
    /// If a file is missing, or does not fit the others.
    pub fn load(dir: &Path) -> Result<Self, ModelError> {
        let settings = RewardHead::read(dir)?;
        let files = ModelFiles::new(&ModelSource::Directory(dir.to_owned()));
        let model = Model::load(&files)?;
        if let Some(LikelihoodHead { weight, bias }) = settings.likelihood {
            return Self::new(model, ValueHead::of_likelihood([weight, bias]), settings);
        }
        let (head, shards) =
            (ValueHead::new(HeadKind::Reward, &model.config), Shards::open(&files)?);
        if shards.shape(SCORE).is_none() {
            let message = format!("{}: `{SCORE}` is missing: the model has no head", dir.display());
            return Err(ModelError::no_match(message));
        }
        head.vars()[0].1.load(&shards, SCORE)?;
        Self::new(model, head, settings)
    }

    /// Writes the model as a directory that [`RewardModel::load`] loads, and `AutoModelForSequenceClassification`, or with a head of
    /// log-probs `AutoModelForCausalLM`.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, dir: &Path, options: &SaveOptions) -> Result<(), ModelError> {
        let (tied, linear) = (self.model.config.tie_word_embeddings, self.is_linear());
        for (name, bytes) in self.model.companions.iter() {
            match name.as_str() {
                "config.json" => {
                    let config = save::configuration(bytes, options.dtype, tied);
                    let config = if linear { classifier(&config) } else { config };
                    companion(dir, name, &config)?;
                }
                _ => companion(dir, name, bytes)?,
            }
        }
        let own = self.model.config.saved_tensors(self.model.weights.vars()).into_iter();
        let head = linear.then(|| SavedTensor::tensor(SCORE, &self.head.vars()[0].1));
        let all = own.chain(head).chain(self.model.skipped.entries());
        let entries: Vec<SavedTensor<'_>> =
            all.map(|tensor| tensor.stored_as(options.dtype)).collect();
        save::shards(dir, &entries, options.shard_bytes, &mut TensorWriter::Direct)?;
        companion(dir, FILE, format!("{:#}\n", json!(self.settings)).as_bytes())
    }

    /// Returns the maximum length of a row.
    pub fn context(&self) -> usize {
        self.model.config.max_position_embeddings
    }

    fn is_linear(&self) -> bool {
        self.settings.likelihood.is_none()
    }

    /// Returns the token ids of a conversation that ends with the reply to score, and the number of the last of them that are
    /// scored.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation; with a head of log-probs also those of [`reply_ids`].
    pub fn conversation(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
    ) -> Result<(Vec<u32>, usize), TokenizerError> {
        let chat = ChatInput::new(messages);
        if self.is_linear() {
            Ok((scored_ids(tokenizer, &chat, self.context())?, 1))
        } else {
            reply_ids(tokenizer, &chat, self.context())
        }
    }

    /// Returns the token ids of a rendered conversation up to the scored token.
    ///
    /// # Errors
    ///
    /// If the head is one of log-probs, for which the reply must be known; or if the tokenizer cannot encode the text.
    pub fn encode_rendered(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
    ) -> Result<(Vec<u32>, usize), TokenizerError> {
        if !self.is_linear() {
            let message =
                "this verifier scores the tokens of a reply: send messages, not a rendered text";
            return Err(TokenizerError::Template(message.to_owned()));
        }
        Ok((last_ids(tokenizer, &Rendered::from(text.to_owned()), self.context())?, 1))
    }

    /// Computes the logit of each row from the last tokens that are scored, whose number is beside the ids. Rows are packed up to
    /// `tokens` tokens at a time, and what rows of a pack begin with, such as one prompt, is computed once. A logit does not depend
    /// on the other rows, to the bit (K-1).
    ///
    /// # Errors
    ///
    /// If a row is empty or too long, or has an unknown id.
    pub fn logits(
        &self,
        rows: &[(Vec<u32>, usize)],
        tokens: usize,
    ) -> Result<Vec<f32>, ModelError> {
        let (mut logits, mut pool, mut left) = (Vec::new(), Pool::default(), rows);
        while !left.is_empty() {
            let mut used = 0;
            let fitting = left.iter().take_while(|(ids, _)| {
                used += ids.len();
                used <= tokens
            });
            let (now, later) = left.split_at(fitting.count().max(1));
            left = later;
            logits.extend(if self.is_linear() {
                self.score_rows(now, &mut pool)?
            } else {
                self.likely(now, &mut pool)?
            });
        }
        Ok(logits)
    }

    /// Computes the logits of rows from their last hidden states.
    fn score_rows(
        &self,
        rows: &[(Vec<u32>, usize)],
        pool: &mut Pool,
    ) -> Result<Vec<f32>, ModelError> {
        if rows.iter().any(|(ids, _)| ids.is_empty()) {
            let message = "a row without tokens has no score";
            return Err(ModelError::wrong_argument(message));
        }
        let rows: Vec<(&[u32], usize)> = rows.iter().map(|(ids, _)| (ids.as_slice(), 1)).collect();
        Ok(self.head.values(&self.hidden(&rows, pool)?))
    }

    /// Computes the logits of rows from the log-probs of their last tokens.
    fn likely(&self, rows: &[(Vec<u32>, usize)], pool: &mut Pool) -> Result<Vec<f32>, ModelError> {
        if rows.iter().any(|(ids, places)| *places == 0 || *places >= ids.len()) {
            let message = "a row without a reply, or without a token before it, has no score";
            return Err(ModelError::wrong_argument(message));
        }
        let before: Vec<(&[u32], usize)> =
            rows.iter().map(|(ids, places)| (&ids[..ids.len() - 1], *places)).collect();
        let picked = self.hidden(&before, pool)?;
        let targets = rows.iter().flat_map(|(ids, places)| &ids[ids.len() - places..]);
        let targets: Vec<u32> = targets.copied().collect();
        let ones = vec![1.0; targets.len()];
        let values = self.head.values(&self.model.decoder.logprobs(&picked, &targets, &ones)?.0);
        let mut values = values.as_slice();
        let means = rows.iter().map(|(_, places)| {
            let (own, others) = values.split_at(*places);
            values = others;
            mean(own) as f32
        });
        Ok(means.collect())
    }

    /// Computes the hidden states of the last tokens of each row, whose number is beside the ids. Rows are computed in one pass, and
    /// what several begin with once.
    fn hidden(&self, rows: &[(&[u32], usize)], pool: &mut Pool) -> Result<Vec<f32>, ModelError> {
        let packed = Forest::of_texts(rows.iter().map(|&(ids, _)| ids), true).pack();
        let Rows { ids, positions, packing } = packed.rows();
        let hidden = self.model.decoder.forward(ids, positions, Context::Packed(packing), pool)?;
        let (width, mut picked) = (self.model.config.hidden_size, Vec::new());
        for (text, (ids, places)) in rows.iter().enumerate() {
            for position in ids.len() - places..ids.len() {
                let at = packed.token_index(text, position);
                picked.extend_from_slice(&hidden[at * width..][..width]);
            }
        }
        pool.give([hidden]);
        Ok(picked)
    }
}

/// Computes the logit of a reply from the values of its tokens: their mean, in f64.
fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len().max(1) as f64
}

/// Returns a `config.json` whose architecture classifies sequences, with one label.
fn classifier(config: &[u8]) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_slice::<Value>(config) else { return config.to_vec() };
    for name in json["architectures"].as_array_mut().into_iter().flatten() {
        if let Some(family) = name.as_str().and_then(|name| name.strip_suffix("ForCausalLM")) {
            *name = format!("{family}ForSequenceClassification").into();
        }
    }
    json["id2label"] = json!({"0": "LABEL_0"});
    json["label2id"] = json!({"LABEL_0": 0});
    format!("{json:#}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use maverl_kernels::attention::Packing;

    use super::*;
    use crate::message::Role;

    fn tiny() -> (RewardModel, Tokenizer) {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let model = Model::load(&files).unwrap();
        let head = ValueHead::new(HeadKind::Reward, &model.config);
        let weight: Vec<f32> = (0..model.config.hidden_size).map(|i| (i as f32).sin()).collect();
        head.vars()[0].1.set(&weight).unwrap();
        let model = RewardModel::new(model, head, RewardHead::new(2.0, 0.0)).unwrap();
        (model, Tokenizer::load(&files).unwrap())
    }

    fn messages(reply: &str) -> [Message; 2] {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        [message(Role::User, "What is 2 + 2?"), message(Role::Assistant, reply)]
    }

    fn row(tokenizer: &Tokenizer, reply: &str, context: usize) -> Vec<u32> {
        scored_ids(tokenizer, &ChatInput::new(&messages(reply)), context).unwrap()
    }

    const REPLIES: [&str; 3] = ["4", "5", "I think that it is 4."];

    #[test]
    fn a_head_of_log_probs_scores_the_mean_of_those_of_the_reply_and_is_read_back_to_the_bit() {
        let (model, tokenizer) = tiny();
        let RewardModel { model, .. } = model;
        let head = ValueHead::of_likelihood([3.0, 0.5]);
        let model = RewardModel::new(model, head, RewardHead::new(2.0, 0.25)).unwrap();
        let row = |reply: &&str| model.conversation(&tokenizer, &messages(reply)).unwrap();
        let rows: Vec<(Vec<u32>, usize)> = REPLIES.iter().map(row).collect();
        let logits = model.logits(&rows, 4096).unwrap();
        for ((ids, places), logit) in rows.iter().zip(&logits) {
            let said = tokenizer.decode(&ids[ids.len() - places..ids.len() - 1]);
            assert!(REPLIES.contains(&said.trim()), "{said}");
            let before = &ids[..ids.len() - 1];
            let positions: Vec<u32> = (0..before.len() as u32).collect();
            let (mut pool, whole) = (Pool::default(), [0, before.len()]);
            let context = Context::Packed(Packing::from_offsets(&whole));
            let decoder = &model.model.decoder;
            let hidden = decoder.forward(before, &positions, context, &mut pool).unwrap();
            let ones = vec![1.0; before.len()];
            let (logp, _) = decoder.logprobs(&hidden, &ids[1..], &ones).unwrap();
            let log_mean = mean(&logp[logp.len() - places..]);
            let expected = 3.0 * log_mean + 0.5;
            assert!((f64::from(*logit) - expected).abs() < 1e-5, "{logit} {expected}");
            let odds = (log_mean.exp() / (1.0 - log_mean.exp())).ln();
            let expected = 1.0 / (1.0 + (-odds / 2.0 - 0.25).exp());
            assert!((model.settings.probability(*logit) - expected).abs() < 1e-5, "{expected}");
        }
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path(), &SaveOptions::default()).unwrap();
        let read = RewardModel::load(dir.path()).unwrap();
        assert_eq!(read.logits(&rows, 1).unwrap(), logits);
        assert_eq!(read.settings, model.settings);
        let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
        assert!(config.contains("ForCausalLM\""), "{config}");
        let error = model.encode_rendered(&tokenizer, "2 + 2? 4").unwrap_err().to_string();
        assert!(error.contains("send messages"), "{error}");
        let settings = r#"{"protocol": 2, "place": "reply", "temperature": 1.0}"#;
        std::fs::write(dir.path().join(FILE), settings).unwrap();
        let error = RewardModel::load(dir.path()).err().unwrap().to_string();
        assert!(error.contains("write both or neither"), "{error}");
    }

    #[test]
    fn of_a_long_row_the_beginning_is_cut_and_a_reply_keeps_a_token_before_it() {
        let (_, tokenizer) = tiny();
        let chat = ChatInput::new(&messages(REPLIES[2]));
        let (ids, places) = reply_ids(&tokenizer, &chat, 512).unwrap();
        assert!(places > 2 && tokenizer.stop_ids().contains(ids.last().unwrap()));
        let (cut, all) = reply_ids(&tokenizer, &chat, 3).unwrap();
        assert_eq!((cut.as_slice(), all), (&ids[ids.len() - 3..], 2));
        assert!(reply_ids(&tokenizer, &chat, 1).is_err());
    }

    #[test]
    fn a_reward_model_written_and_read_back_gives_the_same_logits_to_the_bit() {
        let (model, tokenizer) = tiny();
        let rows: Vec<(Vec<u32>, usize)> =
            REPLIES.map(|reply| (row(&tokenizer, reply, 512), 1)).into();
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path(), &SaveOptions::default()).unwrap();
        let read = RewardModel::load(dir.path()).unwrap();
        let logits = model.logits(&rows, 4096).unwrap();
        assert_eq!(read.logits(&rows, 4096).unwrap(), logits);
        assert_eq!(read.settings, model.settings);
        assert!(logits[0] != logits[1]);
        // Alone and in other batches (K-1), also if rows begin alike, or are equal.
        assert_eq!(read.logits(&rows, 1).unwrap(), logits);
        let twice = [rows.clone(), rows.clone()].concat();
        assert_eq!(read.logits(&twice, 4096).unwrap(), [logits.clone(), logits.clone()].concat());
        assert!(read.logits(&[(Vec::new(), 1)], 4096).is_err());
        let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
        assert!(config.contains("ForSequenceClassification\""), "{config}");
    }

    #[test]
    fn a_row_is_scored_after_the_prompt_for_a_next_reply_and_cut_at_its_beginning() {
        let (_, tokenizer) = tiny();
        let (whole, cut) = (row(&tokenizer, "4", 512), row(&tokenizer, "4", 5));
        assert_eq!(cut, whole[whole.len() - 5..]);
        let open = tokenizer.render(&[], true).unwrap();
        let open = tokenizer.encode_rendered(&open).unwrap();
        assert!(whole.ends_with(&open), "{whole:?} {open:?}");
    }

    #[test]
    fn a_directory_that_is_no_reward_model_is_refused_with_the_reason() {
        let (model, _) = tiny();
        let dir = tempfile::tempdir().unwrap();
        let error = |dir: &Path| RewardModel::load(dir).err().unwrap().to_string();
        assert!(error(dir.path()).contains("reward_head.json"), "{}", error(dir.path()));
        model.model.save(dir.path()).unwrap();
        let settings = |text: &str| std::fs::write(dir.path().join(FILE), text).unwrap();
        settings(r#"{"protocol": 1, "place": "generation_prompt", "temperature": 1.0}"#);
        assert!(error(dir.path()).contains("`score.weight` is missing"), "{}", error(dir.path()));
        settings(r#"{"protocol": 3, "place": "generation_prompt", "temperature": 1.0}"#);
        assert!(error(dir.path()).contains("`protocol` is 3; 2 is known"));
        settings(r#"{"protocol": 1, "place": "generation_prompt", "temperature": 0.0}"#);
        assert!(error(dir.path()).contains("`temperature` is 0"));
        settings(r#"{"protocol": 1, "place": "elsewhere", "temperature": 1.0}"#);
        assert!(error(dir.path()).contains("generation_prompt"));
    }
}
