//! Episodes as answers.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;
use futures::future::try_join_all;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::request::Question;
use super::{ServedTeam, TeamServer};
use crate::openai::{new_id, now};
use crate::queue::Admitted;
use crate::refusal::Refusal;
use crate::refusal::json_response;
use crate::stream::Events;
use maverl::rollout::{EpisodeRequest, Heard};
use maverl::trajectory::{Episode, FaultKind, Outcome, Seat, Turn};

/// Answers at the end of all episodes.
pub(super) async fn whole(
    server: &TeamServer,
    question: &Question,
    admitted: &Admitted,
) -> Result<Response, Refusal> {
    let team = server.team()?;
    let plays = (0..question.choices.n).map(|choice| {
        let unheard: Heard = Arc::new(|_, _, _| ());
        play(server, team, question, admitted, (choice, unheard))
    });
    let episodes: Vec<Episode> = try_join_all(plays).await?;
    if let Some(fault) = episodes.iter().find_map(fault) {
        return Err(fault);
    }
    let choices = episodes.iter().enumerate().map(|(index, episode)| {
        let mut message =
            json!({"role": "assistant", "content": content(episode), "refusal": null});
        if server.settings.show_turns {
            let replies: String =
                episode.turns.iter().map(|turn| shown(&turn.seat, &turn.reply)).collect();
            message["reasoning_content"] = replies.into();
        }
        json!({"index": index, "message": message, "logprobs": null, "finish_reason": "stop"})
    });
    let choices = choices.collect();
    let mut answer = header(&new_id("chatcmpl"), "chat.completion", team, choices);
    answer.insert("usage".to_owned(), usage(&episodes));
    answer.insert("maverl".to_owned(), own(team, question, &episodes));
    Ok(json_response(StatusCode::OK, &answer.into()))
}

/// Answers in chunks: the turns as they come, if they are shown, and each answer at the end of its episode.
pub(super) async fn stream(
    server: &TeamServer,
    question: Question,
    admitted: &Admitted,
    events: &Events,
) {
    let team = match server.team() {
        Ok(team) => team,
        Err(refusal) => return events.fail(&refusal).await,
    };
    let (news, received) = mpsc::channel::<(usize, News)>(64);
    let (question, show) = (&question, server.settings.show_turns);
    let plays = try_join_all((0..question.choices.n).map(|choice| {
        let (turns, news) = (news.clone(), news.clone());
        let heard: Heard = Arc::new(move |seat, _, reply| {
            if show {
                // A client that reads slowly loses a turn of the commentary, never of the answer.
                let _ = turns.try_send((choice as usize, News::Turn(shown(seat, reply))));
            }
        });
        async move {
            let episode = play(server, team, question, admitted, (choice, heard)).await?;
            let _ = news.send((choice as usize, News::End(Box::new(episode)))).await;
            Ok::<_, Refusal>(())
        }
    }));
    drop(news);
    let chunks = Chunks { id: new_id("chatcmpl"), team, events };
    let (played, done) = tokio::join!(plays, chunks.write(question, received));
    match played.and(done) {
        Err(fault) => events.fail(&fault).await,
        Ok(episodes) => {
            let mut last = header(&chunks.id, CHUNK, team, Vec::new());
            last.insert("maverl".to_owned(), own(team, question, &episodes));
            if question.streaming.include_usage {
                last.insert("usage".to_owned(), usage(&episodes));
            }
            events.send(&last.into()).await;
            events.done().await;
        }
    }
}

/// Type of a chunk.
const CHUNK: &str = "chat.completion.chunk";

/// Writer of the chunks of an answer.
struct Chunks<'a> {
    id: String,
    team: &'a ServedTeam,
    events: &'a Events,
}

impl Chunks<'_> {
    /// Sends what the episodes tell, and returns them; fails with the first fault.
    async fn write(
        &self,
        question: &Question,
        mut received: mpsc::Receiver<(usize, News)>,
    ) -> Result<Vec<Episode>, Refusal> {
        for index in 0..question.choices.n as usize {
            self.send(index, json!({"role": "assistant", "content": ""}), Value::Null).await;
        }
        let mut episodes = Vec::new();
        while let Some((index, news)) = self.events.next(&mut received).await {
            match news {
                News::Turn(text) => {
                    self.send(index, json!({"reasoning_content": text}), Value::Null).await;
                }
                News::End(episode) => {
                    if let Some(fault) = fault(&episode) {
                        return Err(fault);
                    }
                    let answer = content(&episode);
                    self.send(index, json!({"content": answer}), Value::Null).await;
                    self.send(index, json!({}), json!("stop")).await;
                    episodes.push((index, *episode));
                }
            }
        }
        episodes.sort_by_key(|(index, _)| *index);
        Ok(episodes.into_iter().map(|(_, episode)| episode).collect())
    }

    /// Sends a chunk of one choice. A client that is gone ends the task.
    async fn send(&self, index: usize, delta: Value, finish: Value) {
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        self.events.send(&header(&self.id, CHUNK, self.team, vec![choice]).into()).await;
    }
}

/// News of an episode.
enum News {
    Turn(String),
    End(Box<Episode>),
}

/// Plays one episode, once it has a permit.
async fn play(
    server: &TeamServer,
    team: &ServedTeam,
    question: &Question,
    admitted: &Admitted,
    (choice, heard): (u32, Heard),
) -> Result<Episode, Refusal> {
    let _permit = admitted.permit().await?;
    let adjust = |sampling: &mut _| question.adjust(sampling);
    let runner = team.rollout.unjudged(&team.plan, &team.policies, adjust, &heard);
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

fn content(episode: &Episode) -> &str {
    episode.answer.as_deref().unwrap_or_default()
}

/// Formats a reply for people.
fn shown(seat: &Seat, reply: &str) -> String {
    format!("[{seat}] {}\n\n", reply.trim())
}

fn header(id: &str, object: &str, team: &ServedTeam, choices: Vec<Value>) -> Map<String, Value> {
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.into());
    answer.insert("object".to_owned(), object.into());
    answer.insert("created".to_owned(), now().into());
    answer.insert("model".to_owned(), team.name.as_str().into());
    answer.insert("choices".to_owned(), choices.into());
    answer
}

/// Returns the tokens of the prompts and completions of all turns.
fn usage(episodes: &[Episode]) -> Value {
    let turns = episodes.iter().flat_map(|episode| &episode.turns);
    let tokens = turns.filter_map(|turn| turn.tokens.as_ref());
    let (prompt, completion) = tokens.fold((0, 0), |(prompt, completion), tokens| {
        (prompt + tokens.prompt.len(), completion + tokens.completion.len())
    });
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// Returns the field `maverl`: seed, version, outcomes, and the turns if they were asked for.
fn own(team: &ServedTeam, question: &Question, episodes: &[Episode]) -> Value {
    let mut own = json!({"seed": question.choices.seed, "version": team.version});
    let outcomes: Vec<&str> = episodes.iter().map(outcome).collect();
    own["outcome"] = match outcomes.as_slice() {
        [only] => json!(only),
        several => json!(several),
    };
    if question.turns {
        let of = |episode: &Episode| episode.turns.iter().map(turn).collect::<Vec<Value>>();
        own["turns"] = match episodes {
            [only] => of(only).into(),
            several => several.iter().map(of).collect::<Vec<_>>().into(),
        };
    }
    own
}

fn turn(turn: &Turn) -> Value {
    let usage = turn.tokens.as_ref().map(|tokens| {
        json!({"prompt_tokens": tokens.prompt.len(), "completion_tokens": tokens.completion.len()})
    });
    json!({
        "path": turn.path.to_string(),
        "seat": turn.seat.to_string(),
        "policy": turn.policy,
        "reply": turn.reply,
        "error": turn.error,
        "usage": usage,
    })
}
