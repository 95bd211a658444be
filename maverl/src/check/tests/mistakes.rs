//! Frequent mistakes, each with words that the message must contain.

use super::*;

/// Returns the problems of a configuration file of bytes, as a reader sees them, without line breaks of long messages.
fn told_of_bytes(bytes: &[u8]) -> String {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run.toml");
    std::fs::write(&path, bytes).unwrap();
    let sources = Sources { file: Some(File::Path(path)), ..Sources::default() };
    let text = plain(&problems(&sources, &search()));
    text.replace(&format!("{}/", home.path().display()), "")
}

pub(super) fn plain(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("| "));
    lines.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A configuration, and parts of the message.
type Mistake = (&'static str, &'static [&'static str]);

#[track_caller]
fn answered(mistakes: &[Mistake]) {
    for (toml, parts) in mistakes {
        let told = told_of_bytes(toml.as_bytes());
        for part in *parts {
            assert!(told.contains(part), "{toml}\nhas no {part:?} in\n{told}");
        }
        assert!(!told.contains("os error"), "{told}");
    }
}

#[test]
fn numbers_are_shown_as_they_are_written() {
    answered(&[
        (
            "steps=1e3",
            &[
                "`steps` is 1e3; expected a whole number from 0",
                "without point and exponent: `steps = 1000`",
            ],
        ),
        ("steps = 100.0", &["`steps` is 100.0;", "`steps = 100`"]),
        ("steps = 1.5", &["`steps` is 1.5; expected a whole number from 0"]),
        ("steps = -5", &["`steps` is -5; expected a whole number from 0"]),
        ("steps = \"10\"", &["`steps` is \"10\"", "without quotes"]),
        ("steps = true", &["`steps` is true; expected a whole number from 0"]),
        ("steps = [10]", &["`steps` is a list; expected a whole number"]),
        ("[sampling]\ntop_k = 5000000000", &["from 0 to 4294967295"]),
        (
            "[task]\nlimit = \"all\"",
            &["`task.limit` is \"all\"", "without the line the key has its default"],
        ),
        ("[task]\nlimit = 0", &["expected a whole number from 1"]),
        ("[task]\nshuffle = \"true\"", &["write `shuffle = true`"]),
        ("[task]\nshuffle = 0", &["write `shuffle = false`"]),
        ("[task]\ndata = 5", &["expected text in quotes", "write `data = \"5\"`"]),
        ("[task]\ndata = [\"a.jsonl\", \"b.jsonl\"]", &["it is one text, not several"]),
        (
            "[sampling]\nstop = \"</answer>\"",
            &["expected a list", "write `stop = [\"</answer>\"]`"],
        ),
        ("[sampling]\nstop_ids = 5", &["write `stop_ids = [5]`"]),
        ("[sampling]\nstop_ids = [\"5\"]", &["`sampling.stop_ids[0]` is \"5\"", "without quotes"]),
        (
            "[models.a]\npath = \"builtin:tiny\"\noptim = { betas = [0.9] }",
            &["has 1 item; expected a list of 2 numbers"],
        ),
        ("[sampling]\ntemperature = \"1e-1\"", &["without quotes"]),
    ]);
}

#[test]
fn what_is_not_toml_is_answered_with_what_is() {
    answered(&[
        ("steps = ", &["`steps` has no value", "write one behind `=`"]),
        ("steps =\nseed = 1", &["`steps` has no value", "run.toml:1"]),
        (
            "seed = 99999999999999999999",
            &["`seed` is 99999999999999999999, which is too large", "9223372036854775807"],
        ),
        ("steps: 3", &["it reads like YAML", "`steps = 100`"]),
        ("seed = 1\nsteps: 3", &["`steps: 3` has no `=`", "write `steps = 3`"]),
        ("steps 3", &["has no `=`", "write `steps = 3`"]),
        ("{\"steps\": 3}", &["begins like JSON"]),
        ("---\nsteps: 3\ntask:\n  data: x", &["it reads like YAML"]),
        (
            "[algorithm]\nname = grpo",
            &["`name` is grpo", "a text is written in quotes: `name = \"grpo\"`"],
        ),
        ("[task]\ndata = data/train.jsonl", &["in quotes: `data = \"data/train.jsonl\"`"]),
        ("[task]\nshuffle = True", &["write `shuffle = true`"]),
        ("[task]\nshuffle = no", &["write `shuffle = false`"]),
        ("[task]\nlimit = None", &["TOML has no such value: remove the line"]),
        ("[task]\nlimit = null", &["TOML has no such value"]),
        ("steps == 3", &["has two `=`", "write `steps = 3`"]),
        ("steps = 1,000", &["`steps = 1000`"]),
        ("steps = 007", &["does not begin with 0", "`steps = 7`"]),
        ("steps = 10k", &["write a plain number"]),
        ("[sampling]\ntop_p = .9", &["write `top_p = 0.9`"]),
        ("[sampling]\ntop_p = 1.", &["write `top_p = 1.0`"]),
        ("[task]\ngroup_size = 8,", &["nothing follows a value: write `group_size = 8`"]),
        ("[rollout]\nmax_unscored = 50%", &["write a share of 1: `max_unscored = 0.5`"]),
        ("[sampling]\ntop_p = 1/2", &["TOML does not calculate"]),
        ("[task]\ndata = \"x.jsonl", &["the text of `data` has no closing `\"`"]),
        ("[task]\ndata = \"C:\\models\\x\"", &["`\\` that TOML does not know", "'C:\\models\\x'"]),
        ("[task]\ndata = “x.jsonl”", &["`“` is not a quote of TOML", "`\"`"]),
        ("[task\ndata = \"x\"", &["the header `[task` is not closed", "write `[task]`"]),
        ("[agents.search/verifier]", &["is not quoted", "`[agents.\"search/verifier\"]`"]),
        ("agents.search/verifier.frozen = true", &["`agents.\"search/verifier\".frozen`"]),
        ("[task] steps = 3", &["follows the header `[task]`"]),
        ("// a comment", &["a comment begins with `#`"]),
        ("max tokens = 3", &["did you mean `max_tokens`?"]),
        ("seed = 1\nseed = 2", &["`seed` is set twice, first in line 1", "run.toml:2"]),
        ("[task]\n[eval]\n[task]", &["the table `[task]` is there twice, first in line 1"]),
        (
            "[task]\nlimit = 1\n[eval]\ntasks = 2\ntasks = 3",
            &["`tasks` is set twice, first in line 4"],
        ),
        ("[sampling]\nstop = [\"a\", \"b\"", &["the list of `stop` is not closed"]),
        ("[sampling]\nstop = [a, b]", &["write `stop = [\"a\", \"b\"]`"]),
        ("[models.a]\noptim = { lr: 1e-5 }", &["`:` in the place of `=`"]),
        ("[models.a]\noptim = {\n  lr = 1e-5\n}", &["in one line, or a table with the header"]),
    ]);
}

#[test]
fn what_is_no_text_is_answered_with_what_makes_it_one() {
    let told = told_of_bytes(b"seed = 1\n# gr\xfc\xdfe\nsteps = 3\n");
    for part in ["the byte 0xfc in line 2, column 5", "run.toml:2:5", "iconv -f LATIN1 -t UTF-8"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    let utf16: Vec<u8> =
        "\u{feff}steps = 3\n".encode_utf16().flat_map(|unit| unit.to_le_bytes()).collect();
    let told = told_of_bytes(&utf16);
    assert!(told.contains("is UTF-16") && told.contains("iconv -f UTF-16"), "{told}");
    assert!(told_of_bytes(b"PAR1\xff\xfe").contains("a Parquet file, not a configuration"));
    assert!(told_of_bytes(b"\x00\x01\xff").contains("it is not a text"));
}

#[test]
fn names_of_other_trainers_are_answered_with_ours() {
    answered(&[
        ("learning_rate = 1e-5", &["`learning_rate` is `models.NAME.optim.lr` here"]),
        (
            "[models.small]\npath = \"builtin:tiny\"\nlearning_rate = 1",
            &["is `models.small.optim.lr`"],
        ),
        ("batch_size = 8", &["`task.tasks_per_step` and `task.group_size`"]),
        ("num_generations = 8", &["`num_generations` is `task.group_size` here"]),
        (
            "beta = 0.04",
            &[
                "is a key of `[algorithm.distill]` and `[algorithm.preference]`",
                "`algorithm.loss.kl_coef`",
            ],
        ),
        (
            "[algorithm]\nepsilon = 0.2",
            &["`algorithm.loss.surrogate.clip_low` and `algorithm.loss.surrogate.clip_high`"],
        ),
        ("max_completion_length = 10", &["`sampling.max_tokens`"]),
        ("numTrainEpochs = 3", &["is `steps`"]),
        (
            "gradient-accumulation-steps = 3",
            &["`runtime.micro_batch_tokens`", "follows from rows and tokens"],
        ),
        (
            "ppo_micro_batch_size_per_gpu = 8",
            &[
                "unknown key `ppo_micro_batch_size_per_gpu`",
                "verl counts sequences, maverl tokens: `runtime.micro_batch_tokens`, or that of [worker_groups.NAME]",
            ],
        ),
        ("per_device_train_batch_size = 8", &["`runtime.micro_batch_tokens`", "in tokens"]),
        ("log_prob_micro_batch_size_per_gpu = 8", &["`worker_groups.NAME.micro_batch_tokens`"]),
        ("zero_stage = 3", &["`dist.shard`", "stages 2 and 3 \"full\""]),
        ("fsdp_size = -1", &["`dist.shard`", "\"full\""]),
        (
            "[dist]\nshard_optimizer = true",
            &["`dist.shard_optimizer` is `dist.shard = \"optimizer\"` now"],
        ),
        (
            "[dist]\nshard = \"full\"\nrollout = \"layers\"\nround = 2",
            &[
                "`dist.shard` is \"full\", and `dist.rollout` is \"layers\", and rollouts read a copy",
                "`dist.shard` is \"full\", and `dist.round` is 2, and gradients are reduced once",
            ],
        ),
        (
            "[dist]\nshard = \"full\"\n[algorithm]\nname = \"ppo\"",
            &[
                "`dist.shard` is \"full\", and policy",
                "has a critic",
                "`dist.shard = \"optimizer\"`",
            ],
        ),
        (
            "[dist]\nshard = \"hybrid\"",
            &["`dist.shard` is \"hybrid\", with which this version plans", "does not train"],
        ),
        ("[dist]\nshard = \"zero3\"", &["`dist.shard` is \"zero3\""]),
        ("output_dir = \"x\"", &["is `--out`"]),
        ("report_to = \"wandb\"", &["track.to", "TensorBoard"]),
        (
            "[data]\ntrain_batch_size = 4\nmax_response_length = 5",
            &[
                "`data.train_batch_size` is `task.tasks_per_step`",
                "`data.max_response_length` is `sampling.max_tokens`",
            ],
        ),
        (
            "[actor_rollout_ref.actor]\nclip_ratio_high = 0.28\n[actor_rollout_ref.rollout]\nn = 5",
            &[
                "`actor_rollout_ref.actor.clip_ratio_high` is `algorithm.loss.surrogate.clip_high`",
                "`actor_rollout_ref.rollout.n` is `task.group_size`",
            ],
        ),
        ("[trainer]\ntotal_epochs = 3\ntest_freq = 5", &["`trainer.test_freq` is `eval.every`"]),
        ("[models.a]\npath = \"builtin:tiny\"\ndtype = \"bfloat16\"", &["did you mean \"bf16\"?"]),
        ("[models.a]\npath = \"builtin:tiny\"\ndtype = \"float32\"", &["did you mean \"f32\"?"]),
        ("[algorithm]\nname = \"GRPO\"", &["did you mean \"grpo\"?"]),
        ("[algorithm]\nname = \"dr_grpo\"", &["did you mean \"drgrpo\"?"]),
        ("[algorithm]\nname = \"reinforce\"", &["did you mean \"reinforce++\"?"]),
        ("[algorithm.loss]\nkl = \"low_var_kl\"", &["did you mean \"k3\"?"]),
        (
            "[algorithm]\naggregation = \"seq-mean-token-mean\"",
            &["did you mean \"sequence_mean\"?"],
        ),
    ]);
}

#[test]
fn misspelled_and_misplaced_keys_are_answered_with_their_table() {
    answered(&[
        ("Steps = 3", &["did you mean `steps`?"]),
        ("[Task]\nlimit = 3", &["did you mean `task`?"]),
        ("[model.small]\npath = \"x\"", &["did you mean `models`?"]),
        ("[agent.x]\nfrozen = true", &["did you mean `agents`?"]),
        ("[env]\nname = \"search\"", &["`environment`"]),
        ("max_token = 5", &["did you mean `max_tokens`, a key of `[sampling]`"]),
        ("[task]\nsteps = 3", &["`steps` is a key of the file itself (before any table)"]),
        ("entropy_coef = 0.1", &["`entropy_coef` is a key of `[algorithm.loss]`"]),
        ("gate = [1, 2]", &["of `[algorithm.loss.surrogate]` with `kind = \"sapo\"`"]),
        (
            "[algorithm.loss]\nclip_low = 0.1",
            &["did you mean `algorithm.loss.surrogate.clip_low`?"],
        ),
        (
            "[agents.\"search/verifier\".loss]\nclip_high = 0.1",
            &["did you mean `algorithm.loss.surrogate.clip_high`?"],
        ),
        (
            "[agents.\"search/verifier\".loss]\nsurrogate = { kind = \"cispo\", clip_low = 0.1 }",
            &["`clip_low` is a key of `[algorithm.loss.surrogate]` with `kind = \"clip\"`"],
        ),
        ("[algorithm]\nshaping_weight = 0.1", &["did you mean `algorithm.shaping.weight`?"]),
        ("[algorithm]\nhappo.factor = \"exact\"", &["did you mean `algorithm.update_order`"]),
        ("[algorithm]\nupdate_order = \"rnadom\"", &["no update order is called `rnadom`"]),
        ("[algorithm]\nupdate_order = 3", &["the name of a kind, or a table with `kind`"]),
        ("[algorithm]\nupdate_order = { clip = 0.1 }", &["unknown key"]),
        ("[algorithm.loss.correction]\nkind = \"cut\"", &["no correction is called `cut`"]),
        ("[algorithm.loss]\ncorrection = { kind = \"truncate\", cap = 1 }", &["is 1; expected"]),
        (
            "[agents.search.verifier]\nfrozen = true",
            &["quoted as a whole: `[agents.\"search/verifier\"]`"],
        ),
        ("[agents.verifier]\nfrozen = true", &["did you mean `search/verifier`?"]),
        ("[models]\npath = \"builtin:tiny\"", &["its keys stand under a name: `[models.NAME]`"]),
        ("[agents]\nfrozen = true", &["its keys stand under a name: `[agents.\"team/role\"]`"]),
        ("[rewards]\nweight = 1.0", &["its keys stand under a name: `[rewards.NAME]`"]),
        ("[models]\nsmall = \"builtin:tiny\"", &["write `models.small.path = \"builtin:tiny\"`"]),
        ("models = \"builtin:tiny\"", &["write `models.NAME.path = \"builtin:tiny\"`"]),
        ("algorithm = \"grpo\"", &["write `algorithm.name = \"grpo\"`"]),
        (
            "orchestra = \"search/route\"",
            &["`orchestra` is \"search/route\"; expected a table", "`orchestra.name ="],
        ),
        ("task = \"x.jsonl\"", &["write `task.data = \"x.jsonl\"`"]),
        ("eval = false", &["write `eval.before_and_after = false`"]),
        ("checkpoint = 5", &["write `checkpoint.every = 5`"]),
        ("[[task]]\nlimit = 3", &["`[[task]]` makes a list: write `[task]`"]),
        ("rewards.brevity = 0.5", &["write `rewards.brevity.weight = 0.5`"]),
        (
            "agents.\"search/verifier\" = \"small\"",
            &["`agents.\"search/verifier\".model = \"small\"`"],
        ),
        ("[models.a]\npath = \"builtin:tiny\"\nlora = true", &["write `lora = {}`"]),
        ("[models.a]\npath = \"builtin:tiny\"\nlora = 16", &["`models.a.lora.rank = 16`"]),
        ("[models.a]\npath = \"builtin:tiny\"\noptim = \"adamw\"", &["the optimizer is AdamW"]),
        (
            "[agents.\"search/verifier\".seats.first]\nfrozen = true",
            &["seat `first` is not a number"],
        ),
    ]);
}

#[test]
fn models_that_are_not_there_are_answered_with_where_they_were_looked_for() {
    let home = tempfile::tempdir().unwrap();
    let lay = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    lay("weights/qwen/config.json", "{}");
    lay("weights/model.safetensors", "");
    lay("runs/a/resolved.toml", "");
    let told = |path: &str| {
        let toml = format!("[models.a]\npath = {path:?}\n");
        let file = File::Text { name: "run.toml".into(), text: toml, base: home.path().into() };
        plain(&problems(&Sources { file: Some(file), ..Sources::default() }, &search()))
            .replace(&home.path().display().to_string(), "HOME")
    };
    for (path, parts) in [
        (
            "weights/qwem",
            &[
                "there is no directory `weights/qwem`; it was looked for at",
                "did you mean `weights/qwen`?",
            ][..],
        ),
        ("weights", &["did you mean `weights/qwen`?"]),
        (
            "weights/model.safetensors",
            &["is a file; a model is a directory", "`path = \"weights\"`"],
        ),
        ("~/weights/qwen", &["`~` is expanded by a shell, not in a file"]),
        ("$HOME/weights", &["variables are expanded by a shell"]),
        ("Qwen/Qwen2.5-0.5B-Instruct", &["`path = \"hf:Qwen/Qwen2.5-0.5B-Instruct\"`"]),
        ("models/qwen/it", &["HOME has no `models`"]),
        (
            "models/Qwen2.5-0.5B-Instruct",
            &[
                "there is no directory `models/Qwen2.5-0.5B-Instruct`; it was looked for at",
                "HOME has no `models`; `path` names a Hugging Face model directory",
            ],
        ),
        ("runs/a", &["it is a run", "maverl export --run runs/a"]),
        ("builtin:tny", &["no built-in model is called \"tny\"", "did you mean `tiny`?"]),
    ] {
        let told = told(path);
        for part in parts {
            assert!(told.contains(part), "{path}: no {part:?} in\n{told}");
        }
    }
}

#[test]
fn a_model_without_tokenizer_or_template_comes_with_what_to_run() {
    let home = tempfile::tempdir().unwrap();
    let model = home.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let tiny = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
    Model::load(&tiny).unwrap().save(&model).unwrap();
    let told = || {
        let toml = "[models.a]\npath = \"model\"\n".to_owned();
        let file = File::Text { name: "run.toml".into(), text: toml, base: home.path().into() };
        plain(&problems(&Sources { file: Some(file), ..Sources::default() }, &search()))
    };
    for name in ["chat_template.jinja", "tokenizer_config.json"] {
        let _ = std::fs::remove_file(model.join(name));
    }
    let text = told();
    assert!(text.contains("no chat template") && text.contains("NAME-Instruct"), "{text}");
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    let text = told();
    assert!(text.contains("`hf download ORG/NAME tokenizer.json"), "{text}");
    std::fs::write(model.join("tokenizer.model"), "").unwrap();
    let text = told();
    assert!(text.contains("it has `tokenizer.model`") && text.contains("AutoTokenizer"), "{text}");
}

#[test]
fn configurations_that_are_not_there_are_answered_with_what_is() {
    let home = tempfile::tempdir().unwrap();
    let told = |name: &str| {
        let file = Some(File::Path(home.path().join(name)));
        let text = plain(&problems(&Sources { file, ..Sources::default() }, &search()));
        text.replace(&home.path().display().to_string(), "HOME")
    };
    std::fs::write(home.path().join("run.toml"), "").unwrap();
    for (dir, file) in [("model", "config.json"), ("run", "manifest.json")] {
        std::fs::create_dir(home.path().join(dir)).unwrap();
        std::fs::write(home.path().join(dir).join(file), "{}").unwrap();
    }
    std::fs::write(home.path().join("run/resolved.toml"), "").unwrap();
    for (name, parts) in [
        ("rum.toml", &["there is no file HOME/rum.toml", "did you mean `HOME/run.toml`?"][..]),
        ("run", &["is a directory; a configuration is a file", "maverl train --resume HOME/run"]),
        ("model", &["it is a model", "`path = \"HOME/model\"`"]),
        ("configs/run.toml", &["HOME has no `configs`"]),
    ] {
        let told = told(name);
        for part in parts {
            assert!(told.contains(part), "{name}: no {part:?} in\n{told}");
        }
    }
}

#[test]
fn settings_on_the_command_line_are_answered_with_their_place() {
    for (set, parts) in [
        ("steps=1e3", &["--set:1:7", "`steps` is 1e3;"][..]),
        ("steps", &["not `key=value`", "write `--set steps=VALUE`"]),
        ("steps=many", &["--set:1:7", "`steps` is \"many\""]),
        ("task.gruop_size=4", &["--set:1:1", "did you mean `group_size`?"]),
        ("data.train_batch_size=4", &["`data.train_batch_size` is `task.tasks_per_step`"]),
        (
            "actor_rollout_ref.actor.optim.lr=1e-6",
            &["`actor_rollout_ref.actor.optim.lr` is `models.NAME.optim.lr`"],
        ),
        ("sampling.stop=[</a>]", &["a shell takes quotes away"]),
        ("algorithm=grpo", &["write `algorithm.name = \"grpo\"`"]),
        ("seed=99999999999999999999", &["the largest is 9223372036854775807"]),
        ("environment=search", &["write `environment.name = \"search\"`"]),
    ] {
        let told = plain(&problems(&text("").with(set), &search()));
        for part in parts {
            assert!(told.contains(part), "{set}: no {part:?} in\n{told}");
        }
    }
}

#[test]
fn problems_are_told_to_machines_with_their_places() {
    let sources = text("sede = 1\n[task]\n  group_size = 0\n").with("steps=-1");
    let found = super::super::check(&sources, &search(), Purpose::Train).unwrap_err();
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json[0]["message"], "unknown key `sede`");
    assert_eq!(json[0]["help"], "did you mean `seed`?");
    assert_eq!((&json[0]["key"], &json[0]["source"]), (&"sede".into(), &"run.toml".into()));
    assert_eq!(
        json[1]["places"][0],
        serde_json::json!({ "line": 3, "column": 16, "text": "0", "note": null })
    );
    assert_eq!((&json[2]["source"], &json[2]["key"]), (&"--set".into(), &"steps".into()));
}
