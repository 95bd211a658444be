//! Errors of the command line, and their messages.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory};
use maverl::cli::examples;

use super::*;

mod book;
mod pages;
mod tables;

fn parsed(line: &str) -> Result<Cli, String> {
    let words = std::iter::once("maverl").chain(line.split_whitespace());
    let args: Vec<OsString> = words.map(|word| word.trim_matches('\'').into()).collect();
    usage::parse_from::<Cli>(&args, "maverl").map_err(|error| {
        assert_eq!(error.exit_code(), 2, "{line}");
        error.to_string()
    })
}

#[track_caller]
fn refused(line: &str) -> String {
    match parsed(line) {
        Ok(_) => panic!("`maverl {line}` is accepted"),
        Err(told) => told,
    }
}

#[test]
fn a_path_to_write_that_no_shell_has_expanded_is_refused() {
    for line in [
        "train run.toml --out ~/runs/x",
        "train run.toml --out=$HOME/x",
        "export --run a --out ~/x",
    ] {
        let error = refused(line);
        assert!(error.contains("by a shell, not in a file or in quotes: write "), "{error}");
    }
    assert!(parsed("train run.toml --out runs/a~b").is_ok());
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn numbers_are_refused_with_what_is_expected() {
    for (line, part) in [
        (
            "generate --model m --prompt p --max-tokens 0",
            "'0' for '--max-tokens <N>': expected a whole number from 1",
        ),
        ("generate --model m --prompt p --max-tokens ten", "expected a whole number from 1"),
        (
            "generate --model m --prompt p --temperature -1",
            "'-1' for '--temperature <T>': expected a finite number from 0",
        ),
        ("generate --model m --prompt p --top-p 0", "expected a number above 0 and at most 1"),
        (
            "generate --model m --prompt p --top-k -1",
            "expected a whole number from 0 to 4294967295",
        ),
        (
            "train run.toml --seed -1",
            "'-1' for '--seed <N>': expected a whole number from 0 to 9223372036854775807",
        ),
        (
            "train run.toml --seed 99999999999999999999",
            "expected a whole number from 0 to 9223372036854775807",
        ),
        (
            "train run.toml --steps 1e3",
            "expected a whole number from 0 to 9223372036854775807; write 1000",
        ),
        ("train run.toml --steps -5", "'-5' for '--steps <N>': expected a whole number from 0"),
        ("score --model m --input i --output o --batch-tokens 0", "expected a whole number from 1"),
        ("grade code --input i --output o --seconds -1", "expected a finite number above 0"),
        ("bench rollout --repeats 0", "expected a whole number from 1"),
        ("bench rollout --threads -2", "expected a whole number from 0"),
        ("serve retriever builtin:facts --max-tokens -1", "expected a whole number from 0"),
        ("new-model --like bench-s --out x --seed -1", "expected a whole number from 0"),
    ] {
        let told = refused(line);
        assert!(told.contains(part), "{line}: no {part:?} in\n{told}");
        assert!(!told.contains("tip: to pass"), "{told}");
    }
}

#[test]
fn no_example_names_the_best_checkpoint_of_a_run_without_validations() {
    let pages = pages::texts().into_iter().map(|(path, text)| {
        // Commands of recipes and examples stand in comments.
        (path.display().to_string(), text.replace("\n#   ", "\n"))
    });
    let helps =
        examples::EXAMPLES.iter().map(|(name, lines)| ((*name).to_owned(), lines.join("\n")));
    for (name, text) in pages.chain(helps) {
        // The runs of the examples have the default `eval.every`, which is 0.
        let best = text
            .lines()
            .find(|line| line.starts_with("maverl ") && line.contains("--checkpoint best"));
        assert_eq!(best, None, "{name}");
    }
}

/// Returns every command of a definition, by the words that call it.
fn commands(command: &clap::Command, words: &[String]) -> Vec<(Vec<String>, clap::Command)> {
    let mut all = vec![(words.to_vec(), command.clone())];
    for inner in command.get_subcommands() {
        let words = [words, &[inner.get_name().to_owned()]].concat();
        all.extend(commands(inner, &words));
    }
    all
}

#[test]
fn no_option_answers_a_wrong_number_in_the_words_of_a_parser() {
    let never = [
        "invalid digit",
        "non-zero type",
        "number too",
        "cannot parse",
        "invalid float",
        "tip: to pass",
        "not in ",
        "variant",
    ];
    let mut options = 0;
    for (words, command) in commands(&Cli::command(), &[]) {
        for arg in command.get_arguments() {
            let (Some(long), ArgAction::Set) = (arg.get_long(), arg.get_action()) else { continue };
            options += 1;
            for value in ["-1", "0", "1e3", "x", "1.5", "-", "99999999999999999999999"] {
                let line = format!("{} --{long} {value}", words.join(" "));
                let told = parsed(&line).err().unwrap_or_default();
                for part in never {
                    assert!(!told.contains(part), "{line}: {part:?} in\n{told}");
                }
            }
        }
    }
    assert!(options > 50, "{options}");
}

#[test]
fn flags_that_are_not_there_are_answered_with_the_setting() {
    for (line, part) in [
        ("train run.toml --lr 1e-4", "tip: set the key with `--set models.NAME.optim.lr=VALUE`"),
        ("train run.toml --learning-rate 1e-4", "`--set models.NAME.optim.lr=VALUE`"),
        ("train run.toml --learning_rate=1e-4", "`--set models.NAME.optim.lr=VALUE`"),
        ("train run.toml --temperature 0.5", "`--set sampling.temperature=VALUE`"),
        ("train run.toml --task.group_size 4", "`--set task.group_size=VALUE`"),
        ("train run.toml --num-generations 4", "`--set task.group_size=VALUE`"),
        ("train run.toml task.group_size=4", "`--set task.group_size=4`"),
        ("train run.toml data.train_batch_size=4", "`--set task.tasks_per_step=4`"),
        ("train run.toml +steps=4", "`--set steps=4`"),
        ("train run.toml --set steps = 3", "without spaces: `--set steps=3`"),
        ("train -c run.toml", "CONFIG is given without a flag"),
        ("train run.toml -o x", "the run directory is `--out DIR`"),
        ("train run.toml --output-dir x", "`output-dir` is `--out` here"),
        ("train run.toml --gpus 2", "docs/src/gpu.md"),
        ("train run.toml --report-to wandb", "track.to"),
        ("eval run.toml --batch-size 3", "`--set task.tasks_per_step=VALUE`"),
        ("check run.toml --max-tokens 3", "`--set sampling.max_tokens=VALUE`"),
    ] {
        let told = refused(line);
        assert!(told.contains(part), "{line}: no {part:?} in\n{told}");
    }
}

#[test]
fn commands_that_are_not_there_are_answered_with_those_that_are() {
    for (line, part) in [
        ("run run.toml", "did you mean `maverl train`?"),
        ("tarin run.toml", "'train'"),
        ("evaluate run.toml", "did you mean `maverl eval`?"),
        ("resume runs/a", "did you mean `maverl train --resume DIR`?"),
        ("run.toml", "`maverl train run.toml` trains"),
        ("validate run.toml", "did you mean `maverl check`?"),
        ("init my_team", "did you mean `maverl new NAME`?"),
        ("algorithm", "`maverl explain algorithm` says"),
        ("ls", "did you mean `maverl list`?"),
        ("gpu check", "did you mean `maverl device`?"),
    ] {
        let told = refused(line);
        assert!(told.contains(part), "{line}: no {part:?} in\n{told}");
    }
}

#[test]
fn what_is_missing_is_answered_with_every_way_to_give_it() {
    for (line, parts) in [
        (
            "export --out x",
            &["--model <MODEL>", "--run <RUN>", "`--run DIR` exports a policy of a run"][..],
        ),
        ("replay runs/a", &["<EPISODE>", "lists the episodes of a step"]),
        ("generate --prompt x", &["--model <MODEL>", "`builtin:tiny`"]),
        ("score --input x", &["--model <MODEL>", "--output"]),
        ("eval --compare", &["--run <DIR>"]),
        ("completions", &["<SHELL>"]),
        ("completions powershel", &["bash, elvish, fish, powershell, zsh"]),
        ("bench rolout", &["rollout"]),
        ("bench serve", &["in a clone of maverl", "-p maverl-lab --bin bench_servers -- serve"]),
        ("bench train Team", &["-p maverl-lab --bin bench_servers -- team"]),
        (
            "train run.toml --resume runs/a",
            &["cannot be used with", "a resumed run has its own configuration"],
        ),
        ("eval run.toml --run runs/a", &["cannot be used with", "`--run DIR`, without CONFIG"]),
    ] {
        let told = refused(line);
        for part in parts {
            assert!(told.contains(part), "{line}: no {part:?} in\n{told}");
        }
    }
}

#[test]
fn an_error_about_arguments_fits_the_terminal() {
    for line in [
        "train run.toml --resume runs/a",
        "export --out x",
        "check run.toml --device h100",
        "grade mth --input a --output b",
        "score --model m",
    ] {
        let args: Vec<OsString> = format!("duo {line}").split(' ').map(Into::into).collect();
        let Err(error) = usage::parse_from::<Cli>(&args, "duo") else { panic!("{line}") };
        for width in [60, 80, 120] {
            let text = usage::format_error(&error, "duo", width);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} at {width}\n{text}");
        }
    }
}

#[test]
fn help_examples_usage_and_tips_name_the_program_that_the_user_runs() {
    let text = |line: &str| {
        let args: Vec<OsString> =
            format!("target/release/duo {line}").split(' ').map(Into::into).collect();
        let Err(error) = usage::parse_from::<Cli>(&args, "duo") else { panic!("{line}") };
        usage::format_error(&error, "duo", 110)
    };
    for (words, _) in commands(&Cli::command(), &[]).into_iter().skip(1) {
        if words == ["serve"] && cfg!(not(feature = "serve")) {
            // It takes any arguments, and says what the program lacks.
            continue;
        }
        let help = text(&format!("{} --help", words.join(" ")));
        for command in maverl::train::COMMANDS {
            assert!(!help.contains(&format!("maverl {command} ")), "{words:?}\n{help}");
        }
        assert!(help.contains(&format!("Usage: duo {}", words.join(" "))), "{help}");
    }
    assert!(text("--help").contains("Begin with `duo list`"), "{}", text("--help"));
    assert!(
        text("train --help").contains("  duo train run.toml --quick"),
        "{}",
        text("train --help")
    );
    assert!(text("evaluate run.toml").contains("did you mean `duo eval`?"));
    assert!(text("train run.toml --resume a").contains("`duo train --resume DIR`"));
}

#[test]
fn the_names_of_commands_in_messages_are_those_of_the_command_line() {
    let command = Cli::command();
    let mut names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    names.push("help");
    assert_eq!(names, maverl::train::COMMANDS);
}

#[test]
fn help_fits_sixty_columns() {
    for (words, command) in commands(&Cli::command(), &[]) {
        let text = command.term_width(60).render_long_help().to_string();
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
        // The line of usage is not wrapped, and the names of files are whole.
        let lines = text.lines().filter(|line| line.chars().count() > 60);
        let long: Vec<&str> =
            lines.filter(|line| !line.contains("Usage:") && !line.contains('<')).collect();
        assert!(long.is_empty(), "{words:?}: {widest}\n{}", long.join("\n"));
    }
}
