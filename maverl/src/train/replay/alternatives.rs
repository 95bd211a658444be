//! Most probable tokens at each sampled token of a recorded episode, by the weights that sampled it.

use std::sync::Arc;

use crate::run_dir::{TopRecord, TopTurn};
use crate::runtime::{Policy, Request, RuntimeError, Sampling, Watch};
use crate::trajectory::{Episode, Tokens, Turn};

/// Returns the `top` likeliest tokens at each sampled token of an episode of a name, by the policy of each turn. Turns without
/// tokens or a policy are left out.
pub(crate) async fn alternatives(
    policy: impl Fn(&Turn) -> Option<Policy>,
    (name, episode): (String, &Episode),
    top: usize,
) -> Result<TopRecord, RuntimeError> {
    let mut turns = Vec::new();
    for (turn, recorded) in episode.turns.iter().enumerate() {
        if let Some((policy, tokens)) = policy(recorded).zip(recorded.tokens.as_ref()) {
            turns.push(TopTurn { turn, tokens: likeliest(&policy, tokens, top).await? });
        }
    }
    Ok(TopRecord { episode: name, top, turns })
}

/// Returns the likeliest tokens at each sampled token of a turn. The engine reads all of them but the last as a prompt,
/// whose log-probs it sends, and samples one token at the place of the last.
async fn likeliest(
    policy: &Policy,
    tokens: &Tokens,
    top: usize,
) -> Result<Vec<Vec<(u32, f32)>>, RuntimeError> {
    let Tokens { prompt, completion, temperature, .. } = tokens;
    let Some((_, read)) = completion.split_last() else { return Ok(Vec::new()) };
    let sampling = Sampling { temperature: *temperature, max_tokens: 1, ..Sampling::default() };
    let (watch, mut steps) = Watch::new(top, true);
    let request = Request {
        prompt: [prompt.as_slice(), read].concat(),
        sampling: Arc::new(sampling),
        seed: 0,
        watch: Some(watch),
        grammar: None,
    };
    policy.generate(request).await?;
    let mut found = Vec::new();
    while let Ok(step) = steps.try_recv() {
        found.push(step.top);
    }
    // The first token of the prompt has no step.
    Ok(found.split_off(prompt.len().saturating_sub(1).min(found.len())))
}
