//! Models from the hub: downloaded files, other files, and error messages.

use std::fs;

use maverl_tests::hub::{COMMIT, Fault, HubServer};
use maverl_tests::lab::{Ended, Lab};
use maverl_tests::push::{Manner, PushServer, REPO};
use serde_json::Value;

use crate::lab;

/// Variables of the hub, removed from the environment.
const SILENT: [&str; 10] = [
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Runs a command with a hub, a separate cache and additional variables.
fn with(lab: &Lab, server: &HubServer, set: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = lab.command(args);
    for name in SILENT {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", server.address()).env("HF_HOME", lab.path("hf"));
    command.envs(set.iter().copied());
    Ended::of(&command.output().unwrap())
}

/// Returns the requested files, each once, without the repository's listing.
fn files(server: &HubServer) -> Vec<String> {
    let asked = server.asked();
    let names = asked.iter().filter_map(|asked| asked.path.split_once(COMMIT)?.1.strip_prefix('/'));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

const INSPECT: [&str; 3] = ["inspect", "hf:org/tiny", "--json"];

#[test]
fn a_model_is_downloaded_once_with_what_it_needs_and_then_found_offline() {
    let lab = lab();
    lab.write("model/pytorch_model.bin", "never read");
    lab.write("model/README.md", "never read");
    let server = HubServer::start(&lab.path("model"), &[]);
    let token = [("HF_TOKEN", "secret")];
    let first = with(&lab, &server, &token, &INSPECT).succeeded();
    let json: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!(json["model"], format!("hf:org/tiny@{COMMIT}"));
    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.authorization.as_deref() == Some("Bearer secret")));
    assert!(asked.iter().any(|asked| asked.path.ends_with("/model.safetensors")));
    assert!(!asked.iter().any(|asked| asked.path.ends_with(".bin") || asked.path.ends_with(".md")));

    with(&lab, &server, &[], &INSPECT).succeeded();
    assert_eq!(server.asked().len(), 1, "only which commit `main` is");

    let offline = with(&lab, &server, &[("HF_HUB_OFFLINE", "1")], &INSPECT).succeeded();
    assert_eq!((server.asked(), &offline.stdout), (Vec::new(), &first.stdout));
    let pinned = format!("hf:org/tiny@{COMMIT}");
    let args = ["inspect", &pinned, "--json"];
    let pinned = with(&lab, &server, &[("HF_HUB_OFFLINE", "yes")], &args).succeeded();
    assert_eq!(pinned.stdout, first.stdout);
}

#[test]
fn the_cache_is_where_the_environment_says_and_the_token_may_be_in_a_file() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[]);
    fs::create_dir_all(lab.path("hf")).unwrap();
    lab.write("hf/token", "stored\n");
    let cache = lab.path("cache").display().to_string();
    with(&lab, &server, &[("HF_HUB_CACHE", &cache)], &INSPECT).succeeded();
    assert!(lab.path(&format!("cache/models--org--tiny/snapshots/{COMMIT}/config.json")).exists());
    assert!(!lab.path("hf/hub").exists());
    let stored =
        |asked: &maverl_tests::hub::Asked| asked.authorization.as_deref() == Some("Bearer stored");
    assert!(server.asked().iter().all(stored));
}

#[test]
fn a_configuration_is_checked_without_weights_and_a_run_keeps_the_commit() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[]);
    let hub = ["--set", "models.tiny.path=\"hf:org/tiny\""];
    let check = with(&lab, &server, &[], &[&["check", "run.toml"][..], &hub].concat()).succeeded();
    assert!(check.stdout.contains("hf:org/tiny@0123"), "{check}");
    assert_eq!(files(&server), ["config.json"]);

    let quick = ["--steps", "1", "--set", "eval.before_and_after=false"];
    let args = [&["train", "run.toml", "--out", "hub"][..], &hub, &quick].concat();
    with(&lab, &server, &[], &args).succeeded();
    let resolved = fs::read_to_string(lab.path("hub/resolved.toml")).unwrap();
    assert!(resolved.contains(&format!("hf:org/tiny@{COMMIT}")), "{resolved}");
    lab.run(&[&["train", "run.toml", "--out", "local"][..], &quick].concat()).succeeded();
    let weights = "checkpoints/step-000001/policies/tiny/model.safetensors";
    let read = |run: &str| fs::read(lab.path(run).join(weights)).unwrap();
    assert_eq!(read("hub"), read("local"));
    with(&lab, &server, &[("HF_HUB_OFFLINE", "1")], &["train", "--resume", "hub", "--steps", "2"])
        .succeeded();
}

#[test]
fn a_sharded_model_comes_with_the_files_its_index_names() {
    let lab = lab();
    let export = ["export", "--model", "model", "--out", "shards", "--max-shard-size", "30KB"];
    lab.run(&export).succeeded();
    lab.write("shards/consolidated.safetensors", "of no use");
    let server = HubServer::start(&lab.path("shards"), &[]);
    let args = ["generate", "--model", "hf:org/tiny@main", "--prompt", "who", "--json"];
    let hub = with(&lab, &server, &[], &args).succeeded();
    let names = files(&server);
    assert!(names.iter().filter(|name| name.starts_with("model-0000")).count() > 1, "{names:?}");
    assert!(!names.contains(&"consolidated.safetensors".to_owned()));
    let local = ["generate", "--model", "model", "--prompt", "who", "--json"];
    assert_eq!(hub.stdout, lab.run(&local).succeeded().stdout);
}

#[test]
fn offline_without_a_cache_says_so() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[]);
    let offline = [("HF_HUB_OFFLINE", "1")];
    let none = with(&lab, &server, &offline, &INSPECT).failed();
    none.says(&["hf:org/tiny@main", "HF_HUB_OFFLINE", "hf/hub"]);
    // An incomplete model is not a model.
    let hub = ["check", "run.toml", "--set", "models.tiny.path=\"hf:org/tiny\""];
    with(&lab, &server, &[], &hub).succeeded();
    server.asked();
    with(&lab, &server, &offline, &INSPECT).failed().says(&["`tokenizer.json`", "HF_HUB_OFFLINE"]);
    assert!(server.asked().is_empty());
}

#[test]
fn a_hub_that_is_no_url_is_named_with_the_variable() {
    let lab = lab();
    for endpoint in ["nonsense", "http://", "htp://x", "https:///a"] {
        let mut command = lab.command(&["inspect", "hf:org/name"]);
        let output = command.env("HF_ENDPOINT", endpoint).output().unwrap();
        let told = format!("`HF_ENDPOINT` is {endpoint:?}; it names a hub as a whole URL");
        Ended::of(&output).failed().says(&[&told]);
    }
}

#[test]
fn a_refusal_names_the_repository_and_what_would_help() {
    let lab = lab();
    let cases = [
        (401, [].as_slice(), "set `HF_TOKEN`"),
        (401, &[("HF_TOKEN", "x")], "does not accept the token in `HF_TOKEN`"),
        (403, &[], "accept the model's terms"),
        (404, &[], "no such model or revision"),
        (500, &[], "answers with status 500"),
    ];
    for (status, set, told) in cases {
        let server = HubServer::start(&lab.path("model"), &[("", Fault::Status(status))]);
        with(&lab, &server, set, &INSPECT).failed().says(&["hf:org/tiny@main", told]);
    }
    let server = HubServer::start(&lab.path("model"), &[]);
    let wrong = ["inspect", "hf:no/such"];
    with(&lab, &server, &[], &wrong).failed().says(&["hf:no/such@main", "404"]);
    let hub = ["check", "run.toml", "--set", "models.tiny.path=\"hf:no/such\""];
    with(&lab, &server, &[], &hub).failed().says(&["models.tiny.path", "hf:ORG/NAME@REVISION"]);
    let nowhere = [("HF_ENDPOINT", "http://127.0.0.1:9")];
    with(&lab, &server, &nowhere, &INSPECT).failed().says(&["cannot be reached", "HF_HUB_OFFLINE"]);
}

#[test]
fn a_file_that_is_not_there_or_comes_damaged_is_named_and_the_next_attempt_is_whole() {
    let lab = lab();
    let cases = [
        (Fault::Status(404), "no file `model.safetensors`"),
        (Fault::Short, "came damaged"),
        (Fault::Damaged, "came damaged"),
    ];
    for (fault, told) in cases {
        let broken = HubServer::start(&lab.path("model"), &[("model.safetensors", fault)]);
        let ended = with(&lab, &broken, &[], &INSPECT).failed();
        ended.says(&["hf:org/tiny", "`model.safetensors`", told]);
    }
    let whole = HubServer::start(&lab.path("model"), &[]);
    with(&lab, &whole, &[], &INSPECT).succeeded();
    // A truncated file in the cache is downloaded again.
    let snapshot = lab.path(&format!("hf/hub/models--org--tiny/snapshots/{COMMIT}/tokenizer.json"));
    let content = fs::read(&snapshot).unwrap();
    fs::write(&snapshot, &content[..100]).unwrap();
    with(&lab, &whole, &[], &INSPECT).succeeded();
    assert_eq!(fs::read(&snapshot).unwrap(), content);
}

#[test]
fn a_repository_without_safetensors_is_refused_before_anything_is_downloaded() {
    let lab = lab();
    fs::rename(lab.path("model/model.safetensors"), lab.path("model/pytorch_model.bin")).unwrap();
    let server = HubServer::start(&lab.path("model"), &[]);
    let ended = with(&lab, &server, &[], &INSPECT).failed();
    ended.says(&["`model.safetensors`", "`pytorch_model.bin` is not read"]);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_file_on_another_server_is_followed() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[("model.safetensors", Fault::Elsewhere)]);
    with(&lab, &server, &[("HF_TOKEN", "secret")], &INSPECT).succeeded();
    let snapshot = lab.path(&format!("hf/hub/models--org--tiny/snapshots/{COMMIT}"));
    let read = |path: std::path::PathBuf| fs::read(path.join("model.safetensors")).unwrap();
    assert_eq!(read(snapshot), read(lab.path("model")));
}

/// Exports and uploads to a hub that takes it.
fn push(lab: &Lab, server: &PushServer, set: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = lab.command(&[&["export"][..], args].concat());
    for name in SILENT {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", server.address()).env("HF_HOME", lab.path("hf"));
    command.envs(set.iter().copied());
    Ended::of(&command.output().unwrap())
}

#[test]
fn an_exported_directory_is_uploaded_in_one_commit_with_large_files_apart() {
    let lab = lab();
    let token = [("HF_TOKEN", "secret")];
    let to = format!("hf:{REPO}");
    let manners = [
        Manner::default(),
        Manner { exists: true, parts: Some(10_000), failures: 2, ..Manner::default() },
    ];
    for (i, manner) in manners.into_iter().enumerate() {
        let (server, out) = (PushServer::start(manner), format!("out{i}"));
        let args =
            ["--model", "model", "--out", &out, "--push-to", &to, "--max-shard-size", "40KB"];
        let ended = push(&lab, &server, &token, &[&args[..], &["--private"]].concat()).succeeded();
        assert!(ended.stdout.contains(&format!("/{REPO}/commit/1")), "{ended}");
        let (files, large) = server.files();
        let names: Vec<String> = fs::read_dir(lab.path(&out))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files.len(), names.len());
        for name in &names {
            assert_eq!(files[name], fs::read(lab.path(&out).join(name)).unwrap(), "{name}");
        }
        assert_eq!(large, names.iter().filter(|name| name.ends_with(".safetensors")).count());
        assert!(large > 1 && files.contains_key("README.md"));
        let created = server.created();
        assert_eq!(created.is_some(), !manner.exists);
        if let Some(created) = created {
            let expected = serde_json::json!({
                "name": "trained", "organization": "org", "type": "model", "visibility": "private"
            });
            assert_eq!(created, expected);
        }
        // The token is for the hub, and not for the storage.
        for sent in server.sent() {
            let expected = (!sent.what.starts_with("PUT")).then_some("Bearer secret");
            assert_eq!(sent.authorization.as_deref(), expected, "{}", sent.what);
        }
    }
}

#[test]
fn an_upload_that_cannot_be_says_what_would_help() {
    let lab = lab();
    let server = PushServer::start(Manner::default());
    let to = format!("hf:{REPO}");
    let args = ["--model", "model", "--out", "a", "--push-to", &to];
    push(&lab, &server, &[], &args).failed().says(&["an upload needs a token", "set `HF_TOKEN`"]);
    let token = ("HF_TOKEN", "secret");
    push(&lab, &server, &[token, ("HF_HUB_OFFLINE", "1")], &args).failed().says(&["unset it"]);
    let odd = ["--model", "model", "--out", "a", "--push-to", "org/name"];
    push(&lab, &server, &[token], &odd)
        .failed()
        .says(&["a repository of the hub is `hf:ORG/NAME`"]);
    assert!(!lab.path("a").exists() && server.sent().is_empty());
    for (status, told) in
        [(401, "does not accept the token"), (403, "may not write there (403): no")]
    {
        let server = PushServer::start(Manner { refuses: Some(status), ..Manner::default() });
        let out = format!("out{status}");
        let args = ["--model", "model", "--out", &out, "--push-to", &to];
        push(&lab, &server, &[token], &args).failed().says(&[told, "is written"]);
        assert!(lab.path(&out).join("model.safetensors").exists());
    }
}
