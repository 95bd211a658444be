//! The files of a repository, and their transfer into the cache.

use std::fs::File;
use std::io::Write;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::cache::sha256_of;
use super::cache::{Blob, is_plain};
use super::requests::{HubAnswer, HubFailure, Parts, Requests, odd};
use super::{Hub, HubId, RemoteFile, RepoKind, Snapshot, is_commit};
use crate::{HubError, HubErrorKind, retry};

/// Number of repeated attempts of a request, or of an interrupted transfer.
const RETRIES: u32 = 2;
/// Longest listing of a repository in bytes.
const LISTING: usize = 64 << 20;
/// Largest file of a model other than weights in bytes.
const LARGEST: u64 = 1 << 30;
/// Template of the progress bar on a terminal.
const BAR: &str =
    "{msg} [{elapsed_precise}] [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} ({eta})";

/// Metadata of a revision on the hub.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

impl Listing {
    /// Returns an error for what no hub lists.
    fn check(&self, revision: &str) -> Result<(), String> {
        if !is_commit(&self.sha) || is_commit(revision) && self.sha != revision {
            return Err(format!("the commit of `{revision}` is {:?}", self.sha));
        }
        for file in &self.siblings {
            let name = &file.rfilename;
            let inside = name.split('/').all(|part| !["", ".", ".."].contains(&part));
            if !inside || name.contains(|c: char| c == '\\' || c.is_control()) {
                return Err(format!("a file is named {name:?}"));
            }
            let sha256 = file.lfs.as_ref().and_then(|lfs| lfs.sha256.as_deref());
            if let Some(wrong) = sha256.filter(|hash| !is_hash(hash, 64)) {
                return Err(format!("`{name}` has the SHA-256 {wrong:?}"));
            }
            if let Some(wrong) = file.blob_id.as_deref().filter(|hash| !is_plain(hash)) {
                return Err(format!("`{name}` is the blob {wrong:?}"));
            }
        }
        Ok(())
    }
}

impl From<Sibling> for RemoteFile {
    fn from(file: Sibling) -> Self {
        let sha256 = file.lfs.and_then(|lfs| lfs.sha256);
        let blob = sha256.clone().or(file.blob_id);
        Self { name: file.rfilename, size: file.size, sha256, blob }
    }
}

impl Hub {
    /// Returns the commit of a revision, and its files.
    pub(super) fn list(&self, id: &HubId) -> Result<(String, Vec<RemoteFile>), HubError> {
        let revision = id.revision.replace('/', "%2F");
        let kind = match id.kind {
            RepoKind::Model => "models",
            RepoKind::Data => "datasets",
        };
        let url =
            format!("{}/api/{kind}/{}/revision/{revision}?blobs=true", self.endpoint, id.repo);
        let requests = Requests::new(self);
        let listed = attempts(|| {
            let text = requests.text(&url, LISTING)?;
            let listing: Listing =
                serde_json::from_str(&text).map_err(|error| odd(&url, error.to_string()))?;
            listing.check(&id.revision).map_err(|what| odd(&url, what))?;
            Ok(listing)
        });
        let listing = listed.map_err(|error| {
            let message = format!("{id}: {}", self.explain(&error, (id.kind, &id.repo), None));
            HubError::new(failure_kind(&error), message).with_source(error)
        })?;
        Ok((listing.sha, listing.siblings.into_iter().map(RemoteFile::from).collect()))
    }

    /// Downloads a file into the cache, as far as it is not there.
    pub(super) fn transfer(&self, snapshot: &Snapshot, file: &RemoteFile) -> Result<(), HubError> {
        let transfer = Download { requests: Requests::new(self), hub: self, snapshot, file };
        transfer.run().map_err(|error| {
            let of = (snapshot.kind, snapshot.repo.as_str());
            let why = self.explain(&error, of, Some(&file.name));
            let message = format!("{snapshot}: cannot download `{}`: {why}", file.name);
            HubError::new(failure_kind(&error), message).with_source(error)
        })
    }

    /// Returns a message with the error of a repository, or of a file of it, and a remedy.
    fn explain(
        &self,
        error: &HubFailure,
        (kind, repo): (RepoKind, &str),
        file: Option<&str>,
    ) -> String {
        let (at, error) = match error {
            HubFailure::Request { at, error } => (at, error),
            HubFailure::Cache(error) => {
                return format!("{error} (the cache is {})", self.cache.display());
            }
            other => return other.to_string(),
        };
        let data = kind == RepoKind::Data;
        match **error {
            ureq::Error::StatusCode(401 | 403) if data => self.refused(at, repo),
            ureq::Error::StatusCode(404) if data && file.is_none() => format!(
                "{at} has no such data set or revision (404), or it is private: set `HF_TOKEN`"
            ),
            ureq::Error::StatusCode(401) if self.token.is_none() => format!(
                "{at} asks who you are (401): it is private, gated or not there; set `HF_TOKEN`"
            ),
            ureq::Error::StatusCode(401) => format!(
                "{at} does not accept the token in `HF_TOKEN` (401), or the model is not there"
            ),
            ureq::Error::StatusCode(403) => format!(
                "{at} denies access (403): accept the model's terms on its page, and set `HF_TOKEN` to a token that may \
                 read it"
            ),
            ureq::Error::StatusCode(404) => match file {
                Some(file) => format!("{at} has no file `{file}` there (404)"),
                None => format!("{at} has no such model or revision (404)"),
            },
            ureq::Error::StatusCode(code) => {
                format!("{at} answers with status {code}; try again later")
            }
            ureq::Error::Timeout(_) => format!(
                "{at} does not go on for {} s (`HF_HUB_DOWNLOAD_TIMEOUT`); try again later",
                self.patience_s
            ),
            ref other => format!(
                "{at} cannot be reached: {other}; `HF_ENDPOINT` may name a mirror, and `HF_HUB_OFFLINE=1` uses what is \
                 in the cache"
            ),
        }
    }
}

impl Hub {
    /// Returns the message about a data set that is refused.
    fn refused(&self, at: &str, repo: &str) -> String {
        let token = match &self.token {
            None => "set `HF_TOKEN`",
            Some(_) => "set `HF_TOKEN` to a token that may read it",
        };
        format!(
            "{at} denies access: the data set is gated, private or not there; accept the terms on {}/datasets/{repo} if it \
             has some, and {token}",
            self.endpoint
        )
    }
}

/// The transfer of one file.
struct Download<'a> {
    requests: Requests<'a>,
    hub: &'a Hub,
    snapshot: &'a Snapshot,
    file: &'a RemoteFile,
}

impl Download<'_> {
    fn run(&self) -> Result<(), HubFailure> {
        let name = match &self.file.blob {
            Some(name) => name.clone(),
            None => attempts(|| self.etag())?,
        };
        let blob = Blob::new(self.hub, self.snapshot, &name);
        let _lock = blob.lock(self.hub.wait())?;
        if !blob.is_whole(self.file.size) {
            let received = attempts(|| self.receive(&blob)).and_then(|()| self.check(&blob));
            if matches!(received, Err(HubFailure::Damaged | HubFailure::Odd { .. })) {
                // Best effort: a part that stays is found to be damaged again.
                let _ = std::fs::remove_file(&blob.part);
            }
            received?;
            blob.complete()?;
        }
        Ok(blob.link(&self.snapshot.dir.join(&self.file.name))?)
    }

    fn url(&self) -> String {
        let (hub, Snapshot { kind, repo, commit, .. }) = (&self.hub.endpoint, self.snapshot);
        let folder = if *kind == RepoKind::Data { "datasets/" } else { "" };
        format!("{hub}/{folder}{repo}/resolve/{commit}/{}", escape_name(&self.file.name))
    }

    /// Requests the file from a byte on. The answer is of the commit that was listed.
    fn get(&self, range: Option<&str>) -> Result<HubAnswer, HubFailure> {
        let answer = self.requests.get(&self.url(), range)?;
        let commit = answer.first.get("x-repo-commit").map(|commit| commit.as_bytes());
        if let Some(other) = commit.filter(|commit| *commit != self.snapshot.commit.as_bytes()) {
            let other = String::from_utf8_lossy(other);
            let what = format!("`x-repo-commit` is {other:?} instead of {}", self.snapshot.commit);
            return Err(odd(&self.url(), what));
        }
        Ok(answer)
    }

    /// Asks for the name of a blob that is not listed.
    fn etag(&self) -> Result<String, HubFailure> {
        let answer = self.get(Some("bytes=0-0"))?;
        let linked = answer.first.get("x-linked-etag");
        let etag = linked.or_else(|| answer.response.headers().get("etag"));
        let etag = String::from_utf8_lossy(etag.map_or(b"", |etag| etag.as_bytes()));
        let name = etag.trim_start_matches("W/").trim_matches('"');
        if is_plain(name) {
            return Ok(name.to_owned());
        }
        Err(odd(&self.url(), format!("the `ETag` of a file is {etag:?}")))
    }

    /// Downloads what lacks of the part of a blob, and no more bytes than are listed.
    fn receive(&self, blob: &Blob) -> Result<(), HubFailure> {
        let mut part = File::options().create(true).append(true).open(&blob.part)?;
        let mut length = part.metadata()?.len();
        if length > 0 && Some(length) == self.file.size {
            return Ok(());
        }
        if self.file.size.is_none_or(|size| length > size) {
            part.set_len(0)?;
            length = 0;
        }
        let range = (length > 0).then(|| format!("bytes={length}-"));
        let answer = self.get(range.as_deref())?;
        let sent = Sent::of(&answer, length)?;
        if sent.from == 0 {
            part.set_len(0)?;
            length = 0;
        }
        let size = self.file.size.or(sent.size);
        let size = size.ok_or_else(|| odd(&self.url(), "a file has no size"))?;
        if sent.size.is_some_and(|sent| sent != size) {
            return Err(HubFailure::Damaged);
        }
        let model = self.snapshot.kind == RepoKind::Model;
        if model && size > LARGEST && !self.file.name.ends_with(".safetensors") {
            return Err(odd(&self.url(), format!("a file of {size} bytes")));
        }
        let bar = self.bar(size, length);
        let mut parts = Parts::new(answer, self.hub.wait());
        while let Some(bytes) = parts.next_part()? {
            length += bytes.len() as u64;
            if length > size {
                return Err(odd(&self.url(), format!("more than the {size} bytes of a file")));
            }
            part.write_all(bytes)?;
            bar.set_position(length);
        }
        if length < size { Err(HubFailure::Damaged) } else { Ok(()) }
    }

    fn check(&self, blob: &Blob) -> Result<(), HubFailure> {
        match &self.file.sha256 {
            Some(sha256) if sha256_of(&blob.part)? != *sha256 => Err(HubFailure::Damaged),
            _ => Ok(()),
        }
    }

    /// Returns a progress bar, which shows itself on a terminal alone.
    fn bar(&self, size: u64, from: u64) -> ProgressBar {
        let style = ProgressStyle::with_template(BAR);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(size).with_style(style).with_position(from);
        bar.with_message(self.file.name.clone())
    }
}

/// Bytes of a file that an answer has.
struct Sent {
    from: u64,
    /// Size of the whole file, if the answer says it.
    size: Option<u64>,
}

impl Sent {
    /// Reads the headers of an answer to a request for the bytes from `asked` on.
    fn of(answer: &HubAnswer, asked: u64) -> Result<Self, HubFailure> {
        let whole = answer.response.status() != 206;
        let header = if whole { "content-length" } else { "content-range" };
        let value = answer.response.headers().get(header);
        let value = value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if whole {
            return Ok(Self { from: 0, size: value.and_then(|length| length.parse().ok()) });
        }
        let range = value.unwrap_or_default();
        let parsed = range.trim().strip_prefix("bytes ").and_then(|range| {
            let (range, size) = range.split_once('/')?;
            let (from, last) = range.split_once('-')?;
            last.trim().parse::<u64>().ok()?;
            let size = if size.trim() == "*" { None } else { Some(size.trim().parse().ok()?) };
            Some(Self { from: from.trim().parse().ok()?, size })
        });
        parsed
            .filter(|sent| sent.from == asked)
            .ok_or_else(|| odd(&answer.url, format!("`Content-Range` is {range:?}")))
    }
}

/// Repeats an operation that fails on the side of the server, with growing pauses.
fn attempts<T>(run: impl Fn() -> Result<T, HubFailure>) -> Result<T, HubFailure> {
    for pause in retry::pauses(RETRIES) {
        let result = run();
        let transient = match &result {
            Err(HubFailure::Request { error, .. }) => match **error {
                ureq::Error::StatusCode(status) => retry::is_transient_status(status),
                ref other => retry::is_transient(other),
            },
            _ => false,
        };
        if !transient {
            return result;
        }
        std::thread::sleep(pause);
    }
    run()
}

/// Returns true if a text is a hash of so many hexadecimal digits.
fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())
}

/// Returns the name of a file as a part of an address.
fn escape_name(name: &str) -> String {
    name.bytes().map(escape_byte).collect()
}

fn escape_byte(byte: u8) -> String {
    let plain = byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    if plain { char::from(byte).into() } else { format!("%{byte:02X}") }
}

/// Returns the kind of a failure.
fn failure_kind(error: &HubFailure) -> HubErrorKind {
    match error {
        HubFailure::Request { error, .. } if matches!(**error, ureq::Error::StatusCode(404)) => {
            HubErrorKind::NotFound
        }
        HubFailure::Cache(_) | HubFailure::Busy(_) => HubErrorKind::Cache,
        _ => HubErrorKind::Refused,
    }
}
