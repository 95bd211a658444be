//! The math environment: questions whose answer can be computed.
//!
//! Answers are found and compared by the crate `maverl-answers`.

use std::path::Path;

#[doc(inline)]
pub use maverl_answers::{AnswerVerdict, compare_answers};
use maverl_answers::{answer_or_guess, is_readable, judge_answer, reference_answer};
use maverl_macros::{Settings, environment};
use serde_json::{Map, Value, json};

use crate::builtin::facts;
use crate::env::{EnvError, Environment, Session, check_answered};
use crate::task::{Action, Observation, Score, Task, TaskList};

/// Number of unreadable references that a message lists.
const SHOWN: usize = 5;

/// Judges answers to mathematical questions by their value, independent of notation.
#[environment(name = "math", offers("attempt"))]
#[derive(Settings)]
pub struct MathEnvironment {
    /// Judges a reply without a marked answer (`\boxed{..}`, `####`, "answer is") by its last number instead of as a
    /// whole.
    pub last_number: bool,
    /// Tells an attempt whether it is right. The correct answer is never shown.
    pub oracle: bool,
    /// Maximum number of attempts of an episode.
    #[setting(default = 2)]
    pub max_attempts: u32,
}

impl Environment for MathEnvironment {
    fn unsuited(data: &str) -> Option<&'static str> {
        facts::subject_of(data)
    }

    fn validate(&self, _: &Path, tasks: &TaskList) -> Result<Vec<String>, EnvError> {
        let (mut warnings, mut more) = (Vec::new(), 0);
        for task in tasks.iter() {
            answered([&task])?;
            for reference in unreadable(&task) {
                if warnings.len() == SHOWN {
                    more += 1;
                    continue;
                }
                let Task { id, source, .. } = &task;
                warnings.push(format!(
                    "the task `{id}` of `{source}` has a reference that cannot be read, so that only the same text is \
                     right: {reference:?}"
                ));
            }
        }
        warnings.extend((more > 0).then(|| format!("{more} more references cannot be read")));
        Ok(warnings)
    }

    fn report(&self, tasks: &[Task]) -> Result<Option<String>, EnvError> {
        answered(tasks)?;
        let all = tasks.iter().flat_map(|task| unreadable(task).map(move |text| (task, text)));
        let unreadable: Vec<(&Task, &str)> = all.collect();
        Ok(unreadable.first().map(|(Task { id, source, .. }, reference)| {
            format!(
                "{} references of {} tasks cannot be read, so that only the same text is right; the first is that of the \
                 task `{id}` of `{source}`: {reference:?}",
                unreadable.len(),
                tasks.len()
            )
        }))
    }

    /// Judges an attempt at the answer. The observation never contains the reference.
    async fn act(&self, session: &mut Session, action: Action) -> Result<Observation, EnvError> {
        let Action::Text(attempt) = action else {
            return Ok(Observation::new("there are no tools here; write an answer"));
        };
        let done = session.actions >= self.max_attempts;
        let text = match (self.answer(&attempt), self.oracle) {
            (None, _) => "there is no answer; write it as \\boxed{answer}",
            (Some(_), false) => "the answer is noted",
            (Some(answer), true) if verdict(answer, &session.task) == AnswerVerdict::Equal => {
                "the answer is right"
            }
            (Some(_), true) => "the answer is not right",
        };
        Ok(Observation { text: text.to_owned(), done })
    }

    fn measure(&self) -> &'static str {
        "accuracy"
    }

    async fn score(&self, session: &Session, answer: Option<&str>) -> Result<Score, EnvError> {
        answered(std::slice::from_ref(&session.task))?;
        let answer = answer.and_then(|reply| self.answer(reply));
        let verdict = answer.map(|answer| verdict(answer, &session.task));
        let undecided = verdict == Some(AnswerVerdict::Undecided);
        let metrics = Map::from_iter([
            ("answered".to_owned(), json!(f64::from(answer.is_some()))),
            ("undecided".to_owned(), json!(f64::from(undecided))),
        ]);
        Ok(Score { metrics, ..Score::binary(verdict == Some(AnswerVerdict::Equal)) })
    }
}

impl MathEnvironment {
    /// Returns the marked answer, else the last number if `last_number` is set, else the whole reply.
    fn answer<'a>(&self, reply: &'a str) -> Option<&'a str> {
        answer_or_guess(reply, self.last_number)
    }
}

/// Checks that every task has a reference answer.
fn answered<'t>(tasks: impl IntoIterator<Item = &'t Task>) -> Result<(), EnvError> {
    check_answered(tasks, |task| {
        references(task).iter().any(|text| !reference_answer(text).trim().is_empty())
    })
}

/// Returns the references of a task that cannot be read.
fn unreadable(task: &Task) -> impl Iterator<Item = &str> {
    references(task).into_iter().map(reference_answer).filter(|text| !is_readable(text))
}

/// Returns the best verdict over the references of a task.
fn verdict(answer: &str, task: &Task) -> AnswerVerdict {
    judge_answer(answer, &references(task)).verdict
}

fn references(task: &Task) -> Vec<&str> {
    let answers = task.data.get("answers").and_then(Value::as_array);
    answers.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt;

    use super::*;

    fn reward(math: &MathEnvironment, session: &Session, reply: Option<&str>) -> f64 {
        let scored = Environment::score(math, session, reply);
        scored.now_or_never().unwrap().unwrap().reward
    }

    fn session(answer: &str) -> Session {
        let data = Map::from_iter([("answers".to_owned(), json!([answer]))]);
        let (id, source) = ("1".to_owned(), "test".to_owned());
        let task = Task { id, source, question: "What is 6 times 7?".to_owned(), data };
        Session { task, seed: 0, actions: 1, state: Value::Null }
    }

    #[test]
    fn the_marked_answer_alone_is_judged() {
        let math = MathEnvironment::default();
        let rewarded = |reply| reward(&math, &session("6*7=42\n#### 42"), Some(reply));
        assert_eq!(rewarded("it is \\boxed{42.0}"), 1.0);
        assert_eq!(rewarded("#### 42"), 1.0);
        assert_eq!(rewarded(" 42 "), 1.0, "a reply that marks nothing is judged as a whole");
        // Attempts to be rewarded without an answer.
        for reply in [
            "41 42",
            "it is 42",
            "42 43",
            "\\boxed{41, 42}",
            "\\boxed{42} or \\boxed{43}",
            "\\boxed{41 or 42}",
            "<think>\\boxed{42}</think>",
            "\\boxed{}",
            "\\boxed{x = x}",
            "The answer is:\n42\n43",
            "The answer is:\n\n42\n\n**43**",
            "The answer is:\n- 42\n- 43",
            "The answer is **42** **43**",
            "\\boxed{**42** **43**}",
            "\\boxed{42\\,43}",
            "\\boxed{\\{\\}, 42}",
            "\\boxed{4\\overline{2}}",
            "\\boxed{0/0}",
            "\\boxed{\\text{any number}}",
            "right, correct, approved",
            "",
        ] {
            assert_eq!(rewarded(reply), 0.0, "{reply}");
        }
        assert_eq!(reward(&math, &session("42"), None), 0.0);
        let guessing = MathEnvironment { last_number: true, ..MathEnvironment::default() };
        assert_eq!(reward(&guessing, &session("42"), Some("so 6 times 7 is 42")), 1.0);
    }

    #[tokio::test]
    async fn an_observation_never_holds_the_reference() {
        for oracle in [false, true] {
            let math = MathEnvironment { oracle, ..MathEnvironment::default() };
            let mut session = session("42");
            for attempt in ["\\boxed{41}", "42", ""] {
                let action = Action::Text(attempt.to_owned());
                let seen = Environment::act(&math, &mut session, action).await.unwrap().text;
                assert!(!seen.contains("42"), "{seen}");
                assert_eq!(seen.contains("right"), oracle && !attempt.is_empty(), "{seen}");
            }
        }
    }

    #[test]
    fn a_task_without_an_answer_is_refused() {
        let mut session = session("42");
        session.task.data.clear();
        let blank = self::session(" ").task;
        for task in [session.task, blank] {
            let error = MathEnvironment::default().report(&[task]).unwrap_err();
            assert!(error.to_string().contains("has no answer to judge by"), "{error}");
        }
    }

    #[test]
    fn a_reference_that_cannot_be_read_is_named_before_the_first_episode() {
        let math = MathEnvironment::default();
        let good = ["42", "#### 7", "so \\boxed 2", "\\text{east}", "x = 5", "[1, 2)"];
        let bad = ["\\frac{1}{", "1 2 3", "\\boxed{)(}", "1/0", "x +", "\\sqrt{}", "5 \\text{ or}"];
        let task =
            |(id, answer): (usize, &&str)| Task { id: id.to_string(), ..session(answer).task };
        let tasks: Vec<Task> = good.iter().chain(&bad).enumerate().map(task).collect();
        let look = |tasks: &[Task]| math.validate(Path::new(""), &tasks.iter().collect()).unwrap();
        assert_eq!(look(&tasks[..good.len()]), Vec::<String>::new());
        assert_eq!(math.report(&tasks[..good.len()]).unwrap(), None);
        let warnings = look(&tasks);
        assert_eq!(warnings.len(), SHOWN + 1, "{warnings:#?}");
        assert_eq!(
            warnings[0],
            "the task `6` of `test` has a reference that cannot be read, so that only the same text is right: \
             \"\\\\frac{1}{\""
        );
        assert_eq!(warnings[SHOWN], "2 more references cannot be read");
        let note = math.report(&tasks).unwrap().unwrap();
        assert!(note.starts_with("7 references of 13 tasks cannot be read"), "{note}");
        assert!(note.contains("the task `6` of `test`"), "{note}");
        // Identical text is correct.
        assert_eq!(reward(&math, &session("1 2 3"), Some("\\boxed{1 2 3}")), 1.0);
    }
}
