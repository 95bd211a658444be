//! Agents that call tools.

use maverl::prelude::*;
use maverl::tools::{Call, CallError, Tool, read};

use crate::reply::block;

/// Input of a caller.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Errand {
    /// Question.
    pub question: String,
    /// Tools that may be called.
    pub tools: Vec<Tool>,
    /// Results of its last calls; `None` before the first.
    #[input(observation)]
    pub results: Option<Vec<String>>,
}

/// Calls tools until it answers.
#[agent(name = "tools/caller")]
pub struct Caller;

impl Agent for Caller {
    type Input = Errand;
    type Output = Step;

    /// Returns the question and the tools first; then, in the same conversation, the results of calls.
    fn prompt(&self, errand: &Errand) -> Prompt {
        match &errand.results {
            None => {
                let Errand { question, .. } = errand;
                let format = Step::format();
                let prompt = format!(
                    "Question: {question}\nCall tools as needed.\nWhat is the answer? {format}"
                );
                Prompt::user(prompt).with_tools(errand.tools.iter().map(Tool::declaration))
            }
            Some(results) => Prompt::results(results.iter().cloned()),
        }
    }
}

/// Next step of a caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Calls tools, each call parsed or with its error. An answer beside the calls is ignored, because it was given
    /// before their results.
    Call(Vec<Result<Call, CallError>>),
    /// Answers, which ends the episode.
    Answer(String),
}

impl Reply for Step {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <answer>words</answer>.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        match read(reply) {
            calls if calls.is_empty() => Ok(Self::Answer(block(reply, "answer")?.to_owned())),
            calls => Ok(Self::Call(calls)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn tools_come_with_the_question_and_results_without_it() {
        let mut errand = Errand { question: "Who?".to_owned(), tools: Vec::new(), results: None };
        assert!(Caller.prompt(&errand).user.starts_with("Question: Who?\n"));
        errand.results = Some(vec!["nobody".to_owned()]);
        let prompt = Caller.prompt(&errand);
        assert_eq!((prompt.user.as_str(), prompt.results), ("", vec!["nobody".to_owned()]));
    }

    #[test]
    fn a_step_is_calls_or_an_answer() {
        assert_eq!(Step::parse("<answer>4</answer>").unwrap(), Step::Answer("4".to_owned()));
        let call = "<tool_call>{\"name\": \"add\", \"arguments\": {\"x\": 1}}</tool_call>";
        for reply in
            [call.to_owned(), format!("<answer>4</answer>{call}"), format!("Well. {call}{call}")]
        {
            let Step::Call(calls) = Step::parse(&reply).unwrap() else { panic!("{reply}") };
            assert!(calls.iter().all(|call| call.as_ref().unwrap().name == "add"), "{reply}");
        }
        let Step::Call(calls) = Step::parse("<tool_call>add(1)</tool_call>").unwrap() else {
            panic!("no call");
        };
        assert!(matches!(&calls[..], [Err(CallError::Unreadable(_))]));
        for reply in ["4", "", "<answer></answer>", "<answer>4</answer><answer>5</answer>"] {
            assert!(Step::parse(reply).is_err(), "{reply}");
        }
    }
}
