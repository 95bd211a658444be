//! Judges behind endpoints: a server that answers at random, killed runs, and pairs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use maverl_tests::lab::{Ended, Lab, Run, train_args};
use serde_json::json;

use crate::kill::{kills_wanted, spawn, uniform};
use crate::lab;

/// Starts a judge whose verdicts depend on nothing but the number of requests so far. Returns its address.
fn random_judge() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let count = Arc::clone(&count);
            std::thread::spawn(move || answer(stream, count.fetch_add(1, Ordering::Relaxed)));
        }
    });
    (url, asked)
}

/// Answers a request, unless its client is killed.
fn answer(mut stream: TcpStream, n: u64) {
    let Some(()) = read_request(&stream) else { return };
    let mut state = n;
    let text = match (uniform(&mut state), uniform(&mut state)) {
        // Every tenth verdict cannot be read.
        (malformed, _) if malformed < 0.1 => "I cannot say.".to_owned(),
        (_, better) if better < 0.5 => json!({ "score": 1 + n % 10, "better": "A" }).to_string(),
        _ => json!({ "score": 1 + n % 7, "better": "B" }).to_string(),
    };
    let message = json!({ "role": "assistant", "content": text });
    let body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] }).to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    drop(stream.write_all((head + &body).as_bytes()));
}

fn read_request(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()
}

/// Settings of two judges at an address: one scores turns, one compares answers.
fn judged(url: &str) -> Vec<String> {
    [
        &format!("endpoints.judge.url={url:?}"),
        "endpoints.judge.model=\"judge\"",
        "rewards.help.judge.rubric=\"rubric.md\"",
        "rewards.help.judge.on_error=\"skip\"",
        "rewards.best.judge.rubric=\"pairs.md\"",
        "rewards.best.judge.mode=\"pairs\"",
        "rewards.best.judge.of=\"answer\"",
        "rewards.best.judge.on_error=\"skip\"",
        "rollout.max_unscored=0.0",
        "checkpoint.every=1",
        "environment.delay_ms=5",
    ]
    .map(str::to_owned)
    .into()
}

fn judged_lab() -> Lab {
    let lab = lab();
    lab.write("rubric.md", "{{ question }}\n{{ reply }}\n");
    lab.write("pairs.md", "{{ question }}\nA:\n{{ a }}\nB:\n{{ b }}\n");
    lab
}

/// Kills a run after further requests to the judge; returns false if it ended before.
fn killed_after(mut child: Child, asked: &AtomicU64, requests: u64) -> bool {
    let until = asked.load(Ordering::Relaxed) + requests;
    while asked.load(Ordering::Relaxed) < until {
        if child.try_wait().unwrap().is_some() {
            Ended::of(&child.wait_with_output().unwrap()).succeeded();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

#[test]
fn a_run_judged_at_random_and_killed_often_is_one_with_the_verdicts_that_it_recorded() {
    let lab = judged_lab();
    let (url, asked) = random_judge();
    let set = judged(&url);
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    lab.train("whole", &set);
    // Each kill is after so many further requests; those of the run are far more.
    let each = (asked.load(Ordering::Relaxed) / (kills_wanted() as u64 + 3)).max(1);
    let (run, mut kills) = (Run(lab.path("killed")), 0);
    while kills < kills_wanted() {
        let args = if run.0.exists() {
            vec!["train", "--resume", "killed"]
        } else {
            train_args("killed", &set)
        };
        if !killed_after(spawn(&lab, &args), &asked, each) {
            break;
        }
        kills += 1;
    }
    assert_eq!(kills, kills_wanted());
    if run.0.exists() {
        lab.run(&["train", "--resume", "killed"]).succeeded();
    } else {
        lab.train("killed", &set);
    }
    println!("{kills} kills, {} requests", asked.load(Ordering::Relaxed));
    // The same run again with the recorded verdicts, and without the judge.
    for name in ["help", "best"] {
        let recorded = run.bytes(&format!("judge.{name}.jsonl"));
        std::fs::write(lab.path(&format!("{name}.jsonl")), recorded).unwrap();
    }
    let shared =
        ["help", "best"].map(|name| format!("rewards.{name}.judge.cache=\"{name}.jsonl\""));
    let again = [&judged("http://127.0.0.1:1/v1")[..], &shared[..]].concat();
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    let before = asked.load(Ordering::Relaxed);
    lab.train("again", &again).equals(&run);
    assert_eq!(asked.load(Ordering::Relaxed), before);
    for name in [
        "rollout/score/echo/help",
        "rollout/score/skipped/help",
        "rollout/score/ties/best",
        "rollout/score/contradictions/best",
        "rollout/reward/help",
        "rollout/reward/best",
    ] {
        assert!(run.steps().iter().any(|step| step[name].is_number()), "no step has {name}");
    }
}

#[test]
fn a_run_is_not_resumed_with_a_changed_rubric_and_a_judge_without_an_endpoint_is_refused() {
    let lab = judged_lab();
    lab.write("verdicts.jsonl", "{\"reply\": \"{\\\"score\\\": 7}\"}\n");
    let set =
        ["endpoints.judge.script=\"verdicts.jsonl\"", "rewards.help.judge.rubric=\"rubric.md\""];
    lab.train("run", &set);
    lab.write("rubric.md", "{{ reply }} Be strict.");
    lab.run(&["train", "--resume", "run"]).failed().says(&["data of `source rubric.md` had hash"]);
    lab.fails("other", &set[1..]).says(&["no endpoint is called `judge`"]);
}
