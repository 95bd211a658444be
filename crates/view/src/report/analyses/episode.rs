//! One episode as JSON: turns without token arrays, actions, rewards as sums, and samples with their arithmetic.

use maverl::run_dir::{SampleRecord, StepSamples, TRAIN, TurnTime};
use maverl::trajectory::{Act, Episode, Message, RewardOf, RewardPart, Turn};
use serde_json::Value;

use crate::report::problem::ReportProblem;
use crate::report::rows::episodes::StoredEpisode;
use crate::report::rows::run::ReportedRun;

/// Number of bytes of a text beyond which an answer contains its start only.
const LONG: usize = 32 << 10;
/// Minimum number of characters of a text that is looked for in later prompts.
const DISTINCT: usize = 12;
/// Maximum number of turns in which texts are looked for.
const SEARCHED: usize = 300;

/// Returns an episode with its row.
pub(crate) fn episode_json(
    run: &ReportedRun,
    stored: &StoredEpisode,
) -> Result<Value, ReportProblem> {
    let StoredEpisode { index, row, episode } = stored;
    let (stage, step) = (row["stage"].as_str().unwrap_or_default(), row["step"].as_u64());
    let step = step.unwrap_or_default();
    let (samples, clock) = match stage {
        TRAIN => (run.files.read_samples(step)?, run.files.read_clock(step)?),
        _ => (None, None),
    };
    let content = run.lock_content();
    let seats = content.seat_names();
    let trained = content.facts.plan["summary"]["seats"].clone();
    let n = row["n"].as_u64().unwrap_or_default() as usize;
    let of_task = content.index.of_task(*index);
    drop(content);
    let its = samples.as_ref().map(|samples| samples.of_episode(n));
    let recorded = samples.as_ref().zip(its.as_ref());
    let turns: Vec<Value> = (0..episode.turns.len())
        .map(|i| {
            let sample = recorded.and_then(|(all, its)| Some((all, *its.get(&i)?)));
            turn_json(episode, i, sample, samples.is_some(), &trained)
        })
        .collect();
    let name = format!("{step}/{}/{}", episode.task.id, episode.index);
    let clock = clock.unwrap_or_default().into_iter().filter(|TurnTime(of, ..)| *of == n);
    let times: Vec<_> = clock.map(|TurnTime(_, i, _, asked, ended, _)| (i, asked, ended)).collect();
    Ok(object!({
        "row": row,
        "name": name,
        "task": episode.task,
        "answer": episode.answer.as_deref().map(shortened_text),
        "outcome": episode.outcome,
        "rewards": episode.rewards,
        "seats": seats,
        "acts": episode.acts.iter().map(act_json).collect::<Vec<_>>(),
        "turns": turns,
        "of_task": of_task,
        "times": times,
        "has_samples": samples.is_some(),
    }))
}

/// Returns one turn with its complete texts.
pub(crate) fn turn_texts(episode: &Episode, turn: usize) -> Result<Value, ReportProblem> {
    let turn = episode.turns.get(turn);
    let turn = turn.ok_or_else(|| ReportProblem::missing("there is no such turn"))?;
    Ok(object!({ "prompt": turn.prompt, "reply": turn.reply, "tools": turn.tools }))
}

fn act_json(act: &Act) -> Value {
    object!({
        "path": act.path.0,
        "nth": act.nth,
        "environment": act.environment,
        "action": act.action,
        "observation": shortened_text(&act.observation),
        "done": act.done,
    })
}

/// Returns a text, or its start and its length if it is long.
fn shortened_text(text: &str) -> Value {
    if text.len() <= LONG {
        return text.into();
    }
    let start = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONG).last();
    object!({ "start": &text[..start.unwrap_or(0)], "chars": text.chars().count() })
}

/// Returns a turn. Messages that an earlier turn was given too are left out.
fn turn_json(
    episode: &Episode,
    i: usize,
    sample: Option<(&StepSamples, &SampleRecord)>,
    has_samples: bool,
    seats: &Value,
) -> Value {
    let turn = &episode.turns[i];
    let (shared, from) = shared_messages(&episode.turns, i);
    let prompt = turn.prompt[shared..].iter().map(
        |message| object!({ "role": message.role, "content": shortened_text(&message.content) }),
    );
    let tokens = turn.tokens.as_ref();
    let tools = turn.tools.iter().map(|tool| tool["function"]["name"].clone());
    object!({
        "path": turn.path.0,
        "seat": turn.seat,
        "policy": turn.policy,
        "shared": (shared > 0).then(|| object!({ "turn": from, "messages": shared })),
        "prompt": prompt.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "reply": shortened_text(&turn.reply),
        "error": turn.error.as_deref().map(shortened_text),
        "truncated": turn.truncated,
        "shortened": turn.shortened,
        "forked": turn.forked,
        "masked": turn.masked,
        "tokens": tokens.map(|tokens| object!({
            "prompt": tokens.prompt.len(),
            "completion": tokens.completion.len(),
            "logprob_sum": tokens.logprobs.iter().map(|logprob| f64::from(*logprob)).sum::<f64>(),
            "version": tokens.version,
            "temperature": tokens.temperature,
            "finish": tokens.finish,
        })),
        "reward": turn_reward(episode, i),
        "saw": seen_texts(episode, i),
        "sample": sample.map(|(all, sample)| sample_json(all, sample)),
        "untrained": sample.is_none().then(|| untrained_reason(episode, i, has_samples, seats)),
    })
}

/// Returns a sample with the arithmetic of its advantage.
pub(crate) fn sample_json(all: &StepSamples, sample: &SampleRecord) -> Value {
    let arithmetic = all.arithmetic(sample).map(|found| {
        object!({
            "unit": found.unit,
            "centered": found.centered,
            "deviation": found.deviation,
            "relative": found.relative,
            "advantage": found.advantage,
        })
    });
    object!({ "record": sample, "arithmetic": arithmetic })
}

/// Returns the number of leading messages that another turn was given too, and the first such turn.
fn shared_messages(turns: &[Turn], i: usize) -> (usize, usize) {
    let mut best = (0, 0);
    for j in i.saturating_sub(SEARCHED)..i {
        let pairs = turns[j].prompt.iter().zip(&turns[i].prompt);
        let n = pairs.take_while(|(a, b)| a == b).count();
        if n > best.0 {
            best = (n, j);
        }
    }
    best
}

/// Returns the reward of a turn as its sum; null if the episode is unscored.
fn turn_reward(episode: &Episode, i: usize) -> Value {
    let Some(total) = episode.turn_reward(i) else { return Value::Null };
    let seat = &episode.turns[i].seat;
    let its = episode.rewards.iter().filter(|part| match &part.of {
        RewardOf::Episode => true,
        RewardOf::Seat(of) => of == seat,
        RewardOf::Turn(of) => *of == i,
    });
    object!({
        "total": total,
        "score": episode.score().map(|score| score.reward),
        "parts": its.map(part_json).collect::<Vec<_>>(),
    })
}

/// Returns a part of a reward, with whose it is.
fn part_json(part: &RewardPart) -> Value {
    let of = match &part.of {
        RewardOf::Episode => "episode",
        RewardOf::Seat(_) => "seat",
        RewardOf::Turn(_) => "turn",
    };
    object!({ "name": part.name, "value": part.value, "of": of })
}

/// Returns the earlier replies and observations that stand word for word in the prompt of a turn.
fn seen_texts(episode: &Episode, i: usize) -> Vec<Value> {
    let turn = &episode.turns[i];
    if episode.turns.len() > SEARCHED {
        return Vec::new();
    }
    let prompt = &turn.prompt;
    let earlier = episode.turns[..i].iter().enumerate();
    let replies = earlier
        .filter(|(_, turn)| contains_word_for_word(prompt, &turn.reply))
        .map(|(j, _)| object!({ "turn": j }));
    let before = episode.acts.iter().enumerate().filter(|(_, act)| act.path <= turn.path);
    let observed = before.filter(|(_, act)| contains_word_for_word(prompt, &act.observation));
    replies.chain(observed.map(|(k, _)| object!({ "act": k }))).collect()
}

/// Returns true if a text that is long enough to be distinct stands in a message.
fn contains_word_for_word(prompt: &[Message], text: &str) -> bool {
    let text = text.trim();
    text.chars().nth(DISTINCT).is_some()
        && prompt.iter().any(|message| message.content.contains(text))
}

/// Returns the reason why a turn is not trained on.
fn untrained_reason(episode: &Episode, i: usize, has_samples: bool, seats: &Value) -> &'static str {
    let turn = &episode.turns[i];
    let seat = turn.seat.to_string();
    let planned = seats.as_array().into_iter().flatten().find(|planned| planned["seat"] == *seat);
    match () {
        () if episode.score().is_none() => "the episode is unscored",
        () if turn.masked => "the orchestra masked it",
        () if turn.tokens.is_none() => "it has no tokens: an endpoint or a script replied",
        () if planned.is_some_and(|seat| seat["trained"] == false) => {
            "the policy of the seat is frozen"
        }
        () if !has_samples => "there is no record of samples",
        () => "it is in no sample: its task was dropped, or it only serves as a baseline",
    }
}
