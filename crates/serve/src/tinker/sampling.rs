//! Samples of the base and of adapters, which are loaded into places as they are asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::try_join_all;
use prost::Message as _;
use tokio::sync::{Mutex, Notify};

use maverl::runtime::{
    Completion, Finish, Request, RuntimeError, Sampling, Step, TrainingHost, Watch,
};
use maverl_kernels::sample::derive_seed;

use super::datum::{TextLimits, check_ids};
use super::proto::{SampleOutput, SampledSequence, TopkLogprobs, bytes_of_f32, bytes_of_ids};
use super::requests::{ChunkRequest, SampleRequest, SamplingRequest, StopRequest};
use super::results::{FutureOutcome, RequestFailure};

/// Largest number of samples of a request.
const MOST_SAMPLES: usize = 1024;
/// Largest number of likeliest tokens of a place.
const MOST_TOP: usize = 20;

/// Places for adapters that only generate. The one that was not used for the longest time makes room for another.
pub(super) struct SamplerPlaces {
    host: TrainingHost,
    first: usize,
    places: Mutex<Vec<SamplerPlace>>,
    freed: Arc<Notify>,
}

#[derive(Default)]
struct SamplerPlace {
    /// Directory of the adapter that is loaded.
    dir: Option<PathBuf>,
    /// Number of requests that use it.
    uses: Arc<AtomicUsize>,
    /// Time of its last use, in uses of any place.
    last: u64,
}

/// Use of a place, until it is dropped.
pub(super) struct PlaceUse {
    place: usize,
    uses: Arc<AtomicUsize>,
    freed: Arc<Notify>,
}

impl Drop for PlaceUse {
    fn drop(&mut self) {
        self.uses.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}

impl SamplerPlaces {
    /// Creates the places from `first` to the last of a host.
    pub(super) fn new(host: &TrainingHost, first: usize) -> Self {
        let places = (first..host.places()).map(|_| SamplerPlace::default()).collect();
        Self { host: host.clone(), first, places: Mutex::new(places), freed: Arc::default() }
    }

    /// Returns a place with the adapter of a directory, which is loaded if no place has it.
    async fn acquire(&self, dir: &Path) -> Result<PlaceUse, RequestFailure> {
        loop {
            let mut places = self.places.lock().await;
            let now = 1 + places.iter().map(|place| place.last).max().unwrap_or(0);
            let has = |place: &SamplerPlace| place.dir.as_deref() == Some(dir);
            let found = match places.iter().position(has) {
                Some(at) => Some(at),
                None => least_used(&places),
            };
            if let Some(at) = found {
                let place = &mut places[at];
                if !has(place) {
                    place.dir = None;
                    self.load(self.first + at, dir).await?;
                    place.dir = Some(dir.to_owned());
                }
                place.last = now;
                place.uses.fetch_add(1, Ordering::AcqRel);
                let (uses, freed) = (Arc::clone(&place.uses), Arc::clone(&self.freed));
                return Ok(PlaceUse { place: self.first + at, uses, freed });
            }
            drop(places);
            self.freed.notified().await;
        }
    }

    async fn load(&self, place: usize, dir: &Path) -> Result<(), RequestFailure> {
        if !dir.exists() {
            return Err(RequestFailure::user(
                "the weights of this sampling session are gone: of weights without a name the server keeps the last ones; save \
                 them with a name",
            ));
        }
        self.host.load_adapter(place, dir).await.map_err(failure)
    }

    /// Forgets what a directory held, which was written again.
    pub(super) async fn forget(&self, dir: &Path) {
        for place in self.places.lock().await.iter_mut() {
            place.dir.take_if(|held| held.as_path() == dir);
        }
    }
}

/// Returns the place that was not used for the longest time, of those that no request uses.
fn least_used(places: &[SamplerPlace]) -> Option<usize> {
    let free = places.iter().enumerate().filter(|(_, p)| p.uses.load(Ordering::Acquire) == 0);
    free.min_by_key(|(_, place)| place.last).map(|(at, _)| at)
}

/// Converts an error of the engine.
#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
pub(super) fn failure(error: RuntimeError) -> RequestFailure {
    let by_user = matches!(
        error,
        RuntimeError::NotFinite { .. }
            | RuntimeError::Overflow { .. }
            | RuntimeError::Memory { .. }
    );
    RequestFailure { message: error.to_string(), by_user }
}

/// A request for samples that was read.
pub(super) struct SampleJob {
    prompt: Vec<u32>,
    sampling: Arc<Sampling>,
    count: usize,
    seed: u64,
    /// Numbers of likeliest tokens of the prompt and of samples.
    top: [usize; 2],
    /// Number of the last tokens of the prompt whose log-probs are wanted.
    scored: Option<usize>,
}

impl SampleJob {
    /// Reads a request; `drawn` is its seed if it has none.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub(super) fn read(
        request: &SampleRequest,
        limits: TextLimits,
        drawn: u64,
    ) -> Result<Self, String> {
        let prompt = read_prompt(&request.prompt.chunks, limits)?;
        let count = request.num_samples;
        if count == 0 || count > MOST_SAMPLES {
            return Err(format!("`num_samples` is {count}; it may be 1 to {MOST_SAMPLES}"));
        }
        let top = [request.topk_prompt_logprobs, request.topk_sample_logprobs];
        if let Some(most) = top.iter().find(|top| **top > MOST_TOP) {
            return Err(format!(
                "{most} likeliest tokens are asked for; at most {MOST_TOP} are given"
            ));
        }
        if request.target_prompt_logprobs.is_some() || request.prompt_alt_tokens_k > 0 {
            let what =
                "`target_prompt_logprobs` and `prompt_alt_tokens_k` are not known to this server";
            return Err(what.to_owned());
        }
        let wanted = request.prompt_logprobs == Some(true) || top[0] > 0;
        let whole = prompt.len().saturating_sub(1);
        let scored = wanted.then(|| match request.prompt_logprobs_last_n {
            Some(last) => usize::try_from(last).unwrap_or(whole).min(whole),
            None => whole,
        });
        let sampling = Arc::new(read_sampling(&request.sampling_params, limits)?);
        let seed = request.sampling_params.seed.map_or(drawn, |seed| seed as u64);
        Ok(Self { prompt, sampling, count, seed, top, scored })
    }

    /// Samples from the adapter of a directory, or from the base.
    pub(super) async fn sample(
        self,
        places: &SamplerPlaces,
        dir: Option<&Path>,
    ) -> Result<FutureOutcome, RequestFailure> {
        let lease = match dir {
            Some(dir) => Some(places.acquire(dir).await?),
            None => None,
        };
        let place = lease.as_ref().map_or(0, |lease| lease.place);
        let samples = (0..self.count).map(|index| self.one(&places.host, place, index));
        let samples = try_join_all(samples).await.map_err(failure)?;
        Ok(FutureOutcome::Proto(self.output(&samples).encode_to_vec()))
    }

    /// Completes the prompt once. The first sample has the steps of the prompt too, if they are wanted.
    async fn one(
        &self,
        host: &TrainingHost,
        place: usize,
        index: usize,
    ) -> Result<(Completion, Vec<Step>), RuntimeError> {
        let echo = index == 0 && self.scored.is_some();
        let top = self.top[1].max(if echo { self.top[0] } else { 0 });
        let (watch, mut steps) = Watch::new(top, echo);
        let watch = (echo || top > 0).then_some(watch);
        let seed = if index == 0 { self.seed } else { derive_seed(self.seed, index as u64) };
        let sampling = Arc::clone(&self.sampling);
        let request = Request { watch, ..Request::new(self.prompt.clone(), sampling, seed) };
        let completion = host.generate(place, request).await?;
        let mut all = Vec::new();
        while let Ok(step) = steps.try_recv() {
            all.push(step);
        }
        Ok((completion, all))
    }

    fn output(&self, samples: &[(Completion, Vec<Step>)]) -> SampleOutput {
        let echoed = if self.scored.is_some() { self.prompt.len() - 1 } else { 0 };
        let sequences = samples.iter().enumerate().map(|(index, (completion, steps))| {
            let first = if index == 0 { echoed } else { 0 };
            let own = steps.get(first..).unwrap_or_default();
            sequence(completion, own, self.top[1])
        });
        let sequences = sequences.collect();
        let Some(scored) = self.scored else {
            return SampleOutput { sequences, ..SampleOutput::default() };
        };
        let given = samples.first().map_or(&[][..], |(_, steps)| &steps[..echoed.min(steps.len())]);
        let unscored = 1 + echoed - scored;
        let logprobs: Vec<f32> = std::iter::repeat_n(f32::NAN, unscored)
            .chain(given.iter().skip(echoed - scored).map(|step| step.logprob))
            .collect();
        let top = self.top[0];
        let topk_prompt_logprobs = (top > 0).then(|| likeliest(given, 1, top));
        let prompt_logprobs = Some(bytes_of_f32(&logprobs));
        SampleOutput { sequences, prompt_logprobs, topk_prompt_logprobs, ..SampleOutput::default() }
    }
}

/// Returns the message of a sample.
fn sequence(completion: &Completion, steps: &[Step], top: usize) -> SampledSequence {
    SampledSequence {
        stop_reason: i32::from(completion.finish == Finish::Length),
        tokens: bytes_of_ids(&completion.ids),
        logprobs: Some(bytes_of_f32(&completion.logprobs)),
        topk_sampled_logprobs: (top > 0).then(|| likeliest(steps, 0, top)),
    }
}

/// Returns the likeliest tokens of places, after `empty` places without any.
fn likeliest(steps: &[Step], empty: usize, k: usize) -> TopkLogprobs {
    // The numbers of cells without a token in the protocol.
    const NONE: (u32, f32) = (0, -99_999.0);
    let rows = std::iter::repeat_n(&[][..], empty).chain(steps.iter().map(|step| &step.top[..]));
    let cells = rows.flat_map(|row| {
        let row = &row[..row.len().min(k)];
        row.iter().copied().chain(std::iter::repeat_n(NONE, k - row.len()))
    });
    let (ids, logprobs): (Vec<u32>, Vec<f32>) = cells.unzip();
    TopkLogprobs {
        token_ids: bytes_of_ids(&ids),
        logprobs: bytes_of_f32(&logprobs),
        k: k as u32,
        length: (empty + steps.len()) as u32,
    }
}

fn read_prompt(chunks: &[ChunkRequest], limits: TextLimits) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    for ChunkRequest { kind, tokens } in chunks {
        match tokens {
            Some(tokens) if kind.is_empty() || kind == "encoded_text" => ids.extend(tokens),
            _ => {
                return Err(format!(
                    "the prompt has a chunk of the type {kind:?}; only encoded_text is read"
                ));
            }
        }
    }
    check_ids(&ids, "the prompt", limits)?;
    let (n, context) = (ids.len(), limits.context);
    if n == 0 || n >= context {
        return Err(format!(
            "the prompt has {n} tokens; in a context of {context} it may have 1 to {}",
            context - 1
        ));
    }
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

fn read_sampling(asked: &SamplingRequest, limits: TextLimits) -> Result<Sampling, String> {
    let SamplingRequest { max_tokens, temperature, top_k, top_p, .. } = *asked;
    let what = if max_tokens == Some(0) {
        "`max_tokens` is 0; it is at least 1".to_owned()
    } else if !(temperature.is_finite() && temperature >= 0.0) {
        format!("`temperature` is {temperature}; it is a finite number from 0")
    } else if !(top_p > 0.0 && top_p <= 1.0) {
        format!("`top_p` is {top_p}; it is above 0 and at most 1")
    } else if top_k < -1 {
        format!("`top_k` is {top_k}; it is -1 for all tokens, or a number from 0")
    } else {
        let (stop, stop_ids) = read_stop(asked.stop.as_ref(), limits)?;
        return Ok(Sampling {
            temperature: temperature as f32,
            top_k: u32::try_from(top_k.max(0)).unwrap_or(0),
            top_p: top_p as f32,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: max_tokens.unwrap_or(limits.context),
            stop,
            stop_ids,
        });
    };
    Err(what)
}

/// Returns the stop strings and stop ids of a request.
fn read_stop(
    stop: Option<&StopRequest>,
    limits: TextLimits,
) -> Result<(Vec<String>, Vec<u32>), String> {
    let (texts, ids) = match stop {
        None => return Ok(Default::default()),
        Some(StopRequest::Text(text)) => (vec![text.clone()], Vec::new()),
        Some(StopRequest::Texts(texts)) => (texts.clone(), Vec::new()),
        Some(StopRequest::Ids(ids)) => (Vec::new(), ids.clone()),
    };
    if texts.is_empty() && ids.is_empty() {
        let what = "`stop` is an empty list, and the model's own end of a reply cannot be turned off; leave `stop` out";
        return Err(what.to_owned());
    }
    if texts.iter().any(String::is_empty) {
        return Err("`stop` has an empty text".to_owned());
    }
    check_ids(&ids, "`stop`", limits)?;
    Ok((texts, ids.into_iter().map(|id| id as u32).collect()))
}
