//! `maverl serve train`, driven by the package of the Tinker API.

use std::process::{Command, Output};

use serde_json::Value;

use super::{KEY, Server, lab, python, script};

/// Runs the clients of the Tinker API at a server.
fn clients(python: &str, server: &Server, args: &[&str]) -> Output {
    Command::new(python)
        .arg(script("tinker_clients.py"))
        .args(args)
        .env("TINKER_BASE_URL", format!("http://{}", server.address))
        .env("TINKER_API_KEY", KEY)
        .env("NO_PROXY", "127.0.0.1")
        .env("TOKENIZERS_PARALLELISM", "false")
        .output()
        .unwrap()
}

/// Returns the last line that the clients print.
fn figures(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap()
}

const TRAIN: [&str; 7] = ["train", "--model", "builtin:tiny", "--out", "tinker", "--kv-mib", "256"];

#[test]
fn clients_of_tinker_train_and_sample_and_two_at_once_equal_each_alone() {
    let Some(python) = python("tinker", "tinker") else { return };
    let lab = lab();
    let server = Server::start(&lab, &TRAIN);
    let found = figures(&clients(&python, &server, &["loops"]));
    assert!(found["formulas"].as_f64().unwrap() < 1e-5);
    figures(&clients(&python, &server, &["mistakes"]));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_client_of_tinker_goes_on_with_equal_losses_after_the_server_was_killed() {
    let Some(python) = python("tinker", "tinker") else { return };
    let lab = lab();
    let mut server = Server::start(&lab, &TRAIN);
    let begun = figures(&clients(&python, &server, &["begin"]));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start(&lab, &TRAIN);
    let path = begun["path"].as_str().unwrap();
    let found = figures(&clients(&python, &server, &["go_on", path]));
    assert_eq!(found["after"], begun["after"]);
    assert_ne!(begun["after"], begun["before"]);
    assert_eq!(server.stop(), Some(0));
    // The checkpoint is an adapter that the other commands read.
    let model = path.strip_prefix("tinker://").unwrap();
    let dir = lab.path("tinker").join(model);
    let adapter = format!("trained={}", dir.display());
    let server = Server::start(&lab, &["model", "--model", "builtin:tiny", "--adapter", &adapter]);
    let body = serde_json::json!({"model": "trained", "prompt": "Question:", "max_tokens": 4});
    let (status, answer) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(server.stop(), Some(0));
}
