//! Times of the parts of a step and of its turns.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use crate::rollout::RequestTime;
use crate::run_dir::{SpanRecord, SpanRow, TurnTime};
use crate::trajectory::{Episode, request_seed};

/// A part of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    name: &'static str,
    /// Policy, if the part is inside another.
    policy: Option<String>,
    start: Instant,
    end: Instant,
}

impl Span {
    /// Returns the part that ends now.
    pub(crate) fn since(name: &'static str, start: Instant) -> Self {
        Self { name, policy: None, start, end: Instant::now() }
    }

    /// Returns the duration in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        seconds_between(self.start, self.end)
    }

    /// Returns the time without a span, if there is any.
    fn of_files(start: Instant, end: Instant) -> Option<Self> {
        (end > start).then_some(Self { name: "files", policy: None, start, end })
    }

    /// Assigns the part to a policy.
    pub(crate) fn of_policy(self, policy: &str) -> Self {
        Self { policy: Some(policy.to_owned()), ..self }
    }
}

/// Returns the row of a step that lasted from `from` to `to`. Time without a span is `files`: everything that is
/// written and counted between the others.
pub(crate) fn row(step: u64, mut spans: Vec<Span>, [from, to]: [Instant; 2]) -> SpanRow {
    spans.sort_by_key(|span| (span.start, span.policy.is_some()));
    let (mut parts, mut at) = (Vec::new(), from);
    for span in spans {
        if span.policy.is_none() {
            parts.extend(Span::of_files(at, span.start));
            at = span.end;
        }
        parts.push(span);
    }
    parts.extend(Span::of_files(at, to));
    let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64());
    let start = since - seconds_between(from, Instant::now());
    let spans = parts.into_iter().map(|part| {
        let (begin, lasted) = (seconds_between(from, part.start), part.seconds());
        SpanRecord(part.name.to_owned(), part.policy, begin, lasted)
    });
    SpanRow { step, start, spans: spans.collect(), samples: BTreeMap::new() }
}

fn seconds_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// Returns the times of the turns of episodes, from those of requests by their seeds. `start` is the start of the
/// rollout.
pub(crate) fn turns(
    episodes: &[Episode],
    times: &BTreeMap<u64, RequestTime>,
    start: f64,
) -> Vec<TurnTime> {
    let mut found = Vec::new();
    for (n, episode) in episodes.iter().enumerate() {
        let sampled = episode.turns.iter().enumerate();
        for (i, turn) in sampled.filter(|(_, turn)| !episode.repeats(turn)) {
            // Turns of a program have other paths in the record than their requests had.
            let seed = turn.tokens.as_ref().map(|tokens| tokens.seed);
            let branch = episode.branch.as_ref();
            let seed =
                seed.unwrap_or_else(|| request_seed(episode.seed, branch, &turn.path, &turn.seat));
            if let Some(RequestTime { asked, began, ended }) = times.get(&seed) {
                let [asked, ended] = [*asked, *ended].map(|time| ms_between(start, time));
                let began = began.map(|time| ms_between(start, time));
                found.push(TurnTime(n, i, turn.seat.clone(), asked, ended, began));
            }
        }
    }
    found
}

fn ms_between(start: f64, time: f64) -> u64 {
    ((time - start).max(0.0) * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::run_dir::tests::episode;

    #[test]
    fn the_spans_of_a_step_fill_it() {
        let from = Instant::now();
        let at = |ms: u64| from + Duration::from_millis(ms);
        let span = |name, policy: Option<&str>, start, end| Span {
            name,
            policy: policy.map(str::to_owned),
            start: at(start),
            end: at(end),
        };
        let spans = vec![
            span("update", None, 700, 900),
            span("update", Some("b"), 700, 800),
            span("rollout", None, 100, 600),
            span("checkpoint", None, 0, 50),
        ];
        let row = row(3, spans, [from, at(1000)]);
        let names: Vec<(&str, Option<&str>)> = row
            .spans
            .iter()
            .map(|SpanRecord(name, policy, ..)| (name.as_str(), policy.as_deref()))
            .collect();
        let expected = [
            ("checkpoint", None),
            ("files", None),
            ("rollout", None),
            ("files", None),
            ("update", None),
            ("update", Some("b")),
            ("files", None),
        ];
        assert_eq!(names, expected);
        let whole =
            row.spans.iter().filter(|span| span.1.is_none()).map(|span| span.3).sum::<f64>();
        assert!((whole - 1.0).abs() < 1e-9, "{whole}");
    }

    #[test]
    fn times_of_requests_belong_to_the_turns_of_their_seeds() {
        let mut one = episode("a", 0, true, 3);
        let seat = one.turns[1].seat.clone();
        one.turns[2].tokens = None;
        let seed = one.turns[2].path.seed(one.seed);
        let time = |asked, began, ended| RequestTime { asked, began, ended };
        let times =
            BTreeMap::from([(1, time(10.25, Some(10.375), 10.5)), (seed, time(10.5, None, 12.0))]);
        let found = turns(&[one], &times, 10.0);
        assert_eq!(
            found,
            [
                TurnTime(0, 1, seat.clone(), 250, 500, Some(375)),
                TurnTime(0, 2, seat, 500, 2000, None)
            ]
        );
    }
}
