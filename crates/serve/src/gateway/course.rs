//! The course of an episode: its calls, actions and rewards, and its end.
//!
//! Everything runs in the task of the episode, so its end cancels what is under way, and its failure concerns no other
//! episode (RO-1).

mod complete;
mod ends;
mod prompts;
mod refused;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use maverl_kernels::sample::derive_seed;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

pub(super) use complete::Completed;
use complete::{CallOutcome, Under, complete};
pub(super) use ends::Exit;
use refused::{failed_request, refused_prompt};

use super::answer::{Choice, Told, answer};
use super::call::SeatCall;
use super::dialect::Dialect;
use super::history::{Continued, EpisodeHistory, Hash, hashes};
use super::options::ProgramOptions;
use super::order::TurnOrder;
use super::report::{EpisodeFinish, ReportedFailure, ReportedPart};
use crate::openai::{flat, new_id};
use crate::refusal::Refusal;
use maverl::agent::{Prompt, PromptForm, ReplyError};
use maverl::orchestra::{Ask, Conversation, EpisodeState};
use maverl::task::{Action, Observation};
use maverl::trajectory::{Fault, FaultKind, Seat, Turn, TurnPath};

/// Receiver of the answer to a request.
pub(super) type Reply = oneshot::Sender<Result<Value, Refusal>>;
/// A request to an episode.
pub(super) enum EpisodeCommand {
    Chat(Box<SeatCall>, oneshot::Sender<Result<watch::Receiver<Completed>, Refusal>>),
    /// A request for the number of tokens of the prompt of a call.
    Count(Box<SeatCall>, Reply),
    State(Reply),
    Tools(Reply),
    Act(Action, Reply),
    Part(ReportedPart, Reply),
    /// The digest is that of the request.
    Finish(EpisodeFinish, Hash, Reply),
    Fail(ReportedFailure, Reply),
    /// A heartbeat of the worker.
    Beat,
}

/// End of an episode.
#[derive(Debug)]
pub(super) enum End {
    /// It is scored, with an answer or without one.
    Answer(Option<String>),
    /// It is unscored.
    Fault(Fault),
}

/// Returns a fault of the program.
pub(super) fn program_fault(message: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Program, message)
}

/// A part of an episode that is under way.
pub(super) enum FinishedPart {
    Chat(Box<Under>, CallOutcome),
    Act(Result<Observation, Fault>, Reply),
}

/// Counts of an episode for its metrics.
#[derive(Debug, Default)]
struct CourseCounts {
    calls: u32,
    /// Calls with a reply of their seat.
    carried: u32,
    /// Of these, calls that continue its conversation.
    continued: u32,
    forked: u32,
    /// Calls that were refused because of a limit or the context.
    limits: u32,
}

/// A running episode.
pub(super) struct EpisodeCourse<'e> {
    options: &'e ProgramOptions,
    state: Arc<EpisodeState>,
    seats: Vec<Seat>,
    /// Description of the episode that the program reads.
    told: &'e Value,
    /// Digest of the request that finished the episode.
    finished: &'e OnceLock<Hash>,
    history: EpisodeHistory,
    order: TurnOrder,
    results: BTreeMap<Hash, Arc<watch::Sender<Completed>>>,
    /// Path of each answer's turn.
    completions: BTreeMap<String, TurnPath>,
    parts: Vec<ReportedPart>,
    /// Turns that are recorded or under way.
    turns: u32,
    tokens: u64,
    counts: CourseCounts,
    rewarded: bool,
    /// End of the program, if a metric counts it.
    pub(super) exit: Option<Exit>,
    pub(super) jobs: FuturesUnordered<BoxFuture<'static, FinishedPart>>,
    pub(super) end: Option<End>,
    /// Name of the first field of sampling that had no effect.
    pub(super) ignored: Option<&'static str>,
}

impl<'e> EpisodeCourse<'e> {
    pub(super) fn new(
        options: &'e ProgramOptions,
        state: Arc<EpisodeState>,
        seats: Vec<Seat>,
        told: &'e Value,
        finished: &'e OnceLock<Hash>,
    ) -> Self {
        let (history, order, results, completions, parts) = Default::default();
        Self {
            options,
            state,
            seats,
            told,
            finished,
            history,
            order,
            results,
            completions,
            parts,
            turns: 0,
            tokens: 0,
            counts: CourseCounts::default(),
            rewarded: false,
            exit: None,
            jobs: FuturesUnordered::new(),
            end: None,
            ignored: None,
        }
    }

    /// Handles a request. A client that left needs no answer.
    pub(super) async fn handle(&mut self, command: EpisodeCommand) {
        match command {
            EpisodeCommand::Chat(call, reply) => {
                let _ = reply.send(self.chat(*call));
            }
            EpisodeCommand::Count(call, reply) => {
                let _ = reply.send(self.count_tokens(*call));
            }
            EpisodeCommand::State(reply) => {
                let mut told = self.told.clone();
                told["turns"] = self.turns.into();
                let _ = reply.send(Ok(told));
            }
            EpisodeCommand::Tools(reply) => {
                let tools = self.state.tools();
                let tools: Vec<Value> = tools.iter().map(|tool| tool.declaration()).collect();
                let _ = reply.send(Ok(json!({"tools": tools})));
            }
            EpisodeCommand::Act(action, reply) => self.act(action, reply),
            EpisodeCommand::Part(part, reply) => {
                let _ = reply.send(self.part(part).map(|()| json!({"accepted": true})));
            }
            EpisodeCommand::Finish(finish, digest, reply) => {
                let finished = self.finish(finish).await;
                if finished.is_ok() {
                    let _ = self.finished.set(digest);
                }
                let _ = reply.send(finished.map(|()| json!({"accepted": true})));
            }
            EpisodeCommand::Beat => {}
            EpisodeCommand::Fail(failure, reply) => {
                let failed = self.fail(failure);
                let _ = reply.send(failed.map(|()| json!({"accepted": true})));
            }
        }
    }

    /// Begins a call, or joins the equal one that is sent again. Returns the receiver of its result.
    fn chat(&mut self, mut call: SeatCall) -> Result<watch::Receiver<Completed>, Refusal> {
        if call.again
            && let Some(result) = self.results.get(&call.digest)
        {
            return Ok(result.subscribe());
        }
        self.within_limits(&call)?;
        let begun = self.order.begin(call.path.as_ref());
        begun.map_err(|what| Refusal::invalid("X-Maverl-Path", what))?;
        self.ignored = self.ignored.or(call.ignored);
        self.place_system(&mut call);
        self.turns += call.choices;
        let continued = call.dialect == Dialect::Text;
        let hashes = hashes(&call.tools.declared, &call.messages, continued);
        let hash = hashes[hashes.len() - 1];
        let found = if continued {
            Continued::default()
        } else {
            self.history.find(call.seat, &call.messages, &hashes)
        };
        self.counts.carried += u32::from(found.carries);
        self.counts.continued += u32::from(found.carries && found.known > 0);
        let form = if continued { PromptForm::Text } else { PromptForm::Chat };
        let prompt = Prompt {
            form,
            ..Prompt::messages(flat(&call.messages[found.known..]))
                .with_tools(call.tools.declared.iter().cloned())
        };
        let numbers: Vec<u32> =
            (0..call.choices).map(|_| self.history.number(call.seat, hash)).collect();
        let asks: Vec<(Ask, Conversation)> = numbers
            .iter()
            .map(|&number| {
                let ask = Ask {
                    seat: self.seats[call.seat].clone(),
                    path: call.path.clone().unwrap_or_default(),
                    seed: self.seed(&call, hash, number),
                    prompt: prompt.clone(),
                    limits: call.limits.clone(),
                };
                (ask, found.conversation.clone())
            })
            .collect();
        let (result, receiver) = watch::channel(None);
        let result = Arc::new(result);
        self.results.insert(call.digest, Arc::clone(&result));
        let under = Box::new(Under { call, result, hash, numbers });
        let (state, grace) = (Arc::clone(&self.state), self.options.grace());
        let done = complete(state, asks, under, grace);
        self.jobs.push(done.map(|(under, turns)| FinishedPart::Chat(under, turns)).boxed());
        Ok(receiver)
    }

    /// Returns the seed of a choice: from its path if it has one, else from what is asked, never from the order of calls.
    fn seed(&self, call: &SeatCall, hash: Hash, number: u32) -> u64 {
        let seed = self.state.seed();
        if let Some(path) = &call.path {
            return path.0.iter().fold(seed, |seed, &part| derive_seed(seed, u64::from(part)));
        }
        let mut low = [0; 8];
        low.copy_from_slice(&hash[..8]);
        let parts = [call.seat as u64, u64::from_le_bytes(low), u64::from(number)];
        parts.into_iter().fold(seed, derive_seed)
    }

    fn within_limits(&mut self, call: &SeatCall) -> Result<(), Refusal> {
        let ProgramOptions { max_turns, max_total_tokens, .. } = self.options;
        let message = if self.turns.saturating_add(call.choices) > max_turns.get() {
            format!("the episode may have {max_turns} completions (`orchestra.max_turns`)")
        } else if *max_total_tokens > 0 && self.tokens >= *max_total_tokens {
            format!(
                "the episode may sample {max_total_tokens} tokens (`orchestra.max_total_tokens`)"
            )
        } else {
            return Ok(());
        };
        self.counts.limits += 1;
        let refusal = Refusal::malformed(message).with_code("episode_limit");
        Err(Refusal { retry: Some(false), ..refusal })
    }

    /// Processes what has ended.
    pub(super) fn process_done(&mut self, done: FinishedPart) {
        match done {
            FinishedPart::Act(Ok(seen), reply) => {
                let _ = reply.send(Ok(json!({"text": seen.text, "done": seen.done})));
            }
            FinishedPart::Act(Err(fault), reply) => {
                let _ = reply.send(Err(failed_request(&fault)));
                self.end = Some(End::Fault(fault));
            }
            FinishedPart::Chat(under, None) => self.take_back(&under),
            FinishedPart::Chat(under, Some(Err(fault))) => {
                self.take_back(&under);
                let refusal = self.refuse_call(fault);
                under.result.send_replace(Some(Err(refusal)));
            }
            FinishedPart::Chat(under, Some(Ok(turns))) => {
                let id = new_id(under.call.dialect.prefix());
                let several = turns.len() > 1;
                let choices: Vec<Choice> = (0..)
                    .zip(turns)
                    .map(|(i, turn)| {
                        let id = if several { format!("{id}:{i}") } else { id.clone() };
                        self.record(&under, i, id, turn)
                    })
                    .collect();
                self.order.end(None);
                self.counts.calls += 1;
                let answer = answer(&id, &under.call, &choices);
                under.result.send_replace(Some(Ok(Arc::new(answer))));
            }
        }
    }

    /// Takes a call back that has no turn.
    fn take_back(&mut self, under: &Under) {
        let Under { call, hash, numbers, .. } = under;
        numbers.iter().for_each(|&number| self.history.forget(call.seat, *hash, number));
        self.turns -= call.choices;
        self.results.remove(&call.digest);
        self.order.end(call.path.as_ref());
    }

    /// Returns the refusal of a call with a fault. A prompt that does not fit is refused and nothing else; another fault
    /// ends the episode.
    fn refuse_call(&mut self, fault: Fault) -> Refusal {
        if let Some(refusal) = refused_prompt(&fault) {
            self.counts.limits += 1;
            return refusal;
        }
        let refusal = failed_request(&fault);
        self.state.fail(fault.clone());
        self.end = Some(End::Fault(fault));
        refusal
    }

    /// Records a turn at its place, before its reply is judged (RO-2), and returns it as a choice of the answer.
    fn record(
        &mut self,
        under: &Under,
        index: usize,
        id: String,
        (mut turn, conversation): (Turn, Conversation),
    ) -> Choice {
        let Under { call, hash, numbers, .. } = under;
        let number = numbers[index];
        match &call.path {
            Some(path) => self.order.record_given(path),
            None => {
                let rank = (call.messages.len(), call.seat, *hash, number);
                let (path, renamed) = self.order.record(rank);
                self.state.rename_turns(&renamed);
                for known in self.completions.values_mut() {
                    *known = renamed.get(known).unwrap_or(known).clone();
                }
                turn.path = path;
            }
        }
        self.completions.insert(id, turn.path.clone());
        turn.masked = call.masked;
        self.counts.forked += u32::from(turn.forked);
        self.state.record(turn.clone());
        let format = self.state.reply_format(&turn.seat).unwrap_or_default();
        let told = Told::read(&turn, call, &conversation.rendered, &Arc::new(format));
        if let Err(error) = judge(&turn, call, &told) {
            self.state.reject(&turn.path, &error);
        }
        self.history.insert(call.seat, (*hash, number), &told.message(), conversation);
        let sampled = turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
        self.tokens += sampled as u64;
        let (seed, version) =
            turn.tokens.as_ref().map_or((0, 0), |tokens| (tokens.seed, tokens.version));
        let tokens = turn.tokens.map(|tokens| (tokens.prompt, tokens.completion));
        let stop = call.ending_stop(&turn.reply);
        Choice { told, seed, truncated: turn.truncated, tokens, version, stop }
    }

    fn act(&mut self, action: Action, reply: Reply) {
        let (state, place) = (Arc::clone(&self.state), self.order.next_act());
        let act = async move { FinishedPart::Act(state.act_at(place, action).await, reply) };
        self.jobs.push(act.boxed());
    }
}

/// Returns the reason why a reply is malformed, as far as the gateway knows.
fn judge(turn: &Turn, call: &SeatCall, told: &Told) -> Result<(), ReplyError> {
    if turn.truncated {
        let tokens = turn.tokens.as_ref().map_or(0, |tokens| tokens.completion.len());
        return Err(ReplyError::Truncated { tokens });
    }
    if turn.reply.trim().is_empty() {
        return Err(ReplyError::Empty);
    }
    let calls: Vec<_> = told.calls.iter().collect();
    call.form.check(&told.content, &calls).map_err(ReplyError::Other)
}
