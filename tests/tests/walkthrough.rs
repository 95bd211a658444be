//! The team crate of `docs/src/walkthrough.md`: created by `maverl new`, and run as the page describes.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maverl_cli::new_team;
use serde_json::Value;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the crate's files by path, with the dependency as the page writes it.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            // The versions are long, and those of the workspace.
            if name == "Cargo.lock" {
                continue;
            }
            // The path to the workspace differs from that on the page.
            let text = fs::read_to_string(&path).unwrap();
            let path = |line: &str| {
                let (start, rest) = line.split_once("path = \"")?;
                let (path, end) = rest.split_once('"')?;
                let folders = ["crates/cli", "maverl", "orchestras"];
                let part = folders.into_iter().find(|folder| path.ends_with(folder))?;
                Some(format!("{start}path = \"../maverl/{part}\"{end}"))
            };
            let line = |line: &str| path(line).filter(|_| name == "Cargo.toml");
            let text: Vec<String> =
                text.lines().map(|text| line(text).unwrap_or_else(|| text.to_owned())).collect();
            files.insert(name, text.join("\n") + "\n");
        }
    }
    files
}

/// Returns the files that a page shows: `<!-- file: NAME -->`, then a fenced block.
fn shown(page: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("<!-- file: ") else { continue };
        let name = name.strip_suffix(" -->").unwrap();
        let fence = lines.next().unwrap();
        let fence = &fence[..fence.find(|c| c != '`').unwrap_or(fence.len())];
        assert!(fence.len() >= 3, "no block follows `{line}`");
        let text: String = lines
            .by_ref()
            .take_while(|line| *line != fence)
            .map(|line| format!("{line}\n"))
            .collect();
        files.insert(name.to_owned(), text);
    }
    files
}

#[test]
fn the_page_shows_exactly_the_files_that_maverl_new_writes() {
    let home = tempfile::tempdir().unwrap();
    let dir = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    let page = fs::read_to_string(workspace().join("docs/src/walkthrough.md")).unwrap();
    let (files, shown) = (files(&dir), shown(&page));
    assert_eq!(shown.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    for (name, text) in &files {
        assert_eq!(&shown[name], text, "{name}");
    }
    let rust =
        files.iter().filter(|(name, _)| name.ends_with(".rs")).flat_map(|(_, text)| text.lines());
    let lines = rust.filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 60, "{lines} lines of Rust");
}

/// Returns the platform that this machine compiles for.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Returns what cargo knows of a package with some features. Packages for other platforms were never downloaded.
fn metadata(dir: &Path, features: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--filter-platform", &host()])
        .args(["--features", features])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the features that cargo builds a package with.
fn features(metadata: &Value, name: &str) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap();
    let id = &packages.iter().find(|package| package["name"] == name).unwrap()["id"];
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["id"] == *id).unwrap();
    serde_json::from_value(node["features"].clone()).unwrap()
}

/// The end of a run prints these features, as a test of `train::commands` shows.
#[test]
fn a_new_team_is_built_with_pages_by_the_features_that_a_run_prints() {
    let home = tempfile::tempdir().unwrap();
    let dir = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    // The manifest has it, too.
    for asked in ["maverl-cli/view", ""] {
        let metadata = metadata(&dir, asked);
        assert!(features(&metadata, "maverl-cli").iter().any(|feature| feature == "view"));
        assert!(features(&metadata, "maverl-serve").is_empty());
    }
}

/// Returns the features of each package that cargo builds, by its id, without those of the command line, its parts and the
/// team.
fn features_below(metadata: &Value) -> BTreeMap<String, Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap().iter();
    let node = |node: &Value| (node["id"].as_str().unwrap().to_owned(), node["features"].clone());
    let parts = ["maverl-cli", "maverl-serve", "maverl-view", "my_team"];
    let above = |id: &str| parts.iter().any(|of| id.contains(of));
    nodes.map(node).filter(|(id, _)| !above(id)).collect()
}

#[test]
fn a_team_without_pages_has_the_same_crates_with_the_same_features_below_them() {
    let home = tempfile::tempdir().unwrap();
    let dir = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    let whole = features_below(&metadata(&dir, ""));
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("maverl-cli = {")).unwrap();
    let without = line.replace("[\"serve\", \"view\"]", "[\"serve\"]");
    fs::write(dir.join("Cargo.toml"), manifest.replace(line, &without)).unwrap();
    let metadata = metadata(&dir, "");
    assert_eq!(features(&metadata, "maverl-cli"), ["serve"]);
    assert_eq!(features_below(&metadata), whole);
}

#[test]
fn a_team_without_servers_has_its_crates_with_the_features_that_they_have_below_servers() {
    let home = tempfile::tempdir().unwrap();
    let dir = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    let whole = features_below(&metadata(&dir, ""));
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("maverl-cli = {")).unwrap();
    let without = line.replace(", features = [\"serve\", \"view\"]", "");
    fs::write(dir.join("Cargo.toml"), manifest.replace(line, &without)).unwrap();
    let below = features_below(&metadata(&dir, ""));
    for (id, features) in &below {
        assert_eq!(whole.get(id), Some(features), "{id}");
    }
    for server in ["/axum@", "#axum@", "#hyper@", "maverl-serve"] {
        assert!(!below.keys().any(|id| id.contains(server)), "{server}");
    }
}

/// Checks the manifest, the profiles and the locked versions. `just lint` compiles maverl with the features that a new team has.
#[test]
fn a_new_team_outside_of_a_workspace_is_a_package_with_its_dependencies() {
    let home = tempfile::tempdir().unwrap();
    let dir = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    let metadata = metadata(&dir, "");
    let root = metadata["resolve"]["root"].as_str().unwrap();
    assert!(root.contains("my_team"), "{root}");
    assert_eq!(metadata["workspace_root"], dir.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(features(&metadata, "maverl"), [""; 0]);
    assert_eq!(features(&metadata, "maverl-cli"), ["serve", "view"]);
    let below = features_below(&metadata);
    assert!(!below.keys().any(|id| id.contains("orchestras") || id.contains("agents")));
    let locked = |dir: &Path| {
        let lock: toml::Table =
            fs::read_to_string(dir.join("Cargo.lock")).unwrap().parse().unwrap();
        let version = |package: &toml::Value| {
            package
                .get("source")
                .map(|_| (package["name"].to_string(), package["version"].to_string()))
        };
        lock["package"].as_array().unwrap().iter().filter_map(version).collect::<Vec<_>>()
    };
    let (ours, all) = (locked(&dir), locked(workspace()));
    let other: Vec<_> = ours.iter().filter(|package| !all.contains(package)).collect();
    assert!(other.is_empty(), "{other:?}");

    // Cargo warns of profiles of packages that it does not have.
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    for profile in ["dev", "release"] {
        let profiles = manifest["profile"][profile]["package"].as_table().unwrap();
        for name in profiles.keys().filter(|name| *name != "*") {
            assert!(packages.iter().any(|package| package["name"] == **name), "{profile}: {name}");
        }
    }
}

/// Returns the names of the dependencies in a manifest.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    manifest["dependencies"].as_table().unwrap().keys().cloned().collect()
}

/// The files of `tests/my_team` are links to what `maverl new` writes.
#[test]
fn the_crate_that_is_compiled_with_the_workspace_is_a_new_team() {
    let home = tempfile::tempdir().unwrap();
    let new = new_team(home.path(), "my_team", Some(workspace())).unwrap();
    let compiled = workspace().join("tests/my_team");
    let text = |path: PathBuf| fs::read_to_string(path).unwrap();
    for file in ["src/lib.rs", "prompts/critic.md", "prompts/writer.md"] {
        assert_eq!(text(compiled.join(file)), text(new.join(file)), "{file}");
    }
    let program = text(workspace().join("tests/src/bin/my_team.rs"));
    assert!(program.ends_with(&text(new.join("src/main.rs"))), "{program}");
    let manifests = [&compiled, &new].map(|dir| dependencies(&dir.join("Cargo.toml")));
    assert_eq!(manifests[0], manifests[1]);
}

/// A new team, and its program, which is run in its directory.
struct Team {
    dir: PathBuf,
}

impl Team {
    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_my_team"));
        command.args(args).current_dir(&self.dir).env("COLUMNS", "200").output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command, which must fail, in one line.
    fn fail(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        error.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_new_team_lists_checks_trains_evaluates_and_replays() {
    let home = tempfile::tempdir().unwrap();
    let team = Team { dir: new_team(home.path(), "my_team", Some(workspace())).unwrap() };

    let list = team.run(&["list"]);
    for name in ["my_team/writer", "my_team/critic", "my_team/drafts", "my_team/letters"] {
        assert!(list.contains(name), "{list}");
    }
    assert!(team.run(&["check", "run.toml"]).contains("my_team/writer"));
    the_schema_knows_the_team(&team);

    let train = team.run(&["train", "run.toml", "--steps", "2", "--out", "runs/first"]);
    assert!(train.contains("my_team/critic"), "{train}");
    let run = team.dir.join("runs/first");
    let summary: Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!((&summary["complete"], &summary["steps"]), (&true.into(), &2.into()));
    let rows = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let learned = |row: &&Value| row["policy/tiny/rows"].as_f64().is_some_and(|rows| rows > 0.0);
    assert_eq!(rows.iter().filter(learned).count(), 2, "a step was flat");

    let report: Value =
        serde_json::from_str(&team.run(&["eval", "--run", "runs/first", "--json"])).unwrap();
    assert_eq!(report["split"], "test");
    assert!(team.run(&["info", "runs/first"]).contains("my_team/drafts"));

    replays(&team);
    names_are_checked(&team);
}

/// The first line of `run.toml` names the schema; with it, editors complete the keys of the team.
fn the_schema_knows_the_team(team: &Team) {
    let config = fs::read_to_string(team.dir.join("run.toml")).unwrap();
    assert!(config.starts_with("#:schema ./maverl.schema.json\n"), "{config}");
    let schema = serde_json::from_str(&team.run(&["schema"])).unwrap();
    let validator = maverl_tests::schema::Validator::new(schema);
    validator.accepts(&config);
    validator.refuses(&config.replace("my_team/drafts", "my_team/draft"));
    validator.refuses(&config.replace("max_tokens", "max_token"));
    validator.refuses(&format!("{config}\n[agents.\"my_team/writer\".options]\nno_such = 1\n"));
}

fn replays(team: &Team) {
    let identical = |episode: &str| {
        let text = team.run(&["replay", "runs/first", episode, "--json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["identical"], true, "{text}");
        assert!(!report["turns"].as_array().unwrap().is_empty());
    };
    identical("1/train-1/7"); // from the checkpoint before the first step
    identical("2/train-3/0"); // weights recomputed from stored episodes
    fs::remove_dir_all(team.dir.join("runs/first/checkpoints/step-000000")).unwrap();
    identical("2/train-3/5"); // the same, from the starting weights
    let text = team.run(&["replay", "runs/first", "2/train-3/1"]);
    assert!(text.contains("my_team/writer") && text.contains("identical; reward"), "{text}");
    let error = team.fail(&["replay", "runs/first", "2/train-3"]);
    assert!(error.contains("step 2 has `2/train-3/0`, `2/train-3/1`"), "{error}");
    // Another temperature would give another episode: an edited configuration is not that of the run.
    let resolved = team.dir.join("runs/first/resolved.toml");
    let text = fs::read_to_string(&resolved).unwrap();
    fs::write(&resolved, text.replace("temperature = 1.0", "temperature = 0.5")).unwrap();
    let error = team.fail(&["replay", "runs/first", "1/train-1/7"]);
    assert!(error.contains("resolved.toml` is damaged"), "{error}");
    fs::write(&resolved, text).unwrap();
    identical("1/train-1/7");
}

fn names_are_checked(team: &Team) {
    assert!(team.fail(&["new", "my-team"]).contains("did you mean `my_team`?"));
    let checkout = workspace().to_str().unwrap();
    assert!(team.run(&["new", "other", "--maverl", checkout]).contains("wrote other"));
    assert!(team.dir.join("other/src/lib.rs").is_file());
    assert!(team.fail(&["new", "other"]).contains("already there"));
}
