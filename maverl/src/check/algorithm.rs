//! Parts of an algorithm that do not go together.

use super::diagnostic::{Problems, path};
use crate::config::{Baseline, Config, Preset, Ratio, Surrogate};
use crate::plan::{AlgorithmPlan, SeatPlan};

/// Fills in the coefficients of the loss that the preset sets, so that agents inherit them.
pub(super) fn preset(config: &mut Config) {
    let parts = config.algorithm.name.parts();
    config.algorithm.loss = config.algorithm.loss.over(&parts.loss);
}

/// Reports combinations that cannot work.
pub(super) fn check(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
    problems: &mut Problems<'_>,
) {
    if algorithm.preset == Preset::Sft {
        return;
    }
    if algorithm.critic.is_none() && algorithm.baseline == Baseline::None && algorithm.normalize_std
    {
        let message = "`algorithm.normalize_std` is true, and `algorithm.baseline` is \"none\"";
        let help = "the deviation is that of a group: compare with the group, or set `normalize_std = false`; \
                    `whiten` divides by the deviation over the step";
        let at = path(["algorithm", "baseline"]);
        problems.value(&at, message.to_owned(), help.to_owned());
    }
    if config.task.group_size.get() == 1 && algorithm.critic.is_none() {
        if algorithm.resample > 0 {
            let message = format!(
                "`algorithm.resample` is {}, and `task.group_size` is 1",
                algorithm.resample
            );
            let help = "one episode never differs from itself, so every task would be replaced: set `resample = 0`, or \
                        play more episodes on each task";
            problems.value(&path(["task", "group_size"]), message, help.to_owned());
        }
        if matches!(algorithm.baseline, Baseline::LeaveOneOut | Baseline::SecondBest) {
            let message =
                "`algorithm.baseline` compares with other episodes, and `task.group_size` is 1";
            let help = "play more episodes on each task";
            problems.value(&path(["task", "group_size"]), message.to_owned(), help.to_owned());
        }
    }
    for seat in seats.iter().filter(|seat| seat.trained) {
        if seat.loss.surrogate == Surrogate::Cispo && seat.loss.ratio != Ratio::Token {
            let message = format!(
                "`{}` is trained with the surrogate \"cispo\" and a ratio of the reply",
                seat.seat
            );
            let help = "CISPO weighs each token by its own ratio: set `ratio = \"token\"`";
            problems.value(&path(["algorithm", "loss", "ratio"]), message, help.to_owned());
            break;
        }
    }
}
