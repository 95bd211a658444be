#![allow(clippy::unwrap_used)]

use std::time::Instant;

use serde_json::json;

use super::*;
use crate::config::RewardUnit;
use crate::python::testing::{has_python, python_dir, write_python};
use crate::rollout::rewards::tests::episode;
use crate::trajectory::{Finish, Tokens};

mod alone;

/// Functions of the forms that the documentation of TRL shows.
const TRL: &str = r#"
import asyncio
import re


def length_of_ids(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


def length_of_texts(completions, **kwargs):
    return [float(len(completion)) for completion in completions]


def has_format(completions, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    return [1.0 if re.match(r"^<think>.*?</think><answer>.*?</answer>$", text) else 0.0 for text in contents]


def is_right(completions, ground_truth, **kwargs):
    found = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
    contents = [match.group(1) if match else "" for match in found]
    return [1.0 if content == truth else 0.0 for content, truth in zip(contents, ground_truth)]


def math_only(prompts, completions, task, **kwargs):
    return [1.0 if kind == "math" and "4" in text else None for kind, text in zip(task, completions)]


async def waits(prompts, completions, **kwargs):
    await asyncio.sleep(0.001)
    return [float(len(prompt)) for prompt in prompts]
"#;

/// Functions of the forms that the documentation of verl shows.
const VERL: &str = r#"
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source != "test":
        raise NotImplementedError(data_source)
    right = solution_str.split(chr(35) * 4)[-1].strip() == ground_truth
    return {"score": 1.0 if right else 0.1, "acc": right, "level": extra_info["level"]}


def batched(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(solution == truth) for solution, truth in zip(solution_strs, ground_truths)]
"#;

/// Functions that go wrong.
const WRONG: &str = r#"
import os
import random
import signal
import sys
import time

calls = 0


def raises(item):
    return {}["no such key"]


def exits(item):
    sys.exit(3)


def ends(item):
    print("the last words")
    os._exit(3)


def crashes(item):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(item):
    while True:
        pass


def not_a_number(item):
    return float("nan")


def text(item):
    return "0.5"


def nothing(items):
    pass


def too_few(items):
    return [0.5] * (len(items) + 1)


def counts(item):
    global calls
    calls += 1
    return calls


def clock(item):
    return time.time()


def draws(item):
    return random.random()


def prints(item):
    print("a line", flush=True)
    print("another", file=sys.stderr)
    os.write(1, b"{\"results\": []}\n")
    return 1.0


def writes_to_the_channel(item):
    for number in range(3, 9):
        try:
            os.write(number, b"garbage\n")
        except OSError:
            pass
    return 1.0


def forks(item):
    if os.fork() == 0:
        while True:
            time.sleep(1)
    return 1.0


def longs(item):
    return len(item["reply"])


def fails_for_b(items):
    if any(item["reply"] == "b" for item in items):
        raise ValueError("no b")
    return [len(item["reply"]) for item in items]


def kills_itself_for_b(items):
    if any(item["reply"] == "b" for item in items):
        os.kill(os.getpid(), signal.SIGKILL)
    return [len(item["reply"]) for item in items]


def reads(one, two):
    return 1.0
"#;

fn config(function: &str) -> RewardPythonConfig {
    RewardPythonConfig {
        function: Some(function.to_owned()),
        workers: 1.try_into().unwrap(),
        ..Default::default()
    }
}

fn start(dir: &Path, config: &RewardPythonConfig) -> Result<PythonReward, String> {
    PythonReward::new("part", config, dir)
}

async fn scored(dir: &Path, config: &RewardPythonConfig, episode: &Episode) -> ScoredRewards {
    start(dir, config).unwrap().score(episode).await.unwrap()
}

/// Returns the fault of an episode with this reply.
async fn fault(function: &str, reply: &str) -> String {
    let dir = python_dir("rewards.py", WRONG);
    let limit = if function == "hangs" { 0.3 } else { 600.0 };
    let config = RewardPythonConfig { timeout_s: limit, ..config(function) };
    start(dir.path(), &config).unwrap().score(&episode(&[reply], None)).await.unwrap_err()
}

/// Returns the tokens of a reply of this length.
fn tokens(length: usize) -> Tokens {
    Tokens {
        prompt: vec![1],
        completion: vec![2; length],
        logprobs: vec![0.0; length],
        version: 0,
        seed: 1,
        temperature: 1.0,
        finish: Finish::Stop,
        routes: None,
    }
}

fn with_data(replies: &[&str], data: &Value) -> Episode {
    let mut played = episode(replies, Some("4"));
    played.task.data = data.as_object().unwrap().clone();
    played
}

#[tokio::test]
async fn functions_of_trl_are_called_as_they_are() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", TRL);
    let data = json!({"ground_truth": "4", "task": "math"});
    let played = with_data(&["it is \\boxed{4}", "5"], &data);
    let send = |keys: &[&str], function: &str| RewardPythonConfig {
        send: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..config(function)
    };
    let values = async |config: &RewardPythonConfig| scored(dir.path(), config, &played).await;
    let lengths = values(&config("length_of_texts")).await.rewards;
    assert_eq!(lengths, Rewards::none().turn(0, 15.0).turn(1, 1.0));
    let right = values(&send(&["ground_truth"], "is_right")).await.rewards;
    assert_eq!(right, Rewards::none().turn(0, 1.0).turn(1, 0.0));
    let some = values(&send(&["task"], "math_only")).await;
    assert_eq!(some.rewards, Rewards::none().turn(0, 1.0));
    assert_eq!(some.metrics["none/part"], 1);
    assert_eq!(values(&config("waits")).await.rewards, Rewards::none().turn(0, 1.0).turn(1, 1.0));
    let mut formatted = episode(&["<think>a</think><answer>b</answer>", "b"], None);
    formatted.turns[0].tokens = Some(tokens(3));
    formatted.turns[1].tokens = Some(tokens(1));
    let chat = RewardPythonConfig { style: PythonStyle::TrlChat, ..config("has_format") };
    let found = scored(dir.path(), &chat, &formatted).await.rewards;
    assert_eq!(found, Rewards::none().turn(0, 1.0).turn(1, 0.0));
    let ids = scored(dir.path(), &config("length_of_ids"), &formatted).await.rewards;
    assert_eq!(ids, Rewards::none().turn(0, 3.0).turn(1, 1.0));
}

#[tokio::test]
async fn functions_of_verl_are_called_as_they_are() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", VERL);
    let played = with_data(&["so #### 4", "so #### 5"], &json!({"answers": ["4"], "level": 2}));
    let send = vec!["answers".to_owned(), "level".to_owned()];
    let one = RewardPythonConfig { send: send.clone(), ..config("compute_score") };
    let ScoredRewards { rewards, metrics, .. } = scored(dir.path(), &one, &played).await;
    assert_eq!(rewards, Rewards::none().turn(0, 1.0).turn(1, 0.1));
    assert_eq!((&metrics["part/acc"], &metrics["part/level"]), (&json!(0.5), &json!(2.0)));
    let batched = RewardPythonConfig { send, of: RewardUnit::Answer, ..config("batched") };
    assert_eq!(scored(dir.path(), &batched, &played).await.rewards, Rewards::episode(1.0));
}

#[tokio::test]
async fn a_function_that_fails_is_named_with_its_file_and_line_and_what_to_write() {
    if !has_python() {
        return;
    }
    let line = |name: &str| 1 + WRONG.lines().position(|line| line.contains(name)).unwrap();
    let found = fault("raises", "a").await;
    let expected = format!(
        "rewards.py, line {}, in `raises`: KeyError: 'no such key'; correct the function, return None for no value, or set \
         `on_error = \"skip\"`",
        1 + line("def raises")
    );
    assert_eq!(found, expected);
    for (function, parts) in [
        ("exits", &["in `exits`: SystemExit: 3"][..]),
        (
            "not_a_number",
            &[&format!(
                "rewards.py, line {}: `not_a_number` returned nan",
                line("def not_a_number")
            )],
        ),
        ("text", &["returned '0.5', which is no number"]),
        ("nothing", &["returned None for 1 replies; return a list with a value for each reply"]),
        ("too_few", &["`too_few` returned 2 values for 1 replies"]),
        ("ends", &["rewards.py: its process ended: exit status: 3"]),
        ("crashes", &["rewards.py: its process ended: signal: 11"]),
        ("hangs", &["rewards.py: a request took longer than 0.3 s (`timeout_s`)"]),
        ("writes_to_the_channel", &["it wrote \"garbage"]),
    ] {
        let found = fault(function, "a").await;
        for part in parts {
            assert!(found.contains(part), "{part:?} is missing in {found:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_refused_at_the_start() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let refused = |config: &RewardPythonConfig| start(dir.path(), config).err().unwrap();
    let found = refused(&config("rises"));
    assert!(
        found.starts_with("rewards.py: has no function `rises`; its functions are `raises`"),
        "{found}"
    );
    let found = refused(&config("reads"));
    assert!(
        found.contains("`reads` has the parameters `one`, `two`, which fit no style"),
        "{found}"
    );
    let found = refused(&RewardPythonConfig { python: "python-4".to_owned(), ..config("text") });
    assert!(found.starts_with("`python-4` does not run: "), "{found}");
    write_python(dir.path(), "rewards.py", "import no_such_module\n");
    let found = refused(&config("text"));
    assert_eq!(
        found,
        "rewards.py, line 1, in `<module>`: ModuleNotFoundError: No module named 'no_such_module'"
    );
    write_python(dir.path(), "rewards.py", "def text(item)\n    return 1\n");
    assert!(refused(&config("text")).starts_with("rewards.py, line 1: SyntaxError: "));
    write_python(dir.path(), "rewards.py", "while True:\n    pass\n");
    let slow = RewardPythonConfig { start_timeout_s: 0.2, ..config("text") };
    assert_eq!(refused(&slow), "rewards.py: loading it took longer than 0.2 s (`start_timeout_s`)");
    write_python(dir.path(), "rewards.py", "def is_right(completions, ground_truth):\n    pass\n");
    let found = refused(&config("is_right"));
    assert!(
        found.contains("`is_right` needs `ground_truth`; write the key of the reference"),
        "{found}"
    );
}

#[tokio::test]
async fn a_value_that_depends_on_more_than_its_reply_ends_the_use_of_the_file() {
    if !has_python() {
        return;
    }
    for function in ["counts", "clock"] {
        let found = fault(function, "a").await;
        assert!(found.contains("rewards.py: gave the same reply "), "{found}");
        assert!(found.contains("`random`, which is seeded"), "{found}");
    }
    let dir = python_dir("rewards.py", WRONG);
    let drawn = scored(dir.path(), &config("draws"), &episode(&["a", "b"], None)).await;
    assert_eq!(drawn, scored(dir.path(), &config("draws"), &episode(&["a", "b"], None)).await);
    let [(_, one), (_, other)] = drawn.rewards.parts() else { panic!("{drawn:?}") };
    assert_ne!(one, other);
}

#[tokio::test]
async fn one_reply_that_fails_fails_no_other() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let played = episode(&["a", "b", "cc"], None);
    for function in ["fails_for_b", "kills_itself_for_b"] {
        let skip = RewardPythonConfig { on_error: OnRewardError::Skip, ..config(function) };
        let found = scored(dir.path(), &skip, &played).await;
        assert_eq!(found.rewards, Rewards::none().turn(0, 1.0).turn(2, 2.0), "{function}");
        assert_eq!(found.skipped, Some(1));
    }
}

#[tokio::test]
async fn what_a_function_prints_is_in_the_log_and_disturbs_nothing() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let reward = start(dir.path(), &config("prints")).unwrap();
    reward.open_in(dir.path()).unwrap();
    let played = episode(&["a"], None);
    assert_eq!(reward.score(&played).await.unwrap().rewards, Rewards::none().turn(0, 1.0));
    drop(reward);
    let log = dir.path().join("logs/rewards.part.0.log");
    while !std::fs::read_to_string(&log).unwrap().contains("another") {
        std::thread::yield_now();
    }
    assert!(std::fs::read_to_string(&log).unwrap().contains("a line\n"));
}

#[tokio::test]
async fn long_and_unusual_replies_arrive_whole_and_children_end_with_their_process() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let long = "ä\u{2028}\u{0}\n\"".repeat(1 << 17);
    let length = long.chars().count() as f64;
    let found = scored(dir.path(), &config("longs"), &episode(&[&long, ""], None)).await.rewards;
    assert_eq!(found, Rewards::none().turn(0, length).turn(1, 0.0));
    scored(dir.path(), &config("forks"), &episode(&["a"], None)).await;
}

#[tokio::test]
async fn failures_in_a_row_end_the_use_of_the_file_with_its_last_output() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let few = RewardPythonConfig {
        give_up_after: 2.try_into().unwrap(),
        on_error: OnRewardError::Skip,
        ..config("ends")
    };
    let reward = start(dir.path(), &few).unwrap();
    let first = reward.score(&episode(&["a"], None)).await.unwrap();
    assert_eq!(first.skipped, Some(1));
    let found = reward.score(&episode(&["a"], None)).await.unwrap_err();
    assert!(
        found.contains("that was failure 3 in a row; its last output: the last words"),
        "{found}"
    );
    let counts: Vec<f64> = reward.take_usage().into_iter().map(|(_, value)| value).collect();
    assert_eq!(counts[0], 0.0);
    assert_eq!(counts[4], 2.0);
}

#[tokio::test]
async fn a_file_that_changes_during_a_run_is_not_mixed_with_its_old_version() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", &format!("import lib\n{WRONG}"));
    write_python(dir.path(), "lib.py", "");
    let watched = RewardPythonConfig { watch: vec!["l*.py".to_owned()], ..config("crashes") };
    let reward = start(dir.path(), &watched).unwrap();
    assert_eq!(reward.sources(), ["lib.py", "rewards.py"]);
    write_python(dir.path(), "lib.py", "# changed\n");
    let found = reward.score(&episode(&["a"], None)).await.unwrap_err();
    assert!(found.starts_with("lib.py was changed during the run"), "{found}");
}

/// Measures a part of a trivial function: `cargo test -p maverl --release -- --ignored a_trivial_python`.
#[tokio::test]
#[ignore = "a limit on time"]
async fn a_trivial_python_reward_takes_less_than_a_millisecond_an_item_in_batches_of_eight() {
    if !has_python() {
        return;
    }
    let dir = python_dir("rewards.py", WRONG);
    let reward = start(dir.path(), &config("longs")).unwrap();
    let played = episode(&["a reply of some words"; 8], None);
    reward.score(&played).await.unwrap();
    let (begun, rounds) = (Instant::now(), 200);
    for _ in 0..rounds {
        reward.score(&played).await.unwrap();
    }
    let each = begun.elapsed().as_secs_f64() / f64::from(8 * rounds);
    println!("{:.3} ms an item", 1e3 * each);
    assert!(each < 1e-3, "{each} s an item");
}
