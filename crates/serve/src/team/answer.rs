//! Episodes as answers.

use std::sync::Arc;
use std::time::Instant;

use futures::future::try_join_all;
use tokio::sync::mpsc;

use super::request::TeamQuestion;
use super::server::{ServedTeam, TeamServer};
use crate::openai::answer::{Extra, FinishReason, Header, TokenUsage};
use crate::openai::chat::{ChatChunkChoice, ChatCompletion, Delta, PartTokens};
use crate::openai::origin::{AnswerOrigin, Seed, TurnRecord, TurnUsage};
use crate::openai::writer::{AnswerWriter, StreamWriter, WholeWriter};
use crate::openai::{new_id, now};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use maverl::orchestra::ReplyListener;
use maverl::rollout::EpisodeRequest;
use maverl::trajectory::{Episode, FaultKind, Outcome, Seat, Turn};

/// Returns the answer at the end of all episodes.
pub(super) async fn whole_answer(
    server: &TeamServer,
    question: &TeamQuestion,
    admitted: &Admitted,
) -> Result<ChatCompletion, Refusal> {
    let team = server.team()?;
    let plays = (0..question.choices.n).map(|choice| {
        let unheard: ReplyListener = Arc::new(|_, _, _| ());
        play(server, team, question, admitted, (choice, unheard))
    });
    let episodes: Vec<Episode> = try_join_all(plays).await?;
    if let Some(fault) = episodes.iter().find_map(fault) {
        return Err(fault);
    }
    let mut writer = WholeWriter::default();
    for (index, episode) in episodes.iter().enumerate() {
        writer.write(ChatChunkChoice::first(index)).await;
        if server.settings.show_turns {
            let turns = episode.turns.iter();
            let replies = turns.map(|turn| show_reply(&turn.seat, &turn.reply)).collect();
            writer.write(part(index, Delta::reasoning(replies))).await;
        }
        write_answer(&mut writer, index, episode).await;
    }
    let maverl = Some(origin(team, question, &episodes));
    let extra = Extra { maverl, prompt_token_ids: None };
    Ok(writer.finish(header(team), usage(&episodes), extra))
}

/// Answers in parts: the turns as they come, if they are shown, and each answer at the end of its episode.
pub(super) async fn stream(
    server: &TeamServer,
    team: &ServedTeam,
    question: &TeamQuestion,
    admitted: &Admitted,
    mut writer: impl StreamWriter<ChatChunkChoice>,
) {
    let (news, received) = mpsc::channel::<(usize, EpisodeEvent)>(64);
    let show = server.settings.show_turns;
    let plays = try_join_all((0..question.choices.n).map(|choice| {
        let (turns, news) = (news.clone(), news.clone());
        let heard: ReplyListener = Arc::new(move |seat, _, reply| {
            if show {
                // A client that reads slowly loses a turn of the commentary, never of the answer.
                let _ =
                    turns.try_send((choice as usize, EpisodeEvent::Turn(show_reply(seat, reply))));
            }
        });
        async move {
            let episode = play(server, team, question, admitted, (choice, heard)).await?;
            let _ = news.send((choice as usize, EpisodeEvent::End(Box::new(episode)))).await;
            Ok::<_, Refusal>(())
        }
    }));
    drop(news);
    let (played, done) = tokio::join!(plays, write(&mut writer, question, received));
    match played.and(done) {
        Err(fault) => writer.fail(&fault).await,
        Ok(episodes) => {
            let maverl = origin(team, question, &episodes);
            writer.finish(usage(&episodes), Some(maverl)).await;
        }
    }
}

/// Writes what the episodes tell, and returns them; fails with the first fault. A client that is gone ends the task.
async fn write(
    writer: &mut impl AnswerWriter<ChatChunkChoice>,
    question: &TeamQuestion,
    mut received: mpsc::Receiver<(usize, EpisodeEvent)>,
) -> Result<Vec<Episode>, Refusal> {
    for index in 0..question.choices.n as usize {
        writer.write(ChatChunkChoice::first(index)).await;
    }
    let mut episodes = Vec::new();
    while let Some((index, news)) = writer.next(&mut received).await {
        match news {
            EpisodeEvent::Turn(text) => {
                writer.write(part(index, Delta::reasoning(text))).await;
            }
            EpisodeEvent::End(episode) => {
                if let Some(fault) = fault(&episode) {
                    return Err(fault);
                }
                write_answer(writer, index, &episode).await;
                episodes.push((index, *episode));
            }
        }
    }
    episodes.sort_by_key(|(index, _)| *index);
    Ok(episodes.into_iter().map(|(_, episode)| episode).collect())
}

/// Writes the answer of an episode, which ends its choice.
async fn write_answer(
    writer: &mut impl AnswerWriter<ChatChunkChoice>,
    index: usize,
    episode: &Episode,
) {
    let answer = episode.answer.clone().unwrap_or_default();
    writer.write(part(index, Delta::content(answer))).await;
    writer.write(ChatChunkChoice::end(index, FinishReason::Stop, None)).await;
}

fn part(index: usize, delta: Delta) -> ChatChunkChoice {
    ChatChunkChoice::new(index, delta, PartTokens::default())
}

/// News of an episode.
enum EpisodeEvent {
    Turn(String),
    End(Box<Episode>),
}

/// Plays one episode, once it has a permit.
async fn play(
    server: &TeamServer,
    team: &ServedTeam,
    question: &TeamQuestion,
    admitted: &Admitted,
    (choice, heard): (u32, ReplyListener),
) -> Result<Episode, Refusal> {
    let _permit = admitted.permit().await?;
    let (plan, policies) = (&team.plan, &team.policies);
    let runner = team.rollout.unjudged_runner(plan, policies, |seat| question.adjust(seat), &heard);
    let seed = question.choices.seed_of(choice);
    let begin = Instant::now();
    let request = EpisodeRequest { task: question.task.clone(), index: choice, seed };
    let episode = runner.play(request).await;
    server.metrics.observe("maverl_request_seconds", &[&team.name], begin.elapsed());
    server.metrics.add("maverl_episodes_total", &[outcome(&episode)], 1);
    Ok(episode)
}

/// Returns the outcome of an episode in a word.
fn outcome(episode: &Episode) -> &'static str {
    match (&episode.outcome, &episode.answer) {
        (Outcome::Unscored(fault), _) => fault.kind.name(),
        (Outcome::Scored(_), Some(_)) => "answer",
        (Outcome::Scored(_), None) => "no_answer",
    }
}

/// Returns the error of an episode that ended with a fault.
fn fault(episode: &Episode) -> Option<Refusal> {
    let Outcome::Unscored(fault) = &episode.outcome else { return None };
    Some(match fault.kind {
        FaultKind::Overflow => {
            Refusal::malformed(fault.message.clone()).with_code("context_length_exceeded")
        }
        kind => {
            let message =
                format!("the episode ended with a fault ({}): {}", kind.name(), fault.message);
            Refusal { retry: Some(false), ..Refusal::internal(message).with_code(kind.name()) }
        }
    })
}

/// Formats a reply for people.
fn show_reply(seat: &Seat, reply: &str) -> String {
    format!("[{seat}] {}\n\n", reply.trim())
}

pub(super) fn header(team: &ServedTeam) -> Header {
    let (id, created, model) = (new_id("chatcmpl"), now(), team.name.clone());
    Header { id, created, model, system_fingerprint: None }
}

/// Returns the tokens of the prompts and completions of all turns.
fn usage(episodes: &[Episode]) -> TokenUsage {
    let turns = episodes.iter().flat_map(|episode| &episode.turns);
    let tokens = turns.filter_map(|turn| turn.tokens.as_ref());
    let (prompt, completion) = tokens.fold((0, 0), |(prompt, completion), tokens| {
        (prompt + tokens.prompt.len(), completion + tokens.completion.len())
    });
    TokenUsage::new(prompt, completion)
}

/// Returns the field `maverl`: seed, version, outcomes, and the turns if they were asked for.
fn origin(team: &ServedTeam, question: &TeamQuestion, episodes: &[Episode]) -> AnswerOrigin {
    let outcomes = episodes.iter().map(|episode| outcome(episode).to_owned());
    let turns = episodes.iter().map(|episode| episode.turns.iter().map(record).collect());
    AnswerOrigin {
        outcome: Some(outcomes.collect()),
        turns: question.turns.then(|| turns.collect()),
        ..AnswerOrigin::new(Seed::Number(question.choices.seed), team.version)
    }
}

fn record(turn: &Turn) -> TurnRecord {
    let usage = turn.tokens.as_ref().map(|tokens| TurnUsage {
        prompt_tokens: tokens.prompt.len(),
        completion_tokens: tokens.completion.len(),
    });
    TurnRecord {
        path: turn.path.to_string(),
        seat: turn.seat.to_string(),
        policy: turn.policy.clone(),
        reply: turn.reply.clone(),
        error: turn.error.clone(),
        usage,
    }
}
