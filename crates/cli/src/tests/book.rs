//! Comparison of the book's page of the command line with the definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use super::*;

/// Variable that makes the test write the page instead of comparing it.
const WRITE: &str = "WRITE_BOOK";

/// Start of the generated part.
const MARK: &str =
    "<!-- From here on the page is written from the definition of the command line. -->\n";

fn book(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(page)
}

/// Returns the commands without subcommands, by the words that call them.
fn leaves() -> Vec<(String, Command)> {
    let all = commands(&examples::show_examples(Cli::command(), "maverl"), &[]);
    all.into_iter()
        .filter(|(_, command)| !command.has_subcommands())
        .map(|(words, command)| (words.join(" "), command))
        .collect()
}

fn reference() -> String {
    let sections = leaves().into_iter().map(|(words, command)| section(&words, &command));
    sections.collect::<Vec<_>>().join("\n")
}

/// Formats the section of a command: its purpose, examples, arguments.
fn section(words: &str, command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    let mut text = format!("## `maverl {words}`\n\n{}\n\n```sh\n", sentence(about));
    for example in examples::of(words) {
        text += &format!("{example}\n");
    }
    text += "```\n";
    let arguments: Vec<&Arg> = command.get_arguments().collect();
    if !arguments.is_empty() {
        text += "\n| argument | meaning |\n|---|---|\n";
    }
    for argument in arguments {
        text += &format!("| `{}` | {} |\n", named(argument), meaning(argument));
    }
    text
}

/// Adds the full stop that clap removes from short texts.
fn sentence(text: String) -> String {
    if text.ends_with(['.', ']', ':']) { text } else { text + "." }
}

/// Formats an argument as it is written.
fn named(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(|names| names.first());
    let value = value.map(ToString::to_string).unwrap_or_default();
    match argument.get_long() {
        None => value,
        Some(long) if argument.get_action().takes_values() => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
    }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.unwrap_or_else(|| panic!("{} has no help", argument.get_id())).to_string();
    let mut help = sentence(help.split_whitespace().collect::<Vec<_>>().join(" "));
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        help += &format!(" One of {}.", values.join(", "));
    }
    let defaults = argument.get_default_values();
    let default = defaults.first().map(|value| value.to_string_lossy().into_owned());
    if let Some(default) =
        default.filter(|value| !value.is_empty() && argument.get_action().takes_values())
    {
        help += &format!(" Default: `{default}`.");
    }
    help.replace('|', "\\|")
}

#[test]
fn every_command_and_every_flag_is_on_the_page_in_its_own_words() {
    let page = book("cli.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, found) = text.split_once(MARK).expect("the page has the mark");
    let expected = format!("\n{}", reference());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&page, format!("{head}{MARK}{expected}")).unwrap();
        return;
    }
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(
        expected == found,
        "docs/src/cli.md differs from the definition: {differs:?}; `{WRITE}=1 cargo test -p maverl-cli --lib tests::book` \
         writes it anew"
    );
}

#[test]
fn every_command_is_in_the_table_of_the_quick_start() {
    let text = fs::read_to_string(book("quickstart.md")).unwrap();
    let missing: Vec<String> = leaves()
        .into_iter()
        .map(|(words, _)| words)
        .filter(|words| !text.contains(&format!("| `maverl {words}")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_command_has_examples_and_every_example_is_accepted() {
    for (words, _) in leaves() {
        assert!(!examples::of(&words).is_empty(), "`{words}` has no example");
        for example in examples::of(&words) {
            assert!(example.starts_with(&format!("maverl {words}")), "{example}");
            let call = example.split(" > ").next().unwrap_or_default();
            // Words in single quotes are one.
            let call: Vec<String> = call
                .split('\'')
                .enumerate()
                .map(|(i, part)| if i % 2 == 1 { part.replace(' ', "_") } else { part.to_owned() })
                .collect();
            let call = call.join("'");
            let parsed = parsed(call.trim_start_matches("maverl "));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
        }
    }
}
