//! Every environment that ships, behind a server, with every team that ships and asks for its actions.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use maverl::orchestra::ChatBackend;
use maverl::registry::Registry;
use maverl::rollout::{EpisodeRequest, Rollout, Script};
use maverl::task::Task;
use maverl::trajectory::{Episode, Message, Seat};
use maverl::{Purpose, Sources, check, data};
use maverl_tests::lab::{Lab, wait_until};
use serde_json::Value;

use orchestras as _; // its declarations are in the registry

use super::{Server, lab};

/// Environments with their data.
const ENVIRONMENTS: [(&str, &str); 5] = [
    ("code", "builtin:code"),
    ("math", "builtin:arithmetic"),
    ("nli", "builtin:nli"),
    ("search", "builtin:facts"),
    ("tools", "builtin:tools"),
];
/// Environments of maverl that no server has: clients of one, classes of a user's file, and that of programs which judge
/// themselves.
const NOT_SERVED: [&str; 4] = ["grpc", "openenv", "python", "reported"];
/// Number of tasks of each environment.
const TASKS: usize = 4;

/// Replies in the forms of the teams that ship, right and wrong ones.
const REPLIES: [&str; 12] = [
    "<answer>4</answer>",
    "<answer>entailment</answer>",
    "<answer>```python\ndef f(x):\n    return x\n```</answer>",
    "The answer is \\boxed{12}.",
    "<verify>approve</verify>",
    "<verify>reject</verify>",
    "<score>7</score>",
    "<better>second</better>",
    "<next>solver</next>",
    "<next>stop</next>",
    "<act>21</act>",
    "no form at all",
];

/// Returns the reply of a seat to a prompt, equal for equal prompts.
fn reply(seat: &Seat, messages: &[Message]) -> String {
    let mut hasher = DefaultHasher::new();
    let texts: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    (seat.to_string(), texts).hash(&mut hasher);
    let chance = (hasher.finish() >> 7) as usize;
    let pick = |replies: &[&str]| replies[chance % replies.len()].to_owned();
    match seat.agent.as_str() {
        "search/verifier" => {
            pick(&["<verify>no</verify>", "<verify>no</verify>", "<verify>yes</verify>"])
        }
        "search/searcher" => pick(&[
            "<search>capital of Peru</search>",
            "<search>who wrote it</search>",
            "<search></search>",
        ]),
        "solo/actor" => pick(&[
            "<act>capital of Peru</act>",
            "<act>12</act>",
            "<act>4</act>",
            "<answer>4</answer>",
        ]),
        "tools/caller" => pick(&[
            "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2 + 3\"}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"no_tool\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"calculator\"\n</tool_call>",
            "<answer>5</answer>",
        ]),
        _ => pick(&REPLIES),
    }
}

/// Plays an episode on each of the first tasks.
async fn played(registry: &Registry, sources: Sources, what: &str) -> Vec<Episode> {
    let plan = check(&sources, registry, Purpose::Eval).unwrap_or_else(|problems| {
        panic!("{what}: {}", problems.iter().map(ToString::to_string).collect::<String>())
    });
    let tasks = data::load(&plan.config.task, "train", &plan.base).unwrap();
    let script: Arc<dyn ChatBackend> = Arc::new(Script::new(reply));
    let rollout = Rollout::start_with(&plan, registry, |_| Arc::clone(&script));
    let rollout = rollout.unwrap_or_else(|error| panic!("{what}: {error}"));
    let request = |task: &Task| EpisodeRequest { task: task.clone(), index: 0, seed: 5 };
    rollout.collect(tasks.iter().take(TASKS).map(request).collect(), |_| {}).await
}

/// Starts `maverl serve environment` without a key.
fn served(lab: &Lab, environment: &str, data: &str) -> Server {
    let config = format!("[task]\ndata = {data:?}\n[environment]\nname = {environment:?}\n");
    lab.write("served.toml", &config);
    let mut command =
        lab.command(&["serve", "environment", "served.toml", "--address", "127.0.0.1:0"]);
    let log = std::fs::File::create(lab.path("server.log")).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
    let address = told["listening"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let server = Server { child, address };
    wait_until("the server", || server.get("/health").0 == 200);
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn every_environment_behind_a_server_plays_every_team_that_asks_for_it_to_the_bit() {
    let registry = Registry::collect().unwrap();
    let shipped = registry.environments.iter().filter(|(_, entry)| {
        // Others are those of tests.
        entry.declaration.place.item.starts_with("maverl::")
    });
    let listed: BTreeSet<&str> =
        ENVIRONMENTS.map(|(name, _)| name).into_iter().chain(NOT_SERVED).collect();
    assert_eq!(shipped.map(|(name, _)| *name).collect::<BTreeSet<_>>(), listed);
    let lab = lab();
    let mut acted = BTreeMap::new();
    for (environment, data) in ENVIRONMENTS {
        let server = served(&lab, environment, data);
        let url = format!("environment.url=\"http://{}\"", server.address);
        let entry = &registry.environments[environment];
        // Others send no action, and an environment that is asked for one judges what they answer.
        let teams = registry.orchestras.iter().filter(|(_, team)| !team.needs.is_empty());
        for (team, _) in teams.filter(|(_, team)| team.fits(entry)) {
            let sources = |named: &str| {
                Sources::default()
                    .with(format!("orchestra.name={team:?}"))
                    .with(format!("task.data={data:?}"))
                    .with(format!("environment.name={named:?}"))
            };
            let what = format!("{team} in {environment}");
            let local = played(&registry, sources(environment), &what).await;
            let over_grpc = played(&registry, sources("grpc").with(&url), &what).await;
            let reset = "environment.reset={ task_id = \"$id\" }";
            let over_openenv = sources("openenv").with(&url).with(reset);
            let over_openenv = played(&registry, over_openenv, &what).await;
            for (n, ours) in local.iter().enumerate() {
                assert_eq!(*ours, over_grpc[n], "{what} over gRPC");
                *acted.entry((*team, environment)).or_insert(0) += ours.acts.len();
                let theirs = &over_openenv[n];
                let score = |episode: &Episode| {
                    let score =
                        episode.score().unwrap_or_else(|| panic!("{what}: {:?}", episode.outcome));
                    (score.reward.to_bits(), score.solved)
                };
                assert_eq!(score(ours), score(theirs), "{what} over OpenEnv");
                // Only the metrics of a score are those of the protocol.
                let scored = Episode { outcome: ours.outcome.clone(), ..theirs.clone() };
                assert_eq!(*ours, scored, "{what} over OpenEnv");
            }
        }
        assert_eq!(server.stop(), Some(0));
    }
    println!(
        "{} pairs of team and environment, {} actions",
        acted.len(),
        acted.values().sum::<usize>()
    );
    assert!(acted.len() >= 6, "{acted:?}");
    for pair in [
        ("search/route", "search"),
        ("solo/act", "search"),
        ("tools/act", "tools"),
        ("solo/act", "math"),
    ] {
        assert!(acted[&pair] > 0, "{pair:?} never acts");
    }
}

/// Teams whose agents are judged by answers of their own.
const JUDGING: [(&str, &[&str]); 8] = [
    ("cory/pair", &[]),
    ("debate/rounds", &["orchestra.own_reward=1.0"]),
    ("mixture/layers", &["orchestra.own_reward=1.0"]),
    ("search/route", &[]),
    ("summary/rounds", &["orchestra.own_reward=1.0", "orchestra.gain_reward=1.0"]),
    ("tree/search", &["orchestra.own_reward=1.0"]),
    ("vote/majority", &["orchestra.own_reward=1.0", "orchestra.pivot_reward=1.0"]),
    (
        "workflow/graph",
        &[
            "orchestra.nodes=[{ id = \"a\", prompt = \"{{ question }}\", tag = \"answer\", own_reward = 1.0 }, \
          { id = \"b\", prompt = \"{{ a }}\", tag = \"answer\", own_reward = 0.5 }]",
        ],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_team_that_has_several_answers_judged_earns_behind_a_server_what_it_earns_without_one() {
    let registry = Registry::collect().unwrap();
    let lab = lab();
    let (mut paid, mut refused) = (0, 0);
    for (environment, data) in ENVIRONMENTS {
        let server = served(&lab, environment, data);
        let url = format!("environment.url=\"http://{}\"", server.address);
        let entry = &registry.environments[environment];
        for (team, settings) in JUDGING {
            if !registry.orchestras[team].fits(entry) {
                continue;
            }
            let sources = |named: &str| {
                settings
                    .iter()
                    .fold(Sources::default(), |sources, set| sources.with(*set))
                    .with(format!("orchestra.name={team:?}"))
                    .with(format!("task.data={data:?}"))
                    .with(format!("environment.name={named:?}"))
            };
            let what = format!("{team} in {environment}");
            let local = played(&registry, sources(environment), &what).await;
            let over_grpc = played(&registry, sources("grpc").with(&url), &what).await;
            assert_eq!(local, over_grpc, "{what} over gRPC");
            paid += local.iter().map(|episode| episode.rewards.len()).sum::<usize>();
            let reset = "environment.reset={ task_id = \"$id\" }";
            let over_openenv = sources("openenv").with(&url).with(reset);
            for (ours, theirs) in local.iter().zip(played(&registry, over_openenv, &what).await) {
                let Some(score) = theirs.score() else {
                    let outcome = format!("{:?}", theirs.outcome);
                    assert!(outcome.contains("an answer ends its episode"), "{what}: {outcome}");
                    refused += 1;
                    continue;
                };
                assert_eq!(ours.rewards, theirs.rewards, "{what} over OpenEnv");
                assert_eq!(ours.score().map(|ours| ours.reward), Some(score.reward), "{what}");
            }
        }
        assert_eq!(server.stop(), Some(0));
    }
    println!("{paid} reward parts, {refused} episodes of several answers over OpenEnv");
    assert!(paid > 20 && refused > 0, "{paid} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_whose_actions_the_environment_of_a_server_does_not_understand_is_refused_with_those_it_does()
 {
    let registry = Registry::collect().unwrap();
    let lab = lab();
    for (environment, data, team, refusal) in [
        (
            "math",
            "builtin:arithmetic",
            "search/route",
            "sends `search` actions, and the environment of the server understands `attempt`",
        ),
        (
            "nli",
            "builtin:nli",
            "solo/act",
            "sends `any` actions, and the environment of the server understands no action",
        ),
        (
            "search",
            "builtin:facts",
            "tools/act",
            "sends `tool` actions, and the environment of the server understands `search`",
        ),
    ] {
        let server = served(&lab, environment, data);
        for protocol in ["grpc", "openenv"] {
            let sources = Sources::default()
                .with(format!("orchestra.name={team:?}"))
                .with(format!("task.data={data:?}"))
                .with(format!("environment.name={protocol:?}"))
                .with(format!("environment.url=\"http://{}\"", server.address));
            let plan = check(&sources, &registry, Purpose::Eval).unwrap();
            let script: Arc<dyn ChatBackend> = Arc::new(Script::new(reply));
            let refused = Rollout::start_with(&plan, &registry, |_| Arc::clone(&script));
            let told = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains(&format!("orchestra `{team}` {refusal}")), "{protocol}: {told}");
        }
        assert_eq!(server.stop(), Some(0));
    }
}
