//! Parsing of the command line, with tips in its errors.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error, Parser};

use crate::cli::{examples, terminal};
use crate::config::reference;
use crate::config::source::{alias, did_you_mean, snake_case};
use crate::table::paragraphs;
use crate::train::{program, rename_program, tell};

/// Subcommands by their names in other programs.
const COMMANDS: [(&str, &str); 25] = [
    ("run", "train"),
    ("fit", "train"),
    ("start", "train"),
    ("learn", "train"),
    ("sft", "train"),
    ("resume", "train --resume DIR"),
    ("continue", "train --resume DIR"),
    ("evaluate", "eval"),
    ("test", "eval"),
    ("validate", "check"),
    ("gpu", "device"),
    ("plan", "check"),
    ("lint", "check"),
    ("config", "explain KEY"),
    ("docs", "explain KEY"),
    ("ls", "list"),
    ("agents", "list"),
    ("show", "info DIR"),
    ("status", "info DIR"),
    ("summary", "info DIR"),
    ("sample", "generate"),
    ("chat", "generate --chat"),
    ("logprobs", "score"),
    ("merge", "export --merge"),
    ("init", "new NAME"),
];

/// Parses the arguments of the process. Exits on errors, or after printing help.
pub fn parse<C: Parser>() -> C {
    let args: Vec<OsString> = std::env::args_os().collect();
    parse_from(&args, &program()).unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        tell(format_error(&error, &program(), terminal::width()));
        std::process::exit(error.exit_code())
    })
}

/// Formats an error about arguments in lines of at most `width` columns, with the name of the program in its tips.
pub fn format_error(error: &Error, program: &str, width: usize) -> String {
    let text = rename_program(&error.render().to_string(), program);
    paragraphs(text.trim_end(), width)
}

/// Parses arguments, of which the first is the name of the program, for a program of this name.
pub fn parse_from<C: Parser>(args: &[OsString], program: &str) -> Result<C, Error> {
    let command = name_program(examples::show_examples(C::command(), program), program);
    let mut command = allow_negative_numbers(command.term_width(terminal::width()));
    let matches = command.try_get_matches_from_mut(args).map_err(|error| add_tip(error, args))?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Writes the name of the program into the help of a command, of its arguments and of those below it.
pub fn name_program(command: Command, program: &str) -> Command {
    let texts = [command.get_about(), command.get_long_about()];
    let [about, long] = texts.map(|text| rename_text(text, program));
    let command = about.into_iter().fold(command, Command::about);
    let command = long.into_iter().fold(command, Command::long_about);
    let command = command.mut_args(|arg| {
        let [help, long] =
            [arg.get_help(), arg.get_long_help()].map(|text| rename_text(text, program));
        let arg = help.into_iter().fold(arg, Arg::help);
        long.into_iter().fold(arg, Arg::long_help)
    });
    command.mut_subcommands(|inner| name_program(inner, program))
}

fn rename_text(text: Option<&StyledStr>, program: &str) -> Option<String> {
    text.map(|text| rename_program(&text.to_string(), program))
}

/// Allows negative numbers as values of options, so that their own parsers report them.
fn allow_negative_numbers(command: Command) -> Command {
    command.mut_args(allow_negative_values).mut_subcommands(allow_negative_numbers)
}

fn allow_negative_values(arg: Arg) -> Arg {
    let takes = !arg.is_positional() && arg.get_action().takes_values();
    if takes { arg.allow_negative_numbers(true) } else { arg }
}

/// Adds a tip to the error, if one would help.
fn add_tip(mut error: Error, args: &[OsString]) -> Error {
    let words: Vec<String> =
        args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            unknown_argument(&context(&error, ContextKind::InvalidArg), &words)
        }
        ErrorKind::InvalidSubcommand => {
            unknown_command(&context(&error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => {
            missing_tip(&context(&error, ContextKind::InvalidArg), &words)
        }
        ErrorKind::ArgumentConflict => conflict(&words),
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn context(error: &Error, kind: ContextKind) -> String {
    error.get(kind).map(ToString::to_string).unwrap_or_default()
}

/// Returns a tip on arguments that exclude each other.
fn conflict(words: &[String]) -> Option<String> {
    let flags: Vec<&str> = words.iter().filter_map(|word| word.split('=').next()).collect();
    let tip = if flags.contains(&"--resume") {
        "a resumed run has its own configuration and directory: `maverl train --resume DIR`; `--set KEY=VALUE` changes \
         keys that may change"
    } else if flags.contains(&"--run") {
        "a run has its own configuration: `--run DIR`, without CONFIG"
    } else {
        return None;
    };
    Some(tip.to_owned())
}

/// Returns true for a command that takes `--set`.
fn sets(words: &[String]) -> bool {
    let command = words.first().map_or("", String::as_str);
    // An example has no subcommands, and the arguments of `train`.
    ["train", "eval", "check", "bench"].contains(&command)
        || command.starts_with('-')
        || command.ends_with(".toml")
}

/// Returns a tip on an unknown argument.
fn unknown_argument(found: &str, words: &[String]) -> Option<String> {
    if !sets(words) {
        return None;
    }
    if found == "=" || words.iter().any(|word| word == "=") {
        return Some("write a setting without spaces: `--set steps=3`".to_owned());
    }
    if let Some((key, value)) = found.split_once('=').filter(|_| !found.starts_with('-')) {
        let key = key.trim_start_matches('+');
        return Some(format!(
            "set a key with `--set {}={value}`",
            known_key(key).unwrap_or_else(|| key.to_owned())
        ));
    }
    let name = found.strip_prefix("--").map(|name| name.split('=').next().unwrap_or(name));
    match (found, name) {
        ("-c" | "-f", _) => {
            Some("CONFIG is given without a flag: `maverl train run.toml`".to_owned())
        }
        ("-o", _) => Some("the run directory is `--out DIR`".to_owned()),
        (_, Some(name)) => match known_key(name) {
            Some(key) => Some(format!("set the key with `--set {key}=VALUE`")),
            None => alias::help(name, None),
        },
        _ => None,
    }
}

/// Returns the key that a flag names: by its whole name, its last part, or its name elsewhere.
fn known_key(name: &str) -> Option<String> {
    let snake = snake_case(name);
    if reference::find(name).is_some() {
        return Some(name.to_owned());
    }
    let last = snake.rsplit('.').next().unwrap_or(&snake);
    key_ending(&snake).or_else(|| alias::key(&snake, None)).or_else(|| key_ending(last))
}

/// Returns the first key whose name ends so, which is that of the whole run.
fn key_ending(name: &str) -> Option<String> {
    let found = reference::ending(name).into_iter().find(|item| item.entry.is_some());
    found.map(|item| item.name())
}

/// Returns a tip on an unknown command.
fn unknown_command(found: &str) -> Option<String> {
    let path = Path::new(found);
    if found.ends_with(".toml") {
        return Some(format!(
            "`maverl train {found}` trains, `maverl check {found}` says what it means"
        ));
    }
    if path.join("manifest.json").is_file() {
        return Some(format!("`maverl info {found}` says what the run is"));
    }
    let other = COMMANDS.iter().find(|(name, _)| *name == found).map(|(_, command)| *command);
    if let Some(command) = other {
        return Some(format!("did you mean `maverl {command}`?"));
    }
    reference::find(found).map(|_| format!("`maverl explain {found}` says what the key means"))
}

/// Returns a tip on a missing argument.
fn missing_tip(what: &str, words: &[String]) -> Option<String> {
    let command = words.first().map_or("", String::as_str);
    match command {
        "export" if what.contains("--run") => Some(
            "`--run DIR` exports a policy of a run, `--model MODEL` a model or, with `--adapter`, an adapter".to_owned(),
        ),
        "replay" => Some("`maverl replay RUN STEP` lists the episodes of a step".to_owned()),
        "generate" | "score" if what.contains("--model") => {
            Some("a model is a Hugging Face directory, `hf:ORG/NAME`, or `builtin:tiny`".to_owned())
        }
        _ => None,
    }
}

/// Returns help for an unknown name on the command line.
pub fn none_called<'a>(
    kind: &str,
    found: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let all = known.clone().into_iter().collect::<Vec<_>>().join(", ");
    let close = did_you_mean(found, known).map(|name| format!("; did you mean `{name}`?"));
    format!("no {kind} is called `{found}`{}\nthere are {all}", close.unwrap_or_default())
}
