//! `maverl new`: creates the crate of a new team, which `docs/src/walkthrough.md` explains.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use super::{Failure, print};

/// Name in the template files, which the new name replaces.
const NAME: &str = "my_team";

/// Path of maverl in the template of the manifest; replaced by the real one.
const MAVERL: &str = "path = \"../maverl/maverl\"";

/// Folders of the other crates of a checkout that the template names, with their paths in it; replaced by the real ones.
const BESIDE: [(&str, &str); 2] = [
    ("crates/cli", "path = \"../maverl/crates/cli\""),
    ("orchestras", "path = \"../maverl/orchestras\""),
];

/// File with the versions that a checkout was tested with.
const LOCK: &str = "Cargo.lock";

/// The files of a team crate.
const FILES: [(&str, &str); 9] = [
    ("Cargo.toml", include_str!("new/manifest.toml")),
    ("src/lib.rs", include_str!("new/lib.rs")),
    ("src/main.rs", include_str!("new/main.rs")),
    ("prompts/writer.md", include_str!("new/writer.md")),
    ("prompts/critic.md", include_str!("new/critic.md")),
    ("run.toml", include_str!("new/run.toml")),
    ("tasks.jsonl", include_str!("new/tasks.jsonl")),
    ("README.md", include_str!("new/README.md")),
    (".gitignore", include_str!("new/gitignore")),
];

/// Reserved words of Rust.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Crates that every team depends on, and names of Cargo's own directories.
const TAKEN: [&str; 11] = [
    "alloc",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "maverl",
    "maverl_cli",
    "proc_macro",
    "std",
    "test",
];

/// Creates a crate in the current directory, and prints what to do next.
pub(super) fn create(name: &str, maverl: Option<&Path>) -> Result<ExitCode, Failure> {
    let dir = new_team(Path::new(""), name, maverl)?;
    print(&format!(
        "wrote {0}; go on with `cd {0}` and `cargo run --release -- list`",
        dir.display()
    ))
}

/// Error of creating a crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NewError {
    /// The name is not valid for a team crate.
    #[error("`{name}` cannot be the name of a team: {reason}; {}", instead.as_ref().map_or_else(
        || "for example `my_team`".to_owned(), |name| format!("did you mean `{name}`?")))]
    Name {
        /// The name.
        name: String,
        /// Reason why it is invalid.
        reason: &'static str,
        /// A valid name instead.
        instead: Option<String>,
    },
    /// The path already exists.
    #[error("`{}` is already there; choose another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// `--maverl` does not name a checkout of maverl.
    #[error(
        "`{}` is not the source of maverl: neither it nor its `maverl` directory has a `Cargo.toml` of the package \
         `maverl`; give the directory of a checkout", .0.display()
    )]
    NotMaverl(PathBuf),
    /// An operation of the operating system failed.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// Path of the operation.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Writes the crate of a new team into `parent`, and returns its path. It depends on the source at `maverl` (a
/// checkout, or the crate in it); else on the checkout that this maverl was built from; else on the published version.
/// With a checkout, the crate gets the versions of all dependencies that the checkout was tested with.
///
/// # Errors
///
/// See [`NewError`]; no file remains.
pub fn new_team(parent: &Path, name: &str, maverl: Option<&Path>) -> Result<PathBuf, NewError> {
    check_name(name)?;
    let source = match maverl {
        Some(given) => Some(source(given).ok_or_else(|| NewError::NotMaverl(given.to_owned()))?),
        None => checkout(),
    };
    let dir = parent.join(name);
    if fs::symlink_metadata(&dir).is_ok() {
        return Err(NewError::Exists(dir));
    }
    let sources = dependencies(source.as_deref(), parent);
    let written = FILES.iter().try_for_each(|(file, text)| {
        let text = text.replace(NAME, name);
        let text = sources.iter().fold(text, |text, (template, real)| text.replace(template, real));
        write(&dir.join(file), &text)
    });
    let written = written.and_then(|()| {
        let lock = source.as_ref().and_then(|crate_dir| Some(crate_dir.parent()?.join(LOCK)));
        let lock = lock.as_deref().and_then(|lock| fs::read_to_string(lock).ok());
        lock.map_or(Ok(()), |lock| write(&dir.join(LOCK), &lock))
    });
    if let Err(error) = written {
        // A remaining directory only takes space. The first error is the one to report.
        let _ = fs::remove_dir_all(&dir);
        return Err(error);
    }
    Ok(dir)
}

fn write(path: &Path, text: &str) -> Result<(), NewError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(path, text));
    written.map_err(|source| NewError::Write { path: path.to_owned(), source })
}

/// Validates a name as that of a crate, of a Rust path, and as the first part of agents' names.
fn check_name(name: &str) -> Result<(), NewError> {
    let Some(reason) = name_problem(name) else { return Ok(()) };
    let instead = [snake(name), format!("{}_team", snake(name))];
    let instead = instead.into_iter().find(|name| name_problem(name).is_none());
    Err(NewError::Name { name: name.to_owned(), reason, instead })
}

fn name_problem(name: &str) -> Option<&'static str> {
    if !is_snake(name) {
        Some("names are words of a-z and 0-9 joined by single `_`, a letter first")
    } else if KEYWORDS.contains(&name) {
        Some("Rust keeps this word for itself")
    } else if TAKEN.contains(&name) {
        Some("the name is taken")
    } else {
        None
    }
}

fn is_snake(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && name.split('_').all(|word| !word.is_empty())
}

/// Converts `MyTeam` and `my-team` to `my_team`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut after_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && after_lower) {
            snake.push('_');
        }
        if c.is_ascii_alphanumeric() {
            snake.push(c.to_ascii_lowercase());
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    snake.split('_').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

/// Returns the sources of the crates for the manifest of a crate in `parent`, each after that of the template.
fn dependencies(source: Option<&Path>, parent: &Path) -> Vec<(&'static str, String)> {
    let Some(source) = source else {
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        let all = [MAVERL].into_iter().chain(BESIDE.map(|(_, template)| template));
        return all.map(|template| (template, version.clone())).collect();
    };
    // The crate is a directory in `parent`, which may be empty.
    let here = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let from = physical(here).map(|here| here.join(NAME));
    let from = from.as_deref();
    let checkout = source.parent().unwrap_or(source);
    let beside = BESIDE.map(|(name, template)| (template, path_entry(from, &checkout.join(name))));
    [(MAVERL, path_entry(from, source))].into_iter().chain(beside).collect()
}

/// Returns `path = ".."` of a directory for a manifest, relative to that of the manifest if there is such a path.
fn path_entry(from: Option<&Path>, to: &Path) -> String {
    let path = from.and_then(|from| relative(from, to)).unwrap_or_else(|| to.display().to_string());
    format!("path = {}", toml::Value::String(path))
}

/// Returns the absolute path of a directory, if no part of it is a symbolic link. Cargo removes `..` from paths without a look
/// at links, so a relative path that starts below a link would lead elsewhere.
fn physical(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let canonical = fs::canonicalize(dir).ok()?;
    (absolute.components().eq(canonical.components())).then_some(canonical)
}

/// Returns the relative path from one absolute directory to another; `None` if they share only the root.
fn relative(from: &Path, to: &Path) -> Option<String> {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    if from.components().take(shared).filter(|part| matches!(part, Component::Normal(_))).count()
        == 0
    {
        return None;
    }
    let up = from.components().skip(shared).map(|_| "..".to_owned());
    let down =
        to.components().skip(shared).map(|part| part.as_os_str().to_string_lossy().into_owned());
    Some(up.chain(down).collect::<Vec<_>>().join("/"))
}

/// Returns the absolute path of maverl's crate at a path or in its `maverl` directory.
fn source(given: &Path) -> Option<PathBuf> {
    let dir = [given.to_owned(), given.join("maverl")].into_iter().find(|dir| is_maverl(dir))?;
    fs::canonicalize(dir).ok()
}

/// Returns true for the directory of maverl's crate.
fn is_maverl(dir: &Path) -> bool {
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = manifest.parse().unwrap_or_default();
    manifest.get("package").and_then(|package| package.get("name")?.as_str()) == Some("maverl")
}

/// Returns the crate in the checkout that this maverl was built from, if it still exists. Cargo's copy of a published
/// crate has no workspace above it.
fn checkout() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    source(dir).filter(|_| dir.join("Cargo.toml").is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
    }

    fn refused(name: &str) -> String {
        check_name(name).unwrap_err().to_string()
    }

    #[test]
    fn names_of_crates_that_are_parts_of_agents_names_are_accepted() {
        for name in ["a", "my_team", "team2", "math_3b"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn other_names_are_refused_with_one_that_would_do() {
        let cases = [
            ("my-team", "my_team"),
            ("MyTeam", "my_team"),
            ("my__team_", "my_team"),
            ("My Team 2", "my_team_2"),
            ("../team", "team"),
            ("match", "match_team"),
            ("Self", "self_team"),
            ("maverl", "maverl_team"),
            ("proc-macro", "proc_macro_team"),
        ];
        for (name, instead) in cases {
            let text = refused(name);
            assert!(text.ends_with(&format!("did you mean `{instead}`?")), "{text}");
        }
        for name in ["", "2", "2nd", "_", "größe/", "/"] {
            let text = refused(name);
            assert!(text.contains("did you mean `gr_e`?") || text.ends_with("`my_team`"), "{text}");
        }
    }

    #[test]
    fn a_crate_is_written_under_its_name_and_only_once() {
        let home = tempfile::tempdir().unwrap();
        let dir = new_team(home.path(), "word_game", None).unwrap();
        assert_eq!(dir, home.path().join("word_game"));
        for (file, _) in FILES {
            let text = fs::read_to_string(dir.join(file)).unwrap();
            assert!(!text.contains(NAME), "{file}");
        }
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some("word_game"));
        let dependencies = manifest["dependencies"].as_table().unwrap();
        assert_eq!(
            dependencies.keys().collect::<Vec<_>>(),
            ["maverl", "maverl-cli", "serde_json", "tokio"]
        );
        let root = fs::canonicalize(root()).unwrap();
        for (name, expected) in [("maverl", "maverl"), ("maverl-cli", "crates/cli")] {
            let path = dependencies[name]["path"].as_str().unwrap();
            let found = fs::canonicalize(dir.join(path)).unwrap();
            assert_eq!(found, root.join(expected));
        }
        let lock = root.join(LOCK);
        assert_eq!(fs::read_to_string(dir.join(LOCK)).unwrap(), fs::read_to_string(lock).unwrap());
        let error = new_team(home.path(), "word_game", None).unwrap_err().to_string();
        assert!(error.contains("word_game` is already there"), "{error}");
    }

    #[test]
    fn the_path_is_relative_where_both_are_under_one_directory() {
        for (from, to, expected) in [
            ("/home/me/my_team", "/home/me/maverl/maverl", Some("../maverl/maverl")),
            ("/home/me/maverl/my_team", "/home/me/maverl/maverl", Some("../maverl")),
            ("/home/me/a/b/my_team", "/home/me/maverl/maverl", Some("../../../maverl/maverl")),
            ("/tmp/my_team", "/home/me/maverl/maverl", None),
        ] {
            let found = relative(Path::new(from), Path::new(to));
            assert_eq!(found.as_deref(), expected, "{from} {to}");
        }
        let home = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(home.path()).unwrap();
        for file in ["maverl/maverl/Cargo.toml", "maverl/Cargo.lock"] {
            write(&home.path().join(file), "[package]\nname = \"maverl\"\n").unwrap();
        }
        let dir = new_team(&real, "word_game", Some(&home.path().join("maverl"))).unwrap();
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("maverl = { path = \"../maverl/maverl\" }"), "{manifest}");
        assert!(
            manifest.contains(
                "maverl-cli = { path = \"../maverl/crates/cli\", default-features = false, features = [\"serve\", \"view\"] }"
            ),
            "{manifest}"
        );
        assert!(
            manifest.contains(
                "#orchestras = { package = \"maverl-orchestras\", path = \"../maverl/orchestras\", features = [\"serve\"] }"
            ),
            "{manifest}"
        );
        assert!(dir.join(LOCK).is_file());
    }

    #[cfg(unix)]
    #[test]
    fn the_path_leads_to_the_checkout_from_below_links_and_names_with_blanks() {
        use std::os::unix::fs::symlink;

        let home = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(home.path()).unwrap();
        let checkout = root.join("a checkout");
        for file in ["maverl/Cargo.toml", "crates/cli/Cargo.toml", "Cargo.lock"] {
            write(&checkout.join(file), "[package]\nname = \"maverl\"\n").unwrap();
        }
        for parent in ["teams", "some teams", "a checkout/teams", "deep/er/teams"] {
            fs::create_dir_all(root.join(parent)).unwrap();
        }
        fs::create_dir(root.join("links")).unwrap();
        symlink(root.join("deep/er"), root.join("links/far")).unwrap();
        symlink(root.join("teams"), root.join("link")).unwrap();
        symlink(&checkout, root.join("link to a checkout")).unwrap();
        let parents =
            ["teams", "some teams", "a checkout/teams", "deep/er/teams", "link", "links/far/teams"];
        for (number, parent) in parents.iter().enumerate() {
            for maverl in ["a checkout", "link to a checkout"] {
                let name = format!("team{number}{}", if maverl == "a checkout" { "" } else { "b" });
                let dir = new_team(&root.join(parent), &name, Some(&root.join(maverl))).unwrap();
                let (path, found) = path_of_maverl(&dir);
                assert_eq!(found, Some(checkout.join("maverl")), "{path}");
                let is_below_link = parent.starts_with("link");
                assert_eq!(Path::new(&path).is_absolute(), is_below_link, "{parent}: {path}");
            }
        }
    }

    /// Returns the path of maverl in the manifest of a team, and where it leads to.
    fn path_of_maverl(dir: &Path) -> (String, Option<PathBuf>) {
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let path = manifest["dependencies"]["maverl"]["path"].as_str().unwrap();
        // As cargo does: without a look at links.
        let mut found = PathBuf::new();
        for part in dir.join(path).components() {
            match part {
                Component::ParentDir => assert!(found.pop()),
                part => found.push(part),
            }
        }
        (path.to_owned(), fs::canonicalize(&found).ok())
    }

    #[cfg(unix)]
    #[test]
    fn the_path_leads_to_a_checkout_below_the_folder_for_temporary_files_and_outside_of_it() {
        let temporary = fs::canonicalize(std::env::temp_dir()).unwrap();
        let program = std::env::current_exe().unwrap();
        let folders = [program.parent().unwrap(), Path::new("/dev/shm"), Path::new("/var/tmp")];
        let is_outside = |folder: &&Path| {
            let found = fs::canonicalize(folder).is_ok_and(|found| !found.starts_with(&temporary));
            found && tempfile::tempdir_in(folder).is_ok()
        };
        let outside = folders.into_iter().find(is_outside).expect("a folder of another place");
        let [below, outside] = [temporary.as_path(), outside]
            .map(|folder| tempfile::tempdir_in(folder).expect("the folder can be written"));
        let roots = [&below, &outside].map(|home| fs::canonicalize(home.path()).unwrap());
        for root in &roots {
            for file in ["maverl/Cargo.toml", "crates/cli/Cargo.toml", "Cargo.lock"] {
                let path = root.join("a checkout").join(file);
                write(&path, "[package]\nname = \"maverl\"\n").unwrap();
            }
        }
        // Each team with each checkout: both below one folder, and apart.
        for (n, checkout) in roots.iter().map(|root| root.join("a checkout")).enumerate() {
            for root in &roots {
                let dir = new_team(root, &format!("team{n}"), Some(&checkout)).unwrap();
                let (path, found) = path_of_maverl(&dir);
                assert_eq!(found, Some(checkout.join("maverl")), "{}: {path}", dir.display());
            }
        }
    }

    #[test]
    fn the_profiles_are_those_that_the_checkout_is_compiled_with() {
        let read = |text: String| -> toml::Table { text.parse().unwrap() };
        let ours = read(fs::read_to_string(root().join("Cargo.toml")).unwrap());
        // Lines of crates that a team has with more features are comments, as cargo warns of those that it does not have.
        let lines = FILES[0].1.lines().map(|line| match line.strip_prefix('#') {
            Some(entry) if entry.contains("= { opt-level") => entry,
            _ => line,
        });
        let team = read(lines.collect::<Vec<_>>().join("\n"));
        let mut profile = ours["profile"].clone();
        profile.as_table_mut().unwrap().remove("dist").unwrap(); // of released binaries
        profile["release"]["package"].as_table_mut().unwrap().remove("maverl-examples").unwrap();
        assert_eq!(team["profile"], profile);
    }

    #[test]
    fn maverl_is_found_at_a_checkout_or_at_its_crate_and_nowhere_else() {
        let checkout = root();
        let found = source(checkout);
        assert!(found.is_some());
        assert_eq!(source(&checkout.join("maverl")), found);
        let home = tempfile::tempdir().unwrap();
        let error = new_team(home.path(), "a", Some(home.path())).unwrap_err().to_string();
        assert!(error.contains("not the source of maverl"), "{error}");
        assert!(!home.path().join("a").exists());
    }

    #[test]
    fn the_files_name_what_is_replaced_in_them() {
        assert!(FILES[0].1.contains(MAVERL));
        assert!(BESIDE.iter().all(|(_, template)| FILES[0].1.contains(template)));
        // The names that `src/lib.rs` declares begin with that of the package.
        let named = FILES.iter().filter(|(_, text)| text.contains(NAME)).map(|(file, _)| *file);
        let named: Vec<&str> = named.collect();
        assert_eq!(named, ["Cargo.toml", "src/main.rs", "run.toml", "README.md"]);
    }
}
