//! `POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`, beneath one directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};

use super::asked::RouteOutcome;
use super::catalog::Entry;
use super::server::ModelServer;
use crate::body;
use crate::openai::Fields;
use crate::openai::requests::{LoadRequest, UnloadRequest};
use crate::refusal::Refusal;

pub(super) async fn load(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    let answer = load_adapter(&server, request).await;
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "load_lora_adapter")
}

pub(super) async fn unload(State(server): State<Arc<ModelServer>>, request: Request) -> Response {
    let answer = unload_adapter(&server, request).await;
    RouteOutcome { model: String::new(), answer }.count_answer(&server, "unload_lora_adapter")
}

/// Returns the directory beneath which clients may load adapters.
fn allowed_directory(server: &ModelServer) -> Result<&Path, Refusal> {
    server.settings.allow_adapters.as_deref().ok_or_else(|| {
        let message = "clients may not load adapters here; `--allow-adapters DIR` allows those beneath a directory";
        Refusal::new(StatusCode::FORBIDDEN, "forbidden", message)
    })
}

async fn load_adapter(server: &Arc<ModelServer>, request: Request) -> Result<Response, Refusal> {
    let home = allowed_directory(server)?.to_owned();
    let mut fields = fields(server, request).await?;
    let LoadRequest { lora_name, lora_path: path } = fields.read()?;
    let name = lora_name.filter(|name| is_name(name));
    let wanted = "is missing or no name; write letters, digits, `.`, `-`, `_`, `/` or `@`";
    let name = name.ok_or_else(|| fields.error("lora_name", wanted))?;
    let path = path.ok_or_else(|| fields.error("lora_path", "is missing"))?;
    let inside = beneath(&home, &path).ok_or_else(|| {
        fields.error("lora_path", "is not beneath the directory of `--allow-adapters`")
    })?;
    let catalog = server.catalog()?;
    if catalog.find(Some(&name)).is_ok() {
        return Err(fields.error("lora_name", &format!("is {name:?}, which there is already")));
    }
    let Some((host, place)) = catalog.take_place() else {
        let message = "there is no place for another adapter (`--max-adapters`); unload one";
        return Err(Refusal::malformed(message).with_code("adapter_limit"));
    };
    let (loading, version) = (host.clone(), 0);
    let runtime = tokio::runtime::Handle::current();
    // Reading the file blocks; the barrier is awaited on the same thread.
    let task = tokio::task::spawn_blocking(move || {
        runtime.block_on(loading.load_adapter(place, &inside, version))
    });
    let done = task.await.map_err(|error| error.to_string());
    let fingerprint = match done.and_then(|done| done.map_err(|error| error.to_string())) {
        Ok(fingerprint) => fingerprint,
        Err(error) => {
            catalog.give_place(host, place);
            // The words of the error may have a path of this machine, which its owner sees in the log.
            maverl::output::tell(format_args!(
                "warning: adapter {name:?} cannot be loaded: {error}"
            ));
            let what = "has no adapter for this base; the server's log says why";
            return Err(fields.error("lora_path", what));
        }
    };
    let base = catalog
        .all_entries()
        .into_iter()
        .find(|other| other.parent.is_none() && Arc::ptr_eq(other.host.blocks(), host.blocks()));
    let entry = Entry::new(name.clone(), &host, place, path);
    let format = base.as_ref().map_or(&entry.format, |base| &base.format).clone();
    let parent = base.map(|base| base.name.clone());
    let entry = Entry { parent, fingerprint, format, by_client: true, ..entry };
    if !catalog.add(entry) {
        catalog.give_place(host, place);
        return Err(fields.error("lora_name", &format!("is {name:?}, which there is already")));
    }
    Ok(format!("Success: LoRA adapter '{name}' added successfully.").into_response())
}

async fn unload_adapter(server: &Arc<ModelServer>, request: Request) -> Result<Response, Refusal> {
    allowed_directory(server)?;
    let mut fields = fields(server, request).await?;
    let UnloadRequest { lora_name } = fields.read()?;
    let name = lora_name.ok_or_else(|| fields.error("lora_name", "is missing"))?;
    let catalog = server.catalog()?;
    let entry = catalog.find(Some(&name))?;
    if !entry.by_client {
        return Err(fields.error("lora_name", "is a model that the server began with"));
    }
    if let Some(entry) = catalog.remove(&name) {
        let _ = entry.host.unload(entry.place, 0).await;
        catalog.give_place(entry.host.clone(), entry.place);
    }
    Ok(format!("Success: LoRA adapter '{name}' removed successfully.").into_response())
}

/// Reads the fields of a request.
async fn fields(server: &ModelServer, request: Request) -> Result<Fields, Refusal> {
    server.catalog()?;
    Fields::parse(&body::read(request.into_body(), server.settings.max_body).await?)
}

/// Returns true for a name that may stand in a metric.
fn is_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_/@".contains(c))
}

/// Returns a directory beneath another, links resolved.
fn beneath(home: &Path, path: &str) -> Option<PathBuf> {
    let home = home.canonicalize().ok()?;
    let found = home.join(path).canonicalize().ok()?;
    (found.starts_with(&home) && found.is_dir()).then_some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_a_directory_beneath_the_allowed_one_is_loaded() {
        let home = tempfile::tempdir().unwrap();
        let (inside, outside) = (home.path().join("in/a"), home.path().join("out"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let allowed = home.path().join("in");
        let absolute = inside.display().to_string();
        for path in ["a", "./a", "a/../a", absolute.as_str()] {
            assert_eq!(beneath(&allowed, path).unwrap(), inside.canonicalize().unwrap(), "{path}");
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(&outside, allowed.join("link")).unwrap();
        for path in ["..", "../out", "/etc", "link", "b", "a\0", outside.to_str().unwrap()] {
            assert!(beneath(&allowed, path).is_none(), "{path:?}");
        }
    }

    #[test]
    fn a_name_has_nothing_that_a_metric_could_not_show() {
        assert!(is_name("judge@40") && is_name("a/b-c.d_e"));
        for name in ["", "a b", "a\"b", "a\nb", "\u{e4}", &"x".repeat(101)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
