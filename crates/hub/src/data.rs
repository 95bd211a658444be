//! Data sets on the hub: the files of a revision, of which some are downloaded.

use std::path::{Path, PathBuf};

use super::{Hub, HubId, RemoteFile, RepoKind, Snapshot, is_component};
use crate::{HubError, HubErrorKind as Kind};

/// Maximum depth of folders of a cached data set.
const DEEPEST: usize = 32;

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
        self.refer(id, &commit)?;
        Ok(Snapshot { kind: id.kind, repo: id.repo.clone(), commit, dir, files })
    }

    fn cached_data(&self, id: &HubId) -> Result<Snapshot, HubError> {
        let (commit, dir) = self.cached_commit(id).map_err(|what| {
            let cache = self.cache.display();
            let message = format!(
                "{id}: {what} in {cache}, and `HF_HUB_OFFLINE` is set; unset it to download the data set"
            );
            HubError::new(Kind::NotFound, message)
        })?;
        let mut files = Vec::new();
        collect_files(&dir, "", DEEPEST, &mut files);
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Snapshot { kind: id.kind, repo: id.repo.clone(), commit, dir, files })
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
