//! Rollout and updates of one policy.

use std::num::NonZeroUsize;

use maverl_kernels::advantage::{Baseline, Grouping, Relative, Singleton, relative_advantages};
use maverl_kernels::sample::derive_seed;

use super::fixture::{BenchFixture, PROMPT, REPLY, ROWS, batch, row};
use super::measure::time_repeats;
use super::report::Figure;
use super::setup::Setup;
use crate::Failure;
use maverl::runtime::Objective;

/// Number of replies per prompt in `grpo`.
const GROUP: usize = 8;

/// Advantages in `grpo`.
const GRPO: Relative = Relative {
    baseline: Baseline::Mean,
    normalize_std: true,
    eps: 1e-6,
    singleton: Singleton::Raw,
};

/// Returns the numbers of rows to measure, each with the name of the figure.
fn row_counts(times: NonZeroUsize) -> Vec<(usize, String)> {
    let n = times.get();
    let powers = if n == 1 { vec![1] } else { vec![1, n, n * n] };
    powers.into_iter().map(|times| (ROWS * times, format!("{} rows", ROWS * times))).collect()
}

/// Measures generated tokens per second: prefill and decoding.
pub(super) async fn rollout(setup: &Setup, times: NonZeroUsize) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let mut figures = Vec::new();
    for (rows, what) in row_counts(times) {
        let prompts: Vec<Vec<u32>> =
            (0..rows as u64).map(|i| fixture.ids(derive_seed(0, i), PROMPT)).collect();
        let work = async |()| fixture.replies(&prompts, REPLY).await.map(drop);
        let seconds = time_repeats(setup.repeats, async || fixture.forget().await, work).await?;
        let flop = fixture.rollout_flop(PROMPT + REPLY, REPLY) / REPLY as f64;
        let new = (rows * REPLY) as f64;
        figures.push(Figure::rate(what, "new tokens/s", new, &seconds).of_flop(flop));
    }
    fixture.stop();
    Ok(figures)
}

/// Measures tokens per second of an update by the clipped surrogate.
pub(super) async fn train(setup: &Setup, times: NonZeroUsize) -> Result<Vec<Figure>, Failure> {
    update(setup, times, Objective::PolicyGradient).await
}

/// Measures tokens per second of an update by likelihood.
pub(super) async fn sft(setup: &Setup, times: NonZeroUsize) -> Result<Vec<Figure>, Failure> {
    update(setup, times, Objective::Supervised).await
}

async fn update(
    setup: &Setup,
    times: NonZeroUsize,
    objective: Objective,
) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let mut figures = Vec::new();
    for (rows, what) in row_counts(times) {
        let batch = batch(fixture.rows(rows), objective);
        let work = async |batch| Ok(fixture.policy.update(batch).await.map(drop)?);
        let seconds = time_repeats(setup.repeats, async || Ok(batch.clone()), work).await?;
        let (tokens, flop) = (rows * (PROMPT + REPLY), fixture.training_flop(PROMPT + REPLY));
        figures.push(Figure::rate(what, "tokens/s", tokens as f64, &seconds).of_flop(flop));
    }
    fixture.stop();
    Ok(figures)
}

/// Measures steps per minute: replies to prompts, advantages within each group, an update.
pub(super) async fn grpo(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let prompts: Vec<Vec<u32>> =
        (0..ROWS as u64).map(|i| fixture.ids(derive_seed(0, i / GROUP as u64), PROMPT)).collect();
    let groups: Vec<usize> = (0..ROWS).map(|i| i / GROUP).collect();
    let step = async |()| {
        let replies = fixture.replies(&prompts, REPLY).await?;
        let odd = replies.iter().map(|reply| reply.ids.iter().filter(|id| **id % 2 == 1).count());
        let rewards: Vec<f64> = odd.map(|count| count as f64 / REPLY as f64).collect();
        let (advantages, _) =
            relative_advantages(&rewards, &Grouping::from_row_groups(&groups), None, &GRPO);
        let learned =
            prompts.iter().zip(replies).zip(advantages).map(|((prompt, reply), advantage)| {
                row(prompt.clone(), reply.ids, reply.logprobs, advantage as f32)
            });
        let batch = batch(learned.collect(), Objective::PolicyGradient);
        Ok(fixture.policy.update(batch).await.map(drop)?)
    };
    let seconds = time_repeats(setup.repeats, async || Ok(()), step).await?;
    fixture.stop();
    let what = format!("{} prompts x {GROUP} replies", ROWS / GROUP);
    Ok(vec![Figure::rate(what, "steps/min", 60.0, &seconds)])
}
