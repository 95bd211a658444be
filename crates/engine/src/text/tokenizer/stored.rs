//! A tokenizer without the other files of its model: the texts of ids where there are no weights.

use serde_json::{Map, Value, json};
use tokenizers::DecoderWrapper;

use super::settings::TokenizerSettings;
use super::{OnceLock, Specials, Tokenizer, catch_panic, parse};
use crate::text::TokenizerError;

/// Text that a token adds to the tokens before it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Text. Empty if it depends on the next token, as that of the first bytes of a character.
    pub text: String,
    /// Bytes of a token without text.
    pub bytes: Vec<u8>,
    /// True for a special token, which is not part of a reply's text.
    pub special: bool,
}

impl Tokenizer {
    /// Returns `tokenizer.json` as it is used: with the tokens that other files of the model add or make special.
    ///
    /// # Errors
    ///
    /// If the tokenizer cannot be written.
    pub fn to_json(&self) -> Result<String, TokenizerError> {
        let text = catch_panic(|| self.tokenizer.to_string(false))?;
        text.map_err(TokenizerError::of_files)
    }

    /// Reads a text of [`Tokenizer::to_json`]. The result has no chat template and no ids that end a reply.
    ///
    /// # Errors
    ///
    /// If the text is damaged.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let (tokenizer, specials) =
            catch_panic(|| parse(json, &TokenizerSettings::default())).and_then(|parsed| parsed)?;
        Ok(Self::without_template(tokenizer, specials, "tokenizer.json".to_owned()))
    }

    /// Returns the part in which the ids of texts differ from those of another tokenizer; `None` if both have the same ids for
    /// the same tokens.
    ///
    /// # Errors
    ///
    /// If a tokenizer cannot be written.
    #[doc(hidden)]
    pub fn different_part(&self, other: &Self) -> Result<Option<&'static str>, TokenizerError> {
        let [ours, theirs] = [self.stored_parts()?, other.stored_parts()?];
        let mut parts = ["vocabulary", "merges", "added tokens"].into_iter().zip(ours).zip(theirs);
        Ok(parts.find(|((_, ours), theirs)| ours != theirs).map(|((name, _), _)| name))
    }

    /// Returns the vocabulary, the merges, and the ids and texts of added tokens.
    fn stored_parts(&self) -> Result<[Value; 3], TokenizerError> {
        let all: Value =
            serde_json::from_str(&self.to_json()?).map_err(TokenizerError::of_files)?;
        let added = all["added_tokens"].as_array().into_iter().flatten();
        let added = added.map(|token| json!([token["id"], token["content"]])).collect();
        let [vocabulary, merges] = ["vocab", "merges"].map(|part| all["model"][part].clone());
        Ok([vocabulary, merges, added])
    }

    /// Returns a tokenizer without a chat template and without ids that end a reply.
    pub(super) fn without_template(
        tokenizer: tokenizers::Tokenizer,
        specials: Specials,
        place: String,
    ) -> Self {
        let byte_level = matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        Self {
            tokenizer,
            specials,
            templates: None,
            variables: Map::new(),
            told: Map::new(),
            stop_ids: Vec::new(),
            byte_level,
            takes_tools: OnceLock::new(),
            longest: OnceLock::new(),
            place,
        }
    }

    /// Returns the text of each id. The texts of all pieces, one after the other, are [`Tokenizer::decode_raw`] of the
    /// ids.
    pub fn pieces(&self, ids: &[u32]) -> Vec<Piece> {
        let mut decoder = self.detokenizer_raw();
        let mut pieces: Vec<Piece> = ids
            .iter()
            .map(|&id| {
                let text = decoder.push(id);
                let bytes = if text.is_empty() { self.token_bytes(id) } else { Vec::new() };
                let special = self.is_special(id);
                Piece { text, bytes, special }
            })
            .collect();
        if let Some(last) = pieces.last_mut() {
            last.text.push_str(&decoder.finish());
        }
        pieces
    }
}
