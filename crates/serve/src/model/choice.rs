//! One choice of a request: its tokens and the parts of its reply, while they are sampled.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::Value;
use tokio::sync::mpsc;

use super::catalog::Entry;
use super::server::ModelServer;
use crate::openai::{Choices, ReplyPart, ReplyText, ReplyTextShape, ReportedTokens};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use maverl::runtime::{Grammar, Sampling};
use maverl::runtime::{Request, RuntimeError, Step, Watch};
use maverl::text::Tokenizer;
use maverl::trajectory::Finish;

/// Time between two news of a choice. Tokens of a small model come faster than anybody reads, and each chunk has a price.
const PACE: Duration = Duration::from_millis(10);

/// Choices that are generated for a request.
pub(super) struct ReplyBatch {
    pub(super) entry: Arc<Entry>,
    pub(super) shape: ReplyTextShape,
    pub(super) reported: ReportedTokens,
    pub(super) jobs: Vec<ChoiceJob>,
    /// News are sent while the reply is sampled. Otherwise they come at its end, and no token wakes a task: with many clients of
    /// a small model, that costs a third of the engine's speed.
    pub(super) eager: bool,
    /// Number of prompt tokens that were in the cache.
    pub(super) cached: AtomicUsize,
    /// The context, and not the request, bounds the reply.
    pub(super) fills_context: bool,
}

/// One choice.
#[derive(Debug, Clone)]
pub(super) struct ChoiceJob {
    pub(super) prompt: Arc<[u32]>,
    pub(super) sampling: Arc<Sampling>,
    pub(super) seed: u64,
    /// Parts of the prompt and the reply that are reported.
    pub(super) echo: Echo,
    /// Form that the reply must have.
    pub(super) grammar: Option<Arc<dyn Grammar>>,
}

impl ChoiceJob {
    /// Returns the choices of a prompt.
    pub(super) fn each(
        choices: Choices,
        prompt: &Arc<[u32]>,
        sampling: &Arc<Sampling>,
        grammar: Option<&Arc<dyn Grammar>>,
    ) -> Vec<Self> {
        (0..choices.n)
            .map(|i| Self {
                prompt: Arc::clone(prompt),
                sampling: Arc::clone(sampling),
                seed: choices.seed_of(i),
                echo: Echo::No,
                grammar: grammar.cloned(),
            })
            .collect()
    }

    /// Returns the largest number of tokens that are reported.
    pub(super) fn listed_tokens(&self) -> usize {
        self.sampling.max_tokens.saturating_add(self.echoed_tokens())
    }

    /// Returns the number of tokens of the prompt that are reported.
    pub(super) fn echoed_tokens(&self) -> usize {
        if self.echo == Echo::No { 0 } else { self.prompt.len() }
    }

    /// Returns the request to the engine.
    fn request(&self, watch: Watch) -> Request {
        Request {
            prompt: self.prompt.to_vec(),
            sampling: Arc::clone(&self.sampling),
            seed: self.seed,
            watch: Some(watch),
            grammar: self.grammar.clone(),
        }
    }
}

/// Parts of the prompt and the reply that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Echo {
    /// The reply.
    #[default]
    No,
    /// The prompt with its log-probs, then the reply.
    Prompt,
    /// The prompt with its log-probs alone.
    PromptAlone,
}

/// News of a choice.
pub(super) enum ChoiceEvent {
    /// Its reply goes on.
    More {
        /// Parts of the reply.
        parts: Vec<ReplyPart>,
        /// Tokens since the last news; those of an echoed prompt come first, from its second token on.
        steps: Vec<Step>,
    },
    /// It ended.
    End(ReplyEnd),
}

/// End of a choice.
#[derive(Debug, Clone)]
pub(super) struct ReplyEnd {
    pub(super) finish: Finish,
    /// The stop string or stop token id of the request that ended it.
    pub(super) stop: Option<Value>,
    /// Number of sampled tokens.
    pub(super) tokens: usize,
    /// The reply has calls.
    pub(super) calls: bool,
}

impl ReplyBatch {
    /// Generates all choices, each once it has a permit; news are sent with the index of the choice. A closed receiver stops
    /// the work.
    pub(super) async fn run(
        &self,
        server: &ModelServer,
        admitted: &Admitted,
        news: mpsc::Sender<(usize, ChoiceEvent)>,
    ) -> Result<(), Refusal> {
        let all = self.jobs.iter().enumerate().map(|(index, job)| {
            let news = news.clone();
            // Choices of one prompt share it; the first of them computes it.
            let first = index == 0 || !Arc::ptr_eq(&self.jobs[index - 1].prompt, &job.prompt);
            async move {
                let _permit = admitted.permit().await?;
                let speaking = self.speak((job, first), server, |more| {
                    let news = news.clone();
                    async move { news.send((index, more)).await.is_ok() }
                });
                speaking.await.map_err(|error| engine_refusal(&error))
            }
        });
        let (all, begin) = (try_join_all(all), Instant::now());
        drop(news);
        match tokio::time::timeout(server.settings.timeout, all).await {
            Ok(done) => {
                server.metrics.observe(
                    "maverl_request_seconds",
                    &[&self.entry.name],
                    begin.elapsed(),
                );
                done.map(drop)
            }
            Err(_) => {
                let seconds = server.settings.timeout.as_secs_f64();
                let message = format!("the request took longer than {seconds} s (`--timeout-s`)");
                let refusal = Refusal::unavailable("timeout", message);
                Err(Refusal { retry: Some(false), retry_after: None, ..refusal })
            }
        }
    }

    /// Generates one choice. The `first` of a prompt counts the tokens of it that were in the cache, before its first news.
    async fn speak<F: Future<Output = bool>>(
        &self,
        (job, first): (&ChoiceJob, bool),
        server: &ModelServer,
        send: impl Fn(ChoiceEvent) -> F,
    ) -> Result<(), RuntimeError> {
        let (watch, mut steps) = Watch::new(self.reported.top, job.echo != Echo::No);
        let mut uncounted = first.then(|| watch.cached_tokens());
        let mut done = pin!(self.entry.host.generate(self.entry.place, job.request(watch)));
        let (mut completion, begin) = (None, Instant::now());
        let mut reply = Reply::new(self, job);
        let mut begun_at = None;
        let (mut pause, mut paused) = (pin!(tokio::time::sleep(Duration::ZERO)), false);
        loop {
            let (begun, ended) = (begun_at.is_some(), completion.is_some());
            let step = tokio::select! {
                biased;
                step = steps.recv(), if !begun || ended || self.eager && !paused => step,
                () = &mut pause, if self.eager && paused && !ended => {
                    paused = false;
                    continue;
                }
                result = &mut done, if completion.is_none() => {
                    completion = Some(result?);
                    continue;
                }
            };
            let Some(step) = step else { break };
            self.count_cached(uncounted.take());
            let (parts, given) = reply.read_all(step, &mut steps);
            if reply.reports(job) {
                begun_at.get_or_insert_with(Instant::now);
            }
            let wanted = self.reported.logprobs || self.reported.ids;
            let steps = if wanted { given } else { Vec::new() };
            if (!parts.is_empty() || !steps.is_empty())
                && !send(ChoiceEvent::More { parts, steps }).await
            {
                return Ok(());
            }
            if self.eager && reply.reports(job) {
                pause.as_mut().reset(tokio::time::Instant::now() + PACE);
                paused = true;
            }
        }
        let completion = match completion {
            Some(completion) => completion,
            None => done.await?,
        };
        self.count_cached(uncounted.take());
        let tokens = completion.ids.len();
        self.measure(server, job, tokens, begin, begun_at);
        let (parts, end) = reply.end(completion.finish, tokens);
        let more = ChoiceEvent::More { parts, steps: Vec::new() };
        // Nobody listens any more if a send fails.
        let _ = send(more).await && send(ChoiceEvent::End(end)).await;
        Ok(())
    }

    /// Adds the cached tokens of a prompt, unless they are counted.
    fn count_cached(&self, uncounted: Option<Arc<AtomicUsize>>) {
        let cached = uncounted.map_or(0, |cached| cached.load(Ordering::Relaxed));
        self.cached.fetch_add(cached, Ordering::Relaxed);
    }

    fn measure(
        &self,
        server: &ModelServer,
        job: &ChoiceJob,
        tokens: usize,
        begin: Instant,
        first: Option<Instant>,
    ) {
        let (metrics, model) = (&server.metrics, self.entry.name.as_str());
        metrics.add("maverl_tokens_total", &[model, "prompt"], job.prompt.len() as u64);
        metrics.add("maverl_tokens_total", &[model, "completion"], tokens as u64);
        let Some(first) = first else { return };
        metrics.observe("maverl_first_token_seconds", &[model], first - begin);
        if let Some(rest) = tokens.checked_sub(1).filter(|rest| *rest > 0) {
            metrics.observe("maverl_token_seconds", &[model], first.elapsed() / rest as u32);
        }
    }
}

/// Reader of the steps of a choice.
struct Reply<'b> {
    text: ReplyText<'b>,
    job: &'b ChoiceJob,
    stop_ids: [&'b [u32]; 2],
    /// Steps of the prompt that are still to come.
    prompt: usize,
    /// The last step is reported.
    keep: bool,
    calls: bool,
    last: Option<u32>,
    tokenizer: &'b Tokenizer,
    /// Last tokens of the reply, in which the engine looks for stop strings.
    tail: VecDeque<u32>,
}

impl<'b> Reply<'b> {
    fn new(batch: &'b ReplyBatch, job: &'b ChoiceJob) -> Self {
        let tokenizer = batch.entry.tokenizer();
        let decoder = tokenizer.detokenizer().keeping(&batch.shape.format.kept);
        let prompt = if job.echo == Echo::No { 0 } else { job.prompt.len() - 1 };
        Self {
            text: ReplyText::new(decoder, &job.sampling.stop, batch.shape.clone()),
            job,
            stop_ids: [tokenizer.stop_ids(), &job.sampling.stop_ids],
            prompt,
            keep: true,
            calls: false,
            last: None,
            tokenizer,
            tail: VecDeque::new(),
        }
    }

    /// Reads a step and those that wait behind it. Returns the parts of the reply that became certain, and the steps that
    /// are reported.
    fn read_all(
        &mut self,
        step: Step,
        more: &mut mpsc::UnboundedReceiver<Step>,
    ) -> (Vec<ReplyPart>, Vec<Step>) {
        let (mut parts, mut given) = (Vec::new(), Vec::new());
        let mut next = Some(step);
        while let Some(step) = next {
            ReplyPart::append(&mut parts, self.read(&step));
            given.extend(self.keep.then_some(step));
            next = more.try_recv().ok();
        }
        (parts, given)
    }

    /// Reads a step; returns the parts of the reply that became certain.
    fn read(&mut self, step: &Step) -> Vec<ReplyPart> {
        if self.prompt > 0 {
            self.prompt -= 1;
            return Vec::new();
        }
        self.last = Some(step.id);
        if let Some(longest) = self.job.sampling.stop.iter().map(String::len).max() {
            self.tail.push_back(step.id);
            self.tail.drain(..self.tail.len().saturating_sub(longest + 1));
        }
        self.keep = self.job.echo != Echo::PromptAlone;
        // A stop id is the last token, and not part of the reply.
        if !self.keep || self.stop_ids.iter().any(|ids| ids.contains(&step.id)) {
            return Vec::new();
        }
        self.note_parts(|text| text.push(step.id))
    }

    /// Returns true once a token was sampled.
    fn reports(&self, job: &ChoiceJob) -> bool {
        self.last.is_some() && job.echo != Echo::PromptAlone
    }

    fn note_parts(
        &mut self,
        read: impl FnOnce(&mut ReplyText<'b>) -> Vec<ReplyPart>,
    ) -> Vec<ReplyPart> {
        let parts = read(&mut self.text);
        self.calls |= parts.iter().any(|part| matches!(part, ReplyPart::Call(_)));
        parts
    }

    /// Returns the stop string that ended the reply with the text of a special token, which is not part of the reply.
    fn special_stop(&self) -> Option<&str> {
        let is_stop = |id: &u32| self.stop_ids.iter().any(|ids| ids.contains(id));
        self.last.filter(|id| !is_stop(id))?;
        let tail = self.tokenizer.decode_raw(&Vec::from_iter(self.tail.iter().copied()));
        let mut stops = self.job.sampling.stop.iter().map(String::as_str);
        stops.find(|stop| tail.contains(stop))
    }

    /// Ends the reply.
    fn end(mut self, finish: Finish, tokens: usize) -> (Vec<ReplyPart>, ReplyEnd) {
        let parts = self.note_parts(ReplyText::finish);
        if self.job.echo == Echo::PromptAlone {
            return (
                parts,
                ReplyEnd { finish: Finish::Length, stop: None, tokens: 0, calls: false },
            );
        }
        let id = self.last.filter(|id| self.job.sampling.stop_ids.contains(id));
        let stop = self.text.stop().or_else(|| self.special_stop()).map(Value::from);
        let stop = stop.or(id.map(Value::from)).filter(|_| finish == Finish::Stop);
        (parts, ReplyEnd { finish, stop, tokens, calls: self.calls })
    }
}

/// Returns the error of a request that the engine could not complete.
fn engine_refusal(error: &RuntimeError) -> Refusal {
    match error {
        RuntimeError::Overflow { .. } | RuntimeError::Memory { .. } => {
            Refusal::malformed(error.to_string()).with_code("context_length_exceeded")
        }
        RuntimeError::Grammar { .. } => Refusal::malformed(error.to_string()),
        error => Refusal::internal(error.to_string()),
    }
}
