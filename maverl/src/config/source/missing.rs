//! Messages and help for paths that do not exist.

use std::path::{Path, PathBuf};

use super::names::did_you_mean;

/// Kind of entry that a path should name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedEntry {
    /// A file of any name.
    File,
    /// A file with this extension.
    Extension(&'static str),
    /// A directory.
    Directory,
}

impl WantedEntry {
    /// Returns true if the entry at a path is of this kind.
    fn fits(self, path: &Path) -> bool {
        match self {
            Self::File => path.is_file(),
            Self::Extension(extension) => path.extension().is_some_and(|found| found == extension),
            Self::Directory => path.is_dir(),
        }
    }
}

/// Returns the message for a path that does not exist: the path as written, and the absolute path.
pub fn message(given: &Path, base: &Path, wanted: WantedEntry) -> String {
    let noun = if wanted == WantedEntry::Directory { "directory" } else { "file" };
    let place = absolute(&base.join(given));
    if given.is_absolute() {
        format!("there is no {noun} {}", given.display())
    } else {
        format!(
            "there is no {noun} `{}`; it was looked for at {}",
            given.display(),
            place.display()
        )
    }
}

/// Returns help for a path that does not exist: a similar name in its directory, or the directory that is missing.
pub fn help(given: &Path, base: &Path, wanted: WantedEntry) -> Option<String> {
    if let Some(help) = unexpanded_help(given) {
        return Some(help);
    }
    let place = base.join(given);
    let above = place.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or_else(|| Path::new("."));
    if !above.is_dir() {
        let first =
            absolute(above).ancestors().find(|path| path.is_dir()).map(Path::to_path_buf)?;
        let missing =
            absolute(above).strip_prefix(&first).ok()?.components().next()?.as_os_str().to_owned();
        return Some(format!("{} has no `{}`", first.display(), missing.to_string_lossy()));
    }
    let names = names(above, wanted);
    let name = place.file_name()?.to_string_lossy().into_owned();
    // The extension alone may be missing.
    let whole = names.iter().find(|other| other.split('.').next() == Some(name.as_str()));
    let close =
        whole.map(String::as_str).or_else(|| did_you_mean(&name, names.iter().map(String::as_str)));
    match (close, wanted) {
        (Some(close), _) => {
            Some(format!("did you mean `{}`?", given.with_file_name(close).display()))
        }
        (None, WantedEntry::Extension(extension)) if !names.is_empty() => {
            let first = names.iter().take(5).map(|name| given.with_file_name(name));
            let first: Vec<String> = first.map(|path| format!("`{}`", path.display())).collect();
            Some(format!("the .{extension} files there are {}", first.join(", ")))
        }
        _ => None,
    }
}

/// Names under which programs keep models on a disk; no one looks for them on the hub.
const FOLDERS: [&str; 8] =
    ["adapters", "checkpoint", "checkpoints", "data", "model", "models", "runs", "weights"];

/// Returns help for the path of a missing model that looks like the name of one on the hub: `ORG/NAME`, where neither is a
/// usual name of a folder and no directory has the name of the first. `written` shows the name as the reader writes it.
pub fn on_hub(given: &Path, base: &Path, written: impl Fn(&str) -> String) -> Option<String> {
    let given = given.to_str()?;
    let (org, repo) = given.split_once('/')?;
    let names = [org, repo].iter().all(|it| !it.is_empty() && !it.starts_with(['.', '~', '$']));
    if !names || repo.contains('/') || FOLDERS.contains(&org) || base.join(org).exists() {
        return None;
    }
    let help =
        format!("a model of the Hugging Face hub is written {}", written(&format!("hf:{given}")));
    Some(if cfg!(feature = "hub") {
        help
    } else {
        format!("{help}; {}", crate::lacks_feature!("hub"))
    })
}

/// Returns help for `~` and variables, which only a shell expands.
pub fn unexpanded_help(given: &Path) -> Option<String> {
    let text = given.to_string_lossy();
    if let Some(rest) = text.strip_prefix('~') {
        let home = std::env::var("HOME").unwrap_or_else(|_| "/home/me".to_owned());
        let whole = format!("{home}{rest}");
        return Some(format!(
            "`~` is expanded by a shell, not in a file or in quotes: write `{whole}`"
        ));
    }
    let variable = text.contains("$") || text.contains('%') && text.matches('%').count() > 1;
    variable.then(|| {
        "variables are expanded by a shell, not in a file or in quotes: write the path out"
            .to_owned()
    })
}

/// Names of the wanted kind in a directory, sorted.
fn names(dir: &Path, wanted: WantedEntry) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| wanted.fits(&entry.path()));
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the absolute path without `.` and `..`; links are not resolved.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // `a/./b` and `a/b/../c` are simplified.
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_path_where_nothing_is_comes_with_where_it_was_looked_for_and_what_is_there() {
        let home = tempfile::tempdir().unwrap();
        let base = home.path();
        std::fs::write(base.join("run.toml"), "").unwrap();
        std::fs::write(base.join("sweep.toml"), "").unwrap();
        let toml = WantedEntry::Extension("toml");
        let told = message(Path::new("runn.toml"), base, toml);
        let at = base.join("runn.toml");
        let expected =
            format!("there is no file `runn.toml`; it was looked for at {}", at.display());
        assert_eq!(told, expected);
        let help = |given: &str| help(Path::new(given), base, toml);
        assert_eq!(help("runn.toml").unwrap(), "did you mean `run.toml`?");
        assert_eq!(help("run").unwrap(), "did you mean `run.toml`?");
        assert_eq!(
            help("other.toml").unwrap(),
            "the .toml files there are `run.toml`, `sweep.toml`"
        );
        let none = help("configs/here/run.toml").unwrap();
        assert_eq!(none, format!("{} has no `configs`", base.display()));
        assert!(help("~/run.toml").unwrap().starts_with("`~` is expanded by a shell"));
        assert!(help("$HOME/run.toml").unwrap().contains("variables"));
    }

    #[test]
    fn a_path_is_taken_for_a_name_on_the_hub_only_where_no_folder_can_be_meant() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("team")).unwrap();
        let help = |given: &str| on_hub(Path::new(given), home.path(), |name| format!("`{name}`"));
        let found = help("Qwen/Qwen2.5-0.5B").unwrap();
        assert!(found.contains("is written `hf:Qwen/Qwen2.5-0.5B`"), "{found}");
        let without = "this program lacks the feature `hub`: build it with `--features hub`";
        assert_eq!(found.contains(without), cfg!(not(feature = "hub")), "{found}");
        for folder in
            ["models/Qwen2.5-0.5B", "team/judge", "a/b/c", "./a", "../a", "~/a", "a", "/a/b"]
        {
            assert_eq!(help(folder), None, "{folder}");
        }
    }
}
