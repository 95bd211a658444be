//! Names of the ways in which llama.cpp splits a text into words before byte-level BPE (reference: `llama-vocab.cpp`,
//! `llm_tokenizer_bpe`; the expressions are those of the models' `tokenizer.json`).

use serde_json::{Value, json};

/// A way to split a text.
pub(crate) struct Split {
    /// Values of `tokenizer.ggml.pre`; the first one is written.
    names: &'static [&'static str],
    /// Steps, one after the other.
    steps: &'static [SplitStep],
    /// True if a word that is a token is not merged from its parts.
    pub(crate) ignores_merges: bool,
    /// True if the models with it compose characters first (NFC).
    nfc: bool,
}

/// A step of splitting.
#[derive(Debug, PartialEq)]
enum SplitStep {
    /// Matches of an expression, and what is between them.
    Expression(&'static str),
    /// Each digit alone.
    Digits,
    /// Words of GPT-2.
    Words,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The ways, each by its names.
const SPLITS: [Split; 9] = [
    Split { names: &["gpt-2", "mpt", "olmo"], steps: &[SplitStep::Words], ..PLAIN },
    Split {
        names: &["smollm", "starcoder", "refact"],
        steps: &[SplitStep::Digits, SplitStep::Words],
        ..PLAIN
    },
    Split {
        names: &["qwen2", "deepseek-r1-qwen"],
        steps: &[SplitStep::Expression(QWEN2)],
        nfc: true,
        ..PLAIN
    },
    Split { names: &["qwen35"], steps: &[SplitStep::Expression(QWEN35)], nfc: true, ..PLAIN },
    Split {
        names: &["llama-bpe", "llama3", "llama-v3"],
        steps: &[SplitStep::Expression(LLAMA3)],
        ignores_merges: true,
        ..PLAIN
    },
    Split { names: &["dbrx", "smaug-bpe"], steps: &[SplitStep::Expression(LLAMA3)], ..PLAIN },
    Split {
        names: &["tekken"],
        steps: &[SplitStep::Expression(TEKKEN)],
        ignores_merges: true,
        ..PLAIN
    },
    Split { names: &["gpt-4o"], steps: &[SplitStep::Expression(GPT4O)], ..PLAIN },
    Split {
        names: &["default"],
        steps: &[
            SplitStep::Expression(r"[\p{P}\$\+<=>\^~\|]+"),
            SplitStep::Expression(GPT2),
            SplitStep::Expression(r"\p{N}+"),
            SplitStep::Expression(r"[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
];

const PLAIN: Split = Split { names: &[], steps: &[], ignores_merges: false, nfc: false };

impl Split {
    /// Returns the way of a name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        const ALL: &[Split] = &SPLITS;
        ALL.iter().find(|split| split.names.contains(&name))
    }

    /// Returns the way in which a `tokenizer.json` splits; `None` if llama.cpp has no name for it.
    pub(crate) fn of_tokenizer(tokenizer: &Value) -> Option<&'static Self> {
        const ALL: &[Split] = &SPLITS;
        let ignores = tokenizer["model"]["ignore_merges"] == true;
        let found = steps(&tokenizer["pre_tokenizer"])?;
        let normalizer = &tokenizer["normalizer"];
        if !normalizer.is_null() && normalizer["type"] != "NFC" {
            return None;
        }
        let equal = |split: &&Split| split.ignores_merges == ignores && split.json_steps() == found;
        ALL.iter().find(equal)
    }

    /// Returns the names of all ways, for messages.
    pub(crate) fn names() -> String {
        SPLITS.map(|split| split.names[0]).join(", ")
    }

    /// Returns the name to be written.
    pub(crate) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// Returns the normalizer of a `tokenizer.json`.
    pub(crate) fn normalizer(&self) -> Value {
        if self.nfc { json!({ "type": "NFC" }) } else { Value::Null }
    }

    /// Returns the steps as those of [`steps`].
    fn json_steps(&self) -> Vec<String> {
        let steps = self.steps.iter().map(|step| match step {
            SplitStep::Expression(expression) => (*expression).to_owned(),
            SplitStep::Digits => DIGITS.to_owned(),
            SplitStep::Words => GPT2.to_owned(),
        });
        steps.collect()
    }

    /// Returns the pre-tokenizer of a `tokenizer.json`.
    pub(crate) fn pre_tokenizer(&self) -> Value {
        let steps = self.steps.iter().map(|step| match step {
            SplitStep::Expression(expression) => json!({
                "type": "Split",
                "pattern": { "Regex": expression },
                "behavior": "Isolated",
                "invert": false,
            }),
            SplitStep::Digits => json!({ "type": "Digits", "individual_digits": true }),
            SplitStep::Words => byte_level(true),
        });
        let mut steps: Vec<Value> = steps.collect();
        if self.steps.last() != Some(&SplitStep::Words) {
            steps.push(byte_level(false));
        }
        match &steps[..] {
            [only] => only.clone(),
            _ => json!({ "type": "Sequence", "pretokenizers": steps }),
        }
    }
}

/// Returns the step that writes bytes as characters, and splits by the words of GPT-2 first if it is asked to.
fn byte_level(words: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": words,
    })
}

/// Stands for digits alone in a list of expressions.
const DIGITS: &str = "digits";

/// Returns the expressions of a pre-tokenizer, one after the other; `None` if it has others than byte-level BPE has.
fn steps(pre_tokenizer: &Value) -> Option<Vec<String>> {
    let one = [pre_tokenizer.clone()];
    let all = match pre_tokenizer["type"].as_str()? {
        "Sequence" => pre_tokenizer["pretokenizers"].as_array()?,
        _ => &one[..],
    };
    let (last, first) = all.split_last()?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] == true {
        return None;
    }
    let expressions = first.iter().map(|step| match step["type"].as_str()? {
        "Split" if step["behavior"] == "Isolated" && step["invert"] != true => {
            step["pattern"]["Regex"].as_str().map(str::to_owned)
        }
        "Digits" if step["individual_digits"] == true => Some(DIGITS.to_owned()),
        _ => None,
    });
    let mut expressions = expressions.collect::<Option<Vec<String>>>()?;
    // The key is true where it is missing.
    if last["use_regex"] != false {
        expressions.push(GPT2.to_owned());
    }
    Some(expressions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_split_is_found_again_by_its_tokenizer() {
        for split in &SPLITS {
            let tokenizer = json!({
                "normalizer": split.normalizer(),
                "pre_tokenizer": split.pre_tokenizer(),
                "model": { "ignore_merges": split.ignores_merges },
            });
            assert_eq!(Split::of_tokenizer(&tokenizer).map(Split::name), Some(split.name()));
            for name in split.names {
                assert_eq!(Split::named(name).map(Split::name), Some(split.name()));
            }
        }
        let other = json!({ "pre_tokenizer": { "type": "Whitespace" }, "model": {} });
        assert!(Split::of_tokenizer(&other).is_none());
    }
}
