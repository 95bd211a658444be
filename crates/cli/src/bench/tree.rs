//! Updates with rows that begin alike.

use maverl_kernels::sample::derive_seed;

use super::fixture::{BenchFixture, batch, row};
use super::measure::time_repeats;
use super::report::Figure;
use super::setup::Setup;
use crate::Failure;
use maverl::runtime::{Objective, Row};

/// Number of episodes.
const EPISODES: u64 = 8;
/// Numbers of tokens: of what the prompts of an episode begin with, of the words of an agent or an observation, and of a reply.
const HEAD: usize = 40;
const WORDS: usize = 12;
const REPLY: usize = 16;

/// Measures milliseconds of an update with chains of agents, and with conversations. In a chain, a prompt has the replies of the
/// agents before, and ends with the words of its agent. In a conversation, it has the turns before.
pub(super) async fn tree(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let mut figures = Vec::new();
    for (name, turns, keeps_words) in
        [("chains of 3", 3, false), ("chains of 15", 15, false), ("20 turns", 20, true)]
    {
        let rows =
            (0..EPISODES).flat_map(|episode| turns_of(&fixture, episode, turns, keeps_words));
        let batch = batch(rows.collect(), Objective::PolicyGradient);
        let tokens = fixture.policy.update(batch.clone()).await?.shared;
        let work = async |batch| Ok(fixture.policy.update(batch).await.map(drop)?);
        let seconds = time_repeats(setup.repeats, async || Ok(batch.clone()), work).await?;
        let what = format!("{EPISODES} {name}, {} of {} tokens", tokens.computed, tokens.whole);
        let milliseconds = seconds.iter().map(|seconds| 1e3 * seconds).collect();
        figures.push(Figure::new(what, "ms/update", milliseconds));
    }
    fixture.stop();
    Ok(figures)
}

/// Returns the turns of an episode, of random tokens. With `keeps_words`, a prompt has the words of the turns before, too.
fn turns_of(fixture: &BenchFixture, episode: u64, turns: u64, keeps_words: bool) -> Vec<Row> {
    let seed = derive_seed(3, episode);
    let logprobs = vec![-libm::logf(fixture.size.vocab_size as f32); REPLY];
    let (mut known, mut rows) = (fixture.ids(seed, HEAD), Vec::new());
    for turn in 0..turns {
        let words = fixture.ids(derive_seed(4, turn), WORDS);
        let reply = fixture.ids(derive_seed(seed, turn), REPLY);
        let advantage = if turn % 2 == 0 { 1.0 } else { -1.0 };
        rows.push(row([&known[..], &words].concat(), reply.clone(), logprobs.clone(), advantage));
        if keeps_words {
            known.extend(words);
        }
        known.extend(reply);
    }
    rows
}
