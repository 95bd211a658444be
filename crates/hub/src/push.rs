//! Uploads to the hub: the files of a directory in one commit, large ones by the LFS protocol (reference: `huggingface_hub`
//! `create_commit`).
//!
//! ```text
//! POST api/repos/create                      the repository, if it is not there
//! POST api/models/REPO/preupload/REVISION    which files are large
//! POST REPO.git/info/lfs/objects/batch       where large ones go; none for those that the hub has
//!   PUT ..                                   their content, whole or in parts, without the token
//! POST api/models/REPO/commit/REVISION       one commit of everything
//! ```

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Body, SendBody};

use super::cache::sha256_of;
use super::requests::agent_options;
use super::{Hub, HubId};
use crate::{HubError, HubErrorKind, retry};

/// Seconds in which the hub must answer what it has all of, such as a commit of many files.
const ANSWER_S: f64 = 600.0;
/// Number of repeated attempts of a transfer that fails on the hub's side.
const RETRIES: u32 = 2;
/// Files that are asked about at once, as `huggingface_hub` does.
const CHUNK: usize = 256;
/// Bytes of a file from which the hub sees what it is.
const SAMPLE: u64 = 512;
/// Characters of an answer that messages show.
const SHOWN: usize = 200;
/// Media type of the LFS protocol.
const LFS: &str = "application/vnd.git-lfs+json";

/// A file to be uploaded.
struct Upload {
    /// Where it is in the repository.
    name: String,
    path: PathBuf,
    size: u64,
}

/// Requests in the name of a user.
struct PushSession<'a> {
    hub: &'a Hub,
    id: &'a HubId,
    agent: ureq::Agent,
}

impl Hub {
    /// Uploads every file of a directory in one commit, and returns its address. A repository that is not there is created,
    /// for its owner alone if it is to be private; files that it has and the directory has not stay.
    ///
    /// # Errors
    ///
    /// See [`Hub::check_push`]; if the hub refuses the token or is out of reach. Nothing is committed then.
    pub fn push(&self, id: &HubId, dir: &Path, private: bool) -> Result<String, HubError> {
        self.check_push(id)?;
        let options = agent_options(self.patience_s).http_status_as_error(false);
        let answer = retry::seconds(ANSWER_S);
        let options = options.timeout_recv_response(Some(answer)).timeout_per_read(Some(answer));
        let session = PushSession { hub: self, id, agent: options.build().into() };
        session
            .push(dir, private)
            .map_err(|what| HubError::new(HubErrorKind::Refused, format!("{id}: {what}")))
    }
}

impl PushSession<'_> {
    fn push(&self, dir: &Path, private: bool) -> Result<String, String> {
        let mut uploads = Vec::new();
        collect(dir, "", &mut uploads)?;
        self.create(private)?;
        let large = self.large(&uploads)?;
        let mut lines = vec![json!({
            "key": "header",
            "value": {"summary": "Upload with maverl", "description": ""}
        })];
        let mut objects = Vec::new();
        for (upload, large) in uploads.iter().zip(large) {
            if large {
                let oid = sha256_of(&upload.path).map_err(|e| failed_at(&upload.path, &e))?;
                lines.push(json!({"key": "lfsFile", "value": {
                    "path": upload.name, "algo": "sha256", "oid": oid, "size": upload.size
                }}));
                objects.push((upload, oid));
            } else {
                let content = std::fs::read(&upload.path);
                let content = content.map_err(|e| failed_at(&upload.path, &e))?;
                let content = STANDARD.encode(content);
                lines.push(json!({"key": "file", "value": {
                    "content": content, "path": upload.name, "encoding": "base64"
                }}));
            }
        }
        for objects in objects.chunks(CHUNK) {
            self.store(objects)?;
        }
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let at = self.api("commit");
        // A commit whose answer is lost may have been made: it is not tried again.
        let answer = self.hub.with_token(self.agent.post(&at), &at);
        let answer = answer.header("Content-Type", "application/x-ndjson").send(body);
        let answer = self.json(&at, answer)?;
        Ok(answer["commitUrl"].as_str().unwrap_or(&self.hub.endpoint).to_owned())
    }

    /// Creates the repository; one that is there already is fine.
    fn create(&self, private: bool) -> Result<(), String> {
        let (organization, name) = match self.id.repo.split_once('/') {
            Some((organization, name)) => (Some(organization), name),
            None => (None, self.id.repo.as_str()),
        };
        let mut body = json!({"name": name, "organization": organization, "type": "model"});
        if private {
            body["visibility"] = "private".into();
        }
        let at = format!("{}/api/repos/create", self.hub.endpoint);
        let answer = self.post(&at, &body)?;
        match answer.status().as_u16() {
            200..=299 | 409 => Ok(()),
            // A token may be allowed to write there and not to create.
            403 if self.exists()? => Ok(()),
            _ => Err(self.explain_refusal(&at, answer)),
        }
    }

    fn exists(&self) -> Result<bool, String> {
        let at = format!("{}/api/models/{}", self.hub.endpoint, self.id.repo);
        let answer = self.hub.with_token(self.agent.get(&at), &at).call();
        answer.map(|answer| answer.status().is_success()).map_err(|e| self.unreachable(&e))
    }

    /// True if each file goes by the LFS protocol.
    fn large(&self, uploads: &[Upload]) -> Result<Vec<bool>, String> {
        let mut large = Vec::with_capacity(uploads.len());
        for uploads in uploads.chunks(CHUNK) {
            let files = uploads.iter().map(Upload::announcement).collect::<Result<Vec<_>, _>>()?;
            let at = self.api("preupload");
            let answer = self.json(&at, Ok(self.post(&at, &json!({ "files": files }))?))?;
            for upload in uploads {
                let told = answer["files"].as_array().into_iter().flatten();
                let mode = told.filter(|file| file["path"] == upload.name.as_str());
                let mode = mode.map(|file| file["uploadMode"].as_str()).next().flatten();
                large.push(match mode {
                    // What is empty cannot be stored apart.
                    Some("lfs" | "xet") => upload.size > 0,
                    Some("regular") => false,
                    _ => return Err(self.odd(&at, &format!("nothing of `{}`", upload.name))),
                });
            }
        }
        Ok(large)
    }

    /// Uploads the content of large files that the hub does not have.
    fn store(&self, objects: &[(&Upload, String)]) -> Result<(), String> {
        let at = format!("{}/{}.git/info/lfs/objects/batch", self.hub.endpoint, self.id.repo);
        let wanted = objects.iter().map(|(upload, oid)| json!({"oid": oid, "size": upload.size}));
        let body = json!({
            "operation": "upload",
            "transfers": ["basic", "multipart"],
            "objects": wanted.collect::<Vec<Value>>(),
            "hash_algo": "sha256",
            "ref": {"name": self.id.revision},
        });
        let answer = self.json(&at, Ok(self.post_as(&at, &body, LFS)?))?;
        for (upload, oid) in objects {
            let told = answer["objects"].as_array().into_iter().flatten();
            let Some(told) = told.into_iter().find(|told| told["oid"] == oid.as_str()) else {
                return Err(self.odd(&at, &format!("nothing of `{}`", upload.name)));
            };
            if let Some(error) = told.get("error") {
                return Err(format!("`{}` is refused: {}", upload.name, error["message"]));
            }
            let actions = &told["actions"];
            let Some(action) = actions.get("upload") else { continue };
            let Some(href) = action["href"].as_str() else {
                return Err(self.odd(&at, &format!("no address for `{}`", upload.name)));
            };
            match action["header"].get("chunk_size") {
                None => drop(self.put_bytes(href, upload, 0..upload.size)?),
                Some(size) => self.parts(href, upload, oid, size, &action["header"])?,
            }
            if let Some(href) = actions["verify"]["href"].as_str() {
                let body = json!({"oid": oid, "size": upload.size});
                self.json(href, Ok(self.post(href, &body)?))?;
            }
        }
        Ok(())
    }

    /// Uploads a file in parts, each to an address of its own, and says at `href` that it is complete.
    fn parts(
        &self,
        href: &str,
        upload: &Upload,
        oid: &str,
        size: &Value,
        header: &Value,
    ) -> Result<(), String> {
        let text = size.as_str().map(str::to_owned).unwrap_or_else(|| size.to_string());
        let size = text.parse::<u64>().ok().filter(|size| *size > 0);
        let size = size.ok_or_else(|| self.odd(href, &format!("parts of {text} bytes")))?;
        let addresses = header.as_object().into_iter().flatten();
        let mut addresses: Vec<(u64, &str)> = addresses
            .filter_map(|(part, address)| Some((part.parse().ok()?, address.as_str()?)))
            .collect();
        addresses.sort_unstable();
        if addresses.len() as u64 != upload.size.div_ceil(size) {
            return Err(self.odd(href, &format!("{} parts", addresses.len())));
        }
        let mut parts = Vec::new();
        for (index, (_, address)) in addresses.into_iter().enumerate() {
            let from = index as u64 * size;
            let answer = self.put_bytes(address, upload, from..(from + size).min(upload.size))?;
            let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok());
            let etag = etag.ok_or_else(|| self.odd(address, "no `etag`"))?;
            parts.push(json!({"partNumber": index + 1, "etag": etag}));
        }
        let body = json!({"oid": oid, "parts": parts});
        self.json(href, Ok(self.post_as(href, &body, LFS)?)).map(drop)
    }

    /// Sends bytes of a file to a storage, which is not the hub and must not see the token.
    fn put_bytes(
        &self,
        href: &str,
        upload: &Upload,
        bytes: std::ops::Range<u64>,
    ) -> Result<Response<Body>, String> {
        let answer = send_with_retries(|| {
            let mut file = File::open(&upload.path)?;
            file.seek(SeekFrom::Start(bytes.start))?;
            let length = bytes.end - bytes.start;
            let mut part = file.take(length);
            let request = self.agent.put(href).header("Content-Length", length.to_string());
            request.send(SendBody::from_reader(&mut part))
        });
        match answer {
            Ok(answer) if answer.status().is_success() => Ok(answer),
            Ok(answer) => Err(format!("`{}`: {}", upload.name, self.explain_refusal(href, answer))),
            Err(ureq::Error::Io(error)) => Err(failed_at(&upload.path, &error)),
            Err(error) => Err(format!("`{}`: {}", upload.name, self.unreachable(&error))),
        }
    }

    fn post(&self, at: &str, body: &Value) -> Result<Response<Body>, String> {
        self.post_as(at, body, "application/json")
    }

    fn post_as(&self, at: &str, body: &Value, kind: &str) -> Result<Response<Body>, String> {
        let sent = send_with_retries(|| {
            let request = self.hub.with_token(self.agent.post(at), at);
            request.header("Accept", kind).header("Content-Type", kind).send(body.to_string())
        });
        sent.map_err(|error| self.unreachable(&error))
    }

    /// The JSON of an answer that is no refusal.
    fn json(&self, at: &str, answer: Result<Response<Body>, ureq::Error>) -> Result<Value, String> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(self.explain_refusal(at, answer));
        }
        let text = answer.into_body().read_to_string().map_err(|e| self.unreachable(&e))?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| self.odd(at, &error.to_string()))
    }

    fn api(&self, what: &str) -> String {
        let revision = self.id.revision.replace('/', "%2F");
        format!("{}/api/models/{}/{what}/{revision}", self.hub.endpoint, self.id.repo)
    }

    /// Explains a refusal.
    fn explain_refusal(&self, at: &str, answer: Response<Body>) -> String {
        let status = answer.status().as_u16();
        let host = host(at);
        let told = answer.headers().get("x-error-message").and_then(|text| text.to_str().ok());
        let told = told.map(str::to_owned);
        if (300..400).contains(&status) {
            let target = answer.headers().get("location").map_or(&b""[..], |to| to.as_bytes());
            let target = String::from_utf8_lossy(target);
            return format!("{host} redirects to {target:?} ({status}), which is not followed");
        }
        let text = told.or_else(|| answer.into_body().read_to_string().ok()).unwrap_or_default();
        let text: String = text.trim().chars().take(SHOWN).filter(|c| !c.is_control()).collect();
        match status {
            401 => format!("{host} does not accept the token in `HF_TOKEN` (401)"),
            403 => format!("the token in `HF_TOKEN` may not write there (403): {text}"),
            404 => format!("{host} has no branch `{}` of it (404): {text}", self.id.revision),
            _ => format!("{host} answers with status {status}: {text}"),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> String {
        format!("{} cannot be reached: {error}", self.hub.endpoint)
    }

    fn odd(&self, at: &str, what: &str) -> String {
        format!("{} does not answer as the hub does: {what}", host(at))
    }
}

/// Sends a request until it is answered without a transient failure, or no attempt is left.
fn send_with_retries(
    send: impl Fn() -> Result<Response<Body>, ureq::Error>,
) -> Result<Response<Body>, ureq::Error> {
    for pause in retry::pauses(RETRIES) {
        let answer = send();
        let transient = match &answer {
            Ok(answer) => retry::is_transient_status(answer.status().as_u16()),
            Err(error) => retry::is_transient(error),
        };
        if !transient {
            return answer;
        }
        std::thread::sleep(pause);
    }
    send()
}

/// An address without its query, which may be a secret.
fn host(at: &str) -> &str {
    at.split('?').next().unwrap_or_default()
}

impl Upload {
    /// Request that announces the upload to the hub.
    fn announcement(&self) -> Result<Value, String> {
        let mut sample = Vec::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(SAMPLE).read_to_end(&mut sample));
        read.map_err(|e| failed_at(&self.path, &e))?;
        Ok(json!({"path": self.name, "sample": STANDARD.encode(sample), "size": self.size}))
    }
}

fn failed_at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Every file below a directory, by name.
fn collect(dir: &Path, prefix: &str, uploads: &mut Vec<Upload>) -> Result<(), String> {
    let entries = std::fs::read_dir(dir)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .map_err(|e| failed_at(dir, &e))?;
    let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            collect(&path, &format!("{name}/"), uploads)?;
        } else {
            let size = std::fs::metadata(&path).map_err(|e| failed_at(dir, &e))?.len();
            uploads.push(Upload { name, path, size });
        }
    }
    Ok(())
}
