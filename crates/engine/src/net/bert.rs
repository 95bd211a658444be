//! Encoders of BERT's kind, forward only (arXiv:1810.04805, section 3; transformers `BertModel`, `RobertaModel`,
//! `DistilBertModel`).
//!
//! For the tokens `t` of a text, each attending to all of them:
//!
//! ```text
//! x  = LN(E[idₜ] + T[0] + P[t])
//! a  = softmax(q kᵀ / √d) v,   q = x Wqᵀ + bq,  k = x Wkᵀ + bk,  v = x Wvᵀ + bv        in each head, of d numbers
//! h  = LN(x + a Woᵀ + bo)
//! x' = LN(h + act(h W₁ᵀ + b₁) W₂ᵀ + b₂)                                                in each layer
//!
//! LN(z) = w (z − mean(z)) / √(var(z) + eps) + b                                        var divides by D
//! ```

mod attention;
mod load;
mod rows;

use maverl_kernels::bias::add_bias;
use maverl_kernels::elementwise::add_numbers;
use maverl_kernels::matmul::{PackedWeight, Precision};

use crate::files::{EncoderConfig, ModelError};
use rows::LayerNorm;

/// An encoder whose tokens attend to all tokens of their text.
///
/// The hidden states of a text have the same bits alone and in a batch, on any number of threads (K-1).
pub struct BertModel {
    /// Shape of the model.
    pub config: EncoderConfig,
    /// Embeddings of tokens `[V, D]`.
    words: Vec<f32>,
    /// Embeddings of positions `[P, D]`.
    positions: Vec<f32>,
    /// Embedding of the first type of tokens, `[D]`; zeros if the family has no types.
    kind: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<BertLayer>,
}

/// A layer: attention and an MLP, with a norm after each.
struct BertLayer {
    query: BiasedLinear,
    key: BiasedLinear,
    value: BiasedLinear,
    output: BiasedLinear,
    attention_norm: LayerNorm,
    up: BiasedLinear,
    down: BiasedLinear,
    norm: LayerNorm,
}

/// `y = x Wᵀ + b`.
struct BiasedLinear {
    weight: PackedWeight,
    bias: Vec<f32>,
}

impl BertModel {
    /// Computes the hidden states `[N, D]` of the N tokens of some texts, text after text.
    ///
    /// # Errors
    ///
    /// If a text is longer than [`EncoderConfig::longest`], or has an unknown id.
    pub fn forward(&self, texts: &[&[u32]]) -> Result<Vec<f32>, ModelError> {
        self.check(texts)?;
        // 1. [N, D]
        let mut x = self.embed(texts);
        self.norm.apply(&mut x);
        let lengths: Vec<usize> = texts.iter().map(|text| text.len()).collect();
        for layer in &self.layers {
            x = layer.forward(&x, &lengths, self);
        }
        Ok(x)
    }

    fn check(&self, texts: &[&[u32]]) -> Result<(), ModelError> {
        let (longest, size) = (self.config.longest(), self.config.vocab_size);
        if let Some(text) = texts.iter().find(|text| text.len() > longest) {
            let found = text.len();
            let message = format!("a text has {found} tokens; the encoder has {longest} positions");
            return Err(ModelError::wrong_argument(message));
        }
        match texts.iter().copied().flatten().find(|id| **id as usize >= size) {
            Some(id) => {
                let message = format!("token {id} is not below {size}, the size of the vocabulary");
                Err(ModelError::wrong_argument(message))
            }
            None => Ok(()),
        }
    }

    /// Returns the sums of the embeddings of tokens, types and positions, `[N, D]`.
    fn embed(&self, texts: &[&[u32]]) -> Vec<f32> {
        let width = self.config.hidden_size;
        let mut x = Vec::with_capacity(texts.iter().map(|text| text.len()).sum::<usize>() * width);
        for text in texts {
            for (id, position) in text.iter().zip(self.positions_of(text)) {
                let word = &self.words[*id as usize * width..][..width];
                let place = &self.positions[position * width..][..width];
                let parts = word.iter().zip(&self.kind).zip(place);
                x.extend(parts.map(|((word, kind), place)| word + kind + place));
            }
        }
        x
    }

    /// Returns the positions of the tokens of a text. Those that count after the padding token leave it out (transformers
    /// `create_position_ids_from_input_ids`).
    fn positions_of(&self, text: &[u32]) -> Vec<usize> {
        let Some(padding) = self.config.padding else { return (0..text.len()).collect() };
        let mut count = padding as usize;
        let positions = text.iter().map(|&id| {
            count += usize::from(id != padding);
            if id == padding { padding as usize } else { count }
        });
        positions.collect()
    }
}

impl BertLayer {
    /// Computes the layer for hidden states `[N, D]` of texts of some lengths.
    fn forward(&self, x: &[f32], lengths: &[usize], model: &BertModel) -> Vec<f32> {
        let config = &model.config;
        // 1. [N, D] each
        let [q, k, v] = [&self.query, &self.key, &self.value].map(|map| map.forward(x));
        let heads = attention::FullAttention { heads: config.heads, width: config.hidden_size };
        let mixed = heads.forward([&q, &k, &v], lengths);
        // 2. [N, D]
        let mut h = self.output.forward(&mixed);
        add_numbers(&mut h, x);
        self.attention_norm.apply(&mut h);
        // 3. [N, D] -> [N, W] -> [N, D]
        let mut inner = self.up.forward(&h);
        rows::activate(config.activation, &mut inner);
        let mut y = self.down.forward(&inner);
        add_numbers(&mut y, &h);
        self.norm.apply(&mut y);
        y
    }
}

impl BiasedLinear {
    /// Computes `x Wᵀ + b` for rows of `x`.
    fn forward(&self, x: &[f32]) -> Vec<f32> {
        let (outputs, inputs) = self.weight.shape();
        let rows = x.len() / inputs;
        let mut y = vec![0.0; rows * outputs];
        Precision::F32.set().nt_packed(x, &self.weight, &mut y, rows);
        add_bias(&self.bias, &mut y);
        y
    }
}

#[cfg(test)]
mod tests;
