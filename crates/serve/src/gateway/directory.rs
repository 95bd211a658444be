//! The directories of an episode's program: one to work in, with a copy of files, and a home beside it.

use std::fs::{self, DirBuilder, FileType};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maverl::config::source::irregular_kind;

#[cfg(unix)]
use super::cleanup;

/// Maximum number of directories of one name, as runs with equal seeds have at the same time.
const MOST_NAMED: usize = 1000;
/// Beginning of the names of directories, by which `cleanup` knows them.
const NAME: &str = "maverl-";
/// Number of attempts to remove a directory: a program that was killed may write for a moment.
const ATTEMPTS: u32 = 50;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// Directories of a program, which nobody else may read. Dropping it removes them.
#[derive(Debug)]
pub(super) struct EpisodeDirectory {
    root: PathBuf,
}

impl EpisodeDirectory {
    /// Creates the directories below that of temporary files. Their name is that of the episode's seed, so that a run that is
    /// repeated has them again: programs tell models where they work. `files` are copied.
    pub(super) fn create(seed: u64, files: Option<&Path>) -> Result<Self, String> {
        let above = std::env::temp_dir();
        let root = new_directory(&above, seed);
        let root = root.map_err(|error| format!("no directory in {}: {error}", above.display()))?;
        let directory = Self { root };
        #[cfg(unix)]
        directory.name().inspect(|name| cleanup::watch(name));
        if let Some(files) = files.filter(|files| is_below(&above, files)) {
            return Err(copies_itself(files, &above));
        }
        let made = fs::create_dir(directory.home()).and_then(|()| match files {
            Some(files) => copy_directory(files, &directory.work()),
            None => fs::create_dir(directory.work()),
        });
        made.map_err(|error| format!("the directory of the episode is not made: {error}"))?;
        Ok(directory)
    }

    /// Returns the name of the directory of both.
    #[cfg(unix)]
    fn name(&self) -> Option<&str> {
        self.root.file_name()?.to_str()
    }

    /// Returns the directory in which the program runs.
    pub(super) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Returns its home.
    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }
}

impl Drop for EpisodeDirectory {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            match fs::remove_dir_all(&self.root) {
                Err(error) if error.kind() != ErrorKind::NotFound => std::thread::sleep(PAUSE),
                _ => {
                    #[cfg(unix)]
                    self.name().inspect(|name| cleanup::forget(name));
                    return;
                }
            }
        }
        let path = self.root.display();
        maverl::output::tell(format_args!("warning: {path}, of a program, cannot be removed"));
    }
}

/// Creates a directory that only this user may read. Returns its path.
fn new_directory(above: &Path, seed: u64) -> io::Result<PathBuf> {
    let builder = private_builder();
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for number in 0..MOST_NAMED {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let root = above.join(format!("{NAME}{seed:016x}{suffix}"));
        match builder.create(&root) {
            Ok(()) => return Ok(root),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(unix)]
fn private_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

#[cfg(not(unix))]
fn private_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Returns true if a directory is another one or below it, wherever links lead.
pub(super) fn is_below(directory: &Path, above: &Path) -> bool {
    let [directory, above] = [directory, above].map(fs::canonicalize);
    directory.ok().zip(above.ok()).is_some_and(|(directory, above)| directory.starts_with(above))
}

/// Returns the problem of files that have the directory of temporary files below them.
pub(super) fn copies_itself(files: &Path, temporary: &Path) -> String {
    format!(
        "the directory of temporary files, {}, is below {}, so that a copy would copy itself; set `TMPDIR` to another \
         directory, or name other `files`",
        temporary.display(),
        files.display()
    )
}

/// Returns what is below a directory and no directory itself, sorted by path. Links stay links.
fn entries_below(directory: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            entries.append(&mut entries_below(&entry.path())?);
        } else {
            entries.push((entry.path(), kind));
        }
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(entries)
}

/// Returns the files below a directory, sorted by their paths. Links are none.
pub(super) fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let files = entries_below(directory)?.into_iter().filter(|(_, kind)| kind.is_file());
    Ok(files.map(|(path, _)| path).collect())
}

/// Returns a problem for each file below a directory that has no content of its own: pipes, sockets and devices.
pub(super) fn irregular_files(directory: &Path) -> io::Result<Vec<String>> {
    let entries = entries_below(directory)?.into_iter();
    let irregular = entries.filter(|(_, kind)| !kind.is_file() && !kind.is_symlink());
    Ok(irregular.map(|(path, kind)| irregular_file(&path, kind)).collect())
}

fn irregular_file(path: &Path, kind: FileType) -> String {
    let (path, kind) = (path.display(), irregular_kind(kind));
    format!("{path} is {kind}; regular files, directories and links are copied alone: remove it")
}

/// Copies a directory with everything below it. Links stay links.
fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, copy) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&entry.path(), &copy)?;
        } else if kind.is_symlink() {
            copy_link(&entry.path(), &copy)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), copy)?;
        } else {
            return Err(io::Error::other(irregular_file(&entry.path(), kind)));
        }
    }
    Ok(())
}

#[cfg(unix)]
fn copy_link(from: &Path, to: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(fs::read_link(from)?, to)
}

#[cfg(not(unix))]
fn copy_link(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn directories_of_equal_seeds_differ_and_leave_nothing_behind() {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("below")).unwrap();
        fs::write(files.path().join("below/a.txt"), "a").unwrap();
        fs::write(files.path().join("z.txt"), "z").unwrap();
        let found = files_below(files.path()).unwrap();
        assert_eq!(found, ["below/a.txt", "z.txt"].map(|name| files.path().join(name)));
        let seed = 0x0123_4567_0000_0000 | u64::from(std::process::id());
        let one = EpisodeDirectory::create(seed, Some(files.path())).unwrap();
        let other = EpisodeDirectory::create(seed, None).unwrap();
        assert_ne!(one.work(), other.work());
        assert_eq!(fs::read_to_string(one.work().join("below/a.txt")).unwrap(), "a");
        assert_eq!(fs::read_dir(other.work()).unwrap().count(), 0);
        fs::write(one.work().join("below/a.txt"), "b").unwrap();
        assert_eq!(fs::read_to_string(files.path().join("below/a.txt")).unwrap(), "a");
        let roots = [&one, &other].map(|it| it.root.clone());
        drop((one, other));
        assert!(roots.iter().all(|root| !root.exists()));
        // A run that is repeated works at the same place.
        assert_eq!(EpisodeDirectory::create(seed, None).unwrap().root, roots[0]);
        let missing = EpisodeDirectory::create(seed, Some(Path::new("/no/such/files")));
        assert!(missing.unwrap_err().contains("is not made"));
        assert!(!roots[0].exists());
    }

    #[cfg(unix)]
    #[test]
    fn what_has_no_content_of_its_own_is_not_copied_but_named() {
        let files = tempfile::tempdir().unwrap();
        let place = |name: &str| files.path().join(name);
        fs::create_dir(place("below")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", place("link")).unwrap();
        assert_eq!(irregular_files(files.path()).unwrap(), Vec::<String>::new());
        let made = std::process::Command::new("mkfifo").arg(place("below/pipe")).status();
        assert!(made.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
        let told = irregular_files(files.path()).unwrap();
        assert!(told.len() == 2 && told[0].contains("below/pipe is a pipe"), "{told:?}");
        assert!(told[1].contains("socket is a socket"), "{told:?}");
        let copied = EpisodeDirectory::create(71, Some(files.path())).unwrap_err();
        assert!(copied.contains("; regular files, directories and links are copied alone"));
    }

    #[test]
    fn temporary_files_below_the_files_are_refused() {
        let above = std::env::temp_dir();
        let refused = EpisodeDirectory::create(72, Some(&above)).unwrap_err();
        assert!(refused.contains("a copy would copy itself"), "{refused}");
        assert!(is_below(&above, Path::new("/")));
        assert!(!is_below(Path::new("/"), &above));
        assert!(!is_below(&above, &above.join("no such directory")));
    }
}
