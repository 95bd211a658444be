//! Replies shared by agents of many teams.

use maverl::prelude::*;

/// A reply with its answer. Other agents read the whole reply; only the answer is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// The whole reply.
    pub text: String,
    /// Content of its only `<answer>` block.
    pub answer: String,
}

impl Reply for Solution {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <answer>words</answer>.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        let answer = block(reply, "answer")?.to_owned();
        Ok(Self { text: reply.trim().to_owned(), answer })
    }
}

/// A reply that approves or rejects something, perhaps with a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The whole reply.
    pub text: String,
    /// True if it approves.
    pub approves: bool,
}

impl Reply for Review {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <verify>yes</verify> or <verify>no</verify>.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        let verdict = block(reply, "verify")?;
        let approves = match verdict.to_ascii_lowercase().as_str() {
            "yes" => true,
            "no" => false,
            _ => {
                return Err(ReplyError::Unexpected {
                    tag: "verify".to_owned(),
                    found: verdict.to_owned(),
                    expected: ["yes", "no"].map(str::to_owned).to_vec(),
                });
            }
        };
        Ok(Self { text: reply.trim().to_owned(), approves })
    }
}

/// Rating from 0 to 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rating(pub u8);

impl Rating {
    /// Returns the rating as a share from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 10.0
    }
}

impl Reply for Rating {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <score>0 to 10</score>.".to_owned()
    }

    fn parse(reply: &str) -> Result<Self, ReplyError> {
        let score = block(reply, "score")?;
        match score.parse() {
            Ok(rating @ 0..=10) => Ok(Self(rating)),
            _ => Err(ReplyError::Value {
                tag: "score".to_owned(),
                found: score.to_owned(),
                message: "a whole number from 0 to 10 is wanted".to_owned(),
            }),
        }
    }
}

/// Returns the content of the only block of a tag; an empty block is an error.
///
/// # Errors
///
/// Same as [`tag`]; [`ReplyError::Missing`] if the block is empty.
pub fn block<'r>(reply: &'r str, name: &str) -> Result<&'r str, ReplyError> {
    match tag(reply, name)? {
        "" => Err(ReplyError::Missing { tag: name.to_owned() }),
        content => Ok(content),
    }
}

/// Content of one of two alternative blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Either<'r> {
    First(&'r str),
    Second(&'r str),
}

/// Returns the content of the only block of either tag; none, both, or several of one are an error.
pub(crate) fn either<'r>(
    reply: &'r str,
    first: &str,
    second: &str,
) -> Result<Either<'r>, ReplyError> {
    match (block(reply, first), block(reply, second)) {
        (Ok(content), Err(ReplyError::Missing { .. })) => Ok(Either::First(content)),
        (Err(ReplyError::Missing { .. }), Ok(content)) => Ok(Either::Second(content)),
        (Ok(_), Ok(_)) => Err(ReplyError::Other(format!(
            "blocks of both <{first}> and <{second}> where one of them is asked for"
        ))),
        (Err(ReplyError::Missing { .. }) | Ok(_), Err(error)) | (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_solution_is_the_reply_and_the_answer_in_it() {
        let solution = Solution::parse(" 2 and 2. <answer> 4 </answer>\n").unwrap();
        assert_eq!(solution.text, "2 and 2. <answer> 4 </answer>");
        assert_eq!(solution.answer, "4");
        let wrong =
            ["4", "<answer></answer>", "<answer>4", "<answer>4</answer> <answer>5</answer>"];
        for reply in wrong {
            assert!(Solution::parse(reply).is_err(), "{reply}");
        }
    }

    #[test]
    fn a_verdict_in_both_senses_is_none() {
        assert!(Review::parse("Fine. <verify>Yes</verify>").unwrap().approves);
        assert!(!Review::parse("<verify>no</verify> 2 + 2 is 4").unwrap().approves);
        let wrong = [
            "yes",
            "<verify>yes</verify><verify>no</verify>",
            "<verify>yes no</verify>",
            "<verify></verify>",
            "<verify>approved</verify>",
        ];
        for reply in wrong {
            assert!(Review::parse(reply).is_err(), "{reply}");
        }
    }

    #[test]
    fn a_reply_is_one_of_two_and_not_both() {
        let of = |reply| either(reply, "act", "answer");
        assert_eq!(of("<act>look</act>"), Ok(Either::First("look")));
        assert_eq!(of("so <answer>4</answer>"), Ok(Either::Second("4")));
        let both = of("<act>look</act><answer>4</answer>").unwrap_err().to_string();
        assert!(both.contains("both <act> and <answer>"), "{both}");
        for reply in
            ["look", "<act>look", "<act></act>", "<act>a</act><act>b</act><answer>4</answer>"]
        {
            assert!(of(reply).is_err(), "{reply}");
        }
    }

    #[test]
    fn a_rating_lies_between_0_and_10() {
        assert_eq!(Rating::parse("<score>7</score>").unwrap().share(), 0.7);
        for reply in ["<score>11</score>", "<score>-1</score>", "<score>7/10</score>", "10"] {
            assert!(Rating::parse(reply).is_err(), "{reply}");
        }
    }
}
