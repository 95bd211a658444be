//! Pages about runs: `maverl view`, a read-only server on the loopback address, or one file; `maverl show` and `maverl
//! extract`.
//!
//! [`Viewer::answer`] maps a request to a response without any HTTP library. Nothing is ever written into a run, and no
//! path of a request is ever the path of a file: runs have names in a list, and stages of episodes are a fixed list.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::query::{Request, Response, random_key};
use super::{api, assets};
use crate::report::rows::run::Run;
use crate::report::rows::scan;
use maverl::run_dir::MANIFEST;
use maverl::run_dir::disk::entries;

/// Maximum depth at which runs are searched below a directory: sweeps have their own directories.
const DEPTH: usize = 3;
/// Interval between two searches for new runs.
const SEARCH: Duration = Duration::from_secs(3);

/// Pages about the runs in some directories.
pub struct Viewer {
    /// First component of every path.
    key: String,
    /// Directories of runs, or runs.
    places: Vec<PathBuf>,
    /// Directory below which rows of old runs are kept.
    cache: Option<PathBuf>,
    runs: Mutex<Runs>,
}

/// Runs in the order in which they were found; the number and the name of a run never change.
#[derive(Default)]
struct Runs {
    all: Vec<Arc<Run>>,
    searched: Option<Instant>,
}

impl Viewer {
    /// Creates pages about runs, and about every run below directories.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random key.
    pub fn new(places: Vec<PathBuf>) -> std::io::Result<Self> {
        Ok(Self { key: random_key()?, places, cache: None, runs: Mutex::default() })
    }

    /// Keeps the rows that are made for old runs below a directory.
    #[must_use]
    pub fn keeping_rows(self, cache: Option<PathBuf>) -> Self {
        Self { cache, ..self }
    }

    /// Returns the path of the first page. It is secret: other users of the machine can reach the port, too.
    pub fn path(&self) -> String {
        format!("/{}/", self.key)
    }

    /// Returns the runs, with those that appeared since the last call.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.searched.is_none_or(|at| at.elapsed() >= SEARCH) {
            for (place, found) in self.places.iter().flat_map(|place| self.found(place)) {
                if !runs.all.iter().any(|run| run.path() == found) {
                    let name = self.name(place, &found);
                    let taken = |id: &str| runs.all.iter().any(|run| run.id == id);
                    let id = id(&name, &found, taken);
                    let run = Arc::new(Run::new(found, name).with_id(id));
                    scan::start(&run, self.cache.as_deref());
                    runs.all.push(run);
                }
            }
            runs.searched = Some(Instant::now());
        }
        runs.all.clone()
    }

    fn found<'p>(&self, place: &'p Path) -> Vec<(&'p Path, PathBuf)> {
        let mut found = Vec::new();
        find(place, DEPTH, &mut found);
        found.into_iter().map(|run| (place, run)).collect()
    }

    /// Returns the name of a run in lists: relative to the only directory, else as the user wrote it.
    fn name(&self, place: &Path, run: &Path) -> String {
        let inside = run.strip_prefix(place).ok().filter(|inside| !inside.as_os_str().is_empty());
        let last = || run.file_name().map(Path::new).unwrap_or(run);
        let short = match self.places.len() {
            1 => inside.unwrap_or_else(last),
            _ if run.is_relative() => run,
            _ => inside.unwrap_or_else(last),
        };
        short.display().to_string()
    }

    /// Returns a run by its name in addresses, or else by its number.
    pub(crate) fn run(&self, name: &str) -> Option<Arc<Run>> {
        let runs = self.runs();
        let named = runs.iter().find(|run| run.id == name);
        named.or_else(|| runs.get(name.parse::<usize>().ok()?)).cloned()
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request<'_>) -> Response {
        let path = match request.admitted(&self.key) {
            Ok(path) => path,
            Err(refusal) => return refusal,
        };
        let response = match path.strip_prefix("api/") {
            Some(path) => api::answer(self, request, path).unwrap_or_else(|refusal| refusal),
            None => assets::answer(path),
        };
        if request.method == "HEAD" { response.without_body() } else { response }
    }
}

/// Maximum number of characters of the name of a run in addresses that are from its name in lists.
pub(crate) const NAME: usize = 60;

/// Returns the name of a run in addresses, made of small letters, digits and `-`. A name that would not tell the run from
/// others has a hash of its path.
pub(crate) fn id(name: &str, path: &Path, taken: impl Fn(&str) -> bool) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let id: String = name.chars().take(NAME).map(plain).collect();
    let is_short = name.chars().count() <= NAME;
    if is_short && id.contains(|c| c != '-') && !taken(&id) {
        return id;
    }
    let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{id}-{hash}")
}

/// Finds the run directories in a directory and below it, sorted. What cannot be read has none.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if dir.join(MANIFEST).is_file() {
        found.push(dir.to_owned());
    } else if depth > 0 {
        let inner = entries(dir).unwrap_or_default();
        let hidden = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
        };
        for path in inner.into_iter().filter(|path| path.is_dir() && !hidden(path)) {
            find(&path, depth - 1, found);
        }
    }
}
