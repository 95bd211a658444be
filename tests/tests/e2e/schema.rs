//! `maverl schema`, against a validator of JSON Schema that is not maverl's; and configurations in YAML.

use std::fs;

use maverl::registry::Registry;
use maverl::{Purpose, Sources, check};
use maverl_tests::lab::stride;
use maverl_tests::schema::Validator;
use toml::{Table, Value};

use crate::lab;
use crate::resolved::shipped;

fn validator() -> Validator {
    let lab = lab();
    let schema = lab.run(&["schema"]).succeeded().stdout;
    Validator::new(serde_json::from_str(&schema).unwrap())
}

#[test]
fn the_schema_accepts_every_shipped_configuration_and_its_resolved_form() {
    let validator = validator();
    let registry = Registry::collect().unwrap();
    for path in shipped().into_iter().step_by(stride(5)) {
        let text = fs::read_to_string(&path).unwrap();
        validator.accepts(&text);
        let sources = Sources::default().text("run.toml", text, path.parent().unwrap());
        if let Ok(plan) = check(&sources, &registry, Purpose::Train) {
            validator.accepts(&toml::to_string(&plan.config).unwrap());
        } else {
            assert!(path.ends_with("code.toml"), "{}", path.display());
        }
    }
    let page = include_str!("../../../docs/src/keys.md");
    let (_, block) = page.split_once("```toml\n").unwrap();
    validator.accepts(block.split_once("```").unwrap().0);
}

/// Calls `with` for each table of a configuration, with an unknown key in it.
fn with_unknown_key(table: &Table, place: &str, with: &mut dyn FnMut(&str, Table)) {
    let mut wrong = table.clone();
    wrong.insert("no_such_key".to_owned(), Value::Integer(1));
    with(place, wrong);
    for (name, value) in table {
        let Value::Table(inner) = value else { continue };
        // Variables of a template and names of columns are free.
        if name == "chat_template_kwargs" || name == "keys" {
            continue;
        }
        with_unknown_key(inner, &format!("{place}.{name}"), &mut |place, wrong| {
            let mut outer = table.clone();
            outer.insert(name.clone(), Value::Table(wrong));
            with(place, outer);
        });
    }
}

#[test]
fn the_schema_refuses_an_unknown_key_in_every_table() {
    let validator = validator();
    let (mut tables, mut accepted) = (0, Vec::new());
    for path in shipped() {
        let table: Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        with_unknown_key(&table, "", &mut |place, wrong| {
            tables += 1;
            if validator.error(&toml::to_string(&wrong).unwrap()).is_none() {
                accepted.push(format!("{} {place}", path.display()));
            }
        });
    }
    assert!(tables > 80 && accepted.is_empty(), "{tables} tables, {accepted:#?}");
}

#[test]
fn the_schema_knows_types_ranges_names_and_settings_of_what_is_linked() {
    let validator = validator();
    for good in [
        "",
        "[sampling]\ntemperature = 0\nstop = []",
        "[task]\nlimit = 3\nformat = \"jsonl\"",
        "[environment]\ntop_k = 2",
        "[environment]\nname = \"search\"\ntop_k = 2",
        "[algorithm]\nadvantage = { kind = \"gdpo\" }",
        "[algorithm.advantage]\nkind = \"duo/margin\"\nscale = 2.5",
        "[algorithm.loss.surrogate]\nkind = \"duo/soft\"\nwidth = 0.3",
        "[algorithm.loss]\nsurrogate.clip_high = 0.28\ncorrection = { kind = \"truncate\", cap = 3.0 }",
        "[[algorithm.loss.correction]]\nkind = \"truncate\"\nhigh = 3.0\n[[algorithm.loss.correction]]\nkind = \"mask\"",
        "[algorithm]\nname = \"ppo\"\nadvantage.trunk = \"shared\"",
        "[algorithm]\nupdate_order = \"fixed\"\nshaping = { kind = \"margin\", weight = 0.1 }",
        "[agents.\"search/verifier\".loss]\nsurrogate = { kind = \"sapo\", gate = [1.0, 1.1] }",
        "[agents.\"search/verifier\".seats.1.loss]\nkl_coef = 0.1",
        "[algorithm.advantage]\nkind = \"critic\"\nlora = { target_modules = [\"q_proj\"] }",
        "[algorithm.advantage]\nkind = \"mixer\"\nnetwork = \"monotone\"\noptim.lr = 1e-4",
        "[algorithm.advantage]\nby = \"task\"",
        "[algorithm.advantage]\nkind = \"group\"\nanchor = { weight = 0.5 }",
        "[models.a]\npath = \"m\"\nlora = { target_modules = \"all-linear\" }",
    ] {
        validator.accepts(good);
    }
    for wrong in [
        "steps = -1",
        "steps = \"many\"",
        "[sampling]\ntemperature = -0.5",
        "[sampling]\ntop_p = 0.0",
        "[task]\ngroup_size = 0",
        "[task]\ngroup_size = 100000",
        "[task]\nformat = \"csv\"",
        "[models.a.optim]\nlr = 1e-3",
        "[models.a]\npath = \"m\"\noptim = { betas = [0.9, 1.0] }",
        "[environment]\nname = \"serch\"",
        "[environment]\nname = \"search\"\ntop = 2",
        "[environment]\nname = \"search\"\ntop_k = \"two\"",
        "[agents.\"search/verfier\"]\nfrozen = true",
        "[agents.\"duo/opener\".options]\nstyle = 1",
        "[rewards.lenght]\nweight = 1.0",
        "[algorithm]\nname = \"drmass\"",
        "[algorithm.advantage]\nscale = 2.5",
        "[algorithm.advantage]\nkind = \"reward\"\nnormalize_std = true",
        "[algorithm.advantage]\nkind = \"critic\"\ngamma = 1.5",
        "[algorithm.advantage]\nkind = \"mixer\"\ntrunk = \"shared\"",
        "[algorithm.advantage]\nkind = \"group\"\nanchor = { weight = -1.0 }",
        "[algorithm.advantage]\nkind = \"gruop\"",
        "[algorithm.advantage]\nkind = \"duo/margin\"\nscael = 2.5",
        "[algorithm.advantage]\nkind = \"duo/margin\"\nscale = \"2\"",
        "[algorithm.loss.surrogate]\nkind = \"duo/margin\"",
        "[algorithm.loss]\nsurrogate = { kind = \"cispo\", clip_low = 0.2 }",
        "[algorithm.loss]\nsurrogate = { kind = \"clip\", clip_dual = 0.5 }",
        "[algorithm]\nupdate_order = { kind = \"together\", clip = 0.1 }",
        "[algorithm]\nshaping = \"margins\"",
        "[eval]\ntemperature = -1",
        "[runtime]\nthreads = 2000",
    ] {
        validator.refuses(wrong);
    }
}

/// Writes a table in YAML.
fn yaml(table: &Table, indent: usize) -> String {
    let line = |(name, value): (&String, &Value)| {
        let place = " ".repeat(indent);
        match value {
            Value::Table(inner) => format!("{place}{name}:\n{}", yaml(inner, indent + 2)),
            value => format!("{place}{name}: {value}\n"),
        }
    };
    table.iter().map(line).collect()
}

#[test]
fn a_run_in_yaml_is_the_same_run_as_in_toml() {
    let lab = lab();
    let toml = fs::read_to_string(lab.path("run.toml")).unwrap();
    let text = yaml(&toml.parse().unwrap(), 0);
    lab.write("run.yaml", &format!("# A comment.\n{text}"));
    let train = |config, out| {
        lab.run(&["train", config, "--out", out, "--steps", "1", "--set", "eval.tasks=2"])
            .succeeded();
        maverl_tests::lab::Run(lab.path(out))
    };
    let (ours, yaml) = (train("run.toml", "a"), train("run.yaml", "b"));
    assert_eq!(
        String::from_utf8(ours.bytes("resolved.toml")).unwrap(),
        String::from_utf8(yaml.bytes("resolved.toml")).unwrap()
    );
    assert!(ours.bytes("metrics.jsonl") == yaml.bytes("metrics.jsonl"));
    lab.run(&["train", "--resume", "b", "--steps", "2"]).succeeded();
}

#[test]
fn a_mistake_in_yaml_is_told_with_its_line_and_key() {
    let lab = lab();
    lab.write(
        "run.yaml",
        "steps: 3\ntask:\n  data: tasks.jsonl\n  group_sise: 4\nsampling:\n  top_p: 1.5\n",
    );
    lab.run(&["check", "run.yaml"]).failed().says(&[
        "run.yaml:4:3",
        "unknown key `task.group_sise`",
        "did you mean `group_size`?",
        "run.yaml:6:10",
        "`sampling.top_p` is 1.5; expected a number above 0 and at most 1",
    ]);
    lab.write("run.yaml", "steps: 3\ntask: [1, 2\n");
    lab.run(&["check", "run.yaml"]).failed().says(&["run.yaml:", "is not a configuration in YAML"]);
    lab.write("run.yaml", "steps: 3\nsteps: 4\n");
    lab.run(&["check", "run.yaml"]).failed().says(&["run.yaml:2:1", "`steps` is set twice"]);
}
