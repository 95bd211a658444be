//! Network access, through `hf-hub`.

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use serde::Deserialize;

use super::{Hub, HubId, RemoteFile, Snapshot, is_commit};
use crate::model::{ModelError, ModelErrorKind};

/// Number of retries of an interrupted transfer.
const RETRIES: usize = 2;

/// Metadata of a revision on the hub.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

impl Hub {
    /// Returns the commit of a revision, and its files.
    pub(super) fn list(&self, id: &HubId) -> Result<(String, Vec<RemoteFile>), ModelError> {
        let failed = |error: ApiError| {
            let message = format!("{id}: {}", self.explain(&error, None));
            ModelError::new(kind(&error), message).with_source(error)
        };
        let repo = Repo::with_revision(id.repo.clone(), RepoType::Model, id.revision.clone());
        let request = self.api().map_err(failed)?.repo(repo).info_request();
        let answer = request.query("blobs", "true").call();
        let listing = answer.and_then(|mut answer| answer.body_mut().read_json::<Listing>());
        let listing = listing.map_err(|e| failed(Box::new(e).into()))?;
        let inside = |name: &str| name.split('/').all(|part| !["", ".", ".."].contains(&part));
        let named = |file: &Sibling| inside(&file.rfilename) && !file.rfilename.contains('\\');
        if !is_commit(&listing.sha) || !listing.siblings.iter().all(named) {
            return Err(ModelError::new(
                ModelErrorKind::Hub,
                format!("{id}: {} does not answer as the hub does", self.endpoint),
            ));
        }
        let file = |file: Sibling| RemoteFile {
            name: file.rfilename,
            size: file.size,
            sha256: file.lfs.and_then(|lfs| lfs.sha256),
        };
        Ok((listing.sha, listing.siblings.into_iter().map(file).collect()))
    }

    /// Downloads a file into the cache.
    pub(super) fn transfer(
        &self,
        snapshot: &Snapshot,
        file: &RemoteFile,
    ) -> Result<(), ModelError> {
        let repo = (snapshot.repo.clone(), snapshot.commit.clone());
        let repo = Repo::with_revision(repo.0, RepoType::Model, repo.1);
        let got = self.api().and_then(|api| api.repo(repo).download(&file.name));
        let failed = |error: ApiError| {
            let why = self.explain(&error, Some(&file.name));
            let message = format!("{snapshot}: cannot download `{}`: {why}", file.name);
            ModelError::new(kind(&error), message).with_source(error)
        };
        got.map(drop).map_err(failed)
    }

    fn api(&self) -> Result<Api, ApiError> {
        ApiBuilder::from_cache(Cache::new(self.cache.clone()))
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_retries(RETRIES)
            .with_user_agent("maverl", env!("CARGO_PKG_VERSION"))
            .build()
    }

    /// Returns a message with the error and a remedy.
    fn explain(&self, error: &ApiError, file: Option<&str>) -> String {
        let at = &self.endpoint;
        match error {
            ApiError::TooManyRetries(error) => self.explain(error, file),
            ApiError::RequestError(error) => match **error {
                ureq::Error::StatusCode(401) if self.token.is_none() => {
                    format!(
                        "{at} asks who you are (401): it is private, gated or not there; set `HF_TOKEN`"
                    )
                }
                ureq::Error::StatusCode(401) => {
                    format!(
                        "{at} does not accept the token in `HF_TOKEN` (401), or the model is not there"
                    )
                }
                ureq::Error::StatusCode(403) => format!(
                    "{at} denies access (403): accept the model's terms on its page, and set `HF_TOKEN` to a token \
                     that may read it"
                ),
                ureq::Error::StatusCode(404) => match file {
                    Some(file) => format!("{at} has no file `{file}` there (404)"),
                    None => format!("{at} has no such model or revision (404)"),
                },
                ureq::Error::StatusCode(code) => {
                    format!("{at} answers with status {code}; try again later")
                }
                ureq::Error::Json(ref e) => format!("{at} does not answer as the hub does: {e}"),
                ref other => format!(
                    "{at} cannot be reached: {other}; `HF_ENDPOINT` may name a mirror, and `HF_HUB_OFFLINE=1` uses \
                     what is in the cache"
                ),
            },
            ApiError::LockAcquisition(path) => {
                format!("another process is downloading it ({}); wait for that", path.display())
            }
            ApiError::InvalidResume => {
                format!(
                    "an earlier part of it is damaged; remove `blobs/*.part` in {}",
                    self.cache.display()
                )
            }
            ApiError::IoError(error) => format!("{error} (the cache is {})", self.cache.display()),
            other => format!("{at} does not answer as the hub does: {other}"),
        }
    }
}

/// Returns the kind of an error of the client.
fn kind(error: &ApiError) -> ModelErrorKind {
    match error {
        ApiError::TooManyRetries(error) => kind(error),
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(404) => ModelErrorKind::NotFound,
            _ => ModelErrorKind::Hub,
        },
        ApiError::IoError(_) | ApiError::LockAcquisition(_) => ModelErrorKind::Io,
        _ => ModelErrorKind::Hub,
    }
}
