//! `maverl completions`: scripts with which shells complete the command line. They ask the program itself, so that values are
//! completed too: shipped configurations, keys and runs.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter, complete,
};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use clap_complete::{CompleteEnv, Shell};
use maverl::config::reference::{self, Item};
use maverl::config::source::shipped_configs;
use maverl::output;
use maverl::run_dir::MANIFEST;

use super::shipped::summary;
use super::{Cli, Failure, print};

/// Environment variable that has the name of the shell, where a script asks for completions.
const ASKING_SHELL: &str = "MAVERL_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&PiecewiseBash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Writes the script for a shell, under the binary's name.
pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let program = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    // A name is looked up in `PATH`, as the shell did.
    let called = if program.components().count() > 1 { absolute(&program) } else { program };
    print(&script(shell, &called)?)
}

fn absolute(program: &Path) -> PathBuf {
    std::path::absolute(program).unwrap_or_else(|_| program.to_owned())
}

/// Returns the script that completes a program, by its own answers.
fn script(shell: Shell, program: &Path) -> Result<String, Failure> {
    let name = program.file_stem().map_or_else(|| "maverl".into(), OsStr::to_string_lossy);
    let shell = shell.to_string();
    let writer =
        SHELLS.completer(&shell).ok_or_else(|| Failure(format!("no script for {shell}")))?;
    let mut text = Vec::new();
    writer.write_registration(ASKING_SHELL, &name, &name, &program.to_string_lossy(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Answers a script that asks for completions. Returns `None` in a process that no script has started.
pub(super) fn answer_shell() -> Option<ExitCode> {
    let dir = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(completed_command).var(ASKING_SHELL).shells(SHELLS);
    match asked.try_complete(std::env::args_os(), dir.as_deref()) {
        Ok(answered) => answered.then_some(ExitCode::SUCCESS),
        Err(error) => error.exit(),
    }
}

fn completed_command() -> Command {
    complete_values(Cli::command())
}

/// Says of every argument of a command, and of those below it, how its values are completed.
fn complete_values(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match values_of(&name, &arg) {
        Some(values) => arg.add(ArgValueCompleter::new(values)),
        None => arg,
    });
    command.mut_subcommands(complete_values)
}

/// Function that lists the values that begin with a text.
type ListValues = fn(&OsStr) -> Vec<CompletionCandidate>;

fn values_of(command: &str, arg: &Arg) -> Option<ListValues> {
    let value = arg.get_value_names()?.first()?.as_str();
    match (command, arg.get_id().as_str(), value) {
        (_, _, "KEY=VALUE") => Some(assignments),
        (_, _, "CONFIG") | (_, "named", _) => Some(configurations),
        (_, "run" | "resume" | "from", _) => Some(runs),
        ("examples", "name", _) => Some(shipped_names),
        ("explain", "key", _) => Some(keys_and_tables),
        _ => None,
    }
}

/// Lists shipped configurations, then files.
fn configurations(begin: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = shipped_names(begin);
    found.extend(paths(&PathCompleter::file(), begin));
    found
}

/// Lists paths, without those whose names would control a terminal.
fn paths(completer: &PathCompleter, begin: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = completer.complete(begin);
    found.retain(|path| is_plain(&path.get_value().to_string_lossy()));
    found
}

fn is_plain(name: &str) -> bool {
    !name.contains(char::is_control) && output::visible(name) == name
}

fn shipped_names(begin: &OsStr) -> Vec<CompletionCandidate> {
    let named = shipped_configs();
    let named = named.iter().map(|config| (config.name.to_string(), Some(summary(config.text()))));
    beginning_with(begin, named)
}

/// Lists the runs in `runs`, then directories.
fn runs(begin: &OsStr) -> Vec<CompletionCandidate> {
    let entries = std::fs::read_dir("runs").into_iter().flatten().flatten();
    let runs = entries.map(|entry| entry.path()).filter(|path| path.join(MANIFEST).is_file());
    let names: BTreeSet<String> =
        runs.map(|path| path.display().to_string()).filter(|name| is_plain(name)).collect();
    let mut found = beginning_with(begin, names.into_iter().map(|name| (name, None)));
    found.extend(paths(&PathCompleter::dir(), begin));
    found
}

fn keys_and_tables(begin: &OsStr) -> Vec<CompletionCandidate> {
    let items = reference::items();
    beginning_with(begin, items.iter().map(|item| (item.name(), Some(item.meaning.clone()))))
}

/// Lists the keys of a configuration with `=`. A part that the user chooses is that of `begin`; where it has none yet, the key ends
/// before it.
fn assignments(begin: &OsStr) -> Vec<CompletionCandidate> {
    let text = begin.to_string_lossy();
    let given: Vec<&str> = text.split('.').collect();
    let items = reference::items();
    let keys: BTreeSet<String> = items
        .iter()
        .filter(|item| item.entry.is_some())
        .map(|item| assigned_key(item, &given))
        .collect();
    beginning_with(begin, keys.into_iter().map(|key| (key, None)))
}

fn assigned_key(item: &Item, given: &[&str]) -> String {
    let mut key = String::new();
    for (i, part) in item.path.iter().enumerate() {
        let chosen = reference::is_chosen(part);
        if chosen && i + 1 >= given.len() {
            return key;
        }
        key += if chosen { given[i] } else { part };
        key.push(if i + 1 < item.path.len() { '.' } else { '=' });
    }
    key
}

/// Returns the values, with their help, that begin with a text.
fn beginning_with(
    begin: &OsStr,
    values: impl Iterator<Item = (String, Option<String>)>,
) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    values
        .filter(|(value, _)| value.starts_with(&*begin))
        .map(|(value, help)| CompletionCandidate::new(value).help(help.map(Into::into)))
        .collect()
}

/// Bash, which cuts words at `:` and `=`, and completes the last piece: `example:single` is three words there.
struct PiecewiseBash;

/// Function of bash that completes a program. The word at the cursor is what is before the cursor, or a piece that is a separator.
const BASH_SCRIPT: &str = r#"_complete_NAME() {
    local IFS=$'\n' words=("${COMP_WORDS[@]}")
    if [[ ${BASH_VERSINFO[0]} -ge 4 && ${words[COMP_CWORD]} != [:=] ]]; then words[COMP_CWORD]="$2"; fi
    COMPREPLY=($(VARIABLE=bash INDEX="$COMP_CWORD" 'PROGRAM' -- "${words[@]}"))
    if [[ ${COMPREPLY-} == *[:=./] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o bashdefault -o nosort -F _complete_NAME NAME 2>/dev/null || complete -o bashdefault -F _complete_NAME NAME"#;

/// Environment variable in which the script of bash has the index of the word at the cursor.
const INDEX: &str = "MAVERL_COMPLETE_INDEX";

impl EnvCompleter for PiecewiseBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        program: &str,
        path: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let script = BASH_SCRIPT.replace("VARIABLE", variable).replace("INDEX", INDEX);
        let script =
            script.replace("NAME", program).replace("PROGRAM", &path.replace('\'', r"'\''"));
        writeln!(out, "{script}")
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        dir: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let index = std::env::var(INDEX).ok().and_then(|index| index.parse().ok());
        let values = complete_pieces(command, words, index.unwrap_or_default(), dir)?;
        writeln!(out, "{}", values.join("\n"))
    }
}

/// Returns the values of the word at an index, without the pieces of it that bash has cut off.
fn complete_pieces(
    command: &mut Command,
    pieces: Vec<OsString>,
    index: usize,
    dir: Option<&Path>,
) -> io::Result<Vec<String>> {
    let mut words: Vec<OsString> = Vec::new();
    let (mut goes_on, mut cut_off) = (false, 0);
    for piece in pieces.into_iter().take(index + 1) {
        let is_separator = piece == ":" || piece == "=";
        match words.last_mut().filter(|_| goes_on || is_separator) {
            Some(word) => {
                cut_off = word.len() + if is_separator { piece.len() } else { 0 };
                word.push(piece);
            }
            None => {
                cut_off = 0;
                words.push(piece);
            }
        }
        goes_on = is_separator;
    }
    let last = words.len().saturating_sub(1);
    let found = complete(command, words, last, dir)?;
    let whole = found.iter().map(|candidate| candidate.get_value().to_string_lossy());
    Ok(whole.map(|value| value.get(cut_off..).unwrap_or_default().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let last = words.len() - 1;
        let found =
            complete(&mut completed_command(), words, last, None).expect("words of this program");
        found.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    fn completed_by_bash(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let last = words.len() - 1;
        complete_pieces(&mut completed_command(), words, last, None).expect("words of this program")
    }

    #[test]
    fn every_shell_gets_a_script_that_asks_the_binary_under_its_name() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = script(shell, Path::new("/opt/teams/my_team")).expect("a known shell");
            for part in ["my_team", "/opt/teams/my_team", ASKING_SHELL] {
                assert!(script.contains(part), "{part} is missing for {shell}:\n{script}");
            }
            assert!(!script.contains("maverl "), "{shell}");
        }
    }

    #[test]
    fn commands_arguments_keys_and_tables_are_completed() {
        assert_eq!(completed(&["maverl", "comp"]), ["completions"]);
        assert_eq!(completed(&["maverl", "train", "--resu"]), ["--resume"]);
        assert_eq!(
            completed(&["maverl", "explain", "algorithm.loss.surr"])[0],
            "algorithm.loss.surrogate"
        );
        assert_eq!(completed(&["maverl", "train", "--set", "task.group_s"]), ["task.group_size="]);
        assert!(completed(&["maverl", "train", "--set", "mod"]).contains(&"models.".to_owned()));
        let of_model = completed(&["maverl", "train", "--set", "models.small.optim.l"]);
        assert!(of_model.contains(&"models.small.optim.lr=".to_owned()), "{of_model:?}");
    }

    #[test]
    fn bash_gets_the_rest_of_a_word_that_it_has_cut() {
        assert_eq!(
            completed_by_bash(&["maverl", "train", "--set", "task.group_s"]),
            ["task.group_size="]
        );
        let shipped = completed(&["maverl", "train", "example:si"]);
        let rest = completed_by_bash(&["maverl", "train", "example", ":", "si"]);
        let of_shipped: Vec<&str> =
            shipped.iter().filter_map(|name| name.strip_prefix("example:")).collect();
        assert_eq!(rest, of_shipped);
        let all = completed_by_bash(&["maverl", "train", "example", ":"]);
        assert!(all.iter().all(|name| !name.contains("example:")), "{all:?}");
    }
}
