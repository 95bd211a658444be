//! Generation of one request, whose speed is that at which weights are read from memory.

use std::time::Instant;

use maverl_kernels::sample::derive_seed;

use super::fixture::{BenchFixture, PROMPT, REPLY};
use super::kernels::read_array;
use super::measure::time_repeats;
use super::report::Figure;
use super::setup::{BenchDtype, Setup};
use crate::Failure;

/// Number of elements of the array whose reading is measured.
const ARRAY: usize = 64 << 20;

/// Measures new tokens per second of one request, and the share of the speed with which the same threads read memory: a token
/// reads each weight once. The array is read before each reply, since the speed of many machines drifts. Keys and values of the
/// prompt are cached.
pub(super) async fn one(setup: &Setup) -> Result<Vec<Figure>, Failure> {
    let fixture = BenchFixture::start(setup, &[])?;
    let prompt = [fixture.ids(derive_seed(0, 0), PROMPT)];
    let (array, mut reads) = (vec![1.0; ARRAY], Vec::new());
    let prepare = async || {
        reads.push(time_reading(&array));
        Ok(())
    };
    let work = async |()| fixture.replies(&prompt, REPLY).await.map(drop);
    let seconds = time_repeats(setup.repeats, prepare, work).await?;
    let bytes = (ARRAY * size_of::<f32>()) as f64;
    let read = Figure::rate("memory, read", "GB/s", bytes / 1e9, &reads);
    let number = match setup.dtype {
        BenchDtype::F32 => 4.0,
        BenchDtype::Bf16 | BenchDtype::F16 => 2.0,
    };
    let ceiling = 1e9 * read.median / (number * fixture.parameters as f64);
    let one = Figure::rate("1 request", "new tokens/s", REPLY as f64, &seconds).below(ceiling);
    fixture.stop();
    Ok(vec![one, read])
}

/// Returns the seconds in which all threads read an array.
fn time_reading(array: &[f32]) -> f64 {
    let start = Instant::now();
    read_array(array);
    start.elapsed().as_secs_f64()
}
