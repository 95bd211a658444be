//! The commands that pages, recipes and examples name are commands of this program.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::*;

/// A command in a text: a whole line to be copied, or a part of a sentence.
struct Named {
    file: String,
    command: String,
    is_line: bool,
}

/// Returns the pages, recipes and examples, with their text.
pub(super) fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    let mut dirs = ["docs/src", "recipes", "examples"].map(|dir| root.join(dir)).to_vec();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
            match kind {
                "md" | "toml" => found.push(path),
                _ if path.is_dir() => dirs.push(path),
                _ => {}
            }
        }
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// Returns the commands that begin a line.
fn lines(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let without_launcher = |line: &str| match line.split_once("--no-python ") {
        Some((launcher, rest)) if launcher.starts_with("torchrun ") => rest.to_owned(),
        _ => line.to_owned(),
    };
    let lines = text.lines().map(|line| without_launcher(line.trim()));
    lines.filter(|line| line.starts_with("maverl ")).collect()
}

/// Returns the commands between backticks, which may be wrapped.
fn spans(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("maverl ")).map(str::to_owned).collect()
}

/// Returns the commands of a page, or of the comments of a configuration.
fn commands_of(path: &Path, text: &str) -> Vec<Named> {
    let file = path.display().to_string();
    let (code, prose) = if path.extension().is_some_and(|kind| kind == "md") {
        let parts: Vec<&str> = text.split("```").collect();
        let every = |first: usize| {
            parts.iter().skip(first).step_by(2).copied().collect::<Vec<_>>().join("\n")
        };
        (every(1), every(0))
    } else {
        let comments = text.lines().filter_map(|line| line.strip_prefix('#'));
        let comments = comments.collect::<Vec<_>>().join("\n");
        (comments.clone(), comments)
    };
    let named = |command: String, is_line| Named { file: file.clone(), command, is_line };
    let lines = lines(&code).into_iter().map(|command| named(command, true));
    let spans = spans(&prose).into_iter().map(|command| named(command, false));
    lines.chain(spans).collect()
}

/// Returns the words of a command as a shell divides them, up to a comment or to what follows the command.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        let last = words.len() - 1;
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '#') if words[last].is_empty() => break,
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (None, c) if c.is_whitespace() => {
                if !words[last].is_empty() {
                    words.push(String::new());
                }
            }
            (_, c) => words[last].push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// True for a word that stands for a value, as `DIR`.
fn is_placeholder(word: &str) -> bool {
    let name = word.rsplit('=').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || ".,_".contains(c))
}

#[test]
fn every_command_of_a_page_a_recipe_or_an_example_is_one_of_this_program() {
    let texts = texts();
    let all: Vec<Named> = texts.iter().flat_map(|(path, text)| commands_of(path, text)).collect();
    let (mut checked, mut wrong) = (0, String::new());
    for Named { file, command, is_line } in all {
        let words = words(&command);
        // A table of Cargo.toml, and any command.
        if ["=", "COMMAND"].contains(&words[1].as_str()) {
            continue;
        }
        checked += 1;
        let Err(error) = Cli::command().try_get_matches_from(&words) else { continue };
        let kind = error.kind();
        let is_help = matches!(
            kind,
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        let is_unknown = matches!(kind, ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
        let is_sketch = !is_line || words.iter().any(|word| is_placeholder(word));
        if !is_help && (is_unknown || !is_sketch) {
            wrong += &format!("{file}: {command}\n{error}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(checked > 400, "{checked} commands");
}

#[test]
fn recipes_and_pages_say_what_this_program_can_do() {
    // Each was written before there was what it denies.
    let gone = [
        "it has no command that makes",
        "`eval` has no top_p",
        "One process with the episodes of four ranks",
        "| the same episodes in one process |",
        "pivot_reward = true",
    ];
    for (path, text) in texts() {
        let text = text.replace("\n#", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        for stale in gone {
            assert!(!text.contains(stale), "{}: {stale}", path.display());
        }
    }
    let recipe = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    for (name, part) in [
        ("mrlm/06-sft-world-model.toml", "`maverl collect --as sft --min-reward R` writes"),
        ("mrlm/09-hybrid.toml", "in one command"),
        ("mrlm/10-distributed-ppo.toml", "--no-python maverl train recipes/mrlm/10-"),
        ("README.md", "| the same episodes on one rank or several"),
        ("drmas/math-qwen3-8b-shared.toml", "`maverl eval --run RUN --set sampling.top_p=0.95`"),
        // A machine without a GPU trains them, too.
        ("gpu/gsm8k-qwen2.5-0.5b-24gb.toml", "\ndevice = \"auto\"\n"),
        ("gpu/gsm8k-qwen2.5-3b-lora-80gb.toml", "\ndevice = \"auto\"\n"),
        ("gpu/gsm8k-qwen2.5-7b-lora-141gb.toml", "\ndevice = \"auto\"\n"),
    ] {
        assert!(recipe(name).contains(part), "{name}: {part}");
    }
}
