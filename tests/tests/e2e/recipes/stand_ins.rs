//! Stand-ins for the models and the data of the recipes, in a directory like the root of the repository.

use std::fs;
use std::path::PathBuf;

use maverl::builtin::{arithmetic, facts, invent};
use maverl::plan::Plan;
use maverl::registry::Registry;
use maverl::{Purpose, Sources, check};
use maverl_tests::lab::Lab;
use serde_json::{Value, json};

use super::{Recipe, STAGES, recipes, root};
use crate::lab;

/// Shape of a published model: its directory, and the numbers of its `config.json`.
struct Shape {
    dir: &'static str,
    kind: &'static str,
    hidden: u32,
    intermediate: u32,
    layers: u32,
    heads: (u32, u32),
    head_dim: u32,
    vocab: u32,
    context: u32,
    tied: bool,
}

const QWEN_3B: Shape = Shape {
    dir: "models/Qwen2.5-3B",
    kind: "qwen2",
    hidden: 2048,
    intermediate: 11008,
    layers: 36,
    heads: (16, 2),
    head_dim: 128,
    vocab: 151_936,
    context: 32_768,
    tied: true,
};

const QWEN_1_5B: Shape = Shape {
    dir: "models/Qwen2.5-1.5B-Instruct",
    hidden: 1536,
    intermediate: 8960,
    layers: 28,
    heads: (12, 2),
    ..QWEN_3B
};

const QWEN3_4B: Shape = Shape {
    dir: "models/Qwen3-4B",
    kind: "qwen3",
    hidden: 2560,
    intermediate: 9728,
    heads: (32, 8),
    context: 40_960,
    ..QWEN_3B
};

/// Every model that a recipe names.
const SHAPES: [Shape; 9] = [
    QWEN_3B,
    Shape { dir: "models/Qwen2.5-3B-Instruct", ..QWEN_3B },
    QWEN_1_5B,
    Shape {
        dir: "models/Qwen2.5-0.5B-Instruct",
        hidden: 896,
        intermediate: 4864,
        layers: 24,
        heads: (14, 2),
        head_dim: 64,
        ..QWEN_3B
    },
    Shape {
        dir: "models/Qwen2.5-7B",
        hidden: 3584,
        intermediate: 18944,
        layers: 28,
        heads: (28, 4),
        vocab: 152_064,
        context: 131_072,
        tied: false,
        ..QWEN_3B
    },
    QWEN3_4B,
    Shape {
        dir: "models/Qwen3-1.7B",
        hidden: 2048,
        intermediate: 6144,
        layers: 28,
        heads: (16, 8),
        ..QWEN3_4B
    },
    Shape { dir: "models/Qwen3-8B", hidden: 4096, intermediate: 12288, tied: false, ..QWEN3_4B },
    Shape {
        dir: "models/Llama-2-7b-chat-hf",
        kind: "llama",
        hidden: 4096,
        intermediate: 11008,
        layers: 32,
        heads: (32, 32),
        head_dim: 128,
        vocab: 32_000,
        context: 4096,
        tied: false,
    },
];

impl Shape {
    fn config(&self) -> Value {
        json!({
            "model_type": self.kind,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads.0,
            "num_key_value_heads": self.heads.1,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
        })
    }
}

/// A directory with all recipes, the models without weights that they name, and their data.
pub(super) struct Fixture {
    pub(super) lab: Lab,
    pub(super) recipes: Vec<Recipe>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let (lab, recipes) = (lab(), recipes(&root().join("recipes")));
        assert!(recipes.len() >= 30, "{} recipes", recipes.len());
        for shape in SHAPES {
            fs::create_dir_all(lab.path(shape.dir).parent().unwrap()).unwrap();
            lab.model(shape.dir, 512);
            fs::remove_file(lab.path(shape.dir).join("model.safetensors")).unwrap();
            lab.write(&format!("{}/config.json", shape.dir), &shape.config().to_string());
        }
        let fixture = Self { lab, recipes };
        fixture.data();
        for recipe in &fixture.recipes {
            fixture.write(&format!("recipes/{}", recipe.name), &recipe.text);
        }
        for stages in STAGES {
            let text = fs::read_to_string(root().join("recipes").join(stages)).unwrap();
            fixture.write(&format!("recipes/{stages}"), &text);
        }
        fixture
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.lab.path(name).parent().unwrap()).unwrap();
        self.lab.write(name, text);
    }

    /// Writes rows as JSONL, which is read by its content, under whatever name.
    fn rows(&self, name: &str, rows: impl Iterator<Item = Value>) {
        self.write(name, &rows.map(|row| format!("{row}\n")).collect::<String>());
    }

    /// Writes a few rows of each data set in its published form, with questions that the built-in model knows.
    fn data(&self) {
        let sums = invent(arithmetic::NAME, 5).unwrap().remove(0).1;
        let sums: Vec<(String, String)> = sums
            .into_iter()
            .filter(|task| task.data["level"] == 1)
            .map(|task| (task.question, task.data["answers"][0].as_str().unwrap().to_owned()))
            .take(48)
            .collect();
        assert_eq!(sums.len(), 48);
        // A verifier is trained on other questions than those whose replies it scores.
        let (sums, of_verifier) = sums.split_at(24);
        let all = |row: &dyn Fn(usize, &str, &str) -> Value| -> Vec<Value> {
            sums.iter().enumerate().map(|(i, (q, a))| row(i, q, a)).collect()
        };
        let gsm = all(&|_, q, a| json!({ "question": q, "answer": format!("So.\n#### {a}") }));
        let math = all(
            &|_, q, a| json!({ "problem": q, "level": "Level 1", "type": "Algebra", "solution": format!("\\boxed{{{a}}}") }),
        );
        let dapo = all(&|i, q, a| {
            json!({
                "data_source": "math_dapo", "ability": "MATH", "prompt": [message("user", q)],
                "reward_model": { "ground_truth": a, "style": "rule" }, "extra_info": { "index": i.to_string() },
            })
        });
        let math_500 =
            all(&|i, q, a| json!({ "problem": q, "answer": a, "unique_id": format!("t{i}") }));
        let deepscaler = all(&|_, q, a| json!({ "problem": q, "answer": a, "solution": "" }));
        let pairs = all(&|_, q, a| {
            let reply = |text| json!([message("user", q), message("assistant", text)]);
            json!({ "chosen": reply(a), "rejected": reply("no") })
        });
        let talks = all(&|_, q, a| {
            let talk = [("user", q), ("assistant", a), ("user", "Right."), ("assistant", "Good.")];
            json!({ "source": "", "messages": talk.map(|(role, text)| message(role, text)), "num_turns": 2 })
        });
        for (split, whole) in [("train", &gsm), ("test", &gsm)] {
            let name = format!("data/gsm8k/main/{split}-00000-of-00001.parquet");
            self.rows(&name, whole.iter().cloned());
            let name = format!("data/MATH-lighteval/data/{split}-00000-of-00001.parquet");
            self.rows(&name, math.iter().cloned());
            let name = format!("data/anli/plain_text/{split}_r3-00000-of-00001.parquet");
            let row = |i: usize| json!({ "uid": i.to_string(), "premise": "Ann has a cat.", "hypothesis": "Ann has a dog.", "label": i % 3 });
            self.rows(&name, (0..24).map(row));
            let questions = facts::tasks("train").unwrap().into_iter().take(24).enumerate();
            // NQ and HotpotQA count from 0 each.
            let row = |(i, task): (usize, maverl::prelude::Task)| {
                json!({
                    "id": format!("{split}_{}", i / 2), "question": task.question, "data_source": "nq",
                    "reward_model": { "ground_truth": { "target": task.data["answers"] } },
                    "extra_info": { "index": i, "split": split },
                })
            };
            self.rows(&format!("data/nq_hotpotqa_train/{split}.parquet"), questions.map(row));
        }
        self.rows("data/dapo_filter/train.parquet", dapo.into_iter());
        self.rows("data/MATH-500/test.jsonl", math_500.into_iter());
        self.write("data/DeepScaleR/deepscaler.json", &Value::from(deepscaler).to_string());
        let name = "data/ultrafeedback_binarized/data/train-00000-of-00001.parquet";
        self.rows(name, pairs.into_iter());
        self.rows("data/Capybara/data/train-00000-of-00001.parquet", talks.into_iter());
        self.verifier(of_verifier);
    }

    /// Writes what the commands of `maporl/gsm8k-verifier.toml` write: labeled replies, and a verifier.
    fn verifier(&self, sums: &[(String, String)]) {
        let rows = |sums: &[(String, String)]| -> Vec<Value> {
            let row = |question: &str, reply: &str, label: bool| {
                let (prompt, reply) = (message("user", question), message("assistant", reply));
                json!({ "prompt": [prompt], "completion": [reply], "label": label })
            };
            sums.iter().flat_map(|(q, a)| [row(q, a, true), row(q, "no", false)]).collect()
        };
        let (train, test) = sums.split_at(sums.len() / 2);
        for (split, sums) in [("train", train), ("test", test)] {
            let name = format!("runs/maporl/gsm8k-replies/verifier-{split}.jsonl");
            self.rows(&name, rows(sums).into_iter());
        }
        let dir = "runs/maporl/gsm8k-verifier-model";
        self.lab.model(dir, 4096);
        let head = json!({
            "protocol": 2, "place": "reply", "temperature": 1.0, "offset": 0.0,
            "likelihood": { "weight": 1.0, "bias": 0.0 },
        });
        self.write(&format!("{dir}/reward_head.json"), &head.to_string());
    }

    pub(super) fn path(&self, recipe: &Recipe) -> PathBuf {
        self.lab.path("recipes").join(&recipe.name)
    }

    pub(super) fn planned(&self, recipe: &Recipe, registry: &Registry) -> Result<Plan, String> {
        let sources =
            recipe.alone().into_iter().fold(Sources::file(self.path(recipe)), Sources::with);
        check(&sources, registry, Purpose::Plan)
            .map_err(|all| all.iter().map(|one| format!("{}: {one}\n", recipe.name)).collect())
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}
