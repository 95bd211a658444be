#![allow(clippy::unwrap_used)]

mod adapters;
mod algorithms;
mod branches;
mod checkpoints;
mod counts;
mod credit;
mod critics;
mod devices;
mod elsewhere;
mod endpoints;
mod excerpts;
mod f16;
mod files;
mod gguf;
mod idle;
mod keys;
mod losses;
mod mistakes;
mod mixture;
mod plan;
mod policies;
mod replay;
mod rewards;
mod sources;
mod staleness;
mod teachers;
mod teams;

use miette::GraphicalTheme;
use serde_json::Value;

use super::*;
use crate::agent::{Agent, AgentName, AskError, Prompt};
use crate::config::source::{File, render};
use crate::env::{EnvError, Environment, EnvironmentName, Session};
use crate::files::ModelFiles;
use crate::net::Model;
use crate::orchestra::{Orchestra, OrchestraName, Team};
use crate::plan::ModelSource;
use crate::registry::{Build, Entry, SourceLocation};
use crate::reward::Rewards;
use crate::task::{Action, Observation, Score, Task};
use crate::trajectory::Seat;

struct Question;

impl crate::agent::Input for Question {
    const FIELDS: &'static [&'static str] = &["question"];
    const OBSERVATIONS: &'static [&'static str] = &[];

    fn show(&self, _: usize) -> String {
        String::new()
    }
}

/// `defaults` and `build` by serde, in the form that the attributes generate.
macro_rules! options {
    ($t:ident { $($field:ident: $ty:ty = $default:expr),* }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $t { $($field: $ty),* }

        impl Default for $t {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl Build for $t {
            fn defaults() -> Value {
                serde_json::to_value(Self::default()).unwrap()
            }

            fn build(options: &Value) -> Result<Self, String> {
                serde_json::from_value(options.clone()).map_err(|error| error.to_string())
            }
        }
    };
}

macro_rules! agent {
    ($t:ident $name:literal) => {
        options!($t { style: Option<String> = None, examples: u32 = 2 });

        impl Agent for $t {
            type Input = Question;
            type Output = String;

            fn prompt(&self, _: &Question) -> Prompt {
                Prompt::default()
            }
        }

        impl AgentName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "An agent.";
        }
    };
}

agent!(Verifier "search/verifier");
agent!(Searcher "search/searcher");
agent!(Answerer "search/answerer");
agent!(Debater "debate/debater");

macro_rules! orchestra {
    ($t:ident $name:literal needs $needs:expr, |$self:ident| $members:expr) => {
        impl Orchestra for $t {
            async fn run(&self, _: &Task, _: &Team<Self>) -> Result<Option<String>, AskError> {
                Ok(None)
            }
        }

        impl OrchestraName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "An orchestra.";
            const NEEDS: &'static [&'static str] = $needs;

            fn members(&$self) -> Vec<Seat> {
                $members
            }
        }
    };
}

options!(Route { max_turns: u32 = 4, greeting: String = "hello".to_owned() });
orchestra!(Route "search/route" needs &["search"], |self| {
    ["verifier", "searcher", "answerer"].map(|role| Seat::only(format!("search/{role}"))).to_vec()
});
options!(Debate { debaters: u32 = 3 });
orchestra!(Debate "debate/vote" needs &[], |self| {
    (0..self.debaters.min(crate::orchestra::MOST_SEATS + 1))
        .map(|index| Seat::at("debate/debater", index))
        .collect()
});

/// A node, as those of `workflow/graph` are.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    id: String,
    #[serde(default)]
    after: Vec<String>,
}

options!(Graph { nodes: Vec<Node> = Vec::new() });
orchestra!(Graph "graph/test" needs &[], |self| vec![Seat::only("search/verifier")]);

macro_rules! environment {
    ($t:ident $name:literal offers $offers:expr) => {
        options!($t { top: u32 = 3 });

        impl Environment for $t {
            async fn act(&self, _: &mut Session, _: Action) -> Result<Observation, EnvError> {
                Ok(Observation::new(""))
            }

            async fn score(&self, _: &Session, _: Option<&str>) -> Result<Score, EnvError> {
                Ok(Score::binary(false))
            }
        }

        impl EnvironmentName for $t {
            const NAME: &'static str = $name;
            const SUMMARY: &'static str = "An environment.";
            const OFFERS: &'static [&'static str] = $offers;
        }
    };
}

environment!(Library "library" offers &["search"]);
environment!(Quiz "quiz" offers &[]);

/// Two debaters with a model each.
const DEBATE: &str = r#"
    [orchestra]
    name = "debate/vote"
    debaters = 2
    [environment]
    name = "quiz"
    [models.small]
    path = "builtin:tiny"
    [models.large]
    path = "builtin:tiny"
    [agents."debate/debater"]
    model = "small"
    sampling = { temperature = 0.7, max_tokens = 64 }
    options = { style = "calm" }
    [agents."debate/debater".seats.1]
    model = "large"
    frozen = true
    sampling.temperature = 0.9
    options.examples = 5
"#;

const HERE: SourceLocation = SourceLocation { file: file!(), line: 1, item: "here" };

/// Returns search and debate in a library or a quiz.
fn everything() -> Registry {
    registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::agent::<Debater>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::orchestra::<Debate>(HERE),
        Entry::environment::<Library>(HERE),
        Entry::environment::<Quiz>(HERE),
        Entry::reward("brevity", "Short replies.", HERE, |_| Rewards::none()),
    ])
}

/// Returns search in a library: no name is ambiguous.
fn search() -> Registry {
    registry(&[
        Entry::agent::<Verifier>(HERE),
        Entry::agent::<Searcher>(HERE),
        Entry::agent::<Answerer>(HERE),
        Entry::orchestra::<Route>(HERE),
        Entry::environment::<Library>(HERE),
    ])
}

fn registry(entries: &[Entry]) -> Registry {
    Registry::from_entries(entries).unwrap()
}

/// Asserts that the problems of a file are exactly these.
#[track_caller]
fn check(registry: &Registry, toml: &str, expected: &str) {
    same(&problems(&text(toml.trim_start()), registry), expected);
}

/// Asserts that a configuration is refused, and that the messages have these parts, wherever their lines are wrapped.
#[track_caller]
fn refused(toml: &str, parts: &[&str]) {
    let problems = super::check(&text(toml), &search(), Purpose::Train).unwrap_err();
    let found = render(&problems, GraphicalTheme::none()).replace("\n  | ", " ");
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(found.contains(part), "no {part:?} in {found}");
    }
}

fn text(toml: &str) -> Sources {
    let file = File::Text { name: "run.toml".into(), text: toml.into(), base: ".".into() };
    Sources { file: Some(file), ..Sources::default() }
}

fn plan_of(sources: &Sources) -> Plan {
    super::check(sources, &search(), Purpose::Train)
        .unwrap_or_else(|problems| panic!("{}", render(&problems, GraphicalTheme::none())))
}

fn problems(sources: &Sources, registry: &Registry) -> String {
    let problems = super::check(sources, registry, Purpose::Train).unwrap_err();
    render(&problems, GraphicalTheme::none())
}

/// Compares texts without space at line ends and around the whole.
#[track_caller]
fn same(found: &str, expected: &str) {
    let plain = |text: &str| {
        let lines: Vec<&str> = text.trim_matches('\n').lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    assert!(plain(found) == plain(expected), "found:\n{found}\nexpected:\n{expected}");
}
