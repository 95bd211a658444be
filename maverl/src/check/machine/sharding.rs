//! Division of models among ranks.

use crate::check::purpose::Purpose;
use crate::config::source::{Problems, path};
use crate::config::{Config, Shard};

/// Reports a value of `dist.shard` with which this version does not train.
pub(crate) fn check_shard(config: &Config, purpose: Purpose, problems: &mut Problems<'_>) {
    let shard = config.dist.shard;
    let trains = matches!(purpose, Purpose::Train | Purpose::Plan);
    if !trains || matches!(shard, Shard::None | Shard::Optimizer) {
        return;
    }
    let name = shard.name();
    let message = format!(
        "`dist.shard` is \"{name}\", with which this version plans (`maverl check --ranks N`) and does not train"
    );
    let help = "write `dist.shard = \"optimizer\"`, which divides the moments, or train adapters (`lora`), which have few";
    problems.value(&path(["dist", "shard"]), message, help.to_owned());
}
