//! Reward models: a decoder with a linear head without bias, in the layout of `AutoModelForSequenceClassification`.
//!
//! A directory has the files of a model, with `score.weight [1, D]` among its weights, and `reward_head.json`, which says
//! where a row is scored and how its logit becomes a probability:
//!
//! ```text
//! {"protocol": 1, "place": "generation_prompt", "temperature": 1.3}          p = 1 / (1 + exp(−logit / temperature))
//! ```

use std::path::Path;

use maverl_kernels::attention::Packing;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::Message;
use crate::model::save::{self, Entry};
use crate::model::weights::SCORE;
use crate::model::{
    Context, HeadKind, Model, ModelError, ModelErrorKind, ModelFiles, ModelSource, Pool,
    SaveOptions, Shards, Tokenizer, TokenizerError, ValueHead, companion,
};

/// File of the settings of a head.
const FILE: &str = "reward_head.json";
/// Version of the settings.
const PROTOCOL: u32 = 1;

/// Settings of the head of a reward model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardHead {
    /// Version of the settings.
    protocol: u32,
    /// Token whose hidden state is scored.
    place: Place,
    /// Divisor of logits, from calibration.
    pub temperature: f64,
}

/// Token whose hidden state is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// The last token of the prompt for a next reply, after the reply that is scored.
    GenerationPrompt,
}

impl RewardHead {
    /// Creates the settings of a head with a temperature.
    pub fn new(temperature: f64) -> Self {
        Self { protocol: PROTOCOL, place: Place::GenerationPrompt, temperature }
    }

    /// Reads the settings in the directory of a reward model.
    ///
    /// # Errors
    ///
    /// If the directory has none, or those of another version.
    pub fn read(dir: &Path) -> Result<Self, ModelError> {
        let path = dir.join(FILE);
        let bytes = std::fs::read(&path)
            .map_err(|e| ModelError::io(format!("cannot read {}: {e}", path.display()), e))?;
        let invalid = |what: String| {
            ModelError::new(ModelErrorKind::Invalid, format!("{}: {what}", path.display()))
        };
        let head: Self = serde_json::from_slice(&bytes).map_err(|e| invalid(e.to_string()))?;
        if head.protocol != PROTOCOL {
            return Err(invalid(format!("`protocol` is {}; {PROTOCOL} is known", head.protocol)));
        }
        if !(head.temperature.is_finite() && head.temperature > 0.0) {
            let found = head.temperature;
            return Err(invalid(format!("`temperature` is {found}; it is a number above 0")));
        }
        Ok(head)
    }

    /// Returns the probability of a logit.
    pub fn probability(&self, logit: f32) -> f64 {
        1.0 / (1.0 + (-f64::from(logit) / self.temperature).exp())
    }
}

/// Returns the token ids of a conversation that ends with the reply to score. The last one is the scored token. Of a row
/// that is longer than the context, the beginning is cut.
///
/// # Errors
///
/// If the template refuses the conversation.
pub fn scored_ids(
    tokenizer: &Tokenizer,
    messages: &[Message],
    context: usize,
) -> Result<Vec<u32>, TokenizerError> {
    let mut ids = tokenizer.encode_rendered(&tokenizer.render(messages, true)?)?;
    let cut = ids.len().saturating_sub(context);
    Ok(ids.split_off(cut))
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
    /// If the head has a bias, which the layout has no place for.
    pub fn new(model: Model, head: ValueHead, settings: RewardHead) -> Result<Self, ModelError> {
        match head.kind() {
            HeadKind::Reward => Ok(Self { model, head, settings }),
            HeadKind::Value => Err(ModelError::new(
                ModelErrorKind::Argument,
                "a head of values is not that of a reward model",
            )),
        }
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
        let (head, shards) =
            (ValueHead::new(HeadKind::Reward, &model.config), Shards::open(&files)?);
        if shards.shape(SCORE).is_none() {
            let message = format!("{}: `{SCORE}` is missing: the model has no head", dir.display());
            return Err(ModelError::new(ModelErrorKind::Mismatch, message));
        }
        shards.assign(SCORE, &head.vars()[0].1)?;
        Self::new(model, head, settings)
    }

    /// Writes the model as a directory that [`RewardModel::load`] and `AutoModelForSequenceClassification` load.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, dir: &Path, options: &SaveOptions) -> Result<(), ModelError> {
        let tied = self.model.config.tie_word_embeddings;
        for (name, bytes) in self.model.companions.iter() {
            match name.as_str() {
                "config.json" => {
                    let config = save::configuration(bytes, options.dtype, tied);
                    companion(dir, name, &classifier(&config))?;
                }
                _ => companion(dir, name, bytes)?,
            }
        }
        let vars = self.model.weights.vars().iter().map(|(name, var)| (name.as_str(), var));
        let head = std::iter::once((SCORE, &self.head.vars()[0].1));
        let entries: Vec<Entry<'_>> = vars
            .chain(head)
            .map(|(name, var)| Entry::tensor(name, var).stored_as(options.dtype))
            .collect();
        save::shards(dir, &entries, options.shard_bytes)?;
        companion(dir, FILE, format!("{:#}\n", json!(self.settings)).as_bytes())
    }

    /// Returns the maximum length of a row.
    pub fn context(&self) -> usize {
        self.model.config.max_position_embeddings
    }

    /// Computes the logit of each row, at its last token. Rows are packed up to `tokens` tokens at a time; a logit does not
    /// depend on the other rows, to the bit (K-1).
    ///
    /// # Errors
    ///
    /// If a row is empty or too long, or has an unknown id.
    pub fn logits(&self, rows: &[Vec<u32>], tokens: usize) -> Result<Vec<f32>, ModelError> {
        let (mut logits, mut pool, mut left) = (Vec::new(), Pool::default(), rows);
        while !left.is_empty() {
            let mut used = 0;
            let fits = |row: &&Vec<u32>| {
                used += row.len();
                used <= tokens
            };
            let (now, later) = left.split_at(left.iter().take_while(fits).count().max(1));
            left = later;
            let (mut positions, mut offsets) = (Vec::new(), vec![0]);
            for row in now {
                positions.extend(0..row.len() as u32);
                offsets.push(positions.len());
            }
            let context = Context::Packed(Packing::of(&offsets));
            let decoder = &self.model.decoder;
            let hidden = decoder.forward(&now.concat(), &positions, context, &mut pool)?;
            logits.extend(self.head.scores(&hidden, &offsets)?);
            pool.give([hidden]);
        }
        Ok(logits)
    }
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

    use super::*;
    use crate::message::Role;

    fn tiny() -> (RewardModel, Tokenizer) {
        let files = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        let model = Model::load(&files).unwrap();
        let head = ValueHead::new(HeadKind::Reward, &model.config);
        let weight: Vec<f32> = (0..model.config.hidden_size).map(|i| (i as f32).sin()).collect();
        head.vars()[0].1.set(&weight).unwrap();
        let model = RewardModel::new(model, head, RewardHead::new(2.0)).unwrap();
        (model, Tokenizer::load(&files).unwrap())
    }

    fn row(tokenizer: &Tokenizer, reply: &str, context: usize) -> Vec<u32> {
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let messages = [message(Role::User, "What is 2 + 2?"), message(Role::Assistant, reply)];
        scored_ids(tokenizer, &messages, context).unwrap()
    }

    #[test]
    fn a_reward_model_written_and_read_back_gives_the_same_logits_to_the_bit() {
        let (model, tokenizer) = tiny();
        let rows: Vec<Vec<u32>> =
            ["4", "5", "I think that it is 4."].map(|reply| row(&tokenizer, reply, 512)).into();
        let dir = tempfile::tempdir().unwrap();
        model.save(dir.path(), &SaveOptions::default()).unwrap();
        let read = RewardModel::load(dir.path()).unwrap();
        let logits = model.logits(&rows, 4096).unwrap();
        assert_eq!(read.logits(&rows, 4096).unwrap(), logits);
        assert_eq!(read.settings, model.settings);
        assert!(logits[0] != logits[1]);
        // Alone and in other batches (K-1).
        assert_eq!(read.logits(&rows, 1).unwrap(), logits);
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
        settings(r#"{"protocol": 2, "place": "generation_prompt", "temperature": 1.0}"#);
        assert!(error(dir.path()).contains("`protocol` is 2; 1 is known"));
        settings(r#"{"protocol": 1, "place": "generation_prompt", "temperature": 0.0}"#);
        assert!(error(dir.path()).contains("`temperature` is 0"));
        settings(r#"{"protocol": 1, "place": "elsewhere", "temperature": 1.0}"#);
        assert!(error(dir.path()).contains("generation_prompt"));
        assert!((RewardHead::new(2.0).probability(2.0) - 0.731_058_578_6).abs() < 1e-9);
    }
}
