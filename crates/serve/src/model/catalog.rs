//! Served models by name.

use std::sync::{Arc, PoisonError, RwLock};

use axum::http::StatusCode;

use crate::openai::now;
use crate::refusal::Refusal;
use maverl::runtime::Host;
use maverl::text::Tokenizer;
use maverl::tools::{CallFormat, ReplyFormat, ThoughtFormat};

/// A served model: a base, or an adapter on it.
#[derive(Clone)]
pub struct Entry {
    /// Name in requests.
    pub name: String,
    /// Thread that owns the base.
    pub host: Host,
    /// Its place there.
    pub place: usize,
    /// Location of the weights.
    pub root: String,
    /// Name of the base, if this is an adapter.
    pub parent: Option<String>,
    /// Step of the checkpoint; 0 for a model that is of no run.
    pub version: u64,
    /// SHA-256 of the weights.
    pub fingerprint: String,
    /// Time of loading in seconds since 1970.
    pub created: u64,
    /// A client loaded it, and may unload it.
    pub by_client: bool,
    /// Form in which the model writes calls and thoughts.
    pub format: Arc<ReplyFormat>,
}

impl Entry {
    /// Creates an entry that is loaded now.
    pub fn new(
        name: impl Into<String>,
        host: &Host,
        place: usize,
        root: impl Into<String>,
    ) -> Self {
        let format =
            ReplyFormat::of_model(host.tokenizer(), CallFormat::Auto, &ThoughtFormat::Auto);
        Self {
            name: name.into(),
            host: host.clone(),
            place,
            root: root.into(),
            parent: None,
            version: 0,
            fingerprint: String::new(),
            created: now(),
            by_client: false,
            format: Arc::new(format),
        }
    }

    /// Sets the form in which the model writes calls and thoughts. Default: that of its chat template.
    #[must_use]
    pub fn with_reply_format(self, calls: CallFormat, thoughts: &ThoughtFormat) -> Self {
        let format = Arc::new(ReplyFormat::of_model(self.host.tokenizer(), calls, thoughts));
        Self { format, ..self }
    }

    pub(super) fn tokenizer(&self) -> &Arc<Tokenizer> {
        self.host.tokenizer()
    }

    pub(super) fn context(&self) -> usize {
        self.host.context()
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.host.base().config.vocab_size
    }

    /// Returns `system_fingerprint`.
    pub(super) fn system_fingerprint(&self) -> String {
        format!("fp_{}", &self.fingerprint[..self.fingerprint.len().min(16)])
    }
}

/// Served models, in the order in which they are listed.
#[derive(Default)]
pub struct Catalog {
    entries: RwLock<Vec<Arc<Entry>>>,
    /// Places for adapters that clients load.
    spare: RwLock<Vec<(Host, usize)>>,
}

impl Catalog {
    /// Creates a catalog. `spare` are places for adapters that clients load.
    pub fn new(entries: Vec<Entry>, spare: Vec<(Host, usize)>) -> Self {
        let entries = entries.into_iter().map(Arc::new).collect();
        Self { entries: RwLock::new(entries), spare: RwLock::new(spare) }
    }

    /// Returns all models.
    pub(super) fn all_entries(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the model of a name. A request without one means the only model.
    pub(super) fn find(&self, name: Option<&str>) -> Result<Arc<Entry>, Refusal> {
        let all = self.all_entries();
        let found = match (name, all.as_slice()) {
            (Some(name), all) => all.iter().find(|entry| entry.name == name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found.cloned().ok_or_else(|| {
            let names: Vec<String> = all.iter().map(|entry| format!("`{}`", entry.name)).collect();
            let names = names.join(", ");
            let Some(name) = name else {
                let message = format!("`model` is missing; write one of {names}");
                return Refusal::invalid("model", message);
            };
            let shown: String = name.chars().take(80).collect();
            let message = format!("there is no model {shown:?}; there is {names}");
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message);
            Refusal { param: Some("model".to_owned()), ..refusal }
        })
    }

    /// Takes a place for an adapter.
    pub(super) fn take_place(&self) -> Option<(Host, usize)> {
        self.spare.write().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Gives a place back.
    pub(super) fn give_place(&self, host: Host, place: usize) {
        self.spare.write().unwrap_or_else(PoisonError::into_inner).push((host, place));
    }

    /// Adds a model. Returns false if the name is taken.
    pub(super) fn add(&self, entry: Entry) -> bool {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let free = entries.iter().all(|other| other.name != entry.name);
        if free {
            entries.push(Arc::new(entry));
        }
        free
    }

    /// Removes a model that was loaded by a client.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Entry>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().position(|entry| entry.name == name)?;
        Some(entries.remove(at))
    }

    /// Returns the numbers of used, cached and free blocks of all caches.
    pub(super) fn blocks(&self) -> [usize; 3] {
        let mut hosts: Vec<Arc<maverl::runtime::KvBlocks>> = Vec::new();
        for entry in self.all_entries() {
            if !hosts.iter().any(|known| Arc::ptr_eq(known, entry.host.blocks())) {
                hosts.push(Arc::clone(entry.host.blocks()));
            }
        }
        hosts
            .iter()
            .map(|blocks| blocks.counts())
            .fold([0; 3], |sum, counts| std::array::from_fn(|i| sum[i] + counts[i]))
    }
}
