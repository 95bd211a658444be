#![allow(clippy::unwrap_used)]

use super::*;
use crate::env::DynEnvironment;
use crate::python::testing::{has_python, python_dir};

mod mistakes;

const GRID: &str = r#"
import os
import random
import time

LIVES = os.path.join(os.path.dirname(__file__), "ends")


class Grid:
    def __init__(self, width=4):
        self.width = width

    def tools(self):
        return [{"name": "jump", "description": "Jumps.", "parameters": {"type": "object", "properties": {}}}]

    def reset(self, task, seed):
        random.seed(seed)
        return {"observation": f"at 0 of {self.width}, goal {task['goal']}", "at": 0, "goal": task["goal"]}

    def step(self, state, action):
        if isinstance(action, dict):
            state["at"] += 2
        elif action == "right":
            state["at"] += 1
        elif action == "wrong":
            raise ValueError("no such move")
        elif action == "die":
            os._exit(3)
        elif action == "die once" and not os.path.exists(LIVES):
            open(LIVES, "w").close()
            os._exit(3)
        return {"observation": f"at {state['at']}, wind {random.random()}", "reward": 0.25, "done": state["at"] >= self.width}

    def score(self, state, answer):
        right = state["at"] == state["goal"] and answer == "there"
        return {"reward": 1.0 if right else 0.0, "solved": right, "distance": abs(state["goal"] - state["at"])}


class Plain:
    def reset(self, task, seed):
        return [task["goal"]]

    def step(self, state, action):
        state.append(action)
        return " ".join(map(str, state))


class Quiz:
    def reset(self, task, seed):
        return {}

    def score(self, state, answer):
        return float(answer == "there")


class Clock(Plain):
    def step(self, state, action):
        return {"observation": str(time.time()), "reward": 0.0}


class Short(Plain):
    def step(self, state, action):
        return {"reward": 1.0}


class Space:
    n, start = 3, 0


class Tools:
    def reset(self, task, seed):
        return {}

    def tools(self):
        return [{"name": "go", "description": "", "parameters": {"type": "object"}}]

    def stp(self, state, action):
        return {}


class Walk:
    """The methods of Gymnasium."""

    action_space = Space()

    def reset(self, *, seed=None, options=None):
        self.at = seed % 2
        return [self.at], {}

    def step(self, action):
        self.at += action
        return [self.at], float(action), self.at > 3, False, {}
"#;

fn environment(class: &str) -> PythonEnvironment {
    PythonEnvironment { class: class.to_owned(), workers: NonZeroUsize::MIN, ..Default::default() }
}

fn started(dir: &Path, class: &str) -> PythonEnvironment {
    let mut environment = environment(class);
    environment.validate(dir, &TaskList::default()).unwrap();
    Environment::start(&mut environment, dir).unwrap();
    environment
}

fn task(id: &str) -> Task {
    let data = json!({ "goal": 3 });
    Task {
        id: id.to_owned(),
        source: "test".to_owned(),
        question: "Go.".to_owned(),
        data: data.as_object().unwrap().clone(),
    }
}

async fn open(environment: &PythonEnvironment) -> Session {
    DynEnvironment::open(environment, &task("a"), 7).await.unwrap()
}

async fn act(environment: &PythonEnvironment, session: &mut Session, text: &str) -> Observation {
    DynEnvironment::act(environment, session, Action::Text(text.to_owned())).await.unwrap()
}

#[tokio::test]
async fn a_class_of_a_file_answers_actions_and_judges_the_answer() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let grid = started(dir.path(), "Grid");
    let mut session = open(&grid).await;
    assert_eq!(Environment::question(&grid, &session).unwrap(), "Go.\n\nat 0 of 4, goal 3");
    assert_eq!(Environment::tools(&grid, &task("a"))[0].name, "jump");
    assert!(act(&grid, &mut session, "right").await.text.starts_with("at 1, wind 0."));
    let jump = Action::Tool { name: "jump".to_owned(), arguments: json!({}) };
    let seen = DynEnvironment::act(&grid, &mut session, jump).await.unwrap();
    assert!(seen.text.starts_with("at 3,") && !seen.done);
    let mut copy = DynEnvironment::fork(&grid, &session).await.unwrap().unwrap();
    let right = Environment::score(&grid, &session, Some("there")).await.unwrap();
    assert_eq!((right.reward, right.solved, &right.metrics["distance"]), (1.0, true, &json!(0.0)));
    assert_eq!(right.metrics["steps"], 2);
    assert!(act(&grid, &mut copy, "right").await.done);
    assert!(act(&grid, &mut copy, "right").await.text.starts_with("error: the episode is over"));
    let past = Environment::score(&grid, &copy, None).await.unwrap();
    assert_eq!((past.reward, past.solved, &past.metrics["distance"]), (0.0, false, &json!(1.0)));
    Environment::close(&grid, session).await.unwrap();
    Environment::close(&grid, copy).await.unwrap();
}

#[tokio::test]
async fn without_a_score_the_rewards_of_the_steps_add_up() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let walk = started(dir.path(), "Walk");
    let mut session = open(&walk).await;
    let first = Environment::question(&walk, &session).unwrap();
    assert!(first == "Go.\n\n[0]" || first == "Go.\n\n[1]", "{first}");
    assert_eq!(act(&walk, &mut session, "left").await.text, "an action is a number from 0 to 2");
    act(&walk, &mut session, "2").await;
    assert!(act(&walk, &mut session, " 2\n").await.done);
    let score = Environment::score(&walk, &session, None).await.unwrap();
    assert_eq!((score.reward, score.solved), (4.0, true));
    assert!(DynEnvironment::fork(&walk, &session).await.unwrap().is_none());
    let plain = started(dir.path(), "Plain");
    let mut session = open(&plain).await;
    assert!(Environment::question(&plain, &session).is_none());
    assert_eq!(act(&plain, &mut session, "x").await, Observation::new("3 x"));
}

#[tokio::test]
async fn a_class_for_teams_that_never_act_needs_no_step() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let quiz = started(dir.path(), "Quiz");
    let mut session = open(&quiz).await;
    let score = Environment::score(&quiz, &session, Some("there")).await.unwrap();
    assert_eq!(score.reward, 1.0);
    let left = Action::Text("left".to_owned());
    let error = DynEnvironment::act(&quiz, &mut session, left).await.unwrap_err();
    assert!(error.0.contains("no method `step(state, action)`"), "{error}");
}

#[tokio::test]
async fn an_episode_whose_process_ends_is_played_again_to_the_same_point() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let grid = started(dir.path(), "Grid");
    let (mut one, mut other) = (open(&grid).await, open(&grid).await);
    for session in [&mut one, &mut other] {
        act(&grid, session, "right").await;
    }
    act(&grid, &mut one, "die once").await;
    let [one, other] = [act(&grid, &mut one, "right").await, {
        act(&grid, &mut other, "stay").await;
        act(&grid, &mut other, "right").await
    }];
    assert_eq!(one, other);
    let mut last = open(&grid).await;
    let action = Action::Text("die".to_owned());
    let error = DynEnvironment::act(&grid, &mut last, action).await.unwrap_err();
    assert_eq!(error.0, "env.py: its process ended: exit status: 3");
    assert!(act(&grid, &mut open(&grid).await, "right").await.text.starts_with("at 1"));
}

#[tokio::test]
async fn mistakes_of_a_class_are_named_with_file_and_line() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let grid = started(dir.path(), "Grid");
    let mut session = open(&grid).await;
    let action = Action::Text("wrong".to_owned());
    let error = DynEnvironment::act(&grid, &mut session, action).await.unwrap_err();
    let line = 1 + GRID.lines().position(|line| line.contains("no such move")).unwrap();
    assert_eq!(error.0, format!("env.py, line {line}, in `step`: ValueError: no such move"));
    let short = started(dir.path(), "Short");
    let mut session = open(&short).await;
    let action = Action::Text("x".to_owned());
    let error = DynEnvironment::act(&short, &mut session, action).await.unwrap_err();
    assert!(
        error.0.starts_with("env.py: `step` returned {'reward': 1.0}; return {\"observation\"")
    );
    let invalid = |environment: PythonEnvironment| {
        environment.validate(dir.path(), &TaskList::default()).unwrap_err().0
    };
    assert!(
        invalid(environment("Gird"))
            .starts_with("`class`: `env.py` defines no `Gird`; its names are `")
    );
    let file = "no.py".to_owned();
    assert!(
        invalid(PythonEnvironment { file, ..environment("Grid") })
            .starts_with("`file`: there is no file ")
    );
    let watch = vec!["lib/*.py".to_owned()];
    assert_eq!(
        invalid(PythonEnvironment { watch, ..environment("Grid") }),
        "`watch`: `lib/*.py` names no file"
    );
    let mut tools = environment("Tools");
    let error = Environment::start(&mut tools, dir.path()).unwrap_err();
    assert!(
        error.0.starts_with("env.py: `Tools` has `tools` and no method `step`; a call of a tool")
    );
    let mut space = environment("Space");
    let error = Environment::start(&mut space, dir.path()).unwrap_err();
    assert_eq!(
        error.0,
        "env.py: `Space` has no method `reset`; an environment has `reset(task, seed)`, and `step(state, action)` if teams act"
    );
}

#[tokio::test]
async fn episodes_that_go_another_way_the_second_time_are_refused() {
    if !has_python() {
        return;
    }
    let dir = python_dir("env.py", GRID);
    let clock = started(dir.path(), "Clock");
    let mut session = open(&clock).await;
    act(&clock, &mut session, "x").await;
    let error = Environment::score(&clock, &session, None).await.unwrap_err();
    assert!(error.0.contains("task `a`, played twice with the same seed and actions"), "{error}");
    assert!(DynEnvironment::open(&clock, &task("a"), 7).await.is_err());
}
