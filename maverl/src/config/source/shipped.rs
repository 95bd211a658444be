//! Configurations that a program brings: `example:NAME` and `recipe:PAPER/NAME`, in place of the path of a file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::did_you_mean;
use crate::IntoMap;

/// A file that a linked crate brings: a configuration, or a file that one names.
#[derive(Debug)]
pub struct ShippedFile {
    /// Path in the repository, below `examples` or `recipes`.
    pub path: &'static str,
    /// Content.
    pub content: &'static [u8],
}

/// Files that a linked crate brings.
pub struct ShippedFiles(pub &'static [ShippedFile]);

inventory::collect!(ShippedFiles);

/// Prefixes of names, with the directories of the repository that they stand for.
const KINDS: [(&str, &str); 2] = [("example:", "examples"), ("recipe:", "recipes")];

/// Name of a configuration, such as `example:single`. A program need not have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShippedName {
    prefix: &'static str,
    dir: &'static str,
    /// Path below the directory, without the extension.
    rest: String,
}

/// A configuration that the program brings.
#[derive(Debug, Clone)]
pub struct Shipped {
    /// Name.
    pub name: ShippedName,
    file: &'static ShippedFile,
}

impl ShippedName {
    /// Reads a name; `None` for the path of a file. The extension may be written, as files of stages do.
    pub fn parse(given: &Path) -> Option<Self> {
        let given = given.to_str()?;
        KINDS.into_iter().find_map(|(prefix, dir)| {
            let rest = given.strip_prefix(prefix)?;
            let rest = rest.strip_suffix(".toml").unwrap_or(rest);
            Some(Self { prefix, dir, rest: plain_path(Path::new(rest)).display().to_string() })
        })
    }

    /// Returns the path of the configuration in the repository.
    fn path(&self) -> String {
        format!("{}/{}.toml", self.dir, self.rest)
    }

    /// Returns the configuration's name in messages, which is its path below `examples` or `recipes`.
    pub(super) fn shown_name(&self) -> String {
        format!("{}.toml", self.rest)
    }

    /// Returns the last part of the name.
    fn stem(&self) -> &str {
        self.rest.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the configuration with this name, if the program has it.
    pub fn find(&self) -> Option<Shipped> {
        let file = files().get(self.path().as_str()).copied()?;
        Some(Shipped { name: self.clone(), file })
    }

    /// Returns the message and the help for a name that the program does not have.
    pub fn unknown_name(&self) -> (String, String) {
        let all: Vec<String> = shipped_configs().iter().map(|one| one.name.to_string()).collect();
        let kind = self.prefix.trim_end_matches(':');
        let message = format!("there is no {kind} `{}`", self.rest);
        let help = match did_you_mean(&self.to_string(), all.iter().map(String::as_str)) {
            _ if all.is_empty() => {
                "this program has no examples and recipes; those that ship with maverl are in the program `maverl`, which \
                 `cargo install maverl-cli` installs"
                    .to_owned()
            }
            Some(close) => format!("did you mean `{close}`?"),
            None => "`maverl examples` lists those that there are".to_owned(),
        };
        (message, help)
    }
}

impl std::fmt::Display for ShippedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.prefix, self.rest)
    }
}

impl Shipped {
    /// Returns the text of the configuration.
    pub fn text(&self) -> &'static str {
        std::str::from_utf8(self.file.content).unwrap_or_default()
    }

    /// Returns the configuration as a table.
    pub fn table(&self) -> toml::Table {
        self.text().parse().unwrap_or_default()
    }

    /// Returns the stages of a file of stages.
    pub fn stages(&self) -> Vec<Self> {
        let table = self.table();
        let names = table.get("stages").and_then(toml::Value::as_array).into_iter().flatten();
        names.filter_map(|name| self.stage(name.as_str()?)).collect()
    }

    fn stage(&self, name: &str) -> Option<Self> {
        let path = Path::new(&self.name.rest).with_file_name(name);
        ShippedName::parse(Path::new(&format!("{}{}", self.name.prefix, path.display())))?.find()
    }

    /// Returns all files that the configuration needs and the program has: itself, its stages, and what they name.
    pub fn files(&self) -> Vec<&'static ShippedFile> {
        let mut found = vec![self.file];
        found.extend(self.named_files());
        found.extend(self.stages().iter().flat_map(Self::files));
        found.sort_by_key(|file| file.path);
        found.dedup_by_key(|file| file.path);
        found
    }

    /// Returns the files that the values of the configuration name and the program has.
    fn named_files(&self) -> Vec<&'static ShippedFile> {
        let all = files();
        let mut found: Vec<&'static ShippedFile> = Vec::new();
        each_string(&toml::Value::Table(self.table()), &mut |text| {
            let path = Path::new(self.file.path).with_file_name(text);
            found.extend(plain_path(&path).to_str().and_then(|path| all.get(path).copied()));
        });
        found.retain(|file: &&ShippedFile| !file.path.ends_with(".toml"));
        found
    }

    /// Returns the path of the configuration when it is written into a directory. An example is written at the top of it, and a
    /// recipe, whose paths begin two directories above it, below `recipes`.
    pub fn written_path(&self) -> &'static Path {
        below(self.file)
    }

    /// Writes the configuration and what it names into a directory. Returns the paths of all its files.
    ///
    /// # Errors
    ///
    /// If one is there with another content, in which case nothing is written, or a file cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let files = self.files();
        for file in &files {
            let path = dir.join(below(file));
            if path.exists() && std::fs::read(&path)? != file.content {
                let reason =
                    "it is there with another content; remove it, or write into another directory";
                return Err(io::Error::other(format!("{}: {reason}", path.display())));
            }
        }
        write_files(&files, dir)
    }

    /// Returns the directory that relative paths of the configuration are relative to. For an example that names files of the
    /// program, it is their directory, which [`Shipped::unpack`] writes; for another, the working directory. A recipe counts from
    /// where it would be if the working directory were the root of the repository.
    pub(super) fn base(&self) -> PathBuf {
        let named = self.named_files();
        let whole = match cache_dir(&named).filter(|_| !named.is_empty()) {
            Some(cache) => cache.join(below(self.file)),
            None if below(self.file) == Path::new(self.file.path) => self.file.path.into(),
            None => PathBuf::new(),
        };
        whole.parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Writes the files that the configuration names into the user's cache directory, if there are any.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or it cannot be written.
    pub(super) fn unpack(&self) -> io::Result<()> {
        let named = self.named_files();
        if named.is_empty() {
            return Ok(());
        }
        let Some(dir) = cache_dir(&named) else {
            return Err(io::Error::other("neither `HOME` nor `XDG_CACHE_HOME` names a directory"));
        };
        write_files(&named, &dir).map(drop)
    }
}

/// Returns the configurations that the linked crates bring, by name.
pub fn shipped_configs() -> Vec<Shipped> {
    let configurations = files().into_values().filter(|file| file.path.ends_with(".toml"));
    configurations.filter_map(of_file).collect()
}

/// Returns the configuration in a file, named by its path.
fn of_file(file: &'static ShippedFile) -> Option<Shipped> {
    KINDS.into_iter().find_map(|(prefix, dir)| {
        let rest = file.path.strip_prefix(dir)?.strip_prefix('/')?.strip_suffix(".toml")?;
        Some(Shipped { name: ShippedName { prefix, dir, rest: rest.to_owned() }, file })
    })
}

/// Returns the name of the runs of a configuration: that of its file without the extension, or the last part of its name.
pub fn config_stem(given: &Path) -> String {
    match ShippedName::parse(given) {
        Some(name) => name.stem().to_owned(),
        None => given.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// Returns all files of the linked crates, by path.
fn files() -> BTreeMap<&'static str, &'static ShippedFile> {
    let all = inventory::iter::<ShippedFiles>.into_iter().flat_map(|files| files.0);
    all.map(|file| (file.path, file)).into_map()
}

/// Returns the path of a file below the directory that it is written into.
fn below(file: &'static ShippedFile) -> &'static Path {
    let path = Path::new(file.path);
    path.strip_prefix("examples").unwrap_or(path)
}

/// Writes files into a directory. Those that are there with their content are left.
fn write_files(files: &[&'static ShippedFile], dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for file in files {
        let path = dir.join(below(file));
        if std::fs::read(&path).ok().as_deref() != Some(file.content) {
            write_whole(&path, file.content)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        }
        written.push(path);
    }
    Ok(written)
}

/// Writes a file under another name, and renames it, so that another process never reads a part of it.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(&partial, content)?;
    std::fs::rename(&partial, path)
}

/// Returns the directory of files in the user's cache. It has a name of its own for each content.
fn cache_dir(files: &[&'static ShippedFile]) -> Option<PathBuf> {
    let caches = absolute_dir("XDG_CACHE_HOME");
    let caches = caches.or_else(|| Some(absolute_dir("HOME")?.join(".cache")))?;
    let mut hash = Sha256::new();
    files.iter().for_each(|file| hash.update(file.content));
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Some(caches.join("maverl").join("examples").join(hash))
}

/// Returns the directory that an environment variable names by its absolute path.
fn absolute_dir(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute())
}

/// Calls a function with every string of a value.
fn each_string(value: &toml::Value, call: &mut dyn FnMut(&str)) {
    match value {
        toml::Value::String(text) => call(text),
        toml::Value::Array(items) => items.iter().for_each(|item| each_string(item, call)),
        toml::Value::Table(table) => table.values().for_each(|item| each_string(item, call)),
        _ => {}
    }
}

/// Returns a path without `.` and `..`, where these follow a name.
pub(super) fn plain_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let after_name = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if after_name => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn name(given: &str) -> Option<String> {
        ShippedName::parse(Path::new(given)).map(|name| name.to_string())
    }

    #[test]
    fn a_name_has_a_prefix_and_may_have_the_extension_and_a_way_up() {
        assert_eq!(name("example:single").unwrap(), "example:single");
        assert_eq!(name("recipe:drmas/a-2.5.toml").unwrap(), "recipe:drmas/a-2.5");
        assert_eq!(name("example:verifier/../verifier.toml").unwrap(), "example:verifier");
        for path in ["single.toml", "./example:single", "examples/single.toml", "c:example"] {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn runs_have_the_last_part_of_a_name() {
        let stem = |path: &str| config_stem(Path::new(path));
        assert_eq!(stem("example:single"), "single");
        assert_eq!(stem("recipe:maverl/gsm8k-qwen2.5-3b-vdn"), "gsm8k-qwen2.5-3b-vdn");
        assert_eq!(stem("configs/run.toml"), "run");
    }

    #[test]
    fn a_path_is_shortened_as_far_as_names_go() {
        let plain = |path: &str| plain_path(Path::new(path)).display().to_string();
        assert_eq!(plain("recipes/drmas/../.."), "");
        assert_eq!(plain("../a/./b/../c"), "../a/c");
        assert_eq!(plain("/a/../b"), "/b");
    }

    #[test]
    fn a_program_without_the_built_in_teams_says_where_examples_are() {
        let (message, help) =
            ShippedName::parse(Path::new("example:single")).unwrap().unknown_name();
        assert_eq!(message, "there is no example `single`");
        assert!(help.contains("cargo install maverl-cli"), "{help}");
    }

    #[test]
    fn a_file_is_written_whole_and_one_with_another_content_stays() {
        static FILE: ShippedFile =
            ShippedFile { path: "examples/sub/a.toml", content: b"seed = 1" };
        let home = tempfile::tempdir().unwrap();
        let name = ShippedName::parse(Path::new("example:sub/a")).unwrap();
        let shipped = Shipped { name, file: &FILE };
        let path = home.path().join("sub/a.toml");
        assert_eq!(shipped.write(home.path()).unwrap(), std::slice::from_ref(&path));
        assert_eq!(shipped.write(home.path()).unwrap(), std::slice::from_ref(&path));
        assert_eq!(std::fs::read(&path).unwrap(), FILE.content);
        std::fs::write(&path, "mine").unwrap();
        let error = shipped.write(home.path()).unwrap_err().to_string();
        assert!(error.contains("another content"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
