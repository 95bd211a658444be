//! Paths on the command line, and errors about missing ones.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::cli::failure::Failure;
use crate::cli::terminal::tell;
use crate::config::source::Sources;
use crate::config::source::missing::{self, WantedEntry};
use crate::files::ModelSource;
use crate::net::lora::is_adapter;
use crate::run_dir::{MANIFEST, RESOLVED, RunDir};

/// Maximum number of runs of a directory in a message.
const NAMED: usize = 5;

/// Opens a run directory.
pub fn run(dir: &Path) -> Result<RunDir, Failure> {
    if let Some((run, step)) = checkpoint(dir) {
        let (dir, run) = (dir.display(), run.display());
        return Err(Failure(format!(
            "`{dir}` is the checkpoint of step {step} of the run `{run}`; give the run: `{run}`"
        )));
    }
    match std::fs::metadata(dir.join(MANIFEST)) {
        Ok(_) => return Ok(RunDir::open(dir)?),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Failure(format!(
                "cannot read `{}`: {error}; run directories are readable by their owner only, who can change that with \
                 `chmod`",
                dir.display()
            )));
        }
        Err(_) if !dir.exists() => return Err(nothing(dir, WantedEntry::Directory)),
        Err(_) => {}
    }
    let not = format!("`{}` is not a run directory: it has no `{MANIFEST}`", dir.display());
    let above = dir.ancestors().skip(1).find(|above| above.join(MANIFEST).is_file());
    let help = match (above, runs(dir)) {
        (Some(above), _) => format!("; it is part of the run `{}`", above.display()),
        (None, Some(runs)) => format!("; it has the runs {runs}"),
        (None, None) => String::new(),
    };
    Err(Failure(not + &help))
}

/// Opens the run of a command whose next argument names a part of it. Arguments in the wrong order are answered with the
/// right one.
pub fn run_of(dir: &Path, part: &str, command: &str) -> Result<RunDir, Failure> {
    if !dir.exists() && Path::new(part).join(MANIFEST).is_file() {
        let dir = dir.display();
        return Err(Failure(format!(
            "the run is the first argument: `maverl {command} {part} {dir}`"
        )));
    }
    run(dir)
}

/// Returns the run and the step of a directory that is a checkpoint.
fn checkpoint(dir: &Path) -> Option<(&Path, u64)> {
    let step = dir.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()?;
    let run = dir.parent().filter(|above| above.ends_with("checkpoints"))?.parent()?;
    run.join(MANIFEST).is_file().then_some((run, step))
}

/// Lists the last runs in a directory.
pub fn runs(dir: &Path) -> Option<String> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join(MANIFEST).is_file())
        .map(|entry| format!("`{}`", entry.path().display()))
        .collect();
    names.sort();
    (!names.is_empty()).then(|| names[names.len().saturating_sub(NAMED)..].join(", "))
}

/// Returns the directory of runs that a command was given; without one, `runs` in the working directory, and says so.
pub fn of_runs(given: Option<&Path>, command: &str) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) if dir.exists() => Ok(dir.to_owned()),
        Some(dir) => Err(nothing(dir, WantedEntry::Directory)),
        None => {
            let dir = usual(Path::new(""), command)?;
            tell(format_args!("no directory given: the runs in `{RUNS}`"));
            Ok(dir)
        }
    }
}

/// Directory that `maverl train` writes runs into, unless it is given another.
const RUNS: &str = "runs";

/// Returns the usual directory of runs, if there is one.
fn usual(here: &Path, command: &str) -> Result<PathBuf, Failure> {
    if here.join(RUNS).is_dir() {
        return Ok(RUNS.into());
    }
    Err(Failure(format!(
        "there is no directory `{RUNS}` here; write `maverl {command} DIR` with a directory that contains runs, or \
         `maverl train run.toml`, which writes a run into `{RUNS}`"
    )))
}

/// Checks that the directory or file of a model exists.
pub fn model(source: &ModelSource) -> Result<(), Failure> {
    let dir = match source {
        ModelSource::Directory(dir) => dir,
        ModelSource::Gguf(file) if !file.is_file() => {
            return Err(nothing(file, WantedEntry::Extension("gguf")));
        }
        ModelSource::Gguf(_) | ModelSource::Builtin(_) | ModelSource::Hub(_) => return Ok(()),
    };
    if dir.join(RESOLVED).is_file() && dir.join(MANIFEST).is_file() {
        let run = dir.display();
        return Err(Failure(format!(
            "`{run}` is a run, not a model; `maverl export --run {run} --out DIR` writes a policy of it as a model"
        )));
    }
    if dir.is_dir() {
        return Ok(());
    }
    if dir.is_file() {
        let file = dir.display();
        return Err(Failure(format!(
            "{file} is a file; a model is the directory that it is in, with `config.json`, or a GGUF file"
        )));
    }
    let Failure(told) = nothing(dir, WantedEntry::Directory);
    let on_hub = missing::on_hub(dir, Path::new(""), |name| format!("`{name}`"));
    Err(Failure(on_hub.map_or_else(|| told.clone(), |help| format!("{told}\n{help}"))))
}

/// Checks that a directory exists.
pub fn directory(dir: &Path) -> Result<(), Failure> {
    if dir.exists() { Ok(()) } else { Err(nothing(dir, WantedEntry::Directory)) }
}

/// Checks that the directory of an adapter exists and has one.
pub fn adapter(dir: &Path) -> Result<(), Failure> {
    if is_adapter(dir) {
        return Ok(());
    }
    if !dir.exists() {
        return Err(nothing(dir, WantedEntry::Directory));
    }
    Err(Failure(format!(
        "{} is no adapter: it has no `adapter_config.json`, which PEFT writes",
        dir.display()
    )))
}

/// Returns the error about an unreadable file.
pub fn unreadable(path: &Path, error: &Error) -> Failure {
    if path.is_dir() {
        return Failure(format!("{} is a directory; a file of rows is needed", path.display()));
    }
    match error.kind() {
        ErrorKind::NotFound => nothing(path, WantedEntry::File),
        ErrorKind::InvalidData => Failure(format!(
            "cannot read {}: it is not UTF-8; save it so, or unpack it if it is compressed",
            path.display()
        )),
        _ => Failure(format!("cannot read {}: {error}", path.display())),
    }
}

/// Returns the error about a path that does not exist.
fn nothing(path: &Path, wanted: WantedEntry) -> Failure {
    let here = Path::new("");
    let help = missing::help(path, here, wanted).map(|help| format!("\n{help}"));
    Failure(missing::message(path, here, wanted) + &help.unwrap_or_default())
}

/// Returns the sources of a run's own configuration, and its text as given.
pub fn of_run(dir: &Path) -> Result<(Sources, String), Failure> {
    let opened = run(dir)?;
    let name = opened.resolved().display().to_string();
    let resolved = std::fs::read_to_string(opened.resolved())?;
    Ok((Sources::default().text(name, resolved, dir), opened.origin()?.given))
}

/// Returns the parser of a path that is written. A leading `~` or `$` is an error: the shell has not expanded it, and a
/// directory of that name would be made.
pub fn to_write() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let first = path.to_string_lossy().chars().next();
        match missing::unexpanded_help(&path).filter(|_| matches!(first, Some('~' | '$'))) {
            Some(help) => Err(help),
            None => Ok(path),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn told(result: Result<(), Failure>) -> String {
        result.map_or_else(|Failure(told)| told, |()| String::new())
    }

    #[test]
    fn runs_and_models_that_are_not_there_are_answered_with_those_that_are() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        for run in ["runs/search-1", "runs/search-2"] {
            std::fs::create_dir_all(path(run).join("checkpoints")).unwrap();
            std::fs::write(path(run).join(MANIFEST), "{}").unwrap();
        }
        std::fs::create_dir(path("empty")).unwrap();
        let asked = |name: &str| told(run(&path(name)).map(drop));
        assert!(asked("runs").contains("; it has the runs `"), "{}", asked("runs"));
        assert!(asked("runs").ends_with("runs/search-2`"), "{}", asked("runs"));
        std::fs::create_dir(path("runs/search-1/checkpoints/step-000010")).unwrap();
        let step = asked("runs/search-1/checkpoints/step-000010");
        assert!(step.contains("is the checkpoint of step 10 of the run `"), "{step}");
        assert!(
            step.ends_with(
                "; give the run: `{}`"
                    .replace("{}", &path("runs/search-1").display().to_string())
                    .as_str()
            ),
            "{step}"
        );
        let inside = asked("runs/search-1/checkpoints");
        assert!(
            inside.contains("it is part of the run `") && inside.ends_with("search-1`"),
            "{inside}"
        );
        assert!(asked("runs/serch-1").contains("did you mean"), "{}", asked("runs/serch-1"));
        let run = path("runs/search-1").display().to_string();
        let swapped = told(run_of(Path::new("2"), &run, "replay").map(drop));
        assert_eq!(swapped, format!("the run is the first argument: `maverl replay {run} 2`"));
        let usual = |name: &str| usual(&path(name), "runs").map(|dir| dir.display().to_string());
        assert_eq!(usual("").unwrap(), "runs");
        let Err(Failure(none)) = usual("empty") else { panic!("there are none") };
        assert!(
            none.starts_with("there is no directory `runs` here; write `maverl runs DIR`"),
            "{none}"
        );
        let Err(Failure(none)) = of_runs(Some(&path("rusn")), "runs") else {
            panic!("it is misspelt")
        };
        assert!(none.contains("there is no directory") && none.contains("runs`?"), "{none}");
        assert!(asked("empty").ends_with("it has no `manifest.json`"), "{}", asked("empty"));
        let asked = |name: &str| told(model(&ModelSource::Directory(name.into())));
        let hub = asked("Qwen/Qwen2.5-0.5B");
        assert!(hub.contains("is written `hf:Qwen/Qwen2.5-0.5B`"), "{hub}");
        let folder = asked("models/Qwen2.5-0.5B");
        assert!(folder.starts_with("there is no directory `models/Qwen2.5-0.5B`"), "{folder}");
        assert!(folder.contains(" has no `models`") && !folder.contains("hf:"), "{folder}");
        let adapter = told(adapter(Path::new("adapters/judge")));
        assert!(adapter.starts_with("there is no directory `adapters/judge`"), "{adapter}");
        std::fs::write(path("runs/search-1").join(RESOLVED), "").unwrap();
        let run = asked(&path("runs/search-1").display().to_string());
        assert!(run.contains("is a run, not a model; `maverl export --run"), "{run}");
        assert!(asked("~/models/qwen").contains("`~` is expanded by a shell"));
        std::fs::write(path("rows.jsonl"), "").unwrap();
        let error = std::fs::read(path("row.jsonl")).unwrap_err();
        let Failure(told) = unreadable(&path("row.jsonl"), &error);
        assert!(told.contains("there is no file") && told.contains("rows.jsonl`?"), "{told}");
    }
}
