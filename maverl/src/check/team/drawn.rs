//! Branches that draw seats, or that begin after other replies than the played ones, and what excludes them.

use crate::config::source::{Problems, path};
use crate::config::{BranchConfig, BranchKeep, BranchTurns, BranchUse, Config};
use crate::plan::SeatPlan;
use crate::trajectory::Seat;

/// Most branches of a task that are combinations of replies.
const MOST_COMBINATIONS: u64 = 4096;

/// A problem: its key below `rollout.branch`, what was found, and what to write instead.
type Found = (&'static str, String, String);

/// Reports keys of `[rollout.branch]` that exclude each other or the estimator.
pub(super) fn check_drawn(
    config: &Config,
    purpose: BranchUse,
    seats: &[SeatPlan],
    problems: &mut Problems<'_>,
) {
    let branch = config.rollout.branch.clone().unwrap_or_default();
    let named: Vec<Seat> =
        branch.seats.iter().filter_map(|name| Seat::try_from(name.clone()).ok()).collect();
    let trained = seats.iter().filter(|seat| seat.trained);
    let chosen = trained
        .filter(|seat| named.is_empty() || named.iter().any(|named| named.covers(&seat.seat)))
        .count();
    let mut found = after_replies(&branch, purpose);
    if branch.keep == BranchKeep::All {
        found.extend(whole_seats(&branch, "`keep = \"all\"`"));
        found.extend(combinations(&branch, chosen, config.task.group_size.get()));
    } else if purpose == BranchUse::Coalitions {
        found.extend(whole_seats(&branch, "`kind = \"shapley\"`"));
    }
    if purpose == BranchUse::Coalitions && chosen < 2 {
        let message = format!(
            "`kind = \"shapley\"` compares coalitions of seats, and {chosen} is trained and chosen"
        );
        let help = "choose several seats in `seats`, or use `kind = \"counterfactual\"`";
        found.push(("seats", message, help.to_owned()));
    }
    for (key, message, help) in found {
        problems.conflict(&path(["rollout", "branch", key]), message, help);
    }
}

/// Returns the problems of branches that begin after other replies than the played ones.
fn after_replies(branch: &BranchConfig, purpose: BranchUse) -> Vec<Found> {
    let keep = match branch.keep {
        BranchKeep::Played => return Vec::new(),
        BranchKeep::Best => "best",
        BranchKeep::All => "all",
    };
    let mut found = Vec::new();
    if purpose != BranchUse::Rows {
        let message = format!(
            "`rollout.branch.keep` is {keep:?}, and the estimator compares branches of played replies"
        );
        let help = "set `algorithm.advantage.by = \"branch\"`, or `keep = \"played\"`";
        found.push(("keep", message, help.to_owned()));
    }
    if branch.turns > 0 {
        let message = format!(
            "`rollout.branch.turns` limits branches of played replies, and `keep` is {keep:?}"
        );
        found.push(("turns", message, "set `turns = 0`, or `keep = \"played\"`".to_owned()));
    }
    found
}

/// Returns the problems of branches in which whole seats are drawn, because of another key.
fn whole_seats(branch: &BranchConfig, cause: &str) -> Vec<Found> {
    let mut found = Vec::new();
    if branch.at != BranchTurns::Every {
        let message = format!("{cause} draws whole seats, and `rollout.branch.at` chooses turns");
        found.push(("at", message, "set `at = \"every\"`".to_owned()));
    }
    if branch.continuations.get() > 1 {
        let message = format!(
            "{cause} plays each combination once, and `rollout.branch.continuations` is {}",
            branch.continuations
        );
        found.push(("continuations", message, "set `continuations = 1`".to_owned()));
    }
    found
}

/// Returns the problem of too many combinations of the replies of seats.
fn combinations(branch: &BranchConfig, seats: usize, group: u32) -> Option<Found> {
    let width = u64::from(branch.width.get());
    let plays = width.saturating_pow(seats as u32).saturating_mul(u64::from(group));
    let message = format!(
        "`keep = \"all\"` plays all combinations of the replies of {seats} seats: {width}^{seats} in each of {group} episodes are \
         {plays} plays of a task, above {MOST_COMBINATIONS}"
    );
    let help = "lower `width` or `task.group_size`, or choose fewer seats in `seats`";
    (plays > MOST_COMBINATIONS).then(|| ("width", message, help.to_owned()))
}
