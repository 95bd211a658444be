//! Reports of a program: the end of its episode, and parts of its reward.

use serde_json::{Map, Value};

use crate::openai::{Fields, request};
use crate::refusal::Refusal;
use maverl::task::Score;

/// Maximum number of parts of an episode's reward, and of its metrics.
pub(super) const MOST_NAMES: usize = 256;
/// Maximum length of a name.
const LONGEST: usize = 64;
/// Names of parts that the run gives itself.
const RESERVED: [&str; 2] = ["invalid_reply", "overlong_reply"];

request! {
    /// Body of `finish`, or the last line of a program's output.
    struct FinishRequest {
        answer: Option<Value>,
        reward: Option<f64> [-Score::LIMIT, Score::LIMIT],
        solved: Option<bool>,
        metrics: Option<Value>,
    }
}

request! {
    /// Body of `fail`.
    struct FailRequest {
        by: Option<String>,
        message: Option<String>,
        completion: Option<String>,
    }
}

request! {
    /// Body of `parts`.
    struct PartRequest {
        name: Option<String>,
        value: Option<f64> [-Score::LIMIT, Score::LIMIT],
        of: Option<Value>,
    }
}

/// End of an episode.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct EpisodeFinish {
    pub(super) answer: Option<String>,
    /// Reward, and true if the task is solved, for the environment that takes rewards.
    pub(super) reward: Option<f64>,
    pub(super) solved: Option<bool>,
    pub(super) metrics: Vec<(String, f64)>,
}

impl EpisodeFinish {
    /// Reads the body of `finish`, or the last line of a program's output.
    pub(super) fn read(mut fields: Fields) -> Result<Self, Refusal> {
        let FinishRequest { answer, reward, solved, metrics } = fields.read()?;
        let answer = match answer {
            None => None,
            Some(Value::String(answer)) => Some(answer),
            // Programs print numbers.
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Some(value.to_string()),
            Some(other) => return Err(fields.wrong("answer", &other, "a text or null")),
        };
        let metrics = match metrics {
            None => Vec::new(),
            Some(Value::Object(metrics)) => read_metrics(&fields, metrics)?,
            Some(other) => return Err(fields.wrong("metrics", &other, "an object of numbers")),
        };
        only_known(&fields)?;
        Ok(Self { answer, reward, solved, metrics })
    }
}

fn read_metrics(
    fields: &Fields,
    metrics: Map<String, Value>,
) -> Result<Vec<(String, f64)>, Refusal> {
    if metrics.len() > MOST_NAMES {
        let what = format!("has {} names; write at most {MOST_NAMES}", metrics.len());
        return Err(fields.error("metrics", &what));
    }
    let mut read = Vec::with_capacity(metrics.len());
    for (name, value) in metrics {
        let number = value
            .as_f64()
            .ok_or_else(|| fields.wrong(&format!("metrics.{name}"), &value, "a number"))?;
        if !is_name(&name) || name.starts_with("gateway/") {
            return Err(fields.error("metrics", &format!("has {name:?}; {NAMES}")));
        }
        read.push((name, number));
    }
    Ok(read)
}

/// Failure that a program reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedFailure {
    /// True if a reply of the policy was the reason: the episode is scored without an answer.
    pub(super) by_policy: bool,
    pub(super) message: String,
    /// Answer whose reply was the reason.
    pub(super) completion: Option<String>,
}

impl ReportedFailure {
    /// Reads the body of `fail`.
    pub(super) fn read(mut fields: Fields) -> Result<Self, Refusal> {
        let FailRequest { by, message, completion } = fields.read()?;
        let by_policy = match by.as_deref() {
            Some("policy") => true,
            Some("program") => false,
            other => {
                let found = other.map_or("missing".to_owned(), |by| format!("{by:?}"));
                let what = format!("is {found}; write \"policy\" or \"program\"");
                return Err(fields.error("by", &what));
            }
        };
        let message = message.unwrap_or_default().chars().take(2000).collect();
        if completion.is_some() && !by_policy {
            return Err(fields.error("completion", "is for `\"by\": \"policy\"`"));
        }
        only_known(&fields)?;
        Ok(Self { by_policy, message, completion })
    }
}

/// Recipient of a part of the reward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartOf {
    Episode,
    /// Name of a seat.
    Seat(String),
    /// Id of an answer.
    Completion(String),
}

/// Named part of the reward.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedPart {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) of: PartOf,
}

impl ReportedPart {
    /// Reads the body of `parts`.
    pub(super) fn read(mut fields: Fields) -> Result<Self, Refusal> {
        let PartRequest { name, value, of } = fields.read()?;
        let name = name.unwrap_or_default();
        if !is_name(&name) || RESERVED.contains(&name.as_str()) {
            let kept = RESERVED.join(" and ");
            let what = format!("is {name:?}; {NAMES}; {kept} are names of the run");
            return Err(fields.error("name", &what));
        }
        let Some(value) = value else {
            return Err(fields.error("value", "is missing; write a number"));
        };
        let of = of.unwrap_or_else(|| "episode".into());
        let of = match (of.as_str(), of["seat"].as_str(), of["completion"].as_str()) {
            (Some("episode"), ..) => PartOf::Episode,
            (_, Some(seat), None) => PartOf::Seat(seat.to_owned()),
            (_, None, Some(id)) => PartOf::Completion(id.to_owned()),
            _ => {
                let wanted = "\"episode\", {\"seat\": NAME} or {\"completion\": ID}";
                return Err(fields.wrong("of", &of, wanted));
            }
        };
        only_known(&fields)?;
        Ok(Self { name, value, of })
    }
}

/// Rule for names.
const NAMES: &str = "write 1 to 64 small letters, digits, `_` or `/`";

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    (1..=LONGEST).contains(&name.len())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c))
}

/// Fails for a field that is left: a misspelled reward must not get lost.
fn only_known(fields: &Fields) -> Result<(), Refusal> {
    fields.finish(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn fields(value: &Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_end_has_an_answer_a_reward_and_metrics() {
        let whole = json!({"answer": "4", "reward": 0.5, "solved": false, "metrics": {"tries": 2}});
        let finish = EpisodeFinish::read(fields(&whole)).unwrap();
        assert_eq!((finish.answer.as_deref(), finish.reward), (Some("4"), Some(0.5)));
        assert_eq!((finish.solved, finish.metrics), (Some(false), vec![("tries".to_owned(), 2.0)]));
        let number = EpisodeFinish::read(fields(&json!({"answer": 42}))).unwrap();
        assert_eq!(number.answer.as_deref(), Some("42"));
        assert_eq!(
            EpisodeFinish::read(fields(&json!({"answer": null}))).unwrap(),
            EpisodeFinish::default()
        );
        for (wrong, part) in [
            (json!({"answer": ["4"]}), "`answer` is [\"4\"]"),
            (json!({"reward": "1"}), "`reward` is \"1\""),
            (json!({"rewards": 1}), "`rewards` is not known"),
            (json!({"metrics": {"Tries": 1}}), "small letters"),
            (json!({"metrics": {"gateway/calls": 1}}), "small letters"),
            (json!({"metrics": {"tries": null}}), "`metrics.tries` is null"),
        ] {
            let message = EpisodeFinish::read(fields(&wrong)).unwrap_err().message;
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_part_names_its_recipient() {
        let read = |value: Value| ReportedPart::read(fields(&value)).map(|part| part.of);
        assert_eq!(read(json!({"name": "style", "value": 1})).unwrap(), PartOf::Episode);
        let seat = json!({"name": "style", "value": 1, "of": {"seat": "coder"}});
        assert_eq!(read(seat).unwrap(), PartOf::Seat("coder".to_owned()));
        let turn = json!({"name": "style", "value": -1, "of": {"completion": "x"}});
        assert_eq!(read(turn).unwrap(), PartOf::Completion("x".to_owned()));
        for (wrong, part) in [
            (json!({"name": "style"}), "`value` is missing"),
            (json!({"name": "invalid_reply", "value": 1}), "names of the run"),
            (json!({"name": "style", "value": 1, "of": "all"}), "`of` is \"all\""),
        ] {
            let message = read(wrong).unwrap_err().message;
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_failure_says_whose_it_is() {
        let failure =
            ReportedFailure::read(fields(&json!({"by": "policy", "completion": "x"}))).unwrap();
        assert_eq!((failure.by_policy, failure.completion.as_deref()), (true, Some("x")));
        assert!(ReportedFailure::read(fields(&json!({"by": "me"}))).is_err());
        assert!(
            ReportedFailure::read(fields(&json!({"by": "program", "completion": "x"}))).is_err()
        );
    }
}
