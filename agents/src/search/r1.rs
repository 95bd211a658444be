//! The agent of Search-R1 (Jin et al. 2025, arXiv:2503.09516), whose reply is one growing text of thoughts, searches and
//! documents. Texts and rules are those of `search_r1/llm_agent/generation.py` and `scripts/data_process/nq_search.py` of
//! PeterGriffinJin/Search-R1 at a14dc3a.

use maverl::prelude::*;

/// Instructions of Search-R1, before the question.
pub const INSTRUCTIONS: &str = "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you \
get new information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query </search> and \
it will return the top searched results between <information> and </information>. You can search as many times as your want. If you find \
no further external knowledge needed, you can directly provide the answer inside <answer> and </answer>, without detailed illustrations. \
For example, <answer> Beijing </answer>.";

/// Text after a reply without a search and without an answer.
const INVALID: &str = "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. \
If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n";

/// Ends of a reply: it is cut after the first occurrence of the first of them that it contains.
pub const ENDS: [&str; 2] = ["</search>", "</answer>"];

/// Input of a reasoner.
#[derive(Input, Debug, Clone, PartialEq)]
pub struct Trail {
    /// Question.
    pub question: String,
    /// True after the first reply.
    pub begun: bool,
    /// Documents that the last reply searched for; `None` if it was invalid.
    #[input(observation)]
    pub information: Option<String>,
    /// True if the documents are a message of their own, in place of a part of the reply.
    pub chat: bool,
    /// Maximum number of tokens that are added to a reply.
    pub max_tokens: usize,
}

/// Thinks, searches and answers in one text.
#[agent(name = "search/r1")]
#[derive(Settings)]
pub struct Reasoner {
    /// Text before the question; the default is that of Search-R1.
    #[setting(default = INSTRUCTIONS.to_owned())]
    pub instructions: String,
}

impl Agent for Reasoner {
    type Input = Trail;
    type Output = Step;

    /// Returns the question first; then the text that is added to the reply.
    fn prompt(&self, trail: &Trail) -> Prompt {
        if !trail.begun {
            let question = trail.question.trim_matches(is_blank);
            let mark = if question.ends_with('?') { "" } else { "?" };
            return Prompt::user(format!("{} Question: {question}{mark}\n", self.instructions));
        }
        let mut prompt = Prompt::default();
        match &trail.information {
            None if trail.chat => prompt.push(INVALID.trim()),
            None => prompt.push(INVALID),
            Some(documents) => {
                let [before, after] = if trail.chat { ["", ""] } else { ["\n\n", "\n\n"] };
                prompt.push(before);
                prompt.push("<information>");
                prompt.push_observation(documents);
                prompt.push("</information>");
                prompt.push(after);
            }
        }
        if trail.chat { prompt } else { prompt.continuing(trail.max_tokens) }
    }
}

/// Next step of a reasoner: the first block of `<search>` or `<answer>` of a reply, without the blanks around its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Searches; the query may be empty.
    Search(String),
    /// Answers, which ends the episode.
    Answer(String),
}

impl Reply for Step {
    const STRUCTURED: bool = true;

    fn format() -> String {
        "Reply <search>words</search> to search, or <answer>words</answer> to answer.".to_owned()
    }

    /// Finds the first match of the regular expression `<(search|answer)>(.*?)</\1>`, in which `.` matches line breaks.
    fn parse(reply: &str) -> Result<Self, ReplyError> {
        let mut from = 0;
        loop {
            let rest = &reply[from..];
            let opens = ["<search>", "<answer>"].map(|tag| (rest.find(tag), tag));
            let first = opens.iter().filter_map(|(at, tag)| Some(((*at)?, *tag))).min();
            let Some((at, tag)) = first else {
                let message = "neither a <search>...</search> nor an <answer>...</answer> block";
                return Err(ReplyError::Other(message.to_owned()));
            };
            from += at + tag.len();
            let [search, answer] = ENDS;
            let end = if tag == "<search>" { search } else { answer };
            let Some((content, _)) = reply[from..].split_once(end) else { continue };
            let content = content.trim_matches(is_blank).to_owned();
            return Ok(if end == search { Self::Search(content) } else { Self::Answer(content) });
        }
    }
}

/// Returns true for the characters that `str.strip` of Python removes.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn trail() -> Trail {
        let question = " Who wrote Magdor".to_owned();
        Trail { question, begun: false, information: None, chat: false, max_tokens: 500 }
    }

    #[test]
    fn the_question_comes_once_and_then_what_was_found() {
        let agent = Reasoner::default();
        let first = agent.prompt(&trail());
        let end = "For example, <answer> Beijing </answer>. Question: Who wrote Magdor?\n";
        assert!(first.user.ends_with(end) && !first.is_continuation(), "{}", first.user);
        let begun = Trail { begun: true, ..trail() };
        let found = Trail { information: Some("Doc 1".to_owned()), ..begun.clone() };
        let prompt = agent.prompt(&found);
        assert_eq!(prompt.user, "\n\n<information>Doc 1</information>\n\n");
        assert_eq!(&prompt.user[prompt.observations[0].clone()], "Doc 1");
        assert!(prompt.is_continuation());
        assert!(agent.prompt(&begun).user.starts_with("\nMy previous action is invalid. If I"));
        let chat = agent.prompt(&Trail { chat: true, ..found });
        assert_eq!(chat.user, "<information>Doc 1</information>");
        assert!(!chat.is_continuation());
        let invalid = agent.prompt(&Trail { chat: true, ..begun });
        assert!(invalid.user.starts_with("My") && invalid.user.ends_with("again."));
    }

    #[test]
    fn a_step_is_the_first_closed_block() {
        let search = |query: &str| Step::Search(query.to_owned());
        let answer = |words: &str| Step::Answer(words.to_owned());
        for (reply, step) in [
            ("<think>Hm.</think>\n<search> a\nb </search>", search("a\nb")),
            ("<answer>4</answer><search>a</search>", answer("4")),
            ("<answer>4 <search>a</search>", search("a")),
            ("<search>a <answer>4</answer> b</search>", search("a <answer>4</answer> b")),
            ("<search></search>", search("")),
            ("</search><answer> Beijing\u{1f} </answer>", answer("Beijing")),
        ] {
            assert_eq!(Step::parse(reply).unwrap(), step, "{reply}");
        }
        for reply in ["", "4", "<search>a", "<Search>a</Search>", "<search>a</answer>"] {
            assert!(Step::parse(reply).is_err(), "{reply}");
        }
    }
}
