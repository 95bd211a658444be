//! Episodes of a team with a slow tool, asynchronous and in lock-step; and the savings of a shared prompt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use maverl_kernels::sample::derive_seed;

use maverl::cli::Failure;
use maverl::rng::SplitMix64;
use maverl::runtime::{Policy, Request, RuntimeError, Sampling};
use maverl_cli::bench::fixture::BenchFixture;
use maverl_cli::bench::measure::time_repeats;
use maverl_cli::bench::report::Figure;
use maverl_cli::bench::setup::Setup;

const EPISODES: u64 = 64;
const AGENTS: usize = 3;
/// Number of tokens of the common prefix of all prompts, and of the question after it.
const SHARED: usize = 128;
const QUESTION: usize = 16;
/// Mean of the geometric, truncated length of replies.
const MEAN_REPLY: f64 = 32.0;
const LONGEST_REPLY: usize = 128;
/// Mean of the exponential duration of the tool.
const MEAN_TOOL: Duration = Duration::from_millis(20);
/// Number of calls of an episode: the minimum, and the number of possible values.
const CALLS: (usize, usize) = (3, 7);

/// Number of replies to a prompt, of which a prefix cache computes one.
const GROUP: usize = 8;
const LONG_PROMPT: usize = 512;

/// Measures reply tokens per second, asynchronous and in lock-step, and prompt tokens computed with and without prefix
/// cache.
pub(crate) async fn measure_team(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let mut figures = measure_paces(setup).await?;
    let [on, off] = [measure_prefill(setup, true).await?, measure_prefill(setup, false).await?];
    let less = off[0].median / on[0].median;
    figures.extend(on.into_iter().chain(off));
    figures.push(Figure::new("prefix cache, times less prefill", "x", vec![less]));
    Ok(figures)
}

/// Random draws of an episode, made before it is run.
struct EpisodeDraws {
    question: Vec<u32>,
    calls: Vec<TurnDraws>,
}

/// One agent's turn, and the tool call after it.
struct TurnDraws {
    sampling: Arc<Sampling>,
    seed: u64,
    tool: Duration,
}

/// Measures the same episodes in both modes, alternately. Their tokens are equal.
async fn measure_paces(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let shared = fixture.ids(1, SHARED);
    let episodes: Vec<EpisodeDraws> =
        (0..EPISODES).map(|i| EpisodeDraws::draw(&fixture, i)).collect();
    let (mut own, mut locked) = (Vec::new(), Vec::new());
    let mut tokens = 0;
    for repeat in 0..=setup.repeats.get() {
        fixture.forget().await?;
        let start = Instant::now();
        let said = at_own_pace(&fixture.policy, &shared, &episodes).await?;
        let first = start.elapsed().as_secs_f64();
        fixture.forget().await?;
        let start = Instant::now();
        let again = in_lock_step(&fixture.policy, &shared, &episodes).await?;
        let second = start.elapsed().as_secs_f64();
        if said != again {
            return Err(Failure("the two paces did not say the same".to_owned()));
        }
        tokens = said.iter().flatten().map(Vec::len).sum();
        if repeat > 0 {
            own.push(first);
            locked.push(second);
        }
    }
    fixture.stop();
    let ratios = own.iter().zip(&locked).map(|(own, locked)| locked / own).collect();
    Ok(vec![
        Figure::rate("continuous batching", "reply tokens/s", tokens as f64, &own),
        Figure::rate("lock-step batching", "reply tokens/s", tokens as f64, &locked),
        Figure::new("continuous over lock-step", "x", ratios),
    ])
}

impl EpisodeDraws {
    fn draw(fixture: &BenchFixture, index: u64) -> Self {
        let mut draw = SplitMix64::new(derive_seed(7, index));
        let calls = CALLS.0 + draw.index(CALLS.1);
        let calls =
            (0..calls as u64).map(|call| TurnDraws::draw(&mut draw, derive_seed(index, call)));
        Self { calls: calls.collect(), question: fixture.ids(derive_seed(8, index), QUESTION) }
    }

    /// Returns the prompt of a call: the common prefix, the agent's role, the question, and the last replies.
    fn prompt_of_call(&self, shared: &[u32], call: usize, said: &[Vec<u32>]) -> Vec<u32> {
        let who = [(call % AGENTS) as u32];
        let last = said.last().map_or(&[][..], Vec::as_slice);
        [shared, &who, &self.question, last].concat()
    }
}

impl TurnDraws {
    fn draw(draw: &mut SplitMix64, seed: u64) -> Self {
        let longer = (1..LONGEST_REPLY).find(|_| draw.gen_bool(1.0 / MEAN_REPLY));
        let max_tokens = longer.unwrap_or(LONGEST_REPLY);
        let uniform = (draw.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        let tool = MEAN_TOOL.mul_f64(-libm::log(1.0 - uniform));
        let sampling = Arc::new(Sampling { max_tokens, ..Sampling::default() });
        Self { sampling, seed, tool }
    }

    async fn request_reply(
        &self,
        policy: &Policy,
        prompt: Vec<u32>,
    ) -> Result<Vec<u32>, RuntimeError> {
        let request = Request::new(prompt, Arc::clone(&self.sampling), self.seed);
        Ok(policy.generate(request).await?.ids)
    }
}

/// Replies of each episode.
type Replies = Vec<Vec<Vec<u32>>>;

/// Continues every episode as soon as its reply, and then its tool, has ended.
async fn at_own_pace(
    policy: &Policy,
    shared: &[u32],
    episodes: &[EpisodeDraws],
) -> Result<Replies, RuntimeError> {
    try_join_all(episodes.iter().map(async |episode| {
        let mut said = Vec::new();
        for (i, call) in episode.calls.iter().enumerate() {
            said.push(call.request_reply(policy, episode.prompt_of_call(shared, i, &said)).await?);
            tokio::time::sleep(call.tool).await;
        }
        Ok(said)
    }))
    .await
}

/// Runs one turn of every episode as a batch, then all tools, then the next turn.
async fn in_lock_step(
    policy: &Policy,
    shared: &[u32],
    episodes: &[EpisodeDraws],
) -> Result<Replies, RuntimeError> {
    let mut said: Replies = episodes.iter().map(|_| Vec::new()).collect();
    for turn in 0..CALLS.0 + CALLS.1 - 1 {
        let playing =
            episodes.iter().enumerate().filter_map(|(i, e)| Some((i, e, e.calls.get(turn)?)));
        let replies = playing.clone().map(|(i, episode, call)| {
            call.request_reply(policy, episode.prompt_of_call(shared, turn, &said[i]))
        });
        let replies = try_join_all(replies).await?;
        for ((i, ..), reply) in playing.clone().zip(replies) {
            said[i].push(reply);
        }
        join_all(playing.map(|(.., call)| tokio::time::sleep(call.tool))).await;
    }
    Ok(said)
}

/// Measures the prompt tokens that the engine computes for a group, and the milliseconds to each member's first token.
async fn measure_prefill(setup: &Setup, cached: bool) -> Result<[Figure; 2], Failure> {
    let fixture = BenchFixture::start(setup, &[&format!("runtime.prefix_cache={cached}")])?;
    let prompts = vec![fixture.ids(3, LONG_PROMPT); GROUP];
    let mut computed = Vec::new();
    let work = async |()| {
        let before = fixture.policy.work();
        fixture.replies(&prompts, 1).await?;
        computed.push((fixture.policy.work() - before).prefilled as f64);
        Ok(())
    };
    let seconds = time_repeats(setup.repeats, async || fixture.forget().await, work).await?;
    fixture.stop();
    computed.remove(0);
    let what = format!("group of {GROUP}, prefix cache {}", if cached { "on" } else { "off" });
    let milliseconds = seconds.iter().map(|seconds| 1e3 * seconds).collect();
    Ok([
        Figure::new(what.clone(), "prefilled tokens", computed),
        Figure::new(what, "ms", milliseconds),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_latencies_have_the_means_that_are_named() {
        let mut draw = SplitMix64::new(0);
        let calls: Vec<TurnDraws> =
            (0..20_000).map(|seed| TurnDraws::draw(&mut draw, seed)).collect();
        let mean =
            |of: fn(&TurnDraws) -> f64| calls.iter().map(of).sum::<f64>() / calls.len() as f64;
        let tokens = mean(|call| call.sampling.max_tokens as f64);
        // Truncation at 128 reduces the mean of 32 by (1 - 1/32)^128 of it.
        assert!((tokens - 31.45).abs() < 0.8, "{tokens}");
        let tool = mean(|call| call.tool.as_secs_f64());
        assert!((tool - MEAN_TOOL.as_secs_f64()).abs() < 1e-3, "{tool}");
        assert!(calls.iter().all(|call| (1..=LONGEST_REPLY).contains(&call.sampling.max_tokens)));
    }
}
