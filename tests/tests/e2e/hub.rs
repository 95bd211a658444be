//! Models from the hub: downloaded files, other files, and error messages.

use std::fs;
use std::path::{Path, PathBuf};

use maverl_tests::hub::{COMMIT, Fault, HubServer};
use maverl_tests::lab::{Ended, Lab};
use maverl_tests::push::{Manner, PushServer, REPO};
use serde_json::Value;

use crate::lab;

/// Variables of the hub, removed from the environment.
const SILENT: [&str; 11] = [
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_HUB_DOWNLOAD_TIMEOUT",
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
fn an_encoder_on_the_hub_gives_the_embeddings_of_its_directory_and_a_run_keeps_the_commit() {
    let lab = lab();
    let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/encoders/bert-mean");
    let server = HubServer::start(&encoder, &[]);
    let index = |encoder: &str, out: &str| {
        let dense = ["--ranking", "dense", "--encoder", encoder, "--build-index", out];
        let args = [&["serve", "retriever", "builtin:facts"][..], &dense].concat();
        with(&lab, &server, &[], &args).succeeded();
        fs::read(lab.path(out)).unwrap()
    };
    let local = index(encoder.to_str().unwrap(), "local.index");
    assert_eq!(index("hf:org/tiny", "hub.index"), local);
    let names = files(&server);
    for name in ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"] {
        assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
    }

    let mut args = vec!["train", "run.toml", "--out", "run", "--steps", "1"];
    for option in [
        "task.data=\"builtin:facts\"",
        "orchestra.name=\"duo/alone\"",
        "environment.name=\"search\"",
        "environment.ranking=\"dense\"",
        "environment.encoder=\"hf:org/tiny\"",
    ] {
        args.extend(["--set", option]);
    }
    with(&lab, &server, &[], &args).succeeded();
    let resolved = fs::read_to_string(lab.path("run/resolved.toml")).unwrap();
    assert!(resolved.contains(&format!("encoder = \"hf:org/tiny@{COMMIT}\"")), "{resolved}");

    // A cache that another program filled may lack the files beside the model.
    let snapshot = format!("hf/hub/models--org--tiny/snapshots/{COMMIT}");
    fs::remove_file(lab.path(&format!("{snapshot}/modules.json"))).unwrap();
    let offline = [("HF_HUB_OFFLINE", "1")];
    args[3] = "offline";
    let told = with(&lab, &server, &offline, &args).failed();
    told.says(&["`modules.json`, and `HF_HUB_OFFLINE` is set", "write `pooling` and `normalize`"]);
    for option in ["environment.pooling=\"mean\"", "environment.normalize=\"always\""] {
        args.extend(["--set", option]);
    }
    with(&lab, &server, &offline, &args).succeeded();
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
fn a_repository_without_weights_is_refused_before_anything_is_downloaded() {
    let lab = lab();
    fs::rename(lab.path("model/model.safetensors"), lab.path("model/weights.bin")).unwrap();
    let server = HubServer::start(&lab.path("model"), &[]);
    let ended = with(&lab, &server, &[], &INSPECT).failed();
    ended.says(&["`model.safetensors`", "`weights.bin` is not read"]);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_file_on_another_server_is_followed() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[("model.safetensors", Fault::Elsewhere)]);
    with(&lab, &server, &[("HF_TOKEN", "secret")], &INSPECT).succeeded();
    // The token is for the hub, and not for another port.
    let bearer = |asked: &maverl_tests::hub::Asked| asked.authorization.clone();
    let asked = server.asked();
    assert!(asked.iter().all(|asked| bearer(asked).as_deref() == Some("Bearer secret")));
    let elsewhere = server.asked_elsewhere();
    assert!(!elsewhere.is_empty() && elsewhere.iter().all(|asked| bearer(asked).is_none()));
    let snapshot = lab.path(&format!("hf/hub/models--org--tiny/snapshots/{COMMIT}"));
    let read = |path: std::path::PathBuf| fs::read(path.join("model.safetensors")).unwrap();
    assert_eq!(read(snapshot), read(lab.path("model")));
}

/// Returns all files of a lab outside of the cache, with their content.
fn outside(lab: &Lab) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![lab.path("")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path == lab.path("hf") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_header_of_a_hub_becomes_a_path_outside_of_the_cache() {
    let lab = lab();
    fs::create_dir_all(lab.path("victim")).unwrap();
    lab.write("victim/config.json", "precious");
    let victim = lab.path("victim").display().to_string();
    let before = outside(&lab);
    let cases = [
        ("ETag", format!("\"{victim}/config.json\"")),
        ("ETag", format!("{victim}/config.json")),
        ("ETag", format!("W/\"{victim}/config.json\"")),
        ("ETag", "\"../../../../victim/config.json\"".to_owned()),
        ("ETag", "\"..\"".to_owned()),
        ("ETag", "\"\"".to_owned()),
        ("ETag", "\".hidden\"".to_owned()),
        ("ETag", "\"a/b\"".to_owned()),
        ("ETag", "\"a\\b\"".to_owned()),
        ("ETag", format!("\"{}\"", "a".repeat(300))),
        ("ETag", "\u{e4}".to_owned()),
        ("X-Linked-Etag", format!("\"{victim}/config.json\"")),
        ("X-Linked-Etag", "\"../../refs/main\"".to_owned()),
        ("X-Repo-Commit", victim.clone()),
        ("X-Repo-Commit", "../../../..".to_owned()),
        ("X-Repo-Commit", "a".repeat(40)),
        ("Content-Range", "bytes 0-x/y".to_owned()),
        ("Content-Range", "nothing".to_owned()),
    ];
    for (name, value) in cases {
        let fault = Fault::Header(name, value.clone());
        let server = HubServer::start(&lab.path("model"), &[("config.json", fault)]);
        let ended = with(&lab, &server, &[], &INSPECT).failed();
        ended.says(&["`config.json`", "does not answer as the hub does"]);
        assert_eq!(outside(&lab), before, "{name}: {value}");
    }
}

#[test]
fn no_listing_of_a_hub_becomes_a_path_outside_of_the_cache() {
    let lab = lab();
    let before = outside(&lab);
    let sha = "a".repeat(64);
    let file = |name: &str| serde_json::json!({"rfilename": name, "size": 2});
    let mut listings = Vec::new();
    for name in ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a\\b", "a\u{7}b", "a\nb", "a/"] {
        listings.push(serde_json::json!({"sha": COMMIT, "siblings": [file(name)]}));
    }
    for commit in
        ["../../x", "/tmp/x", "", "main", &sha, "0123456789abcdef0123456789abcdef0123456g"]
    {
        listings.push(serde_json::json!({"sha": commit, "siblings": [file("config.json")]}));
    }
    for (key, value) in [
        ("blobId", serde_json::json!("../../../x")),
        ("blobId", serde_json::json!("/tmp/x")),
        ("blobId", serde_json::json!(7)),
        ("lfs", serde_json::json!({"sha256": "../x"})),
        ("lfs", serde_json::json!({"sha256": "A".repeat(64)})),
        ("size", serde_json::json!(-1)),
        ("size", serde_json::json!(1e300)),
    ] {
        let mut named = file("config.json");
        named[key] = value;
        listings.push(serde_json::json!({"sha": COMMIT, "siblings": [named]}));
    }
    listings.extend([serde_json::json!([]), serde_json::json!(null), serde_json::json!({})]);
    let mut texts: Vec<String> = listings.iter().map(Value::to_string).collect();
    texts.extend(["".to_owned(), "[".repeat(100_000), "<html>".to_owned(), "\u{1b}[2J".to_owned()]);
    for text in texts {
        let server = HubServer::start(&lab.path("model"), &[("", Fault::Text(text.clone()))]);
        let ended = with(&lab, &server, &[], &INSPECT).failed();
        let ended = ended.says(&["hf:org/tiny@main", "does not answer as the hub does"]);
        assert!(!ended.stderr.contains(['\u{7}', '\u{1b}']), "{ended}");
        assert_eq!(outside(&lab), before, "{text}");
        assert!(!lab.path("hf/hub").exists(), "{text}");
    }
    // A commit is pinned, and the hub has another one.
    let server = HubServer::start(&lab.path("model"), &[]);
    let pinned = format!("hf:org/tiny@{COMMIT}");
    with(&lab, &server, &[], &["inspect", &pinned]).succeeded();
    let other = serde_json::json!({"sha": "b".repeat(40), "siblings": []}).to_string();
    let server = HubServer::start(&lab.path("model"), &[("", Fault::Text(other))]);
    with(&lab, &server, &[], &["inspect", &pinned]).failed().says(&["the commit of `0123"]);
}

#[test]
fn a_file_that_the_user_linked_into_the_cache_stays_when_the_hub_lists_another_one() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[]);
    with(&lab, &server, &[], &INSPECT).succeeded();
    fs::create_dir_all(lab.path("mine")).unwrap();
    lab.write("mine/config.json", "precious");
    let link = lab.path(&format!("hf/hub/models--org--tiny/snapshots/{COMMIT}/config.json"));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(lab.path("mine/config.json"), &link).unwrap();
    with(&lab, &server, &[], &INSPECT).succeeded();
    assert_eq!(fs::read(lab.path("mine/config.json")).unwrap(), b"precious");
    assert_eq!(fs::read(&link).unwrap(), fs::read(lab.path("model/config.json")).unwrap());
}

#[test]
fn a_transfer_ends_with_the_listed_size_the_last_redirect_or_the_time_without_progress() {
    let lab = lab();
    let size = fs::metadata(lab.path("model/config.json")).unwrap().len();
    let more = format!("more than the {size} bytes of a file");
    let damaged = "came damaged: it is not what the hub lists".to_owned();
    let huge = Fault::Header("Content-Range", format!("bytes 0-{}/{}", u64::MAX - 1, u64::MAX));
    let waits = "does not go on for 2 s (`HF_HUB_DOWNLOAD_TIMEOUT`)".to_owned();
    let cases = [
        (Fault::Endless(false), more),
        (huge, damaged),
        (Fault::Text("{}".to_owned()), "came damaged".to_owned()),
        (Fault::Text("x".repeat(100_000)), "came damaged".to_owned()),
        (Fault::Loop, "more than 10 redirects".to_owned()),
        (Fault::Hang, waits),
    ];
    for (fault, told) in cases {
        let server = HubServer::start(&lab.path("model"), &[("config.json", fault.clone())]);
        let patience = [("HF_HUB_DOWNLOAD_TIMEOUT", "2")];
        let set = if fault == Fault::Hang { &patience[..] } else { &[] };
        with(&lab, &server, set, &INSPECT).failed().says(&["`config.json`", &told]);
        // What fits into the buffers of the connection was sent, and nothing is left.
        assert!(server.sent() < 64 << 20, "{fault:?}: {}", server.sent());
        let blobs = fs::read_dir(lab.path("hf/hub/models--org--tiny/blobs")).into_iter().flatten();
        let left: u64 = blobs.flatten().map(|blob| blob.metadata().unwrap().len()).sum();
        assert_eq!(left, 0, "{fault:?}");
    }
    // What follows the file after a size that is stated is never read.
    let server = HubServer::start(&lab.path("model"), &[("config.json", Fault::Endless(true))]);
    with(&lab, &server, &[], &INSPECT).succeeded();
    assert!(server.sent() < 64 << 20, "{}", server.sent());
    let nonsense = [("HF_HUB_DOWNLOAD_TIMEOUT", "soon")];
    with(&lab, &server, &nonsense, &INSPECT)
        .failed()
        .says(&["`HF_HUB_DOWNLOAD_TIMEOUT` is \"soon\""]);
}

#[test]
fn a_listing_without_an_end_a_file_without_a_listed_size_and_single_bytes_end_the_transfer() {
    let lab = lab();
    let begun = format!("more than {} bytes", 64 << 20);
    let large = (1_u64 << 30) + 1;
    for (file, fault, told) in [
        ("", Fault::Endless(false), begun.as_str()),
        ("config.json", Fault::Unlisted(None), "a file has no size"),
        ("config.json", Fault::Unlisted(Some(large)), "a file of 1073741825 bytes"),
        ("config.json", Fault::Drip, "does not go on for 1 s (`HF_HUB_DOWNLOAD_TIMEOUT`)"),
    ] {
        let server = HubServer::start(&lab.path("model"), &[(file, fault.clone())]);
        let patience = [("HF_HUB_DOWNLOAD_TIMEOUT", "1")];
        let set = if fault == Fault::Drip { &patience[..] } else { &[] };
        with(&lab, &server, set, &INSPECT).failed().says(&[told]);
        // With what fits into the buffers of the connection.
        assert!(server.sent() < 160 << 20, "{fault:?}: {}", server.sent());
        let blobs = fs::read_dir(lab.path("hf/hub/models--org--tiny/blobs")).into_iter().flatten();
        let left: u64 = blobs.flatten().map(|blob| blob.metadata().unwrap().len()).sum();
        assert!(left < 1024, "{fault:?} leaves {left} bytes");
    }
    // Without a listed size, that of the answer is the bound.
    let size = fs::metadata(lab.path("model/config.json")).unwrap().len();
    let fault = Fault::Unlisted(Some(size));
    let server = HubServer::start(&lab.path("model"), &[("config.json", fault)]);
    with(&lab, &server, &[], &INSPECT).failed().says(&[&format!("more than the {size} bytes")]);
    assert!(server.sent() < 64 << 20, "{}", server.sent());
}

#[test]
fn an_interrupted_transfer_goes_on_where_it_was() {
    let lab = lab();
    let server = HubServer::start(&lab.path("model"), &[("model.safetensors", Fault::Interrupted)]);
    with(&lab, &server, &[], &INSPECT).succeeded();
    let size = fs::metadata(lab.path("model/model.safetensors")).unwrap().len();
    let asked = server.asked();
    let asked = asked.iter().filter(|asked| asked.path.ends_with("/model.safetensors"));
    let ranges: Vec<Option<String>> = asked.map(|asked| asked.range.clone()).collect();
    assert_eq!(ranges, [None, Some(format!("bytes={}-", size / 2))]);
    // The layout is that of `huggingface_hub`: a blob has the name of its SHA-256, and a part another suffix.
    let link = lab.path(&format!("hf/hub/models--org--tiny/snapshots/{COMMIT}/model.safetensors"));
    let target = fs::read_link(&link).unwrap();
    assert!(target.starts_with("../../blobs"), "{target:?}");
    let blob = link.parent().unwrap().join(&target);
    let content = fs::read(&blob).unwrap();
    assert_eq!(content, fs::read(lab.path("model/model.safetensors")).unwrap());
    let part = blob.with_extension("incomplete");
    fs::write(&part, &content[..1000]).unwrap();
    fs::remove_file(&blob).unwrap();
    with(&lab, &server, &[], &INSPECT).succeeded();
    let asked = server.asked();
    assert!(asked.iter().any(|asked| asked.range.as_deref() == Some("bytes=1000-")), "{asked:?}");
    assert_eq!(fs::read(&blob).unwrap(), content);
    assert!(!part.exists());
    // A part that is damaged is found by its checksum, and the next attempt begins anew.
    fs::write(&part, vec![0; 1000]).unwrap();
    fs::remove_file(&blob).unwrap();
    with(&lab, &server, &[], &INSPECT).failed().says(&["came damaged"]);
    with(&lab, &server, &[], &INSPECT).succeeded();
    assert_eq!(fs::read(&blob).unwrap(), content);
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
        Manner { parts: Some(10_000), storage: "localhost", ..Manner::default() },
        Manner { storage: "localhost", ..Manner::default() },
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
            let storage = ["PUT /storage/", "POST /complete", "POST /verify"];
            let foreign = !manner.storage.is_empty() || sent.what.starts_with("PUT");
            let foreign = foreign && storage.iter().any(|what| sent.what.starts_with(what));
            let expected = (!foreign).then_some("Bearer secret");
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
