//! Agents that solve a problem and check the solution.

use maverl::prelude::*;

use crate::reply::{Review, Solution};
use crate::search::Inquiry;

/// Solves a problem, given its last attempt and the feedback on it, if there is one.
#[agent(Inquiry -> Solution, name = "math/solver")]
pub struct Solver;

/// A question with a solution.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Submission {
    /// Question.
    pub question: String,
    /// Solution to verify.
    #[input(observation)]
    pub solution: String,
}

/// Decides whether a solution is correct.
#[agent(Submission -> Review, name = "math/verifier")]
pub struct Verifier;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_hold_the_question_and_what_there_is() {
        let question = "6 times 7?".to_owned();
        let inquiry = Inquiry { question: question.clone(), information: vec!["41".to_owned()] };
        let asked = "Question: 6 times 7?\n41\nWhat is the answer? Reply <answer>words</answer>.";
        assert_eq!(Solver.prompt(&inquiry).user, asked);
        let asked = "Question: 6 times 7?\n42\nIs this right? Reply <verify>yes</verify> or <verify>no</verify>.";
        let submission = Submission { question, solution: "42".to_owned() };
        assert_eq!(Verifier.prompt(&submission).user, asked);
    }
}
