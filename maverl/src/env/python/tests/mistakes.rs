//! Classes that end their process again and again, draw where nobody expects it, fork, or return values of a wrong type.

use super::*;

const FILE: &str = r#"
import collections
import os
import random

ONCE = os.path.join(os.path.dirname(__file__), "once")


class Plain:
    def reset(self, task, seed):
        return {"at": 0}

    def step(self, state, action):
        state["at"] += 1
        return {"observation": f"at {state['at']}"}


class EndsAgain(Plain):
    """The second action ends the process; the first one as well when it is played again."""

    def step(self, state, action):
        if action == "one" and not os.path.exists(ONCE):
            open(ONCE, "w").close()
            return "ok"
        os._exit(3)


class Forks(Plain):
    def step(self, state, action):
        os.fork()
        return super().step(state, action)


class DrawnScore(Plain):
    def score(self, state, answer):
        return {"reward": random.random()}


class CountedScore(Plain):
    scored = 0

    def score(self, state, answer):
        self.scored += 1
        return {"reward": 0.5, "scored": self.scored}


class Shown(Plain):
    def reset(self, task, seed):
        return {"at": 0, "observation": {"board": [[0, 1], [1, 0]]}}


class Renamed:
    def reset(self, row, seed):
        return {"at": 0}

    def step(self, s, action):
        return {"observation": f"{s['at']} {action}"}


class Counted(Plain):
    def reset(self, task, seed):
        return collections.defaultdict(int)

    def step(self, state, action):
        state[action] += 1
        return {"observation": str(dict(state))}


class Truth:
    """Stands in for a truth value of NumPy."""

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Typed(Plain):
    def step(self, state, action):
        made = {"done": {"done": "False"}, "keys": {"rewards": 1.0}, "over": {"done": Truth(True)}, "on": {"done": Truth(False)}}
        return {"observation": "x", **made[action]}

    def score(self, state, answer):
        return {"reward": 0.0, "solved": "no"}


class DrawnWorld:
    """The methods of Gymnasium, and an object that draws when it is made."""

    def __init__(self, start=()):
        self.place = random.random()
        self.start = start

    def reset(self, *, seed=None, options=None):
        self.start.append(1)
        return f"{len(self.start)} from {self.place}", {}

    def step(self, action):
        return "x", 1.0, "False", False, {}


class Waits(Plain):
    async def step(self, state, action):
        return "x"


class Three(Plain):
    def step(self, state, action, tool):
        return "x"


class Nameless(Plain):
    def tools(self):
        return [{"name": "good"}, {"nam": "jump"}]
"#;

async fn refusal(environment: &PythonEnvironment, session: &mut Session, text: &str) -> String {
    let action = Action::Text(text.to_owned());
    DynEnvironment::act(environment, session, action).await.unwrap_err().0
}

fn not_started(dir: &Path, class: &str) -> String {
    Environment::start(&mut environment(class), dir).unwrap_err().0
}

#[tokio::test]
async fn a_process_that_ends_while_an_episode_is_played_again_counts_as_a_retry() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let ends = started(dir.path(), "EndsAgain");
    let mut session = open(&ends).await;
    assert_eq!(act(&ends, &mut session, "one").await.text, "ok");
    let found = refusal(&ends, &mut session, "two").await;
    assert_eq!(found, "env.py: its process ended: exit status: 3");
}

#[tokio::test]
async fn a_process_that_a_step_forks_answers_no_request() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let forks = started(dir.path(), "Forks");
    let (mut one, mut other) = (open(&forks).await, open(&forks).await);
    for at in 1..4 {
        assert_eq!(act(&forks, &mut one, "x").await.text, format!("at {at}"));
    }
    assert_eq!(act(&forks, &mut other, "x").await.text, "at 1");
}

#[tokio::test]
async fn a_score_may_draw_and_is_compared_when_an_episode_is_played_twice() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let mut rewards = Vec::new();
    for others in [0, 2] {
        let drawn = started(dir.path(), "DrawnScore");
        let session = open(&drawn).await;
        for _ in 0..others {
            let mut other = open(&drawn).await;
            act(&drawn, &mut other, "x").await;
        }
        rewards.push(Environment::score(&drawn, &session, None).await.unwrap().reward);
    }
    assert_eq!(rewards[0], rewards[1]);
    let counted = started(dir.path(), "CountedScore");
    let session = open(&counted).await;
    let found = Environment::score(&counted, &session, None).await.unwrap_err().0;
    assert!(found.contains("with the same seed and actions, got another score; use no"), "{found}");
}

#[tokio::test]
async fn an_observation_of_a_reset_is_shown_as_that_of_a_step() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let shown = started(dir.path(), "Shown");
    let session = open(&shown).await;
    let question = Environment::question(&shown, &session).unwrap();
    assert_eq!(question, "Go.\n\n{\"board\": [[0, 1], [1, 0]]}");
}

#[tokio::test]
async fn values_of_a_wrong_type_are_refused_and_not_guessed() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let typed = started(dir.path(), "Typed");
    let mut session = open(&typed).await;
    let done = refusal(&typed, &mut session, "done").await;
    assert_eq!(
        done,
        "env.py: `step` gave `done` 'False', which is no truth value; write True or False"
    );
    let keys = refusal(&typed, &mut session, "keys").await;
    assert!(keys.contains("returned the key 'rewards'; its keys are `observation`"), "{keys}");
    let solved = Environment::score(&typed, &session, None).await.unwrap_err().0;
    assert!(solved.contains("`score` gave `solved` 'no', which is no truth value"), "{solved}");
    assert!(!act(&typed, &mut session, "on").await.done);
    assert!(act(&typed, &mut session, "over").await.done);
    let world = environment("DrawnWorld");
    let arguments = BTreeMap::from([("start".to_owned(), json!([]))]);
    let mut world = PythonEnvironment { arguments, ..world };
    Environment::start(&mut world, dir.path()).unwrap();
    let (mut one, other) = (open(&world).await, open(&world).await);
    let first = Environment::question(&world, &one);
    assert!(first.as_ref().unwrap().starts_with("Go.\n\n1 from 0."), "{first:?}");
    assert_eq!(first, Environment::question(&world, &other));
    let found = refusal(&world, &mut one, "x").await;
    assert!(found.contains("`step` gave `terminated` 'False'"), "{found}");
}

#[tokio::test]
async fn a_class_is_read_by_what_its_methods_need() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", FILE);
    let renamed = started(dir.path(), "Renamed");
    let mut session = open(&renamed).await;
    assert_eq!(act(&renamed, &mut session, "go").await.text, "0 go");
    let counted = started(dir.path(), "Counted");
    let mut session = open(&counted).await;
    act(&counted, &mut session, "a").await;
    let mut copy = DynEnvironment::fork(&counted, &session).await.unwrap().unwrap();
    assert_eq!(act(&counted, &mut copy, "b").await.text, "{'a': 1, 'b': 1}");
    assert_eq!(act(&counted, &mut session, "c").await.text, "{'a': 1, 'c': 1}");
    assert!(
        not_started(dir.path(), "Waits").contains("`step` of `Waits` is `async def`; write `def`")
    );
    assert!(not_started(dir.path(), "Three").contains("needs `state`, `action`, `tool`; it gets"));
    let nameless = not_started(dir.path(), "Nameless");
    assert!(
        nameless.contains("`tools` lists {'nam': 'jump'}; a tool is {\"name\": .."),
        "{nameless}"
    );
}
