//! Agents that answer a question by search. Prompts are short, so that a small model can follow them.

pub mod r1;

use maverl::prelude::*;

/// A question, and the information found so far.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Inquiry {
    /// Question.
    pub question: String,
    /// Result of each search, oldest first.
    #[input(observation)]
    pub information: Vec<String>,
}

/// Decides whether the information is enough to answer.
#[agent(Inquiry -> Approval, name = "search/verifier")]
pub struct Verifier;

/// Writes the next query.
#[agent(Inquiry -> Query, name = "search/searcher")]
pub struct Searcher;

/// A search query.
#[derive(Reply, Debug, Clone, PartialEq, Eq)]
#[reply(tag = "search", format = "Reply <search>words</search>.")]
pub struct Query(pub String);

/// Answers from the information.
#[agent(Inquiry -> Answer, name = "search/answerer")]
pub struct Answerer;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn prompts_hold_the_question_and_what_was_found() {
        let mut inquiry = Inquiry { question: "Who wrote Magdor?".into(), information: Vec::new() };
        let user = "Question: Who wrote Magdor?\n(none)\nIs this enough to answer? \
                    Reply <verify>yes</verify> or <verify>no</verify>.";
        assert_eq!(Verifier.prompt(&inquiry).user, user);
        inquiry.information = vec!["Doc 1: one".into(), "Doc 1: two".into()];
        let prompt = Searcher.prompt(&inquiry);
        let user = "Question: Who wrote Magdor?\nDoc 1: one\nDoc 1: two\nWhat is to be looked up? \
                    Reply <search>words</search>.";
        assert_eq!(prompt.user, user);
        assert_eq!(&prompt.user[prompt.observations[0].clone()], "Doc 1: one\nDoc 1: two");
    }

    #[test]
    fn replies_are_read_as_the_prompts_ask_for_them() {
        assert_eq!(Verifier.parse("<verify>Yes</verify>").unwrap(), Approval::Yes);
        assert_eq!(Verifier.parse("<verify>no</verify>").unwrap(), Approval::No);
        assert!(Verifier.parse("yes").is_err());
        assert_eq!(Searcher.parse("<search> Magdor </search>").unwrap(), Query("Magdor".into()));
        assert_eq!(Answerer.parse("<answer>1745</answer>").unwrap(), Answer("1745".into()));
        assert!(Answerer.parse("<answer>1745").is_err());
    }
}
