//! One turn in tokens: their words, their log-probs, and what the update made of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use maverl::config::{Config, LossPlan, Ratio, SurrogatePlan};
use maverl::run_dir::{SampleRecord, TRAIN, read_tokenizer, read_tokens, read_top, tokenizer};
use maverl::settings::Tagged;
use maverl::text::{Piece, Tokenizer};
use maverl::trajectory::{Episode, Seat, Tokens, Turn};
use serde_json::{Value, json};

use crate::report::problem::ReportProblem;
use crate::report::reading::files::RunFiles;
use crate::report::rows::run::ReportedRun;

/// Tokens of the prompt of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnPrompt {
    /// All of them.
    All,
    /// Those that the prompt shares with no earlier turn.
    New,
}

/// Number of tokenizers in memory.
const TOKENIZERS: usize = 2;

/// Tokenizers that were used last, by their files.
static LAST: Mutex<Vec<(PathBuf, Arc<Tokenizer>)>> = Mutex::new(Vec::new());

/// Returns a turn in tokens. The tokens that the prompt shares with an earlier turn are in it only if all are asked for.
pub(crate) fn turn_tokens(
    run: &ReportedRun,
    row: &Value,
    episode: &Episode,
    at: usize,
    prompt: TurnPrompt,
) -> Result<Value, ReportProblem> {
    let turn = episode.turns.get(at);
    let turn = turn.ok_or_else(|| ReportProblem::missing("there is no such turn"))?;
    let tokens = turn.tokens.as_ref().ok_or_else(|| {
        ReportProblem::missing("the turn has no tokens: an endpoint or a script replied")
    })?;
    let words = stored_tokenizer(run.path(), &turn.policy)?;
    let (shared, from) = match prompt {
        TurnPrompt::All => (0, 0),
        TurnPrompt::New => shared_prefix(&episode.turns, at),
    };
    let mut completion = token_pieces(words.as_deref(), &tokens.completion);
    completion["logprob"] = json!(tokens.logprobs);
    let step = row["step"].as_u64().unwrap_or_default();
    let n = row["n"].as_u64().unwrap_or_default() as usize;
    let is_trained = row["stage"] == TRAIN;
    let sample =
        if is_trained { add_quantities(&run.files, step, (n, at), &mut completion)? } else { None };
    if let Some(top) =
        likeliest_tokens(&run.files, (step, n, at), words.as_deref(), tokens.completion.len())?
    {
        completion["top"] = top;
    }
    let content = run.lock_content();
    Ok(object!({
        "row": row,
        "name": format!("{step}/{}/{}", episode.task.id, episode.index),
        "turns": episode.turns.len(),
        "path": turn.path.0,
        "seat": turn.seat,
        "policy": turn.policy,
        "version": tokens.version,
        "temperature": tokens.temperature,
        "finish": tokens.finish,
        "error": turn.error,
        "words": words.is_some(),
        "prompt_tokens": tokens.prompt.len(),
        "shared": (shared > 0).then(|| object!({
            "turn": from, "path": episode.turns[from].path.0, "tokens": shared,
        })),
        "prompt": token_pieces(words.as_deref(), &tokens.prompt[shared..]),
        "completion": completion,
        "sample": sample,
        "clip": ratio_bounds(&content.facts.config, &turn.seat),
        "tokens_every": content.facts.config["record"]["tokens_every"],
    }))
}

/// Returns the sampled tokens of a turn of training with all that is recorded of them; null if the turn has no tokens.
pub(crate) fn sampled_tokens(
    run: &RunFiles,
    step: u64,
    (n, at): (usize, usize),
    turn: &Turn,
) -> Result<Value, ReportProblem> {
    let Some(tokens) = turn.tokens.as_ref() else { return Ok(Value::Null) };
    let words = stored_tokenizer(run.path(), &turn.policy)?;
    let mut completion = token_pieces(words.as_deref(), &tokens.completion);
    completion["logprob"] = json!(tokens.logprobs);
    add_quantities(run, step, (n, at), &mut completion)?;
    Ok(completion)
}

/// Adds the quantities of the sample of a turn to those of its tokens, and returns the sample.
fn add_quantities(
    run: &RunFiles,
    step: u64,
    (episode, turn): (usize, usize),
    completion: &mut Value,
) -> Result<Option<SampleRecord>, ReportProblem> {
    let Some(samples) = run.read_samples(step)? else { return Ok(None) };
    let mut places = samples.samples.iter().map(|sample| (sample.episode, sample.turn));
    let Some(at) = places.position(|place| place == (episode, turn)) else { return Ok(None) };
    let sample = samples.samples[at].clone();
    let length = completion["ids"].as_array().map_or(0, Vec::len);
    completion["advantage"] = json!(sample.token_advantages(length));
    let path = run.tokens_file(step);
    if path.is_file() {
        let record = read_tokens(&path).map_err(ReportProblem::unreadable)?;
        for (name, values) in record.of_sample(at) {
            // NaN becomes null.
            completion[name] = json!(values);
        }
    }
    Ok(Some(sample))
}

/// Returns the likeliest tokens at each token of a turn, if `maverl replay --top` has written them for the page:
/// `[text, log-prob, id]` of each.
fn likeliest_tokens(
    run: &RunFiles,
    (step, n, turn): (u64, usize, usize),
    words: Option<&Tokenizer>,
    length: usize,
) -> Result<Option<Value>, ReportProblem> {
    let path = run.alternatives_file(step, n);
    if !path.is_file() {
        return Ok(None);
    }
    let record = read_top(&path).map_err(ReportProblem::unreadable)?;
    let mut turns = record.turns.iter();
    let found = turns.find(|of| of.turn == turn && of.tokens.len() == length);
    let Some(found) = found else { return Ok(None) };
    let tokens = found.tokens.iter().map(|of| likely_tokens(words, of));
    Ok(Some(tokens.collect::<Vec<_>>().into()))
}

fn likely_tokens(words: Option<&Tokenizer>, tokens: &[(u32, f32)]) -> Vec<Value> {
    let tokens = tokens.iter().map(|(id, logprob)| {
        let piece = words.and_then(|words| words.pieces(&[*id]).into_iter().next());
        json!([piece.map(|piece| piece.text), logprob, id])
    });
    tokens.collect()
}

/// Returns ids with their texts: those of special tokens by index, and the bytes of tokens without text, as
/// hexadecimal.
fn token_pieces(words: Option<&Tokenizer>, ids: &[u32]) -> Value {
    let Some(words) = words else { return object!({ "ids": ids }) };
    let pieces = words.pieces(ids);
    let special: Vec<usize> = (0..pieces.len()).filter(|&i| pieces[i].special).collect();
    let bytes = pieces.iter().enumerate().filter(|(_, piece)| piece.text.is_empty());
    let bytes = bytes.map(|(i, piece)| {
        let hex: String = piece.bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        (i.to_string(), hex.into())
    });
    let bytes: serde_json::Map<String, Value> = bytes.collect();
    let texts: Vec<&str> = pieces.iter().map(|Piece { text, .. }| text.as_str()).collect();
    object!({ "ids": ids, "texts": texts, "special": special, "bytes": bytes })
}

/// Returns the length of the longest beginning of a prompt that an earlier turn of the same policy began with too, its
/// reply included, and that turn.
fn shared_prefix(turns: &[Turn], at: usize) -> (usize, usize) {
    let Some(prompt) = turns[at].tokens.as_ref().map(|tokens| &tokens.prompt) else {
        return (0, 0);
    };
    let earlier =
        turns[..at].iter().enumerate().filter(|(_, turn)| turn.policy == turns[at].policy);
    let found =
        earlier.filter_map(|(i, turn)| Some((common_length(turn.tokens.as_ref()?, prompt), i)));
    // The first of the longest.
    found.fold((0, 0), |best, found| if found.0 > best.0 { found } else { best })
}

/// Returns the number of tokens with which a prompt begins as an earlier turn does, its reply included.
fn common_length(tokens: &Tokens, prompt: &[u32]) -> usize {
    let before = tokens.prompt.iter().chain(&tokens.completion);
    before.zip(prompt).take_while(|(a, b)| a == b).count()
}

/// Returns the bounds of the ratio of a seat from the resolved configuration, if the ratio of each token is clipped.
fn ratio_bounds(resolved: &Value, seat: &Seat) -> Option<[f64; 2]> {
    let config = Config::of_table(resolved).ok()?;
    let agent = config.agents.get(&seat.agent).cloned().unwrap_or_default();
    let own = seat.index.and_then(|index| agent.seats.get(&index));
    let own = own.map_or_else(|| agent.clone(), |own| own.over(&agent));
    let loss = own.loss.unwrap_or_default().over(&config.algorithm.loss);
    // The viewer may lack the crate of a declared surrogate.
    let kind = loss.surrogate.kind.as_deref();
    let is_built_in = kind.is_none_or(|kind| SurrogatePlan::KINDS.iter().any(|of| of.name == kind));
    let LossPlan { surrogate, ratio, .. } = LossPlan::from(&loss);
    let bounds = surrogate.surrogate().ratio_bounds();
    bounds.filter(|_| is_built_in && ratio == Ratio::Token)
}

/// Returns the tokenizer of a policy; `None` if the run has none.
fn stored_tokenizer(run: &Path, policy: &str) -> Result<Option<Arc<Tokenizer>>, ReportProblem> {
    let path = tokenizer(run, policy);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = last.iter().position(|(of, _)| *of == path) {
        let found = last.remove(at);
        let words = Arc::clone(&found.1);
        last.push(found);
        return Ok(Some(words));
    }
    if !path.is_file() {
        return Ok(None);
    }
    let json = read_tokenizer(&path).map_err(ReportProblem::unreadable)?;
    let words = Tokenizer::from_json(&json);
    let words = words.map_err(|error| {
        ReportProblem::unreadable(format!("`{}` is damaged: {error}", path.display()))
    })?;
    let words = Arc::new(words);
    last.push((path, Arc::clone(&words)));
    if last.len() > TOKENIZERS {
        last.remove(0);
    }
    Ok(Some(words))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Tables of a `resolved.toml` as `maverl train` writes it.
    const RESOLVED: &str = r#"
        [agents."search/answerer"]
        model = "tiny"
        worker_group = "tiny"
        frozen = false

        [agents."search/answerer".loss]
        surrogate = "cispo"

        [agents."search/searcher".loss]
        ratio = "sequence"

        [agents."search/verifier".loss.surrogate]
        clip_high = 0.5

        [agents."search/verifier".seats.1.loss.surrogate]
        clip_low = 0.25

        [agents."quiz/soft".loss.surrogate]
        kind = "quiz/soft"

        [algorithm]
        name = "drmas"

        [algorithm.loss]
        ratio = "token"
        kl_coef = 0.0

        [algorithm.loss.surrogate]
        kind = "clip"
        clip_low = 0.2
        clip_high = 0.25
        clip_dual = 3.0
    "#;

    #[test]
    fn the_bounds_of_a_seat_are_its_own_or_those_of_all() {
        let resolved: toml::Value = toml::from_str(RESOLVED).unwrap();
        let resolved = serde_json::to_value(resolved).unwrap();
        assert_eq!(ratio_bounds(&resolved, &Seat::only("x/y")), Some([0.8, 1.25]));
        assert_eq!(ratio_bounds(&resolved, &Seat::only("search/verifier")), Some([0.8, 1.5]));
        assert_eq!(ratio_bounds(&resolved, &Seat::at("search/verifier", 1)), Some([0.75, 1.5]));
        let searcher = ratio_bounds(&resolved, &Seat::only("search/searcher"));
        assert_eq!(searcher, None, "the ratio of a reply is clipped");
        assert_eq!(
            ratio_bounds(&resolved, &Seat::only("search/answerer")),
            None,
            "CISPO clips a weight"
        );
        assert_eq!(ratio_bounds(&resolved, &Seat::only("quiz/soft")), None, "a declared surrogate");
    }

    #[test]
    fn a_prompt_is_folded_as_far_as_an_earlier_turn_had_it() {
        let mut episode = maverl::run_dir::testing::episode("a", 0, true, 3);
        let mut prompt = |turn: usize, ids: &[u32]| {
            episode.turns[turn].tokens.as_mut().unwrap().prompt = ids.to_vec();
        };
        // The first turn is 1, 2, 3 and the reply 4, 5.
        prompt(1, &[1, 2, 9]);
        prompt(2, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(shared_prefix(&episode.turns, 0), (0, 0));
        assert_eq!(shared_prefix(&episode.turns, 1), (2, 0));
        assert_eq!(shared_prefix(&episode.turns, 2), (5, 0));
        episode.turns[0].policy = "other".into();
        assert_eq!(shared_prefix(&episode.turns, 2), (2, 1));
    }
}
