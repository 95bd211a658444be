//! Rewards of an episode, and its end.

use serde_json::json;

use super::{CourseCounts, End, EpisodeCourse, program_fault};
use crate::gateway::call::seat;
use crate::gateway::report::{EpisodeFinish, MOST_NAMES, PartOf, ReportedFailure, ReportedPart};
use crate::refusal::Refusal;
use maverl::agent::ReplyError;
use maverl::orchestra::Recipient;
use maverl::task::Score;
use maverl::trajectory::TurnPath;

/// End of a program that a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Exit {
    /// The program, or the worker of the episode, ended while it played.
    Crashed,
    /// The program ended with exit code 0 and without a report.
    Unreported,
}

impl EpisodeCourse<'_> {
    /// Adds a part to the reward, once the episode ends.
    pub(super) fn part(&mut self, part: ReportedPart) -> Result<(), Refusal> {
        if self.parts.len() >= MOST_NAMES {
            let message = format!("the episode has {MOST_NAMES} parts of its reward already");
            return Err(Refusal::malformed(message).with_code("episode_limit"));
        }
        let sum: f64 = self.parts.iter().chain([&part]).map(|part| part.value.abs()).sum();
        if sum > Score::LIMIT {
            let message = format!(
                "is {:?}, with which the absolute values of the episode's parts add up to {sum:?}; they may to 1e9",
                part.value
            );
            return Err(Refusal::invalid("value", message));
        }
        match &part.of {
            PartOf::Episode => {}
            PartOf::Seat(name) => drop(seat(name, &self.options.models)?),
            PartOf::Completion(id) => drop(self.path_of(id)?),
        }
        self.parts.push(part);
        Ok(())
    }

    fn path_of(&self, completion: &str) -> Result<&TurnPath, Refusal> {
        self.completions.get(completion).ok_or_else(|| {
            let id: String = completion.chars().take(80).collect();
            Refusal::invalid("completion", format!("no answer of the episode has the id {id:?}"))
        })
    }

    /// Ends the episode with an answer.
    pub(in crate::gateway) async fn finish(
        &mut self,
        finish: EpisodeFinish,
    ) -> Result<(), Refusal> {
        match (self.state.takes_rewards(), finish.reward) {
            (true, None) => {
                let message = "`reward` is missing; the environment scores by it";
                return Err(Refusal::invalid("reward", message));
            }
            (false, Some(_)) => {
                let message = "`reward` is given, and the environment judges the answer; leave it out, or set \
                               `environment.name = \"reported\"`";
                return Err(Refusal::invalid("reward", message));
            }
            (true, Some(reward)) => {
                let report = json!({"reward": reward, "solved": finish.solved});
                let reported = self.state.report(report).await;
                reported.map_err(|error| Refusal::invalid("reward", error.to_string()))?;
                self.rewarded = true;
            }
            (false, None) => {}
        }
        for (name, value) in finish.metrics {
            self.state.log_named(name, value);
        }
        self.end = Some(End::Answer(finish.answer));
        Ok(())
    }

    /// Ends the episode with a failure.
    pub(super) fn fail(&mut self, failure: ReportedFailure) -> Result<(), Refusal> {
        if let Some(id) = &failure.completion {
            let path = self.path_of(id)?.clone();
            self.state.reject(&path, &ReplyError::Other(failure.message.clone()));
        }
        self.end = Some(if failure.by_policy {
            End::Answer(None)
        } else {
            End::Fault(program_fault(failure.message))
        });
        Ok(())
    }

    /// Returns true if a call was refused because of a limit or the context.
    pub(in crate::gateway) fn was_limited(&self) -> bool {
        self.counts.limits > 0
    }

    /// Adds parts of the reward and metrics to the episode, and returns its end.
    pub(in crate::gateway) fn close(self, end: End) -> End {
        let CourseCounts { calls, carried, continued, forked, limits } = self.counts;
        for ReportedPart { name, value, of } in self.parts {
            let recipient = match of {
                PartOf::Episode => Some(Recipient::Episode),
                PartOf::Seat(name) => {
                    let index = seat(&name, &self.options.models).ok();
                    index.map(|index| Recipient::Seat(self.seats[index].clone()))
                }
                PartOf::Completion(id) => self.completions.get(&id).cloned().map(Recipient::Turn),
            };
            if let Some(recipient) = recipient {
                self.state.add_part(recipient, name, value);
            }
        }
        let state = &self.state;
        state.log_metric("gateway/calls_mean", f64::from(calls));
        state.log_metric("gateway/forked", f64::from(forked));
        state.log_metric("gateway/rewritten", f64::from(carried - continued));
        state.log_metric("gateway/raced", self.order.raced as f64);
        state.log_metric("gateway/limits", f64::from(limits));
        for (name, exit) in
            [("gateway/crashes", Exit::Crashed), ("gateway/unreported", Exit::Unreported)]
        {
            state.log_metric(name, f64::from(self.exit == Some(exit)));
        }
        if carried > 0 {
            state.log_metric("gateway/prefix_reuse", f64::from(continued) / f64::from(carried));
        }
        match end {
            End::Answer(_) if self.state.takes_rewards() && !self.rewarded => {
                let message =
                    "the program ended without a reward, and the environment scores by it";
                End::Fault(program_fault(message))
            }
            end => end,
        }
    }
}
