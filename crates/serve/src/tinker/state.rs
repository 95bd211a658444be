//! State of the server: bases, sessions of clients, their models and sampling sessions.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use maverl::output;
use maverl::plan::bytes;
use maverl::runtime::TrainingHost;

use super::checkpoints::CheckpointStore;
use super::datum::TextLimits;
use super::model::{AdapterShape, ClientModel, Queued};
use super::results::{Futures, RequestFailure};
use super::sampling::SamplerPlaces;
use super::settings::{TinkerSettings, TrainedBase};

/// Time after the last sign of a client after which its models are saved and end.
const SILENCE: Duration = Duration::from_secs(300);
/// Largest number of sessions, and of sampling sessions.
const MOST_SESSIONS: usize = 4096;

/// A base and its places.
pub(super) struct ServedBase {
    pub(super) name: String,
    pub(super) host: TrainingHost,
    /// Name on the hub or local directory, from which clients load the tokenizer.
    pub(super) tokenizer: String,
    pub(super) arch: String,
    pub(super) linears: Vec<String>,
    pub(super) limits: TextLimits,
    pub(super) samplers: SamplerPlaces,
    /// Largest number of models at once.
    pub(super) max_models: usize,
}

/// Source of the samples of a sampling session.
#[derive(Debug, Clone)]
pub(super) struct SamplerSource {
    pub(super) base: usize,
    /// Directory of the adapter; `None` for the base.
    pub(super) dir: Option<PathBuf>,
    /// Address of the adapter.
    pub(super) path: Option<String>,
}

/// A model, and the queue of its requests.
pub(super) struct LiveModel {
    pub(super) model: Arc<ClientModel>,
    pub(super) inbox: mpsc::Sender<Queued>,
}

#[derive(Default)]
struct LiveTables {
    /// Sessions, and the time of the last sign of each.
    sessions: BTreeMap<String, Instant>,
    models: BTreeMap<String, LiveModel>,
    samplers: BTreeMap<String, SamplerSource>,
    /// Free places for models of each base.
    free: Vec<Vec<usize>>,
    /// Number of requests without a number of their own.
    counter: u64,
}

/// State of the server.
pub(super) struct TrainService {
    pub(super) settings: TinkerSettings,
    pub(super) bases: Vec<ServedBase>,
    pub(super) futures: Futures,
    pub(super) checkpoints: CheckpointStore,
    tables: Mutex<LiveTables>,
    journal: Mutex<File>,
}

impl TrainService {
    /// Creates the state, and the directory of checkpoints with its journal.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub(super) fn new(settings: TinkerSettings, bases: Vec<TrainedBase>) -> Result<Self, String> {
        let failed = |error: std::io::Error| {
            format!("{} cannot be written: {error}", settings.out.display())
        };
        fs::create_dir_all(&settings.out).map_err(failed)?;
        let journal = settings.out.join("tinker.jsonl");
        let journal = OpenOptions::new().create(true).append(true).open(journal).map_err(failed)?;
        let checkpoints = CheckpointStore(settings.out.clone());
        // Place 0 is the base, models follow, and the rest are adapters that only generate.
        let free = bases.iter().map(|base| (1..=base.max_models).rev().collect()).collect();
        let bases = bases.into_iter().map(ServedBase::new).collect();
        let tables = Mutex::new(LiveTables { free, ..LiveTables::default() });
        let (futures, journal) = (Futures::default(), Mutex::new(journal));
        Ok(Self { settings, bases, futures, checkpoints, tables, journal })
    }

    fn tables(&self) -> MutexGuard<'_, LiveTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a row to the journal. A failure is told once a row and changes nothing else.
    pub(super) fn record(&self, row: &Value) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(journal, "{row}") {
            output::tell(format_args!("warning: tinker.jsonl cannot be written: {error}"));
        }
    }

    /// Opens a session. `None` if there are too many.
    pub(super) fn open_session(&self) -> Option<String> {
        let id = format!("s-{:016x}", drawn_number());
        let mut tables = self.tables();
        if tables.sessions.len() >= MOST_SESSIONS {
            return None;
        }
        tables.sessions.insert(id.clone(), Instant::now());
        Some(id)
    }

    /// Records a sign of a client. False if there is no such session.
    pub(super) fn touch_session(&self, id: &str) -> bool {
        match self.tables().sessions.get_mut(id) {
            Some(last) => {
                *last = Instant::now();
                true
            }
            None => false,
        }
    }

    /// Fails if there is no such session.
    pub(super) fn require_session(&self, id: &str) -> Result<(), RequestFailure> {
        if self.touch_session(id) {
            return Ok(());
        }
        Err(RequestFailure::user(format!(
            "there is no session `{id}`: the server was started again, or the client was silent for {} s; create a session",
            SILENCE.as_secs()
        )))
    }

    /// Returns the number of a base.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn base(&self, name: &str) -> Result<usize, RequestFailure> {
        let found = self.bases.iter().position(|base| base.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.bases.iter().map(|base| base.name.as_str()).collect();
            RequestFailure::user(format!(
                "there is no base model `{name}`; there are `{}`",
                names.join("`, `")
            ))
        })
    }

    /// Takes a place for a model.
    ///
    /// # Errors
    ///
    /// If none is free, with the bytes that one more would take.
    pub(super) fn take_place(
        &self,
        base: usize,
        shape: AdapterShape,
    ) -> Result<usize, RequestFailure> {
        if let Some(place) = self.tables().free[base].pop() {
            return Ok(place);
        }
        let of = &self.bases[base];
        let lora = shape.lora(self.settings.lora_alpha, &of.linears);
        let one = TrainingHost::adapter_bytes(&of.host.base().config, &lora).unwrap_or(0);
        Err(RequestFailure::user(format!(
            "`{}` has {} models, as many as it may have (`--max-models`); one more takes {}. Unload one, or end its client",
            of.name,
            of.max_models,
            bytes(one)
        )))
    }

    /// Gives a place back.
    pub(super) fn free_place(&self, base: usize, place: usize) {
        self.tables().free[base].push(place);
    }

    /// Adds a model. False if there is one of this name.
    pub(super) fn add_model(&self, live: LiveModel) -> bool {
        let mut tables = self.tables();
        let id = live.model.id.clone();
        if tables.models.contains_key(&id) {
            return false;
        }
        tables.models.insert(id, live);
        true
    }

    /// Returns a model and its queue.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn model(&self, id: &str) -> Result<LiveModel, RequestFailure> {
        let mut tables = self.tables();
        let Some(LiveModel { model, inbox }) = tables.models.get(id) else {
            let message = format!(
                "there is no model `{id}`: it was unloaded, its session has ended, or the server was started again; create it, \
                 or load its weights"
            );
            return Err(RequestFailure::user(message));
        };
        let found = LiveModel { model: Arc::clone(model), inbox: inbox.clone() };
        if let Some(last) = tables.sessions.get_mut(&found.model.session) {
            *last = Instant::now();
        }
        Ok(found)
    }

    /// Removes a model: its worker ends after the requests that it has.
    pub(super) fn remove_model(&self, id: &str) -> bool {
        self.tables().models.remove(id).is_some()
    }

    /// Adds a sampling session.
    pub(super) fn add_sampler(&self, id: &str, source: SamplerSource) {
        let mut tables = self.tables();
        if tables.samplers.len() >= MOST_SESSIONS {
            tables.samplers.pop_first();
        }
        tables.samplers.insert(id.to_owned(), source);
    }

    /// Returns the source of a sampling session.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn sampler(&self, id: &str) -> Result<SamplerSource, RequestFailure> {
        let found = self.tables().samplers.get(id).cloned();
        found.ok_or_else(|| {
            RequestFailure::user(format!(
                "there is no sampling session `{id}`; create a sampling client again"
            ))
        })
    }

    /// Returns the next number of a request without one.
    pub(super) fn next_number(&self) -> u64 {
        let mut tables = self.tables();
        tables.counter += 1;
        tables.counter
    }

    /// Returns the number of models.
    pub(super) fn models(&self) -> usize {
        self.tables().models.len()
    }

    /// Ends the sessions whose clients are silent: their models save their weights as `weights/last`, and end.
    pub(super) fn end_silent_sessions(&self) {
        let (mut tables, now) = (self.tables(), Instant::now());
        let sessions = tables.sessions.iter();
        let ended = sessions.filter(|(_, last)| now.duration_since(**last) > SILENCE);
        let ended: Vec<String> = ended.map(|(id, _)| id.clone()).collect();
        for id in ended {
            tables.sessions.remove(&id);
            let models = tables.models.values().filter(|live| live.model.session == id);
            let models: Vec<String> = models.map(|live| live.model.id.clone()).collect();
            for model in models {
                if let Some(live) = tables.models.remove(&model) {
                    live.model.expired.store(true, Ordering::Release);
                }
            }
            tables.samplers.retain(|sampler, _| !sampler.starts_with(&id));
        }
    }
}

impl ServedBase {
    fn new(base: TrainedBase) -> Self {
        let TrainedBase { name, host, tokenizer, max_models } = base;
        let config = &host.base().config;
        let linears = maverl::net::lora::linear_names(config);
        let limits = TextLimits { context: host.context(), vocab: config.vocab_size };
        let samplers = SamplerPlaces::new(&host, 1 + max_models);
        let arch = config.model_type.to_string();
        Self { name, tokenizer, arch, linears, limits, samplers, max_models, host }
    }
}

/// Draws a number from the random numbers of the system.
pub(super) fn drawn_number() -> u64 {
    let mut bytes = [0; 8];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    match drawn {
        Ok(()) => u64::from_le_bytes(bytes),
        // Numbers of one process differ in any case.
        Err(_) => u64::from(std::process::id()),
    }
}
