//! Speed of rollout on a device.

use std::num::NonZeroUsize;
use std::time::Instant;

use maverl_kernels::sample::derive_seed;

use super::args::{DevicePart, ModelSize};
use super::checked::Checked;
use super::models::Counts;
use super::policy::{Fixture, ROOM, of_sizes, options};
use super::report::Line;
use super::speed;
use crate::{Failure, block_on};

/// Tokens of the prompts and replies of a rollout that is measured.
const PROMPT: usize = 896;
const REPLY: usize = 129;
/// Sequences of the measured rollouts.
const SEQUENCES: [usize; 3] = [64, 256, 1024];
/// Bytes of a parameter of a trained policy between updates.
const BYTES: f64 = 12.0;

/// Measures tokens per second of decoding, beside the floor that memory and products allow: with graphs, and of the first
/// shape, in which launches weigh most, without them.
pub(super) fn rollout(checked: &mut Checked<'_>) -> Result<(), Failure> {
    let sizes = &checked.args.sizes;
    decoding(checked, sizes, true)?;
    decoding(checked, &sizes[..sizes.len().min(1)], false)
}

fn decoding(checked: &mut Checked<'_>, sizes: &[ModelSize], graphs: bool) -> Result<(), Failure> {
    let bandwidth = speed::bandwidth(checked)?;
    of_sizes(checked, DevicePart::Rollout, (sizes, BYTES), |checked, size, source| {
        let counts = Counts::of(size.shape());
        let mut options = options(checked.args.device);
        let free = checked.memory()?.map_or(0.0, |[free, _]| free as f64);
        let room = (free - BYTES * counts.parameters - ROOM) / 2.0;
        let mib = NonZeroUsize::new((room / f64::from(1 << 20)) as usize);
        options.kv_mib = mib.unwrap_or(options.kv_mib);
        options.max_requests = NonZeroUsize::MIN.saturating_add(1023);
        options.graphs = graphs;
        let fixture = Fixture::start(source.clone(), size.shape().vocab_size, &options)?;
        for rows in SEQUENCES {
            let kv = rows as f64 * (PROMPT + REPLY) as f64 * counts.kv;
            let how = if graphs { "" } else { ", without graphs" };
            let name = format!("{} {rows} sequences{how}", size.sizes().name);
            if kv > room || !checked.report.has_time() {
                let note = Line::note(name, "skipped: no memory or no time left");
                checked.report.add(DevicePart::Rollout, &note);
                continue;
            }
            let [prefill, whole] = seconds(&fixture, rows)?;
            let decoded = rows as f64 * (REPLY - 1) as f64;
            let spent = (whole - prefill).max(1e-9);
            let mut line = Line::value(format!("{name}: decoding"), decoded / spent, "tokens/s");
            if let Some(peak) = checked.peak {
                let context = PROMPT as f64 + REPLY as f64 / 2.0;
                let floor = counts.floor(rows as f64, context, [bandwidth, peak]);
                line = line.share(floor * (REPLY - 1) as f64 / spent, "the floor's speed");
            }
            checked.report.add(DevicePart::Rollout, &line);
            let tokens = rows as f64 * PROMPT as f64 / prefill;
            checked.report.add(
                DevicePart::Rollout,
                &Line::value(format!("{name}: prefill"), tokens, "tokens/s"),
            );
        }
        fixture.stop();
        Ok(())
    })
}

/// Returns the seconds of one token of so many prompts, and of a reply.
fn seconds(fixture: &Fixture, rows: usize) -> Result<[f64; 2], Failure> {
    let prompts: Vec<Vec<u32>> =
        (0..rows as u64).map(|i| fixture.ids(derive_seed(3, i), PROMPT)).collect();
    block_on(async {
        let mut seconds = [0.0; 2];
        for (tokens, seconds) in [1, REPLY].into_iter().zip(&mut seconds) {
            fixture.forget().await?;
            let start = Instant::now();
            fixture.replies(&prompts, tokens).await?;
            *seconds = start.elapsed().as_secs_f64();
        }
        Ok(seconds)
    })
}
