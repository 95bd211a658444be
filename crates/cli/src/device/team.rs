//! The search team on the built-in model, on a device and on the CPU.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::args::DevicePart;
use super::checked::Checked;
use super::report::Line;
use crate::Failure;
use maverl::registry::Registry;
use maverl::runtime::DeviceChoice;

/// Team that is trained.
const ORCHESTRA: &str = "search/route";

/// Configuration of the run.
const CONFIG: &str = r#"
seed = 7
steps = 30

[task]
data = "builtin:facts"
tasks_per_step = 16
group_size = 8

[orchestra]
name = "search/route"
max_turns = 3

[environment]
name = "search"
corpus = "builtin:facts"
top_k = 1

[sampling]
max_tokens = 24

[models.tiny]
path = "builtin:tiny"
dtype = "bf16"
optim = { lr = 5e-4, betas = [0.9, 0.95], weight_decay = 0.0 }

[algorithm]
name = "drmas"

[eval]
before_and_after = false
"#;

/// Steps at the end whose scores are compared.
const LAST: usize = 10;
/// Standard errors that the means may differ by.
const ERRORS: f64 = 3.0;

/// Trains the team on the device and on the CPU, and compares the scores of the last steps.
pub(super) fn team(checked: &mut Checked<'_>) -> Result<(), Failure> {
    if !Registry::collect()?.orchestras.contains_key(ORCHESTRA) {
        let note = format!("skipped: this program has no `{ORCHESTRA}`");
        checked.report.add(DevicePart::Team, &Line::note("all", note));
        return Ok(());
    }
    let dir = std::env::temp_dir().join(format!("maverl-device-team-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let found = train_team(checked, &dir);
    // The runs are read, or not needed after an error.
    drop(std::fs::remove_dir_all(&dir));
    found
}

fn train_team(checked: &mut Checked<'_>, dir: &Path) -> Result<(), Failure> {
    std::fs::write(dir.join("team.toml"), CONFIG)?;
    let device = run(dir, checked.args.device)?;
    let steps = device.len();
    let worst = device.iter().map(|step| step.mismatch).fold(0.0, f64::max);
    let note = format!("{worst:e} at most in {steps} steps");
    let line = Line::check("rollout and training have equal log-probs", worst == 0.0, note);
    checked.report.add(DevicePart::Team, &line);
    let cpu = run(dir, DeviceChoice::Cpu)?;
    let ([mine, mine_error], [other, other_error]) = (mean(&device), mean(&cpu));
    let apart = ERRORS * libm::hypot(mine_error, other_error);
    let ok = (mine - other).abs() <= apart.max(1e-9);
    let note = format!(
        "{mine:.3} on the device, {other:.3} on the CPU in the last {LAST} of {steps} steps; {apart:.3} allowed"
    );
    checked.report.add(DevicePart::Team, &Line::check("the scores are those of the CPU", ok, note));
    let start = device.first().map_or(0.0, |step| step.score);
    let note = format!("{start:.3} in the first step, {mine:.3} in the last");
    checked.report.add(DevicePart::Team, &Line::check("the team learns", mine > start, note));
    Ok(())
}

/// Score and mismatch of a step.
struct StepScore {
    score: f64,
    mismatch: f64,
}

/// Trains in a process of its own.
fn run(dir: &Path, device: DeviceChoice) -> Result<Vec<StepScore>, Failure> {
    let out = dir.join(device.to_string().replace(':', "-"));
    let output = Command::new(std::env::current_exe()?)
        .arg("train")
        .arg(dir.join("team.toml"))
        .args(["--set", &format!("runtime.device={device}")])
        .arg("--out")
        .arg(&out)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("the run on {device} failed: {}", message.trim())));
    }
    let rows = std::fs::read_to_string(out.join("metrics.jsonl"))?;
    let rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok(rows.iter().filter_map(StepScore::read).collect())
}

impl StepScore {
    /// Reads a row of metrics.
    fn read(row: &Value) -> Option<Self> {
        Some(Self {
            score: row["rollout/score_mean"].as_f64()?,
            mismatch: row["mismatch/tiny/logp_abs_max"].as_f64()?,
        })
    }
}

/// Returns the mean score of the last steps, and its standard error.
fn mean(steps: &[StepScore]) -> [f64; 2] {
    let last = &steps[steps.len().saturating_sub(LAST)..];
    let n = last.len().max(1) as f64;
    let mean = last.iter().map(|step| step.score).sum::<f64>() / n;
    let variance =
        last.iter().map(|step| (step.score - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    [mean, (variance / n).sqrt()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_over_the_last_steps() {
        let step = |score| StepScore { score, mismatch: 0.0 };
        let steps: Vec<StepScore> =
            (0..20).map(|i| step(if i < 10 { 9.0 } else { f64::from(i % 2) })).collect();
        let [mean, error] = mean(&steps);
        assert!(
            (mean - 0.5).abs() < 1e-12
                && (error - (0.25_f64 * 10.0 / 9.0 / 10.0).sqrt()).abs() < 1e-12
        );
    }

    #[test]
    fn the_configuration_is_that_of_the_example() {
        let example = include_str!("../../../../examples/search_orchestra.toml");
        let [own, example]: [toml::Table; 2] =
            [CONFIG, example].map(|text| text.parse().unwrap_or_default());
        for key in ["seed", "steps", "task", "orchestra", "environment", "sampling", "algorithm"] {
            assert_eq!(own.get(key), example.get(key), "{key}");
        }
    }
}
