//! `maverl device check candle:cpu`: results beside the CPU's within bounds, and the speed of both.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use super::args::{CheckArgs, DevicePart};
use super::report::{DeviceReport, Line};
use crate::bench::fixture::ids;
use crate::{Failure, block_on};
use maverl::files::ModelSource;
use maverl::runtime::{
    Batch, Completion, DeviceChoice, Objective, Policy, Request, Row, Runtime, RuntimeOptions,
    Sampling, WorkerSpec, compare_step,
};

/// Parts of a device without kernels of its own.
const PARTS: [DevicePart; 5] = [
    DevicePart::Device,
    DevicePart::Invariance,
    DevicePart::Step,
    DevicePart::Rollout,
    DevicePart::Training,
];

/// Largest difference of a log-prob from the CPU's.
const LOGPROB: f32 = 1e-4;
/// Smallest cosine of the gradients with those of the CPU.
const COSINE: f64 = 0.99999;
/// Requests, and tokens of a reply.
const REQUESTS: u64 = 12;
const TOKENS: usize = 24;
/// Token ids that prompts have.
const VOCAB: usize = 90;

/// Runs the parts on a device.
pub(super) fn check(args: &CheckArgs) -> ExitCode {
    let mut report = DeviceReport::new(args.json, args.minutes);
    let parts = if args.parts.is_empty() { PARTS.to_vec() } else { args.parts.clone() };
    for part in parts {
        if !PARTS.contains(&part) {
            let note = Line::note("all", "skipped: this device has no kernels of its own");
            report.add(part, &note);
        } else if report.has_time() {
            run_part(args.device, part, &mut report);
        } else {
            report.add(part, &Line::note("all", "skipped: no time left (`--minutes`)"));
        }
    }
    report.end()
}

/// Runs a part. An error ends the part alone.
fn run_part(device: DeviceChoice, part: DevicePart, report: &mut DeviceReport) {
    let done = match part {
        DevicePart::Device => {
            report
                .add(part, &Line::note("program", format!("maverl {}", env!("CARGO_PKG_VERSION"))));
            report.add(part, &Line::note("device", device.to_string()));
            report.add(part, &Line::note("bits", device.note().unwrap_or_default()));
            Ok(())
        }
        DevicePart::Invariance => invariance(device, report),
        DevicePart::Step => step(device, report),
        DevicePart::Rollout => speeds(device, part, report, rollout_speed),
        _ => speeds(device, part, report, training_speed),
    };
    if let Err(Failure(message)) = done {
        report.add(part, &Line::check("the part", false, message));
    }
}

/// Policy of the built-in model on a device.
struct Fixture {
    runtime: Runtime,
    policy: Policy,
}

impl Fixture {
    fn start(device: DeviceChoice) -> Result<Self, Failure> {
        let options = RuntimeOptions { device, ..RuntimeOptions::default() };
        let runtime = Runtime::start(&[WorkerSpec::new("check", tiny())], &options)?;
        let policy = runtime.policies()[0].clone();
        Ok(Self { runtime, policy })
    }

    fn stop(self) {
        drop(self.policy);
        self.runtime.shutdown();
    }

    async fn reply(&self, prompt: &[u32], seed: u64) -> Result<Completion, Failure> {
        let sampling = Arc::new(Sampling { max_tokens: TOKENS, ..Sampling::default() });
        Ok(self.policy.generate(Request::new(prompt.to_vec(), sampling, seed)).await?)
    }

    async fn replies(&self, prompts: &[Vec<u32>]) -> Result<Vec<Completion>, Failure> {
        let each = prompts.iter().zip(0..).map(|(prompt, seed)| self.reply(prompt, seed));
        futures::future::try_join_all(each).await
    }
}

fn tiny() -> ModelSource {
    ModelSource::Builtin("tiny".to_owned())
}

/// Returns prompts, two of each.
fn prompts() -> Vec<Vec<u32>> {
    (0..REQUESTS).map(|i| ids(i / 2, 5 + 17 * (i as usize / 2), VOCAB)).collect()
}

fn row(prompt: &[u32], done: &Completion, advantage: f32) -> Row {
    let advantages = vec![advantage; done.ids.len()];
    let (completion, logprobs) = (done.ids.clone(), done.logprobs.clone());
    Row { prompt: prompt.to_vec(), completion, logprobs, advantages, ..Row::default() }
}

/// Returns the largest difference of log-probs of tokens, up to the first other token.
fn furthest(one: &Completion, other: &Completion) -> f32 {
    let same = one.ids.iter().zip(&other.ids).take_while(|(a, b)| a == b).count();
    largest(&one.logprobs[..same], &other.logprobs[..same])
}

fn largest(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).fold(0.0, |most, (a, b)| (a - b).abs().max(most))
}

/// Compares completions in a batch with those alone, and with their scores, within the bound of the device.
fn invariance(device: DeviceChoice, report: &mut DeviceReport) -> Result<(), Failure> {
    let (fixture, prompts) = (Fixture::start(device)?, prompts());
    let (together, alone, scored) = block_on(async {
        let together = fixture.replies(&prompts).await?;
        let mut alone = Vec::new();
        for (prompt, seed) in prompts.iter().zip(0..) {
            alone.push(fixture.reply(prompt, seed).await?);
        }
        let rows = prompts.iter().zip(&together).map(|(prompt, done)| row(prompt, done, 1.0));
        let scored = fixture.policy.logprobs(rows.collect()).await?;
        Ok::<_, Failure>((together, alone, scored))
    })?;
    fixture.stop();
    let bound = device.mismatch_bound();
    let pairs = together.iter().zip(&alone);
    let off = pairs.map(|(one, other)| furthest(one, other)).fold(0.0, f32::max);
    let note = format!("{off:.1e} at most over {REQUESTS} completions; {bound:.0e} allowed");
    let name = "a completion alone has the log-probs of one in a batch";
    report.add(DevicePart::Invariance, &Line::check(name, off <= bound, note));
    let pairs = together.iter().zip(&scored);
    let off = pairs.map(|(done, scored)| largest(&done.logprobs, scored)).fold(0.0, f32::max);
    let note = format!("{off:.1e} at most; {bound:.0e} allowed");
    let name = "training has the log-probs of rollout";
    report.add(DevicePart::Invariance, &Line::check(name, off <= bound, note));
    Ok(())
}

/// Compares log-probs and gradients with those of the CPU.
fn step(device: DeviceChoice, report: &mut DeviceReport) -> Result<(), Failure> {
    let (cpu, prompts) = (Fixture::start(DeviceChoice::Cpu)?, prompts());
    let done = block_on(cpu.replies(&prompts))?;
    cpu.stop();
    let signs = [1.0, -1.0].into_iter().cycle();
    let rows = prompts.iter().zip(&done).zip(signs);
    let rows: Vec<Row> = rows.map(|((prompt, done), sign)| row(prompt, done, sign)).collect();
    let found = compare_step(device, &tiny(), &rows)?;
    let note = format!(
        "{:.1e} at most, {:.1e} on average, over {} tokens; {LOGPROB:.0e} allowed",
        found.logprob, found.mean, found.tokens
    );
    let name = "log-probs are those of the CPU in f32";
    report.add(DevicePart::Step, &Line::check(name, found.logprob <= LOGPROB, note));
    let note = format!("cosine {:.8}", found.cosine);
    let name = "gradients are those of the CPU";
    report.add(DevicePart::Step, &Line::check(name, found.cosine > COSINE, note));
    Ok(())
}

/// Prints tokens per second of a device and of the CPU.
fn speeds(
    device: DeviceChoice,
    part: DevicePart,
    report: &mut DeviceReport,
    measure: impl Fn(&Fixture) -> Result<f64, Failure>,
) -> Result<(), Failure> {
    for device in [device, DeviceChoice::Cpu] {
        let fixture = Fixture::start(device)?;
        let speed = measure(&fixture);
        fixture.stop();
        report.add(part, &Line::value(format!("builtin:tiny on {device}"), speed?, "tokens/s"));
    }
    Ok(())
}

/// Returns the replies' tokens per second, after a rollout that is not counted.
fn rollout_speed(fixture: &Fixture) -> Result<f64, Failure> {
    let prompts = prompts();
    block_on(async {
        fixture.replies(&prompts).await?;
        let start = Instant::now();
        let done = fixture.replies(&prompts).await?;
        let tokens: usize = done.iter().map(|done| done.ids.len()).sum();
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    })
}

/// Returns a row of 128 tokens.
fn training_row(i: u64) -> Row {
    let (prompt, completion) = (ids(i, 1, VOCAB), ids(i + REQUESTS, 127, VOCAB));
    Row { prompt, completion, ..Row::default() }
}

/// Returns the tokens per second of an update, after one that is not counted.
fn training_speed(fixture: &Fixture) -> Result<f64, Failure> {
    let rows: Vec<Row> = (0..REQUESTS).map(training_row).collect();
    let tokens = 128 * rows.len();
    let objective = Objective::Supervised;
    let batch = Batch { rows, objective, longest: 128, lr: 1e-6, ..Batch::default() };
    block_on(async {
        fixture.policy.update(batch.clone()).await?;
        let start = Instant::now();
        fixture.policy.update(batch.clone()).await?;
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    })
}
