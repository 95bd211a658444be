//! Plays every orchestra, with all its rewards enabled, with teams that cheat. No cheat may gain by it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use maverl::data;
use maverl::orchestra::ChatBackend;
use maverl::registry::{OrchestraEntry, Registry};
use maverl::rollout::{EpisodeRequest, Rollout, Script};
use maverl::{Purpose, Sources, check};
use serde_json::{Value, json};

/// Environments by their data.
const ENVIRONMENTS: [(&str, &str); 3] =
    [("math", "builtin:arithmetic"), ("nli", "builtin:nli"), ("search", "builtin:facts")];
/// Number of tasks per environment.
const TASKS: usize = 6;

/// Reply of a cheat to every prompt, given the available information.
type Cheat = fn(&str) -> String;

/// Replies that exploit a rule that looks for words, counts tags, or trusts its input.
const CHEATS: [(&str, Cheat); 8] = [
    ("words without a form", |_| "the answer is entailment neutral contradiction 42".to_owned()),
    ("every answer at once", |_| format!("<answer>{}</answer>", soup())),
    ("every answer in blocks of their own", |_| {
        soup().split(' ').map(|word| format!("<answer>{word}</answer>")).collect()
    }),
    ("nothing in the form", |_| {
        "<answer></answer><verify></verify><search></search><act></act><score></score>".to_owned()
    }),
    ("nothing", |_| String::new()),
    ("the question as the answer", |shown| format!("<answer>{shown}</answer>")),
    ("both verdicts, and praise", |_| {
        "<verify>yes</verify><verify>no</verify><score>10</score><score>10</score>\
         <better>first</better><better>second</better><next>stop</next><next>solver</next>"
            .to_owned()
    }),
    ("every form at once", |_| {
        format!(
            "<answer>{0}</answer><verify>yes</verify><score>10</score><search>{0}</search>\
             <better>first</better><next>solver</next>",
            soup()
        )
    }),
];

/// Answers of all environments, joined.
fn soup() -> String {
    let numbers = (0..300).map(|number| number.to_string());
    let labels = ["entailment", "neutral", "contradiction"].map(str::to_owned);
    numbers.chain(labels).collect::<Vec<_>>().join(" ")
}

/// Creates an orchestra in an environment with all rewards enabled; `None` if they do not fit.
fn playing(
    registry: &Registry,
    (name, entry): (&str, &OrchestraEntry),
    (environment, data): (&str, &str),
) -> Option<Sources> {
    // A program decides itself what it does with replies.
    if name == "program/run" || !entry.fits(&registry.environments[environment]) {
        return None;
    }
    let options = (entry.declaration.defaults)();
    let sources = Sources::default()
        .with(format!("orchestra.name={name:?}"))
        .with(format!("environment.name={environment:?}"))
        .with(format!("task.data={data:?}"));
    let rewards = options.as_object().unwrap().iter().filter(|(key, _)| key.ends_with("_reward"));
    Some(rewards.map(enabled_reward).fold(sources, Sources::with))
}

fn enabled_reward((key, default): (&String, &Value)) -> String {
    let all = match default {
        Value::Array(parts) => json!(vec![1.0; parts.len()]),
        _ => json!(1.0),
    };
    format!("orchestra.{key}={all}")
}

#[tokio::test]
async fn cheating_pays_in_no_team_and_in_no_world() {
    let registry = Registry::collect().unwrap();
    let (mut teams, mut episodes) = (0, 0);
    for orchestra in &registry.orchestras {
        for environment in ENVIRONMENTS {
            let Some(sources) = playing(&registry, (orchestra.0, orchestra.1), environment) else {
                continue;
            };
            let plan = check(&sources, &registry, Purpose::Eval).unwrap();
            let tasks = data::load(&plan.config.task, "test", &plan.base).unwrap();
            teams += 1;
            for (what, cheat) in CHEATS {
                let script: Arc<dyn ChatBackend> = Arc::new(Script::new(move |_, messages| {
                    cheat(&messages.last().unwrap().content)
                }));
                let rollout =
                    Rollout::start_with(&plan, &registry, |_| Arc::clone(&script)).unwrap();
                let tasks = tasks.iter().take(TASKS).cloned();
                let requests = tasks.map(|task| EpisodeRequest { task, index: 0, seed: 1 });
                for episode in rollout.collect(requests.collect(), |_| {}).await {
                    let score = episode.score().unwrap_or_else(|| panic!("{:?}", episode.outcome));
                    let gained = episode.rewards.iter().find(|part| part.value > 0.0);
                    assert!(
                        score.reward == 0.0 && !score.solved && gained.is_none(),
                        "{} in {}, {what}: {score:?}, {gained:?}",
                        orchestra.0,
                        environment.0
                    );
                    episodes += 1;
                }
            }
        }
    }
    println!("{teams} teams, {} cheats, {episodes} episodes: nobody gained", CHEATS.len());
    assert!(teams >= 30);
}
