//! Architectures of llama.cpp, and its names of tensors (reference: gguf-py/gguf/constants.py and tensor_mapping.py).

/// An architecture of llama.cpp whose files are read and written.
pub(crate) struct Architecture {
    /// `general.architecture`.
    pub(crate) name: &'static str,
    /// `model_type` that its models get.
    pub(crate) family: &'static str,
    /// Start of their entry of `architectures`.
    pub(crate) class: &'static str,
    /// Families whose models are written as this architecture.
    pub(crate) exported: &'static [&'static str],
    /// True if the rows of queries and keys are stored in pairs that rotate together, where transformers has two halves.
    pub(crate) paired: bool,
    /// True if the weight of a norm is stored as the factor, `1 + w`.
    pub(crate) one_plus: bool,
    /// Names within a layer, of llama.cpp and of transformers; `*` stands for the number of an expert.
    parts: &'static [&'static [(&'static str, &'static str)]],
}

type PartPairs = &'static [(&'static str, &'static str)];

const ATTENTION: PartPairs = &[
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
];
const FUSED: PartPairs = &[
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_up", "mlp.gate_up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
const HEAD_NORMS: PartPairs =
    &[("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm")];
const MLP: PartPairs =
    &[("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj")];
const EXPERTS: PartPairs = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
];
const BEFORE: PartPairs =
    &[("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")];
const AFTER: PartPairs = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];
const GEMMA: PartPairs =
    &[("attn_norm", "input_layernorm"), ("ffn_norm", "pre_feedforward_layernorm")];

/// The architectures, sorted by name.
pub(crate) const ARCHITECTURES: [Architecture; 9] = [
    Architecture {
        name: "gemma2",
        family: "gemma2",
        class: "Gemma2",
        exported: &["gemma2"],
        one_plus: true,
        parts: &[ATTENTION, MLP, GEMMA, AFTER],
        ..LLAMA
    },
    Architecture {
        name: "gemma3",
        family: "gemma3_text",
        class: "Gemma3",
        exported: &["gemma3_text"],
        one_plus: true,
        parts: &[ATTENTION, HEAD_NORMS, MLP, GEMMA, AFTER],
        ..LLAMA
    },
    Architecture { paired: true, ..LLAMA },
    Architecture {
        name: "olmo2",
        family: "olmo3",
        class: "Olmo3",
        exported: &["olmo3"],
        parts: &[ATTENTION, HEAD_NORMS, MLP, AFTER],
        ..LLAMA
    },
    Architecture {
        name: "phi3",
        family: "phi3",
        class: "Phi3",
        exported: &["phi3"],
        parts: &[FUSED, BEFORE],
        ..LLAMA
    },
    Architecture { name: "qwen2", family: "qwen2", class: "Qwen2", exported: &["qwen2"], ..LLAMA },
    Architecture {
        name: "qwen3",
        family: "qwen3",
        class: "Qwen3",
        exported: &["qwen3"],
        parts: &[ATTENTION, HEAD_NORMS, MLP, BEFORE],
        ..LLAMA
    },
    Architecture {
        name: "qwen3moe",
        family: "qwen3_moe",
        class: "Qwen3Moe",
        exported: &["qwen3_moe"],
        parts: &[ATTENTION, HEAD_NORMS, EXPERTS, BEFORE],
        ..LLAMA
    },
    Architecture {
        name: "smollm3",
        family: "smollm3",
        class: "SmolLM3",
        exported: &["smollm3"],
        paired: true,
        ..LLAMA
    },
];

/// Llama, but for the order of its rows.
const LLAMA: Architecture = Architecture {
    name: "llama",
    family: "llama",
    class: "Llama",
    exported: &["llama", "mistral", "ministral"],
    paired: false,
    one_plus: false,
    parts: &[ATTENTION, MLP, BEFORE],
};

/// Names beside the layers.
const BESIDE: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

impl Architecture {
    /// Returns the architecture of a name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        const ALL: &[Architecture] = &ARCHITECTURES;
        ALL.iter().find(|architecture| architecture.name == name)
    }

    /// Returns the architecture as which models of a family are written.
    pub(crate) fn of_family(family: &str) -> Option<&'static Self> {
        const ALL: &[Architecture] = &ARCHITECTURES;
        ALL.iter().find(|architecture| architecture.exported.contains(&family))
    }

    /// Returns the names of all architectures, for messages.
    pub(crate) fn names() -> String {
        ARCHITECTURES.map(|architecture| architecture.name).join(", ")
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.parts.iter().flat_map(|parts| parts.iter().copied())
    }

    /// Returns the name that a tensor has in files of transformers; `*` stands for the number of an expert.
    pub(crate) fn name_in_directory(&self, name: &str) -> Option<String> {
        let Some(rest) = name.strip_prefix("blk.") else {
            let (part, end) = name.split_once('.')?;
            let (_, found) = BESIDE.into_iter().find(|(own, _)| *own == part)?;
            return Some(format!("{found}.{end}"));
        };
        let (layer, rest) = rest.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let (part, end) = rest.split_once('.')?;
        let (_, found) = self.parts().find(|(own, _)| *own == part)?;
        Some(format!("model.layers.{layer}.{found}.{end}"))
    }

    /// Returns the name of a tensor within a layer, with the number of the expert that it belongs to. `name` is that of
    /// transformers, with `.weight` or `.bias`.
    pub(crate) fn name_in_layer(
        &self,
        layer: usize,
        name: &str,
    ) -> Option<(String, Option<usize>)> {
        let (module, end) = name.rsplit_once('.')?;
        let expert = module.split_once(".experts.").and_then(|(_, rest)| rest.split_once('.'));
        let plain = match expert {
            Some((number, _)) => module.replacen(&format!(".experts.{number}."), ".experts.*.", 1),
            None => module.to_owned(),
        };
        let (own, _) = self.parts().find(|(_, found)| *found == plain)?;
        let expert = expert.map(|(number, _)| number.parse()).transpose().ok()?;
        Some((format!("blk.{layer}.{own}.{end}"), expert))
    }
}

/// Returns the name of a tensor beside the layers, from the end of its name in files of transformers.
pub(crate) fn name_beside_layers(name: &str) -> Option<String> {
    let (module, end) = name.rsplit_once('.')?;
    let own = match module.rsplit('.').next()? {
        "embed_tokens" => "token_embd",
        "norm" => "output_norm",
        "lm_head" => "output",
        _ => return None,
    };
    Some(format!("{own}.{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_every_architecture_is_found_in_both_directions() {
        for architecture in &ARCHITECTURES {
            for (own, found) in architecture.parts() {
                let there = architecture.name_in_directory(&format!("blk.7.{own}.weight"));
                assert_eq!(there, Some(format!("model.layers.7.{found}.weight")));
                let (plain, expert) = (found.replace('*', "5"), found.contains('*').then_some(5));
                let back = architecture.name_in_layer(7, &format!("{plain}.weight"));
                assert_eq!(back, Some((format!("blk.7.{own}.weight"), expert)));
            }
        }
        for (own, found) in BESIDE {
            assert_eq!(
                name_beside_layers(&format!("{found}.weight")),
                Some(format!("{own}.weight"))
            );
        }
        let names: Vec<&str> = ARCHITECTURES.iter().map(|architecture| architecture.name).collect();
        assert!(names.is_sorted());
    }
}
