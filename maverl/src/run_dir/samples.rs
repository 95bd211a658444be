//! Samples of a step: the turns that were trained on, with every term of their advantages. `samples/step-000012.jsonl.zst`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunDir;
use super::error::{At, RunDirError};
use super::packed::{pack_lines, read_lines};
use crate::IntoMap;
use crate::trajectory::Seat;

/// Samples of a step, and the groups that they are compared in.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct StepSamples {
    /// Estimator of the step.
    pub estimator: EstimatorRecord,
    /// Groups of the mean, by id; empty if the estimator has none.
    pub groups: Vec<GroupRecord>,
    /// Groups of the deviation, by id, if they differ from those of the mean.
    pub deviation_groups: Vec<GroupRecord>,
    /// Samples, sorted by task, episode and turn.
    pub samples: Vec<SampleRecord>,
    /// Groups of earlier steps that were trained on in place of flat ones.
    pub replayed: Vec<ReplayedRecord>,
}

/// Estimator of the advantages of a step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EstimatorRecord {
    /// `group`, `pair`, `critic`, `mixer`, or the name of a declared estimator. The settings below are those of `group`.
    pub estimator: String,
    /// Baseline of a group: `mean`, `leave_one_out`, `second_best`, `length_weighted` or `none`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline: String,
    /// True if advantages are divided by the deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize_std: Option<bool>,
    /// True if advantages are divided by the mean of the group.
    #[serde(default, skip_serializing_if = "is_false")]
    pub normalize_mean: bool,
    /// Factor that makes up for groups without spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flat_factor: Option<f64>,
    /// Addend of the deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// Advantage of a group of one: `zero` or `raw`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub singleton: String,
    /// Weight of the anchor term; 0 if there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub anchor_weight: f64,
    /// Mean and deviation over the tokens of the step, if advantages are whitened. The divisor is
    /// `sqrt(deviation² + 1e-8)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whiten: Option<(f64, f64)>,
    /// Divisor of whitening, if it is larger: a tenth of the deviation of the rewards of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_divisor: Option<f64>,
    /// Device that computed the advantages, in f32; `None` for the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// File of the kernel of a declared estimator that computed the advantages; `None` for its Rust function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// A group of samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupRecord {
    /// Id within the step.
    pub id: usize,
    /// Keys of the group: `task`, `task_turn` or `task_seat`.
    pub by: String,
    /// Source of the task.
    pub source: String,
    /// Id of the task.
    pub task: String,
    /// Seat, if the group is of one seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<Seat>,
    /// Number of units: episodes if `by` is `task`, else turns.
    pub size: usize,
    /// Mean of the units.
    pub mean: f64,
    /// Sample deviation of the units (n - 1).
    pub deviation: f64,
    /// True if the units differ by more than rounding.
    pub spread: bool,
    /// Baseline of the group, if it is not the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
}

/// A turn that was trained on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SampleRecord {
    /// Index of the episode in the rollouts of the step.
    pub episode: usize,
    /// Index of the turn in the episode.
    pub turn: usize,
    /// Id of the group; `None` if the estimator has no groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// Id of the group of the deviation, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation_group: Option<usize>,
    /// Name of the trained policy.
    pub policy: String,
    /// Reward of the turn before shaping, if shaping or future rewards changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_reward: Option<f64>,
    /// Reward.
    pub reward: f64,
    /// Baseline that is known before the step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub baseline: f64,
    /// Value of the unit, if it has several turns: the mean of their rewards less baselines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<f64>,
    /// Advantage among equal prompts, before its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<f64>,
    /// Advantage before whitening.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwhitened: Option<f64>,
    /// Factor on the advantage from policies that were updated before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Mean over tokens of the term that a teacher adds to the advantage, which then counts `algorithm.distill.task_coef` times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<f64>,
    /// Mean over tokens of the advantage with the teacher's term, before `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taught: Option<f64>,
    /// Advantage of each token with the teacher's term, before `factor`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taught_tokens: Vec<f64>,
    /// Advantage; the mean over tokens if they differ. With `factor` or `teacher`, before it.
    pub advantage: f64,
    /// Advantage of each token, if they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advantages: Vec<f64>,
    /// Values of a critic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
    /// Returns that the critic is trained on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<f64>,
}

impl SampleRecord {
    /// Returns the advantage in the loss, with a teacher's term and the factor; the mean over tokens if they differ.
    pub fn loss_advantage(&self) -> f64 {
        self.taught.unwrap_or(self.advantage) * self.factor.unwrap_or(1.0)
    }

    /// Returns the advantage in the loss of each of the tokens of the reply, `[tokens]`.
    pub fn token_advantages(&self, tokens: usize) -> Vec<f64> {
        let before = if self.taught.is_some() { &self.taught_tokens } else { &self.advantages };
        if before.is_empty() {
            return vec![self.loss_advantage(); tokens];
        }
        let factor = self.factor.unwrap_or(1.0);
        before.iter().map(|advantage| advantage * factor).collect()
    }
}

/// A group of an earlier step that was trained on again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayedRecord {
    /// Step that has its episodes.
    pub step: u64,
    /// Source of the task.
    pub source: String,
    /// Id of the task.
    pub task: String,
    /// Advantage of each of its turns, in the order of the samples of its step.
    pub advantages: Vec<f64>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Step(EstimatorRecord),
    Group(GroupRecord),
    DeviationGroup(GroupRecord),
    Sample(SampleRecord),
    Replayed(ReplayedRecord),
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Encodes the content of a file of samples.
fn encode(path: &Path, step: &StepSamples) -> Result<Vec<u8>, RunDirError> {
    let StepSamples { estimator, groups, deviation_groups, samples, replayed } = step.clone();
    let lines = std::iter::once(Line::Step(estimator))
        .chain(groups.into_iter().map(Line::Group))
        .chain(deviation_groups.into_iter().map(Line::DeviationGroup))
        .chain(samples.into_iter().map(Line::Sample))
        .chain(replayed.into_iter().map(Line::Replayed));
    pack_lines(lines).at("compress", path)
}

/// Reads the samples of a step.
///
/// # Errors
///
/// If the file cannot be read, or a line of it is invalid. The message names the line.
pub fn read_samples(path: &Path) -> Result<StepSamples, RunDirError> {
    let mut read = StepSamples::default();
    for line in read_lines(path)? {
        match line {
            Line::Step(estimator) => read.estimator = estimator,
            Line::Group(group) => read.groups.push(group),
            Line::DeviationGroup(group) => read.deviation_groups.push(group),
            Line::Sample(sample) => read.samples.push(sample),
            Line::Replayed(group) => read.replayed.push(group),
        }
    }
    Ok(read)
}

impl RunDir {
    /// Returns the path of the samples of a step.
    pub fn samples(&self, step: u64) -> PathBuf {
        self.path.join(file(step))
    }

    /// Writes the samples of a step.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn write_samples(&mut self, step: u64, samples: &StepSamples) -> Result<(), RunDirError> {
        let bytes = encode(&self.samples(step), samples)?;
        self.write_listed(file(step), &bytes)
    }
}

fn file(step: u64) -> String {
    format!("samples/step-{step:06}.jsonl.zst")
}

impl StepSamples {
    /// Returns the samples of a group.
    pub fn of_group(&self, group: usize) -> impl Iterator<Item = &SampleRecord> {
        self.samples.iter().filter(move |sample| sample.group == Some(group))
    }

    /// Returns the samples of an episode by the index of their turn.
    pub fn of_episode(&self, episode: usize) -> BTreeMap<usize, &SampleRecord> {
        let its = self.samples.iter().filter(|sample| sample.episode == episode);
        its.map(|sample| (sample.turn, sample)).into_map()
    }

    /// Returns the arithmetic of a sample's advantage by a group, term by term; `None` if the advantage is not that of
    /// a group.
    pub fn arithmetic(&self, sample: &SampleRecord) -> Option<AdvantageTerms> {
        let EstimatorRecord { estimator, baseline, normalize_std, eps, singleton, .. } =
            &self.estimator;
        let group = self.groups.get(sample.group?).filter(|_| estimator == "group")?;
        let other = sample.deviation_group.and_then(|id| self.deviation_groups.get(id));
        let unit = self.unit(sample);
        let alone = group.size == 1 && baseline != "none";
        let centered = match baseline.as_str() {
            _ if alone => unit,
            "leave_one_out" => {
                let n = group.size as f64;
                (unit - group.mean) * n / (n - 1.0)
            }
            "none" => unit,
            "mean" => unit - group.mean,
            "length_weighted" => unit - group.baseline.unwrap_or(group.mean),
            "second_best" => self.lead(group, unit)?,
            _ => return None,
        };
        let deviation = match other {
            _ if *normalize_std != Some(true) => None,
            None if group.size == 1 => Some(1.0),
            None => Some(group.deviation),
            Some(other) if other.spread => Some(other.deviation),
            Some(other) if other.size == 1 && singleton == "raw" => Some(1.0),
            Some(_) => Some(f64::INFINITY),
        };
        let relative = match deviation {
            _ if alone && singleton == "zero" => 0.0,
            None => self.rescaled(group, centered),
            Some(deviation) => centered / (deviation + eps.unwrap_or(0.0)),
        };
        let advantage = sample
            .anchor
            .map_or(relative, |anchor| relative + self.estimator.anchor_weight * anchor);
        let advantage = match self.estimator.whiten {
            None => advantage,
            Some((mean, deviation)) => {
                let own = (deviation.powi(2) + 1e-8).sqrt();
                (advantage - mean) / self.estimator.least_divisor.unwrap_or(own)
            }
        };
        Some(AdvantageTerms { unit, centered, deviation, relative, advantage })
    }

    /// Returns a value that no deviation divides with the other scales of its group.
    fn rescaled(&self, group: &GroupRecord, centered: f64) -> f64 {
        let most = group.size.max(1) as f64;
        let scaled = if !self.estimator.normalize_mean {
            centered
        } else if group.mean > 0.0 {
            (centered / group.mean).clamp(-most, most)
        } else {
            0.0
        };
        scaled * self.estimator.flat_factor.unwrap_or(1.0)
    }

    /// Returns the value of the unit of a sample.
    fn unit(&self, sample: &SampleRecord) -> f64 {
        let own = sample.reward - sample.baseline;
        // A device takes rewards in f32.
        let own = if self.estimator.device.is_some() { f64::from(own as f32) } else { own };
        sample.unit.unwrap_or(own)
    }

    /// Returns the lead of a unit over the second best of its group, 0 if it is not the best; `None` if a unit of the group
    /// is in no sample.
    fn lead(&self, group: &GroupRecord, unit: f64) -> Option<f64> {
        let mut units = BTreeMap::new();
        for sample in self.of_group(group.id) {
            let turn = if group.by == "task" { 0 } else { sample.turn };
            units.insert((sample.episode, turn), self.unit(sample));
        }
        let mut values: Vec<f64> = units.into_values().collect();
        values.sort_by(f64::total_cmp);
        match values[..] {
            [.., second, best] if values.len() == group.size => {
                Some(if unit == best { unit - second } else { 0.0 })
            }
            _ => None,
        }
    }
}

/// Terms of an advantage that is relative to a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdvantageTerms {
    /// Value of the unit.
    pub unit: f64,
    /// Value less the baseline of the group.
    pub centered: f64,
    /// Deviation that it is divided by, before `eps`; `None` if it is not divided, infinite if the group of the
    /// deviation has no spread.
    pub deviation: Option<f64>,
    /// Advantage in the group.
    pub relative: f64,
    /// Advantage with all further terms except `factor`.
    pub advantage: f64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn step() -> StepSamples {
        let group = |id, size, mean, deviation| GroupRecord {
            id,
            by: "task_seat".into(),
            source: "facts".into(),
            task: "a".into(),
            seat: Some(Seat::only("t/a")),
            size,
            mean,
            deviation,
            spread: deviation > 0.0,
            baseline: None,
        };
        let sample = |episode, group, reward, advantage| SampleRecord {
            episode,
            group: Some(group),
            policy: "small".into(),
            reward,
            advantage,
            ..SampleRecord::default()
        };
        let deviation = 0.5_f64.sqrt();
        let a = 0.5 / (deviation + 1e-6);
        StepSamples {
            estimator: EstimatorRecord {
                estimator: "group".into(),
                baseline: "mean".into(),
                normalize_std: Some(true),
                eps: Some(1e-6),
                singleton: "zero".into(),
                ..EstimatorRecord::default()
            },
            groups: vec![group(0, 2, 0.5, deviation), group(1, 1, 1.0, 0.0)],
            deviation_groups: Vec::new(),
            samples: vec![sample(0, 0, 1.0, a), sample(1, 0, 0.0, -a), sample(2, 1, 1.0, 0.0)],
            replayed: vec![ReplayedRecord {
                step: 1,
                source: "facts".into(),
                task: "b".into(),
                advantages: vec![a, -a],
            }],
        }
    }

    #[test]
    fn samples_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let mut step = step();
        step.samples[1].values = vec![0.25, -1.0 / 3.0];
        step.samples[1].factor = Some(1.125);
        std::fs::write(&path, encode(&path, &step).unwrap()).unwrap();
        assert_eq!(read_samples(&path).unwrap(), step);
        std::fs::write(&path, zstd::encode_all(&b"{\"step\":1}\n"[..], 1).unwrap()).unwrap();
        let error = read_samples(&path).unwrap_err().to_string();
        assert!(error.contains("line 1: "), "{error}");
    }

    #[test]
    fn the_arithmetic_of_a_sample_gives_its_advantage() {
        let mut step = step();
        for sample in &step.samples {
            assert_eq!(step.arithmetic(sample).unwrap().advantage, sample.advantage);
        }
        step.estimator.estimator = "critic".into();
        assert_eq!(step.arithmetic(&step.samples[0]), None);
    }
}
