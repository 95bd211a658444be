//! The recipes of published set-ups: accepted beside models without weights, and trained for two steps with small
//! stand-ins for models and data.

mod by_name;
mod stand_ins;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use maverl::plan::{Plan, WorkerSummary};
use maverl::registry::Registry;
use maverl_tests::lab::{Run, stride};
use maverl_tests::schema::Validator;
use orchestras as _;
use serde_json::Value;

use stand_ins::Fixture;

/// The recipes that have other recipes as their stages.
const STAGES: [&str; 2] = ["maporl/gsm8k-pipeline.toml", "mrlm/09-hybrid.toml"];

/// A recipe of one run.
struct Recipe {
    /// Path below `recipes`.
    name: String,
    text: String,
    table: toml::Table,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the recipes of one run below a directory, sorted.
fn recipes(dir: &Path) -> Vec<Recipe> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    let recipe = |(name, text): (String, String)| {
        let table = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        Recipe { name, text, table }
    };
    STAGES.iter().for_each(|stages| drop(found.remove(*stages)));
    found.into_iter().map(recipe).collect()
}

impl Recipe {
    fn get(&self, table: &str, key: &str) -> Option<&toml::Value> {
        self.table.get(table)?.get(key)
    }

    fn algorithm(&self) -> &str {
        self.get("algorithm", "name").and_then(toml::Value::as_str).unwrap()
    }

    /// True if programs are run in the sandbox.
    fn runs_programs(&self) -> bool {
        self.text.contains("name = \"code\"")
    }

    /// Returns the assignment that a stage needs as a run of its own, if its reward has the verifier of another stage.
    fn alone(&self) -> Option<String> {
        let path = "rewards.verified.verifier.path=\"runs/maporl/gsm8k-verifier-model\"";
        self.text.contains("\npath = \"stage:").then(|| path.to_owned())
    }

    /// Returns the files and directories that the recipe reads and a hub has.
    fn fetched(&self) -> Vec<&str> {
        let models = self.table["models"].as_table().unwrap().values();
        let paths = models.map(|model| model["path"].as_str().unwrap());
        let data = ["task", "eval"].iter().filter_map(|table| self.get(table, "data"));
        let data = data.map(|data| data.as_str().unwrap());
        paths
            .chain(data)
            .filter(|path| ["models/", "data/"].iter().any(|at| path.starts_with(at)))
            .collect()
    }

    /// Returns the comment that the file begins with.
    fn header(&self) -> Vec<&str> {
        self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect()
    }

    /// Panics unless the header has the parts of every header, and fetches what the recipe reads.
    fn is_documented(&self) {
        let (header, name) = (self.header(), &self.name);
        for part in [
            "Source: ",
            "| source | value | here |",
            "Differs:",
            "Cost: ",
            "Memory: ",
            "Data:",
            "Run, ",
        ] {
            assert!(header.iter().any(|line| line.starts_with(part)), "{name}: no {part:?}");
        }
        let run = format!("maverl train recipes/{name} --out runs/");
        assert!(header.iter().any(|line| line.starts_with(&run)), "{name}: no {run:?}");
        for path in self.fetched() {
            let by = |line: &&&str| {
                let Some((what, dir)) = line.split_once(" --local-dir ") else { return false };
                let file = path.strip_prefix(dir).map(|file| file.trim_start_matches('/'));
                what.starts_with("hf download ")
                    && file.is_some_and(|file| {
                        file.is_empty() || what.split(' ').any(|word| word == file)
                    })
            };
            assert!(header.iter().find(by).is_some(), "{name}: nothing fetches {path}");
        }
    }

    /// Returns the words of the commands that the header states, by their name.
    fn commands(&self, name: &str) -> Vec<Vec<String>> {
        let start = format!("maverl {name} ");
        let lines = self.header().into_iter().filter(|line| line.starts_with(&start));
        let words = |line: &str| {
            let command = line.split(" #").next().unwrap_or_default();
            command.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        lines.map(words).collect()
    }

    /// Returns the memory that the header states, in GiB.
    fn memory(&self) -> f64 {
        let stated =
            self.header().into_iter().find_map(|line| line.strip_prefix("Memory: ")).unwrap();
        stated
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Returns settings that make the recipe small: the built-in model, two tasks of at most four episodes, and short
    /// replies. A reward for length gives a signal to groups whose answers are all wrong.
    fn small(&self) -> Vec<String> {
        let mut set: Vec<String> = [
            "steps=2",
            "task.tasks_per_step=2",
            "sampling.max_tokens=16",
            "eval.before_and_after=false",
            "eval.every=0",
            "checkpoint.every=0",
            "runtime.threads=1",
            "runtime.kv_mib=256",
        ]
        .map(str::to_owned)
        .into();
        let models = self.table["models"].as_table().unwrap().keys();
        set.extend(models.map(|name| format!("models.{name}.path=\"builtin:generalist\"")));
        if self.algorithm() == "verifier" {
            // All questions of the stand-in are made from a few templates.
            set.push("algorithm.verifier.allow_near=true".to_owned());
        }
        if ["sft", "dpo", "spin", "verifier"].contains(&self.algorithm()) {
            return set;
        }
        set.push("rewards.length.weight=0.1".to_owned());
        let group = self.get("task", "group_size").and_then(toml::Value::as_integer);
        set.extend(group.is_none_or(|size| size > 1).then(|| "task.group_size=4".to_owned()));
        if self.get("environment", "retriever").is_some() {
            set.push("environment.retriever=\"\"".to_owned());
            set.push("environment.corpus=\"builtin:facts\"".to_owned());
        }
        if self.get("orchestra", "name").and_then(toml::Value::as_str) == Some("search/r1") {
            // Its instructions and its text do not fit the context of the built-in model.
            let short =
                "agents.\"search/r1\".options.instructions=\"Reply <search>words</search>.\"";
            set.extend([short, "orchestra.max_turns=2"].map(str::to_owned));
        }
        set
    }
}

#[test]
fn every_recipe_is_accepted_beside_models_without_weights() {
    let fixture = Fixture::new();
    let registry = Registry::collect().unwrap();
    let schema = Validator::new(maverl::check::schema(&registry));
    let (mut refused, mut wrong) = (String::new(), String::new());
    for recipe in &fixture.recipes {
        recipe.is_documented();
        schema.accepts(&recipe.text);
        let plan = match fixture.planned(recipe, &registry) {
            Ok(plan) => plan,
            Err(_) if recipe.runs_programs() && !programs_run(&fixture, recipe) => continue,
            Err(problems) => {
                refused += &problems;
                continue;
            }
        };
        let warned = plan.warnings.iter().filter(|warning| warning.contains(" has no weights: "));
        assert!(warned.count() > 0, "{}: {:?}", recipe.name, plan.warnings);
        let (planned, stated) = (least_memory(&plan), recipe.memory());
        if (planned - stated).abs() > 0.05 * planned {
            wrong += &format!("{}\t{planned:.1}\n", recipe.name);
        }
    }
    assert!(refused.is_empty(), "{refused}");
    assert!(
        wrong.is_empty(),
        "recipes that state another memory than is planned, in GiB:\n{wrong}"
    );
}

/// Returns the memory that a plan takes at least, in GiB: that of an update or of a rollout.
fn least_memory(plan: &Plan) -> f64 {
    let workers = plan.summary().workers;
    let sum = |part: fn(&WorkerSummary) -> u64| -> u64 { workers.iter().map(part).sum() };
    let kept = sum(|its| its.weight_bytes + its.reference_bytes + its.moment_bytes);
    let update = sum(|its| its.gradient_bytes + its.activation_bytes);
    (kept + update.max(sum(|its| its.packed_bytes))) as f64 / (1_u64 << 30) as f64
}

/// False, with a message, if the machine runs no programs, which is the only reason to refuse a recipe with them.
fn programs_run(fixture: &Fixture, recipe: &Recipe) -> bool {
    let example = root().join("examples/code.toml").display().to_string();
    let runs = fixture.lab.run(&["check", &example]).code == Some(0);
    if !runs {
        eprintln!("{}: skipped, programs cannot be run here", recipe.name);
    }
    runs
}

#[test]
fn the_command_line_accepts_a_recipe_without_weights_and_does_not_train_it() {
    let fixture = Fixture::new();
    let recipe = "recipes/drmas/math-qwen3-8b-separate.toml";
    let checked = fixture.lab.run(&["check", recipe]).succeeded();
    assert!(checked.stdout.contains("has no weights"), "{checked}");
    let sources = ["--out", "run"];
    fixture.lab.run(&[&["train", recipe], &sources[..]].concat()).failed().says(&["has neither"]);
    assert!(!fixture.lab.path("run").exists());
}

#[test]
fn the_command_line_plans_a_recipe_for_64_gpus_from_config_json_alone() {
    let fixture = Fixture::new();
    let recipe = "recipes/drmas/math-qwen3-8b-separate.toml";
    let plan = ["check", recipe, "--ranks", "64", "--device", "h100-80gb", "--bandwidth", "25"];
    let shown = fixture.lab.run(&plan).succeeded();
    for row in [
        "memory a rank, at most",
        "tokens a step and rank, at most",
        "sent a step and rank: gradients",
        "communication a step, at 25.000 GB/s",
        "h100-80gb",
    ] {
        assert!(shown.stdout.contains(row), "{shown}");
    }
    let shown = fixture.lab.run(&[&plan[..], &["--json"]].concat()).succeeded().stdout;
    let found: Value = serde_json::from_str(&shown).unwrap();
    let number = |name: &str| found[name].as_f64().unwrap();
    assert_eq!((number("ranks"), number("bandwidth")), (64.0, 25e9));
    let sent = number("sum_bytes") + number("episode_bytes");
    assert!((number("communication_s") - sent / 25e9).abs() < 1e-9, "{found}");
    // Gradients in f32 travel twice, but for the share of a rank.
    let twice = number("moment_bytes") * 63.0 / 64.0;
    let steps = number("sum_bytes") / twice;
    assert!(steps >= 0.99 && (steps - steps.round()).abs() < 1e-3, "{steps}: {found}");
}

#[test]
fn a_recipe_whose_weights_are_divided_is_planned_and_not_trained() {
    let fixture = Fixture::new();
    let recipe = "recipes/drmas/math-qwen3-8b-separate.toml";
    for shard in ["full", "hybrid"] {
        let set = format!("dist.shard=\"{shard}\"");
        let plan =
            ["check", recipe, "--ranks", "64", "--device", "h100-80gb", "--set", set.as_str()];
        let shown = fixture.lab.run(&plan).succeeded();
        let text = shown.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in
            ["8 ranks a machine", "memory a rank: ", "rollout: ", "sent a rank in its machine"]
        {
            assert!(text.contains(part), "{part}: {shown}");
        }
        let json = fixture.lab.run(&[&plan[..], &["--local-ranks", "4", "--json"]].concat());
        let found: Value = serde_json::from_str(&json.succeeded().stdout).unwrap();
        assert_eq!(found["sharding"]["ranks_per_machine"], 4);
        assert!(
            found["sharding"]["groups"][0]["step"]["across"].as_f64().unwrap() > 1e9,
            "{found}"
        );
        let named = format!("`dist.shard` is \"{shard}\"");
        let reason = if shard == "full" { "several worker groups" } else { "check --ranks N`" };
        let refused = fixture.lab.run(&["check", recipe, "--set", set.as_str()]).failed();
        refused.says(&[named.as_str(), reason]);
    }
}

#[test]
fn a_recipe_with_an_unknown_key_or_a_missing_directory_is_refused() {
    let fixture = Fixture::new();
    let registry = Registry::collect().unwrap();
    let recipe =
        fixture.recipes.iter().find(|recipe| recipe.name == "cory/gsm8k-llama-2-7b.toml").unwrap();
    fixture.planned(recipe, &registry).unwrap();
    let name = format!("recipes/{}", recipe.name);
    fixture.write(&name, &recipe.text.replace("swap_every", "swap_evry"));
    assert!(
        fixture
            .planned(recipe, &registry)
            .unwrap_err()
            .contains("unknown key `algorithm.swap_evry`")
    );
    for (path, other) in
        [("models/Llama-2-7b-chat-hf", "models/Llama-3"), ("data/gsm8k/", "data/gsm/")]
    {
        fixture.write(&name, &recipe.text.replace(path, other));
        let refused = fixture.planned(recipe, &registry).unwrap_err();
        assert!(refused.contains("there is no "), "{refused}");
    }
}

/// Recipes that train in the first tier too: no other recipe has their algorithm.
const ALWAYS: [&str; 2] =
    ["maverl/gsm8k-qwen2.5-3b-online-dpo.toml", "maverl/gsm8k-qwen2.5-3b-spin.toml"];

#[test]
fn every_recipe_trains_two_steps() {
    let fixture = Fixture::new();
    let begin = std::time::Instant::now();
    assert!(ALWAYS.iter().all(|name| fixture.recipes.iter().any(|recipe| recipe.name == *name)));
    let trained = fixture.recipes.iter().enumerate().filter(|(n, recipe)| {
        n.is_multiple_of(stride(7)) || ALWAYS.contains(&recipe.name.as_str())
    });
    for (_, recipe) in trained {
        if recipe.runs_programs() && !programs_run(&fixture, recipe) {
            continue;
        }
        let start = std::time::Instant::now();
        let path = format!("recipe:{}", recipe.name.trim_end_matches(".toml"));
        let out = recipe.name.replace('/', "-");
        let small: Vec<String> = recipe.small().into_iter().chain(recipe.alone()).collect();
        let mut args = vec!["train", &path, "--out", &out];
        args.extend(small.iter().flat_map(|set| ["--set", set]));
        fixture.lab.run(&args).succeeded();
        let run = Run(fixture.lab.path(&out));
        assert_eq!(run.json("summary.json")["complete"], true, "{}", recipe.name);
        let steps: Vec<Value> =
            run.rows().into_iter().filter(|row| row.get("step").is_some()).collect();
        let moved = |row: &Value| {
            let norms = row.as_object().unwrap().iter();
            let mut norms = norms.filter(|(name, _)| {
                ["policy/", "verifier/"].iter().any(|of| name.starts_with(of))
                    && name.ends_with("/grad_norm")
            });
            norms.any(|(_, norm)| norm.as_f64().is_some_and(|norm| norm > 0.0))
        };
        assert!(steps.iter().any(moved), "{}: no policy has a gradient", recipe.name);
        for row in &steps {
            let unscored = row.get("rollout/unscored").and_then(Value::as_f64).unwrap_or_default();
            assert_eq!(unscored, 0.0, "{}", recipe.name);
        }
        for command in recipe.commands("eval") {
            evaluate(&fixture, recipe, &out, &command);
        }
        fs::remove_dir_all(&run.0).unwrap();
        eprintln!("{}: {:.1} s", recipe.name, start.elapsed().as_secs_f64());
    }
    eprintln!("{:.1} s", begin.elapsed().as_secs_f64());
}

/// Runs the evaluation that a recipe states, on the run of its stand-ins, with two tasks.
fn evaluate(fixture: &Fixture, recipe: &Recipe, out: &str, command: &[String]) {
    let name = &recipe.name;
    let runs = command.iter().position(|word| word == "--run").unwrap() + 1;
    let trains = format!("maverl train recipes/{name} --out {}", command[runs]);
    assert!(recipe.header().contains(&trains.as_str()), "{name}: no {trains:?}");
    let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
    words[runs] = out;
    words.extend(["--set", "eval.tasks=2", "--set", "eval.samples=2", "--json"]);
    // What the comments say of evaluations beside it.
    if recipe.text.contains("--set sampling.top_p=0.95`") {
        words.extend(["--set", "sampling.top_p=0.95"]);
    }
    let shown = fixture.lab.run(&words).succeeded().stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown.is_object(), "{name}: {shown}");
}

#[test]
fn the_server_of_documents_of_a_recipe_answers_where_the_recipe_asks() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let fixture = Fixture::new();
    let stated = fixture.recipes.iter().flat_map(|recipe| {
        let commands = recipe.commands("serve");
        commands.into_iter().map(move |command| (recipe, command))
    });
    let stated: Vec<(&Recipe, Vec<String>)> = stated.collect();
    assert!(stated.len() >= 6, "{} recipes have a server", stated.len());
    for (recipe, command) in &stated {
        assert_eq!(command, &stated[0].1, "{}", recipe.name);
        let url = recipe.get("environment", "retriever").and_then(toml::Value::as_str).unwrap();
        let address = command.last().unwrap();
        assert_eq!(url, format!("http://{address}/retrieve"), "{}", recipe.name);
    }
    let mut words: Vec<&str> = stated[0].1.iter().map(String::as_str).collect();
    let (corpus, last) = (words[2].to_owned(), words.len() - 1);
    assert!(corpus.starts_with("data/") && corpus.ends_with(".jsonl.gz"), "{corpus}");
    words[last] = "127.0.0.1:0";
    let documents = (0..3).map(|n| {
        let contents = format!("\"Title {n}\"\nThe number of page {n} is {}.", n * 7);
        format!("{}\n", serde_json::json!({ "id": n.to_string(), "contents": contents }))
    });
    fs::create_dir_all(fixture.lab.path(&corpus).parent().unwrap()).unwrap();
    fixture.lab.write("plain.jsonl", &documents.collect::<String>());
    let packed = std::process::Command::new("gzip")
        .arg("-c")
        .arg(fixture.lab.path("plain.jsonl"))
        .output()
        .unwrap();
    fs::write(fixture.lab.path(&corpus), packed.stdout).unwrap();
    let mut child =
        fixture.lab.command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
    let address = told["listening"].as_str().unwrap().strip_prefix("http://").unwrap();
    let body =
        serde_json::json!({ "queries": ["number of page 2"], "topk": 1, "return_scores": true });
    let body = body.to_string();
    let head = format!(
        "POST /retrieve HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = String::new();
    maverl_tests::lab::wait_until("the documents", || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        answer.clear();
        stream.read_to_string(&mut answer).unwrap();
        !answer.starts_with("HTTP/1.1 503")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("page 2 is 14"), "{answer}");
}

#[test]
fn the_recipe_of_online_dpo_names_the_keys_of_verl_with_their_values() {
    let recipes = recipes(&root().join("recipes"));
    let recipe = recipes.iter().find(|recipe| recipe.name == ALWAYS[0]).unwrap();
    for (theirs, ours) in [
        ("actor.dpo_beta", ["preference", "beta"]),
        ("trainer.ref_update_freq", ["reference", "every"]),
    ] {
        let start = format!("| {theirs} | ");
        let row = recipe.header().into_iter().find(|line| line.starts_with(&start));
        let columns: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
        assert_eq!(columns[3], format!("`{}`", ours.join(".")), "{theirs}");
        let value = &recipe.get("algorithm", ours[0]).unwrap()[ours[1]];
        assert_eq!(value.to_string(), columns[2], "{theirs}");
        let name = theirs.rsplit('.').next().unwrap();
        let noted = recipe
            .text
            .lines()
            .any(|line| line.ends_with(&format!("# {name}")) && line.contains(ours[1]));
        assert!(noted, "the line of `{}` does not name {name}", ours.join("."));
    }
}

#[test]
fn the_stages_of_a_recipe_are_trained_in_one_command() {
    let fixture = Fixture::new();
    let stages = "recipes/mrlm/09-hybrid.toml";
    fixture.lab.run(&["check", stages]).succeeded();
    let second = fixture
        .recipes
        .iter()
        .find(|recipe| recipe.name.ends_with("09-hybrid-2-ppo.toml"))
        .unwrap();
    let mut args = vec!["train", stages, "--out", "hybrid"];
    let small = second.small();
    args.extend(small.iter().flat_map(|set| ["--set", set]));
    fixture.lab.run(&args).succeeded().says(&["`qwen` starts from `hybrid/1-09-hybrid-1-sft/"]);
    for stage in ["1-09-hybrid-1-sft", "2-09-hybrid-2-ppo"] {
        let run = Run(fixture.lab.path("hybrid").join(stage));
        assert_eq!(run.json("summary.json")["complete"], true, "{stage}");
    }
}

#[test]
fn the_verifier_and_the_debates_of_a_recipe_are_trained_in_one_command() {
    let fixture = Fixture::new();
    let stages = "recipes/maporl/gsm8k-pipeline.toml";
    fixture.lab.run(&["check", stages]).succeeded();
    let first = fixture.recipes.iter().find(|recipe| recipe.name.ends_with("gsm8k-verifier.toml"));
    let first = first.unwrap();
    // Settings of the command line hold for both stages, and this one is of the first alone.
    let (near, small): (Vec<_>, Vec<_>) =
        first.small().into_iter().partition(|set| set.contains("allow_near"));
    assert_eq!(near.len(), 1);
    let head = "\nhead = \"linear\"";
    let text = first.text.replace(head, &format!("{head}\nallow_near = true"));
    fixture.write(&format!("recipes/{}", first.name), &text);
    let mut args = vec!["train", stages, "--out", "pipeline"];
    args.extend(small.iter().flat_map(|set| ["--set", set]));
    let told = fixture.lab.run(&args).succeeded();
    told.says(&["reward `verified` has the verifier `pipeline/1-gsm8k-verifier/verifier-000002`"]);
    let debates = Run(fixture.lab.path("pipeline/2-gsm8k-2-agents-3-turns-verifier"));
    assert_eq!(debates.json("summary.json")["complete"], true);
    assert!(debates.steps()[0]["rollout/reward/verified"].as_f64() > Some(0.0));
}

#[test]
fn the_verifier_of_a_recipe_is_trained_on_no_question_of_the_test_set() {
    let fixture = Fixture::new();
    let recipe = |name: &str| {
        fixture.recipes.iter().find(|recipe| recipe.name == name).expect("there is this recipe")
    };
    let text = &recipe("maporl/gsm8k-verifier.toml").text;
    let command = text.split("#   maverl ").find(|rest| rest.starts_with("collect ")).unwrap();
    let command = command.split("\n#\n").next().unwrap().replace("\\\n#", " ");
    let mut words: Vec<&str> = command.split_whitespace().collect();
    let debates = words[1].strip_prefix("recipes/").unwrap();
    let small = recipe(debates).small();
    words.extend(small.iter().flat_map(|set| ["--set", set]));
    // The stand-in may be right nowhere, and has few replies.
    let label = words.iter().position(|word| *word == "--label").unwrap();
    words.drain(label..label + 2);
    words.retain(|word| *word != "--no-errors");
    let samples = words.iter().position(|word| *word == "25").unwrap();
    words[samples] = "1";
    // The directory of the recipe has rows for other tests.
    let out = words.iter().position(|word| *word == "--out").unwrap() + 1;
    words[out] = "collected";
    let ended = fixture.lab.run(&words).succeeded();
    assert!(!ended.stderr.contains("the rows come from"), "{ended}");
    let provenance = fs::read(fixture.lab.path(words[out]).join("provenance.json")).unwrap();
    let provenance: Value = serde_json::from_slice(&provenance).unwrap();
    for source in provenance["sources"].as_array().unwrap() {
        assert_eq!(source["stage"], "eval/validation");
        let files = source["files"].as_object().unwrap();
        let train = "data/gsm8k/main/train-00000-of-00001.parquet";
        assert_eq!(files.keys().collect::<Vec<_>>(), [train]);
    }
    // The debates that it rewards are on other questions of that file.
    let rewarded = recipe("maporl/gsm8k-2-agents-3-turns-verifier.toml");
    assert_eq!(rewarded.get("task", "split").and_then(toml::Value::as_str), Some("train"));
}

#[test]
fn the_table_of_recipes_has_each_of_them_and_no_other() {
    let table = fs::read_to_string(root().join("recipes/README.md")).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| [")?.split("](").nth(1));
    let mut named: Vec<&str> = rows.filter_map(|rest| rest.split(')').next()).collect();
    named.sort_unstable();
    let all = recipes(&root().join("recipes"));
    let mut all: Vec<&str> = all.iter().map(|recipe| recipe.name.as_str()).chain(STAGES).collect();
    all.sort_unstable();
    assert_eq!(named, all);
}

#[test]
fn the_readme_says_how_many_recipes_there_are() {
    let all = recipes(&root().join("recipes"));
    let gpu = all.iter().filter(|recipe| recipe.name.starts_with("gpu/")).count();
    let own = all.iter().filter(|recipe| recipe.name.starts_with("stopping/")).count();
    let published = all.len() - gpu - own;
    let stated = format!("{} configurations: {published} of [published", all.len());
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&stated), "README.md does not say {stated:?}");
    let others = format!("{gpu} for one GPU, and {own} of learned stopping");
    assert!(readme.contains(&others), "README.md does not say {others:?}");
}
