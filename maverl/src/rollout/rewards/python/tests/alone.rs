//! Values of replies that depend on nothing else, whatever a file does: it forks, draws, awaits, changes its items, or raises late.

use super::*;

const FILE: &str = r#"
import asyncio
import ctypes
import os
import random
import sys


def forks(item):
    if item["reply"].startswith("fork"):
        os.fork()
    return float(len(item["reply"]))


def forks_in_c(item):
    if item["reply"].startswith("fork"):
        ctypes.CDLL(None).fork()
    return float(len(item["reply"]))


def forks_and_waits(item):
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    return float(len(item["reply"]))


def writes_an_answer(item):
    for number in range(3, 9):
        try:
            os.write(number, b'{"results": [{"reward": 9.0}]}\n')
        except OSError:
            pass
    return 1.0


def centred(items):
    lengths = [len(item["reply"]) for item in items]
    return [length - sum(lengths) / len(lengths) for length in lengths]


def drawn_for_all(items):
    return [random.random() for _ in items]


async def draws_later(item):
    first = random.random()
    await asyncio.sleep(0.001 * len(item["reply"]))
    return first + random.random()


async def fails_later(item):
    await asyncio.sleep(0)
    raise ValueError("no " + item["reply"])


def draws_by_numpy(item):
    from numpy.random import rand

    return rand()


def cuts_and_fails(items):
    for item in items:
        item["reply"] = item["reply"][1:]
    if any(not item["reply"] for item in items):
        raise ValueError("nothing is left")
    return [float(len(item["reply"])) for item in items]


def yields(items):
    for item in items:
        if item["reply"] == "b":
            raise ValueError("no b")
        yield float(len(item["reply"]))


def returns_a_set(items):
    return {float(len(item["reply"])) for item in items}


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises_without_text(item):
    raise Silent


def has_no_streams(item):
    sys.stdout = sys.stderr = None
    if item["reply"] == "b":
        raise ValueError("no b")
    return 1.0


def says_half_a_pair(item):
    print("\ud800")
    return {"reward": 1.0, "feedback": "half a pair: \ud800"}
"#;

/// A stand-in for NumPy, with a generator that begins anywhere.
const NUMPY: &str = r#"
import random

own = random.Random()
seed, rand = own.seed, own.random


def get_state():
    return own.getstate()


def set_state(state):
    own.setstate(state)
"#;

fn file() -> tempfile::TempDir {
    let dir = python_dir("rewards.py", FILE);
    std::fs::create_dir_all(dir.path().join("numpy/random")).unwrap();
    write_python(dir.path(), "numpy/__init__.py", "");
    write_python(dir.path(), "numpy/random/__init__.py", NUMPY);
    dir
}

/// Returns the values of replies, which are sent one after the other.
async fn one_by_one(reward: &PythonReward, replies: &[&str]) -> Vec<Result<f64, String>> {
    let mut values = Vec::new();
    for reply in replies {
        let scored = reward.score(&episode(&[reply], None)).await;
        values.push(scored.map(|scored| scored.rewards.parts()[0].1));
    }
    values
}

fn lengths(replies: &[&str]) -> Vec<Result<f64, String>> {
    replies.iter().map(|reply| Ok(reply.len() as f64)).collect()
}

#[tokio::test]
async fn a_process_that_a_function_forks_answers_no_request() {
    if !has_python() {
        return;
    }
    let dir = file();
    let replies = [
        "1",
        "22",
        "333",
        "4444",
        "55555",
        "7777777",
        "88888888",
        "999999999",
        "fork",
        "a",
        "bb",
        "fork it",
        "ccc",
        "",
    ];
    for function in ["forks", "forks_in_c", "forks_and_waits"] {
        let reward = start(dir.path(), &config(function)).unwrap();
        assert_eq!(one_by_one(&reward, &replies).await, lengths(&replies), "{function}");
        assert_eq!(reward.take_usage()[2], ("restarts", 0.0), "{function}");
    }
    let found = start(dir.path(), &config("writes_an_answer")).unwrap();
    let found = found.score(&episode(&["a"], None)).await.unwrap_err();
    assert!(found.contains("into the channel of its answers"), "{found}");
}

#[tokio::test]
async fn a_list_whose_values_depend_on_each_other_is_refused_also_if_the_first_replies_come_one_by_one()
 {
    if !has_python() {
        return;
    }
    let dir = file();
    let replies = ["1", "22", "333", "4444", "55555", "666666", "7777777", "88888888"];
    for function in ["centred", "drawn_for_all"] {
        let reward = start(dir.path(), &config(function)).unwrap();
        let values = one_by_one(&reward, &replies).await;
        let found = values.last().unwrap().as_ref().unwrap_err();
        assert!(found.contains("when it was scored again with other replies"), "{found}");
        assert!(reward.pool.is_broken());
    }
    let reward = start(dir.path(), &config("forks")).unwrap();
    assert_eq!(one_by_one(&reward, &replies).await, lengths(&replies));
}

#[tokio::test]
async fn what_a_function_draws_is_the_same_alone_and_beside_others() {
    if !has_python() {
        return;
    }
    let dir = file();
    for function in ["draws_later", "draws_by_numpy"] {
        let together =
            scored(dir.path(), &config(function), &episode(&["a", "b", "c"], None)).await;
        let single = RewardPythonConfig { batch: 1.try_into().unwrap(), ..config(function) };
        let alone = scored(dir.path(), &single, &episode(&["a", "b", "c"], None)).await;
        assert_eq!(together, alone, "{function}");
        let [(_, one), (_, other), _] = together.rewards.parts() else { panic!("{together:?}") };
        assert_ne!(one, other, "{function}");
    }
    let skip = RewardPythonConfig { on_error: OnRewardError::Skip, ..config("fails_later") };
    assert_eq!(scored(dir.path(), &skip, &episode(&["a", "b"], None)).await.skipped, Some(2));
}

#[tokio::test]
async fn a_list_that_fails_late_or_changes_its_items_gives_each_reply_its_value() {
    if !has_python() {
        return;
    }
    let dir = file();
    for (function, value) in [("cuts_and_fails", 3.0), ("yields", 4.0)] {
        let skip = RewardPythonConfig { on_error: OnRewardError::Skip, ..config(function) };
        let reward = start(dir.path(), &skip).unwrap();
        let found = reward.score(&episode(&["aaaa", "b", "cccc"], None)).await.unwrap();
        assert_eq!(found.rewards, Rewards::none().turn(0, value).turn(2, value), "{function}");
        assert_eq!(found.skipped, Some(1), "{function}");
        assert_eq!(reward.take_usage()[2], ("restarts", 0.0), "{function}");
    }
    let reward = start(dir.path(), &config("returns_a_set")).unwrap();
    let found = reward.score(&episode(&["a", "bb"], None)).await.unwrap_err();
    assert!(found.contains("for 2 replies; return a list"), "{found}");
}

#[tokio::test]
async fn errors_without_a_text_and_closed_streams_end_no_process() {
    if !has_python() {
        return;
    }
    let dir = file();
    let skip = |function| RewardPythonConfig { on_error: OnRewardError::Skip, ..config(function) };
    for (function, values) in [
        ("raises_without_text", Rewards::none()),
        ("has_no_streams", Rewards::none().turn(0, 1.0)),
        ("says_half_a_pair", Rewards::none().turn(0, 1.0).turn(1, 1.0)),
    ] {
        let reward = start(dir.path(), &skip(function)).unwrap();
        let found = reward.score(&episode(&["a", "b"], None)).await.unwrap();
        assert_eq!(found.rewards, values, "{function}");
        assert_eq!(reward.take_usage()[2], ("restarts", 0.0), "{function}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn an_interpreter_may_be_a_script_that_starts_one() {
    use std::os::unix::fs::PermissionsExt as _;
    if !has_python() {
        return;
    }
    let dir = file();
    let script = dir.path().join("python");
    std::fs::write(&script, "#!/bin/sh\npython3 \"$@\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let wrapped = RewardPythonConfig { python: "./python".to_owned(), ..config("forks") };
    let reward = start(dir.path(), &wrapped).unwrap();
    // Longer than the time after which a process looks for the end of its input.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    let found = reward.score(&episode(&["abc"], None)).await.unwrap().rewards;
    assert_eq!((found, reward.take_usage()[2]), (Rewards::none().turn(0, 3.0), ("restarts", 0.0)));
}
