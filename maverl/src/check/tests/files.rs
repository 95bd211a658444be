//! Files beside the configuration: models, tasks, the environment's own files.

use serde_json::json;

use super::*;
use crate::env::search::SearchEnvironment;

/// A temporary directory with a model called `model`, for checking configurations beside it.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Self(tempfile::tempdir().unwrap());
        let tiny = ModelFiles::new(&ModelSource::Builtin("tiny".to_owned()));
        std::fs::create_dir(lab.path("model")).unwrap();
        Model::load(&tiny).unwrap().save(&lab.path("model")).unwrap();
        lab
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn sources(&self, toml: &str) -> Sources {
        let base = self.0.path().to_owned();
        let file = File::Text { name: "run.toml".into(), text: toml.trim_start().into(), base };
        Sources { file: Some(file), ..Sources::default() }
    }

    /// Returns the problems of a configuration in one line each, without paths.
    fn problems(&self, registry: &Registry, toml: &str) -> Vec<String> {
        let found = super::super::check(&self.sources(toml), registry, Purpose::Train);
        let base = format!("{}/", self.0.path().display());
        let found = found.err().unwrap_or_default().into_iter();
        found.map(|problem| problem.to_string().replace(&base, "")).collect()
    }

    fn warnings(&self, registry: &Registry, toml: &str) -> Vec<String> {
        let plan = super::super::check(&self.sources(toml), registry, Purpose::Train);
        plan.unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())))
            .warnings
    }
}

const MODEL: &str = "[models.small]\npath = \"model\"\n";

#[test]
fn everything_that_is_wrong_with_a_models_files_is_told_at_once() {
    let lab = Lab::new();
    assert_eq!(lab.problems(&search(), MODEL), [""; 0]);
    let config = std::fs::read_to_string(lab.path("model/config.json")).unwrap();
    lab.write("model/config.json", &config.replace("\"qwen2\"", "\"mamba\""));
    lab.write("model/chat_template.jinja", "{% if %}");
    let found = lab.problems(&search(), MODEL);
    assert_eq!(found.len(), 1);
    for part in ["`model_type` is \"mamba\"", "; model: chat template, line 1: syntax error"] {
        assert!(found[0].contains(part), "{found:?}");
    }
    lab.write(
        "model/config.json",
        &config.replace("\"vocab_size\": ", "\"vocab_size\": 3, \"x\": "),
    );
    std::fs::remove_file(lab.path("model/chat_template.jinja")).unwrap();
    let found = lab.problems(&search(), MODEL).concat();
    assert!(found.contains("the embedding 3 rows"), "{found}");
    lab.write("model/config.json", &config);
    lab.write("model/tokenizer_config.json", "{}");
    let found = lab.problems(&search(), MODEL).concat();
    assert!(found.contains("model: no chat template"), "{found}");
    lab.write("model/tokenizer.json", "{");
    let found = lab.problems(&search(), MODEL).concat();
    assert!(found.contains("model: tokenizer.json: "), "{found}");
    std::fs::remove_file(lab.path("model/tokenizer.json")).unwrap();
    let found = lab.problems(&search(), MODEL).concat();
    assert_eq!(found.matches("has no `tokenizer.json`").count(), 1, "{found}");
}

#[test]
fn a_model_without_weights_is_planned_with_and_not_trained() {
    use crate::config::source::{Problems, read_layers};

    let lab = Lab::new();
    let planned = |purpose| super::super::check(&lab.sources(MODEL), &search(), purpose);
    let whole = planned(Purpose::Plan).unwrap();
    assert_eq!(whole.warnings, planned(Purpose::Train).unwrap().warnings);
    std::fs::remove_file(lab.path("model/model.safetensors")).unwrap();
    let bare = planned(Purpose::Plan).unwrap();
    let size = |plan: &Plan| plan.summary().workers[0].bytes();
    assert_eq!(size(&bare), size(&whole));
    assert!(bare.warnings[0].contains("model has no weights: its size is that of"), "{bare:?}");
    let found = lab.problems(&search(), MODEL).concat();
    assert!(found.contains("model has neither `model.safetensors` nor"), "{found}");

    // Another machine may have the memory that this one lacks.
    let sources = lab.sources(MODEL);
    let layers = read_layers(&sources).unwrap();
    let on_small = |purpose| {
        let mut problems = Problems::new(&layers);
        let warning =
            super::super::machine::check_memory((&bare, &[]), purpose, Some(1), &mut problems);
        (warning.is_some(), problems.finish(Some(())).is_ok())
    };
    assert_eq!(on_small(Purpose::Plan), (true, true));
    assert_eq!(on_small(Purpose::Train), (false, false));
}

#[test]
fn a_name_that_looks_like_one_on_the_hub_is_answered_with_how_that_is_written() {
    let help = |toml: &str| problems(&text(toml), &search());
    let found = help("[models.small]\npath = \"Qwen/Qwen2.5-0.5B\"");
    assert!(found.contains("is written `path = \"hf:Qwen/Qwen2.5-0.5B\"`"), "{found}");
    for path in ["./Qwen", "a/b/c", "../a", "a"] {
        let found = help(&format!("[models.small]\npath = \"{path}\""));
        assert!(found.contains("builtin:tiny") && !found.contains("hf:"), "{found}");
    }
    let found = help("[models.small.optim]\nlr = 1e-5");
    assert!(found.contains("`models.small` has no `path`"), "{found}");
    assert!(found.contains("write `path = \"builtin:tiny\"`, or the path of"), "{found}");
}

#[test]
fn replies_have_to_fit_the_model() {
    let lab = Lab::new();
    let found = lab.problems(
        &search(),
        "[sampling]\nmax_tokens = 512\n[agents.\"search/searcher\"]\nsampling = { max_tokens = 511, stop_ids = [5, 4096] }",
    );
    assert_eq!(
        found,
        [
            "`max_tokens` is 512 for `search/answerer`, and the context of model `tiny` is 512: no prompt fits",
            "`stop_ids` has 4096 for `search/searcher`, and model `tiny` has ids from 0 to 799",
        ]
    );
}

#[test]
fn a_template_is_not_told_what_the_conversation_gives() {
    let toml = "[models.small]\npath = \"builtin:tiny\"\n[models.small.chat_template_kwargs]\nenable_thinking = false\n";
    let plan = plan_of(&text(toml));
    let told = &plan.workers[0].chat_template_kwargs;
    assert_eq!(Value::Object(told.clone()), json!({ "enable_thinking": false }));
    let found = problems(&text(&format!("{toml}tools = []\n")), &search());
    assert!(
        found.contains("`models.small.chat_template_kwargs.tools` is what a conversation itself"),
        "{found}"
    );
}

#[test]
fn a_template_whose_calls_are_not_read_is_a_warning_until_their_form_is_set() {
    let lab = Lab::new();
    let template = "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ \
                    c.function.name }}!{% endfor %}{% endfor %}";
    lab.write("model/chat_template.jinja", template);
    let warnings = lab.warnings(&search(), MODEL).concat();
    assert!(
        warnings.contains("`models.small`: the chat template renders calls in an unknown form"),
        "{warnings}"
    );
    assert!(warnings.contains("CALL probe_a!"), "{warnings}");
    let told = lab.warnings(&search(), &format!("{MODEL}calls = \"glm\"\n")).concat();
    assert!(!told.contains("unknown form"), "{told}");
    let found =
        lab.problems(&search(), &format!("{MODEL}calls = \"qwen_xm\"\nthoughts = \"<a>\"\n"));
    assert!(found[0].contains("qwen_xm") && found.len() == 2, "{found:?}");
    assert!(found[1].contains("the two texts around them"), "{found:?}");
}

/// Returns rows of questions, each in a split.
fn rows(rows: &[(&str, &str)]) -> String {
    rows.iter()
        .map(|(question, split)| {
            json!({ "question": question, "answer": "x", "split": split }).to_string() + "\n"
        })
        .collect()
}

#[test]
fn tasks_are_read_as_training_reads_them() {
    let lab = Lab::new();
    let toml = "[task]\ndata = \"q.jsonl\"\n";
    let found = |more: &str| lab.problems(&search(), &format!("{toml}{more}"));
    lab.write("q.jsonl", &rows(&[("a", "train"), ("b", "train"), ("c", "test")]));
    assert_eq!(found(""), [""; 0]);
    assert_eq!(
        found("split = \"dev\"\n[eval]\nevery = 2"),
        [
            "`q.jsonl` has no tasks in split `dev`; it has `test`: 1, `train`: 2",
            "`q.jsonl` has no tasks in split `validation`; it has `test`: 1, `train`: 2",
        ]
    );
    lab.write("q.jsonl", &rows(&[("a", "train")]));
    let told = problems(&lab.sources(toml), &search());
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["no tasks in split `test`", "as `eval.test_split`", "`eval.before_and_after = false`"]
    {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(found("[eval]\nbefore_and_after = false"), [""; 0]);
    lab.write("q.jsonl", &(rows(&[("a", "train"), ("b", "test")]) + "{\"answer\": 3}\n"));
    assert_eq!(
        found(""),
        ["q.jsonl:3: no `question`, `problem` or `prompt` among the keys [\"answer\"]"]
    );
    lab.write("q.jsonl", &rows(&[("a", "train"), (" ", "test")]));
    assert_eq!(found(""), ["q.jsonl:2: the question of task `2` is empty"]);
    lab.write("q.jsonl", &format!("\u{feff}{}", rows(&[("a", "train"), ("b", "test")])));
    assert_eq!(found(""), [""; 0]);
    lab.write("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n");
    let sft = "[task]\ndata = \"d.jsonl\"\n[algorithm]\nname = \"sft\"\n";
    let found = lab.problems(&search(), sft);
    assert!(found[0].starts_with("d.jsonl:2: no `messages`, nor `prompt`"), "{found:?}");
    let found = lab.problems(&search(), "[algorithm]\nname = \"sft\"\n");
    assert_eq!(
        found,
        ["`task.data` is \"builtin:facts\", which has questions and no demonstrations"]
    );
}

#[test]
fn evaluating_on_what_is_trained_on_is_warned_about() {
    let lab = Lab::new();
    lab.write("q.jsonl", &rows(&[("a", "train")]));
    let warned =
        lab.warnings(&search(), "[eval]\ntest_split = \"train\"\nsplit = \"train\"\nevery = 5");
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned[0].starts_with("`eval.test_split` is \"train\", which is trained on"),
        "{warned:?}"
    );
    assert!(
        lab.warnings(&search(), "[eval]\ntest_split = \"train\"\ndata = \"q.jsonl\"").is_empty()
    );
    assert!(lab.warnings(&search(), "[eval]\nsplit = \"train\"").is_empty());
}

#[test]
fn the_environment_looks_at_its_options_and_at_the_tasks() {
    let entries = [
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::environment::<SearchEnvironment>(HERE),
    ];
    let (lab, registry) = (Lab::new(), registry(&entries));
    let toml = "[environment]\ncorpus = \"nowhere.jsonl\"\n";
    let found = problems(&lab.sources(toml), &registry);
    assert!(found.contains("environment `search`: `corpus`: `"), "{found}");
    assert!(found.contains(",-[run.toml:2:10]"), "{found}");
    for (option, told) in [
        ("top_k = 0", "`top_k` is 0; a query must get at least one document"),
        ("retriever = \"localhost:8000\"", "`retriever` is \"localhost:8000\"; write a whole URL"),
        ("timeout_s = 0", "`timeout_s` is 0; write seconds above 0"),
        ("ranking = \"dense\"", "`encoder` is empty, and the ranking needs one"),
        ("encoder = \"builtin:tiny\"", "`encoder` has no effect on words"),
        ("ranking = \"faiss\"", "faiss"),
        ("rankings = \"dense\"", "rankings"),
    ] {
        let found = lab.problems(&registry, &format!("[environment]\n{option}\n"));
        assert!(found.len() == 1 && found[0].contains(told), "{found:?}");
    }
    assert!(lab.warnings(&registry, "").is_empty());
    lab.write(
        "q.jsonl",
        "{\"question\": \"a\", \"answer\": \"x\", \"split\": \"train\"}\n{\"question\": \"b\", \"answer\": \"y\", \"split\": \"test\"}\n",
    );
    let warned = lab.warnings(&registry, "[task]\ntasks_per_step = 1\ndata = \"q.jsonl\"");
    assert_eq!(
        warned,
        [
            "the questions are not those of `builtin:facts`, but `environment.corpus` is `builtin:facts`: name a file of \
             documents that answer them",
        ]
    );
    // Tasks that cannot be judged are refused as those of `math` and `nli` are, held-out ones too.
    let good = "{\"question\": \"a\", \"answer\": \"x\"}\n";
    for bad in [
        "{\"question\": \"b\"}\n",
        "{\"question\": \"b\", \"answer\": \" \"}\n",
        "{\"question\": \"b\", \"answers\": [\"\"]}\n",
    ] {
        lab.write("bad.jsonl", &format!("{good}{bad}"));
        let train =
            "[task]\ndata = \"bad.jsonl\"\nsplit = \"all\"\n[eval]\nbefore_and_after = false\n";
        let held = "[eval]\ndata = \"bad.jsonl\"\n";
        for toml in [train, held] {
            let wanted = "environment `search`: bad.jsonl:2: the task `2` of `bad` has no answer to judge by; give its row \
                          an `answer`";
            assert_eq!(lab.problems(&registry, toml), [wanted], "{bad}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_configuration_is_a_regular_file_of_bounded_size() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    let lab = Lab::new();
    let found = |name: &str| {
        let problems =
            super::super::check(&Sources::file(lab.path(name)), &search(), Purpose::Train);
        problems
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let made = std::process::Command::new("mkfifo").arg(lab.path("pipe.toml")).status();
    assert!(made.unwrap().success());
    let _listener = UnixListener::bind(lab.path("socket.toml")).unwrap();
    for (name, device) in
        [("zero.toml", "/dev/zero"), ("random.yaml", "/dev/urandom"), ("null.toml", "/dev/null")]
    {
        symlink(device, lab.path(name)).unwrap();
        assert!(
            found(name).ends_with("is a device; a configuration is a regular file"),
            "{}",
            found(name)
        );
    }
    symlink(lab.path("pipe.toml"), lab.path("pipe.yaml")).unwrap();
    for (name, kind) in
        [("pipe.toml", "a pipe"), ("pipe.yaml", "a pipe"), ("socket.toml", "a socket")]
    {
        assert!(found(name).contains(&format!("{name} is {kind};")), "{}", found(name));
    }
    assert!(
        found("model").ends_with("is a directory; a configuration is a file"),
        "{}",
        found("model")
    );
    // A file with holes, which takes no space.
    std::fs::File::create(lab.path("huge.toml")).unwrap().set_len(1 << 40).unwrap();
    assert!(
        found("huge.toml").contains("a configuration has at most 1048576 bytes"),
        "{}",
        found("huge.toml")
    );
    lab.write("large.toml", &format!("# {}\n", "x".repeat((1 << 20) - 3)));
    assert_eq!(found("large.toml"), "");
    lab.write("large.toml", &format!("# {}\n", "x".repeat((1 << 20) - 2)));
    assert!(found("large.toml").contains("is too large"), "{}", found("large.toml"));
    symlink(lab.path("nowhere"), lab.path("broken.toml")).unwrap();
    assert!(found("broken.toml").contains("there is no file"), "{}", found("broken.toml"));
}

/// Returns a registry with an environment and a team that acts in none.
fn answering(environment: Entry) -> Registry {
    registry(&[Entry::agent::<Debater>(HERE), Entry::orchestra::<Debate>(HERE), environment])
}

#[test]
fn held_out_tasks_that_cannot_be_judged_are_refused_with_their_file_and_row() {
    let (lab, math) =
        (Lab::new(), answering(Entry::environment::<crate::env::math::MathEnvironment>(HERE)));
    let data = |more: &str| format!("[task]\ndata = \"builtin:arithmetic\"\n[eval]\n{more}\n");
    let good = "{\"question\": \"1+1?\", \"answer\": \"2\"}\n";
    let mut found = Vec::new();
    for bad in [
        "{\"question\": \"2+2?\"}",
        "{\"question\": \"2+2?\", \"answer\": \" \"}",
        "{\"question\": \"2+2?\", \"answers\": [\"\"]}",
        "{\"question\": \"2+2?\", \"gold\": \"4\"}",
    ] {
        lab.write("held.jsonl", &format!("{good}\n{bad}\n{good}"));
        found.extend(lab.problems(&math, &data("data = \"held.jsonl\"")));
        // Evaluations during training alone.
        let during = "data = \"held.jsonl\"\nbefore_and_after = false\nevery = 5";
        found.extend(lab.problems(&math, &data(during)));
        // Nothing is evaluated.
        let none = "data = \"held.jsonl\"\nbefore_and_after = false";
        assert_eq!(lab.problems(&math, &data(none)), [""; 0]);
        // The row is not among the first ones.
        assert_eq!(lab.problems(&math, &data("data = \"held.jsonl\"\ntasks = 1")), [""; 0]);
    }
    let wanted = "environment `math`: held.jsonl:3: the task `3` of `held` has no answer to judge by; give its row an `answer`";
    assert_eq!(found, vec![wanted; 8]);
    let shown = problems(&lab.sources(&data("data = \"held.jsonl\"")), &math);
    assert!(shown.contains("run.toml:4:8"), "{shown}");
    // A held-out split of the training data.
    lab.write(
        "q.jsonl",
        &(rows(&[("a", "train")]) + "{\"question\": \"b\", \"split\": \"test\"}\n"),
    );
    let found = lab.problems(&math, "[task]\ndata = \"q.jsonl\"\n");
    let wanted = "environment `math`: q.jsonl:2: the task `2` of `q` has no answer";
    assert!(found.len() == 1 && found[0].starts_with(wanted), "{found:?}");
    let nli = answering(Entry::environment::<crate::env::nli::NliEnvironment>(HERE));
    lab.write("held.jsonl", "{\"question\": \"?\", \"answer\": \"perhaps\"}\n");
    let toml = "[task]\ndata = \"builtin:nli\"\n[eval]\ndata = \"held.jsonl\"\n";
    let found = lab.problems(&nli, toml);
    let wanted = "environment `nli`: held.jsonl:1: the task `1` of `held` has no label";
    assert!(found.len() == 1 && found[0].starts_with(wanted), "{found:?}");
    // A warning of the environment has its place, once for both evaluations.
    lab.write("held.jsonl", "{\"question\": \"?\", \"answer\": \"\\\\frac{1\"}\n");
    let warned = lab.warnings(&math, &data("data = \"held.jsonl\"\nevery = 5"));
    let of_file = |warning: &&String| warning.starts_with("held.jsonl:1: the task `1` of `held`");
    assert_eq!(warned.iter().filter(of_file).count(), 1, "{warned:?}");
}

#[test]
fn the_training_data_by_another_name_are_no_held_out_tasks() {
    let lab = Lab::new();
    lab.write("q.jsonl", &rows(&[("a", "train"), ("b", "test")]));
    let warned = |eval: &str| {
        let toml = format!("[task]\ntasks_per_step = 1\ndata = \"q.jsonl\"\n[eval]\n{eval}\n");
        lab.warnings(&search(), &toml)
    };
    for (data, name) in [
        ("\"./q.jsonl\"", " by another name"),
        ("\"model/../q.jsonl\"", " by another name"),
        ("{ a = \"q.jsonl\" }", ""),
    ] {
        let other = warned(&format!("data = {data}"));
        assert!(other.is_empty(), "{data}, another split: {other:?}");
        let same = warned(&format!("data = {data}\ntest_split = \"train\""));
        let wanted = format!(", the training data{name}, and tasks that are trained on: ");
        assert!(same.len() == 1 && same[0].contains(&wanted), "{same:?}");
    }
    assert!(warned("data = \"q.jsonl\"").is_empty() && warned("").is_empty());
    // Rows without a split are of every split of an evaluation.
    let unsplit: String =
        (0..30).map(|i| format!("{{\"question\": \"{i}\", \"answer\": \"x\"}}\n")).collect();
    lab.write("all.jsonl", &unsplit);
    let toml = "[task]\ntasks_per_step = 1\ndata = \"all.jsonl\"\n[eval]\ndata = \"./all.jsonl\"\n";
    let all = lab.warnings(&search(), toml);
    assert!(all.len() == 1 && all[0].contains("the training data by another name"), "{all:?}");
    let same = warned("data = \"q.jsonl\"\ntest_split = \"train\"");
    assert!(same[0].starts_with("`eval.test_split` is \"train\", which is trained on"), "{same:?}");
}

#[test]
fn the_survey_counts_every_task_of_a_file_for_evaluation() {
    let lab = Lab::new();
    let held: String =
        (0..30).map(|i| format!("{{\"question\": \"{i}\", \"answer\": \"x\"}}\n")).collect();
    lab.write("held.jsonl", &held);
    let toml = "[eval]\ndata = \"held.jsonl\"\nevery = 5\n";
    let plan = super::super::check(&lab.sources(toml), &search(), Purpose::Train).unwrap();
    let splits = super::super::survey(&plan).splits;
    assert_eq!(splits[1..], [("test".to_owned(), 30), ("validation".to_owned(), 30)]);
}
