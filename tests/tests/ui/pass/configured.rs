//! Documentation and `cfg` on items, fields and variants.

use maverl::prelude::*;

/// The question.
#[cfg_attr(test, derive(Debug))]
#[derive(Input)]
struct Question {
    /// The words.
    text: String,
    /// Not there.
    #[cfg(not(test))]
    never: std::process::Command,
    /// There.
    #[cfg(test)]
    tested: bool,
}

/// The reply.
#[derive(Reply, Debug, PartialEq)]
#[reply(tag = "say")]
enum Answer {
    /// Yes.
    #[reply("yes")]
    Yes,
    /// Not there, and it would have no word.
    #[cfg(not(test))]
    #[reply("")]
    Never,
    /// The word is the variant's name.
    #[cfg_attr(test, reply("no!"))]
    No,
}

///
///   Says yes or no.
///
/// More about it.
#[agent(
    name = "cfg/oracle",
    input = Question,
    output = Answer,
    prompt_text = "{{ text }} ({{ tested }}) {{ reply_format }}",
)]
#[derive(Default, Clone)]
struct Oracle;

/// Not there; its name is taken.
#[cfg(not(test))]
#[agent(name = "cfg/oracle")]
struct Never;

#[test]
fn the_summary_is_the_first_line_of_the_documentation() {
    assert_eq!(Oracle::SUMMARY, "Says yes or no.");
}

#[test]
fn fields_and_variants_that_are_configured_out_are_not_there() {
    assert_eq!(Question::FIELDS, ["text", "tested"]);
    assert!(Answer::format().ends_with("one of: yes, no!."), "{}", Answer::format());
    let question = Question { text: "Sure?".into(), tested: true };
    assert!(Oracle.prompt(&question).user.starts_with("Sure? (true) Reply"));
}
