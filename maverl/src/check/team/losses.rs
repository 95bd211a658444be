//! Parts of a loss, and of the advantages it has, that do not go together.

use figment::value::Value;

use crate::config::source::{Problems, key, path, path_within};
use crate::config::{
    AdvantagePlan, Aggregation, Config, Correction, CorrectionUnit, GroupPlan, Ratio, Selection,
    TruncateOptions,
};
use crate::loss::{CorrectionMeasure, LossUnit};
use crate::plan::{AlgorithmPlan, SeatPlan};
use crate::settings::Tagged;

/// Reports combinations that cannot work in the losses of trained seats, each once.
pub(super) fn check_losses(
    config: &Config,
    algorithm: &AlgorithmPlan,
    seats: &[SeatPlan],
    problems: &mut Problems<'_>,
) {
    let trained = || seats.iter().filter(|seat| seat.trained);
    scales(algorithm, problems);
    if let Some(seat) = trained().find(|seat| needs_other_ratio(seat)) {
        let kind = seat.loss.surrogate.kind();
        let message = format!(
            "`{}` is trained with the surrogate {kind:?} and a ratio of the reply",
            seat.seat
        );
        let help = format!("`{kind}` weighs each token by its own ratio: set `ratio = \"token\"`");
        problems.conflict(&path(["algorithm", "loss", "ratio"]), message, help);
    }
    let of_reply = |seat: &&SeatPlan| seat.loss.surrogate.surrogate().unit() == LossUnit::Reply;
    if let Some(seat) = trained().find(of_reply)
        && algorithm.aggregation != Aggregation::SequenceMean
    {
        let kind = seat.loss.surrogate.kind();
        let message = format!(
            "the surrogate {kind:?} has one loss for a reply, and `algorithm.aggregation` counts tokens"
        );
        let help = "the loss is the mean over replies: set `aggregation = \"sequence_mean\"`";
        problems.conflict(&path(["algorithm", "aggregation"]), message, help.to_owned());
    }
    selections(algorithm, trained(), problems);
    bounds(config, problems);
    if let Some((what, help)) = trained().find_map(|seat| corrections(&seat.loss.correction)) {
        let message = format!("`algorithm.loss.correction` {what}");
        problems.conflict(&path(["algorithm", "loss", "correction"]), message, help.to_owned());
    }
}

fn needs_other_ratio(seat: &SeatPlan) -> bool {
    seat.loss.ratio != Ratio::Token && seat.loss.surrogate.surrogate().needs_token_ratio()
}

/// Reports a selection that drops tokens of replies whose loss is not a sum over tokens, or one with bounds that exclude each
/// other.
fn selections<'s>(
    algorithm: &AlgorithmPlan,
    mut trained: impl Iterator<Item = &'s SeatPlan>,
    problems: &mut Problems<'_>,
) {
    let at = path(["algorithm", "select"]);
    if let Selection::ClipCov(options) = algorithm.select
        && options.low >= options.high
    {
        let message =
            format!("`algorithm.select` has `low = {}` and `high = {}`", options.low, options.high);
        let help = "no covariance is between them: `low` is below `high`".to_owned();
        problems.conflict(&at, message, help);
    }
    if algorithm.select.drops_tokens()
        && let Some(seat) = trained.find(|seat| has_one_loss(seat))
    {
        let message = format!(
            "`algorithm.select` drops tokens, and the replies of `{}` have one loss each",
            seat.seat
        );
        let help = "take a surrogate of tokens with `loss.ratio = \"token\"` or `\"sequence_token\"`, or set \
                    `select = \"none\"`";
        problems.conflict(&at, message, help.to_owned());
    }
}

/// Returns true if the replies of a seat have one loss each.
fn has_one_loss(seat: &SeatPlan) -> bool {
    matches!(seat.loss.ratio, Ratio::Sequence | Ratio::Product)
        || seat.loss.surrogate.surrogate().unit() == LossUnit::Reply
}

/// An advantage has one divisor.
fn scales(algorithm: &AlgorithmPlan, problems: &mut Problems<'_>) {
    let AdvantagePlan::Group(GroupPlan {
        normalize_std: true,
        normalize_mean,
        compensate_flat,
        ..
    }) = algorithm.advantage
    else {
        return;
    };
    for (set, key) in [(normalize_mean, "normalize_mean"), (compensate_flat, "compensate_flat")] {
        if set {
            let message = format!(
                "`algorithm.advantage.{key}` is true, and advantages are divided by the deviation"
            );
            let help = "set `normalize_std = false`, or remove it";
            problems.conflict(&path(["algorithm", "advantage", key]), message, help.to_owned());
        }
    }
}

/// Returns what is wrong with the corrections of a seat, and how to correct it.
fn corrections(corrections: &[Correction]) -> Option<(&'static str, &'static str)> {
    let truncates = |correction: &&Correction| matches!(correction, Correction::Truncate(_));
    if corrections.iter().filter(truncates).count() > 1 {
        let what = "truncates twice";
        return Some((what, "the weights of all tables are multiplied: truncate in one of them"));
    }
    corrections.iter().find_map(|correction| match correction {
        Correction::Truncate(truncate) => truncation(truncate),
        Correction::Mask(mask)
            if mask.measure == CorrectionMeasure::Ratio && mask.low > mask.high =>
        {
            Some(("has a `low` above its `high`", "no ratio is within such bounds"))
        }
        _ => None,
    })
}

fn truncation(truncate: &TruncateOptions) -> Option<(&'static str, &'static str)> {
    if truncate.of == CorrectionUnit::Max {
        let what = "truncates the ratio of `max`, which a reply does not have";
        return Some((what, "write `of = \"token\"`, `\"mean\"` or `\"product\"`"));
    }
    None
}

/// Reports each table of corrections in which one bound is written under both of its names.
fn bounds(config: &Config, problems: &mut Problems<'_>) {
    let mut places = vec![path(["algorithm", "loss", "correction"])];
    for (name, agent) in &config.agents {
        let at = path(["agents", name]);
        let of_loss = |at: &[String]| path_within(&path_within(at, "loss"), "correction");
        let seats = path_within(&at, "seats");
        places.extend(
            agent.seats.keys().map(|seat| of_loss(&path_within(&seats, &seat.to_string()))),
        );
        places.push(of_loss(&at));
    }
    for place in places {
        let tables = match problems.layers().value(&place) {
            Some(Value::Array(_, tables)) => tables.as_slice(),
            Some(table) => std::slice::from_ref(table),
            None => continue,
        };
        let has_both =
            |table: &Value| ["cap", "high"].iter().all(|key| table.find_ref(key).is_some());
        if tables.iter().any(has_both) {
            let message = format!("`{}` has both `cap` and `high`", key(&place));
            let help = "`cap` is another name of `high`: remove one".to_owned();
            problems.conflict(&place, message, help);
        }
    }
}
