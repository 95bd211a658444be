//! Data sets on the hub: the files of a revision, of which some are downloaded.
//!
//! The cache keeps the hub's list of the files of a commit, `datasets--ORG--NAME/.listings/COMMIT.json`, so that a data set of
//! which a part is downloaded is no smaller one offline. The other libraries keep no such list: of what they downloaded, the
//! files are those in the cache, and the shards that the names of these count (`-00000-of-00002`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Hub, HubId, RemoteFile, RepoKind, Snapshot, is_component, read_file};
use crate::{HubError, HubErrorKind as Kind};

/// Maximum depth of folders of a cached data set.
const DEEPEST: usize = 32;
/// Maximum number of shards that a name counts.
const MOST_SHARDS: usize = 10_000;

impl HubId {
    /// Returns the id of a data set. A revision is a branch, a tag, a commit or a reference such as `refs/pr/3`.
    ///
    /// # Errors
    ///
    /// If repository or revision have another form.
    pub fn data_set(repo: &str, revision: &str) -> Result<Self, HubError> {
        let fine = repo.split('/').count() <= 2
            && repo.split('/').all(is_component)
            && revision.split('/').all(is_component);
        if fine {
            let (repo, revision) = (repo.to_owned(), revision.to_owned());
            return Ok(Self { kind: RepoKind::Data, repo, revision });
        }
        let message = format!("`{repo}@{revision}` names no data set; write `ORG/NAME@REVISION`");
        Err(HubError::new(Kind::Argument, message))
    }
}

impl Snapshot {
    /// Iterates over the files, each with its size in bytes if the hub lists one.
    pub fn files(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.files.iter().map(|file| (file.name.as_str(), file.size))
    }

    /// Returns true if the files are those that the cache has, of a commit whose list it does not have.
    pub fn is_of_cache(&self) -> bool {
        self.is_of_cache
    }
}

impl Hub {
    /// Resolves the revision of a data set to its current commit, and lists its files. Offline, both are those in the cache.
    ///
    /// # Errors
    ///
    /// If the hub has no such data set, refuses it or cannot be reached; offline, if the cache has nothing of it.
    pub fn pin_data(&self, id: &HubId) -> Result<Snapshot, HubError> {
        if self.offline {
            return self.cached_data(id);
        }
        let (commit, files) = self.list(id)?;
        let dir = self.folder(id.kind, &id.repo).join("snapshots").join(&commit);
        let listed = serde_json::to_vec(&files).unwrap_or_default();
        Self::keep(&self.listing(id, &commit), &listed)?;
        self.refer(id, &commit)?;
        Ok(Snapshot {
            kind: id.kind,
            repo: id.repo.clone(),
            commit,
            dir,
            files,
            is_of_cache: false,
        })
    }

    /// Returns the path of the list of the files of a commit.
    fn listing(&self, id: &HubId, commit: &str) -> PathBuf {
        self.folder(id.kind, &id.repo).join(".listings").join(format!("{commit}.json"))
    }

    fn cached_data(&self, id: &HubId) -> Result<Snapshot, HubError> {
        let (commit, dir) = self.cached_commit(id).map_err(|what| {
            let cache = self.cache.display();
            let message = format!(
                "{id}: {what} in {cache}, and `HF_HUB_OFFLINE` is set; unset it to download the data set"
            );
            HubError::new(Kind::NotFound, message)
        })?;
        let listed = read_file(&self.listing(id, &commit)).ok();
        let listed = listed.and_then(|text| serde_json::from_slice::<Vec<RemoteFile>>(&text).ok());
        let is_of_cache = listed.is_none();
        let files = listed.unwrap_or_else(|| cached_files(&dir));
        Ok(Snapshot { kind: id.kind, repo: id.repo.clone(), commit, dir, files, is_of_cache })
    }

    /// Downloads a file of a data set, unless the cache has it, and returns its path. It is checked against the hub's size
    /// and checksum; a download that was cut goes on where it ended.
    ///
    /// # Errors
    ///
    /// If the file is missing, damaged or refused, or the hub cannot be reached.
    pub fn fetch(&self, snapshot: &Snapshot, name: &str) -> Result<PathBuf, HubError> {
        let file = snapshot.file(name).ok_or_else(|| {
            let message = format!("{snapshot}: there is no file `{name}`");
            HubError::new(Kind::NotFound, message)
        })?;
        self.get(snapshot, file)?;
        Ok(snapshot.dir.join(name))
    }
}

/// Returns the files below the folder of a snapshot, and the shards that are missing among them.
fn cached_files(dir: &Path) -> Vec<RemoteFile> {
    let mut files = Vec::new();
    collect_files(dir, "", DEEPEST, &mut files);
    let mut shards: BTreeMap<(String, String, usize), Vec<usize>> = BTreeMap::new();
    for (before, at, count, after) in files.iter().filter_map(|file| shard(&file.name)) {
        let ending = after.find('.').map_or("", |dot| &after[dot..]);
        let of = (before.to_owned(), ending.to_owned(), count);
        shards.entry(of).or_default().push(at);
    }
    for ((before, ending, count), found) in shards {
        let missing = (0..count.min(MOST_SHARDS)).filter(|at| !found.contains(at));
        files.extend(missing.map(|at| RemoteFile {
            name: format!("{before}-{at:05}-of-{count:05}{ending}"),
            size: None,
            sha256: None,
            blob: None,
        }));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Divides the name of a shard, `BEFORE-00000-of-00002AFTER`: what is before it, its number, the number of shards, and what
/// follows. `None` for another file.
fn shard(name: &str) -> Option<(&str, usize, usize, &str)> {
    let (at, _) = name.rmatch_indices("-of-").next()?;
    let number = |text: Option<&str>| {
        text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
    };
    let start = at.checked_sub(6).filter(|start| name.get(*start..=*start) == Some("-"))?;
    let (this, count) = (number(name.get(start + 1..at))?, number(name.get(at + 4..at + 9))?);
    Some((&name[..start], this, count, &name[at + 9..]))
}

/// Adds the files below a folder. A link to a missing file does not count as one.
fn collect_files(folder: &Path, prefix: &str, deepest: usize, files: &mut Vec<RemoteFile>) {
    let Some(deeper) = deepest.checked_sub(1) else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        if path.is_dir() {
            collect_files(&path, &format!("{name}/"), deeper, files);
        } else if path.is_file() {
            let size = std::fs::metadata(&path).ok().map(|file| file.len());
            files.push(RemoteFile { name, size, sha256: None, blob: None });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns a hub without a network, and the id of a data set whose cached commit has files.
    fn cached(cache: &Path, files: &[&str]) -> (Hub, HubId) {
        let id = HubId::data_set("me/mine", "main").unwrap();
        let endpoint = "http://127.0.0.1:9".to_owned();
        let hub =
            Hub { endpoint, cache: cache.to_owned(), token: None, offline: true, patience_s: 1.0 };
        let commit = "0".repeat(40);
        hub.refer(&id, &commit).unwrap();
        for file in files {
            let path = hub.folder(id.kind, &id.repo).join("snapshots").join(&commit).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        }
        (hub, id)
    }

    #[test]
    fn offline_a_shard_that_was_not_downloaded_is_an_error_and_not_a_smaller_split() {
        let cache = tempfile::tempdir().unwrap();
        let shard = |at: usize| format!("data/train-0000{at}-of-00003-0a1b.parquet");
        let (hub, id) = cached(cache.path(), &[&shard(0), &shard(2), "other.jsonl"]);
        let pinned = hub.pin_data(&id).unwrap();
        let names: Vec<&str> = pinned.files().map(|(name, _)| name).collect();
        let missing = "data/train-00001-of-00003.parquet";
        assert_eq!(names, [shard(0).as_str(), missing, &shard(2), "other.jsonl"]);
        assert!(pinned.is_of_cache());
        hub.fetch(&pinned, &shard(2)).unwrap();
        let told = hub.fetch(&pinned, missing).unwrap_err().to_string();
        assert!(told.contains("is not in the cache, and `HF_HUB_OFFLINE` is set"), "{told}");
    }

    #[test]
    fn offline_the_files_of_a_commit_are_those_that_the_hub_listed() {
        let cache = tempfile::tempdir().unwrap();
        let (hub, id) = cached(cache.path(), &["train.jsonl"]);
        let file = |name: &str| RemoteFile {
            name: name.to_owned(),
            size: Some(2),
            sha256: None,
            blob: Some("b".repeat(40)),
        };
        let listed = [file("test.jsonl"), file("train.jsonl")];
        let text = serde_json::to_vec(&listed).unwrap();
        Hub::keep(&hub.listing(&id, &"0".repeat(40)), &text).unwrap();
        let pinned = hub.pin_data(&id).unwrap();
        assert_eq!(pinned.files, listed);
        assert!(!pinned.is_of_cache());
        hub.fetch(&pinned, "train.jsonl").unwrap();
        let told = hub.fetch(&pinned, "test.jsonl").unwrap_err().to_string();
        assert!(told.contains("`test.jsonl` is not in the cache"), "{told}");
    }

    #[test]
    fn names_of_shards_are_divided_and_others_are_none() {
        assert_eq!(shard("d/a-00001-of-00002.gz"), Some(("d/a", 1, 2, ".gz")));
        for name in ["a-of-b", "0001-of-00002.x", "é00000-of-00001", "a-00000-of-1", "a.parquet"] {
            assert_eq!(shard(name), None, "{name}");
        }
    }
}
